"""The APIs of share state and FindCoordinator for it, over a connection: errors in Kafka's words."""

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
    """Asks about one share partition, or about what it is told to."""

    def __init__(self, broker_client: BrokerClient, topic_id: Uuid) -> None:
        self.broker_client = broker_client
        self.topic_id = topic_id

    async def find(self, *keys: str, version: int = 6) -> list[int]:
        asked = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys)
        answer = await self.broker_client.send(asked, version)
        return [found.error_code for found in answer.coordinators]

    async def send(self, api: str, group: str = "g", topic_id: Uuid | None = None, **said: Any) -> Any:
        """The result of the one partition."""
        answer = await self.broker_client.send(self.request(api, group, topic_id, **said))
        ((result,),) = (topic.partitions for topic in answer.results)
        return result

    def request(self, api: str, group: str = "g", topic_id: Uuid | None = None, **said: Any) -> Struct:
        partition = APIS[api].PartitionData(**{"partition": 0} | said)
        topic = TOPICS[api](topic_id=topic_id or self.topic_id, partitions=(partition,))
        return REQUESTS[api](group_id=group, topics=(topic,))


def story_of(tmp_path: Path, scenario: Any) -> None:
    async def begin(broker_client: BrokerClient) -> None:
        await scenario(Client(broker_client, await broker_client.topic("orders", 2)))

    run_with_broker(tmp_path, begin, QUICK)


def said(result: Any) -> tuple[int, str | None]:
    return result.error_code, result.error_message


def test_a_share_coordinator_is_found_and_its_topic_made(tmp_path: Path) -> None:
    """Bug 87 (KAFKA-19033): FindCoordinator for a share partition said for ever that there is none."""

    async def scenario(client: Client) -> None:
        topics = client.broker_client.broker.catalogue.topics
        assert await client.find("not one", version=6) == [Errors.INVALID_REQUEST]
        assert client.broker_client.broker.catalogue.topics is topics
        key = f"g:{client.topic_id}:0"
        assert await client.find(key, "g:x:0") == [0, Errors.INVALID_REQUEST]
        assert client.broker_client.broker.catalogue.topics.by_name["__share_group_state"].partitions == 2
        assert await client.find(key, version=5) == [Errors.INVALID_REQUEST]

    story_of(tmp_path, scenario)


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
def test_what_names_a_share_partition(key: str, is_one: bool) -> None:
    """As Apache Kafka 4.4.0 said of each when it was asked."""
    assert is_share_key(key) is is_one


def test_a_share_partition_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        assert said(await client.send("Initialize", state_epoch=3, start_offset=-1)) == (0, None)
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
        assert said(wrote) == (0, None)
        read = await client.send("Read", leader_epoch=4)
        assert (read.state_epoch, read.start_offset) == (3, 5)
        assert [
            (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read.state_batches
        ] == [(5, 9, 0, 1)]
        summary = await client.send("ReadSummary", leader_epoch=4)
        assert (summary.state_epoch, summary.leader_epoch) == (3, 4)
        assert (summary.start_offset, summary.delivery_complete_count) == (5, 2)
        assert said(await client.send("Delete")) == (0, None)
        summary = await client.send("ReadSummary", leader_epoch=4)
        assert (summary.state_epoch, summary.leader_epoch) == (0, 0)
        assert (summary.start_offset, summary.delivery_complete_count) == (-1, -1)

    story_of(tmp_path, scenario)


def test_what_is_refused_is_refused_in_kafkas_words(tmp_path: Path) -> None:
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
        for api, asked, error, message in cases:
            assert said(await client.send(api, **asked)) == (error, message), (api, asked)
        await client.send("Initialize", state_epoch=5, start_offset=0)
        await client.send("Read", leader_epoch=5)
        old_leader = Errors.FENCED_LEADER_EPOCH, FENCED_LEADER
        assert said(await client.send("Read", leader_epoch=4)) == old_leader
        assert said(await client.send("Write", leader_epoch=4, state_epoch=4)) == old_leader
        old_state = Errors.FENCED_STATE_EPOCH, FENCED_STATE
        assert said(await client.send("Write", leader_epoch=5, state_epoch=4)) == old_state
        assert said(await client.send("Initialize", state_epoch=4)) == old_state

    story_of(tmp_path, scenario)


def test_nothing_is_answered_with_nothing(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        await client.find(f"g:{client.topic_id}:0")
        for api, request in REQUESTS.items():
            assert (await client.broker_client.send(request(group_id="g"))).results == ()
            assert (await client.broker_client.send(client.request(api, group=""))).results == ()
            empty = TOPICS[api](topic_id=client.topic_id)
            one = client.request(api).topics[0]  # type: ignore[attr-defined]
            answer = await client.broker_client.send(request(group_id="g", topics=(one, empty)))
            assert len(answer.results) == (1 if api == "Initialize" else 0)

    story_of(tmp_path, scenario)


def test_without_a_topic_of_state_nobody_is_the_coordinator(tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        message = "Unable to {} share group state: This is not the correct coordinator."
        for api, verb in (
            ("Initialize", "initialize"),
            ("Read", "read"),
            ("Write", "write"),
            ("Delete", "delete"),
        ):
            assert said(await client.send(api)) == (Errors.NOT_COORDINATOR, message.format(verb))
        told = said(await client.send("ReadSummary"))
        assert told == (Errors.NOT_COORDINATOR, message.format("read").replace("state:", "state summary:"))

    story_of(tmp_path, scenario)


def test_many_are_asked_at_once_and_twice_is_once(tmp_path: Path) -> None:
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

    story_of(tmp_path, scenario)
