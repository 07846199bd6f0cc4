"""Behaviour of a classic member, as transcripts of its requests to a scripted coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import ScriptedBroker

from konvene.client.consumer.classic_member import Member, MemberSettings, State
from konvene.client.consumer.protocol import (
    Assigned,
    Subscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from konvene.client.errors import KafkaError, Misconfigured
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatResponse
from konvene.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from konvene.messages.leave_group import LeaveGroupResponse
from konvene.messages.sync_group import SyncGroupResponse

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def joined(generation: int, *, leader: str = "other", members: tuple[Any, ...] = ()) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_type="consumer", protocol_name="range", leader=leader,
        member_id="m-1", members=members,
    )  # fmt: skip


def synced(*partitions: TopicPartition) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=write_assignment(Assigned(partitions)))


NEEDS_ID = JoinGroupResponse(error_code=Errors.MEMBER_ID_REQUIRED, member_id="m-1")


def run_member(broker: ScriptedBroker, job: Callable[[Member], Awaitable[None]], **options: Any) -> list[str]:
    """Run `job` with a member of group g; return its rebalance callbacks."""
    happened: list[str] = []

    def recorder(event: str) -> Callable[[tuple[TopicPartition, ...]], Awaitable[None]]:
        async def write(partitions: tuple[TopicPartition, ...]) -> None:
            happened.append(f"{event} {' '.join(map(str, partitions))}".rstrip())

        return write

    async def whole() -> None:
        async with Cluster(broker.address, QUICK) as cluster:
            member = Member(
                cluster, "g", ["t"], on_assigned=recorder("assigned"), on_revoked=recorder("revoked"),
                on_lost=recorder("lost"), **options,
            )  # fmt: skip
            await job(member)

    asyncio.run(whole())
    return happened


def group_requests(broker: ScriptedBroker) -> list[str]:
    """Summarize the requests: API, member id, generation and reason."""
    lines = []
    for api, r in zip(broker.apis, broker.requests, strict=True):
        if api in ("FindCoordinator", "Metadata"):
            continue
        fields = [api]
        if api == "LeaveGroup":
            fields += [f"{m.member_id}: {m.reason}" for m in r.members]
        else:
            fields += [r.member_id or "-"]
            fields += [str(r.generation_id)] if api in ("Heartbeat", "SyncGroup") else []
            fields += [f"because {r.reason}"] if api == "JoinGroup" and r.reason else []
        lines.append(" ".join(fields))
    return lines


def test_a_member_gets_an_id_joins_syncs_and_leaves_with_a_reason() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        assert member.state is State.STABLE and not member.is_leader
        assert repr(member) == "<Member m-1 of g: stable, generation 1, 2 partitions>"
        await member.leave("done for today")
        assert member.state is State.LEFT

    with ScriptedBroker(
        JoinGroup=[NEEDS_ID, joined(1)], SyncGroup=synced(T0, T1), LeaveGroup=LeaveGroupResponse()
    ) as broker:
        happened = run_member(broker, scenario)
    assert group_requests(broker) == [
        "JoinGroup -", "JoinGroup m-1", "SyncGroup m-1 1", "LeaveGroup m-1: done for today",
    ]  # fmt: skip
    assert happened == ["assigned t-0 t-1", "revoked t-0 t-1"]


def test_the_leader_assigns_partitions_with_the_selected_protocol() -> None:
    metadata = write_subscription(Subscription(("t",)))
    members = tuple(JoinGroupResponseMember(member_id=m, metadata=metadata) for m in ("m-1", "m-2"))

    async def scenario(member: Member) -> None:
        await member.ensure()
        assert member.is_leader
        await member.leave()

    with ScriptedBroker(
        JoinGroup=joined(1, leader="m-1", members=members), SyncGroup=synced(T0),
        LeaveGroup=LeaveGroupResponse(),
    ) as broker:  # fmt: skip
        broker.answers["Metadata"] = [broker.metadata(t=3)]
        run_member(broker, scenario)
    (sync,) = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "SyncGroup"]
    assert {a.member_id: a.assignment for a in sync.assignments} == {
        "m-1": write_assignment(Assigned((T0, T1))),
        "m-2": write_assignment(Assigned((TopicPartition("t", 2),))),
    }


def test_an_eager_member_revokes_all_partitions_before_rejoining() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        await member.heartbeat()
        assert member.rejoin and member.assignment == (T0, T1)
        await member.ensure()
        await member.leave()

    with ScriptedBroker(
        JoinGroup=[joined(1), joined(2)], SyncGroup=[synced(T0, T1), synced(T1)],
        Heartbeat=HeartbeatResponse(error_code=Errors.REBALANCE_IN_PROGRESS), LeaveGroup=LeaveGroupResponse(),
    ) as broker:  # fmt: skip
        happened = run_member(broker, scenario)
    assert happened == ["assigned t-0 t-1", "revoked t-0 t-1", "assigned t-1", "revoked t-1"]
    assert group_requests(broker)[2:4] == [
        "Heartbeat m-1 1",
        "JoinGroup m-1 because group is already rebalancing",
    ]


def test_a_cooperative_member_revokes_only_moved_partitions_and_rejoins() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        member.ask_to_rejoin("for the test")
        await member.ensure()
        await member.leave()

    coop = [joined(g).replace(protocol_name="cooperative-sticky") for g in (1, 2, 3)]
    with ScriptedBroker(
        JoinGroup=coop, SyncGroup=[synced(T0, T1), synced(T0), synced(T0)], LeaveGroup=LeaveGroupResponse()
    ) as broker:
        happened = run_member(broker, scenario, assignors=("cooperative-sticky",))
    assert happened == ["assigned t-0 t-1", "revoked t-1", "assigned", "assigned", "revoked t-0"]
    joins = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "JoinGroup"]
    subscriptions = [read_subscription(r.protocols[0].metadata) for r in joins]
    assert [(s.owned, s.generation) for s in subscriptions] == [((), -1), ((T0, T1), 1), ((T0,), 2)]
    assert [r.reason for r in joins] == [None, "for the test", "need to revoke partitions t-1 and rejoin"]


def test_a_removed_member_loses_its_partitions_and_joins_with_a_new_id() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        await member.heartbeat()
        assert (member.state, member.member_id, member.assignment) == (State.OUT, "", ())
        await member.ensure()
        await member.leave()

    with ScriptedBroker(
        JoinGroup=joined(1), SyncGroup=synced(T0), LeaveGroup=LeaveGroupResponse(),
        Heartbeat=HeartbeatResponse(error_code=Errors.UNKNOWN_MEMBER_ID),
    ) as broker:  # fmt: skip
        happened = run_member(broker, scenario)
    assert happened == ["assigned t-0", "lost t-0", "assigned t-0", "revoked t-0"]
    assert group_requests(broker)[3] == "JoinGroup - because received UNKNOWN_MEMBER_ID"


def test_a_rebalance_during_sync_is_joined_again() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        await member.leave()

    again = SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS)
    with ScriptedBroker(
        JoinGroup=[joined(1), joined(2)], SyncGroup=[again, synced(T0)], LeaveGroup=LeaveGroupResponse()
    ) as broker:
        run_member(broker, scenario)
    assert group_requests(broker)[:4] == [
        "JoinGroup -", "SyncGroup m-1 1", "JoinGroup m-1", "SyncGroup m-1 2",
    ]  # fmt: skip


def test_a_fenced_member_raises_and_a_static_one_sends_no_leave_request() -> None:
    async def fenced(member: Member) -> None:
        with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
            await member.ensure()
        assert member.state is State.FENCED
        with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
            await member.ensure()

    async def static(member: Member) -> None:
        await member.ensure()
        await member.leave()

    settings = MemberSettings(group_instance_id="i-1")
    with ScriptedBroker(JoinGroup=JoinGroupResponse(error_code=Errors.FENCED_INSTANCE_ID)) as broker:
        run_member(broker, fenced, settings=settings)
    with ScriptedBroker(JoinGroup=joined(1), SyncGroup=synced(T0)) as broker:
        run_member(broker, static, settings=settings)
    assert broker.apis == ["FindCoordinator", "JoinGroup", "SyncGroup"]


def test_a_member_that_times_out_joining_leaves_the_group() -> None:
    async def scenario(member: Member) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await member.ensure()
        await member.leave("no patience")

    with ScriptedBroker(JoinGroup=[NEEDS_ID, None], LeaveGroup=LeaveGroupResponse()) as broker:
        run_member(broker, scenario)
    assert group_requests(broker)[-2:] == ["JoinGroup m-1", "LeaveGroup m-1: no patience"]


def test_heartbeats_are_sent_in_the_background() -> None:
    async def scenario(member: Member) -> None:
        await member.ensure()
        for _ in range(200):  # up to 4 s
            await asyncio.sleep(0.02)
            if broker.apis.count("Heartbeat") >= 2:
                break
        await member.leave()

    with ScriptedBroker(
        JoinGroup=joined(1), SyncGroup=synced(T0), Heartbeat=HeartbeatResponse(),
        LeaveGroup=LeaveGroupResponse(),
    ) as broker:  # fmt: skip
        run_member(broker, scenario, settings=MemberSettings(heartbeat_interval_ms=20))
    assert broker.apis.count("Heartbeat") >= 2


def test_a_static_leader_that_skipped_the_assignment_detects_new_partitions() -> None:
    """KIP-814: with `skip_assignment` the member is still the leader and watches the topics."""
    member = JoinGroupResponseMember(member_id="m-1", metadata=write_subscription(Subscription(("t",))))
    back = joined(1, leader="m-1", members=(member,)).replace(skip_assignment=True)

    async def scenario(member: Member) -> None:
        await member.ensure()
        assert member.is_leader
        async with asyncio.timeout(10):
            while not member.rejoin:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.005)
        assert member.reason == "cached metadata has changed: the partitions of t"

    with ScriptedBroker(JoinGroup=back, SyncGroup=synced(T0), Heartbeat=HeartbeatResponse()) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=3)]
        settings = MemberSettings(heartbeat_interval_ms=5, metadata_max_age_ms=1, group_instance_id="i")
        run_member(broker, scenario, settings=settings)
    (sync,) = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "SyncGroup"]
    assert sync.assignments == ()


def test_assignors_must_exist_and_share_a_rebalance_protocol() -> None:
    with pytest.raises(Misconfigured, match="there is no assignor fair"):
        Member(Cluster("h:1"), "g", ["t"], assignors=("fair",))
    with pytest.raises(Misconfigured, match="all eager or all cooperative"):
        Member(Cluster("h:1"), "g", ["t"], assignors=("range", "cooperative-sticky"))
