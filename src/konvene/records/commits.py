"""Fast encoding of offset commit records, by far the most frequent records of groups.

Commits are represented by small tuples. `OffsetCommitKey` and `OffsetCommitValue` declare the same format;
`tests/records/test_commits.py` checks that both encodings are equal.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, cast

from konvene.codec.errors import CannotEncode
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.codec.varint import write_unsigned_varint
from konvene.records.coordinator import GROUP_RECORDS, Record, decode_record, encode_record
from konvene.records.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

COMMIT_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)
"""Declared keys that `as_commit` converts."""

_LONGEST = 0x7FFF
_PARTITION = struct.Struct(">i")
_VALUE = struct.Struct(">hqi")
_TIME = struct.Struct(">q")
_VERSION = 4
_NO_TAGS, _TOPIC_ID_TAG = b"\0", b"\1\0\x10"


class Committed(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1
    topic_id: Uuid = ZERO_UUID


class OffsetCommitted(NamedTuple):
    """A commit record: a group's offset for a partition; `committed` is None for a tombstone."""

    group: str
    topic: str
    partition: int
    committed: Committed | None


class OffsetsCommitted(NamedTuple):
    """Several commit records of one group for partitions of one topic."""

    group: str
    topic: str
    committed: dict[int, Committed]


@lru_cache(maxsize=4096)
def _key_front(group: str, topic: str) -> bytes:
    """Return the encoded key of a commit without its last field, the partition."""
    front = OffsetCommitKey.__key__.to_bytes(2, "big")
    for text in (group, topic):
        data = text.encode()
        if len(data) > _LONGEST:
            raise CannotEncode(f"OffsetCommitKey v0: a string of {len(data)} bytes")
        front += len(data).to_bytes(2, "big") + data
    return front


def encode_group_record(record: Record | OffsetCommitted) -> tuple[bytes, bytes | None]:
    """Encode a record of `__consumer_offsets` as key and value. Raises `CannotEncode`."""
    if type(record) is OffsetCommitted:
        return encode_commit(record)
    return encode_record(cast("Record", record), GROUP_RECORDS)


def decode_group_record(key: bytes | None, value: bytes | None) -> Record | OffsetCommitted | None:
    """Decode a record of `__consumer_offsets`; None for an unknown type. Raises `CodecError`."""
    record = decode_record(key or b"", value, GROUP_RECORDS)
    return None if record is None else as_commit(record) or record


def encode_commit(record: OffsetCommitted) -> tuple[bytes, bytes | None]:
    """Encode a commit as key and value, in version 1 if it has an expiry time. Raises `CannotEncode`."""
    group, topic, partition, committed = record
    try:
        key = _key_front(group, topic) + _PARTITION.pack(partition)
        if committed is None:
            return key, None
        offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
        if expire_ms != -1:
            return key, encode_record(_declared(record), GROUP_RECORDS)[1]
        text = metadata.encode()
        return key, b"%b%b%b%b%b" % (
            _VALUE.pack(_VERSION, offset, leader_epoch),
            write_unsigned_varint(len(text) + 1) if text else b"\1",
            text,
            _TIME.pack(commit_ms),
            _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id,
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise CannotEncode(f"OffsetCommitValue v{_VERSION}: {error}") from None


def _declared(record: OffsetCommitted) -> Record:
    key = OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition)
    committed = record.committed
    if committed is None:
        return Record(key, None)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
        topic_id=committed.topic_id,
    )
    return Record(key, value)


def as_commit(record: Record) -> OffsetCommitted | None:
    """Return a commit record, of the current or the legacy type, as a tuple; None for other records."""
    key, value = record
    if not isinstance(key, COMMIT_KEYS):
        return None
    committed = None
    if isinstance(value, OffsetCommitValue):
        committed = Committed(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp,
            value.topic_id,
        )  # fmt: skip
    elif isinstance(value, LegacyOffsetCommitValue):
        committed = Committed(value.offset, metadata=value.metadata, commit_ms=value.commit_timestamp)
    return OffsetCommitted(key.group, key.topic, key.partition, committed)
