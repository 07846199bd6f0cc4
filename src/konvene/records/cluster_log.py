"""Encode and decode the records of `__cluster_metadata`.

A record has no key. Its value is three unsigned varints (frame version 1, record type, record version)
followed by the fields. Records are written in the latest declared version, as a node at metadata.version
4.4-IV2 does.
"""

from __future__ import annotations

from konvene.codec.compile import decode, encode_into
from konvene.codec.errors import Malformed
from konvene.codec.schema import Struct
from konvene.codec.varint import read_unsigned_varint, write_unsigned_varint
from konvene.records import metadata

METADATA_RECORDS: dict[int, type[Struct]] = {
    declared.__key__: declared
    for declared in vars(metadata).values()
    if isinstance(declared, type) and issubclass(declared, Struct) and declared.__key__ >= 0
}

_FRAME_VERSION = 1


def encode_cluster_record(record: Struct) -> tuple[None, bytes]:
    """Encode a metadata record as key and value; the key is None."""
    version = record.__versions__.last
    head = (
        write_unsigned_varint(_FRAME_VERSION)
        + write_unsigned_varint(record.__key__)
        + write_unsigned_varint(version)
    )
    parts = [head]
    encode_into(record, version, parts)
    return None, b"".join(parts)


def decode_cluster_record(key: bytes | None, value: bytes | None) -> Struct:
    """Decode a metadata record. Raises `CodecError` for an unknown frame version, type or version."""
    if value is None:
        raise Malformed("a metadata record without a value")
    frame, position = read_unsigned_varint(value, 0)
    if frame != _FRAME_VERSION:
        raise Malformed(f"metadata frame version {frame} is not known")
    code, position = read_unsigned_varint(value, position)
    version, position = read_unsigned_varint(value, position)
    declared = METADATA_RECORDS.get(code)
    if declared is None or version not in declared.__versions__:
        raise Malformed(f"metadata record type {code} version {version} is not known")
    return decode(declared, version, value, position)
