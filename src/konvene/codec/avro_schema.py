"""Parses Avro schemas (`.avsc`, Avro 1.12) to trees of `Schema`, the input of `konvene.codec.avro`.

A reference to a named type is the same object as its definition, so a schema may contain itself. Logical
types, aliases, defaults and documentation are ignored: values are those of the underlying type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from konvene.codec.errors import Malformed

__all__ = ["PRIMITIVES", "Field", "Schema", "parse_schema"]

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*")


class Field(NamedTuple):
    """A field of a record."""

    name: str
    schema: Schema


@dataclass(eq=False, repr=False)
class Schema:
    """A schema; the fields below apply to the kinds that they name."""

    kind: str
    """A name in PRIMITIVES, or record, enum, array, map, union or fixed."""
    name: str
    """Name of the schema as a branch of a union: the full name of a record, enum or fixed, else the kind."""
    fields: tuple[Field, ...] = ()
    """Of a record."""
    symbols: tuple[str, ...] = ()
    """Of an enum."""
    items: Schema | None = None
    """Of an array, or the values of a map."""
    branches: tuple[Schema, ...] = ()
    """Of a union."""
    size: int = 0
    """Number of bytes of a fixed."""

    def __repr__(self) -> str:
        return f"<Schema {self.kind}>" if self.kind == self.name else f"<Schema {self.kind} {self.name}>"


def parse_schema(text: str) -> Schema:
    """Parse a schema in JSON. Raises `Malformed` with what is wrong."""
    try:
        return _Parser().parse(json.loads(text), "")
    except RecursionError:
        raise Malformed("the schema is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"the schema is not JSON: {error}") from None
    except ValueError as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(f"the schema is not valid: {error}") from None


class _Parser:
    """The named types that were parsed so far, by full name."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}

    def parse(self, node: Any, namespace: str) -> Schema:
        if isinstance(node, str):
            return self._reference(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace)
        if not isinstance(node, dict):
            raise Malformed(f"a schema is a name, an object or a list, not {json.dumps(node)[:80]}")
        kind = node.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": "string"}}
            return self.parse(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(node, kind, namespace)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in node:
                raise Malformed(f'the {kind} has no "{part}"')
            return Schema(kind, kind, items=self.parse(node[part], namespace))
        if not isinstance(kind, str):
            raise Malformed('a schema object has no "type"')
        return self._reference(kind, namespace)

    def _reference(self, name: str, namespace: str) -> Schema:
        if name in PRIMITIVES:
            return Schema(name, name)
        for full_name in (_in(namespace, name), name) if "." not in name else (name,):
            if full_name in self.named:
                return self.named[full_name]
        raise Malformed(f"there is no type {name} in the schema")

    def _union(self, nodes: list[Any], namespace: str) -> Schema:
        branches = tuple(self.parse(node, namespace) for node in nodes)
        names = [branch.name for branch in branches]
        if not branches:
            raise Malformed("a union has no branches")
        if "union" in names:
            raise Malformed("a union contains a union")
        for name in names:
            if names.count(name) > 1:
                raise Malformed(f"a union has two branches {name}")
        return Schema("union", "union", branches=branches)

    def _named(self, node: Mapping[str, Any], kind: str, namespace: str) -> Schema:
        name, inner = node.get("name"), node.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(inner, str) or not _FULL_NAME.fullmatch(name):
            raise Malformed(f"the {kind} has no valid name: {json.dumps(name)[:80]}")
        full_name = name if "." in name else _in(inner, name)
        if full_name in self.named or full_name in PRIMITIVES:
            raise Malformed(f"type {full_name} is defined twice")
        made = self.named[full_name] = Schema("record" if kind == "error" else kind, full_name)
        if kind == "enum":
            made.symbols = _symbols(node.get("symbols"), full_name)
        elif kind == "fixed":
            made.size = _size(node.get("size"), full_name)
        else:
            made.fields = self._fields(node.get("fields"), full_name)
        return made

    def _fields(self, nodes: Any, full_name: str) -> tuple[Field, ...]:
        if not isinstance(nodes, list):
            raise Malformed(f'record {full_name} has no list of "fields"')
        namespace = full_name.rpartition(".")[0]
        made: list[Field] = []
        for node in nodes:
            name = node.get("name") if isinstance(node, dict) else None
            if not isinstance(name, str) or "type" not in node:
                raise Malformed(f"a field of record {full_name} has no name or no type")
            if any(field.name == name for field in made):
                raise Malformed(f"record {full_name} has two fields {name}")
            made.append(Field(name, self.parse(node["type"], namespace)))
        return tuple(made)


def _in(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _symbols(found: Any, full_name: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise Malformed(f'enum {full_name} has no list of "symbols"')
    if len(set(found)) != len(found):
        raise Malformed(f"enum {full_name} has a symbol twice")
    return tuple(found)


def _size(found: Any, full_name: str) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise Malformed(f'fixed {full_name} has no valid "size"')
    return found
