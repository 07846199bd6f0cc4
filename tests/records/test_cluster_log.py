"""The frame of metadata records: three varints in front of the fields, and no key."""

from __future__ import annotations

import pytest

from konvene.codec.compile import encode
from konvene.codec.errors import CodecError, Malformed, Truncated
from konvene.codec.uuid import Uuid
from konvene.records.cluster_log import METADATA_RECORDS, decode_cluster_record, encode_cluster_record
from konvene.records.metadata import NoOpRecord, PartitionRecord, TopicRecord


def test_layout() -> None:
    """Frame version 1, type, version, then the record as any other message."""
    record = TopicRecord(name="t", topic_id=Uuid(range(16)))
    expected = bytes.fromhex("01 02 00  02 74" + bytes(range(16)).hex() + "00")
    assert encode_cluster_record(record) == (None, expected)
    assert decode_cluster_record(None, expected) == record


def test_every_type_in_its_latest_version() -> None:
    """What is written is read; the number in the frame is the declaration's."""
    for code, declared in METADATA_RECORDS.items():
        assert code == declared.__key__
        _, value = encode_cluster_record(declared())
        assert value[:3] == bytes([1, code, declared.__versions__.last])
        assert decode_cluster_record(None, value) == declared()


def test_older_versions_are_read() -> None:
    """A log that an older node began."""
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
        ("01 14 01 00", Malformed),  # a version not declared
        ("01 ff01 00 00", Malformed),  # a type not declared
        ("01 14 00 00 00", Malformed),  # bytes left over
        ("01 808080808001 00 00", Malformed),  # a varint of six bytes
    ],
)
def test_damaged_frames(value: str | None, error: type[CodecError]) -> None:
    """A frame, a type or a version that is not known is an error: the catalogue can not be guessed."""
    with pytest.raises(error):
        decode_cluster_record(None, None if value is None else bytes.fromhex(value))


def test_the_smallest_record() -> None:
    """The one in the table above, undamaged."""
    assert decode_cluster_record(None, bytes.fromhex("01 14 00 00")) == NoOpRecord()
