"""What a cluster promises: leaders and coordinators are found, and asked for again when they moved."""

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


def ask(broker: ScriptedBroker, job: Callable[[Cluster], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with Cluster(broker.address, QUICK) as cluster:
            return await job(cluster)

    return asyncio.run(whole())


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=(DeletableGroupResult(group_id="g", error_code=code),))


def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    moved = [deleted(Errors.NOT_COORDINATOR), deleted(Errors.COORDINATOR_NOT_AVAILABLE), deleted(0)]
    with ScriptedBroker(DeleteGroups=moved) as broker:
        ask(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"] * 3


def test_a_coordinator_that_still_loads_is_asked_again_without_looking_for_it() -> None:
    loading = [deleted(Errors.COORDINATOR_LOAD_IN_PROGRESS), deleted(0)]
    with ScriptedBroker(DeleteGroups=loading) as broker:
        ask(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups", "DeleteGroups"]


def test_a_coordinator_that_does_not_exist_yet_is_waited_for() -> None:
    def absent(request: Any) -> FindCoordinatorResponse:
        row = Coordinator(key=request.coordinator_keys[0], node_id=-1, port=-1, error_code=15)
        return FindCoordinatorResponse(coordinators=(row,))

    def found(request: Any) -> FindCoordinatorResponse:
        row = Coordinator(key=request.coordinator_keys[0], node_id=1, host="127.0.0.1", port=broker.port)
        return FindCoordinatorResponse(coordinators=(row,))

    with ScriptedBroker(FindCoordinator=[absent, absent, found], DeleteGroups=deleted(0)) as broker:
        ask(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "FindCoordinator", "FindCoordinator", "DeleteGroups"]


def test_a_final_error_is_the_callers_at_once() -> None:
    with (
        ScriptedBroker(DeleteGroups=deleted(Errors.NON_EMPTY_GROUP)) as broker,
        pytest.raises(KafkaError, match="group g: NON_EMPTY_GROUP"),
    ):
        ask(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"]


def test_a_connection_that_ends_is_made_again() -> None:
    with ScriptedBroker(DeleteGroups=[HANG_UP, deleted(0)]) as broker:
        ask(broker, lambda c: Admin(c).delete_groups(["g"]))
    assert broker.apis == ["FindCoordinator", "DeleteGroups"] * 2


def test_a_leader_that_moved_is_asked_for_again() -> None:
    def offsets(code: int, offset: int) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(error_code=code, offset=offset)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(row,)),))

    tp = TopicPartition("t", 0)
    answers = [offsets(Errors.NOT_LEADER_OR_FOLLOWER, -1), offsets(0, 7)]
    with ScriptedBroker(ListOffsets=answers) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=1)]
        found = ask(broker, lambda c: Admin(c).list_offsets({tp: -1}))
    assert found[tp].offset == 7
    assert broker.apis == ["Metadata", "ListOffsets", "Metadata", "ListOffsets"]


def test_a_partition_that_is_not_known_is_asked_for_once_more() -> None:
    """It may have been added since: a member is given what its leader has seen."""

    async def job(cluster: Cluster) -> tuple[int, int]:
        return await cluster.leader("t", 0), await cluster.leader("t", 2)

    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=3)]
        assert ask(broker, job) == (1, 1)
    assert broker.apis == ["Metadata", "Metadata"]
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=2)]
        with pytest.raises(KafkaError, match="has 2 partitions, none is number 2"):
            ask(broker, job)


def test_a_topic_that_does_not_exist_is_told_at_once_and_one_without_leader_after_the_time() -> None:
    async def leaderless(cluster: Cluster) -> None:
        await cluster.topic("t", timeout_ms=20)

    with ScriptedBroker() as broker:
        with pytest.raises(KafkaError, match="there is no topic t"):
            ask(broker, lambda c: c.topic("t"))
        assert broker.apis == ["Metadata"]
        broker.answers["Metadata"] = [broker.metadata(t=1, error=Errors.LEADER_NOT_AVAILABLE)]
        with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
            ask(broker, leaderless)


def test_every_bootstrap_server_is_tried_and_every_failure_told() -> None:
    with ScriptedBroker() as gone:
        dead = gone.address

    async def reach(servers: str) -> str:
        async with Cluster(servers, QUICK) as cluster:
            return (await cluster.refresh()).cluster_id or ""

    with ScriptedBroker() as broker:
        assert asyncio.run(reach(f"{dead},{broker.address}")) == "c"
    with pytest.raises(CannotConnect, match=f"cannot connect to {dead}: connection refused; cannot connect"):
        asyncio.run(reach(f"{dead},localhost:1"))


def test_requests_in_a_lane_of_their_own_hold_nobody_up() -> None:
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
        ask(broker, job)


def test_the_librarys_names_can_be_imported_from_its_top() -> None:
    import konvene.client as client

    assert sorted(client._FILES) == sorted(client.__all__)
    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        client.Nothing  # noqa: B018
