"""Converts messages to and from JSON, in the conventions of Kafka's `JsonConverter` classes.

Names are Kafka's with a lower-case first letter, bytes are base64, and ids have 22 characters. A tagged field
appears only if it differs from its default; fields that a version lacks are omitted.
"""

from __future__ import annotations

import base64
import math
from typing import Any, TypeVar

from konvene.codec.errors import Malformed
from konvene.codec.schema import Field, Primitive, Struct, default_of
from konvene.codec.uuid import Uuid

S = TypeVar("S", bound=Struct)


def to_json(value: Struct, version: int) -> dict[str, object]:
    """Convert a value to Kafka's JSON for one version: dicts, lists, numbers, strings, booleans and None."""
    out: dict[str, object] = {}
    for f in type(value).__fields__:
        if version not in f.versions:
            continue
        content = getattr(value, f.name)
        if f.is_tagged(version) and content == default_of(f):
            continue
        out[f.json_name] = _field_to_json(f, content, version)
    return out


def _field_to_json(f: Field, content: Any, version: int) -> object:
    if content is None:
        return None
    if f.kind == "array":
        if isinstance(f.element, Primitive):
            return [_primitive_to_json(f.element.name, item) for item in content]
        return [to_json(item, version) for item in content]
    if f.kind == "struct":
        return to_json(content, version)
    return _primitive_to_json(f.kind, content)


def _primitive_to_json(kind: str, content: Any) -> object:
    if kind in ("bytes", "records"):
        return base64.b64encode(content).decode()
    if kind == "uuid":
        return str(Uuid(content))
    if kind == "float64" and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return content


def from_json(cls: type[S], data: object, version: int) -> S:
    """Build a value from Kafka's JSON for one version; missing fields get their defaults.

    Raises `Malformed` for a field that the version lacks, and for invalid values.
    """
    if not isinstance(data, dict):
        raise Malformed(f"{cls.__name__} v{version} is not a JSON object: {data!r}")
    fields = {f.json_name: f for f in cls.__fields__ if version in f.versions}
    values = {}
    for name, content in data.items():
        if name not in fields:
            raise Malformed(f"{cls.__name__} v{version} has no field {name}")
        f = fields[name]
        values[f.name] = _field_from_json(f, content, version)
    return cls(**values)


def _field_from_json(f: Field, content: object, version: int) -> object:
    if content is None:
        return None
    if f.kind == "array":
        if not isinstance(content, list):
            raise Malformed(f"{f.json_name} is not a JSON list: {content!r}")
        if isinstance(f.element, Primitive):
            return tuple(_primitive_from_json(f.element.name, item) for item in content)
        return tuple(from_json(f.element, item, version) for item in content)
    if f.kind == "struct":
        return from_json(f.element, content, version)
    return _primitive_from_json(f.kind, content)


def _primitive_from_json(kind: str, content: Any) -> object:
    try:
        if kind in ("bytes", "records"):
            return base64.b64decode(content, validate=True)
        if kind == "uuid":
            return Uuid.parse(content)
        if kind == "float64":
            return float(content)
    except (TypeError, ValueError) as error:
        raise Malformed(f"not a JSON {kind}: {content!r}") from error
    return content
