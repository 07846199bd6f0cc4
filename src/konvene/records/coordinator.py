"""Encode and decode coordinator records by their types, which are listed in one table per topic.

Key: int16 record type, then the key's fields. Value: int16 version, then the value's fields; a null value is
a tombstone. Loaders skip a type that is not in the table. An undeclared value version is an error, as in
Kafka: it was written by a newer broker.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.compile import decode, encode_into
from konvene.codec.errors import CodecError, Malformed, Truncated
from konvene.codec.schema import Struct
from konvene.records import audit, classic, consumer, offsets, share, share_state, streams, transactions


class Record(NamedTuple):
    """A decoded record of a coordinator's log. `value` is None for a tombstone."""

    key: Struct
    value: Struct | None


class RecordOfVersion0(Record):
    """A record of `__transaction_state` whose value has version 0, as with `transaction.version` 0."""

    __slots__ = ()


class RecordType(NamedTuple):
    """A record type: its number, its declarations, and the version in which its values are written."""

    code: int
    key: type[Struct]
    value: type[Struct]
    written_version: int

    @property
    def name(self) -> str:
        """Return Kafka's name of the type, such as `GROUP_METADATA`."""
        stem = self.key.__name__.removesuffix("Key")
        words = "".join("_" + c if c.isupper() else c for c in stem).lstrip("_")
        return words.upper()


def _table(*rows: tuple[type[Struct], type[Struct], int]) -> dict[int, RecordType]:
    return {key.__key__: RecordType(key.__key__, key, value, version) for key, value, version in rows}


GROUP_RECORDS = _table(
    (offsets.LegacyOffsetCommitKey, offsets.LegacyOffsetCommitValue, 0),
    (offsets.OffsetCommitKey, offsets.OffsetCommitValue, 4),
    (classic.GroupMetadataKey, classic.GroupMetadataValue, 3),
    (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue, 0),
    (consumer.ConsumerGroupPartitionMetadataKey, consumer.ConsumerGroupPartitionMetadataValue, 0),
    (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue, 0),
    (
        consumer.ConsumerGroupTargetAssignmentMetadataKey,
        consumer.ConsumerGroupTargetAssignmentMetadataValue,
        0,
    ),
    (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue, 0),
    (
        consumer.ConsumerGroupCurrentMemberAssignmentKey,
        consumer.ConsumerGroupCurrentMemberAssignmentValue,
        0,
    ),
    (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue, 0),
    (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue, 0),
    (share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue, 0),
    (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue, 0),
    (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue, 0),
    (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue, 0),
    (consumer.ConsumerGroupRegularExpressionKey, consumer.ConsumerGroupRegularExpressionValue, 0),
    (streams.StreamsGroupMetadataKey, streams.StreamsGroupMetadataValue, 0),
    (streams.StreamsGroupMemberMetadataKey, streams.StreamsGroupMemberMetadataValue, 0),
    (streams.StreamsGroupTargetAssignmentMetadataKey, streams.StreamsGroupTargetAssignmentMetadataValue, 0),
    (streams.StreamsGroupTargetAssignmentMemberKey, streams.StreamsGroupTargetAssignmentMemberValue, 0),
    (streams.StreamsGroupCurrentMemberAssignmentKey, streams.StreamsGroupCurrentMemberAssignmentValue, 0),
    (streams.StreamsGroupTopologyKey, streams.StreamsGroupTopologyValue, 0),
)
"""`__consumer_offsets`."""

SHARE_STATE_RECORDS = _table(
    (share_state.ShareSnapshotKey, share_state.ShareSnapshotValue, 0),
    (share_state.ShareUpdateKey, share_state.ShareUpdateValue, 0),
)
"""`__share_group_state`."""

TRANSACTION_RECORDS = _table((transactions.TransactionLogKey, transactions.TransactionLogValue, 1))
"""`__transaction_state`."""

TRANSACTION_RECORDS_OF_VERSION_0 = _table(
    (transactions.TransactionLogKey, transactions.TransactionLogValue, 0)
)
"""`__transaction_state` in the format of `transaction.version` 0."""

AUDIT_RECORDS = _table((audit.RebalanceKey, audit.RebalanceValue, 0))
"""`__konvene_audit`."""


def encode_record(record: Record, table: dict[int, RecordType]) -> tuple[bytes, bytes | None]:
    """Encode a record of one of these types as key and value.

    An offset commit with an expiry time is written as version 1, the only one with that field.
    """
    kind = table[record.key.__key__]
    key: list[bytes] = [kind.code.to_bytes(2, "big")]
    encode_into(record.key, 0, key)
    if record.value is None:
        return b"".join(key), None
    version = kind.written_version
    if isinstance(record.value, offsets.OffsetCommitValue) and record.value.expire_timestamp != -1:
        version = 1
    value: list[bytes] = [version.to_bytes(2, "big")]
    encode_into(record.value, version, value)
    return b"".join(key), b"".join(value)


def decode_record(key: bytes, value: bytes | None, table: dict[int, RecordType]) -> Record | None:
    """Decode a record; None for a type that is not in the table. Raises `CodecError`."""
    if key is None or len(key) < 2:
        raise Truncated("a coordinator record without a record type")
    kind = table.get(int.from_bytes(key[:2], "big"))
    if kind is None:
        return None
    decoded = decode(kind.key, 0, key, 2)
    if value is None:
        return Record(decoded, None)
    return Record(decoded, decode(kind.value, value_version(kind, value), value, 2))


def encode_transaction_record(record: Record) -> tuple[bytes, bytes | None]:
    """Encode a record of `__transaction_state`: a `RecordOfVersion0` in version 0, others in version 1."""
    table = TRANSACTION_RECORDS_OF_VERSION_0 if type(record) is RecordOfVersion0 else TRANSACTION_RECORDS
    return encode_record(record, table)


def decode_transaction_record(key: bytes, value: bytes | None) -> Record | None:
    """Decode a record of `__transaction_state`; None for an unknown type or version.

    As in Kafka, which skips unknown versions since a downgraded broker may find them in its log.
    """
    kind = TRANSACTION_RECORDS.get(int.from_bytes(key[:2], "big")) if key is not None else None
    if kind is None or value is None:
        return decode_record(key, value, TRANSACTION_RECORDS)
    version = int.from_bytes(value[:2], "big")
    if len(value) >= 2 and version not in kind.value.__versions__:
        return None
    record = decode_record(key, value, TRANSACTION_RECORDS)
    return RecordOfVersion0(*record) if record is not None and version == 0 else record


def value_version(kind: RecordType, value: bytes) -> int:
    """Return the version of an encoded value. Raises `Malformed` if the type does not declare it."""
    if len(value) < 2:
        raise Truncated(f"{kind.name}: a value without a version")
    version = int.from_bytes(value[:2], "big")
    if version not in kind.value.__versions__:
        raise Malformed(f"{kind.name}: version {version} is not known (known: {kind.value.__versions__})")
    return version


__all__ = [
    "AUDIT_RECORDS", "GROUP_RECORDS", "SHARE_STATE_RECORDS", "TRANSACTION_RECORDS",
    "TRANSACTION_RECORDS_OF_VERSION_0", "CodecError", "Record", "RecordOfVersion0", "RecordType",
    "decode_record", "decode_transaction_record", "encode_record", "encode_transaction_record",
    "value_version",
]  # fmt: skip
