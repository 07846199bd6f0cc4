"""Formats of keys and values: text of bytes, bytes of text, and errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.formats import FORMATS, Decoded, FormatError, record_format

SCHEMA = json.dumps(
    {
        "type": "record", "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
)  # fmt: skip
ORDER = '{"id":7,"note":{"string":"é"}}'
ORDER_BYTES = bytes.fromhex("0e0204c3a9")


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("text", "hé".encode(), "hé"),
        ("json", b'{"a":[1.10,3e999]}', '{"a":[1.10,3e999]}'),
        ("json", b"9" * 5_000, "9" * 5_000),
        ("hex", b"\x00\xff", "00ff"),
        ("long", (2**63 - 1).to_bytes(8, "big"), "9223372036854775807"),
        ("long", b"\xff" * 8, "-1"),
        ("avro", ORDER_BYTES, ORDER),
    ],
)
def test_bytes_are_shown_as_text_and_entered_again(name: str, data: bytes, text: str) -> None:
    """JSON is passed on as it is written: no number is changed."""
    chosen = record_format(name, SCHEMA)
    assert chosen.decode(data) == Decoded(text, is_json=name in ("json", "long", "avro"))
    assert chosen.encode(text) == data


def test_null_stays_null() -> None:
    for name in FORMATS:
        chosen = record_format(name, SCHEMA)
        assert chosen.decode(None) == Decoded(None)
        assert chosen.encode(None) is None


def test_json_is_shown_on_one_line() -> None:
    """White space outside of strings is left out."""
    shown = record_format("json").decode(b'{\n  "a b": [1, 2],\r\n\t"c": " \\" x "\n}\n')
    assert shown.text == '{"a b":[1,2],"c":" \\" x "}'


def test_confluents_frame_is_skipped_and_reported() -> None:
    """A zero byte and the id of the schema precede the value."""
    shown = record_format("avro", SCHEMA).decode(b"\x00\x00\x00\x01\x02" + ORDER_BYTES)
    assert shown == Decoded(ORDER, is_json=True, schema_id=258)


def test_plain_avro_may_begin_with_a_zero_byte() -> None:
    data = b"\x00\x02" + b"\x08abcd"  # id 0
    assert record_format("avro", SCHEMA).decode(data).text == '{"id":0,"note":{"string":"abcd"}}'


@pytest.mark.parametrize(
    ("name", "data", "text", "error"),
    [
        ("text", b"a\xff", "a\N{REPLACEMENT CHARACTER}", "not text: byte 1 is not UTF-8"),
        ("json", b"hello", "hello", "not json: Expecting value: line 1 column 1 (char 0)"),
        ("json", b"NaN", "NaN", "not json: NaN is not a JSON value"),
        ("json", b"\x00\xff", "00ff", "not json: byte 1 is not UTF-8"),
        ("json", b"[" * 100_000, "[" * 100_000, "not json: nested too deeply"),
        ("json", b"", "", "not json: Expecting value: line 1 column 1 (char 0)"),
        ("long", b"\x00", "00", "not long: 1 byte instead of 8"),
        ("avro", b"\x0e\x04", "0e04", "not avro: with the given schema: note: the union has no branch 2"),
        (
            "avro",
            b"\x00\x00\x00\x00\x09\x0e",
            "00000000090e",
            "not avro: frame with schema id 9: note: variable-length number at 1 has no end",
        ),
    ],
)
def test_other_bytes_are_shown_with_an_error(name: str, data: bytes, text: str, error: str) -> None:
    assert record_format(name, SCHEMA).decode(data) == Decoded(text, error)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("text", "\ud800", "not text: the text has a lone surrogate"),
        ("json", "{", "not json: Expecting property name enclosed in double quotes"),
        ("hex", "abc", "not hex: write two hexadecimal digits per byte"),
        ("long", "1.5", "not long: write a whole number between -2^63 and 2^63-1"),
        ("long", "9223372036854775808", "not long: write a whole number between -2^63 and 2^63-1"),
        ("avro", "id", "not avro: the text is not JSON: Expecting value"),
        ("avro", '{"id": 1}', "not avro: record Order needs the field note"),
        ("avro", "[" * 100_000, "not avro: nested too deeply"),
    ],
)
def test_text_that_cannot_be_encoded_is_an_error(name: str, text: str, error: str) -> None:
    with pytest.raises(FormatError) as caught:
        record_format(name, SCHEMA).encode(text)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("name", "schema", "error"),
    [
        ("xml", None, "there is no format xml: use text, json, hex, long, avro"),
        ("avro", None, "the format avro needs a schema"),
        ("avro", '"strnig"', "the Avro schema is not valid: there is no type strnig in the schema"),
    ],
)
def test_unknown_format_or_invalid_schema_is_an_error(name: str, schema: str | None, error: str) -> None:
    with pytest.raises(FormatError) as caught:
        record_format(name, schema)
    assert str(caught.value) == error


def test_json_of_a_decoded_value_is_the_document_or_a_string() -> None:
    assert Decoded('{"a":1}', is_json=True).json == '{"a":1}'
    assert Decoded('say "hé"').json == '"say \\"hé\\""'
    assert Decoded(None).json == "null"


@given(st.sampled_from(FORMATS), st.binary(max_size=40))
def test_any_bytes_are_shown(name: str, data: bytes) -> None:
    """No bytes raise; without an error they are entered again, up to white space and Confluent's frame."""
    chosen = record_format(name, SCHEMA)
    shown = chosen.decode(data)
    assert shown.text is not None
    json.loads(shown.json, parse_int=len)
    if shown.error is None:
        entered = chosen.encode(shown.text)
        assert chosen.decode(entered) == shown._replace(schema_id=None)
        assert name == "json" or shown.schema_id is not None or name == "avro" or entered == data


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8")))
def test_any_number_and_text_survive_a_round_trip(number: int, text: str) -> None:
    assert record_format("long").decode(record_format("long").encode(str(number))).text == str(number)
    order = json.dumps({"id": number, "note": {"string": text}}, ensure_ascii=False, separators=(",", ":"))
    for name, shown in (("text", text), ("json", order), ("avro", order)):
        chosen = record_format(name, SCHEMA)
        assert chosen.decode(chosen.encode(shown)).text == shown
