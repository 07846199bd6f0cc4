"""Framing of metadata records: three varints precede the fields; there is no key."""

from __future__ import annotations

import pytest

from konvene.codec.compile import encode
from konvene.codec.errors import CodecError, Malformed, Truncated
from konvene.codec.uuid import Uuid
from konvene.records.cluster_log import METADATA_RECORDS, decode_cluster_record, encode_cluster_record
from konvene.records.metadata import NoOpRecord, PartitionRecord, TopicRecord


def test_frame_layout() -> None:
    """Frame version 1, record type, record version, then the encoded record."""
    record = TopicRecord(name="t", topic_id=Uuid(range(16)))
    expected = bytes.fromhex("01 02 00  02 74" + bytes(range(16)).hex() + "00")
    assert encode_cluster_record(record) == (None, expected)
    assert decode_cluster_record(None, expected) == record


def test_every_type_is_encoded_in_its_latest_version() -> None:
    """The frame has the declared type number, and decoding it gives the record."""
    for code, declared in METADATA_RECORDS.items():
        assert code == declared.__key__
        _, value = encode_cluster_record(declared())
        assert value[:3] == bytes([1, code, declared.__versions__.last])
        assert decode_cluster_record(None, value) == declared()


def test_older_versions_are_decoded() -> None:
    """Logs of older nodes contain them."""
    record = PartitionRecord(partition_id=4)
    assert encode_cluster_record(record)[1][:3] == b"\1\3\2"
    for version in (0, 1, 2):
        assert decode_cluster_record(None, bytes([1, 3, version]) + encode(record, version)) == record


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, Malformed),
        ("", Truncated),
        ("00 14 00 00", Malformed),  # frame version 0
        ("02 14 00 00", Malformed),
        ("01", Truncated),
        ("01 14", Truncated),
        ("01 14 00", Truncated),
        ("01 14 01 00", Malformed),  # undeclared record version
        ("01 ff01 00 00", Malformed),  # undeclared type
        ("01 14 00 00 00", Malformed),  # trailing bytes
        ("01 808080808001 00 00", Malformed),  # a varint of six bytes
    ],
)
def test_damaged_frames_are_rejected(value: str | None, error: type[CodecError]) -> None:
    """Unknown frame versions, types and record versions are errors: skipping one would corrupt metadata."""
    with pytest.raises(error):
        decode_cluster_record(None, None if value is None else bytes.fromhex(value))


def test_the_smallest_frame_is_decoded() -> None:
    """The valid form of the frames damaged in the previous test decodes."""
    assert decode_cluster_record(None, bytes.fromhex("01 14 00 00")) == NoOpRecord()
