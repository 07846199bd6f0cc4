"""STUB until merged."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

ACTIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Awaitable[Any]]] = {}
