"""Share groups, decision by decision: who may speak, what is begun with, what follows from a crash."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.asking import commit_request, join_request
from tests.groups.share.room import ShareRoom, error, kept, topics

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


def has(answer: Any) -> dict[Any, tuple[int, ...]] | None:
    if answer.assignment is None:
        return None
    return {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}


# --- who may speak ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected", "words"),
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
def test_what_nobody_should_send_is_refused_in_kafkas_words(
    said: dict[str, Any], expected: Errors, words: str
) -> None:
    room = ShareRoom()
    told = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ("orders",)}
    answer = room.ask(ShareGroupHeartbeatRequest(**told | said), 1)
    assert (error(answer), answer.error_message) == (expected, words)
    assert not room.shard.groups


def test_epochs_of_members_are_checked_as_kafka_does() -> None:
    """The one before is accepted, whatever is owned: the answer with the new one was lost."""
    room = ShareRoom()
    room.stable("m")
    epoch = room.share.members["m"].current.epoch
    assert error(room.beat("m", epoch - 1)) is Errors.NONE
    ahead = room.beat("m", epoch + 1)
    assert (error(ahead), ahead.error_message) == (
        Errors.FENCED_MEMBER_EPOCH,
        f"The share group member has a greater member epoch ({epoch + 1}) than the one known by the group "
        f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )
    room.beat("n")
    room.beat("m")
    behind = room.beat("m", epoch - 1)
    assert (error(behind), behind.error_message) == (
        Errors.FENCED_MEMBER_EPOCH,
        f"The share group member has a smaller member epoch ({epoch - 1}) than the one known by the group "
        f"coordinator ({epoch + 1}), and it does not match the previous member epoch ({epoch}). The member "
        "must abandon all its partitions and rejoin.",
    )
    stranger = room.beat("o", 3)
    assert (error(stranger), stranger.error_message) == (
        Errors.UNKNOWN_MEMBER_ID,
        "Member o is not a member of group g.",
    )
    assert error(room.beat("o", -1)) is Errors.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_again_is_the_same_and_is_told_all() -> None:
    room = ShareRoom()
    room.stable("m")
    before = kept(room.share)
    again = room.beat("m", 0)
    assert has(again) == {ORDERS: (0, 1, 2, 3, 4, 5)}
    assert kept(room.share) == before


def test_a_full_group_takes_nobody_new() -> None:
    room = ShareRoom(group_share_max_size="2")
    room.stable("a", "b")
    refused = room.beat("c", 0)
    assert (error(refused), refused.error_message) == (
        Errors.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 2 members.",
    )
    assert error(room.beat("a", 0)) is Errors.NONE


def test_groups_of_other_kinds_stay_what_they_are() -> None:
    """Not even an empty one becomes another kind. SH15 in reverse: offsets are no affair of share groups."""
    room = ShareRoom()
    room.shard.groups["c"] = ClassicGroup("c")
    refused = room.beat("m", 0, group_id="c")
    assert (error(refused), refused.error_message) == (
        Errors.GROUP_ID_NOT_FOUND,
        "Group c is not a share group.",
    )
    room.stable("m")
    for _ in range(2):  # With a member, and then without one.
        joins = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="x", rebalance_timeout_ms=1000, topic_partitions=(),
            subscribed_topic_names=("orders",),
        )  # fmt: skip
        assert error(room.ask(joins, 1)) is Errors.GROUP_ID_NOT_FOUND
        assert error(room.ask(join_request("x"), 9)) is Errors.INCONSISTENT_GROUP_PROTOCOL
        assert error(room.ask(HeartbeatRequest(group_id="g", member_id="x"), 4)) is Errors.UNKNOWN_MEMBER_ID
        assert error(room.ask(commit_request(), 9)) is Errors.GROUP_ID_NOT_FOUND
        assert error(room.ask(OffsetDeleteRequest(group_id="g"), 0)) is Errors.GROUP_ID_NOT_FOUND
        fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))
        (fetched,) = room.ask(fetch, 8).groups
        assert (fetched.error_code, fetched.topics) == (Errors.NONE, ()), "nothing is committed, says Kafka"
        room.beat("m", -1)
    assert isinstance(room.group, ShareGroup)


# --- beginning -------------------------------------------------------------------------------------


def test_only_what_has_begun_is_assigned() -> None:
    """SH11. In the records' order of Kafka's log; a member is given nothing before."""
    room = ShareRoom()
    first = room.beat("m")
    assert (first.member_epoch, has(first)) == (2, {})
    kinds = [type(record.key).__name__ for record in room.last.records]
    assert kinds == [
        "ShareGroupMemberMetadataKey",
        "ShareGroupMetadataKey",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupStatePartitionMetadataKey",
    ]
    assert has(room.beat("m")) is None
    assert room.share.epoch == 2
    room.work()
    then = room.beat("m")
    assert (then.member_epoch, has(then)) == (3, {ORDERS: (0, 1, 2, 3, 4, 5)})
    assert [cause.kind for row in room.why for cause in row.value.causes] == [
        causes.MEMBER_JOINED, causes.MEMBER_JOINED,
        causes.SHARE_PARTITIONS_INITIALIZED, causes.SHARE_PARTITIONS_INITIALIZED,
    ]  # fmt: skip
    assert room.begun == {SharePartitionKey("g", ORDERS, p): (2, -1) for p in range(6)}


def test_it_is_asked_once_until_an_answer_is_there_or_it_is_time() -> None:
    """Bug 82: no duplicates while the question is open, and none that stays open for ever."""
    room = ShareRoom()
    room.beat("m")
    (asked,) = room.wanted
    room.beat("m")
    room.beat("n")
    assert room.wanted == [asked]
    room.advance(29_000)
    room.beat("m")
    assert room.wanted == [asked]
    room.advance(1000)
    room.beat("m")
    assert len(room.wanted) == 2
    assert [r.start_offset for r in room.wanted[1].requests] == [-1] * 6, "it is as new as it was"
    room.work()
    state = room.share.state_topics
    assert (len(state.initialized[ORDERS].partitions), state.initializing) == (6, {})


def test_what_was_asked_before_a_crash_is_asked_at_once_after_it() -> None:
    """SH11, bug 82: the question was lost, or its answer; the share coordinator takes it twice."""
    for answered in (False, True):
        room = ShareRoom()
        room.beat("m")
        if answered:
            room.initialized(room.wanted[0])
        room.restart()
        room.beat("m")
        (asked,) = room.wanted
        assert [(r.state_epoch, r.start_offset) for r in asked.requests] == [(2, -1)] * 6
        room.work()
        assert has(room.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_what_could_not_begin_is_asked_again_by_the_next_heartbeat() -> None:
    room = ShareRoom()
    room.beat("m")
    room.work(fails=True)
    room.beat("m")
    assert [r.start_offset for r in room.wanted[0].requests] == [-1] * 6
    room.work()
    assert has(room.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_added_partitions_begin_at_0_also_where_they_are_asked_for_again() -> None:
    """Bug 81 / SH7."""
    room = ShareRoom()
    room.topics = topics(orders=2)
    room.stable("m")
    room.topics = topics(orders=4)
    for how in ("asked", "failed", "crashed"):
        room.beat("m")
        assert [(r.key.partition, r.start_offset) for r in room.wanted[0].requests] == [(2, 0), (3, 0)], how
        if how == "asked":
            room.work(fails=True)
        elif how == "failed":
            room.restart()
    room.work()
    assert has(room.beat("m")) == {ORDERS: (0, 1, 2, 3)}


def test_partitions_that_come_while_a_topic_begins_are_not_missed() -> None:
    room = ShareRoom()
    room.topics = topics(orders=2)
    room.beat("m")
    room.topics = topics(orders=3)
    room.beat("m")
    assert len(room.wanted) == 1, "they come after the others"
    room.advance(30_000)
    room.beat("m")
    found = {r.key.partition: r.start_offset for asked in room.wanted for r in asked.requests}
    assert found.keys() == {0, 1, 2}
    room.work()
    assert has(room.beat("m")) == {ORDERS: (0, 1, 2)}


def test_the_first_partitions_of_a_topic_begin_where_its_reset_says_also_if_others_are_sooner() -> None:
    """SH7. One was added while the first began: were it asked for at once, its answer could be there first,
    and then the first one would pass for one that was added."""
    room = ShareRoom()
    room.topics = topics(orders=1)
    room.beat("m")
    room.topics = topics(orders=2)
    for _ in range(3):
        room.beat("m")
        wanted, room.wanted = room.wanted, []
        for asked in reversed(wanted):
            room.take(room.shard.handle(room.initialized(asked), room.context()))
    started = {key.partition: start for key, (_, start) in room.begun.items()}
    assert started == {0: -1, 1: 0}


def test_a_late_answer_does_not_bring_back_what_is_being_deleted() -> None:
    room = ShareRoom()
    room.stable("m")
    room.beat("m", -1)
    room.quit("orders", to_its_end=False)
    late = StateInitialized("g", (SharePartitionKey("g", ORDERS, 0),))
    room.take(room.shard.handle(late, room.context()))
    assert ORDERS not in room.share.state_topics.initialized
    room.beat("m")
    room.topics = topics(audit=2)
    room.take(room.shard.handle(DeletedTopics(frozenset((ORDERS,))), room.context()))
    room.work()
    assert ORDERS not in room.share.state_topics.initialized, "nor what is gone"
    gone = StateInitialized("nobody", (SharePartitionKey("nobody", ORDERS, 0),))
    assert not room.shard.handle(gone, room.context()._replace(waiter=0)).records


# --- going -----------------------------------------------------------------------------------------


def test_who_leaves_or_is_silent_is_told_to_those_who_deliver() -> None:
    room = ShareRoom()
    room.stable("a", "b")
    room.beat("a", -1)
    room.work()
    assert room.told == [("g", "a")]
    room.advance(45_000)
    room.work()
    assert room.told == [("g", "a"), ("g", "b"), "g"]
    group = room.share
    assert (group.state, group.epoch, group.metadata_hash, group.assignment_timestamp_ms) == (
        "Empty", group.assignment_epoch, 0, 0,
    )  # fmt: skip
    assert [row.value.causes[0].kind for row in room.why[-2:]] == [
        causes.MEMBER_LEFT, causes.SESSION_EXPIRED,
    ] or room.why[-1].value.causes[0].kind == causes.SESSION_EXPIRED  # fmt: skip
    assert ("session", "g", "b") not in room.timers


def test_a_share_group_never_expires() -> None:
    room = ShareRoom()
    room.stable("m")
    room.beat("m", -1)
    room.advance(30 * 24 * 3_600_000)
    assert room.share.state == "Empty"
    assert room.share.state_topics.initialized


def test_a_heartbeat_that_says_nothing_new_writes_nothing() -> None:
    room = ShareRoom()
    room.stable("m")
    room.beat("m")
    assert not room.last.records
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=room.share.epoch)
    settled = room.shard.cacheable(request, room.context())
    assert settled is not None
    assert room.shard.is_current(settled[0])
    room.topics = topics(orders=7)
    room.beat("m")
    assert not room.shard.is_current(settled[0])
    assert room.shard.cacheable(request, room.context()) is None


# --- administrators --------------------------------------------------------------------------------


def test_offsets_are_altered_only_while_nobody_is_a_member() -> None:
    """SH15: and the group's epoch moves."""
    room = ShareRoom()
    room.stable("m")
    refused = room.alter({"orders": {0: 5}})
    assert refused.response.error_code == Errors.NON_EMPTY_GROUP
    assert not refused.requests
    room.beat("m", -1)
    before = room.share.epoch
    found = room.alter({"orders": {0: 5, 9: 1}, "nowhere": {0: 0}})
    assert [(r.state_epoch, r.start_offset) for r in found.requests] == [(before + 1, 5)]
    assert (room.share.epoch, room.share.assignment_epoch) == (before + 1, before + 1)
    assert room.share.state_topics.initializing == {}
    room.beat("m")
    assert room.share.epoch == before + 2


def test_a_crash_amid_altering_leaves_a_group_that_works() -> None:
    """The client was not answered. The share partition may stand where it stood, or where it was to."""
    for known in (True, False):
        room = ShareRoom()
        if known:
            room.stable("m")
            room.beat("m", -1)
        room.alter({"orders": {0: 5}}, to_its_end=False)
        room.restart()
        room.beat("m")
        room.work()
        room.beat("m")
        assert has(room.beat("m", 0)) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_a_crash_amid_deleting_offsets_is_made_up_for() -> None:
    """SH11: what is listed as deleting is asked for again when the coordinator is back."""
    room = ShareRoom()
    room.stable("m")
    room.beat("m", -1)
    room.wanted.clear()
    room.quit("orders", to_its_end=False)
    room.restart()
    assert room.begun
    room.advance(0)
    room.work()
    assert not room.begun
    assert room.share.state_topics.is_empty


def test_who_joins_while_a_topic_is_being_deleted_begins_anew() -> None:
    room = ShareRoom()
    room.stable("m")
    room.beat("m", -1)
    room.wanted.clear()
    asked = room.quit("orders", to_its_end=False)
    room.beat("m")
    assert room.share.state_topics.deleting == {}
    room.forgotten(asked)
    room.take(room.shard.handle(StateDeleted("g", (ORDERS,)), room.context()))
    room.work()
    assert has(room.beat("m")) == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_a_group_is_deleted_with_all_its_state_and_a_crash_on_the_way_changes_nothing() -> None:
    room = ShareRoom()
    room.stable("m")
    with pytest.raises(Exception, match="not empty"):
        room.begin_deletion()
    room.beat("m", -1)
    asked = room.begin_deletion()
    assert len(asked.requests) == 6
    room.restart()
    assert len(room.begin_deletion().requests) == 6, "an administrator who asks again gets to the end"
    assert room.delete() is Errors.NONE
    assert room.group is None
    assert not room.begun
    (result,) = room.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
    assert result.error_code == Errors.GROUP_ID_NOT_FOUND


def test_a_group_that_somebody_joined_and_left_meanwhile_is_not_deleted() -> None:
    """SH13. Its share partitions begin once more: they would be known for ever, and of nobody."""
    room = ShareRoom()
    room.stable("m")
    room.beat("m", -1)
    asked = room.begin_deletion()
    room.beat("m")
    room.beat("m", -1)
    room.forgotten(asked)
    (result,) = room.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
    assert result.error_code == Errors.NON_EMPTY_GROUP
    room.work()
    assert room.delete() is Errors.NONE
    assert not room.begun


def test_what_may_have_begun_though_it_was_said_not_to_is_deleted_with_the_group() -> None:
    """SH13. The answer was lost. What stays behind has an epoch that the next group of this name has not
    reached: it could begin with nothing."""
    room = ShareRoom()
    room.beat("m")
    (asked,) = room.wanted
    room.initialized(asked)
    room.work(fails=True)
    room.beat("m", -1)
    assert room.delete() is Errors.NONE
    assert not room.begun


def test_topics_that_are_gone_are_let_go_of_and_the_same_name_begins_anew() -> None:
    """SH13, bug 88; and what a crash kept from being heard of is found when the coordinator is back."""
    for heard in (True, False):
        room = ShareRoom()
        room.stable("m", subscribed_topic_names=("orders", "audit"))
        room.topics = topics(orders=6)
        if heard:
            room.take(room.shard.handle(DeletedTopics(frozenset((AUDIT,))), room.context()))
        else:
            room.restart()
            room.advance(0)
        assert list(room.share.state_topics.initialized) == [ORDERS]
        room.beat("m")
        assert list(room.share.members["m"].current.assigned) == [ORDERS]


def test_a_topic_that_is_gone_does_not_move_the_epoch_for_ever() -> None:
    """Before the group hears that it is gone, its share partitions are nobody's target and cannot be."""
    room = ShareRoom()
    room.stable("m", subscribed_topic_names=("orders", "audit"))
    room.topics = topics(orders=6)
    room.beat("m")
    epoch = room.share.epoch
    for _ in range(5):
        room.beat("m")
    assert room.share.epoch == epoch


def test_initialised_partitions_are_told() -> None:
    room = ShareRoom()
    room.stable("m")
    room.asked += 1
    room.take(room.shard.handle(InitializedPartitions("g"), room.context()))
    assert room.replies[room.asked] == tuple(SharePartitionKey("g", ORDERS, p) for p in range(6))
