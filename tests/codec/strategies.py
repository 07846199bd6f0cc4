"""Hypothesis strategies for messages and records, derived from their declarations."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from hypothesis import strategies as st

from konvene.codec.schema import FOREVER, Field, Primitive, Struct, default_of
from konvene.codec.uuid import Uuid


def message_types() -> list[type[Struct]]:
    """Return every message and record: the declarations that have versions of their own."""
    modules = [
        import_module(row.name)
        for package in ("konvene.messages", "konvene.records")
        for row in iter_modules(import_module(package).__path__, package + ".")
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Struct)
        and value.__module__ == module.__name__
        and value.__versions__.last < FOREVER
    ]


MESSAGE_TYPES = message_types()


def versions_of(cls: type[Struct]) -> range:
    return range(cls.__versions__.first, cls.__versions__.last + 1)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": st.integers(0, 65535),
    "int32": _integers(32),
    "int64": _integers(64),
    "float64": st.floats(allow_nan=False),  # A NaN is not equal to itself: see test_schema.
    "uuid": st.binary(min_size=16, max_size=16).map(Uuid),
    "string": st.text(st.characters(codec="utf-8"), max_size=12),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=12),
}


@cache
def value_of(cls: type[Struct], version: int, *, tags: bool = True) -> st.SearchStrategy[Any]:
    """Return a strategy for values valid in the version; fields it lacks have their defaults.

    With `tags`, values of a flexible version may also have unknown tagged fields."""
    return _struct(cls, version, version in cls.__flexible__, tags)


@cache
def _struct(cls: type[Struct], version: int, flexible: bool, tags: bool) -> st.SearchStrategy[Any]:
    fields = {f.name: _field(f, version, flexible, tags) for f in cls.__fields__ if version in f.versions}
    if flexible and tags:
        known = {f.tag for f in cls.__fields__ if f.is_tagged(version)}
        fields["unknown_tags"] = _unknown(frozenset(known))
    return st.builds(cls, **fields)


@cache
def _unknown(known: frozenset[int]) -> st.SearchStrategy[tuple[tuple[int, bytes], ...]]:
    tag = st.one_of(st.integers(0, 20), st.integers(0, 0xFFFFFFFF)).filter(lambda t: t not in known)
    fields = st.dictionaries(tag, st.binary(max_size=4), max_size=2)
    return st.one_of(st.just(()), fields.map(lambda tags: tuple(sorted(tags.items()))))


def _field(field: Field, version: int, flexible: bool, tags: bool) -> st.SearchStrategy[Any]:
    present: st.SearchStrategy[Any]
    if field.kind == "array":
        present = st.lists(_element(field.element, version, flexible, tags), max_size=2).map(tuple)
    else:
        present = _element(field.element or Primitive(field.kind, None), version, flexible, tags)
    if version in field.nullable:
        present = st.one_of(st.none(), present)
    if field.is_tagged(version):
        present = st.one_of(st.just(default_of(field)), present)
    return present


def _element(element: Any, version: int, flexible: bool, tags: bool) -> st.SearchStrategy[Any]:
    if isinstance(element, Primitive):
        return PRIMITIVES[element.name]
    return _struct(element, version, flexible, tags)
