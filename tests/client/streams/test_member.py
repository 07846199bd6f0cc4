"""`StreamsMember` against a scripted coordinator: targets that change during a reconciliation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.client.scripted import ScriptedBroker

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Assignment, Subtopology, Topology
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=5_000)
ORDERS = Topology((Subtopology("0", ("orders",)),))
HOUR_MS = 3_600_000
"""A heartbeat interval that never elapses during a test."""


def answer(epoch: int, *active: int, interval_ms: int = 5) -> StreamsGroupHeartbeatResponse:
    return unchanged(epoch, interval_ms).replace(
        active_tasks=(TaskIds(subtopology_id="0", partitions=active),), standby_tasks=(), warmup_tasks=()
    )


def unchanged(epoch: int, interval_ms: int = 5) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=interval_ms, status=())


def script(*answers: StreamsGroupHeartbeatResponse) -> ScriptedBroker:
    """Return a broker that answers heartbeats with these responses in order, repeating the last one."""
    rest = list(answers)

    def next_one(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return StreamsGroupHeartbeatResponse(member_epoch=request.member_epoch)
        return rest[0] if len(rest) == 1 else rest.pop(0)

    return ScriptedBroker(StreamsGroupHeartbeat=next_one)


def owned(tasks: Assignment) -> list[int]:
    return sorted(task.partition for task in tasks.active)


async def until(done: Callable[[], bool], member: StreamsMember) -> None:
    """Drive the member as a caller does until `done` is true."""
    async with asyncio.timeout(10):
        while not done():
            await member.ensure()
            await member.idle(20)


def test_a_target_received_during_revocation_supersedes_the_former() -> None:
    """Tasks of only the first target may belong to another member when its callback returns."""
    happened: list[tuple[str, list[int]]] = []

    async def assigned(tasks: Assignment) -> None:
        happened.append(("assigned", owned(tasks)))

    async def scenario(broker: ScriptedBroker) -> None:
        async def wait_for_new_target(tasks: Assignment) -> None:
            version = member.membership.target_version
            while member.membership.target_version == version:
                assert await member.wait_for_response(5_000)
            happened.append(("revoked", owned(tasks)))
            member.on_revoked = None

        async with Cluster(broker.address, QUICK) as cluster:
            settings = StreamsMemberSettings(process_id="p")
            member = StreamsMember(
                cluster,
                "app",
                ORDERS,
                settings=settings,
                on_assigned=assigned,
                on_revoked=wait_for_new_target,
            )
            await until(lambda: len(happened) > 1 and not member.rejoin, member)
            assert owned(member.assignment) == [1]
            await member.leave()

    answers = answer(1, 0, 1), unchanged(1), answer(2, 1, 2), answer(3, 1), unchanged(3, HOUR_MS)
    with script(*answers) as broker:
        asyncio.run(scenario(broker))
    assert happened == [("assigned", [0, 1]), ("revoked", [0])]
    owned_tasks = [
        [list(row.partitions) for row in r.active_tasks]
        for api, r in zip(broker.apis, broker.requests, strict=True)
        if api == "StreamsGroupHeartbeat" and r.active_tasks
    ]
    assert owned_tasks == [[[0, 1]], [[1]]]


def test_a_confirmation_is_sent_before_the_next_reconciliation() -> None:
    """A pending response may have another target. Reconciling it before the confirmation of the first target
    was sent would delay that heartbeat."""

    async def scenario() -> None:
        async with Cluster("127.0.0.1:1", QUICK) as cluster:
            member = StreamsMember(cluster, "app", ORDERS, settings=StreamsMemberSettings(process_id="p"))
            m = member.membership
            m.request(0)
            m.handle_response(answer(1, 0, 1), 0)
            assert (m.state, member.rejoin) == (MemberState.RECONCILING, True)
            m.request(5)
            assert m.confirm_owned(m.incarnation, m.target_version, m.target)
            m.handle_response(answer(2, 1), 5)
            assert (m.state, member.rejoin) == (MemberState.ACKNOWLEDGING, False)
            m.request(5)
            assert (m.state, member.rejoin) == (MemberState.RECONCILING, True)

    asyncio.run(scenario())
