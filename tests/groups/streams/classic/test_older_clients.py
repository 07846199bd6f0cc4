"""What Kafka Streams of all releases can take when its group becomes a streams group."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from tests.groups.consumer.room import Room
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.topology.topologies import sent, sub

from konvene.errors import Errors
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.streams.classic.user_data import AssignmentInfo, write_assignment_info
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.sync_group import SyncGroupRequestAssignment

CHANGES_HERE = Errors.REBALANCE_IN_PROGRESS
LOADS = Errors.COORDINATOR_LOAD_IN_PROGRESS


def joins(room: Room, thread: Thread) -> int:
    """Ask to join, twice where the first answer is but an id; the number of the last question."""
    while True:
        answer = room.ask(thread.join_request(), 7, thread.name)
        if answer is None or not thread.joined(answer):
            return room.asked


def gives_itself_all(thread: Thread) -> SyncGroupRequestAssignment:
    """What a leader says that is alone."""
    partitions = tuple(("orders", number) for number in range(6))
    active = tuple((("0", number), ("orders", number)) for number in range(6))
    info = write_assignment_info(AssignmentInfo(thread.version, thread.version, active))
    numbers = tuple(number for _, number in partitions)
    return SyncGroupRequestAssignment(
        member_id=thread.member_id, assignment=write_assignment([("orders", numbers)], b"\0\1", info)
    )


def stable_one_and_another_that_waits(version: int) -> tuple[Room, Thread, Thread, int]:
    """ann is all of a generation, and bob waits for the next one."""
    room = Room(
        konvene_streams_mode="kip",
        group_streams_initial_rebalance_delay_ms="0",
        group_streams_assignment_interval_ms="0",
    )
    ann, bob = Thread("ann", version), Thread("bob", version)
    asked = joins(room, ann)
    room.advance(10)
    ann.joined(room.replies[asked])
    mine = gives_itself_all(ann)
    assert not ann.synced(room.ask(ann.sync_request().replace(assignments=(mine,)), 5, "ann"))
    assert len(ann.active) == 6
    waits = joins(room, bob)
    assert waits not in room.replies
    return room, ann, bob, waits


def beat(room: Room) -> Any:
    """A member of the streams protocol joins, or says again that it has nothing yet."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="c" * 22,
        member_epoch=0,
        topology=sent(sub("0", "orders")),
        process_id=str(uuid5(NAMESPACE_DNS, "cid")),
        rebalance_timeout_ms=60_000,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
    )
    return room.ask(request, 1, "cid")


@pytest.mark.parametrize(
    ("version", "error"), [*((v, LOADS) for v in range(1, 9)), *((v, CHANGES_HERE) for v in (9, 10, 11))]
)
def test_who_waits_for_a_join_is_told_what_makes_its_client_come_back(version: int, error: Errors) -> None:
    """Before 2.8, a version below 9, clients end at REBALANCE_IN_PROGRESS. Each keeps its id."""
    room, _, bob, waits = stable_one_and_another_that_waits(version)
    assert not beat(room).error_code
    assert isinstance(room.group, StreamsGroup)
    answer = room.replies[waits]
    assert (Errors(answer.error_code), answer.member_id) == (error, bob.member_id)


@pytest.mark.parametrize("version", range(1, 12))
def test_all_versions_come_back_and_share_the_tasks(version: int) -> None:
    """Each is answered in its own version."""
    room, ann, bob, waits = stable_one_and_another_that_waits(version)
    beat(room)
    bob.joined(room.replies[waits])
    for _ in range(4):
        for thread in (ann, bob):
            assert joins(room, thread) in room.replies
            assert not thread.synced(room.ask(thread.sync_request(), 5, thread.name))
        beat(room)
    for thread in (ann, bob):
        assert thread.has is not None and thread.has.version == version
        assert len(thread.active) == 2
    assert not set(ann.active) & set(bob.active)
