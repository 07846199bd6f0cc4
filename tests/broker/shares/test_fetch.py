"""ShareFetch and ShareAcknowledge over a connection: delivery, locks, sessions and durable state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.net.raw_connections import Line
from tests.broker.running import running

from konvene.codec.batches import records
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from konvene.messages.share_fetch import (
    AcknowledgementBatch as FetchBatch,
)
from konvene.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.share_state.requests import SharePartitionKey

TOPIC, GROUP = "orders", "packers"
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
MEMBERS = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
QUICK = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}
GROUP_CONFIG = 32

Acknowledgements = Sequence[tuple[int, int, int]]
"""First offset, last offset and acknowledge type of each batch."""


class Member:
    """A scripted member of a share group, with its own connection."""

    def __init__(self, line: Line, topic_id: Uuid, member_id: str) -> None:
        self.line, self.topic_id, self.member_id = line, topic_id, member_id
        self.epoch = 0

    async def fetch(
        self, acknowledgements: Acknowledgements = (), *, wait_ms: int = 0, epoch: int | None = None,
        most: int = 500, version: int = 2, partitions: Sequence[int] = (0,), forget: Sequence[int] = (),
        group: str = GROUP, **more: Any,
    ) -> Any:  # fmt: skip
        batches = tuple(
            FetchBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in acknowledgements
        )
        request = ShareFetchRequest(
            group_id=group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=more.pop("min_bytes", 1),
            max_records=most,
            batch_size=most,
            topics=tuple(
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=(FetchPartition(partition_index=index, acknowledgement_batches=batches),),
                )
                for index in partitions
            ),
            forgotten_topics_data=(ForgottenTopic(topic_id=self.topic_id, partitions=tuple(forget)),)
            if forget
            else (),
            **more,
        )
        answer = await self._exchange(SHARE_FETCH, version, request)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def acknowledge(
        self, acknowledgements: Acknowledgements, *, epoch: int | None = None, renew: bool = False,
        without_batches: Sequence[int] = (),
    ) -> Any:  # fmt: skip
        """Send a ShareAcknowledge for partition 0; `without_batches` are listed without batches."""
        batches = tuple(
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in acknowledgements
        )
        partitions = (
            [AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)]
            if acknowledgements
            else []
        )
        partitions += [AcknowledgePartition(partition_index=index) for index in without_batches]
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=(AcknowledgeTopic(topic_id=self.topic_id, partitions=tuple(partitions)),)
            if partitions
            else (),
        )
        answer = await self._exchange(SHARE_ACKNOWLEDGE, 2, request)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def _exchange(self, key: int, version: int, request: Any) -> Any:
        self.line.send(key, version, request)
        return (await self.line.answer(10))[1]


def acquired(answer: Any, index: int = 0) -> list[tuple[int, int, int]]:
    """Return first offset, last offset and delivery count of each batch acquired from a partition."""
    assert answer.error_code == 0, Errors(answer.error_code)
    return [
        (batch.first_offset, batch.last_offset, batch.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        if partition.partition_index == index
        for batch in partition.acquired_records
    ]


def values(answer: Any) -> list[bytes]:
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return [record.value for record in records(partition.records)]


def errors(answer: Any) -> list[Errors]:
    """Return the error of each partition."""
    return [Errors(p.error_code) for topic in answer.responses for p in topic.partitions]


def acknowledge_errors(answer: Any) -> list[Errors]:
    return [Errors(p.acknowledge_error_code) for topic in answer.responses for p in topic.partitions]


async def configured(broker_client: BrokerClient, **settings: str) -> None:
    """Set configs of the group."""
    wanted = {"share.auto.offset.reset": "earliest"} | {k.replace("_", "."): v for k, v in settings.items()}
    resource = AlterConfigsResource(
        resource_type=GROUP_CONFIG,
        resource_name=GROUP,
        configs=tuple(
            AlterableConfig(name=name, config_operation=0, value=value) for name, value in wanted.items()
        ),
    )
    answer = await broker_client.send(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert [row.error_code for row in answer.responses] == [0]


async def joined(
    broker_client: BrokerClient, count: int = 1, partitions: int = 1, **settings: str
) -> list[Member]:
    """Create a topic and a group reading from its start; return members that own all its partitions."""
    topic_id = await broker_client.topic(TOPIC, partitions)
    await configured(broker_client, **settings)
    await broker_client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,)))
    members = []
    for member_id in MEMBERS[:count]:
        members.append(Member(await Line.to(broker_client.broker), topic_id, member_id))
        await until_assigned(broker_client, member_id, partitions)
    return members


async def until_assigned(broker_client: BrokerClient, member_id: str, partitions: int) -> None:
    epoch = 0
    for _ in range(200):
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch,
            subscribed_topic_names=(TOPIC,) if epoch == 0 else None,
        )  # fmt: skip
        answer = await broker_client.send(request)
        assert not answer.error_code, answer
        epoch = answer.member_epoch
        if (
            answer.assignment
            and sum(len(t.partitions) for t in answer.assignment.topic_partitions) == partitions
        ):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{member_id} has no assignment of {partitions} partitions")


def test_a_record_is_delivered_to_one_member_and_completed_when_accepted(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        broker_client.write(TOPIC, b"a", b"b")
        broker_client.write(TOPIC, b"c")
        first = await one.fetch(wait_ms=1000)
        assert acquired(first) == [(0, 2, 1)]
        assert first.acquisition_lock_timeout_ms == 1000
        assert acquired(await other.fetch()) == []
        done = await one.fetch([(0, 2, ACCEPT)])
        assert acknowledge_errors(done) == [0]
        assert acquired(await other.fetch()) == []
        broker_client.write(TOPIC, b"d")
        again = await other.fetch(wait_ms=1000)
        assert acquired(again) == [(3, 3, 1)]
        assert values(again) == [b"d"]

    run_with_broker(tmp_path, scenario, QUICK)


def test_acceptances_survive_a_restart_and_acquisition_locks_do_not(tmp_path: Path) -> None:
    topic_id: list[Uuid] = []

    async def before(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        topic_id.append(one.topic_id)
        broker_client.write(TOPIC, b"a")
        broker_client.write(TOPIC, b"b")
        broker_client.write(TOPIC, b"c")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 2, 1)]
        answer = await one.acknowledge([(1, 1, ACCEPT)])
        assert errors(answer) == [0]

    async def after(broker_client: BrokerClient) -> None:
        one = Member(await Line.to(broker_client.broker), topic_id[0], MEMBERS[0])
        given = acquired(await one.fetch(wait_ms=5000)) + acquired(await one.fetch(wait_ms=500))
        assert [(first, last) for first, last, _ in given] == [(0, 0), (2, 2)]

    run_with_broker(tmp_path, before, QUICK)
    run_with_broker(tmp_path, after, QUICK)


def test_a_waiting_fetch_receives_released_records(tmp_path: Path) -> None:
    """Bug 72: acknowledgements inside a ShareFetch did not wake waiting fetches."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        waiting = asyncio.ensure_future(other.fetch(wait_ms=9000))
        await asyncio.sleep(0.1)
        await one.fetch([(0, 0, RELEASE)], most=0)
        assert acquired(await waiting) == [(0, 0, 2)]

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_waiting_fetch_receives_a_record_whose_lock_expires(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        assert acquired(await other.fetch(wait_ms=9000)) == [(0, 0, 2)]
        late = await one.acknowledge([(0, 0, ACCEPT)])
        assert errors(late) == [Errors.INVALID_RECORD_STATE]

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_renewed_lock_lasts_longer(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        for _ in range(7):
            await asyncio.sleep(0.2)
            assert errors(await one.acknowledge([(0, 0, RENEW)], renew=True)) == [0]
        assert acquired(await other.fetch()) == []
        assert errors(await one.acknowledge([(0, 0, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("how", ["closed by a fetch", "closed by an acknowledgement", "disconnected"])
def test_the_end_of_a_session_releases_its_records(tmp_path: Path, how: str) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        waiting = asyncio.ensure_future(other.fetch(wait_ms=800))
        await asyncio.sleep(0.1)
        if how == "disconnected":
            one.line.writer.close()
        elif how == "closed by a fetch":
            await one.fetch(epoch=-1, partitions=())
        else:
            await one.acknowledge([], epoch=-1)
        assert acquired(await waiting) == [(0, 0, 2)]

    run_with_broker(tmp_path, scenario, QUICK)


def test_session_epochs_are_validated(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        assert (await one.fetch(epoch=1)).error_code == Errors.SHARE_SESSION_NOT_FOUND
        assert (await one.acknowledge([], epoch=1)).error_code == Errors.SHARE_SESSION_NOT_FOUND
        assert (await one.fetch([(0, 0, ACCEPT)], epoch=0)).error_code == Errors.INVALID_REQUEST
        assert acquired(await one.fetch()) == []
        assert (await one.fetch(epoch=7)).error_code == Errors.INVALID_SHARE_SESSION_EPOCH
        assert (await one.acknowledge([], epoch=0)).error_code == Errors.INVALID_SHARE_SESSION_EPOCH
        one.member_id = ""
        assert (await one.fetch()).error_code == Errors.INVALID_REQUEST

    run_with_broker(tmp_path, scenario, QUICK)


def test_invalid_acknowledgements_are_rejected(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a", b"b")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 1, 1)]
        for acknowledgements in (
            [(1, 0, ACCEPT)],
            [(0, 0, 9)],
            [(0, 0, -1)],
            [(0, 0, RENEW)],
            [(1, 1, ACCEPT), (0, 0, ACCEPT)],
        ):
            found = errors(await one.acknowledge(acknowledgements))
            assert found == [Errors.INVALID_REQUEST], acknowledgements
        assert errors(await one.acknowledge([(5, 5, ACCEPT)])) == [Errors.INVALID_REQUEST]
        assert errors(await one.acknowledge([(0, 1, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, QUICK)


def test_partitions_without_acknowledgements(tmp_path: Path) -> None:
    """Kafka 4.4 answers them only if another partition has acknowledgements, else omits them."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client, partitions=2)
        broker_client.write(TOPIC, b"a", b"b")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 1, 1)]
        assert not [key for key in broker_client.broker.share_partitions.served if key.partition == 1]
        answer = await one.acknowledge([(0, 0, ACCEPT)], without_batches=(1, 7))
        found = {p.partition_index: p.error_code for topic in answer.responses for p in topic.partitions}
        assert found == {0: 0, 1: 0, 7: Errors.UNKNOWN_TOPIC_OR_PARTITION}
        assert errors(await one.acknowledge((), without_batches=(0, 1))) == []
        assert errors(await one.acknowledge((), without_batches=(1, 7))) == [
            Errors.UNKNOWN_TOPIC_OR_PARTITION
        ]

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_fetch_that_renews_fetches_nothing(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a")
        broker_client.write(TOPIC, b"b")
        assert acquired(await one.fetch(wait_ms=1000, most=1, share_acquire_mode=1)) == [(0, 0, 1)]
        wrong = await one.fetch([(0, 0, RENEW)], is_renew_ack=True)
        assert wrong.error_code == Errors.INVALID_REQUEST
        renewed = await one.fetch([(0, 0, RENEW)], is_renew_ack=True, most=0, max_bytes=0, min_bytes=0)
        assert acknowledge_errors(renewed) == [0]
        assert acquired(renewed) == []

    run_with_broker(tmp_path, scenario, QUICK)


def test_unknown_topics_partitions_and_groups_are_rejected(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        unknown = Member(one.line, Uuid(b"\7" * 16), one.member_id)
        assert errors(await unknown.fetch()) == [Errors.UNKNOWN_TOPIC_ID]
        assert errors(await one.fetch(partitions=(5,), epoch=0)) == [Errors.UNKNOWN_TOPIC_OR_PARTITION]
        stranger = await one.fetch(epoch=0, group="strangers", wait_ms=100)
        assert errors(stranger) == [Errors.UNKNOWN_SERVER_ERROR]

    run_with_broker(tmp_path, scenario, QUICK)


def test_the_deletion_of_a_topic_completes_a_waiting_fetch(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        waiting = asyncio.ensure_future(one.fetch(wait_ms=9000))
        await asyncio.sleep(0.2)
        await broker_client.drop(TOPIC)
        assert errors(await waiting) == [Errors.UNKNOWN_TOPIC_OR_PARTITION]

    run_with_broker(tmp_path, scenario, QUICK)


MAGIC_AT = 16


def segment(tmp_path: Path) -> Path:
    return next(tmp_path.rglob(f"{TOPIC}-0/*.log"))


def log_size(tmp_path: Path) -> int:
    return segment(tmp_path).stat().st_size


def corrupt(tmp_path: Path, at: int) -> None:
    """Corrupt the magic byte of the batch at this position of the segment."""
    with segment(tmp_path).open("r+b") as file:
        file.seek(at + MAGIC_AT)
        file.write(b"\x7f")


def test_kafka_17844_a_waiting_fetch_is_answered_when_a_batch_is_corrupt(tmp_path: Path) -> None:
    """Bug 71: the fetch was never answered."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        waiting = asyncio.ensure_future(one.fetch(wait_ms=500, min_bytes=10_000))
        await asyncio.sleep(0.1)
        broker_client.write(TOPIC, b"a")
        corrupt(tmp_path, 0)
        assert errors(await waiting) == [Errors.CORRUPT_MESSAGE]
        assert errors(await one.fetch(wait_ms=500)) == [Errors.CORRUPT_MESSAGE]

    run_with_broker(tmp_path, scenario, QUICK)


def test_records_before_a_corrupt_batch_are_delivered(tmp_path: Path) -> None:
    """Otherwise the records would be acquired but not delivered until their locks expire."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a" * 5000)
        size = log_size(tmp_path)
        broker_client.write(TOPIC, b"b" * 5000)
        corrupt(tmp_path, size)
        assert acquired(await one.fetch(wait_ms=1000, most=2)) == [(0, 0, 1)]
        assert errors(await one.fetch(wait_ms=500)) == [Errors.CORRUPT_MESSAGE]

    run_with_broker(tmp_path, scenario, QUICK)


def test_kafka_17483_a_waiting_fetch_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    """Bug 71: a stopping broker did not complete waiting fetches."""

    async def main() -> None:
        async with running(tmp_path, QUICK) as broker:
            (one,) = await joined(BrokerClient(broker))
            waiting = asyncio.ensure_future(one.fetch(wait_ms=60_000))
            await asyncio.sleep(0.1)
            (served,) = broker.share_partitions.served.values()
            assert len(served.waiting) == 1
        assert errors(await asyncio.wait_for(waiting, 5)) == [Errors.NOT_LEADER_OR_FOLLOWER]
        assert not served.waiting and not served.partition.waiting

    asyncio.run(main())


def test_rejected_records_are_copied_to_the_dead_letter_topic(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        dlq = {
            "errors_deadletterqueue_topic_name": "dlq.orders",
            "errors_deadletterqueue_copy_record_enable": "true",
        }
        (one,) = await joined(broker_client, **dlq)
        broker_client.write(TOPIC, b"a")
        broker_client.write(TOPIC, b"b")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 1, 1)]
        assert errors(await one.acknowledge([(0, 0, ACCEPT), (1, 1, REJECT)])) == [0]
        for _ in range(100):
            queue = broker_client.broker.partitions.get("dlq.orders", 0)
            if queue is not None and queue.end_offset:
                break
            await asyncio.sleep(0.02)
        assert queue is not None
        ((header, batch),) = queue.batches()
        (copy,) = records(batch, header)
        assert copy.value == b"b"
        assert dict(copy.headers) == {
            "__dlq.errors.topic": b"orders",
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"1",
            "__dlq.errors.group": b"packers",
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }
        served = broker_client.broker.share_partitions.served[SharePartitionKey(GROUP, one.topic_id, 0)]
        for _ in range(100):
            if served.core.start_offset == 2:
                break
            await asyncio.sleep(0.02)
        assert served.core.start_offset == 2

    run_with_broker(tmp_path, scenario, QUICK | {"errors.deadletterqueue.auto.create.topics.enable": "true"})
