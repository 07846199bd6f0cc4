"""What may be left of a log: each prefix of it, and what compaction keeps of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.groups.promise import in_order
from tests.groups.promises import Life
from tests.groups.world import Batch, replayed

from konvene.broker.group_log import GROUP_SPEECH
from konvene.codec.batches import batches, build_simple
from konvene.groups.shard import GroupShard
from konvene.shard.contract import Arm, Context


def assert_every_prefix_loads(life: Life) -> None:
    """G1, G3: a shard made from any prefix of the log is what the live one was at that offset; as a broker
    reads it, many commits at a stroke, it is the same. G2: compaction changes nothing that can be seen."""
    assert len(life.prefixes) == len(life.log) + 1
    for end in range(len(life.log) + 1):
        shard = replayed(life.log[:end])
        assert in_order(shard) == life.prefixes[end]
        loaded = shard.load(Context(life.now_ms, life.config, topics=life.topics))
        sessions = {t.key for t in loaded.timers if isinstance(t, Arm) and t.key[0] == "session"}
        members = {("session", g, m) for g, group in shard.groups.items() for m in group.members}
        assert sessions == members
        assert not loaded.records
    whole = replayed(life.log)
    assert in_order(read_in_bulk(life.log)) == in_order(whole)
    for left in compactions(life.log):
        assert seen(replayed(left)) == seen(whole)


def read_in_bulk(log: list[Batch]) -> GroupShard:
    """The log as bytes in batches, read as the broker's coordinator reads it."""
    data = bytearray()
    offset = 0
    for batch in log:
        data += build_simple(list(batch), 1000, base_offset=offset)
        offset += len(batch)
    shard = GroupShard()
    for header, view in batches(bytes(data)):
        for _, _, record in GROUP_SPEECH.read(view, header):
            shard.replay(record)
    return shard


def compactions(log: list[Batch]) -> Iterator[list[Batch]]:
    """Every prefix compacted, with its tombstones and without; and every window in the middle."""
    for end in range(1, len(log) + 1):
        yield [*compacted(log[:end], True), *log[end:]]
        yield [*compacted(log[:end], False), *log[end:]]
    half = len(log) // 2
    yield [*log[:half], *compacted(log[half:], True)]


def compacted(log: list[Batch], tombstones: bool) -> list[Batch]:
    """The last record of each key, where it stood."""
    last = {key: at for at, batch in enumerate(log) for key, _ in batch}
    return [
        tuple((k, v) for k, v in batch if last[k] == at and (tombstones or v is not None))
        for at, batch in enumerate(log)
    ]


def seen(shard: GroupShard) -> tuple[Any, ...]:
    """What anybody can ask for, but for names under which nothing is kept any more: they go unwritten."""
    groups = {
        name: group
        for name, group in shard.groups.items()
        if not group.is_simple or name in shard.offsets or group.generation
    }
    return groups, shard.offsets
