"""A restricted unpickler for stored reducers.

A pickle can name any function and have it called. Files in a warehouse may have been replaced by others; so
only the values that reducers consist of are read, and any other name is an error (`pickle.UnpicklingError`).
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

__all__ = ["unpickled"]

_PACKAGES: Final = ("codec", "errors", "groups", "pipeline", "records", "shard")
"""Packages whose classes a reducer may contain. Constructing one of these has no side effects."""

_FUNCTIONS: Final = frozenset(
    {
        ("konvene.pipeline.reduce.reducer", "_frozen"),
        ("konvene.pipeline.reduce.reducer", "_restored"),
        ("konvene.codec.schema", "_remade"),
        ("copyreg", "_reconstructor"),
        ("copyreg", "__newobj__"),
    }
)
_VALUES: Final = frozenset(
    {
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("builtins", "object"),
        ("builtins", "bytearray"),
        ("builtins", "range"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("builtins", "list"),
        ("builtins", "dict"),
        ("builtins", "int"),
    }
)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _VALUES or (module, name) in _FUNCTIONS:
            return super().find_class(module, name)
        top, _, rest = module.partition(".")
        if top == "konvene" and rest.partition(".")[0] in _PACKAGES and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a reducer")


def unpickled(packed: bytes) -> Any:
    """Unpickle a reducer. Raises `pickle.UnpicklingError`, or `EOFError` if the data is truncated."""
    return _Unpickler(io.BytesIO(packed)).load()
