"""What once went wrong with consumer groups, in Kafka and elsewhere: 19 to 44 and 97 of the catalogue.

Each test says what the bug was, and that it does not happen here. `test_bugs_around.py` has 19, 26, 28, 36 to
39, 43 and 98: those of offset APIs, settings, authorizers, clients, and of very large groups.
"""

from __future__ import annotations

import pytest
from tests.groups.consumer.clients import Client
from tests.groups.consumer.room import AUDIT, ORDERS, Room, error, kept, plain, topics

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, State
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.records.consumer import ConsumerGroupRegularExpressionKey
from konvene.shard.contract import Arm

NONE, FENCED, UNKNOWN = Errors.NONE, Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID
THREE = {ORDERS: (0, 1, 2)}


def owes() -> Room:
    """`ann` has to give up half of what she has to `bob`."""
    room = Room()
    room.stable("ann")
    room.beat("bob")
    room.beat("ann", 2)
    assert room.member("ann").current.state is MemberState.UNREVOKED_PARTITIONS
    return room


def commit(room: Room, member_id: str, epoch: int, partition: int) -> Errors:
    said = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=(said,)),),
    )
    answer = room.ask(request, 9)
    return answer if isinstance(answer, Errors) else NONE


def test_bug_20_a_partition_was_given_to_two_members() -> None:
    """KAFKA-16147: the epoch of a partition was lost where it was to be revoked and was assigned again."""
    room = owes()
    room.beat("bob", -1)
    room.beat("ann", 2)
    assert plain(room.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
    assert room.group.owner_epoch(ORDERS, 3) == 2
    room.beat("bob")
    assert plain(room.member("bob").current.assigned) == {}
    room.beat("ann", 2, owned=THREE)
    room.beat("bob", room.member("bob").current.epoch)
    assert plain(room.member("bob").current.assigned) == {ORDERS: (3, 4, 5)}


def test_bug_21_a_revocation_was_missed_where_the_target_changed() -> None:
    """KAFKA-16249: a newer target forgot what was confirmed, and began the timeout anew for ever."""
    room = owes()
    due_ms = room.timers["revocation", "g", "ann"]
    for nth in range(3):
        room.advance(5_000)
        room.beat(f"new-{nth}")
        room.beat("ann", 2)
        assert room.timers["revocation", "g", "ann"] == due_ms
    room.beat("ann", 2, owned=THREE)
    assert plain(room.member("ann").current.pending_revocation) != {ORDERS: (3, 4, 5)}
    room.advance(30_000)
    assert "ann" not in room.group.members, "she was told of the next revocation, and confirmed nothing"


def test_bug_22_a_full_heartbeat_had_a_partial_answer() -> None:
    """KAFKA-16367: who says everything, since it lost an answer, was not told what it has."""
    room = Room()
    room.stable("ann")
    everything = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ("orders",),
        "owned": {ORDERS: (0,)},
    }
    assert room.beat("ann", 2, owned={ORDERS: (0,)}).assignment is None
    answer = room.beat("ann", 2, **everything)
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions[0].partitions == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("instance_id", [None, "i1"])
def test_bug_23_a_fenced_member_could_not_come_back(instance_id: str | None) -> None:
    """KAFKA-19233: a member that was fenced joins with epoch 0, and was fenced again for that epoch."""
    room = Room()
    room.stable("ann", instance_id=instance_id)
    assert error(room.beat("ann", 9, instance_id=instance_id)) is FENCED
    answer = room.beat("ann", 0, instance_id=instance_id)
    assert (error(answer), answer.member_epoch) == (NONE, 2)
    assert room.group.epoch == 2, "nothing changed, so nobody else is troubled"


def test_bug_24_an_empty_group_waited_for_an_assignment() -> None:
    """KAFKA-20442: the last member left, and the assignment's epoch stayed behind the group's for ever."""
    room = Room()
    room.stable("ann", "bob")
    room.beat("ann", -1)
    room.beat("bob", -1)
    assert (room.group.state, room.group.epoch) == (State.EMPTY, room.group.assignment_epoch)


def test_bug_25_a_commit_on_its_way_was_stale() -> None:
    """KAFKA-20066, KIP-1251: the epoch moved while a commit was on its way, and it was refused."""
    room = owes()
    room.beat("ann", 2, owned=THREE)
    assert room.member("ann").current.epoch == 3
    assert commit(room, "ann", 2, 0) is NONE
    assert commit(room, "ann", 2, 5) is Errors.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_bug_27_an_assignor_fell_over_a_member_without_subscription(assignor: str) -> None:
    """KAFKA-16930: a member that reads nothing, or something that there is not, broke the assignor."""
    room = Room()
    room.beat("ann", server_assignor=assignor)
    assert error(room.beat("bob", subscribed_topic_names=(), server_assignor=assignor)) is NONE
    assert error(room.beat("cid", subscribed_topic_names=("none",), server_assignor=assignor)) is NONE
    assert room.group.targets["ann"] == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_bug_29_an_expression_outlived_the_member_that_used_it() -> None:
    """KAFKA-19720: a static member came back with the classic protocol, its expression stayed, and what it
    had matched was still assigned."""
    room = Room()
    room.stable("bob")
    room.beat("ann", instance_id="i1", subscribed_topic_regex="au.*")
    room.work()
    room.beat("ann", room.member("ann").current.epoch, instance_id="i1")
    assert room.group.targets["ann"] == {AUDIT: (0, 1)}
    Client("ann", "i1", classic=True).step(room)
    assert not room.group.regexes
    gone = [r for r in room.batches[-1].records if type(r.key) is ConsumerGroupRegularExpressionKey]
    assert [r.value for r in gone] == [None]
    assert not any(AUDIT in target for target in room.group.targets.values())


def mixed(**settings: str) -> tuple[Room, Client]:
    """A classic member and `new`, the only one of the new protocol; all that they have is settled."""
    room = Room(**settings)
    old = Client("old", "i1", classic=True, eager=False)
    room.beat("new", instance_id="i2")
    for _ in range(4):
        old.step(room)
        current = room.member("new").current
        room.beat("new", current.epoch, instance_id="i2", owned=plain(current.assigned))
    assert room.group.state is State.STABLE
    return room, old


def test_bug_30_a_group_was_downgraded_above_the_limit() -> None:
    """KAFKA-16861: a consumer group became a classic one of more members than that may have."""
    room, _ = mixed(group_max_size="1")
    Client("other", "i3", classic=True).step(room)
    room.beat("new", -1, instance_id="i2")
    assert isinstance(room.group, ConsumerGroup)
    assert len(room.group.members) == 2


def test_bug_31_a_static_replacement_did_not_downgrade() -> None:
    """KAFKA-17317: the last member of the new protocol came back with the classic one; the group stayed."""
    room, _ = mixed()
    Client("anew", "i2", classic=True).step(room)
    assert isinstance(room.group, ClassicGroup)
    assert room.group.generation == 3


def test_bug_32_a_static_member_could_not_change_its_protocol() -> None:
    """KAFKA-17228: with the new protocol it could not take the place of itself with the old one."""
    room, old = mixed()
    held = plain(room.member(old.member_id).current.assigned)
    answer = room.beat("newer", instance_id="i1")
    assert error(answer) is NONE
    assert room.group.instances["i1"] == "newer"
    assert plain(room.member("newer").current.assigned) == held
    assert room.group.classic_members == 0


def test_bug_33_a_static_member_was_fenced_by_its_own_name() -> None:
    """PR 23542: the answer to its join was lost; it joined again under its own id, and heard that the name
    was taken, by itself, until its session was over."""
    room = Room()
    room.beat("ann", instance_id="i1")
    answer = room.beat("ann", instance_id="i1")
    assert (error(answer), answer.member_epoch) == (NONE, 2)
    assert error(room.beat("eve", instance_id="i1")) is Errors.UNRELEASED_INSTANCE_ID


def test_bug_34_a_classic_static_member_was_fenced_by_its_own_abandoned_join() -> None:
    """KAFKA-20985: it gave up waiting, joined again, and the first join fenced it. In a consumer group nobody
    waits: each join is answered at once, and the last one is the member."""
    room, _ = mixed()
    first, second = Client("a", "i3", classic=True), Client("b", "i3", classic=True)
    first.step(room)
    second.step(room)
    assert room.group.instances["i3"] == second.member_id
    assert error(second.step(room)) is NONE
    assert error(first.step(room)) is Errors.FENCED_INSTANCE_ID


def test_bug_35_a_leave_without_the_name_was_ignored() -> None:
    """KAFKA-16152: a static member that left without its instance id was told that it had, and had not."""
    room = Room()
    room.stable("ann", instance_id="i1")
    assert error(room.beat("ann", -2)) is Errors.INVALID_REQUEST
    assert "ann" in room.group.members
    assert error(room.beat("ann", -1)) is NONE
    assert not room.group.members
    assert not room.group.instances


def test_bug_40_a_late_heartbeat_gave_up_what_it_had_not_heard_of() -> None:
    """kfake ac7d0fb8: a heartbeat that was on its way before the member heard what to give up confirmed it,
    and two members read one partition."""
    room = owes()
    room.beat("ann", 2)
    room.beat("ann", 2, owned={ORDERS: (0, 1, 2, 3, 4, 5)})
    room.beat("bob", 3)
    assert plain(room.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
    assert plain(room.member("bob").current.assigned) == {}


def test_bug_41_a_member_was_left_with_nothing() -> None:
    """kfake 007d8635: the target changed while it gave something up, and it never was given the rest."""
    room = owes()
    room.beat("bob", -1)
    room.beat("ann", 2, owned=THREE)
    assert plain(room.member("ann").current.assigned) == {ORDERS: (0, 1, 2, 3, 4, 5)}
    assert room.group.state is State.STABLE


def test_bug_42_an_assignment_of_a_topic_that_the_client_did_not_know_was_told_once() -> None:
    """kfake 1dc1b71d: the client could not find the topic's name, and was never told again. Whoever says
    everything is told everything, as often as it asks."""
    room = Room()
    room.stable("ann")
    said = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("orders",), "owned": {}}
    answers = [room.beat("ann", 2, **said) for _ in range(3)]
    assert all(answer.assignment is not None for answer in answers)
    assert answers[0] == answers[2]
    assert plain(room.member("ann").current.assigned) == {ORDERS: (0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("owned", [None, {ORDERS: (0,)}])
def test_bug_44_a_join_that_owns_something_was_accepted(owned: dict | None) -> None:  # type: ignore[type-arg]
    """kfake 0013f780: a client that joined with partitions was let in, which hid that it was stuck (M11)."""
    room = Room()
    said = {"owned": owned} if owned is not None else {"topic_partitions": None}
    answer = room.beat("ann", 0, **said)
    assert error(answer) is Errors.INVALID_REQUEST
    assert room.group is None


def test_bug_97_claims_to_own_what_others_have() -> None:
    """KAFKA-12984, KAFKA-15170, librdkafka#4783: sticky assignors believed members that said they own what
    somebody else has. Here nobody is believed: what a member has is what it was given."""
    room = Room()
    room.stable("ann", "bob")
    before = kept(room.group)
    room.beat("bob", 3, owned={ORDERS: (0, 1, 2, 3, 4, 5, 99)}, subscribed_topic_names=("orders",))
    assert kept(room.group) == before
    liar = Client("liar", "i9", classic=True, eager=False)
    liar.owns = {(ORDERS, p) for p in range(6)}
    liar.step(room)
    assert plain(room.member(liar.member_id).current.assigned) == {}


def test_an_epoch_moves_once_for_a_change_of_topics() -> None:
    """M12, and our side of bug 43: what changed is seen once, by whoever is heard first."""
    room = Room()
    room.stable("ann", "bob")
    room.topics = topics(orders=8, audit=2)
    first, second = room.beat("ann", 3), room.beat("bob", 3)
    assert (first.member_epoch, second.member_epoch, room.group.epoch) == (4, 4, 4)


def test_no_member_is_fenced_for_a_protocol_that_it_no_longer_speaks() -> None:
    """Ours: a classic member became one of the new protocol under its own id, and was fenced when the time
    was over in which it should have synced. Apache Kafka 4.4 does that."""
    room, _ = mixed()
    third = Client("third", classic=True)
    third.step(room)
    assert ("resync", "g", third.member_id) in room.timers
    assert error(room.beat(third.member_id)) is NONE
    assert [key[0] for key in room.timers if key[2] == third.member_id] == ["session"]
    request = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=third.member_id),))
    room.ask(request, 5)
    armed = [timer for timer in room.last.timers if isinstance(timer, Arm)]
    assert not armed
