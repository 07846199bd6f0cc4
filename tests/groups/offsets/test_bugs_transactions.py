"""Past bugs of transactional offsets, in Kafka and elsewhere: 60 to 67 of the catalogue.

Each docstring names the bug; the test shows that it does not happen here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running
from tests.groups.asking import Cast, commit_request, fetch_request
from tests.groups.offsets.transacting import (
    ORDERS,
    TOPICS,
    UNSTABLE,
    TransactionalHarness,
    compacted,
    shard_of,
    txn_commit_request,
)

from konvene.broker.broker import Broker
from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.broker.handlers import create_topics
from konvene.broker.services import bind
from konvene.codec import batches as rb
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.shard import GroupShard
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.ports import Ports
from konvene.shard.contract import Context, Ending, Producer

NONE = Errors.NONE
DECADE_MS = 10 * 365 * 24 * 3600 * 1000
CONFIG, _ = BrokerConfig.load()


def test_bug_60_refused_partition_stayed_pending() -> None:
    """KAFKA-16371: a partition refused for its metadata stayed pending for ever, and a fetch of stable
    offsets failed for ever."""
    harness = TransactionalHarness()
    assert harness.commit(5, producer=1, metadata="m" * 4097) is Errors.OFFSET_METADATA_TOO_LARGE
    assert harness.fetch_offset(stable=True) == -1
    assert harness.commit(5, producer=1, partitions=(1,)) is NONE
    assert [harness.fetch_offset(p, stable=True) for p in (0, 1)] == [-1, UNSTABLE]
    harness.end_transaction(1)
    assert [harness.fetch_offset(p, stable=True) for p in (0, 1)] == [-1, 5]
    assert harness.delete_group() is NONE
    assert not harness.shard.offsets


def test_bug_60_refused_request_stayed_pending() -> None:
    """Nor is a commit pending if the whole request is refused."""
    cast = Cast()
    cast.stable("ann")
    request = txn_commit_request(5, member_id="eve", generation=1)
    context = Context(cast.life.now_ms, cast.life.config, 1, 5, topics=cast.life.topics)
    with pytest.raises(Exception, match="UNKNOWN_MEMBER_ID"):
        cast.life.shard.handle(request, context)
    assert not cast.life.shard.pending.by_group
    assert cast.group.state is State.STABLE


def test_bug_61_group_with_pending_offsets_expired() -> None:
    """KAFKA-19163: a group without members whose only commits were in an open transaction counted as empty,
    and was deleted."""
    harness = TransactionalHarness(offsets_retention_minutes="1")
    harness.commit(5, producer=1)
    harness.now_ms += DECADE_MS
    harness.expire_offsets()
    assert not harness.last.records
    harness.end_transaction(1)
    harness.restart()
    assert harness.fetch_offset() == 5
    harness.now_ms += DECADE_MS
    harness.expire_offsets()
    assert not harness.shard.groups
    harness.restart()


def test_bug_61_aborted_transaction_left_its_group() -> None:
    """Once the transaction is aborted the group is empty, and is deleted."""
    harness = TransactionalHarness()
    harness.commit(5, producer=1)
    harness.end_transaction(1, committed=False)
    harness.expire_offsets()
    assert not harness.shard.groups
    harness.restart()


@pytest.mark.parametrize("how", ["group", "partition", "topic"])
@pytest.mark.parametrize("plain", [False, True])
def test_bug_61_pending_commits_survived_a_deletion(how: str, plain: bool) -> None:
    """KAFKA-19164: offsets were deleted, but not their pending commits (or only one of two): they stayed
    unstable, or reappeared when the transaction ended."""
    harness = TransactionalHarness()
    if plain:
        harness.commit(1)
    harness.commit(5, producer=1)
    harness.commit(6, producer=2, partitions=(0, 3))
    if how == "group":
        assert harness.delete_group() is NONE
        assert "g" not in harness.shard.groups
    elif how == "partition":
        assert harness.delete_offsets(0) == [NONE]
        assert harness.fetch_offset(3, stable=True) == UNSTABLE
    else:
        harness.delete_topic("orders", ORDERS)
    assert len(harness.last.records) == len(set(harness.last.records)), "two tombstones for one partition"
    assert harness.fetch_offset(0, stable=True) == -1
    for producer in (1, 2):
        harness.restart()
        harness.end_transaction(producer)
    assert harness.fetch_offset(0) == -1
    assert harness.fetch_offset(3) == (6 if how == "partition" else -1)
    assert not harness.shard.pending.by_producer


def test_bug_61_a_pending_offset_of_another_topic_of_that_name_stays() -> None:
    """A commit for the current topic is not one for the deleted topic of the same name."""
    harness = TransactionalHarness()
    harness.commit(5, producer=1)
    harness.delete_topic("orders", b"another topic's ")
    harness.delete_topic("audit", harness.topics.by_name["audit"].id)
    assert not harness.last.records
    harness.end_transaction(1)
    assert harness.fetch_offset() == 5


class TransactionalJournal:
    """A log in memory with transactions, whose syncs complete when the test completes them."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.end_offset = self.synced_offset = 0
        self.online = True
        self.syncs: list[asyncio.Future[None]] = []

    def append_pairs(self, pairs: list[Any], now_ms: int, producer: Producer | None = None) -> int:
        producer_fields: dict[str, Any] = {}
        if producer is not None:
            producer_fields = {
                "producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transactional": True
            }  # fmt: skip
        return self._append(
            rb.build_simple(pairs, now_ms, base_offset=self.end_offset, **producer_fields), len(pairs)
        )

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        marker = rb.end_marker(
            ending.committed, producer_id=ending.producer_id, producer_epoch=ending.producer_epoch,
            coordinator_epoch=ending.coordinator_epoch, timestamp_ms=now_ms, base_offset=self.end_offset,
        )  # fmt: skip
        return self._append(marker, 1)

    def _append(self, data: bytes, count: int) -> int:
        self.data.append(data)
        self.end_offset += count
        return self.end_offset

    def write(self) -> None:
        """Do nothing: there is no file."""

    async def sync(self) -> None:
        end = self.end_offset
        self.syncs.append(asyncio.get_running_loop().create_future())
        await self.syncs[-1]
        self.synced_offset = end

    def read_back(self) -> Iterator[tuple[rb.BatchHeader, memoryview]]:
        return rb.batches(b"".join(self.data))

    async def finish_sync(self, error: Exception | None = None) -> None:
        """Complete the pending sync, and run what waits for it."""
        await asyncio.sleep(0)
        future = self.syncs.pop(0)
        future.set_exception(error) if error is not None else future.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


async def serving(journal: TransactionalJournal) -> Coordinator:
    coordinator = Coordinator(
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
    await coordinator.load()
    return coordinator


def fetch_result(reply: Any) -> tuple[int, int]:
    """Return the error and the offset of an OffsetFetch response."""
    found = reply.value.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


def test_bug_62_marker_was_answered_before_it_had_its_effect() -> None:
    """KAFKA-17507: a fetch right after the response to the end of a transaction returned the former offset.
    And there is no response before the end is durable, since the transaction coordinator relies on it."""

    async def body() -> None:
        journal = TransactionalJournal()
        coordinator = await serving(journal)
        coordinator.submit(commit_request(1), RequestContext(8))
        coordinator.submit(txn_commit_request(5), RequestContext(5))
        await journal.finish_sync()
        ended = coordinator.submit(Ending(1, 0, 0, committed=True), RequestContext())
        fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
        assert not ended.done
        assert not fetched.done, "the offset is not durable yet"
        await journal.finish_sync()
        assert ended.done
        assert fetch_result(fetched) == (NONE, 5)
        await coordinator.close()

    asyncio.run(body())


def test_bug_63_expiry_removed_a_pending_offset() -> None:
    """Redpanda CORE-16998: a plain commit expired while a transaction had a pending one for the same
    partition; on replay the tombstone removed both."""
    harness = TransactionalHarness(offsets_retention_minutes="1")
    harness.commit(1)
    harness.now_ms += DECADE_MS
    harness.commit(5, producer=1)
    harness.expire_offsets()
    assert not harness.last.records, "a pending offset expired"
    harness.end_transaction(1)
    harness.restart()
    assert harness.fetch_offset() == 5


def test_bug_63_the_rest_of_the_group_expires() -> None:
    """Only the pending partition stays; once the transaction is aborted, it expires as well."""
    harness = TransactionalHarness(offsets_retention_minutes="1")
    harness.commit(1, partitions=(0, 1))
    harness.now_ms += DECADE_MS
    harness.commit(5, producer=1)
    harness.expire_offsets()
    assert [harness.fetch_offset(p) for p in (0, 1)] == [1, -1]
    harness.end_transaction(1, committed=False)
    harness.expire_offsets()
    assert not harness.shard.offsets
    assert not harness.shard.groups


@pytest.mark.parametrize("plain_last", [False, True])
def test_bug_64_a_restart_changed_which_commit_counted(plain_last: bool) -> None:
    """Redpanda CORE-17000 and 17001: of a transactional and a plain commit, live the later one counted, and
    after a restart the one whose record was last."""
    harness = TransactionalHarness()
    if plain_last:
        harness.commit(5, producer=1)
    harness.commit(1)
    if not plain_last:
        harness.commit(5, producer=1)
    harness.end_transaction(1)
    expected = 1 if plain_last else 5
    assert harness.fetch_offset() == expected
    harness.restart()
    assert harness.fetch_offset() == expected
    assert shard_of(compacted(harness.log)).offsets == harness.shard.offsets


def test_bug_65_a_fetch_of_stable_offsets_timed_out() -> None:
    """KAFKA-17267: a fetch of stable offsets waits for the log, and was answered REQUEST_TIMED_OUT if that
    failed, which no client retries. It is NOT_COORDINATOR, for which clients look up the coordinator."""

    async def body() -> None:
        journal = TransactionalJournal()
        coordinator = await serving(journal)
        committed = coordinator.submit(txn_commit_request(5), RequestContext(5))
        fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
        await journal.finish_sync(OSError("the disk is gone"))
        assert fetched.value is committed.value is Errors.NOT_COORDINATOR
        await journal.finish_sync()  # Of what was read again.
        await coordinator.close()

    asyncio.run(body())


async def with_orders(broker: Broker) -> Coordinator:
    """Return the coordinator of group g, with a topic to commit for."""
    if "orders" not in broker.catalogue.topics.by_name:
        topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
        await bind(create_topics.handle, broker.services)(
            CreateTopicsRequest(topics=(topic,)), RequestContext(7)
        )
    await broker.groups.make_ready()
    await broker.groups.loaded()
    coordinator = broker.groups.of("g")
    assert coordinator is not None
    return coordinator


@pytest.mark.parametrize("committed", [True, False])
def test_bug_66_a_restart_lost_pending_offsets(tmp_path: Path, committed: bool) -> None:
    """kfake 8854973c: offsets of an open transaction were only in memory; committed after a restart, its
    records counted and its offsets did not, and all input was consumed again."""

    async def begun() -> None:
        async with running(tmp_path) as broker:
            coordinator = await with_orders(broker)
            await coordinator.submit(commit_request(1), RequestContext(8))
            answer: Any = await coordinator.submit(txn_commit_request(5), RequestContext(5))
            assert [p.error_code for t in answer.topics for p in t.partitions] == [NONE]

    async def ended() -> None:
        async with running(tmp_path) as broker:
            coordinator = await with_orders(broker)
            fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
            assert fetch_result(fetched) == (Errors.UNSTABLE_OFFSET_COMMIT, -1)
            await coordinator.submit(Ending(1, 0, 0, committed=committed), RequestContext())
            fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
            assert fetch_result(fetched) == (NONE, 5 if committed else 1)

    asyncio.run(begun())
    asyncio.run(ended())


def test_bug_67_groups_transactions_kept_the_log_from_being_compacted(tmp_path: Path) -> None:
    """Redpanda#24637: transactions of groups ended, but not in the log: everything after the first one
    counted as undecided, which no cleaner may touch."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            coordinator = await with_orders(broker)
            logs = [broker.partitions.get(OFFSETS_TOPIC, index) for index in range(2)]
            for number in range(3):
                await coordinator.submit(txn_commit_request(number, producer=number), RequestContext(5))
                log = next(p.log for p in logs if p is not None and p.end_offset)
                begins = log.end_offset - 1
                assert log.last_stable_offset(log.end_offset) == begins
                await coordinator.submit(Ending(number, 0, 0, committed=number % 2 == 0), RequestContext())
                assert log.last_stable_offset(log.end_offset) == log.end_offset
            assert log.end_offset == 6

    asyncio.run(body())


def test_bug_67_ended_transactions_are_compacted() -> None:
    """Of many transactions one commit per partition is left."""
    harness = TransactionalHarness()
    for number in range(20):
        harness.commit(number, producer=number % 3, partitions=(number % 2,))
        harness.end_transaction(number % 3, committed=number < 18)
    remaining = [header for header, _ in compacted(harness.log) if not header.is_control]
    assert [header.record_count for header in remaining] == [1, 1]
    assert shard_of(compacted(harness.log)).offsets == harness.shard.offsets
