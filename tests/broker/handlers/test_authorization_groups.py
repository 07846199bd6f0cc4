"""Each API of groups, offsets and transactions with no right, each single right and all rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.authorization_cases.cases_groups import (
    ALL,
    CASES,
    NO_RIGHT,
    SINGLE_RIGHTS,
    TX,
    Case,
    Right,
    World,
    rendered,
    rights_of,
)
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.net.raw_connections import until
from tests.broker.rights import Rights

from konvene.broker.handlers import share_fetch
from konvene.broker.services import bind
from konvene.errors import Errors
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import value_of
from konvene.security.resources import Operation, group, topic

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
}


def plays(case: Case) -> Iterator[tuple[tuple[Right, ...] | None, str]]:
    """Yield the rights to try (None: all) and the expected response."""
    named: set[tuple[Right, ...]] = set()
    for text, expected in case.outcomes.items():
        for rights in [None] if text == ALL else rights_of(text):
            named.add(rights or ())
            yield rights, expected
    yield from (((right,), case.outcomes[NO_RIGHT]) for right in SINGLE_RIGHTS if (right,) not in named)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_denied_items_are_answered(tmp_path: Path, case: Case) -> None:
    """The response depends on the rights only through the operations that Kafka checks."""

    async def scenario(client: BrokerClient) -> None:
        broker = client.broker
        for coordinators in (broker.groups, broker.transactions, broker.share_coordinators):
            await coordinators.make_ready()
        await broker.groups.loaded()
        ids = [await client.topic(name) for name in ("seen", "other")]
        for rights, expected in plays(case):
            world = await set_up(client, World(ids[0], ids[1], -1, -1))
            broker.authorization.replace(None if rights is None else Rights(*rights))
            response = await client.send(case.request(world), case.version)
            broker.authorization.replace(None)
            assert rendered(response) == expected, rights

    run_with_broker(tmp_path, scenario, SETTINGS)


def test_share_sessions_are_checked_at_each_request(tmp_path: Path) -> None:
    """A topic whose right was revoked since then has an error, for fetched and acknowledged records."""

    async def scenario(client: BrokerClient) -> None:
        broker = client.broker
        for coordinators in (broker.groups, broker.transactions, broker.share_coordinators):
            await coordinators.make_ready()
        await broker.groups.loaded()
        ids = [await client.topic(name) for name in ("seen", "other")]
        await set_up(client, World(ids[0], ids[1], -1, -1))
        fetch = bind(share_fetch.handle, broker.services)
        readable = Rights((Operation.READ, group("share")), (Operation.READ, topic("seen")))

        async def errors(epoch: int, *partitions: FetchPartition) -> list[tuple[int, int]]:
            topics = (FetchTopic(topic_id=ids[0], partitions=partitions),) if partitions else ()
            request = ShareFetchRequest(
                group_id="share", member_id="A" * 22, share_session_epoch=epoch, max_records=1, max_bytes=1,
                topics=topics,
            )  # fmt: skip
            response = await value_of(fetch(request, RequestContext(1)))
            assert response.error_code == Errors.NONE
            answered = [p for each in response.responses for p in each.partitions]
            return [(p.error_code, p.acknowledge_error_code) for p in answered]

        broker.authorization.replace(readable)
        assert await errors(0, FetchPartition()) == [(0, 0)]
        broker.authorization.replace(Rights((Operation.READ, group("share"))))
        denied = Errors.TOPIC_AUTHORIZATION_FAILED
        assert await errors(1) == [(denied, 0)]
        batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(1,))
        assert await errors(2, FetchPartition(acknowledgement_batches=(batch,))) == [(denied, denied)]
        broker.authorization.replace(readable)
        assert denied not in {error for pair in await errors(3) for error in pair}

    run_with_broker(tmp_path, scenario, SETTINGS)


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        ((Operation.READ, group("share")), (Errors.NONE, [Errors.TOPIC_AUTHORIZATION_FAILED])),
        ((Operation.READ, topic("seen")), (Errors.GROUP_AUTHORIZATION_FAILED, [])),
    ],
)
def test_waiting_share_fetch_acquires_nothing_after_a_right_is_revoked(
    remaining: Right, expected: tuple[int, list[int]], tmp_path: Path
) -> None:
    """A share fetch that waits is checked again before it acquires records, if ACLs have changed."""

    async def scenario(client: BrokerClient) -> None:
        broker = client.broker
        for coordinators in (broker.groups, broker.transactions, broker.share_coordinators):
            await coordinators.make_ready()
        await broker.groups.loaded()
        ids = [await client.topic(name) for name in ("seen", "other")]
        await set_up(client, World(ids[0], ids[1], -1, -1))
        broker.authorization.replace(
            Rights((Operation.READ, group("share")), (Operation.READ, topic("seen")))
        )
        request = ShareFetchRequest(
            group_id="share", member_id="A" * 22, max_wait_ms=30_000, min_bytes=1, max_records=1,
            topics=(FetchTopic(topic_id=ids[0], partitions=(FetchPartition(),)),),
        )  # fmt: skip
        fetch = bind(share_fetch.handle, broker.services)
        pending = asyncio.ensure_future(value_of(fetch(request, RequestContext(1))))
        partition = broker.partitions.get("seen", 0)
        assert partition is not None
        await until(lambda: partition.waiting, 30)
        broker.authorization.replace(Rights(remaining))
        client.write("seen", b"v")
        response = await pending
        answered = [p for each in response.responses for p in each.partitions]
        assert (response.error_code, [p.error_code for p in answered if p.error_code]) == expected
        assert not any(p.records or p.acquired_records for p in answered)
        assert not partition.waiting

    run_with_broker(tmp_path, scenario, SETTINGS)


async def set_up(client: BrokerClient, world: World) -> World:
    """Store offsets of both topics in both groups, and start the transactional producer anew."""
    start = (AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0),)
    share = tuple(
        AlterShareGroupOffsetsRequestTopic(topic_name=n, partitions=start) for n in ("seen", "other")
    )
    await client.send(AlterShareGroupOffsetsRequest(group_id="share", topics=share))
    partitions = (OffsetCommitRequestPartition(partition_index=0, committed_offset=5),)
    topics = tuple(OffsetCommitRequestTopic(name=n, partitions=partitions) for n in ("seen", "other"))
    request = OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=-1, topics=topics)
    await client.send(request, 9)
    init = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=10_000)
    while (producer := await client.send(init, 5)).error_code:
        pass
    return world._replace(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
