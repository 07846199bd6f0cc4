"""What a member of a streams group does with what its coordinator says: against a scripted one."""

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
HELD = 3_600_000
"""An interval within which nobody is heard of again by itself."""


def answer(epoch: int, *active: int, interval_ms: int = 5) -> StreamsGroupHeartbeatResponse:
    return unchanged(epoch, interval_ms).replace(
        active_tasks=(TaskIds(subtopology_id="0", partitions=active),), standby_tasks=(), warmup_tasks=()
    )


def unchanged(epoch: int, interval_ms: int = 5) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=interval_ms, status=())


def script(*answers: StreamsGroupHeartbeatResponse) -> ScriptedBroker:
    """Heartbeats are answered with these in turn, the last one again and again; goodbyes are always."""
    rest = list(answers)

    def next_one(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return StreamsGroupHeartbeatResponse(member_epoch=request.member_epoch)
        return rest[0] if len(rest) == 1 else rest.pop(0)

    return ScriptedBroker(StreamsGroupHeartbeat=next_one)


def owned(tasks: Assignment) -> list[int]:
    return sorted(task.partition for task in tasks.active)


async def until(done: Callable[[], bool], member: StreamsMember) -> None:
    """Come by, as a caller does, until it is so."""
    async with asyncio.timeout(10):
        while not done():
            await member.ensure()
            await member.idle(20)


def test_of_two_targets_the_later_one_counts_also_if_it_comes_while_something_is_given_up() -> None:
    """What only the first one granted may be another's by the time that its callback is done."""
    happened: list[tuple[str, list[int]]] = []

    async def assigned(tasks: Assignment) -> None:
        happened.append(("has", owned(tasks)))

    async def life(broker: ScriptedBroker) -> None:
        async def hears_of_another(tasks: Assignment) -> None:
            turn = member.membership.target_version
            while member.membership.target_version == turn:
                assert await member.wait_for_response(5_000)
            happened.append(("gave up", owned(tasks)))
            member.on_revoked = None

        async with Cluster(broker.address, QUICK) as cluster:
            settings = StreamsMemberSettings(process_id="p")
            member = StreamsMember(
                cluster, "app", ORDERS, settings=settings, on_assigned=assigned, on_revoked=hears_of_another
            )
            await until(lambda: len(happened) > 1 and not member.rejoin, member)
            assert owned(member.assignment) == [1]
            await member.leave()

    answers = answer(1, 0, 1), unchanged(1), answer(2, 1, 2), answer(3, 1), unchanged(3, HELD)
    with script(*answers) as broker:
        asyncio.run(life(broker))
    assert happened == [("has", [0, 1]), ("gave up", [0])]
    told = [
        [list(row.partitions) for row in r.active_tasks]
        for api, r in zip(broker.apis, broker.requests, strict=True)
        if api == "StreamsGroupHeartbeat" and r.active_tasks
    ]
    assert told == [[[0, 1]], [[1]]]


def test_who_has_to_tell_what_it_took_over_does_that_before_it_comes_by_again() -> None:
    """An answer that was under way may bring another target; until the first one was told there is nothing to
    do, and a caller that came by all the same would keep the heartbeat from being sent."""

    async def life() -> None:
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

    asyncio.run(life())
