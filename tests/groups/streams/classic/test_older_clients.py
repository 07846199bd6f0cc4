"""Clients of all Kafka Streams releases in a group that is upgraded to a streams group."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from tests.groups.consumer.harness import GroupHarness
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


def join(harness: GroupHarness, thread: Thread) -> int:
    """Join, twice if the first response only assigns the member id; return the last request's id."""
    while True:
        response = harness.ask(thread.join_request(), 7, thread.name)
        if response is None or not thread.joined(response):
            return harness.request_id


def assignment_of_all_tasks(thread: Thread) -> SyncGroupRequestAssignment:
    """Return the assignment of a leader that is alone in its group."""
    partitions = tuple(("orders", number) for number in range(6))
    active = tuple((("0", number), ("orders", number)) for number in range(6))
    info = write_assignment_info(AssignmentInfo(thread.version, thread.version, active))
    numbers = tuple(number for _, number in partitions)
    return SyncGroupRequestAssignment(
        member_id=thread.member_id, assignment=write_assignment([("orders", numbers)], b"\0\1", info)
    )


def stable_member_and_waiting_join(version: int) -> tuple[GroupHarness, Thread, Thread, int]:
    """ann is the only member of a generation, and bob's join waits for the next one."""
    harness = GroupHarness(
        konvene_streams_mode="kip",
        group_streams_initial_rebalance_delay_ms="0",
        group_streams_assignment_interval_ms="0",
    )
    ann, bob = Thread("ann", version), Thread("bob", version)
    request_id = join(harness, ann)
    harness.advance(10)
    ann.joined(harness.replies[request_id])
    mine = assignment_of_all_tasks(ann)
    assert not ann.synced(harness.ask(ann.sync_request().replace(assignments=(mine,)), 5, "ann"))
    assert len(ann.active) == 6
    waiting_join = join(harness, bob)
    assert waiting_join not in harness.replies
    return harness, ann, bob, waiting_join


def beat(harness: GroupHarness) -> Any:
    """Send the first heartbeat of a streams member, which has no tasks yet."""
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
    return harness.ask(request, 1, "cid")


@pytest.mark.parametrize(
    ("version", "error"), [*((v, LOADS) for v in range(1, 9)), *((v, CHANGES_HERE) for v in (9, 10, 11))]
)
def test_a_waiting_join_is_answered_with_an_error_that_the_client_retries(
    version: int, error: Errors
) -> None:
    """Before 2.8, with a version below 9, clients fail at REBALANCE_IN_PROGRESS. Each keeps its member id."""
    harness, _, bob, waiting_join = stable_member_and_waiting_join(version)
    assert not beat(harness).error_code
    assert isinstance(harness.group, StreamsGroup)
    response = harness.replies[waiting_join]
    assert (Errors(response.error_code), response.member_id) == (error, bob.member_id)


@pytest.mark.parametrize("version", range(1, 12))
def test_clients_of_all_versions_rejoin_and_share_the_tasks(version: int) -> None:
    """Each is answered in its own version."""
    harness, ann, bob, waiting_join = stable_member_and_waiting_join(version)
    beat(harness)
    bob.joined(harness.replies[waiting_join])
    for _ in range(4):
        for thread in (ann, bob):
            assert join(harness, thread) in harness.replies
            assert not thread.synced(harness.ask(thread.sync_request(), 5, thread.name))
        beat(harness)
    for thread in (ann, bob):
        assert thread.has is not None and thread.has.version == version
        assert len(thread.active) == 2
    assert not set(ann.active) & set(bob.active)
