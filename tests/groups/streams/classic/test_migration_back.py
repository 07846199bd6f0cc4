"""The last member of the streams protocol goes: the group is a classic one again, and nobody is stranded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.consumer.room import Room
from tests.groups.streams.classic.test_migration_refused import streams
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


def cid_says(room: Room, epoch: int, **more: Any) -> Any:
    answer = room.ask(
        StreamsGroupHeartbeatRequest(group_id="g", member_id=CID, member_epoch=epoch, **more), 1, "cid"
    )
    assert not answer.error_code, answer
    return answer


def follow(room: Room, thread: Thread) -> None:
    """Heartbeat, and join and sync where it is told to."""
    if thread.generation < 0 or told(room, thread.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS:
        while thread.joined(room.ask(thread.join_request(), 7, thread.name)):
            pass
        thread.synced(room.ask(thread.sync_request(), 5, thread.name))


def told(room: Room, request: Any, version: int) -> Errors:
    answer = room.ask(request, version, "ann")
    return answer if isinstance(answer, Errors) else Errors(answer.error_code)


def commits(room: Room, thread: Thread, generation: int) -> Errors:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=thread.member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
    )
    answer = room.ask(request, 7, thread.name)
    if isinstance(answer, Errors):
        return answer
    return Errors(answer.topics[0].partitions[0].error_code)


def mixed() -> tuple[Room, Thread]:
    """cid and ann share the tasks, each with three."""
    room, ann = streams(), Thread("ann")
    follow(room, ann)
    for _ in range(4):
        epoch = room.group.members[CID].current.epoch
        active = room.group.members[CID].current.assigned.tasks.active
        ids = tuple(TaskIds(subtopology_id=name, partitions=some) for name, some in active.items())
        cid_says(room, epoch, active_tasks=ids, standby_tasks=(), warmup_tasks=())
        follow(room, ann)
    assert len(ann.active) == 3
    return room, ann


def test_what_members_run_is_in_the_record_and_all_else_is_gone() -> None:
    room, ann = mixed()
    epoch = room.group.epoch
    cid_says(room, -1)
    group = room.group
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state, list(group.members)) == (
        epoch, State.PREPARING_REBALANCE, [ann.member_id],
    )  # fmt: skip
    left = {type(record.key).__name__ for batch in room.batches for record in batch.records if record.value}
    room.restart(compact=True)
    kept = {type(record.key).__name__ for batch in room.batches for record in batch.records if record.value}
    assert kept == {"GroupMetadataKey"} < left


@pytest.mark.parametrize("restarts", [False, True])
def test_who_is_left_is_asked_to_join_and_has_all(*, restarts: bool) -> None:
    """Also where the coordinator starts anew in between: who left is in no record, and nobody would ask."""
    room, ann = mixed()
    cid_says(room, -1)
    if restarts:
        room.restart()
    assert told(room, ann.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("restarts", [False, True])
def test_who_was_behind_goes_on_until_the_rebalance_is_over(*, restarts: bool) -> None:
    """Its generation is an epoch that the group has left. It is asked to join, and what it has processed may
    be committed: else it would lose what it runs, and read it again."""
    room, ann = mixed()
    bob = Thread("bob")
    while bob.joined(room.ask(bob.join_request(), 7, "bob")):
        pass
    behind = ann.generation
    cid_says(room, -1)
    assert isinstance(room.group, ClassicGroup)
    assert room.group.generation > behind
    if restarts:
        room.restart()
    assert told(room, ann.beat_request(), 4) is Errors.REBALANCE_IN_PROGRESS
    assert told(room, ann.sync_request(), 5) is Errors.REBALANCE_IN_PROGRESS
    assert commits(room, ann, behind) is Errors.NONE
    assert commits(room, ann, room.group.generation + 1) is Errors.ILLEGAL_GENERATION
    assert commits(room, ann, 0) is Errors.ILLEGAL_GENERATION
    room.group.accepts_earlier_epochs = False
    assert commits(room, ann, behind) is Errors.ILLEGAL_GENERATION


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_that_does_not_let_it_leaves_a_streams_group_that_works(policy: str) -> None:
    room, ann = mixed()
    room.configure({"konvene_streams_migration_policy": policy})
    cid_says(room, -1)
    assert isinstance(room.group, StreamsGroup)
    if policy == "upgrade":
        for _ in range(4):
            follow(room, ann)
        assert len(ann.active) == 6


def test_more_members_than_a_classic_group_may_have() -> None:
    """MG5: they stay what they are, and share what the last one had."""
    room, ann = mixed()
    bob = Thread("bob")
    for _ in range(4):
        follow(room, bob)
        follow(room, ann)
    room.configure({"group_max_size": "1"})
    cid_says(room, -1)
    assert isinstance(room.group, StreamsGroup)
    for _ in range(6):
        follow(room, ann)
        follow(room, bob)
    assert sorted([*ann.active, *bob.active]) == [("0", number) for number in range(6)]


def test_a_shutdown_that_the_last_one_asked_for_is_told_before() -> None:
    room, ann = mixed()
    cid_says(room, -1, shutdown_application=True)
    assert isinstance(room.group, StreamsGroup)
    follow(room, ann)
    assert ann.has is not None and ann.has.error_code == 4


def test_the_last_one_is_silent() -> None:
    """It need not say farewell."""
    room, ann = mixed()
    room.take(room.shard.expire(("session", "g", CID), room.context()))
    assert isinstance(room.group, ClassicGroup)
    assert list(room.group.members) == [ann.member_id]
    assert [cause.kind for cause in room.group.trace.causes] == ["downgraded", "session-expired"]
