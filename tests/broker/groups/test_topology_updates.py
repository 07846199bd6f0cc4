"""Topology updates of a running streams group, with the client's members and a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.rights import AllExcept
from tests.client.streams.test_members import EVERY, WORDS, StreamsGroupFixture, streams_group

from konvene.broker.handlers import streams_group_heartbeat
from konvene.broker.services import bind
from konvene.client.admin.admin import TOPIC
from konvene.client.admin.group_state import GroupState
from konvene.client.errors import StreamsInvalidTopologyEpoch, StreamsTopologyFenced
from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.membership import StatusCode
from konvene.client.streams.settings import streams_settings
from konvene.client.streams.tasks import InternalTopic, Subtopology, Task, Topology
from konvene.errors import Errors
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.runtime.coordinator import RequestContext

KIP = {"konvene.streams.mode": "kip"}

PAIRS = Topology(
    (
        WORDS.subtopologies[0]._replace(
            repartition_sink_topics=("app-words-repartition", "app-pairs-repartition")
        ),
        WORDS.subtopologies[1]._replace(
            state_changelog_topics=(InternalTopic("app-counts-changelog", configs={"retention.ms": "7"}),)
        ),
        Subtopology(
            "2",
            state_changelog_topics=(InternalTopic("app-pairs-changelog"),),
            repartition_source_topics=(InternalTopic("app-pairs-repartition", 3),),
        ),
    )
)
"""One more subtopology with two new topics, and another config of an existing topic."""
NEXT_TOPICS = {"app-pairs-changelog", "app-pairs-repartition"}
NEXT = EVERY | {Task("2", partition) for partition in range(3)}


async def topics(group: StreamsGroupFixture) -> dict[str, tuple[str, int]]:
    return {
        topic.name: (str(topic.topic_id), len(topic.partitions)) for topic in await group.admin.list_topics()
    }


def is_stale(member: StreamsMember) -> bool:
    return StatusCode.STALE_TOPOLOGY in {status.code for status in member.statuses}


def with_epoch(epoch: int) -> dict[str, int]:
    """Return the member setting for the property `topology.epoch`."""
    found = streams_settings({"application.id": "app", "topology.epoch": str(epoch)})
    assert not found.unknown
    return {"topology_epoch": found.member.topology_epoch}


def test_a_rolling_update_creates_the_topics_of_the_next_topology(tmp_path: Path) -> None:
    """The first member of the next topology creates its topics; existing topics are unchanged.

    A member of the older topology gets the status STALE_TOPOLOGY and always has active tasks."""

    async def job() -> None:
        async with streams_group(tmp_path, **KIP) as group:
            ann, bob = group.member("ann"), group.member("bob")
            await group.until(lambda: len(ann.assignment.active) == len(bob.assignment.active) == 2)
            before = await topics(group)
            assert not NEXT_TOPICS & before.keys()
            await bob.leave()
            await group.until(lambda: ann.assignment.active == EVERY)

            newer = group.member("bob", PAIRS, member_id="bob-2", **with_epoch(1))
            idle: list[str] = []

            def done() -> bool:
                if not ann.assignment.active:
                    idle.append(repr(ann))
                both = ann.assignment.active | newer.assignment.active
                return both == NEXT and len(newer.assignment.active) >= 3 and is_stale(ann)

            await group.until(done)
            assert not idle
            assert ann.assignment.active <= EVERY
            assert not is_stale(newer)
            after = await topics(group)
            assert after.keys() - before.keys() == NEXT_TOPICS
            assert {name: after[name] for name in before} == before
            assert (after["app-pairs-repartition"][1], after["app-pairs-changelog"][1]) == (3, 3)
            found = await group.admin.describe_configs(TOPIC, "app-counts-changelog")
            assert "7" not in {row.value for row in found if row.name == "retention.ms"}

            described = await group.admin.describe_streams_group("app")
            assert described.state == GroupState.STABLE
            assert described.topology is not None and described.topology.epoch == 1
            assert {m.client_id: m.topology_epoch for m in described.members} == {"ann": 0, "bob": 1}

            await ann.leave()
            last = group.member("ann", PAIRS, member_id="ann-2", **with_epoch(1))

            def shared() -> bool:
                both = last.assignment.active, newer.assignment.active
                return both[0] | both[1] == NEXT and min(map(len, both)) >= 3

            await group.until(shared)
            assert last.statuses == newer.statuses == ()

    asyncio.run(job())


def test_rejected_topologies_name_the_accepted_epoch(tmp_path: Path) -> None:
    """An older epoch, another topology of the same epoch, and a skipped epoch are fatal to the member."""

    async def job() -> None:
        async with streams_group(tmp_path, **KIP) as group:
            ann = group.member("ann", PAIRS, **with_epoch(1))
            assert ann.membership.topology.epoch == 1
            await group.until(lambda: ann.assignment.active == NEXT)
            for name, topology, epoch, error, message in (
                ("bob", WORDS, 0, StreamsTopologyFenced, "bring it with topology epoch 2."),
                ("cid", WORDS, 1, StreamsInvalidTopologyEpoch, "bring it with topology epoch 2."),
                ("dan", WORDS, 3, StreamsInvalidTopologyEpoch, "has to come with 2."),
            ):
                member = group.member(name, topology, **with_epoch(epoch))
                with pytest.raises(error, match=message):
                    await group.until(lambda: False, member)
                assert member.state is MemberState.FATAL
            assert ann.statuses == ()

    asyncio.run(job())


def test_the_topics_of_the_next_topology_are_authorized(tmp_path: Path) -> None:
    """Without permission for one of its topics the update is rejected, and the group keeps its topology."""

    async def scenario(client: BrokerClient) -> None:
        await client.broker.groups.make_ready()
        await client.broker.groups.loaded()
        await client.topic("lines", 2)
        request = StreamsGroupHeartbeatRequest(
            group_id="app", member_id="m", rebalance_timeout_ms=60_000, process_id="p",
            topology=WORDS.to_message(), active_tasks=(), standby_tasks=(), warmup_tasks=(),
        )  # fmt: skip
        assert (await client.send(request, 1)).error_code == Errors.NONE
        after = request.replace(member_id="n", topology=PAIRS._replace(epoch=1).to_message())
        authorizer = AllExcept("app-pairs-changelog")

        async def epoch() -> int:
            (group,) = (await client.send(StreamsGroupDescribeRequest(group_ids=("app",)), 1)).groups
            return int(group.topology.epoch)

        client.broker.authorization.replace(authorizer)
        refused = bind(streams_group_heartbeat.handle, client.broker.services)(after, RequestContext(1))
        client.broker.authorization.replace(None)
        assert refused.error_code == Errors.TOPIC_AUTHORIZATION_FAILED
        assert NEXT_TOPICS & set(authorizer.names)
        assert await epoch() == 0
        assert (await client.send(after, 1)).error_code == Errors.NONE
        assert await epoch() == 1

    run_with_broker(tmp_path, scenario, KIP)
