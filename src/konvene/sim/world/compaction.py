"""A model of log compaction, and assertions that compaction changes nothing observable.

A cleaner keeps the last record of each key at its position; from the beginning of a log it may drop
tombstones as well. It may have cleaned up to any batch, and it may clean the middle of a log while a
coordinator loads it. Batches stay, empty if need be, so that a batch keeps its number.

Records of an open transaction, and everything behind its first record, are not cleaned. Records of an aborted
transaction are dropped. A marker is dropped when no record of its transaction remains, never before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_simple, end_marker, read_header
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.shard import GroupShard
from konvene.records.commits import Committed
from konvene.shard.contract import Arm, Context, Producer
from konvene.sim.journal import Batch, replayed
from konvene.sim.world.cleaner import cleaned_at_random
from konvene.sim.world.event import OffsetKey, all_offsets

if TYPE_CHECKING:
    from konvene.sim.group_runtime import GroupRuntime


def compacted(batches: Sequence[Batch], end: int, tombstones: bool, begin: int = 0) -> list[Batch]:
    """Return the log with its batches from number `begin` up to `end`, exclusive, compacted.

    With `tombstones`, all tombstones and markers are kept. Tombstones may be dropped only if `begin` is 0:
    otherwise they may hide records of earlier batches."""
    assert tombstones or not begin, "a tombstone is needed while what it hides is there"
    aborted, stable = _aborted(batches)
    end = min(end, stable)
    last = {
        key: (at, i)
        for at in range(begin, end)
        for i, (key, _) in enumerate(batches[at].pairs)
        if at not in aborted
    }
    remaining = list(batches)
    for at in range(begin, end):
        batch = batches[at]
        pairs = batch.pairs
        kept = [
            i
            for i, (key, value) in enumerate(pairs)
            if at not in aborted and last[key] == (at, i) and (tombstones or value is not None)
        ]
        if len(kept) < len(pairs):
            remaining[at] = batch._replace(
                pairs=tuple(pairs[i] for i in kept), records=tuple(batch.records[i] for i in kept)
            )
    return remaining if tombstones else _without_markers(remaining, end)


def _aborted(batches: Sequence[Batch]) -> tuple[frozenset[int], int]:
    """Return the indexes of aborted batches, and the index of the first batch of an open transaction."""
    open_: dict[int, list[int]] = {}
    aborted: list[int] = []
    for at, batch in enumerate(batches):
        if batch.producer is not None:
            open_.setdefault(batch.producer.producer_id, []).append(at)
        elif batch.ending is not None:
            entries = open_.pop(batch.ending.producer_id, [])
            aborted += entries if not batch.ending.committed else []
    return frozenset(aborted), min((entries[0] for entries in open_.values()), default=len(batches))


def _without_markers(batches: list[Batch], end: int) -> list[Batch]:
    """Drop the markers of transactions of which no record remains."""
    remaining: dict[int, bool] = {}
    for at, batch in enumerate(batches[:end]):
        if batch.producer is not None:
            producer_id = batch.producer.producer_id
            remaining[producer_id] = remaining.get(producer_id, False) or bool(batch.records)
        elif batch.ending is not None and not remaining.pop(batch.ending.producer_id, False):
            batches[at] = batch._replace(records=())
    return batches


def compactions(
    batches: Sequence[Batch], random: Random | None = None, most: int = 8
) -> Iterator[list[Batch]]:
    """Yield several compacted versions of the log.

    In each of them one range of batches is compacted. A range that begins at the first batch is compacted
    twice: its tombstones are kept, then dropped. Each end is tried for it, and the second half of the log is
    a range as well. With `random`, at most `most` ends and `most` other ranges are drawn instead."""
    count = len(batches)
    ends: Sequence[int] = range(1, count + 1)
    begins: Sequence[int] = (count // 2,)
    if random is not None:
        ends = sorted({*random.sample(ends, min(most - 1, count)), count})
        begins = [random.randrange(count) for _ in range(most)] if count else ()
    for end in ends if count else ():
        yield compacted(batches, end, True)
        yield compacted(batches, end, False)
    for begin in begins:
        end = count if random is None else random.randrange(begin, count) + 1
        yield compacted(batches, end, True, begin)


def assert_compaction_changes_nothing(
    runtime: GroupRuntime, random: Random | None = None, most: int = 8
) -> None:
    """Assert G2: a shard loaded from any compacted log shows the same state as one loaded from the whole log.

    Also asserts G1 (reading in bulk, as a broker does, gives the same state) and G8 (replaying every batch
    twice changes nothing). All prefixes are tried; with `random`, at most `most` of them."""
    batches = runtime.log.batches
    loaded_shard = replayed(batches)
    expected_order = ordered_state(loaded_shard)
    assert ordered_state(read_in_bulk(batches)) == expected_order, "reading in bulk gives another state"
    repeated = [again for batch in batches for again in (batch, batch)]
    assert ordered_state(replayed(repeated)) == expected_order, (
        "replaying every batch twice gives another state"
    )
    assert_loads(runtime, loaded_shard)
    expected = observable_state(loaded_shard)
    for remaining in compactions(batches, random, most):
        shard = replayed(remaining)
        assert observable_state(shard) == expected, (
            f"the compacted log shows {observable_state(shard)}, the whole log {expected}"
        )
    if random is not None and batches:
        for _ in range(most // 2):
            _assert_half_way_is_the_same(batches, random.randrange(len(batches)) + 1, random)
        _assert_cleaned_is_the_same(batches, expected, random)


def _assert_cleaned_is_the_same(
    batches: Sequence[Batch], expected: tuple[object, ...], random: Random
) -> None:
    """Assert G2 for the real cleaner, also while a coordinator loads the log that is being cleaned."""
    before = as_bytes(batches)
    if not before:
        return
    for drop_tombstones in (False, True):
        after = cleaned_at_random(before, random, drop_tombstones=drop_tombstones)
        shown = observable_state(read_bytes(after))
        assert shown == expected, f"the cleaned log shows {shown}, the whole log {expected}"
        if not drop_tombstones:  # A loader slower than their retention may miss tombstones.
            half = read_header(before[random.randrange(len(before))]).base_offset
            remaining_batches = [batch for batch in after if read_header(batch).base_offset >= half]
            shown = observable_state(read_bytes([*_before(before, half), *remaining_batches]))
            assert shown == expected, (
                f"read while it is cleaned the log shows {shown}, the whole log {expected}"
            )


def _before(batches: Sequence[bytes], offset: int) -> list[bytes]:
    return [batch for batch in batches if read_header(batch).base_offset < offset]


def _assert_half_way_is_the_same(batches: Sequence[Batch], end: int, random: Random) -> None:
    """Assert G2 for a log that is cleaned while a coordinator loads it: only batches behind a random one are
    compacted.

    The log ends after its first `end` batches, so its groups may have members. The record of a partition's
    new owner may then be replayed before the one by which the old owner released it (KAFKA-19862)."""
    expected, shown = (
        observable_state(replayed(batches[:end])),
        observable_state(replayed(compacted(batches[:end], end, True, random.randrange(end)))),
    )
    assert shown == expected, f"up to batch {end} the compacted log shows {shown}, the whole log {expected}"


def assert_every_prefix_loads(runtime: GroupRuntime) -> None:
    """Assert G1: a shard loads from each prefix of the log, with a session timer for each member."""
    shard = GroupShard()
    assert_loads(runtime, shard)
    for batch in runtime.log.batches:
        for record in batch.records:
            shard.replay(record)
        assert_loads(runtime, shard)


def assert_loads(runtime: GroupRuntime, shard: GroupShard) -> None:
    """Assert that loading arms a session timer for each member and writes nothing."""
    configs = runtime.group_configs
    loaded = shard.load(Context(runtime.now_ms, runtime.config, topics=runtime.topics, group_configs=configs))
    armed = (timer.key for timer in loaded.timers if isinstance(timer, Arm))
    sessions = {key for key in armed if isinstance(key, tuple) and key[0] == "session"}
    members = {("session", name, m) for name, group in shard.groups.items() for m in group.members}
    assert sessions == members, f"sessions after loading: {sorted(sessions ^ members)}"
    assert not loaded.records, f"loading decides {loaded.records}"


def read_in_bulk(batches: Sequence[Batch]) -> GroupShard:
    """Return the shard that a coordinator loads from the encoded log, which it reads in bulk."""
    return read_bytes(as_bytes(batches))


def read_bytes(batches: Sequence[bytes]) -> GroupShard:
    """Return the shard that a coordinator loads from encoded batches."""
    shard = GroupShard()
    for batch in batches:
        for _, _, record in GROUP_SERDE.read(memoryview(batch), read_header(batch)):
            shard.replay(record)
    return shard


def as_bytes(batches: Sequence[Batch]) -> list[bytes]:
    """Return the encoded batches of the log; those that compaction emptied are left out."""
    data: list[bytes] = []
    offset = 0
    for batch in batches:
        if batch.pairs:
            producer = batch.producer or Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            built = build_simple(
                list(batch.pairs), 1000, base_offset=offset, producer_id=producer.producer_id,
                producer_epoch=producer.epoch, transactional=batch.producer is not None,
            )  # fmt: skip
            data.append(bytes(built))
            offset += len(batch.pairs)
        elif batch.ending is not None and batch.records:
            marker = batch.ending
            built = end_marker(
                marker.committed, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch, timestamp_ms=1000, base_offset=offset,
            )  # fmt: skip
            data.append(bytes(built))
            offset += 1
    return data


def ordered_state(shard: GroupShard) -> tuple[object, ...]:
    """Return the whole state of a shard, in the order in which the shard stores it."""
    groups = [(group, list(group.members), list(group.instances)) for group in shard.groups.values()]
    return groups, list(all_offsets(shard).items()), shard.pending.by_group


def observable_state(shard: GroupShard) -> tuple[object, ...]:
    """Return the groups, committed offsets and pending transactional offsets that clients can observe.

    Left out are groups that commits without members created and that have no offsets left: the log has no
    records of such a group."""
    groups = {
        name: group
        for name, group in shard.groups.items()
        if not isinstance(group, ClassicGroup)
        or not group.is_simple
        or name in shard.offsets
        or group.generation
    }
    return groups, shard.offsets, _effective_pending(shard)


def _effective_pending(shard: GroupShard) -> dict[OffsetKey, dict[int, Committed]]:
    """Return pending transactional offsets by producer id, without those that a later commit superseded.

    A cleaner may drop the records of the superseded ones."""
    return {
        (group, topic, partition): {
            producer_id: marker for producer_id, marker in entries.items() if marker is not None
        }
        for group, by_topic in shard.pending.by_group.items()
        for topic, by_partition in by_topic.items()
        for partition, entries in by_partition.items()
        if any(marker is not None for marker in entries.values())
    }
