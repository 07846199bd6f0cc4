"""The offsets that groups have committed, from the records of `__consumer_offsets`. Pure.

Offsets within a transaction count once it is committed. Values are decoded only when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import BatchHeader, Record, read_end_marker
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.records.coordinator import GROUP_RECORDS, value_version
from konvene.records.offsets import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue

__all__ = ["Commit", "CommittedOffsets"]

_KEYS = {LegacyOffsetCommitKey.__key__: LegacyOffsetCommitKey, OffsetCommitKey.__key__: OffsetCommitKey}
MAX_KEYS = 200_000
"""Number of decoded keys that are cached."""
Owner = tuple[str, TopicPartition]


class Commit(NamedTuple):
    """A committed offset, and when it was committed."""

    offset: int
    at_ms: int
    metadata: str


class CommittedOffsets:
    """The last committed offset of each group and partition, from records passed in log order."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Record]] = {}
        self._pending: dict[tuple[int, int], dict[bytes, Record]] = {}
        self._keys: dict[bytes, Owner | None] = {}
        self._versions: dict[str, int] = {}
        self._decoded: dict[str, dict[TopicPartition, tuple[Record, Commit]]] = {}
        """Commits that were decoded, with their records."""

    def __repr__(self) -> str:
        return f"<committed offsets of {len(self._groups)} groups>"

    def take(self, log_partition: int, header: BatchHeader, records: Iterable[Record]) -> None:
        """Apply a batch of a partition of `__consumer_offsets`, which may be a transaction marker."""
        producer = (log_partition, header.producer_id)
        if header.is_control:
            for record in records:
                marker = read_end_marker(record)
                ended = {} if marker is None else self._pending.pop(producer, {})
                if marker is not None and marker.committed:
                    for each in ended.values():
                        self._apply(each)
            return
        pending = self._pending.setdefault(producer, {}) if header.is_transactional else None
        for record in records:
            key = record.key
            if key is None or len(key) < 2 or int.from_bytes(key[:2], "big") not in _KEYS:
                continue
            if pending is None:
                self._apply(record)
            else:
                pending[key] = record

    def _apply(self, record: Record) -> None:
        """Apply a commit, unless one with a later record is known: a commit without a transaction wins
        over an earlier record of a transaction that ends after it."""
        owner = self._owner(record.key or b"")
        if owner is None:
            return
        group, partition = owner
        offsets = self._groups.setdefault(group, {})
        if partition in offsets and offsets[partition].offset > record.offset:
            return
        self._versions[group] = self._versions.get(group, 0) + 1
        if record.value is not None:
            offsets[partition] = record
            return
        offsets.pop(partition, None)
        self._decoded.get(group, {}).pop(partition, None)
        if not offsets:
            del self._groups[group]
            self._decoded.pop(group, None)

    def _owner(self, key: bytes) -> Owner | None:
        """Decode a key and cache it, since most keys recur; None if it cannot be decoded."""
        if key in self._keys:
            return self._keys[key]
        if len(self._keys) >= MAX_KEYS:
            self._keys.clear()
        try:
            decoded: Any = decode(_KEYS[int.from_bytes(key[:2], "big")], 0, key, 2)
            owner: Owner | None = (decoded.group, TopicPartition(decoded.topic, decoded.partition))
        except CodecError:
            owner = None
        self._keys[key] = owner
        return owner

    @property
    def group_ids(self) -> list[str]:
        return sorted(self._groups)

    def version_of(self, group: str) -> int:
        """Return a number that changes with each commit of the group."""
        return self._versions.get(group, 0)

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which a group has committed offsets."""
        return {tp.topic for tp in self._groups.get(group, ())}

    def of(self, group: str) -> dict[TopicPartition, Commit]:
        """Return the committed offsets of a group."""
        found = {}
        kind = GROUP_RECORDS[OffsetCommitKey.__key__]
        decoded_before = self._decoded.setdefault(group, {})
        for partition, record in self._groups.get(group, {}).items():
            known = decoded_before.get(partition)
            if known is not None and known[0] is record:
                found[partition] = known[1]
                continue
            value = record.value or b""
            try:
                decoded = decode(OffsetCommitValue, value_version(kind, value), value, 2)
            except CodecError:
                continue
            found[partition] = Commit(decoded.offset, decoded.commit_timestamp, decoded.metadata)
            decoded_before[partition] = record, found[partition]
        return found
