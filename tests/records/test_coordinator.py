"""Framing of coordinator records: a type precedes the key, a version precedes the value."""

from __future__ import annotations

import pytest

from konvene.codec.errors import CannotEncode, CodecError, Malformed, Truncated
from konvene.codec.uuid import Uuid
from konvene.records.audit import Cause, RebalanceKey, RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import (
    AUDIT_RECORDS,
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    Record,
    decode_record,
    encode_record,
    value_version,
)
from konvene.records.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

TABLES = {
    "group": GROUP_RECORDS,
    "share state": SHARE_STATE_RECORDS,
    "transaction": TRANSACTION_RECORDS,
    "audit": AUDIT_RECORDS,
}
KEY = OffsetCommitKey(group="g", topic="t", partition=3)
KEY_HEX = "0001 0001 67 0001 74 00000003"


def assert_round_trip(record: Record, key_hex: str, value_hex: str | None) -> None:
    """Assert that the record encodes to these bytes, and that they decode to the record."""
    key, value = bytes.fromhex(key_hex), None if value_hex is None else bytes.fromhex(value_hex)
    assert encode_record(record, GROUP_RECORDS) == (key, value)
    assert decode_record(key, value, GROUP_RECORDS) == record


def test_a_commit_is_encoded_in_version_4() -> None:
    """The topic id is a tagged field, omitted if it is zero."""
    plain = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=5)
    assert_round_trip(Record(KEY, plain), KEY_HEX, "0004 0000000000000009 00000002 02 6d 0000000000000005 00")
    with_id = plain.replace(topic_id=Uuid(range(16)))
    tags = "01 00 10" + bytes(range(16)).hex()
    assert_round_trip(
        Record(KEY, with_id), KEY_HEX, "0004 0000000000000009 00000002 02 6d 0000000000000005" + tags
    )


def test_a_commit_with_an_expire_timestamp_is_encoded_in_version_1() -> None:
    """Only version 1 has that field; fields that it lacks are dropped, as in Kafka."""
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5, expire_timestamp=6)
    hex_ = "0001 0000000000000009 0001 6d 0000000000000005 0000000000000006"
    assert_round_trip(Record(KEY, value), KEY_HEX, hex_)
    with_newer_fields = value.replace(leader_epoch=2, topic_id=Uuid(range(16)))
    assert encode_record(Record(KEY, with_newer_fields), GROUP_RECORDS)[1] == bytes.fromhex(hex_)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (0, "0001 6d 0000000000000005"),
        (2, "0001 6d 0000000000000005"),
        (3, "00000002 0001 6d 0000000000000005"),
    ],
)
def test_commits_of_older_brokers_are_decoded(version: int, fields: str) -> None:
    """All earlier versions of the value are supported."""
    value = bytes.fromhex(f"{version:04x} 0000000000000009" + fields)
    decoded = decode_record(bytes.fromhex(KEY_HEX), value, GROUP_RECORDS)
    assert decoded is not None
    expected = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
    assert decoded.value == (expected.replace(leader_epoch=2) if version == 3 else expected)


def test_a_legacy_commit() -> None:
    """The oldest brokers wrote records of type 0."""
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=3)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
    assert_round_trip(
        Record(key, value), "0000" + KEY_HEX[4:], "0000 0000000000000009 0001 6d 0000000000000005"
    )


def test_a_classic_group_is_encoded_in_version_3() -> None:
    """As in Kafka 4.4, version 4 is declared and decoded, but not yet written."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=7)
    assert_round_trip(
        Record(GroupMetadataKey(group="g"), value),
        "0002 0001 67",
        "0003 0000 00000000 ffff ffff 0000000000000007 00000000",
    )


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_record_type_round_trips(name: str) -> None:
    """A tombstone and a default value round-trip; the type number is that of both declarations."""
    table = TABLES[name]
    for code, kind in table.items():
        assert code == kind.code == kind.key.__key__ == kind.value.__key__
        assert kind.written_version in kind.value.__versions__
        tombstone = Record(kind.key(), None)
        key, value = encode_record(tombstone, table)
        assert (key[:2], value) == (code.to_bytes(2, "big"), None)
        assert decode_record(key, None, table) == tombstone
        full = Record(kind.key(), kind.value())
        key, value = encode_record(full, table)
        assert value is not None
        assert value_version(kind, value) == kind.written_version
        assert decode_record(key, value, table) == full


def test_record_types_have_kafkas_names() -> None:
    """The names are those that Kafka's tools print."""
    assert GROUP_RECORDS[1].name == "OFFSET_COMMIT"
    assert GROUP_RECORDS[16].name == "CONSUMER_GROUP_REGULAR_EXPRESSION"
    assert sorted(GROUP_RECORDS) == [*range(9), *range(10, 18), *range(19, 24)]


def test_an_unknown_type_is_skipped() -> None:
    """A record of a newer broker decodes to None, with or without a value."""
    for code in (9, 18, 24, 32767, 65535):
        key = code.to_bytes(2, "big") + b"whatever"
        assert decode_record(key, b"\0\0", GROUP_RECORDS) is None
        assert decode_record(key, None, GROUP_RECORDS) is None


def test_an_unknown_value_version_is_an_error() -> None:
    """Skipping the record would leave a known group in a stale state."""
    key = bytes.fromhex("0002 0001 67")
    for version in ("0005", "7fff", "ffff"):
        with pytest.raises(Malformed, match="GROUP_METADATA: version"):
            decode_record(key, bytes.fromhex(version) + bytes(40), GROUP_RECORDS)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("", None, Truncated),
        ("00", None, Truncated),
        ("0002", None, Truncated),
        ("0002 0001 67 00", None, Malformed),
        ("0002 0005 67", None, Truncated),
        ("0002 0001 ff", None, Malformed),
        ("0002 0001 67", "", Truncated),
        ("0002 0001 67", "00", Truncated),
        ("0002 0001 67", "0003", Truncated),
        ("0002 0001 67", "0003 0000 00000000 ffff ffff 0000000000000007 00000000 00", Malformed),
        ("0002 0001 67", "0003 0000 00000000 ffff ffff 0000000000000007 7fffffff", Truncated),
    ],
)
def test_damaged_records_are_rejected(key: str, value: str | None, error: type[CodecError]) -> None:
    """Truncated keys and values, trailing bytes and invalid UTF-8 raise errors."""
    with pytest.raises(error):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value), GROUP_RECORDS)


def test_a_record_without_a_key_is_rejected() -> None:
    """Without a key, the record has no type."""
    with pytest.raises(Truncated):
        decode_record(None, b"", GROUP_RECORDS)  # type: ignore[arg-type]


def test_a_disallowed_null_cannot_be_encoded() -> None:
    """The topic of an offset commit key is not nullable."""
    with pytest.raises(CannotEncode):
        encode_record(Record(OffsetCommitKey(topic=None), None), GROUP_RECORDS)  # type: ignore[arg-type]


def test_audit_records_have_the_same_framing() -> None:
    """Records of the audit log round-trip with the same functions."""
    cause = Cause(kind="member-joined", member_id="m", at_ms=5)
    record = Record(RebalanceKey(group="g"), RebalanceValue(group_type="classic", epoch=3, causes=(cause,)))
    key, value = encode_record(record, AUDIT_RECORDS)
    assert (key, value is not None and value[:2]) == (bytes.fromhex("0000 0001 67"), b"\0\0")
    assert decode_record(key, value, AUDIT_RECORDS) == record
