"""What holds for every message and record in every version, whatever values it has."""

from __future__ import annotations

import json
import pickle
from copy import copy, deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import depth
from tests.codec.strategies import WHOLE, value_of, versions_of

from konvene.codec.compile import decode, decode_from, encode
from konvene.codec.errors import CannotEncode
from konvene.codec.json import from_json, to_json
from konvene.codec.schema import Struct, default_of

# Each declaration has few examples per run; together they are some two thousand.
few = settings(
    max_examples=depth.examples(6),
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
every_declaration = pytest.mark.parametrize("cls", WHOLE, ids=lambda cls: cls.__name__)


@every_declaration
@few
@given(data=st.data())
def test_a_value_survives_the_wire_and_the_json(cls: type[Struct], data: Any) -> None:
    """Reading what was written gives the value; writing what was read gives the bytes.

    The JSON, through its text, gives the value too, but for tags that have no name."""
    version = data.draw(st.sampled_from(versions_of(cls)), label="version")
    value = data.draw(value_of(cls, version))
    written = encode(value, version)
    read = decode(cls, version, written)
    assert read == value
    assert hash(read) == hash(value)
    assert encode(read, version) == written
    assert decode_from(cls, version, b"front" + written + b"rest", 5) == (value, 5 + len(written))
    assert pickle.loads(pickle.dumps(read)) == value

    told = to_json(read, version)
    back = from_json(cls, json.loads(json.dumps(told)), version)
    assert back == nameless_tags_dropped(value)
    assert to_json(back, version) == told


def nameless_tags_dropped(value: Any) -> Any:
    """The value without unknown tags, at any depth."""
    if isinstance(value, tuple):
        return tuple(nameless_tags_dropped(item) for item in value)
    if not isinstance(value, Struct):
        return value
    fields = {f.name: nameless_tags_dropped(getattr(value, f.name)) for f in type(value).__fields__}
    return type(value)(**fields)


@every_declaration
@settings(few, max_examples=depth.examples(2))
@given(data=st.data())
def test_values_are_frozen_and_equal_by_content(cls: type[Struct], data: Any) -> None:
    """A copy is the value itself, a replaced field makes another, and nothing can be set."""
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
def test_a_field_that_the_version_lacks(cls: type[Struct]) -> None:
    """Set to anything but its default it is dropped where Kafka ignores it, else refused."""
    for version in versions_of(cls):
        plain = encode(legal_in(cls, version), version)
        for field in cls.__fields__:
            if version in field.versions:
                continue
            value = legal_in(cls, version).replace(**{field.name: unlike(default_of(field))})
            if field.ignorable:
                assert encode(value, version) == plain
            else:
                with pytest.raises(CannotEncode, match=f"{field.wire} is set"):
                    encode(value, version)


def legal_in(cls: type[Struct], version: int) -> Struct:
    """The defaults, but for nulls that an older version does not allow."""
    values: dict[str, Any] = {}
    for field in cls.__fields__:
        if version in field.versions and default_of(field) is None and version not in field.nullable:
            values[field.name] = {"array": (), "string": "", "bytes": b"", "records": b""}[field.kind]
    return cls(**values)


def unlike(default: Any) -> Any:
    """Something that is not the default (of the right type or not: it will not be written)."""
    return "set" if default != "set" else ""


@every_declaration
def test_defaults_are_read_from_their_own_bytes(cls: type[Struct]) -> None:
    """A value of defaults is written and read in every version, and its repr shows none of them."""
    assert repr(cls()) == f"{cls.__name__}()"
    for version in versions_of(cls):
        value = legal_in(cls, version)
        assert decode(cls, version, encode(value, version)) == value
