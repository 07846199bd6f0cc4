"""Share groups, decision by decision: validation, initialization of share partitions, crashes, deletion."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.asking import commit_request, join_request
from tests.groups.share.harness import ShareGroupHarness, error, logged_state, topics

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.work import DeletedTopics, InitializedPartitions, StateDeleted, StateInitialized
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.offset_delete import OffsetDeleteRequest
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.shard import causes
from konvene.share_state.requests import SharePartitionKey

ORDERS = topics(orders=6).by_name["orders"].id
AUDIT = topics(audit=2).by_name["audit"].id


def assigned_partitions(response: Any) -> dict[Any, tuple[int, ...]] | None:
    if response.assignment is None:
        return None
    return {t.topic_id: t.partitions for t in response.assignment.topic_partitions}


# --- validation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected", "message"),
    [
        ({"member_id": ""}, Errors.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": " "}, Errors.INVALID_REQUEST, "GroupId can't be empty."),
        ({"rack_id": ""}, Errors.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"rack_id": "", "member_id": "", "group_id": ""},
            Errors.INVALID_REQUEST,
            "MemberId can't be empty.",
        ),
        (
            {"subscribed_topic_names": ()},
            Errors.INVALID_REQUEST,
            "SubscribedTopicNames must be set in first request.",
        ),
        (
            {"subscribed_topic_names": None},
            Errors.INVALID_REQUEST,
            "SubscribedTopicNames must be set in first request.",
        ),
        ({"member_epoch": -2}, Errors.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": -(2**31)}, Errors.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": 1}, Errors.GROUP_ID_NOT_FOUND, "Share group g not found."),
        ({"member_epoch": -1}, Errors.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_an_invalid_heartbeat_is_refused_with_kafkas_message(
    fields: dict[str, Any], expected: Errors, message: str
) -> None:
    harness = ShareGroupHarness()
    valid = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ("orders",)}
    response = harness.ask(ShareGroupHeartbeatRequest(**valid | fields), 1)
    assert (error(response), response.error_message) == (expected, message)
    assert not harness.shard.groups


def test_member_epochs_are_checked_as_in_kafka() -> None:
    """The previous epoch is accepted whatever is owned: the response with the new one was lost."""
    harness = ShareGroupHarness()
    harness.stable("m")
    epoch = harness.share.members["m"].current.epoch
    assert error(harness.beat("m", epoch - 1)) is Errors.NONE
    ahead = harness.beat("m", epoch + 1)
    assert (error(ahead), ahead.error_message) == (
        Errors.FENCED_MEMBER_EPOCH,
        f"The share group member has a greater member epoch ({epoch + 1}) than the one known by the group "
        f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )
    harness.beat("n")
    harness.beat("m")
    behind = harness.beat("m", epoch - 1)
    assert (error(behind), behind.error_message) == (
        Errors.FENCED_MEMBER_EPOCH,
        f"The share group member has a smaller member epoch ({epoch - 1}) than the one known by the group "
        f"coordinator ({epoch + 1}), and it does not match the previous member epoch ({epoch}). The member "
        "must abandon all its partitions and rejoin.",
    )
    stranger = harness.beat("o", 3)
    assert (error(stranger), stranger.error_message) == (
        Errors.UNKNOWN_MEMBER_ID,
        "Member o is not a member of group g.",
    )
    assert error(harness.beat("o", -1)) is Errors.UNKNOWN_MEMBER_ID


def test_a_rejoining_member_keeps_its_state_and_gets_its_whole_assignment() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    before = logged_state(harness.share)
    again = harness.beat("m", 0)
    assert assigned_partitions(again) == {ORDERS: (0, 1, 2, 3, 4, 5)}
    assert logged_state(harness.share) == before


def test_a_full_group_refuses_new_members() -> None:
    harness = ShareGroupHarness(group_share_max_size="2")
    harness.stable("a", "b")
    refused = harness.beat("c", 0)
    assert (error(refused), refused.error_message) == (
        Errors.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 2 members.",
    )
    assert error(harness.beat("a", 0)) is Errors.NONE


def test_a_group_does_not_change_its_type() -> None:
    """Not even an empty group changes its type. SH15 in reverse: a share group rejects committed offsets."""
    harness = ShareGroupHarness()
    harness.shard.groups["c"] = ClassicGroup("c")
    refused = harness.beat("m", 0, group_id="c")
    assert (error(refused), refused.error_message) == (
        Errors.GROUP_ID_NOT_FOUND,
        "Group c is not a share group.",
    )
    harness.stable("m")
    for _ in range(2):  # With a member, and then without one.
        joins = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="x", rebalance_timeout_ms=1000, topic_partitions=(),
            subscribed_topic_names=("orders",),
        )  # fmt: skip
        assert error(harness.ask(joins, 1)) is Errors.GROUP_ID_NOT_FOUND
        assert error(harness.ask(join_request("x"), 9)) is Errors.INCONSISTENT_GROUP_PROTOCOL
        assert (
            error(harness.ask(HeartbeatRequest(group_id="g", member_id="x"), 4)) is Errors.UNKNOWN_MEMBER_ID
        )
        assert error(harness.ask(commit_request(), 9)) is Errors.GROUP_ID_NOT_FOUND
        assert error(harness.ask(OffsetDeleteRequest(group_id="g"), 0)) is Errors.GROUP_ID_NOT_FOUND
        fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))
        (fetched,) = harness.ask(fetch, 8).groups
        assert (fetched.error_code, fetched.topics) == (Errors.NONE, ()), "as Kafka: no committed offsets"
        harness.beat("m", -1)
    assert isinstance(harness.group, ShareGroup)


# --- initialization --------------------------------------------------------------------------------


def test_only_initialized_partitions_are_assigned() -> None:
    """SH11. Records in the order of Kafka's log; a member gets no partition before it is initialized."""
    harness = ShareGroupHarness()
    first = harness.beat("m")
    assert (first.member_epoch, assigned_partitions(first)) == (2, {})
    kinds = [type(record.key).__name__ for record in harness.last.records]
    assert kinds == [
        "ShareGroupMemberMetadataKey",
        "ShareGroupMetadataKey",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupStatePartitionMetadataKey",
    ]
    assert assigned_partitions(harness.beat("m")) is None
    assert harness.share.epoch == 2
    harness.work()
    then = harness.beat("m")
    assert (then.member_epoch, assigned_partitions(then)) == (3, {ORDERS: (0, 1, 2, 3, 4, 5)})
    assert [cause.kind for row in harness.rebalances for cause in row.value.causes] == [
        causes.MEMBER_JOINED, causes.MEMBER_JOINED,
        causes.SHARE_PARTITIONS_INITIALIZED, causes.SHARE_PARTITIONS_INITIALIZED,
    ]  # fmt: skip
    assert harness.share_state == {SharePartitionKey("g", ORDERS, p): (2, -1) for p in range(6)}


def test_initialization_is_requested_once_until_its_response_or_timeout() -> None:
    """Bug 82: no duplicate request while one is pending, and no request that stays pending for ever."""
    harness = ShareGroupHarness()
    harness.beat("m")
    (request,) = harness.pending_work
    harness.beat("m")
    harness.beat("n")
    assert harness.pending_work == [request]
    harness.advance(29_000)
    harness.beat("m")
    assert harness.pending_work == [request]
    harness.advance(1000)
    harness.beat("m")
    assert len(harness.pending_work) == 2
    assert [r.start_offset for r in harness.pending_work[1].requests] == [-1] * 6, "it is as new as it was"
    harness.work()
    state = harness.share.state_topics
    assert (len(state.initialized[ORDERS].partitions), state.initializing) == (6, {})


def test_pending_initialization_is_requested_again_after_a_crash() -> None:
    """SH11, bug 82: the request or its response was lost; the share coordinator accepts the request twice."""
    for answered in (False, True):
        harness = ShareGroupHarness()
        harness.beat("m")
        if answered:
            harness.initialize_state(harness.pending_work[0])
        harness.restart()
        harness.beat("m")
        (request,) = harness.pending_work
        assert [(r.state_epoch, r.start_offset) for r in request.requests] == [(2, -1)] * 6
        harness.work()
        assert assigned_partitions(harness.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_failed_initialization_is_requested_again_by_the_next_heartbeat() -> None:
    harness = ShareGroupHarness()
    harness.beat("m")
    harness.work(fails=True)
    harness.beat("m")
    assert [r.start_offset for r in harness.pending_work[0].requests] == [-1] * 6
    harness.work()
    assert assigned_partitions(harness.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_added_partitions_start_at_0_even_if_requested_again() -> None:
    """Bug 81 / SH7."""
    harness = ShareGroupHarness()
    harness.topics = topics(orders=2)
    harness.stable("m")
    harness.topics = topics(orders=4)
    for previous in ("asked", "failed", "crashed"):
        harness.beat("m")
        assert [(r.key.partition, r.start_offset) for r in harness.pending_work[0].requests] == [
            (2, 0),
            (3, 0),
        ], previous
        if previous == "asked":
            harness.work(fails=True)
        elif previous == "failed":
            harness.restart()
    harness.work()
    assert assigned_partitions(harness.beat("m")) == {ORDERS: (0, 1, 2, 3)}


def test_partitions_added_during_initialization_are_initialized() -> None:
    harness = ShareGroupHarness()
    harness.topics = topics(orders=2)
    harness.beat("m")
    harness.topics = topics(orders=3)
    harness.beat("m")
    assert len(harness.pending_work) == 1, "the added partition is requested after the others"
    harness.advance(30_000)
    harness.beat("m")
    start_offsets = {r.key.partition: r.start_offset for job in harness.pending_work for r in job.requests}
    assert start_offsets.keys() == {0, 1, 2}
    harness.work()
    assert assigned_partitions(harness.beat("m")) == {ORDERS: (0, 1, 2)}


def test_first_partitions_start_at_the_reset_position_even_if_added_ones_are_initialized_before() -> None:
    """SH7. A partition was added while the first one was being initialized. If it were requested at once, its
    response could arrive first, and then the first partition would count as an added one."""
    harness = ShareGroupHarness()
    harness.topics = topics(orders=1)
    harness.beat("m")
    harness.topics = topics(orders=2)
    for _ in range(3):
        harness.beat("m")
        jobs, harness.pending_work = harness.pending_work, []
        for job in reversed(jobs):
            harness.apply(harness.shard.handle(harness.initialize_state(job), harness.context()))
    started = {key.partition: start for key, (_, start) in harness.share_state.items()}
    assert started == {0: -1, 1: 0}


def test_a_late_response_does_not_restore_a_topic_being_deleted() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m", -1)
    harness.delete_offsets("orders", complete=False)
    late = StateInitialized("g", (SharePartitionKey("g", ORDERS, 0),))
    harness.apply(harness.shard.handle(late, harness.context()))
    assert ORDERS not in harness.share.state_topics.initialized
    harness.beat("m")
    harness.topics = topics(audit=2)
    harness.apply(harness.shard.handle(DeletedTopics(frozenset((ORDERS,))), harness.context()))
    harness.work()
    assert ORDERS not in harness.share.state_topics.initialized, "a deleted topic was restored"
    of_unknown_group = StateInitialized("unknown", (SharePartitionKey("unknown", ORDERS, 0),))
    assert not harness.shard.handle(of_unknown_group, harness.context()._replace(waiter=0)).records


# --- departures ------------------------------------------------------------------------------------


def test_departed_members_are_reported_to_the_share_partition_servers() -> None:
    harness = ShareGroupHarness()
    harness.stable("a", "b")
    harness.beat("a", -1)
    harness.work()
    assert harness.departures == [("g", "a")]
    harness.advance(45_000)
    harness.work()
    assert harness.departures == [("g", "a"), ("g", "b"), "g"]
    group = harness.share
    assert (group.state, group.epoch, group.metadata_hash, group.assignment_timestamp_ms) == (
        "Empty", group.assignment_epoch, 0, 0,
    )  # fmt: skip
    assert [row.value.causes[0].kind for row in harness.rebalances[-2:]] == [
        causes.MEMBER_LEFT, causes.SESSION_EXPIRED,
    ] or harness.rebalances[-1].value.causes[0].kind == causes.SESSION_EXPIRED  # fmt: skip
    assert ("session", "g", "b") not in harness.timers


def test_a_share_group_never_expires() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m", -1)
    harness.advance(30 * 24 * 3_600_000)
    assert harness.share.state == "Empty"
    assert harness.share.state_topics.initialized


def test_a_settled_members_heartbeat_writes_nothing() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m")
    assert not harness.last.records
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=harness.share.epoch)
    settled = harness.shard.cacheable(request, harness.context())
    assert settled is not None
    assert harness.shard.is_current(settled[0])
    harness.topics = topics(orders=7)
    harness.beat("m")
    assert not harness.shard.is_current(settled[0])
    assert harness.shard.cacheable(request, harness.context()) is None


# --- administrators --------------------------------------------------------------------------------


def test_offsets_are_altered_only_in_an_empty_group() -> None:
    """SH15: and altering bumps the group epoch."""
    harness = ShareGroupHarness()
    harness.stable("m")
    refused = harness.alter_offsets({"orders": {0: 5}})
    assert refused.response.error_code == Errors.NON_EMPTY_GROUP
    assert not refused.requests
    harness.beat("m", -1)
    before = harness.share.epoch
    changes = harness.alter_offsets({"orders": {0: 5, 9: 1}, "nowhere": {0: 0}})
    assert [(r.state_epoch, r.start_offset) for r in changes.requests] == [(before + 1, 5)]
    assert (harness.share.epoch, harness.share.assignment_epoch) == (before + 1, before + 1)
    assert harness.share.state_topics.initializing == {}
    harness.beat("m")
    assert harness.share.epoch == before + 2


def test_a_crash_while_altering_offsets_leaves_a_working_group() -> None:
    """The client got no response. The share partition may be at its old offset or at the requested one."""
    for known in (True, False):
        harness = ShareGroupHarness()
        if known:
            harness.stable("m")
            harness.beat("m", -1)
        harness.alter_offsets({"orders": {0: 5}}, complete=False)
        harness.restart()
        harness.beat("m")
        harness.work()
        harness.beat("m")
        assert assigned_partitions(harness.beat("m", 0)) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_deletion_of_offsets_resumes_after_a_crash() -> None:
    """SH11: a partition listed as deleting is requested again when the coordinator is back."""
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m", -1)
    harness.pending_work.clear()
    harness.delete_offsets("orders", complete=False)
    harness.restart()
    assert harness.share_state
    harness.advance(0)
    harness.work()
    assert not harness.share_state
    assert harness.share.state_topics.is_empty


def test_a_join_during_a_topics_deletion_initializes_it_again() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m", -1)
    harness.pending_work.clear()
    deletion = harness.delete_offsets("orders", complete=False)
    harness.beat("m")
    assert harness.share.state_topics.deleting == {}
    harness.delete_state(deletion)
    harness.apply(harness.shard.handle(StateDeleted("g", (ORDERS,)), harness.context()))
    harness.work()
    assert assigned_partitions(harness.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_a_group_is_deleted_with_its_state_despite_a_crash() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    with pytest.raises(Exception, match="not empty"):
        harness.begin_deletion()
    harness.beat("m", -1)
    deletion = harness.begin_deletion()
    assert len(deletion.requests) == 6
    harness.restart()
    assert len(harness.begin_deletion().requests) == 6, "a repeated deletion covers all of the state"
    assert harness.delete() is Errors.NONE
    assert harness.group is None
    assert not harness.share_state
    (result,) = harness.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
    assert result.error_code == Errors.GROUP_ID_NOT_FOUND


def test_a_group_with_a_join_during_its_deletion_is_not_deleted() -> None:
    """SH13. Otherwise its share partitions would be initialized again, and their state kept for ever."""
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.beat("m", -1)
    deletion = harness.begin_deletion()
    harness.beat("m")
    harness.beat("m", -1)
    harness.delete_state(deletion)
    (result,) = harness.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
    assert result.error_code == Errors.NON_EMPTY_GROUP
    harness.work()
    assert harness.delete() is Errors.NONE
    assert not harness.share_state


def test_partitions_of_a_failed_initialization_are_deleted_with_the_group() -> None:
    """SH13. The response was lost. State left behind would have an epoch that the next group of this name has
    not reached, so that none of its partitions could be initialized."""
    harness = ShareGroupHarness()
    harness.beat("m")
    (request,) = harness.pending_work
    harness.initialize_state(request)
    harness.work(fails=True)
    harness.beat("m", -1)
    assert harness.delete() is Errors.NONE
    assert not harness.share_state


def test_state_of_deleted_topics_is_removed() -> None:
    """SH13, bug 88; a deletion that a crash kept from the group is found when the coordinator is back."""
    for notified in (True, False):
        harness = ShareGroupHarness()
        harness.stable("m", subscribed_topic_names=("orders", "audit"))
        harness.topics = topics(orders=6)
        if notified:
            harness.apply(harness.shard.handle(DeletedTopics(frozenset((AUDIT,))), harness.context()))
        else:
            harness.restart()
            harness.advance(0)
        assert list(harness.share.state_topics.initialized) == [ORDERS]
        harness.beat("m")
        assert list(harness.share.members["m"].current.assigned) == [ORDERS]


def test_a_deleted_topic_does_not_bump_the_epoch_for_ever() -> None:
    """Until the group is notified of the deletion, the topic's share partitions are in no target."""
    harness = ShareGroupHarness()
    harness.stable("m", subscribed_topic_names=("orders", "audit"))
    harness.topics = topics(orders=6)
    harness.beat("m")
    epoch = harness.share.epoch
    for _ in range(5):
        harness.beat("m")
    assert harness.share.epoch == epoch


def test_initialized_partitions_are_listed() -> None:
    harness = ShareGroupHarness()
    harness.stable("m")
    harness.request_id += 1
    harness.apply(harness.shard.handle(InitializedPartitions("g"), harness.context()))
    assert harness.replies[harness.request_id] == tuple(SharePartitionKey("g", ORDERS, p) for p in range(6))
