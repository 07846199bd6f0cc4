"""The share state APIs and FindCoordinator for share partitions, over a connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.broker.handlers.find_coordinator import is_share_key
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from konvene.messages.find_coordinator import FindCoordinatorRequest

SHARE = 2
QUICK = {"share.coordinator.state.topic.num.partitions": "2"}
FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."
FENCED_STATE = "The coordinator rejected the request because the state epoch did not match."
NO_TOPIC = "This server does not host this topic-partition."

APIS = {
    "Initialize": initialize_share_group_state,
    "Read": read_share_group_state,
    "Write": write_share_group_state,
    "Delete": delete_share_group_state,
    "ReadSummary": read_share_group_state_summary,
}
TOPICS = {
    "Initialize": initialize_share_group_state.InitializeStateData,
    "Read": read_share_group_state.ReadStateData,
    "Write": write_share_group_state.WriteStateData,
    "Delete": delete_share_group_state.DeleteStateData,
    "ReadSummary": read_share_group_state_summary.ReadStateSummaryData,
}
REQUESTS: dict[str, type[Struct]] = {
    "Initialize": initialize_share_group_state.InitializeShareGroupStateRequest,
    "Read": read_share_group_state.ReadShareGroupStateRequest,
    "Write": write_share_group_state.WriteShareGroupStateRequest,
    "Delete": delete_share_group_state.DeleteShareGroupStateRequest,
    "ReadSummary": read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
}


class Client:
    """Sends share state requests for one share partition."""

    def __init__(self, broker_client: BrokerClient, topic_id: Uuid) -> None:
        self.broker_client = broker_client
        self.topic_id = topic_id

    async def find(self, *keys: str, version: int = 6) -> list[int]:
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys)
        answer = await self.broker_client.send(request, version)
        return [found.error_code for found in answer.coordinators]

    async def send(self, api: str, group: str = "g", topic_id: Uuid | None = None, **fields: Any) -> Any:
        """Return the result of the partition."""
        answer = await self.broker_client.send(self.request(api, group, topic_id, **fields))
        ((result,),) = (topic.partitions for topic in answer.results)
        return result

    def request(self, api: str, group: str = "g", topic_id: Uuid | None = None, **fields: Any) -> Struct:
        partition = APIS[api].PartitionData(**{"partition": 0} | fields)
        topic = TOPICS[api](topic_id=topic_id or self.topic_id, partitions=(partition,))
        return REQUESTS[api](group_id=group, topics=(topic,))


def run_scenario(tmp_path: Path, scenario: Any) -> None:
    async def run(broker_client: BrokerClient) -> None:
        await scenario(Client(broker_client, await broker_client.topic("orders", 2)))

    run_with_broker(tmp_path, run, QUICK)


def error_of(result: Any) -> tuple[int, str | None]:
    return result.error_code, result.error_message


def test_find_coordinator_creates_the_share_state_topic(tmp_path: Path) -> None:
    """Bug 87 (KAFKA-19033): FindCoordinator for a share partition never found a coordinator."""

    async def scenario(client: Client) -> None:
        topics = client.broker_client.broker.catalogue.topics
        assert await client.find("not one", version=6) == [Errors.INVALID_REQUEST]
        assert client.broker_client.broker.catalogue.topics is topics
        key = f"g:{client.topic_id}:0"
        assert await client.find(key, "g:x:0") == [0, Errors.INVALID_REQUEST]
        assert client.broker_client.broker.catalogue.topics.by_name["__share_group_state"].partitions == 2
        assert await client.find(key, version=5) == [Errors.INVALID_REQUEST]

    run_scenario(tmp_path, scenario)


ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        (f"g:{ID}:0", True),
        (f"a:b:c:{ID}:7", True),
        (f"g:{ID}:-1", True),
        (f"g:{ID}:+1", True),
        (f"g:{ID}:0::", True),
        (f"{ID}:0", False),
        (f":{ID}:0", False),
        (f" \t:{ID}:0", False),
        (f"g:{ID[1:]}:0", False),
        (f"g:{ID}AA:0", False),
        (f"g:{ID}:x", False),
        (f"g:{ID}:", False),
        (f"g:{ID}: 1", False),
        (f"g:{ID}:1_0", False),
        (f"g:{ID}:2147483648", False),
        (f"g:{ID}:-2147483648", True),
        (f"g:{ID}==:0", True),
        (f"g:{ID}=:0", False),
        (f"g:{ID[:-1]}_:0", True),
        (f"g:{ID[:-1]}/:0", False),
        (f"g:{ID}:\u0661", True),
        (f"\0:{ID}:1", False),
        (f"\xa0:{ID}:1", True),
        (f"g:{ID}:" + "9" * 5000, False),
        (f"g:{ID}:-" + "0" * 5000 + "1", True),
        (f"g:{ID}:-0", True),
        ("", False),
        (":::", False),
    ],
)
def test_share_partition_keys_are_validated(key: str, is_one: bool) -> None:
    """Expected results were recorded from Apache Kafka 4.4.0."""
    assert is_share_key(key) is is_one


def test_share_partition_is_initialized_written_read_and_deleted(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        assert error_of(await client.send("Initialize", state_epoch=3, start_offset=-1)) == (0, None)
        batch = write_share_group_state.StateBatch(
            first_offset=5, last_offset=9, delivery_state=0, delivery_count=1
        )
        wrote = await client.send(
            "Write",
            state_epoch=3,
            leader_epoch=0,
            start_offset=5,
            delivery_complete_count=2,
            state_batches=(batch,),
        )
        assert error_of(wrote) == (0, None)
        read = await client.send("Read", leader_epoch=4)
        assert (read.state_epoch, read.start_offset) == (3, 5)
        assert [
            (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read.state_batches
        ] == [(5, 9, 0, 1)]
        summary = await client.send("ReadSummary", leader_epoch=4)
        assert (summary.state_epoch, summary.leader_epoch) == (3, 4)
        assert (summary.start_offset, summary.delivery_complete_count) == (5, 2)
        assert error_of(await client.send("Delete")) == (0, None)
        summary = await client.send("ReadSummary", leader_epoch=4)
        assert (summary.state_epoch, summary.leader_epoch) == (0, 0)
        assert (summary.start_offset, summary.delivery_complete_count) == (-1, -1)

    run_scenario(tmp_path, scenario)


def test_errors_have_kafkas_messages(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        invalid = Errors.INVALID_REQUEST
        uninitialized = "operation on uninitialized share partition not allowed."
        cases: list[tuple[str, dict[str, Any], int, str]] = [
            ("Initialize", {"partition": -1}, invalid, "The partition id cannot be a negative number."),
            ("Initialize", {"state_epoch": -1}, invalid, "The state epoch cannot be a negative number."),
            ("Initialize", {"topic_id": Uuid(b"x" * 16)}, Errors.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC),
            ("Initialize", {"topic_id": ZERO_UUID}, Errors.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC),
            ("Initialize", {"partition": 2}, Errors.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC),
            ("Read", {"partition": -1}, invalid, "The partition id cannot be a negative number."),
            ("Read", {"leader_epoch": -1}, invalid, "The leader epoch cannot be a negative number."),
            ("Read", {}, invalid, f"Read {uninitialized}"),
            ("Read", {"topic_id": Uuid(b"x" * 16)}, invalid, f"Read {uninitialized}"),
            ("Write", {"partition": -1}, invalid, "The partition id cannot be a negative number."),
            ("Write", {"leader_epoch": -1}, invalid, "The leader epoch cannot be a negative number."),
            ("Write", {"state_epoch": -1}, invalid, "The state epoch cannot be a negative number."),
            ("Write", {}, invalid, f"Write {uninitialized}"),
            ("ReadSummary", {"partition": -1}, invalid, "The partition id cannot be a negative number."),
            ("ReadSummary", {"partition": 2}, Errors.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC),
            ("Delete", {"partition": -1}, invalid, "The partition id cannot be a negative number."),
            ("Delete", {"partition": 2}, Errors.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC),
        ]
        for api, fields, error, message in cases:
            assert error_of(await client.send(api, **fields)) == (error, message), (api, fields)
        await client.send("Initialize", state_epoch=5, start_offset=0)
        await client.send("Read", leader_epoch=5)
        old_leader = Errors.FENCED_LEADER_EPOCH, FENCED_LEADER
        assert error_of(await client.send("Read", leader_epoch=4)) == old_leader
        assert error_of(await client.send("Write", leader_epoch=4, state_epoch=4)) == old_leader
        old_state = Errors.FENCED_STATE_EPOCH, FENCED_STATE
        assert error_of(await client.send("Write", leader_epoch=5, state_epoch=4)) == old_state
        assert error_of(await client.send("Initialize", state_epoch=4)) == old_state

    run_scenario(tmp_path, scenario)


def test_empty_request_has_an_empty_response(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        for api, request in REQUESTS.items():
            assert (await client.broker_client.send(request(group_id="g"))).results == ()
            assert (await client.broker_client.send(client.request(api, group=""))).results == ()
            empty = TOPICS[api](topic_id=client.topic_id)
            one = client.request(api).topics[0]  # type: ignore[attr-defined]
            answer = await client.broker_client.send(request(group_id="g", topics=(one, empty)))
            assert len(answer.results) == (1 if api == "Initialize" else 0)

    run_scenario(tmp_path, scenario)


def test_without_the_share_state_topic_requests_are_rejected(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        message = "Unable to {} share group state: This is not the correct coordinator."
        for api, verb in (
            ("Initialize", "initialize"),
            ("Read", "read"),
            ("Write", "write"),
            ("Delete", "delete"),
        ):
            assert error_of(await client.send(api)) == (Errors.NOT_COORDINATOR, message.format(verb))
        summary = error_of(await client.send("ReadSummary"))
        assert summary == (Errors.NOT_COORDINATOR, message.format("read").replace("state:", "state summary:"))

    run_scenario(tmp_path, scenario)


def test_repeated_partitions_of_a_large_request_have_one_result(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        one = initialize_share_group_state.PartitionData(partition=0, state_epoch=1)
        other = initialize_share_group_state.PartitionData(partition=1, state_epoch=1)
        topic = TOPICS["Initialize"](topic_id=client.topic_id, partitions=(other, one) * 300)
        unknown = TOPICS["Initialize"](topic_id=Uuid(b"x" * 16), partitions=(one,))
        answer = await client.broker_client.send(
            REQUESTS["Initialize"](group_id="g", topics=(topic, unknown))
        )
        assert [
            (result.topic_id, [(p.partition, p.error_code) for p in result.partitions])
            for result in answer.results
        ] == [
            (client.topic_id, [(1, 0), (0, 0)]),
            (Uuid(b"x" * 16), [(0, Errors.UNKNOWN_TOPIC_OR_PARTITION)]),
        ]

    run_scenario(tmp_path, scenario)
