"""Formats of keys and values: how bytes of a record are shown as text, and text is entered as bytes.

| Format | Bytes |
| --- | --- |
| text | UTF-8 |
| json | one JSON document in UTF-8 |
| hex | any bytes, two digits each |
| long | 8 bytes, big-endian, as Kafka's `LongSerializer` writes them |
| avro | one Avro value of the given schema, plain or framed as Confluent's serializers do |

A value that is not of the format is shown as well as possible, with an error; it never raises. The frame of
Confluent is a zero byte and the 4-byte id of the schema in a registry: the id is reported, and the given
schema is used. Avro is shown in its JSON encoding (`konvene.codec.avro`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from konvene.client.errors import ClientError
from konvene.codec import avro
from konvene.codec.errors import CannotEncode, CodecError
from konvene.plurals import counted

__all__ = ["FORMATS", "Decoded", "FormatError", "RecordFormat", "record_format"]

_FRAME_SIZE = 5
"""Bytes of Confluent's frame: a zero byte and the id of the schema."""


class FormatError(ClientError):
    """A text that cannot be encoded in the format, or an Avro format without a valid schema."""


class Decoded(NamedTuple):
    """A key or value as text."""

    text: str | None
    """None for a null key or value. After an error the bytes as text, or else in hex."""
    error: str | None = None
    is_json: bool = False
    """Whether the text is a JSON document, which has no line breaks."""
    schema_id: int | None = None
    """The id of the schema in Confluent's frame."""

    @property
    def json(self) -> str:
        """The JSON document, or the text as a JSON string."""
        if self.is_json and self.text is not None:
            return self.text
        return json.dumps(self.text, ensure_ascii=False)


class RecordFormat(NamedTuple):
    """A format by its name in FORMATS; Avro has a schema."""

    name: str
    schema: avro.Schema | None = None

    def decode(self, data: bytes | None) -> Decoded:
        """Return the bytes as text, with an error if they are not of this format."""
        if data is None:
            return Decoded(None)
        try:
            return _FORMATS[self.name].decode(data, self.schema)
        except (CodecError, RecursionError) as error:
            return Decoded(_readable(data), self._problem(error))

    def encode(self, text: str | None) -> bytes | None:
        """Return the bytes of a text in this format. Raises `FormatError`."""
        if text is None:
            return None
        try:
            return _FORMATS[self.name].encode(text, self.schema)
        except (CodecError, RecursionError) as error:
            raise FormatError(self._problem(error)) from None

    def _problem(self, error: CodecError | RecursionError) -> str:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return f"not {self.name}: {problem}"


def record_format(name: str, schema: str | None = None) -> RecordFormat:
    """Return a format by name; `schema` is the Avro schema in JSON, and is used by Avro only.

    Raises `FormatError` for an unknown name, and for Avro without a valid schema."""
    if name not in _FORMATS:
        raise FormatError(f"there is no format {name}: use {', '.join(FORMATS)}")
    if name != "avro":
        return RecordFormat(name)
    if schema is None:
        raise FormatError("the format avro needs a schema")
    try:
        return RecordFormat(name, avro.parse_schema(schema))
    except CodecError as error:
        raise FormatError(f"the Avro schema is not valid: {error}") from None


# the formats ----------------------------------------------------------------------------------


class _Format(NamedTuple):
    decode: Callable[[bytes, avro.Schema | None], Decoded]
    """Raises `CodecError` for bytes that are not of the format."""
    encode: Callable[[str, avro.Schema | None], bytes]
    """Raises `CodecError` for a text that is not of the format."""


def _decode_text(data: bytes, schema: avro.Schema | None) -> Decoded:
    try:
        return Decoded(data.decode())
    except UnicodeDecodeError as error:
        return Decoded(data.decode(errors="replace"), f"not text: byte {error.start} is not UTF-8")


def _encode_text(text: str, schema: avro.Schema | None) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CannotEncode("the text has a lone surrogate") from None


_STRING_OR_SPACE = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')


def _number(digits: str) -> int:
    """Stand in for the value of a number, which is not used: it may have more digits than Python converts."""
    return 0


def _not_a_number(name: str) -> int:
    raise ValueError(f"{name} is not a JSON value")


def _decode_json(data: bytes, schema: avro.Schema | None) -> Decoded:
    text = _check_json(data)
    compact = _STRING_OR_SPACE.sub(lambda match: match[0] if match[0][0] == '"' else "", text)
    return Decoded(compact, is_json=True)


def _encode_json(text: str, schema: avro.Schema | None) -> bytes:
    return _check_json(_encode_text(text, None)).encode()


def _check_json(data: bytes) -> str:
    """Return the bytes as text. Raises `CodecError` unless they are one JSON document."""
    try:
        text = data.decode()
        json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_not_a_number)
    except UnicodeDecodeError as error:
        raise CodecError(f"byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise CodecError(str(error)) from None
    return text


def _decode_hex(data: bytes, schema: avro.Schema | None) -> Decoded:
    return Decoded(data.hex())


def _encode_hex(text: str, schema: avro.Schema | None) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise CannotEncode("write two hexadecimal digits per byte") from None


def _decode_long(data: bytes, schema: avro.Schema | None) -> Decoded:
    if len(data) != 8:
        raise CodecError(f"{counted(len(data), 'byte')} instead of 8")
    return Decoded(str(int.from_bytes(data, "big", signed=True)), is_json=True)


def _encode_long(text: str, schema: avro.Schema | None) -> bytes:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) or not -(2**63) <= int(text) < 2**63:
        raise CannotEncode("write a whole number between -2^63 and 2^63-1")
    return int(text).to_bytes(8, "big", signed=True)


def _decode_avro(data: bytes, schema: avro.Schema | None) -> Decoded:
    """Decode framed data, or else plain data, which may begin with a zero byte as well."""
    assert schema is not None
    if data[:1] == b"\0" and len(data) >= _FRAME_SIZE:
        schema_id = int.from_bytes(data[1:_FRAME_SIZE], "big")
        try:
            return Decoded(_avro_json(schema, data[_FRAME_SIZE:]), is_json=True, schema_id=schema_id)
        except CodecError as error:
            framed_error = CodecError(f"frame with schema id {schema_id}: {error}")
    else:
        framed_error = None
    try:
        return Decoded(_avro_json(schema, data), is_json=True)
    except CodecError as error:
        raise framed_error or CodecError(f"with the given schema: {error}") from None


def _avro_json(schema: avro.Schema, data: bytes) -> str:
    return json.dumps(avro.decode(schema, data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode_avro(text: str, schema: avro.Schema | None) -> bytes:
    assert schema is not None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CannotEncode(f"the text is not JSON: {error}") from None
    return avro.encode(schema, value)


def _readable(data: bytes) -> str:
    """Return bytes as text if they are printable UTF-8, else in hex."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex()
    return text if all(each.isprintable() or each in "\t\r\n" for each in text) else data.hex()


_FORMATS = {
    "text": _Format(_decode_text, _encode_text),
    "json": _Format(_decode_json, _encode_json),
    "hex": _Format(_decode_hex, _encode_hex),
    "long": _Format(_decode_long, _encode_long),
    "avro": _Format(_decode_avro, _encode_avro),
}

FORMATS = tuple(_FORMATS)
"""The names of the formats."""
