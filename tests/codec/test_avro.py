"""Avro: schemas, the binary encoding in both directions, and hostile bytes."""

from __future__ import annotations

import io
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.avro import MAX_DEPTH, decode, encode, parse_schema
from konvene.codec.errors import CannotEncode, CodecError, Malformed

LINKED = json.dumps({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r.R", "fields": [{"name": n, "type": t} for n, t in fields]}


SUIT = {"type": "enum", "name": "Suit", "symbols": ["CLUBS", "HEARTS"]}
PAIR = {"type": "fixed", "name": "a.Pair", "size": 2}

CASES = [
    ("null", None, ""),
    ("boolean", True, "01"),
    ("int", -1, "01"),
    ("int", 2**31 - 1, "feffffff0f"),
    ("long", -(2**63), "ffffffffffffffffff01"),
    ("float", 0.1, "cdcccc3d"),
    ("float", "NaN", "0000c07f"),
    ("double", 1.5, "000000000000f83f"),
    ("double", "-Infinity", "000000000000f0ff"),
    ("string", "hé", "0668c3a9"),
    ("bytes", "\x00\xff", "0400ff"),
    (SUIT, "HEARTS", "02"),
    (PAIR, "ab", "6162"),
    ({"type": "array", "items": "int"}, [1, 2], "04020400"),
    ({"type": "array", "items": "int"}, [], "00"),
    ({"type": "map", "values": "int"}, {"a": 1}, "0202610200"),
    (["null", "string"], None, "00"),
    (["null", "string"], {"string": "a"}, "020261"),
    (["null", PAIR], {"a.Pair": "ab"}, "026162"),
    (record(("a", "long"), ("b", ["null", "string"])), {"a": 27, "b": None}, "3600"),
    ({"type": {"type": "long", "logicalType": "timestamp-millis"}}, 1, "02"),
    (
        record(("a", SUIT), ("b", {"type": "array", "items": "Suit"})),
        {"a": "CLUBS", "b": ["HEARTS"]},
        "00020200",
    ),
]


@pytest.mark.parametrize(("schema", "value", "data"), CASES)
def test_value_has_the_bytes_of_the_specification(schema: Any, value: Any, data: str) -> None:
    parsed = parse_schema(json.dumps(schema))
    assert encode(parsed, value).hex() == data
    assert decode(parsed, bytes.fromhex(data)) == value


def test_blocks_with_a_size_are_read() -> None:
    """A negative count is followed by the size of the block in bytes."""
    schema = parse_schema('{"type": "array", "items": "int"}')
    assert decode(schema, bytes.fromhex("03040204" + "0206" + "00")) == [1, 2, 3]


def test_named_types_are_found_in_their_namespace() -> None:
    """A name without a dot is of the enclosing namespace, else of none; a record may contain itself."""
    inner = {"type": "record", "name": "In", "fields": [{"name": "up", "type": ["null", "Out"]}]}
    outer = {"type": "record", "name": "Out", "namespace": "n", "fields": [{"name": "down", "type": inner}]}
    schema = parse_schema(json.dumps(outer))
    value = {"down": {"up": {"n.Out": {"down": {"up": None}}}}}
    assert decode(schema, encode(schema, value)) == value
    assert repr(schema) == "<Schema record n.Out>"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "the schema is not JSON"),
        ("3", "a schema is a name, an object or a list, not 3"),
        ('"strnig"', "there is no type strnig in the schema"),
        ('{"items": "int"}', 'a schema object has no "type"'),
        ('{"type": "array"}', 'the array has no "items"'),
        ('["int", "int"]', "a union has two branches int"),
        ('["int", ["null"]]', "a union contains a union"),
        ("[]", "a union has no branches"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "enum E has a symbol twice"),
        ('{"type": "fixed", "name": "F", "size": -1}', 'fixed F has no valid "size"'),
        ('{"type": "record", "name": "R"}', 'record R has no list of "fields"'),
        ('{"type": "record", "name": "1", "fields": []}', 'the record has no valid name: "1"'),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "x"}]}',
            "a field of record R has no name or no",
        ),
        ("[" * 100_000, "the schema is nested too deeply"),
    ],
)
def test_invalid_schema_is_malformed(schema: str, problem: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_schema(schema)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        ("int", "", "variable-length number at 0 has no end"),
        ("int", "feffffff1f", "the int is 4294967295"),
        ("long", "ff" * 11, "variable-length number at 0 is longer than 10 bytes"),
        ("boolean", "02", "the boolean is 2"),
        ("string", "02ff", "the text is not UTF-8"),
        ("string", "01", "-1 bytes do not fit in the 0 that remain"),
        ("bytes", "feffffffffffffffff01", "9223372036854775807 bytes do not fit in the 0 that remain"),
        ("long", "0200", "1 bytes remain after the value"),
        (["null", "int"], "04", "the union has no branch 2"),
        (SUIT, "05", "enum Suit has no symbol -3"),
        (record(("a", {"type": "array", "items": "boolean"})), "0401", "a.1: 1 bytes do not fit in the 0"),
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_field(schema: Any, data: str, problem: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(parse_schema(json.dumps(schema)), bytes.fromhex(data))
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (LINKED, b"\x02" * 1_000_000 + b"\x00"),
        ('{"type": "array", "items": "null"}', encode(parse_schema('"long"'), 2**62) + b"\x00"),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}', b""),
    ],
)
def test_small_input_cannot_exhaust_stack_or_memory(schema: str, data: bytes) -> None:
    """A chain of a million records, 2^62 nulls in ten bytes, and a record without an end are errors."""
    with pytest.raises(CodecError, match="more than"):
        decode(parse_schema(schema), data)


def test_nesting_is_limited_in_both_directions() -> None:
    schema = parse_schema(LINKED)
    value: Any = {"next": None}
    for _ in range(MAX_DEPTH):
        value = {"next": {"N": value}}
    with pytest.raises(CannotEncode, match="nested more than"):
        encode(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ("int", 2**31, "2147483648 is not an int"),
        ("int", True, "True is not an int"),
        ("long", 1.0, "1.0 is not a long"),
        ("boolean", 1, "1 is not a boolean"),
        ("string", None, "null is not a string"),
        ("string", "\ud800", "the text has a lone surrogate"),
        ("bytes", "€", "bytes are text with the characters U+0000 to U+00FF"),
        ("float", 1e300, "1e+300 is too large for a float"),
        (PAIR, "abc", "3 bytes, but a.Pair has 2"),
        (SUIT, "SPADES", "'SPADES' is not one of CLUBS, HEARTS"),
        (["null", "string"], "a", 'a value of this union is null or {"string": …}'),
        (record(("a", "int")), {}, "record r.R needs the field a"),
        (record(("a", "int")), {"a": 1, "b": 2}, "record r.R has no field b"),
        (record(("a", {"type": "map", "values": "int"})), {"a": {"k": "x"}}, "a.k: 'x' is not an int"),
    ],
)
def test_value_that_the_schema_does_not_allow_is_an_error(schema: Any, value: Any, problem: str) -> None:
    with pytest.raises(CannotEncode) as caught:
        encode(parse_schema(json.dumps(schema)), value)
    assert str(caught.value) == problem


# generated ------------------------------------------------------------------------------------

TEXT = st.text(max_size=5)
LATIN = st.text(st.characters(max_codepoint=255), max_size=5)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SINGLE = st.builds(
    lambda x: float(next(s for d in range(6, 10) if single(float(s := f"{x:.{d}g}")) == x)), FLOATS
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
LONGS = st.integers(-(2**63), 2**63 - 1)
Typed = tuple[Any, Any]
"""A schema and one of its values."""


def single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf


def typed(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Typed]:
    return values.map(lambda value: (kind, value))


def nested(part: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def array(one: Typed, count: int) -> Typed:
        return {"type": "array", "items": one[0]}, [one[1]] * count

    def mapping(one: Typed, keys: set[str]) -> Typed:
        return {"type": "map", "values": one[0]}, dict.fromkeys(keys, one[1])

    def optional(one: Typed, is_null: bool) -> Typed:
        schema = one[0]
        if isinstance(schema, list) or schema == "null":
            return one
        name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
        return ["null", schema], None if is_null else {name: one[1]}

    def fields(parts: list[Typed]) -> Typed:
        schema = [{"name": f"f{i}", "type": one[0]} for i, one in enumerate(parts)]
        return {"type": "record", "name": "", "fields": schema}, {f"f{i}": o[1] for i, o in enumerate(parts)}

    return st.one_of(
        st.builds(array, part, st.integers(0, 3)),
        st.builds(mapping, part, st.sets(TEXT, max_size=3)),
        st.builds(optional, part, st.booleans()),
        st.builds(fields, st.lists(part, max_size=3)),
    )


PRIMITIVE = st.one_of(
    typed("null", st.none()), typed("boolean", st.booleans()), typed("int", st.integers(-(2**31), 2**31 - 1)),
    typed("long", LONGS), typed("float", SINGLE), typed("double", DOUBLES), typed("string", TEXT),
    typed("bytes", LATIN),
)  # fmt: skip


def named(one: Typed) -> Typed:
    """Give each record a name of its own, also where a union refers to it."""
    count = 0

    def walk(schema: Any, value: Any) -> Typed:
        nonlocal count
        if isinstance(schema, list):
            branch, held = walk(schema[1], None if value is None else next(iter(value.values())))
            name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
            return ["null", branch], None if value is None else {name: held}
        if isinstance(schema, str):
            return schema, value
        kind = schema["type"]
        if kind == "record":
            count += 1
            name = f"n.R{count}"
            rows = [(f["name"], *walk(f["type"], None if value is None else value[f["name"]]))
                    for f in schema["fields"]]  # fmt: skip
            fields = [{"name": n, "type": s} for n, s, _ in rows]
            return {"type": kind, "name": name, "fields": fields}, {n: v for n, _, v in rows}
        part = "items" if kind == "array" else "values"
        parts = [None] if not value else value if kind == "array" else list(value.values())
        inner, held = walk(schema[part], parts[0])
        if kind == "array":
            return {"type": kind, part: inner}, [held] * len(value or ())
        return {"type": kind, part: inner}, dict.fromkeys(value or (), held)

    return walk(*one)


TYPED = st.recursive(PRIMITIVE, nested, max_leaves=6).map(named)


@given(TYPED)
def test_generated_values_survive_a_round_trip(case: Typed) -> None:
    schema = parse_schema(json.dumps(case[0]))
    assert decode(schema, encode(schema, case[1])) == case[1]


@given(TYPED, st.binary(max_size=30))
def test_generated_bytes_raise_codec_errors_only(case: Typed, data: bytes) -> None:
    """What can be decoded is encoded to bytes that decode to the same."""
    schema = parse_schema(json.dumps(case[0]))
    try:
        value = decode(schema, data)
    except CodecError:
        return
    again = decode(schema, encode(schema, value))
    assert again == value


@given(TYPED)
def test_fastavro_writes_the_same_bytes(case: Typed) -> None:
    """Compare with an independent implementation, where it is installed."""
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed (pip install fastavro)")
    schema, value = case
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), plain(schema, value))
    assert out.getvalue() == encode(parse_schema(json.dumps(schema)), value)


def plain(schema: Any, value: Any) -> Any:
    """Convert a value of Avro's JSON encoding to the Python value that fastavro writes."""
    if isinstance(schema, list):
        if value is None:
            return None
        ((name, held),) = value.items()
        inner = plain(schema[1], held)
        return (name, inner) if isinstance(inner, dict) and name != "map" else inner
    if schema == "bytes":
        return value.encode("latin-1")
    if isinstance(schema, str):
        return value
    if schema["type"] == "record":
        return {f["name"]: plain(f["type"], value[f["name"]]) for f in schema["fields"]}
    if schema["type"] == "array":
        return [plain(schema["items"], each) for each in value]
    return {key: plain(schema["values"], each) for key, each in value.items()}
