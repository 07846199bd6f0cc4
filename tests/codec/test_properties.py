"""Property tests of every message and record in every version."""

from __future__ import annotations

import json
import pickle
from copy import copy, deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import depth
from tests.codec.strategies import MESSAGE_TYPES, value_of, versions_of

from konvene.codec.compile import decode, decode_from, encode
from konvene.codec.errors import CannotEncode
from konvene.codec.json import from_json, to_json
from konvene.codec.schema import Struct, default_of

# Each declaration has few examples per run; there are about two thousand in total.
few = settings(
    max_examples=depth.examples(6),
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
every_declaration = pytest.mark.parametrize("cls", MESSAGE_TYPES, ids=lambda cls: cls.__name__)


@every_declaration
@few
@given(data=st.data())
def test_a_value_survives_encoding_and_json(cls: type[Struct], data: Any) -> None:
    """Decoding the encoded value gives the value, and encoding it again gives the same bytes.

    Its JSON gives the value too, without unknown tagged fields."""
    version = data.draw(st.sampled_from(versions_of(cls)), label="version")
    value = data.draw(value_of(cls, version))
    written = encode(value, version)
    read = decode(cls, version, written)
    assert read == value
    assert hash(read) == hash(value)
    assert encode(read, version) == written
    assert decode_from(cls, version, b"front" + written + b"rest", 5) == (value, 5 + len(written))
    assert pickle.loads(pickle.dumps(read)) == value

    document = to_json(read, version)
    parsed = from_json(cls, json.loads(json.dumps(document)), version)
    assert parsed == without_unknown_tags(value)
    assert to_json(parsed, version) == document


def without_unknown_tags(value: Any) -> Any:
    """Return the value without unknown tagged fields, at any depth."""
    if isinstance(value, tuple):
        return tuple(without_unknown_tags(item) for item in value)
    if not isinstance(value, Struct):
        return value
    fields = {f.name: without_unknown_tags(getattr(value, f.name)) for f in type(value).__fields__}
    return type(value)(**fields)


@every_declaration
@settings(few, max_examples=depth.examples(2))
@given(data=st.data())
def test_values_are_frozen_and_equal_by_content(cls: type[Struct], data: Any) -> None:
    """Copying returns the value itself, `replace` a new value; attributes cannot be set or deleted."""
    version = data.draw(st.sampled_from(versions_of(cls)), label="version")
    value, other = data.draw(value_of(cls, version)), data.draw(value_of(cls, version))
    assert copy(value) is value
    assert deepcopy(value) is value
    assert value.replace() == value
    assert (value == other) == (repr(value) == repr(other) and value.unknown_tags == other.unknown_tags)
    for field in cls.__fields__:
        changed = value.replace(**{field.name: getattr(other, field.name)})
        assert (changed == value) == (getattr(value, field.name) == getattr(other, field.name))
        assert (f"{field.name}=" in repr(value)) >= (getattr(value, field.name) != default_of(field))
        with pytest.raises(AttributeError):
            setattr(value, field.name, None)
        with pytest.raises(AttributeError):
            delattr(value, field.name)


@every_declaration
def test_a_field_missing_from_the_version(cls: type[Struct]) -> None:
    """A value other than the default is dropped if the field is ignorable, otherwise rejected."""
    for version in versions_of(cls):
        plain = encode(default_value(cls, version), version)
        for field in cls.__fields__:
            if version in field.versions:
                continue
            value = default_value(cls, version).replace(**{field.name: other_than(default_of(field))})
            if field.ignorable:
                assert encode(value, version) == plain
            else:
                with pytest.raises(CannotEncode, match=f"{field.wire} is set"):
                    encode(value, version)


def default_value(cls: type[Struct], version: int) -> Struct:
    """Return the default value, with empty values for nulls that the version does not allow."""
    values: dict[str, Any] = {}
    for field in cls.__fields__:
        if version in field.versions and default_of(field) is None and version not in field.nullable:
            values[field.name] = {"array": (), "string": "", "bytes": b"", "records": b""}[field.kind]
    return cls(**values)


def other_than(default: Any) -> Any:
    """Return a value that differs from the default; its type does not matter, as it is never encoded."""
    return "set" if default != "set" else ""


@every_declaration
def test_default_values_survive_encoding(cls: type[Struct]) -> None:
    """Default values round-trip in every version, and their repr shows no fields."""
    assert repr(cls()) == f"{cls.__name__}()"
    for version in versions_of(cls):
        value = default_value(cls, version)
        assert decode(cls, version, encode(value, version)) == value
