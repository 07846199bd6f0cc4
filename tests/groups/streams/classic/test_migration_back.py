"""When the last streams member leaves, the group becomes a classic one, and its tasks keep running."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.consumer.harness import GroupHarness
from tests.groups.streams.classic.test_migration_refused import streams_group
from tests.groups.streams.classic.threads import Thread

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds

CID = "c" * 22


def cid_heartbeats(harness: GroupHarness, epoch: int, **more: Any) -> Any:
    response = harness.ask(
        StreamsGroupHeartbeatRequest(group_id="g", member_id=CID, member_epoch=epoch, **more), 1, "cid"
    )
    assert not response.error_code, response
    return response


def follow(harness: GroupHarness, thread: Thread) -> None:
    """Heartbeat, and join and sync if the response requests it."""
    if thread.generation < 0 or error_of(harness, thread.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS:
        while thread.joined(harness.ask(thread.join_request(), 7, thread.name)):
            pass
        thread.synced(harness.ask(thread.sync_request(), 5, thread.name))


def error_of(harness: GroupHarness, request: Any, version: int) -> Errors:
    response = harness.ask(request, version, "ann")
    return response if isinstance(response, Errors) else Errors(response.error_code)


def commit_error(harness: GroupHarness, thread: Thread, generation: int) -> Errors:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=thread.member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
    )
    response = harness.ask(request, 7, thread.name)
    if isinstance(response, Errors):
        return response
    return Errors(response.topics[0].partitions[0].error_code)


def mixed() -> tuple[GroupHarness, Thread]:
    """Return a group in which cid and ann have three tasks each."""
    harness, ann = streams_group(), Thread("ann")
    follow(harness, ann)
    for _ in range(4):
        epoch = harness.group.members[CID].current.epoch
        active = harness.group.members[CID].current.assigned.tasks.active
        ids = tuple(TaskIds(subtopology_id=name, partitions=some) for name, some in active.items())
        cid_heartbeats(harness, epoch, active_tasks=ids, standby_tasks=(), warmup_tasks=())
        follow(harness, ann)
    assert len(ann.active) == 3
    return harness, ann


def test_the_downgrade_leaves_only_the_classic_groups_record() -> None:
    harness, ann = mixed()
    epoch = harness.group.epoch
    cid_heartbeats(harness, -1)
    group = harness.group
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state, list(group.members)) == (
        epoch, State.PREPARING_REBALANCE, [ann.member_id],
    )  # fmt: skip
    written = {
        type(record.key).__name__ for batch in harness.batches for record in batch.records if record.value
    }
    harness.restart(compact=True)
    kept = {
        type(record.key).__name__ for batch in harness.batches for record in batch.records if record.value
    }
    assert kept == {"GroupMetadataKey"} < written


@pytest.mark.parametrize("restarts", [False, True])
def test_the_remaining_member_has_to_rejoin(*, restarts: bool) -> None:
    """Also after a restart: the departed member is in no record, and no heartbeat would request its tasks."""
    harness, ann = mixed()
    cid_heartbeats(harness, -1)
    if restarts:
        harness.restart()
    assert error_of(harness, ann.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("restarts", [False, True])
def test_a_member_behind_continues_until_the_end_of_the_rebalance(*, restarts: bool) -> None:
    """Its generation is a past epoch of the group. It has to rejoin, and may commit meanwhile: otherwise its
    tasks would stop, and its input be processed again."""
    harness, ann = mixed()
    bob = Thread("bob")
    while bob.joined(harness.ask(bob.join_request(), 7, "bob")):
        pass
    behind = ann.generation
    cid_heartbeats(harness, -1)
    assert isinstance(harness.group, ClassicGroup)
    assert harness.group.generation > behind
    if restarts:
        harness.restart()
    assert error_of(harness, ann.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS
    assert error_of(harness, ann.sync_request(), 5) is Errors.REBALANCE_IN_PROGRESS
    assert commit_error(harness, ann, behind) is Errors.NONE
    assert commit_error(harness, ann, harness.group.generation + 1) is Errors.ILLEGAL_GENERATION
    assert commit_error(harness, ann, 0) is Errors.ILLEGAL_GENERATION
    harness.group.accepts_earlier_epochs = False
    assert commit_error(harness, ann, behind) is Errors.ILLEGAL_GENERATION


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_without_downgrade_leaves_a_working_streams_group(policy: str) -> None:
    harness, ann = mixed()
    harness.configure({"konvene_streams_migration_policy": policy})
    cid_heartbeats(harness, -1)
    assert isinstance(harness.group, StreamsGroup)
    if policy == "upgrade":
        for _ in range(4):
            follow(harness, ann)
        assert len(ann.active) == 6


def test_a_group_above_the_classic_limit_is_not_downgraded() -> None:
    """MG5: they stay in a streams group, and share the tasks of the departed member."""
    harness, ann = mixed()
    bob = Thread("bob")
    for _ in range(4):
        follow(harness, bob)
        follow(harness, ann)
    harness.configure({"group_max_size": "1"})
    cid_heartbeats(harness, -1)
    assert isinstance(harness.group, StreamsGroup)
    for _ in range(6):
        follow(harness, ann)
        follow(harness, bob)
    assert sorted([*ann.active, *bob.active]) == [("0", number) for number in range(6)]


def test_a_shutdown_requested_with_the_last_leave_is_sent_before_the_downgrade() -> None:
    harness, ann = mixed()
    cid_heartbeats(harness, -1, shutdown_application=True)
    assert isinstance(harness.group, StreamsGroup)
    follow(harness, ann)
    assert ann.has is not None and ann.has.error_code == 4


def test_the_last_streams_members_session_expires() -> None:
    """It need not send a leave request."""
    harness, ann = mixed()
    harness.apply(harness.shard.expire(("session", "g", CID), harness.context()))
    assert isinstance(harness.group, ClassicGroup)
    assert list(harness.group.members) == [ann.member_id]
    assert [cause.kind for cause in harness.group.trace.causes] == ["downgraded", "session-expired"]
