"""What compaction may leave of a log, and that nothing of it can be seen from outside.

A cleaner keeps the last record of each key, where it stood; from the beginning of a log it may drop
tombstones as well. It may have got as far as anywhere, and it may work in the middle while somebody loads.
Batches stay, empty if need be, so that a batch has the same number before and after.

What is of a transaction that is open is not touched, nor what stands behind the beginning of one. Of one that
was aborted nothing is kept. A marker goes when nothing of its transaction is left, and never before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from konvene.broker.groups.record_serde import GROUP_SPEECH
from konvene.codec.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_simple, end_marker, read_header
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.shard import GroupShard
from konvene.shard.contract import Arm, Context, Producer
from konvene.sim.runtime import Batch, replayed
from konvene.sim.world.cleaner import cleaned_by_chance
from konvene.sim.world.event import all_offsets

if TYPE_CHECKING:
    from konvene.sim.runtime import Shell


def compacted(batches: Sequence[Batch], end: int, tombstones: bool, begin: int = 0) -> list[Batch]:
    """The log after its batches from `begin` up to `end` were compacted; `tombstones`: they are kept.

    Tombstones may be dropped from the beginning on alone: they hide what stands in front of them."""
    assert tombstones or not begin, "a tombstone is needed while what it hides is there"
    aborted, stable = _aborted(batches)
    end = min(end, stable)
    last = {
        key: (at, i)
        for at in range(begin, end)
        for i, (key, _) in enumerate(batches[at].pairs)
        if at not in aborted
    }
    left = list(batches)
    for at in range(begin, end):
        batch = batches[at]
        pairs = batch.pairs
        kept = [
            i
            for i, (key, value) in enumerate(pairs)
            if at not in aborted and last[key] == (at, i) and (tombstones or value is not None)
        ]
        if len(kept) < len(pairs):
            left[at] = batch._replace(
                pairs=tuple(pairs[i] for i in kept), records=tuple(batch.records[i] for i in kept)
            )
    return left if tombstones else _without_markers(left, end)


def _aborted(batches: Sequence[Batch]) -> tuple[frozenset[int], int]:
    """Which batches are of transactions that were aborted; where the first one stands of an open one."""
    open_: dict[int, list[int]] = {}
    aborted: list[int] = []
    for at, batch in enumerate(batches):
        if batch.producer is not None:
            open_.setdefault(batch.producer.producer_id, []).append(at)
        elif batch.ending is not None:
            held = open_.pop(batch.ending.producer_id, [])
            aborted += held if not batch.ending.committed else []
    return frozenset(aborted), min((held[0] for held in open_.values()), default=len(batches))


def _without_markers(batches: list[Batch], end: int) -> list[Batch]:
    """Without those of which nothing is left to say."""
    left: dict[int, bool] = {}
    for at, batch in enumerate(batches[:end]):
        if batch.producer is not None:
            who = batch.producer.producer_id
            left[who] = left.get(who, False) or bool(batch.records)
        elif batch.ending is not None and not left.pop(batch.ending.producer_id, False):
            batches[at] = batch._replace(records=())
    return batches


def compactions(
    batches: Sequence[Batch], random: Random | None = None, most: int = 8
) -> Iterator[list[Batch]]:
    """Each prefix compacted, with its tombstones and without, and each window in the middle that begins at
    its half; with `random`, so many of each at most."""
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


def assert_compaction_changes_nothing(shell: Shell, random: Random | None = None, most: int = 8) -> None:
    """G2: a shard made from what compaction leaves shows what one made from the whole log shows, and loads.

    G1: read as a broker reads it, many commits at a stroke, it is the same. G8: so it is where every batch
    stands there twice. All prefixes are tried; with `random`, so many of them at most."""
    batches = shell.log.batches
    whole = replayed(batches)
    order = in_order(whole)
    assert in_order(read_in_bulk(batches)) == order, "read in bulk the log says something else"
    twice = [again for batch in batches for again in (batch, batch)]
    assert in_order(replayed(twice)) == order, "a record that stands there twice is not what it is once"
    assert_loads(shell, whole)
    expected = seen(whole)
    for left in compactions(batches, random, most):
        shard = replayed(left)
        assert seen(shard) == expected, f"compaction shows: {seen(shard)}, from the whole log {expected}"
    if random is not None and batches:
        for _ in range(most // 2):
            _assert_half_way_is_the_same(batches, random.randrange(len(batches)) + 1, random)
        _assert_cleaned_is_the_same(batches, expected, random)


def _assert_cleaned_is_the_same(batches: Sequence[Batch], expected: tuple[Any, ...], random: Random) -> None:
    """G2 of what is no model: the cleaner's own work, and somebody who loads while it works."""
    before = as_bytes(batches)
    if not before:
        return
    for tombstones_go in (False, True):
        after = cleaned_by_chance(before, random, tombstones_go=tombstones_go)
        shown = seen(read_bytes(after))
        assert shown == expected, f"a cleaned log shows: {shown}, the whole one {expected}"
        if not tombstones_go:  # Who is slower than they are kept may miss them.
            half = read_header(before[random.randrange(len(before))]).base_offset
            rest = [batch for batch in after if read_header(batch).base_offset >= half]
            shown = seen(read_bytes([*_before(before, half), *rest]))
            assert shown == expected, f"cleaned while it is read it shows: {shown}, the whole one {expected}"


def _before(batches: Sequence[bytes], offset: int) -> list[bytes]:
    return [batch for batch in batches if read_header(batch).base_offset < offset]


def _assert_half_way_is_the_same(batches: Sequence[Batch], end: int, random: Random) -> None:
    """G2: of the log as it was at some time, while members were in its groups, somebody read the beginning as
    it was written, and the rest when the cleaner had been there: an owner may stand in front of who had it
    before (KAFKA-19862)."""
    expected, shown = (
        seen(replayed(batches[:end])),
        seen(replayed(compacted(batches[:end], end, True, random.randrange(end)))),
    )
    assert shown == expected, f"up to batch {end} compaction shows: {shown}, from the whole log {expected}"


def assert_every_prefix_loads(shell: Shell) -> None:
    """G1: from each prefix of the log a shard can be loaded, and each member has its session."""
    shard = GroupShard()
    assert_loads(shell, shard)
    for batch in shell.log.batches:
        for record in batch.records:
            shard.replay(record)
        assert_loads(shell, shard)


def assert_loads(shell: Shell, shard: GroupShard) -> None:
    """What follows from the log: a session for each member, and nothing to be written."""
    configs = shell.group_configs
    loaded = shard.load(Context(shell.now_ms, shell.config, topics=shell.topics, group_configs=configs))
    armed: list[Any] = [t.key for t in loaded.timers if isinstance(t, Arm)]
    sessions = {key for key in armed if key[0] == "session"}
    members = {("session", name, m) for name, group in shard.groups.items() for m in group.members}
    assert sessions == members, f"sessions after loading: {sorted(sessions ^ members)}"
    assert not loaded.records, f"loading decides {loaded.records}"


def read_in_bulk(batches: Sequence[Batch]) -> GroupShard:
    """The log as bytes in batches, read as the broker's coordinator reads it."""
    return read_bytes(as_bytes(batches))


def read_bytes(batches: Sequence[bytes]) -> GroupShard:
    """The shard that a coordinator makes of these batches."""
    shard = GroupShard()
    for batch in batches:
        for _, _, record in GROUP_SPEECH.read(memoryview(batch), read_header(batch)):
            shard.replay(record)
    return shard


def as_bytes(batches: Sequence[Batch]) -> list[bytes]:
    """The log as a broker writes it; what a model of compaction left nothing of is not there."""
    data: list[bytes] = []
    offset = 0
    for batch in batches:
        if batch.pairs:
            who = batch.producer or Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            built = build_simple(
                list(batch.pairs), 1000, base_offset=offset, producer_id=who.producer_id,
                producer_epoch=who.epoch, transactional=batch.producer is not None,
            )  # fmt: skip
            data.append(bytes(built))
            offset += len(batch.pairs)
        elif batch.ending is not None and batch.records:
            told = batch.ending
            built = end_marker(
                told.committed, producer_id=told.producer_id, producer_epoch=told.producer_epoch,
                coordinator_epoch=told.coordinator_epoch, timestamp_ms=1000, base_offset=offset,
            )  # fmt: skip
            data.append(bytes(built))
            offset += 1
    return data


def in_order(shard: GroupShard) -> tuple[Any, ...]:
    """All that a shard holds, in the order in which it holds it."""
    groups = [(group, list(group.members), list(group.instances)) for group in shard.groups.values()]
    return groups, list(all_offsets(shard).items()), shard.pending.by_group


def seen(shard: GroupShard) -> tuple[Any, ...]:
    """What anybody can ask for, but for names under which nothing is kept any more: they go unwritten."""
    groups = {
        name: group
        for name, group in shard.groups.items()
        if not isinstance(group, ClassicGroup)
        or not group.is_simple
        or name in shard.offsets
        or group.generation
    }
    return groups, shard.offsets, _that_counts(shard)


def _that_counts(shard: GroupShard) -> dict[Any, Any]:
    """What is pending, but for what was overtaken: a cleaner may have been there."""
    return {
        (group, topic, partition): {who: told for who, told in held.items() if told is not None}
        for group, by_topic in shard.pending.by_group.items()
        for topic, by_partition in by_topic.items()
        for partition, held in by_partition.items()
        if any(told is not None for told in held.values())
    }
