"""`Cluster`: finding leaders and coordinators, also after they moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import HANG_UP, ScriptedBroker

from konvene.client.admin.admin import Admin
from konvene.client.errors import CannotConnect, KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.errors import Errors
from konvene.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from konvene.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from konvene.messages.heartbeat import HeartbeatResponse
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)


def with_cluster(broker: ScriptedBroker, job: Callable[[Cluster], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Cluster(broker.address, QUICK) as cluster:
            return await job(cluster)

    return asyncio.run(run())


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=(DeletableGroupResult(group_id="g", error_code=code),))


def test_moved_coordinator_is_looked_up_again() -> None:
    moved = [deleted(Errors.NOT_COORDINATOR), deleted(Errors.COORDINATOR_NOT_AVAILABLE), deleted(0)]
    with ScriptedBroker(DeleteGroups=moved) as broker:
        with_cluster(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"] * 3


def test_loading_coordinator_is_retried_without_lookup() -> None:
    loading = [deleted(Errors.COORDINATOR_LOAD_IN_PROGRESS), deleted(0)]
    with ScriptedBroker(DeleteGroups=loading) as broker:
        with_cluster(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups", "DeleteGroups"]


def test_missing_coordinator_is_looked_up_repeatedly() -> None:
    def absent(request: Any) -> FindCoordinatorResponse:
        row = Coordinator(key=request.coordinator_keys[0], node_id=-1, port=-1, error_code=15)
        return FindCoordinatorResponse(coordinators=(row,))

    def found(request: Any) -> FindCoordinatorResponse:
        row = Coordinator(key=request.coordinator_keys[0], node_id=1, host="127.0.0.1", port=broker.port)
        return FindCoordinatorResponse(coordinators=(row,))

    with ScriptedBroker(FindCoordinator=[absent, absent, found], DeleteGroups=deleted(0)) as broker:
        with_cluster(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "FindCoordinator", "FindCoordinator", "DeleteGroups"]


def test_fatal_error_is_raised_at_once() -> None:
    with (
        ScriptedBroker(DeleteGroups=deleted(Errors.NON_EMPTY_GROUP)) as broker,
        pytest.raises(KafkaError, match="group g: NON_EMPTY_GROUP"),
    ):
        with_cluster(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"]


def test_closed_connection_is_reopened() -> None:
    with ScriptedBroker(DeleteGroups=[HANG_UP, deleted(0)]) as broker:
        with_cluster(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"] * 2


def test_moved_leader_is_looked_up_again() -> None:
    def offsets(code: int, offset: int) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(error_code=code, offset=offset)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))

    tp = TopicPartition("t", 0)
    answers = [offsets(Errors.NOT_LEADER_OR_FOLLOWER, -1), offsets(0, 7)]
    with ScriptedBroker(ListOffsets=answers) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=1)]
        found = with_cluster(broker, lambda c: Admin(c).list_offsets({tp: -1}))
    assert found[tp].offset == 7
    assert broker.apis == ["Metadata", "ListOffsets", "Metadata", "ListOffsets"]


def test_unknown_partition_refreshes_metadata_once() -> None:
    """Metadata is refreshed once, since the partition may have been added."""

    async def job(cluster: Cluster) -> tuple[int, int]:
        return await cluster.leader("t", 0), await cluster.leader("t", 2)

    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=3)]
        assert with_cluster(broker, job) == (1, 1)
    assert broker.apis == ["Metadata", "Metadata"]
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=2)]
        with pytest.raises(KafkaError, match="has 2 partitions, none is number 2"):
            with_cluster(broker, job)


def test_unknown_topic_fails_at_once_and_leaderless_one_after_the_timeout() -> None:
    async def leaderless(cluster: Cluster) -> None:
        await cluster.topic("t", timeout_ms=20)

    with ScriptedBroker() as broker:
        with pytest.raises(KafkaError, match="there is no topic t"):
            with_cluster(broker, lambda c: c.topic("t"))
        assert broker.apis == ["Metadata"]
        broker.answers["Metadata"] = [broker.metadata(t=1, error=Errors.LEADER_NOT_AVAILABLE)]
        with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
            with_cluster(broker, leaderless)


def test_all_bootstrap_servers_are_tried_and_failures_listed() -> None:
    with ScriptedBroker() as closed:
        unreachable = closed.address

    async def reach(servers: str) -> str:
        async with Cluster(servers, QUICK) as cluster:
            return (await cluster.refresh()).cluster_id or ""

    with ScriptedBroker() as broker:
        assert asyncio.run(reach(f"{unreachable},{broker.address}")) == "c"
    with pytest.raises(
        CannotConnect, match=f"cannot connect to {unreachable}: connection refused; cannot connect"
    ):
        asyncio.run(reach(f"{unreachable},localhost:1"))


def test_separate_lane_does_not_block_other_requests() -> None:
    async def job(cluster: Cluster) -> None:
        from konvene.messages.heartbeat import HeartbeatRequest

        connection = await cluster.coordinator("g", lane="slow")
        silent = connection.post(HeartbeatRequest(group_id="g"))
        await Admin(cluster).delete_groups(["g"])
        assert not silent.done()
        cluster.release("slow")
        with pytest.raises(Exception, match="closed by this side"):
            await silent

    with ScriptedBroker(Heartbeat=[None, HeartbeatResponse()], DeleteGroups=deleted(0)) as broker:
        with_cluster(broker, job)


def test_public_names_can_be_imported_from_the_package() -> None:
    import konvene.client as client

    assert sorted(client._FILES) == sorted(client.__all__)
    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        client.Nothing  # noqa: B018
