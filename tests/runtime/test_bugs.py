"""Regression tests for Kafka's bugs 1 to 18 in coordinators, in loading them and in their logs.

Each docstring cites the Kafka ticket and describes the bug; the test shows that it does not occur here.
Numbers 3 and 4 concern consumer groups and are not covered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running
from tests.groups.asking import Cast, commit_request, fetch_request, join_request
from tests.runtime.test_coordinator import CONFIG, TOPICS, V9, Journal, commit

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.broker.handlers import list_groups
from konvene.broker.services import bind
from konvene.codec.batches import BatchHeader, batches, build_simple
from konvene.errors import Errors
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.groups.shard import GroupShard
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.commits import Committed, OffsetCommitted, encode_group_record
from konvene.records.coordinator import GROUP_RECORDS, Record
from konvene.runtime import coordinator as runtime
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.ports import Ports
from konvene.sim.world.compaction import compacted
from konvene.sim.world.event import all_offsets


def coordinator_on(journal: Any) -> Coordinator:
    return Coordinator(
        "test-0",
        GroupShard,
        GROUP_SERDE,
        Ports(
            journal=journal,
            config=lambda: CONFIG,
            loop=asyncio.get_running_loop(),
            wall_clock_ms=lambda: 1000,
            topics=lambda: TOPICS,
        ),
    )


def run(test: Callable[[Journal, Coordinator], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a loaded coordinator on an in-memory journal."""

    async def main() -> None:
        journal = Journal()
        coordinator = coordinator_on(journal)
        await coordinator.load()
        await test(journal, coordinator)
        await coordinator.close()

    asyncio.run(main())


async def run_pending_callbacks() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def shard_of(coordinator: Coordinator) -> GroupShard:
    assert isinstance(coordinator.core, GroupShard)
    return coordinator.core


def offset_of(answer: Any) -> int:
    found: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return found


def committed(offset: int, group: str = "g", partition: int = 0) -> OffsetCommitted:
    return OffsetCommitted(group, "orders", partition, Committed(offset))


def stable_group(*members: str) -> ClassicGroup:
    group = ClassicGroup("g", State.STABLE, 1000, 3, protocol="range")
    for name in members:
        member = Member(name, None, "c", "/h", 10_000, 10_000, "consumer", (("range", b"m"),), b"a")
        group.put(member)
    return group


def replayed(*records: Any) -> GroupShard:
    shard = GroupShard()
    for record in records:
        shard.replay(record)
    return shard


# --- replaying a log ---------------------------------------------------------------------------------


def test_bug_01_tombstone_of_an_unknown_key_failed_the_load() -> None:
    """KAFKA-17306: a compacted log may hold a tombstone for a group or an offset that was never replayed."""
    deleted = OffsetCommitted("g", "orders", 0, None)
    shard = replayed(deleted, classic_log.tombstone("g"), deleted, classic_log.tombstone("g"))
    assert (shard.groups, shard.offsets) == ({}, {})


def test_bug_01_order_of_keys_failed_the_load() -> None:
    """KAFKA-17306: offsets, their group and tombstones replay in any order to the same state."""
    records = [
        committed(5),
        committed(6, partition=1),
        classic_log.to_record(stable_group("ann", "bob")),
        OffsetCommitted("g", "orders", 2, None),
    ]
    for order in permutations(records):
        shard = replayed(*order)
        assert shard.groups == {"g": replayed(records[2]).groups["g"]}
        assert {key[2]: c.offset for key, c in all_offsets(shard).items()} == {0: 5, 1: 6}


@pytest.mark.parametrize("name", [t.name for t in GROUP_RECORDS.values() if "OFFSET" not in t.name])
def test_bug_02_group_of_another_type_was_rejected_after_offsets(name: str) -> None:
    """KAFKA-20254: replaying an offset created a simple group, and the streams group's own records then
    failed the load. Here an offset does not determine the type of its group."""
    kind = next(t for t in GROUP_RECORDS.values() if t.name == name)
    record = tombstone_of(kind)
    shard = replayed(committed(5), record, committed(6), record)
    assert shard.offsets["g"]["orders"][0].offset == 6
    group = classic_log.to_record(stable_group("ann"))
    assert replayed(committed(5), record, group).groups["g"].state is State.STABLE


def test_bug_02_simple_group_did_not_survive_compaction() -> None:
    """KAFKA-20254, first half: a compacted log of offsets loads, whether or not its tombstones are kept."""
    cast = Cast()
    cast.ask("simple", commit_request(1, partitions=(0, 1)), 8)
    cast.stable("ann")
    cast.commit("ann", 2, partitions=(1,))
    for tombstones in (True, False):
        shard = GroupShard()
        log = cast.life.log.batches
        for batch in compacted(log, len(log), tombstones):
            data = build_simple(list(batch.pairs), 1, base_offset=0) if batch.pairs else b""
            for header, view in batches(data):
                for _, _, record in GROUP_SERDE.read(view, header):
                    shard.replay(record)
        assert all_offsets(shard) == all_offsets(cast.life.shard)
        assert shard.groups["g"].state is State.STABLE


def tombstone_of(kind: Any) -> Any:
    fields = {"group": "g"} if "group" in kind.key.__annotations__ else {"group_id": "g"}
    return Record(kind.key(**fields), None)


# --- durability and responses ------------------------------------------------------------------------


def test_bug_05_memory_was_reverted_while_records_were_written() -> None:
    """KAFKA-20845: an operation without records was flushed like a failed batch, which reverted the records
    of a concurrent write. Here in-memory state is never reverted."""

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        first = coordinator.submit(commit(offset=7), V9)
        read = coordinator.submit(fetch_request(), V9)
        rejected = coordinator.submit(commit(offset=8).replace(member_id="nobody"), V9)
        too_large = coordinator.submit(commit(partitions=101), V9)
        assert shard_of(coordinator).offsets["g"]["orders"][0].offset == 8
        assert not any(a.done for a in (first, read, rejected, too_large))
        await journal.finish_sync()
        assert too_large.value is Errors.UNKNOWN_SERVER_ERROR
        assert offset_of(read.value) == 7
        assert shard_of(coordinator).offsets["g"]["orders"][0].offset == 8
        assert list(shard_of(coordinator).offsets["g"]["orders"]) == [0]

    run(body)


def test_bug_06_truncated_records_counted_as_committed() -> None:
    """KAFKA-20634: after a truncation, an advancing high watermark acknowledged the truncated records."""

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        lost = [coordinator.submit(commit(offset=i), V9) for i in (1, 2, 3)]
        await asyncio.sleep(0)
        journal.cut(0)
        await journal.finish_sync(OSError("input/output error"))
        await run_pending_callbacks()
        assert [a.value for a in lost] == [Errors.NOT_COORDINATOR] * 3
        assert shard_of(coordinator).offsets == {}
        # Later records reuse the truncated offsets; they are acknowledged by their own sync.
        again = coordinator.submit(commit(offset=9), V9)
        assert journal.end_offset == 1
        assert not again.done
        await journal.finish_sync()
        assert again.done
        assert shard_of(coordinator).offsets["g"]["orders"][0].offset == 9

    run(body)


def test_bug_07_reads_after_a_load_failed() -> None:
    """KAFKA-15910: until the first write there was no snapshot at the committed offset, so reads failed."""

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        coordinator.submit(commit(offset=7), V9)
        await journal.finish_sync()
        fresh = coordinator_on(journal)
        await fresh.load()
        assert offset_of(fresh.submit(fetch_request(), V9).value) == 7
        assert journal.syncs == []
        await fresh.close()

    run(body)


def test_bug_08_a_loaded_coordinator_exposed_records_that_were_not_durable() -> None:
    """KAFKA-16973: after a load, reads returned records above the high watermark until the next write."""

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        coordinator.submit(commit(offset=7), V9)
        await asyncio.sleep(0)
        assert (journal.end_offset, journal.synced_offset) == (1, 0)
        fresh = coordinator_on(journal)
        await fresh.load()
        read = fresh.submit(fetch_request(), V9)
        assert not read.done
        await run_pending_callbacks()
        while journal.syncs:
            await journal.finish_sync()
        assert offset_of(read.value) == 7
        await fresh.close()

    run(body)


class PartlyReadableJournal(Journal):
    """Journal whose `read_back` fails after `readable_batches` batches."""

    def __init__(self, readable_batches: int) -> None:
        super().__init__()
        self.readable_batches = readable_batches
        self.read = 0

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for count, found in enumerate(super().read_back()):
            if count >= self.readable_batches:
                raise OSError("the partition is offline")
            self.read += 1
            yield found


def fill(journal: Journal, count: int) -> None:
    for i in range(count):
        journal.append_pairs([encode_group_record(committed(i))], 1000)
    journal.synced_offset = journal.end_offset


def test_bug_09_partition_that_went_offline_during_its_load_became_active() -> None:
    """KAFKA-16030: a coordinator whose log was read only in part served requests."""

    async def main() -> None:
        journal = PartlyReadableJournal(3)
        fill(journal, 5)
        coordinator = coordinator_on(journal)
        await coordinator.load()
        assert journal.read == 3
        assert coordinator.state == "failed"
        assert coordinator.submit(fetch_request(), V9).value is Errors.NOT_COORDINATOR
        assert shard_of(coordinator).offsets == {}
        await coordinator.close()

    asyncio.run(main())


def test_bug_09_a_coordinator_closed_during_its_load_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-16030: a load still running when the coordinator closes does not make it active."""
    monkeypatch.setattr(runtime, "LOAD_SLICE_S", -1)

    async def main() -> None:
        journal = Journal()
        fill(journal, 50)
        coordinator = coordinator_on(journal)
        coordinator.load()
        await run_pending_callbacks()
        assert coordinator.state == "loading"
        await coordinator.close()
        await run_pending_callbacks()
        assert coordinator.state == "closed"
        assert coordinator.submit(fetch_request(), V9).value is Errors.NOT_COORDINATOR

    asyncio.run(main())


@pytest.mark.parametrize("state", ["loading", "active", "failed", "closed"])
def test_bug_10_unloading_failed(state: str) -> None:
    """KAFKA-16118: unloading a deleted partition threw, because it had no leader epoch. Here a coordinator
    can be closed in any state, and closing it again has no effect."""

    async def main() -> None:
        journal = PartlyReadableJournal(0 if state == "failed" else 9)
        fill(journal, 3)
        coordinator = coordinator_on(journal)
        loading = coordinator.load()
        if state != "loading":
            await loading
        if state == "closed":
            await coordinator.close()
        assert coordinator.state == state
        await coordinator.close()
        await coordinator.close()
        assert coordinator.state == "closed"

    asyncio.run(main())


# --- sizes -------------------------------------------------------------------------------------------


def test_bug_11_batches_were_limited_to_16_kib(tmp_path: Path) -> None:
    """KAFKA-16831: a record larger than the builder's initial buffer was rejected, although a megabyte is
    allowed. Here the record of a group of a thousand members is written."""

    async def main() -> None:
        settings = {"group.initial.rebalance.delay.ms": "50", "offsets.topic.num.partitions": "1"}
        async with running(tmp_path, settings) as broker:
            await broker.groups.make_ready()
            await asyncio.sleep(0.05)
            await broker.groups.loaded()
            coordinator = broker.groups.of("g")
            assert coordinator is not None
            calls = [RequestContext(2, f"client-{i}", "/127.0.0.1", (str(i),)) for i in range(1000)]
            joins = [coordinator.submit(join_request(metadata=b"m" * 100), call) for call in calls]
            answers: list[Any] = [await join for join in joins]
            assert {a.error_code for a in answers} == {0}
            leader = next(a for a in answers if a.member_id == a.leader)
            assert len(leader.members) == 1000
            sync = SyncGroupRequest(
                group_id="g", generation_id=leader.generation_id, member_id=leader.member_id
            )
            response: Any = await coordinator.submit(sync, calls[0])
            assert response.error_code == 0
            partition = broker.partitions.get("__consumer_offsets", 0)
            assert partition is not None
            sizes = [len(bytes(batch)) for _, batch in partition.batches()]
            assert max(sizes) > 150_000

    asyncio.run(main())


class CompactedJournal(Journal):
    """Journal with offset gaps left by compaction, one of them just before the end offset."""

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        pair = [encode_group_record(committed(7))]
        data = build_simple(pair, 1000, base_offset=5) + build_simple(pair, 1000, base_offset=90)
        return batches(data)


def test_bug_12_gap_before_the_end_offset_hung_the_load() -> None:
    """KAFKA-9065: the loader waited for an offset that compaction had removed."""

    async def main() -> None:
        journal = CompactedJournal()
        journal.end_offset = journal.synced_offset = 100
        coordinator = coordinator_on(journal)
        await asyncio.wait_for(coordinator.load(), 10)
        assert offset_of(coordinator.submit(fetch_request(), V9).value) == 7
        await coordinator.close()

    asyncio.run(main())


def test_bug_13_record_larger_than_the_load_buffer_hung_the_load() -> None:
    """KAFKA-7286: the load buffer was five megabytes, so a larger batch could never be read."""

    async def main() -> None:
        journal = Journal()
        large = stable_group(*(f"member-{i}" for i in range(12)))
        for name, member in list(large.members.items()):
            large.members[name] = Member(
                *(getattr(member, f) for f in member.__slots__[:8]), assignment=b"a" * 500_000
            )
        journal.append_pairs([encode_group_record(classic_log.to_record(large))], 1000)
        assert len(journal.data[0]) > CONFIG["offsets.load.buffer.size"]
        fill(journal, 1)
        coordinator = coordinator_on(journal)
        await asyncio.wait_for(coordinator.load(), 10)
        assert len(shard_of(coordinator).groups["g"].members) == 12
        await coordinator.close()

    asyncio.run(main())


def test_bug_14_after_a_load_the_cache_was_stale() -> None:
    """KAFKA-5600: an older segment's offset replaced a newer one, and deleted offsets reappeared. Here a load
    begins with an empty shard and replays the log in order."""

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        for offset in (5, 9, 7):
            coordinator.submit(commit(offset=offset), V9)
        coordinator.submit(commit(partitions=2, offset=7), V9)
        shard_of(coordinator).replay(committed(99, partition=3))  # Only in memory, not in the log.
        await run_pending_callbacks()
        while journal.syncs:
            await journal.finish_sync()
        journal.append_pairs([encode_group_record(OffsetCommitted("g", "orders", 1, None))], 1000)
        journal.synced_offset = journal.end_offset
        await coordinator.load()
        offsets = all_offsets(shard_of(coordinator))
        assert {key[2]: c.offset for key, c in offsets.items()} == {0: 7}

    run(body)


# --- counts, timers, responses -----------------------------------------------------------------------


def test_bug_15_repeated_records_were_counted_twice() -> None:
    """KAFKA-15981: replaying a group's record or a tombstone twice made the counted number of groups wrong.
    Here no count is kept: the number of groups is the size of the mapping."""
    group = classic_log.to_record(stable_group("ann", "bob"))
    once, twice = replayed(group, committed(5)), replayed(group, group, committed(5), group, committed(5))
    assert (once.groups, once.offsets) == (twice.groups, twice.offsets)
    assert once.groups["g"].waiting == 0
    assert once.groups["g"].protocol_counts == {"range": 2}
    tombstone = classic_log.tombstone("g")
    assert replayed(group, tombstone, tombstone, group).groups == once.groups


def test_bug_16_timers_of_writes_piled_up() -> None:
    """KAFKA-16663: each write left a timer behind. Here a member has one, however many requests it sends."""
    cast = Cast()
    cast.stable("ann", "BOB")
    for i in range(300):
        cast.commit("ann", i)
        cast.heartbeat("BOB")
        cast.advance(10)
    assert [key[0] for key in cast.life.runtime.timers] == ["retention", "session", "session"]


def test_bug_17_commits_waited_behind_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-16374: the thread that loads partitions also completed the appends of other ones. Here a load
    yields to the event loop every few milliseconds."""
    monkeypatch.setattr(runtime, "LOAD_SLICE_S", -1)

    async def body(journal: Journal, coordinator: Coordinator) -> None:
        large = Journal()
        fill(large, 500)
        loading = coordinator_on(large)
        task = loading.load()
        await asyncio.sleep(0)
        answer = coordinator.submit(commit(), V9)
        await journal.finish_sync()
        assert answer.done
        assert loading.state == "loading"
        await task
        assert loading.state == "active"
        await loading.close()

    run(body)


def test_bug_18_list_groups_without_partitions_was_never_answered(tmp_path: Path) -> None:
    """KAFKA-15849: with no coordinator to query, ListGroups was never completed."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            assert broker.groups.all() == []
            answer = await asyncio.wait_for(
                bind(list_groups.handle, broker.services)(ListGroupsRequest(), V9), 10
            )
            assert (answer.error_code, answer.groups) == (0, ())

    asyncio.run(main())
