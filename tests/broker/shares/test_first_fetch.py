"""ShareFetch as in Kafka: after the first heartbeat, without a minimum, with an unknown acquire mode."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.net.raw_connections import Line
from tests.broker.shares.test_fetch import GROUP, MEMBERS, QUICK, TOPIC, Member, acquired, configured, joined

from konvene.broker.shares.share_partition import SharePartitionServer
from konvene.errors import Errors
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.runtime.deferred import Deferred
from konvene.share_state.requests import Read, SharePartitionKey, StateAnswer


def test_a_member_may_fetch_right_after_its_first_heartbeat(tmp_path: Path) -> None:
    """As in Kafka: the share partition is being initialized then, and the fetch waits for that."""

    async def scenario(broker_client: BrokerClient) -> None:
        topic_id = await broker_client.topic(TOPIC)
        await configured(broker_client)
        broker_client.write(TOPIC, *(b"%d" % n for n in range(10)))
        await broker_client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,)))
        join = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=MEMBERS[0], member_epoch=0, subscribed_topic_names=(TOPIC,)
        )
        assert (await broker_client.send(join)).error_code == 0
        one = Member(await Line.to(broker_client.broker), topic_id, MEMBERS[0])
        assert acquired(await one.fetch(wait_ms=9_000)) == [(0, 9, 1)]

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_share_partition_that_is_being_loaded_loads_state_that_is_initialized_meanwhile(
    tmp_path: Path,
) -> None:
    """The answer to its first request is ignored. A loaded share partition is dropped instead."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a")
        shares = broker_client.broker.share_partitions
        coordinators = shares._share_coordinators
        reads: list[tuple[Read, Deferred[StateAnswer]]] = []

        def submit(request: Read) -> Deferred[StateAnswer]:
            reads.append((request, Deferred()))
            return reads[-1][1]

        shares._share_coordinators = SimpleNamespace(submit=submit)  # type: ignore[assignment]
        key = SharePartitionKey(GROUP, one.topic_id, 0)
        served = shares.serve(key, TOPIC)
        shares._share_coordinators = coordinators
        assert isinstance(served, SharePartitionServer)
        shares.state_initialized(key)
        first, second = reads
        first[1].resolve(StateAnswer(Errors.INVALID_REQUEST, "an uninitialized share partition"))
        assert (served.failed, served.loaded) == (None, False)
        waiting = asyncio.ensure_future(one.fetch(wait_ms=9_000))
        coordinators.submit(second[0]).listen(second[1].resolve)
        assert acquired(await waiting) == [(0, 0, 1)]
        assert shares.served[key] is served
        shares.state_initialized(key)
        assert served.failed == (Errors.NOT_LEADER_OR_FOLLOWER, None)
        assert key not in shares.served

    run_with_broker(tmp_path, scenario, QUICK)


def test_an_unknown_acquire_mode_is_rejected(tmp_path: Path) -> None:
    """The session does not change. Version 1 has no mode."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a", b"b")
        for mode in (2, 7, -1, 127):
            rejected = await one.fetch(share_acquire_mode=mode)
            assert (rejected.error_code, rejected.responses) == (Errors.INVALID_REQUEST, ())
        assert one.epoch == 0
        assert acquired(await one.fetch(wait_ms=9_000, most=1, share_acquire_mode=1)) == [(0, 0, 1)]
        rejected = await one.fetch(share_acquire_mode=2)
        assert rejected.error_code == Errors.INVALID_REQUEST
        assert acquired(await one.fetch(wait_ms=9_000, share_acquire_mode=2, version=1)) == [(1, 1, 1)]

    run_with_broker(tmp_path, scenario, QUICK)


def test_a_fetch_without_a_minimum_waits_for_no_records(tmp_path: Path) -> None:
    """As in Kafka, `min_bytes` 0 is satisfied by no records; the maximum wait is longer than the test's."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1_000_000)) == [(0, 0, 1)]
        assert acquired(await one.fetch(wait_ms=1_000_000, min_bytes=0)) == []

    run_with_broker(tmp_path, scenario, QUICK)
