"""A running application is given its next topology, by our client's members and a broker that serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
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
"""With one subtopology more, which has its own two topics; and a topic that is there is to be another."""
NEXT_TOPICS = {"app-pairs-changelog", "app-pairs-repartition"}
NEXT = EVERY | {Task("2", partition) for partition in range(3)}


async def topics(r: StreamsGroupFixture) -> dict[str, tuple[str, int]]:
    return {topic.name: (str(topic.topic_id), len(topic.partitions)) for topic in await r.admin.list_topics()}


def is_stale(member: StreamsMember) -> bool:
    return StatusCode.STALE_TOPOLOGY in {status.code for status in member.statuses}


def with_epoch(epoch: int) -> dict[str, int]:
    """As an application's properties say it, under the document's name."""
    found = streams_settings({"application.id": "app", "topology.epoch": str(epoch)})
    assert not found.unknown
    return {"topology_epoch": found.member.topology_epoch}


def test_an_application_is_rolled_to_topics_that_are_made_for_it(tmp_path: Path) -> None:
    """The first one of the next topology has its topics made, with the partitions that it asks for; no topic
    that was there is another one by that. Who is behind hears so, and runs something all the time."""

    async def job() -> None:
        async with streams_group(tmp_path, **KIP) as r:
            ann, bob = r.member("ann"), r.member("bob")
            await r.until(lambda: len(ann.assignment.active) == len(bob.assignment.active) == 2)
            before = await topics(r)
            assert not NEXT_TOPICS & before.keys()
            await bob.leave()
            await r.until(lambda: ann.assignment.active == EVERY)

            newer = r.member("bob", PAIRS, member_id="bob-2", **with_epoch(1))
            idle: list[str] = []

            def done() -> bool:
                if not ann.assignment.active:
                    idle.append(repr(ann))
                both = ann.assignment.active | newer.assignment.active
                return both == NEXT and len(newer.assignment.active) >= 3 and is_stale(ann)

            await r.until(done)
            assert not idle
            assert ann.assignment.active <= EVERY
            assert not is_stale(newer)
            after = await topics(r)
            assert after.keys() - before.keys() == NEXT_TOPICS
            assert {name: after[name] for name in before} == before
            assert (after["app-pairs-repartition"][1], after["app-pairs-changelog"][1]) == (3, 3)
            found = await r.admin.describe_configs(TOPIC, "app-counts-changelog")
            assert "7" not in {row.value for row in found if row.name == "retention.ms"}

            described = await r.admin.describe_streams_group("app")
            assert described.state == GroupState.STABLE
            assert described.topology is not None and described.topology.epoch == 1
            assert {m.client_id: m.topology_epoch for m in described.members} == {"ann": 0, "bob": 1}

            await ann.leave()
            last = r.member("ann", PAIRS, member_id="ann-2", **with_epoch(1))

            def shared() -> bool:
                both = last.assignment.active, newer.assignment.active
                return both[0] | both[1] == NEXT and min(map(len, both)) >= 3

            await r.until(shared)
            assert last.statuses == newer.statuses == ()

    asyncio.run(job())


def test_what_is_refused_says_what_to_do(tmp_path: Path) -> None:
    """An older topology is fenced, another one of the same epoch and one too far ahead are refused: the
    member has failed, and its error has the epoch that would be taken."""

    async def job() -> None:
        async with streams_group(tmp_path, **KIP) as r:
            ann = r.member("ann", PAIRS, **with_epoch(1))
            assert ann.membership.topology.epoch == 1
            await r.until(lambda: ann.assignment.active == NEXT)
            for name, topology, epoch, error, words in (
                ("bob", WORDS, 0, StreamsTopologyFenced, "bring it with topology epoch 2."),
                ("cid", WORDS, 1, StreamsInvalidTopologyEpoch, "bring it with topology epoch 2."),
                ("dan", WORDS, 3, StreamsInvalidTopologyEpoch, "has to come with 2."),
            ):
                member = r.member(name, topology, **with_epoch(epoch))
                with pytest.raises(error, match=words):
                    await r.until(lambda: False, member)
                assert member.state is MemberState.FATAL
            assert ann.statuses == ()

    asyncio.run(job())


def test_the_next_topology_is_authorised_as_the_first(tmp_path: Path) -> None:
    """Who may not see a topic that it names is told so, and the group's topology is as it was."""

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
        asked_about: list[str] = []

        async def epoch() -> int:
            (group,) = (await client.send(StreamsGroupDescribeRequest(group_ids=("app",)), 1)).groups
            return int(group.topology.epoch)

        def asked(call: RequestContext, operation: object, what: object) -> bool:
            asked_about.append(getattr(what, "name", ""))
            return getattr(what, "name", "") != "app-pairs-changelog"

        refused = bind(streams_group_heartbeat.handle, client.broker.services)(
            after, RequestContext(1), authorize=asked
        )
        assert refused.error_code == Errors.TOPIC_AUTHORIZATION_FAILED
        assert NEXT_TOPICS & set(asked_about)
        assert await epoch() == 0
        assert (await client.send(after, 1)).error_code == Errors.NONE
        assert await epoch() == 1

    run_with_broker(tmp_path, scenario, KIP)
