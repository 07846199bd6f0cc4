"""Transactional clients against a konvene broker: atomic writes and offsets, fencing, isolation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running

from konvene.client.admin.admin import Admin
from konvene.client.consumer.classic_member import Member, MemberSettings
from konvene.client.consumer.consumer import Consumer
from konvene.client.consumer.fetch import LATEST, READ_COMMITTED, read_partition
from konvene.client.errors import (
    KafkaError,
    Misconfigured,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
)
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.producer.transaction_state import State
from konvene.client.producer.transactional import ConsumerGroupMetadata, TransactionalProducer
from konvene.errors import Errors
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity

SETTINGS = {"transaction.state.log.num.partitions": "2"}
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)

both_versions = pytest.mark.parametrize("version", [1, 2])


@asynccontextmanager
async def cluster_in(path: Path, settings: dict[str, str]) -> AsyncIterator[Cluster]:
    async with running(path, SETTINGS | settings) as broker:
        host, port = broker.catalogue.advertised
        async with Cluster(f"{host}:{port}") as cluster:
            for topic in ("in", "out"):
                if topic not in (await cluster.refresh()).topics:
                    await Admin(cluster).create_topic(topic, partitions=1)
            yield cluster


def serve(
    path: Path, job: Callable[[Cluster], Awaitable[Any]], settings: dict[str, str] | None = None
) -> Any:
    async def whole() -> Any:
        async with cluster_in(path, settings or {}) as cluster:
            return await job(cluster)

    return asyncio.run(whole())


async def committed_values(cluster: Cluster, tp: TopicPartition) -> list[bytes | None]:
    return [r.value async for r in read_partition(cluster, tp, isolation_level=READ_COMMITTED)]


async def produce_input(cluster: Cluster, count: int) -> None:
    async with TransactionalProducer(cluster, "filler") as producer, producer.transaction():
        for i in range(count):
            await producer.send("in", b"%d" % i, partition=0)


@both_versions
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_transform_produce_is_exactly_once(tmp_path: Path, version: int, protocol: str) -> None:
    """Every second transaction fails; the next consumer resumes at the last committed offsets."""

    async def copy_once(cluster: Cluster, fails: bool) -> int:
        consumer = Consumer(
            cluster, "copiers", auto_commit=False, auto_offset_reset="earliest", max_poll_records=3,
            isolation_level=READ_COMMITTED, group_protocol=protocol,
        )  # fmt: skip
        consumer.subscribe(["in"])
        try:
            async with TransactionalProducer(cluster, "copier", transaction_version=version) as producer:
                records = await consumer.poll()
                while not records and not consumer.assignment:
                    records = await consumer.poll()
                async with producer.transaction():
                    for record in records:
                        await producer.send("out", record.value, partition=0)
                    await producer.send_offsets_to_transaction(consumer.positions, consumer.group_metadata())
                    if fails:
                        await producer.flush()
                        raise ZeroDivisionError
                return len(records)
        except ZeroDivisionError:
            return 0
        finally:
            await consumer.close()

    async def job(cluster: Cluster) -> None:
        await produce_input(cluster, 10)
        copied = attempts = 0
        while copied < 10:
            copied += await copy_once(cluster, fails=attempts % 2 == 0)
            attempts += 1
            assert attempts < 40
        assert await committed_values(cluster, OUT) == [b"%d" % i for i in range(10)]
        offsets = await Admin(cluster).committed_offsets("copiers", require_stable=True)
        assert offsets[IN].offset >= 10

    serve(tmp_path, job)


@both_versions
def test_a_new_producer_aborts_the_open_transaction_and_fences_the_previous_one(
    tmp_path: Path, version: int
) -> None:
    async def job(cluster: Cluster) -> None:
        old = TransactionalProducer(cluster, "id", transaction_version=version)
        await old.init_transactions()
        old.begin_transaction()
        await old.send_offsets_to_transaction({IN: 3}, "readers")
        await (await old.send("out", b"old", partition=0))
        async with TransactionalProducer(cluster, "id", transaction_version=version) as new:
            assert await Admin(cluster).committed_offsets("readers", require_stable=True) == {}
            done = await old.send("out", b"zombie", partition=0)
            with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
                await old.commit_transaction()
            assert isinstance(done.exception(), KafkaError)
            with pytest.raises(ProducerFenced):
                await old.abort_transaction()
            assert old.state is State.FATAL_ERROR
            async with new.transaction():
                await new.send("out", b"new", partition=0)
        assert await committed_values(cluster, OUT) == [b"new"]

    serve(tmp_path, job)


@both_versions
def test_a_producer_continues_after_a_rejected_record(tmp_path: Path, version: int) -> None:
    async def job(cluster: Cluster) -> None:
        await Admin(cluster).create_topic("small", partitions=1, configs={"max.message.bytes": "200"})
        async with TransactionalProducer(cluster, "id", transaction_version=version) as producer:
            for values in ([b"a"], [b"b", b"x" * 1_000], [b"c"]):
                try:
                    async with producer.transaction():
                        for value in values:
                            await producer.send("small", value, partition=0)
                            await producer.flush()
                except TransactionFailed as error:
                    assert "MESSAGE_TOO_LARGE" in str(error)
        assert await committed_values(cluster, TopicPartition("small", 0)) == [b"a", b"c"]

    serve(tmp_path, job)


@both_versions
def test_a_transaction_can_be_aborted_before_its_first_write(tmp_path: Path, version: int) -> None:
    async def job(cluster: Cluster) -> None:
        async with TransactionalProducer(cluster, "id", transaction_version=version) as producer:
            for _ in range(3):
                producer.begin_transaction()
                await producer.send("out", b"never", partition=0)
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("out", b"then", partition=0)
        assert await committed_values(cluster, OUT) == [b"then"]

    serve(tmp_path, job)


def test_a_member_of_an_older_generation_cannot_commit(tmp_path: Path) -> None:
    """Its generation is older than the group's: ILLEGAL_GENERATION."""

    async def job(cluster: Cluster) -> None:
        consumer = Consumer(cluster, "readers", member=MemberSettings(session_timeout_ms=6_000))
        consumer.subscribe(["in"])
        while not consumer.assignment:
            await consumer.poll(10)
        metadata = consumer.group_metadata()
        assert (metadata.group_id, metadata.generation_id) == ("readers", 1)
        async with TransactionalProducer(cluster, "id") as producer:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({IN: 1}, metadata)
            producer.begin_transaction()
            with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
                await producer.send_offsets_to_transaction({IN: 2}, metadata._replace(generation_id=0))
            assert producer.state is State.ABORTABLE_ERROR
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({IN: 3}, metadata)
        assert (await Admin(cluster).committed_offsets("readers"))[IN].offset == 3
        await consumer.close()

    serve(tmp_path, job)


def test_a_removed_member_commits_with_its_former_member_id(tmp_path: Path) -> None:
    """A commit without a member id would be accepted, although other members own the partitions by now."""

    async def job(cluster: Cluster) -> None:
        consumer = Consumer(cluster, "readers", member=MemberSettings(session_timeout_ms=6_000))
        consumer.subscribe(["in"])
        while not consumer.assignment:
            await consumer.poll(10)
        metadata, member = consumer.group_metadata(), consumer.member
        assert isinstance(member, Member)
        leave_request = LeaveGroupRequest(
            group_id="readers", members=(MemberIdentity(member_id=member.member_id),)
        )
        await cluster.ask_coordinator(
            "readers", lambda _: (leave_request, 3), lambda answer: answer.error_code
        )
        await member.heartbeat()
        assert (member.member_id, member.generation, consumer.group_metadata()) == ("", -1, metadata)
        async with TransactionalProducer(cluster, "id") as producer:
            producer.begin_transaction()
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                await producer.send_offsets_to_transaction({IN: 2}, consumer.group_metadata())
            await producer.abort_transaction()
        await consumer.close()

    serve(tmp_path, job)


def test_group_metadata_needs_a_group() -> None:
    async def job() -> None:
        async with Cluster("localhost:1") as cluster:
            assert Consumer(cluster, "g").group_metadata() == ConsumerGroupMetadata("g")
            with pytest.raises(Misconfigured):
                Consumer(cluster).group_metadata()

    asyncio.run(job())


def test_stable_offsets_wait_for_the_end_of_the_transaction(tmp_path: Path) -> None:
    async def job(cluster: Cluster) -> None:
        admin = Admin(cluster)
        async with TransactionalProducer(cluster, "id") as producer:
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({IN: 7}, "readers")
            assert await admin.committed_offsets("readers", [IN]) == {}
            stable = asyncio.ensure_future(admin.committed_offsets("readers", [IN], require_stable=True))
            await admin.describe_group("readers")  # A later request, answered earlier.
            assert not stable.done()
            await producer.commit_transaction()
            assert (await stable)[IN].offset == 7

    serve(tmp_path, job)


def test_latest_is_the_last_stable_offset_with_read_committed(tmp_path: Path) -> None:
    """That is the first offset of an open transaction, not the end of the log."""

    async def job(cluster: Cluster) -> None:
        await produce_input(cluster, 2)
        async with TransactionalProducer(cluster, "id") as producer:
            producer.begin_transaction()
            await (await producer.send("in", b"open", partition=0))
            found = []
            for level in (0, READ_COMMITTED):
                consumer = Consumer(cluster, isolation_level=level)
                consumer.assign([IN])
                await consumer.seek_to(LATEST)
                found.append(consumer.positions[IN])
            assert found == [
                4,
                3,
            ]  # Two records and their marker; with read_uncommitted, the open record too.

    serve(tmp_path, job)


@both_versions
def test_a_transaction_survives_a_restart(tmp_path: Path, version: int) -> None:
    """It is committed after a restart of the broker, with the same producer id and epoch."""

    async def begin(cluster: Cluster) -> TransactionalProducer:
        producer = TransactionalProducer(cluster, "id", transaction_version=version)
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({IN: 5}, "readers")
        await (await producer.send("out", b"before", partition=0))
        return producer

    left = serve(tmp_path, begin)

    async def end(cluster: Cluster) -> None:
        assert await Admin(cluster).committed_offsets("readers") == {}
        assert await committed_values(cluster, OUT) == []  # It does not wait for the open transaction.
        left.cluster = cluster
        await left.commit_transaction()
        assert (await Admin(cluster).committed_offsets("readers", require_stable=True))[IN].offset == 5
        assert await committed_values(cluster, OUT) == [b"before"]

    serve(tmp_path, end)


@both_versions
def test_the_coordinator_aborts_a_transaction_after_its_timeout(tmp_path: Path, version: int) -> None:
    """As in Kafka, a later commit gets PRODUCER_FENCED with version 1, INVALID_TXN_STATE with version 2."""

    async def job(cluster: Cluster) -> None:
        producer = TransactionalProducer(
            cluster, "slow", transaction_timeout_ms=1, transaction_version=version
        )
        await producer.init_transactions()
        producer.begin_transaction()
        await (await producer.send("out", b"slow", partition=0))
        patience = cluster.patience()
        while (await Admin(cluster).describe_transaction("slow")).state != "CompleteAbort":
            await patience.after(RequestTimedOut("the coordinator does not abort"))
        with pytest.raises(KafkaError) as raised:
            await producer.commit_transaction()
        expected = Errors.PRODUCER_FENCED if version == 1 else Errors.INVALID_TXN_STATE
        assert raised.value.code == expected
        assert producer.state is State.FATAL_ERROR
        assert await committed_values(cluster, OUT) == []

    serve(tmp_path, job, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"})
