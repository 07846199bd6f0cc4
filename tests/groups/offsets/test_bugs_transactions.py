"""What once went wrong with offsets in transactions, in Kafka and elsewhere: 60 to 67.

Each test says what the bug was, and that it does not happen here.
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
    Place,
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
    """KAFKA-16371: of a commit in a transaction a partition was refused for its metadata, and was pending for
    ever: who asked for what is stable never heard of it again."""
    place = Place()
    assert place.commits(5, producer=1, metadata="m" * 4097) is Errors.OFFSET_METADATA_TOO_LARGE
    assert place.fetched(stable=True) == -1
    assert place.commits(5, producer=1, partitions=(1,)) is NONE
    assert [place.fetched(p, stable=True) for p in (0, 1)] == [-1, UNSTABLE]
    place.ends(1)
    assert [place.fetched(p, stable=True) for p in (0, 1)] == [-1, 5]
    assert place.deletes_group() is NONE
    assert not place.shard.offsets


def test_bug_60_refused_request_stayed_pending() -> None:
    """Nor is anything pending where the whole request is refused."""
    cast = Cast()
    cast.stable("ann")
    asked = txn_commit_request(5, member_id="eve", generation=1)
    context = Context(cast.life.now_ms, cast.life.config, 1, 5, topics=cast.life.topics)
    with pytest.raises(Exception, match="UNKNOWN_MEMBER_ID"):
        cast.life.shard.handle(asked, context)
    assert not cast.life.shard.pending.by_group
    assert cast.group.state is State.STABLE


def test_bug_61_group_with_pending_offsets_expired() -> None:
    """KAFKA-19163: a group without members that had committed nothing but in a transaction that was still
    open was taken for one with nothing in it, and deleted."""
    place = Place(offsets_retention_minutes="1")
    place.commits(5, producer=1)
    place.now_ms += DECADE_MS
    place.looks_for_old()
    assert not place.last.records
    place.ends(1)
    place.restart()
    assert place.fetched() == 5
    place.now_ms += DECADE_MS
    place.looks_for_old()
    assert not place.shard.groups
    place.restart()


def test_bug_61_aborted_transaction_left_its_group() -> None:
    """And once it is aborted there is nothing in it, and it goes."""
    place = Place()
    place.commits(5, producer=1)
    place.ends(1, committed=False)
    place.looks_for_old()
    assert not place.shard.groups
    place.restart()


@pytest.mark.parametrize("how", ["group", "partition", "topic"])
@pytest.mark.parametrize("plain", [False, True])
def test_bug_61_open_transactions_were_forgotten_in_part(how: str, plain: bool) -> None:
    """KAFKA-19164: offsets were deleted, and who had them pending was not forgotten with them (or only one of
    two was): they stayed unstable, or came back when the transaction ended."""
    place = Place()
    if plain:
        place.commits(1)
    place.commits(5, producer=1)
    place.commits(6, producer=2, partitions=(0, 3))
    if how == "group":
        assert place.deletes_group() is NONE
        assert "g" not in place.shard.groups
    elif how == "partition":
        assert place.forgets(0) == [NONE]
        assert place.fetched(3, stable=True) == UNSTABLE
    else:
        place.loses_topic("orders", ORDERS)
    assert len(place.last.records) == len(set(place.last.records)), "one tombstone for each partition"
    assert place.fetched(0, stable=True) == -1
    for producer in (1, 2):
        place.restart()
        place.ends(producer)
    assert place.fetched(0) == -1
    assert place.fetched(3) == (6 if how == "partition" else -1)
    assert not place.shard.pending.by_producer


def test_bug_61_pending_offset_of_another_topic_of_the_name_stays() -> None:
    """What was committed for the topic that is there now is not that of the one that is gone."""
    place = Place()
    place.commits(5, producer=1)
    place.loses_topic("orders", b"another topic's ")
    place.loses_topic("audit", place.topics.by_name["audit"].id)
    assert not place.last.records
    place.ends(1)
    assert place.fetched() == 5


class TransactionalJournal:
    """A log in memory with transactions, whose syncs end when the test says so."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.end_offset = self.synced_offset = 0
        self.online = True
        self.syncs: list[asyncio.Future[None]] = []

    def append_pairs(self, pairs: list[Any], now_ms: int, producer: Producer | None = None) -> int:
        who: dict[str, Any] = {}
        if producer is not None:
            who = {
                "producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transactional": True
            }  # fmt: skip
        return self._append(rb.build_simple(pairs, now_ms, base_offset=self.end_offset, **who), len(pairs))

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
        """Nothing is kept."""

    async def sync(self) -> None:
        end = self.end_offset
        self.syncs.append(asyncio.get_running_loop().create_future())
        await self.syncs[-1]
        self.synced_offset = end

    def read_back(self) -> Iterator[tuple[rb.BatchHeader, memoryview]]:
        return rb.batches(b"".join(self.data))

    async def finish_sync(self, error: Exception | None = None) -> None:
        """Let the sync under way end, and what waits for it run."""
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


def told(answer: Any) -> tuple[int, int]:
    """Of an OffsetFetch: the error and the offset of its partition."""
    found = answer.value.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


def test_bug_62_marker_was_answered_before_it_had_its_effect() -> None:
    """KAFKA-17507: who was told that the transaction had ended, and asked at once, got the offset of before.
    And nobody is told before it is durable: the coordinator of transactions rests on it."""

    async def body() -> None:
        journal = TransactionalJournal()
        coordinator = await serving(journal)
        coordinator.submit(commit_request(1), RequestContext(8))
        coordinator.submit(txn_commit_request(5), RequestContext(5))
        await journal.finish_sync()
        ended = coordinator.submit(Ending(1, 0, 0, committed=True), RequestContext())
        fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
        assert not ended.done
        assert not fetched.done, "what it tells could be lost still"
        await journal.finish_sync()
        assert ended.done
        assert told(fetched) == (NONE, 5)
        await coordinator.close()

    asyncio.run(body())


def test_bug_63_expiry_took_a_pending_offset_with_it() -> None:
    """Redpanda CORE-16998: a plain commit expired while a transaction had another one pending for the same
    partition; read back from the log, the tombstone took away both, and the transaction's was lost."""
    place = Place(offsets_retention_minutes="1")
    place.commits(1)
    place.now_ms += DECADE_MS
    place.commits(5, producer=1)
    place.looks_for_old()
    assert not place.last.records, "not while it is pending"
    place.ends(1)
    place.restart()
    assert place.fetched() == 5


def test_bug_63_the_rest_of_the_group_expires() -> None:
    """Only the partition that is pending stays; and when it was aborted, that goes as well."""
    place = Place(offsets_retention_minutes="1")
    place.commits(1, partitions=(0, 1))
    place.now_ms += DECADE_MS
    place.commits(5, producer=1)
    place.looks_for_old()
    assert [place.fetched(p) for p in (0, 1)] == [1, -1]
    place.ends(1, committed=False)
    place.looks_for_old()
    assert not place.shard.offsets
    assert not place.shard.groups


@pytest.mark.parametrize("plain_last", [False, True])
def test_bug_64_a_restart_changed_which_commit_counted(plain_last: bool) -> None:
    """Redpanda CORE-17000 and 17001: of a commit in a transaction and a plain one, live the one counted that
    came to be last, and after a restart the one whose record was last."""
    place = Place()
    if plain_last:
        place.commits(5, producer=1)
    place.commits(1)
    if not plain_last:
        place.commits(5, producer=1)
    place.ends(1)
    expected = 1 if plain_last else 5
    assert place.fetched() == expected
    place.restart()
    assert place.fetched() == expected
    assert shard_of(compacted(place.log)).offsets == place.shard.offsets


def test_bug_65_a_fetch_of_what_is_stable_timed_out() -> None:
    """KAFKA-17267: who asks for what is stable waits for the log, and was told REQUEST_TIMED_OUT when that
    failed, which no client tries again. It is NOT_COORDINATOR: then a client looks for another one."""

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
    """The coordinator of group g, and a topic to commit for."""
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
def test_bug_66_a_restart_lost_what_was_pending(tmp_path: Path, committed: bool) -> None:
    """kfake 8854973c: offsets of an open transaction were in memory alone; when it was committed after a
    restart, its records counted and its offsets did not, and all was read again."""

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
            assert told(fetched) == (Errors.UNSTABLE_OFFSET_COMMIT, -1)
            await coordinator.submit(Ending(1, 0, 0, committed=committed), RequestContext())
            fetched = coordinator.submit(fetch_request(stable=True), RequestContext(9))
            assert told(fetched) == (NONE, 5 if committed else 1)

    asyncio.run(begun())
    asyncio.run(ended())


def test_bug_67_groups_transactions_kept_the_log_from_being_compacted(tmp_path: Path) -> None:
    """Redpanda#24637: transactions of groups ended, and in the log they did not: everything behind the first
    one counted as undecided, which no cleaner may touch."""

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


def test_bug_67_what_ended_is_compacted() -> None:
    """Of many transactions one commit for each partition is left."""
    place = Place()
    for number in range(20):
        place.commits(number, producer=number % 3, partitions=(number % 2,))
        place.ends(number % 3, committed=number < 18)
    left = [header for header, _ in compacted(place.log) if not header.is_control]
    assert [header.record_count for header in left] == [1, 1]
    assert shard_of(compacted(place.log)).offsets == place.shard.offsets
