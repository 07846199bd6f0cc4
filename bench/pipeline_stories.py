"""Synthetic coordinator logs with plausible group histories, for measuring the pipeline's explanations.

Each partition has groups of its own, half of them consumer groups and half classic ones. Members join and
leave at random moments, and groups reconcile as under a coordinator: a joining member waits for the members
that have to revoke partitions. Each group commits four partitions every five seconds. The same arguments give
the same bytes.

Commits are prepared once and then stamped with offsets and timestamps, lap by lap, so ten million of them
take seconds.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from konvene.codec.batches import build_simple
from konvene.codec.uuid import Uuid
from konvene.records import classic, consumer, offsets
from konvene.records.coordinator import GROUP_RECORDS, Record, encode_record

TOPIC = "__consumer_offsets"
START_MS = 1_767_225_600_000  # 2026-01-01
LAP_MS = 5000
"""Milliseconds between two commits of a group."""
COMMITTED = 4
"""Number of partitions that a group commits."""
OWNED = 12
"""Number of partitions that a group is assigned."""
PER_BATCH = 20
SEGMENT_BYTES = 104_857_600
_MARK = 0x7AB1_C2D3_E4F5_A6B7
_STAMP = struct.Struct(">qq")

Pairs = list[tuple[bytes, bytes | None]]


class Written(NamedTuple):
    """Contents of a log: records, records that are not commits, rebalances, bytes."""

    records: int
    of_groups: int
    rebalances: int
    size: int


def write_stories(
    home: Path, *, partition: int, groups: int, records: int, rebalances: int = 5, seed: int = 0
) -> Written:
    """Write about `records` records of `groups` groups to `home/__consumer_offsets-<partition>`."""
    chance = random.Random(f"{seed}-{partition}")
    names = [f"group-{partition}-{n}" for n in range(groups)]
    per_lap = groups * COMMITTED
    laps = max(1, records // per_lap)
    events: list[tuple[int, int, Pairs]] = []
    count = 0
    for n, name in enumerate(names):
        life = _consumer(chance, name, rebalances) if n % 2 else _classic(chance, name, rebalances)
        came_to = list(life)
        count += rebalances
        moments = sorted(chance.randrange(laps * LAP_MS) for _ in came_to)
        events += [
            (START_MS + at, len(events) + i, pairs)
            for i, (at, pairs) in enumerate(zip(moments, came_to, strict=True))
        ]
    events.sort(key=lambda event: event[:2])
    out = _Out(home / f"{TOPIC}-{partition}")
    commits = _Commits(names)
    of_groups, at = 0, 0
    for lap in range(laps):
        for now_ms, batch, size in commits.lap(lap):
            while at < len(events) and events[at][0] <= now_ms:
                pairs = events[at][2]
                out.add(bytearray(build_simple(pairs, events[at][0], leader_epoch=3)), len(pairs))
                of_groups, at = of_groups + len(pairs), at + 1
            out.add(batch, size)
    out.close()
    return Written(out.offset, of_groups, count, out.written)


class _Commits:
    """A lap of commits: one of every group."""

    def __init__(self, names: Sequence[str]) -> None:
        pairs = [pair for n, name in enumerate(names) for pair in _commits(name, n)]
        parts = [pairs[at : at + PER_BATCH] for at in range(0, len(pairs), PER_BATCH)]
        self.batches = [
            (np.frombuffer(build_simple(part, 0, leader_epoch=3), np.uint8), len(part)) for part in parts
        ]
        mark = _MARK.to_bytes(8, "big")
        self.places = [_found(batch.tobytes(), mark) for batch, _ in self.batches]

    def __repr__(self) -> str:
        return f"<{len(self.batches)} batches of commits>"

    def lap(self, lap: int) -> Iterator[tuple[int, bytearray, int]]:
        step = LAP_MS / len(self.batches)
        value = np.frombuffer((1000 + 700 * lap).to_bytes(8, "big"), np.uint8)
        for n, ((batch, size), places) in enumerate(zip(self.batches, self.places, strict=True)):
            made = batch.copy()
            made[places] = value
            now_ms = START_MS + lap * LAP_MS + int(n * step)
            data = bytearray(made.tobytes())
            _STAMP.pack_into(data, 27, now_ms, now_ms)
            struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
            yield now_ms, data, size


def _found(data: bytes, mark: bytes) -> np.ndarray[Any, Any]:
    """Return the positions of a placeholder, a row of its eight byte positions for each occurrence."""
    places, at = [], data.find(mark)
    while at >= 0:
        places.append(at)
        at = data.find(mark, at + 8)
    return np.array(places)[:, None] + np.arange(8)


def _commits(group: str, n: int) -> Pairs:
    value = offsets.OffsetCommitValue(
        offset=_MARK, leader_epoch=5, commit_timestamp=START_MS, topic_id=_topic_id(n)
    )
    keys = (
        offsets.OffsetCommitKey(group=group, topic=f"orders-{n % 20}", partition=p) for p in range(COMMITTED)
    )
    return [encode_record(Record(key, value), GROUP_RECORDS) for key in keys]


def _topic_id(n: int) -> Uuid:
    return Uuid(bytes([n % 20 + 1]) * 16)


class _Out:
    """A writer of segments with their offset indexes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.offset = self.written = 0
        self._begin()

    def __repr__(self) -> str:
        return f"<{self.folder} up to offset {self.offset}>"

    def _begin(self) -> None:
        self._base, self._size, self._since = self.offset, 0, 0
        self._entries = bytearray()
        self._file = (self.folder / f"{self._base:020}.log").open("wb")

    def add(self, batch: bytearray, records: int) -> None:
        if self._size + len(batch) > SEGMENT_BYTES:
            self.close()
            self._begin()
        struct.pack_into(">q", batch, 0, self.offset)
        if self._since > 4096:
            self._entries += struct.pack(">iI", self.offset + records - 1 - self._base, self._size)
            self._since = 0
        self._file.write(batch)
        self.offset += records
        self._size += len(batch)
        self._since += len(batch)
        self.written += len(batch)

    def close(self) -> None:
        self._file.close()
        (self.folder / f"{self._base:020}.index").write_bytes(self._entries)


# lives of groups ----------------------------------------------------------------------------------


def _shares(members: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Distribute the partitions evenly over the members."""
    return {m: tuple(range(i, OWNED, len(members))) for i, m in enumerate(members)}


def _changes(chance: random.Random, group: str, rebalances: int) -> Iterator[tuple[list[str], str, bool]]:
    """Yield the members after each change, the changed member, and whether it joined."""
    members: list[str] = []
    for n in range(rebalances):
        comes = len(members) < 2 or (len(members) < 6 and chance.random() < 0.6)
        who = f"{group}-member-{n}-4e8d-8a51" if comes else chance.choice(members)
        members = [*members, who] if comes else [m for m in members if m != who]
        yield members, who, comes


def _classic(chance: random.Random, group: str, rebalances: int) -> Iterator[Pairs]:
    key = classic.GroupMetadataKey(group=group)
    for n, (members, _, _) in enumerate(_changes(chance, group, rebalances)):
        shares = _shares(members)
        value = classic.GroupMetadataValue(
            protocol_type="consumer", generation=n + 1, protocol="range", leader=members[0],
            current_state_timestamp=START_MS,
            members=tuple(
                classic.MemberMetadata(
                    member_id=m, client_id="app", client_host="/10.0.0.7", rebalance_timeout=300_000,
                    session_timeout=45_000, subscription=_subscription(), assignment=_assignment(shares[m]),
                )
                for m in members
            ),
        )  # fmt: skip
        yield [encode_record(Record(key, value), GROUP_RECORDS)]


def _subscription() -> bytes:
    return struct.pack(">hih6si", 0, 1, 6, b"orders", -1)


def _assignment(partitions: Sequence[int]) -> bytes:
    return struct.pack(f">hih6si{len(partitions)}ii", 0, 1, 6, b"orders", len(partitions), *partitions, -1)


def _consumer(chance: random.Random, group: str, rebalances: int) -> Iterator[Pairs]:
    epochs: dict[str, int] = {}
    owned: dict[str, tuple[int, ...]] = {}
    for n, (members, who, comes) in enumerate(_changes(chance, group, rebalances)):
        epoch, target = n + 1, _shares(members)
        first: list[Record] = []
        member = consumer.ConsumerGroupMemberMetadataKey(group_id=group, member_id=who)
        if comes:
            metadata = consumer.ConsumerGroupMemberMetadataValue(
                instance_id=None, rack_id=None, client_id="app", client_host="/10.0.0.7",
                subscribed_topic_names=("orders",), subscribed_topic_regex="", rebalance_timeout_ms=300_000,
                server_assignor="uniform",
            )  # fmt: skip
            first.append(Record(member, metadata))
        else:
            first += [_current(group, who, None), _target(group, who, None), Record(member, None)]
            owned.pop(who), epochs.pop(who)
        key = consumer.ConsumerGroupMetadataKey(group_id=group)
        first.append(Record(key, consumer.ConsumerGroupMetadataValue(epoch=epoch)))
        first += [_target(group, m, target[m]) for m in members]
        made = consumer.ConsumerGroupTargetAssignmentMetadataKey(group_id=group)
        first.append(
            Record(made, consumer.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))
        )
        if comes:
            first.append(_current(group, who, (epoch, 0, 2, (), ())))
            epochs[who], owned[who] = epoch, ()
        records = [first]
        for m in members:
            kept = tuple(p for p in owned[m] if p in target[m])
            revoked = tuple(p for p in owned[m] if p not in target[m])
            if revoked:
                records.append([_current(group, m, (epochs[m], epochs[m], 1, kept, revoked))])
                records.append([_current(group, m, (epoch, epochs[m], 0, kept, ()))])
        for m in members:
            records.append([_current(group, m, (epoch, epochs[m], 0, target[m], ()))])
            owned[m], epochs[m] = target[m], epoch
        yield from ([encode_record(r, GROUP_RECORDS) for r in batch] for batch in records)


def _target(group: str, member: str, partitions: Sequence[int] | None) -> Record:
    key = consumer.ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member)
    if partitions is None:
        return Record(key, None)
    held = consumer.TopicPartition(topic_id=_topic_id(0), partitions=tuple(partitions))
    return Record(key, consumer.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=(held,)))


def _current(
    group: str, member: str, state: tuple[int, int, int, Sequence[int], Sequence[int]] | None
) -> Record:
    key = consumer.ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member)
    if state is None:
        return Record(key, None)
    epoch, previous, code, assigned, pending = state
    value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=previous, state=code,
        assigned_partitions=_held(assigned, epoch), partitions_pending_revocation=_held(pending, epoch),
    )  # fmt: skip
    return Record(key, value)


def _held(partitions: Sequence[int], epoch: int) -> tuple[consumer.TopicPartitions, ...]:
    if not partitions:
        return ()
    return (
        consumer.TopicPartitions(
            topic_id=_topic_id(0), partitions=tuple(partitions), assignment_epochs=(epoch,) * len(partitions)
        ),
    )
