"""The type of a row, importable without Arrow: code that only reads rows imports it from here."""

from __future__ import annotations

from typing import Any

__all__ = ["Row"]

Row = dict[str, Any]
"""A row of a table as Arrow returns it, by the names of columns; the table's `columns` have its types."""
