"""Share state as somebody tells it who means no good: what is answered is what Kafka answers, but where said.

Whoever may ask this may do anything with share groups; what he may not do is to harm the coordinator.
"""

from __future__ import annotations

import time
from itertools import count

import pytest
from tests.broker.hostile.wire import Target
from tests.share_state.beside_kafka import Request, on_the_wire, told

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
FINE = [0, None]
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1


class Asked:
    """A share partition that is nobody else's."""

    def __init__(self, target: Target, group: str = "") -> None:
        self.target = target
        name = f"hostile-share-{next(NAMES)}"
        self.key = SharePartitionKey(group or name, target.topic(name, 3), 0)
        asked = FindCoordinatorRequest(key_type=2, coordinator_keys=(f"g:{self.key.topic_id}:0",))
        for _ in range(100):
            if not target.ask(asked, 6).coordinators[0].error_code and self(ReadSummary(self.key, 0))[0] == 0:
                return
            time.sleep(0.1)
        raise AssertionError("no share coordinator")

    def __call__(self, request: Request) -> list[object]:
        version = 1 if isinstance(request, Write | ReadSummary) else 0
        return told(request, self.target.ask(on_the_wire(request), version))

    def write(self, *batches: tuple[int, int, int, int], start: int = 0, done: int = 0) -> list[object]:
        return self(Write(self.key, 0, 0, start, done, tuple(StateBatch(*batch) for batch in batches)))


@pytest.fixture
def asked(target: Target) -> Asked:
    asked = Asked(target)
    assert asked(Initialize(asked.key, 0, 0)) == FINE
    return asked


def test_offsets_before_all_others(asked: Asked) -> None:
    assert asked.write((-5, 3, 2, 1), (2, 2, 9, -1)) == FINE
    assert asked(Read(asked.key, 0)) == [*FINE, 0, 0, [[0, 3, 2, 1]]]
    assert asked(Initialize(asked.key, 1, -7)) == FINE
    assert asked(ReadSummary(asked.key, 0)) == [*FINE, 1, 0, -7, 0]
    assert asked(Write(asked.key, 1, 0, -9, -5, (StateBatch(-20, 3, 2, 1),))) == FINE
    assert asked(Read(asked.key, 0)) == [*FINE, 1, -7, [[-7, 3, 2, 1]]]
    assert asked(ReadSummary(asked.key, 0)) == [*FINE, 1, 0, -7, 0]


def test_the_largest_numbers_there_are(asked: Asked) -> None:
    """Kafka takes the first one as well, and no other write of that share partition after it."""
    assert asked.write((5, INT64, 127, 32_767), done=INT32) == FINE
    if asked.target.is_kafka:
        return
    assert asked.write((0, 8, 2, 2), done=-(1 << 31)) == FINE
    batches = [[0, 4, 2, 2], [5, INT64, 127, 32_767]]
    assert asked(Read(asked.key, INT32)) == [*FINE, 0, 0, batches]
    assert asked(Read(asked.key, INT32 - 1))[0] == Errors.FENCED_LEADER_EPOCH
    assert asked(Initialize(asked.key, INT32, INT64)) == FINE
    assert asked(Write(asked.key, INT32, INT32, -INT64, 0, (StateBatch(0, 1, 2, 1),))) == FINE
    assert asked(Read(asked.key, INT32)) == [*FINE, INT32, INT64, []]


def test_a_batch_that_ends_before_it_begins(asked: Asked) -> None:
    """Kafka takes it, and answers every later write of that share partition UNKNOWN_SERVER_ERROR."""
    answer = asked.write((10, 9, 2, 1))
    if asked.target.is_kafka:
        assert answer == FINE
        assert asked.write((0, 5, 2, 1))[0] == Errors.UNKNOWN_SERVER_ERROR
        return
    assert answer == [Errors.INVALID_REQUEST, "A state batch ends before it begins."]
    assert asked.write((0, 5, 2, 1)) == FINE


def test_more_than_a_batch_of_the_log_holds(asked: Asked) -> None:
    many = tuple((offset * 2, offset * 2, 2, 1) for offset in range(60_000))
    assert asked.write(*many)[0] == Errors.UNKNOWN_SERVER_ERROR
    assert asked.write((0, 5, 2, 1)) == FINE
    assert asked(Read(asked.key, 0)) == [*FINE, 0, 0, [[0, 5, 2, 1]]]


@pytest.mark.parametrize("name", [" :\0\U0001f600:\t", "g" * 32_767])
def test_a_group_with_any_name(target: Target, name: str) -> None:
    asked = Asked(target, group=name)
    assert asked(Initialize(asked.key, 7, 3)) == FINE
    assert asked(Read(asked.key, 1)) == [*FINE, 7, 3, []]
    assert asked(Delete(asked.key)) == FINE


def test_very_many_share_partitions_at_once(asked: Asked) -> None:
    """Others are served meanwhile: this one is asked on a connection of its own."""
    parts = tuple(PartitionData(partition=index, state_epoch=1) for index in range(20_000))
    topics = (InitializeStateData(topic_id=Uuid(b"there is no such"), partitions=parts),)
    request = InitializeShareGroupStateRequest(group_id="g", topics=topics)
    (topic,) = asked.target.ask(request, 0).results
    assert {part.error_code for part in topic.partitions} == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(topic.partitions) == 20_000
