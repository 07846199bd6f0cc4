"""Hostile requests for share-group state: the responses are Kafka's, except where a test names a difference.

A client with access to these APIs may change any share group, but must not harm the share coordinator.
"""

from __future__ import annotations

import time
from itertools import count

import pytest
from tests.broker.hostile.wire import Target
from tests.share_state.beside_kafka import Request, on_the_wire, response_row

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from konvene.share_state.requests import (
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateBatch,
    Write,
)

NAMES = count()
SUCCESS = [0, None]
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1


class SharePartitionClient:
    """Sends requests for a new share partition that no other test uses."""

    def __init__(self, target: Target, group: str = "") -> None:
        self.target = target
        name = f"hostile-share-{next(NAMES)}"
        self.key = SharePartitionKey(group or name, target.topic(name, 3), 0)
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=(f"g:{self.key.topic_id}:0",))
        for _ in range(100):
            found = target.ask(request, 6).coordinators[0]
            if not found.error_code and self(ReadSummary(self.key, 0))[0] == 0:
                return
            time.sleep(0.1)
        raise AssertionError("no share coordinator")

    def __call__(self, request: Request) -> list[object]:
        version = 1 if isinstance(request, Write | ReadSummary) else 0
        return response_row(request, self.target.ask(on_the_wire(request), version))

    def write(self, *batches: tuple[int, int, int, int], start: int = 0, done: int = 0) -> list[object]:
        return self(Write(self.key, 0, 0, start, done, tuple(StateBatch(*batch) for batch in batches)))


@pytest.fixture
def share_partition(target: Target) -> SharePartitionClient:
    """Initialize the state of a new share partition."""
    share_partition = SharePartitionClient(target)
    assert share_partition(Initialize(share_partition.key, 0, 0)) == SUCCESS
    return share_partition


def test_offsets_below_the_start_offset(share_partition: SharePartitionClient) -> None:
    assert share_partition.write((-5, 3, 2, 1), (2, 2, 9, -1)) == SUCCESS
    assert share_partition(Read(share_partition.key, 0)) == [*SUCCESS, 0, 0, [[0, 3, 2, 1]]]
    assert share_partition(Initialize(share_partition.key, 1, -7)) == SUCCESS
    assert share_partition(ReadSummary(share_partition.key, 0)) == [*SUCCESS, 1, 0, -7, 0]
    assert share_partition(Write(share_partition.key, 1, 0, -9, -5, (StateBatch(-20, 3, 2, 1),))) == SUCCESS
    assert share_partition(Read(share_partition.key, 0)) == [*SUCCESS, 1, -7, [[-7, 3, 2, 1]]]
    assert share_partition(ReadSummary(share_partition.key, 0)) == [*SUCCESS, 1, 0, -7, 0]


def test_the_largest_values(share_partition: SharePartitionClient) -> None:
    """Kafka accepts the first write as well, but rejects every later write of the share partition."""
    assert share_partition.write((5, INT64, 127, 32_767), done=INT32) == SUCCESS
    if share_partition.target.is_kafka:
        return
    assert share_partition.write((0, 8, 2, 2), done=-(1 << 31)) == SUCCESS
    batches = [[0, 4, 2, 2], [5, INT64, 127, 32_767]]
    assert share_partition(Read(share_partition.key, INT32)) == [*SUCCESS, 0, 0, batches]
    assert share_partition(Read(share_partition.key, INT32 - 1))[0] == Errors.FENCED_LEADER_EPOCH
    assert share_partition(Initialize(share_partition.key, INT32, INT64)) == SUCCESS
    assert (
        share_partition(Write(share_partition.key, INT32, INT32, -INT64, 0, (StateBatch(0, 1, 2, 1),)))
        == SUCCESS
    )
    assert share_partition(Read(share_partition.key, INT32)) == [*SUCCESS, INT32, INT64, []]


def test_a_batch_that_ends_before_it_begins(share_partition: SharePartitionClient) -> None:
    """Kafka accepts it, and answers every later write of the share partition UNKNOWN_SERVER_ERROR."""
    answer = share_partition.write((10, 9, 2, 1))
    if share_partition.target.is_kafka:
        assert answer == SUCCESS
        assert share_partition.write((0, 5, 2, 1))[0] == Errors.UNKNOWN_SERVER_ERROR
        return
    assert answer == [Errors.INVALID_REQUEST, "A state batch ends before it begins."]
    assert share_partition.write((0, 5, 2, 1)) == SUCCESS


def test_more_state_batches_than_fit_into_a_record(share_partition: SharePartitionClient) -> None:
    many = tuple((offset * 2, offset * 2, 2, 1) for offset in range(60_000))
    assert share_partition.write(*many)[0] == Errors.UNKNOWN_SERVER_ERROR
    assert share_partition.write((0, 5, 2, 1)) == SUCCESS
    assert share_partition(Read(share_partition.key, 0)) == [*SUCCESS, 0, 0, [[0, 5, 2, 1]]]


@pytest.mark.parametrize("name", [" :\0\U0001f600:\t", "g" * 32_767])
def test_unusual_group_ids(target: Target, name: str) -> None:
    share_partition = SharePartitionClient(target, group=name)
    assert share_partition(Initialize(share_partition.key, 7, 3)) == SUCCESS
    assert share_partition(Read(share_partition.key, 1)) == [*SUCCESS, 7, 3, []]
    assert share_partition(Delete(share_partition.key)) == SUCCESS


def test_very_many_share_partitions_at_once(share_partition: SharePartitionClient) -> None:
    """One request names 20,000 partitions of an unknown topic; each receives its error."""
    parts = tuple(PartitionData(partition=index, state_epoch=1) for index in range(20_000))
    topics = (InitializeStateData(topic_id=Uuid(b"there is no such"), partitions=parts),)
    request = InitializeShareGroupStateRequest(group_id="g", topics=topics)
    (topic,) = share_partition.target.ask(request, 0).results
    assert {part.error_code for part in topic.partitions} == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(topic.partitions) == 20_000
