"""Reads what a reducer was packed as, and nothing else.

A pickle can name any function there is and have it called. What stands in a warehouse was written by ours, or
by who took its place; so only the values that reducers are made of are read, and a name that is none of
theirs is an error (`pickle.UnpicklingError`).
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

__all__ = ["unpacked"]

_HOMES: Final = ("codec", "errors", "groups", "pipeline", "records", "shard")
"""The packages whose classes a reducer may hold. None of them does anything when it is made."""

_FUNCTIONS: Final = frozenset(
    {
        ("konvene.pipeline.reduce.reducer", "_as_it_was"),
        ("konvene.pipeline.reduce.reducer", "_unpacked"),
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
        if top == "konvene" and rest.partition(".")[0] in _HOMES and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a reducer")


def unpacked(packed: bytes) -> Any:
    """What was packed. Raises `pickle.UnpicklingError`, or `EOFError` where it ends too soon."""
    return _Unpickler(io.BytesIO(packed)).load()
