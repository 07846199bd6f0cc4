"""Streams groups over a connection: authorization, internal topics, and topology descriptions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.rights import AllExcept, Rights

from konvene.broker.groups.internal_topics import InternalTopics
from konvene.broker.handlers import streams_group_heartbeat
from konvene.broker.services import bind
from konvene.errors import Errors
from konvene.groups.streams.topology.configure import InternalTopic
from konvene.groups.streams.topology.internal_topics import TopicsToCreate
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from konvene.runtime.coordinator import RequestContext
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, ResourceType, topic

AT_ONCE = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
KEPT = {**AT_ONCE, "konvene.streams.topology.description.enable": "true"}


def join_request(*changelogs: str, replicas: int = 0) -> StreamsGroupHeartbeatRequest:
    """Return the first heartbeat of a member of group `g` that reads `orders`."""
    logs = tuple(TopicInfo(name=name, replication_factor=replicas) for name in changelogs)
    each = Subtopology(subtopology_id="0", source_topics=("orders",), state_changelog_topics=logs)
    return StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=60_000, process_id="p",
        topology=Topology(epoch=0, subtopologies=(each,)),
        active_tasks=(), standby_tasks=(), warmup_tasks=(),
    )  # fmt: skip


def heartbeat(epoch: int) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)


async def ready(client: BrokerClient) -> None:
    """Create the coordinators and a source topic."""
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    await client.topic("orders", 2)


# --- descriptions ----------------------------------------------------------------------------------

SOURCE = TopologyDescriptionNode(name="in", node_type=1, source_topics=("orders", "orders"))
SINK = TopologyDescriptionNode(name="out", node_type=3, sink_topic="done")


def topology_description(
    *nodes: TopologyDescriptionNode, epoch: int = 0, **others: Any
) -> StreamsGroupTopologyDescriptionUpdateRequest:
    each = TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)
    description = TopologyDescription(subtopologies=(each,), **others)
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="g", member_id="m", topology_epoch=epoch, topology_description=description
    )


async def described(client: BrokerClient) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=("g",), include_topology_description=True)
    (group,) = (await client.send(request, 1)).groups
    return group


def test_topology_description_is_requested_once_and_described(tmp_path: Path) -> None:
    """From a joining member, and from others only if that one does not send it; each name appears once."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        joined = await client.send(join_request(), 1)
        assert joined.topology_description_required
        assert (await described(client)).topology_description_status == 1
        assert not (await client.send(heartbeat(joined.member_epoch), 1)).topology_description_required
        assert (await client.send(topology_description(SOURCE, SINK))).error_code == Errors.NONE
        group = await described(client)
        assert group.topology_description_status == 3
        nodes = group.topology_description.subtopologies[0].nodes
        assert [(n.name, n.source_topics, n.sink_topic) for n in nodes] == [
            ("in", ("orders",), None),
            ("out", (), "done"),
        ]
        assert not (await client.send(join_request(), 1)).topology_description_required

    run_with_broker(tmp_path, scenario, KEPT)


def test_invalid_topology_description_is_rejected(tmp_path: Path) -> None:
    """Another epoch, an unknown member, unknown nodes; or descriptions are disabled."""
    store = TopologyDescriptionGlobalStore(source=SINK, processor=SINK)
    odd = TopologyDescriptionNode(name="x", node_type=9)

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        await client.send(join_request(), 1)
        for request, error in (
            (topology_description(SOURCE, epoch=1), Errors.INVALID_REQUEST),
            (topology_description(odd), Errors.INVALID_REQUEST),
            (topology_description(global_stores=(store,)), Errors.INVALID_REQUEST),
            (topology_description().replace(member_id="stranger"), Errors.UNKNOWN_MEMBER_ID),
            (topology_description().replace(group_id="none"), Errors.GROUP_ID_NOT_FOUND),
            (topology_description().replace(member_id=""), Errors.INVALID_REQUEST),
        ):
            assert (await client.send(request)).error_code == error
        assert (await described(client)).topology_description_status == 1

    run_with_broker(tmp_path / "kept", scenario, KEPT)

    async def refused(client: BrokerClient) -> None:
        await ready(client)
        assert (await client.send(topology_description())).error_code == Errors.UNSUPPORTED_VERSION

    run_with_broker(tmp_path / "not", refused)


# --- internal topics -------------------------------------------------------------------------------


def test_error_of_topic_creation_is_reported_to_the_member(tmp_path: Path) -> None:
    """The next heartbeat response has the reason, and the creation is not retried at once."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        joined = await client.send(join_request("g-store-changelog", replicas=3), 1)
        assert [s.status_code for s in joined.status] == [3]
        for _ in range(200):
            (status,) = (await client.send(heartbeat(joined.member_epoch), 1)).status
            if "Creation failed" in status.status_detail:
                break
            await asyncio.sleep(0.01)
        assert status.status_detail.startswith(
            "Internal topics are missing: g-store-changelog; Creation failed: "
        )
        assert "g-store-changelog" not in client.broker.catalogue.topics.by_name

    run_with_broker(tmp_path, scenario, AT_ONCE)


def test_internal_topic_is_created_once_and_with_permission(tmp_path: Path) -> None:
    """Concurrent creations are merged. Their client has to be permitted to create them all."""
    wanted = TopicsToCreate("g", (InternalTopic("g-a", 2, 0), InternalTopic("g-b", 1, 0)))

    async def scenario(client: BrokerClient) -> None:
        topics = InternalTopics(client.broker)
        assert await asyncio.gather(topics.create(wanted), topics.create(wanted)) == [None, None]
        assert client.broker.catalogue.topics.by_name["g-a"].partitions == 2
        assert await topics.create(wanted) is None

        ann = KafkaPrincipal("User", "ann")
        rights = Rights((Operation.CREATE, topic("h-a")), principal=ann, host="10.0.0.1")
        client.broker.authorization.replace(rights)
        one, two = InternalTopic("h-a", 1, 0), InternalTopic("h-b", 1, 0)
        assert await topics.create(TopicsToCreate("h", (one, two), ann, "/10.0.0.1")) is None
        assert await topics.create(TopicsToCreate("h", (one,))) is None
        assert "h-a" not in client.broker.catalogue.topics.by_name
        assert await topics.create(TopicsToCreate("h", (one,), ann, "/10.0.0.1")) is None
        assert "h-a" in client.broker.catalogue.topics.by_name

    run_with_broker(tmp_path, scenario)


# --- authorization ---------------------------------------------------------------------------------


def test_unauthorized_group_or_topic_is_rejected(tmp_path: Path) -> None:
    """Each topic is authorized. A topology with internal topics of the broker is rejected before."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)

        def refused(kind: ResourceType, request: StreamsGroupHeartbeatRequest) -> int:
            client.broker.authorization.replace(AllExcept(kind))
            answer = bind(streams_group_heartbeat.handle, client.broker.services)(request, RequestContext(1))
            client.broker.authorization.replace(None)
            return int(answer.error_code)

        assert refused(ResourceType.GROUP, join_request()) == Errors.GROUP_AUTHORIZATION_FAILED
        assert refused(ResourceType.TOPIC, join_request()) == Errors.TOPIC_AUTHORIZATION_FAILED
        own = join_request("__consumer_offsets")
        assert refused(ResourceType.TOPIC, own) == Errors.STREAMS_INVALID_TOPOLOGY
        assert (await client.send(join_request(), 1)).error_code == Errors.NONE

    run_with_broker(tmp_path, scenario, AT_ONCE)
