"""Past bugs of consumer groups, in Kafka and elsewhere: 19 to 44 and 97 of the catalogue.

Each docstring names the bug; the test shows that it does not happen here. `test_bugs_around.py` has 19, 26,
28,
36 to 39, 43 and 98: those of offset APIs, settings, authorizers, clients and very large groups.
"""

from __future__ import annotations

import pytest
from tests.groups.consumer.clients import Client
from tests.groups.consumer.harness import (
    AUDIT,
    ORDERS,
    GroupHarness,
    error,
    logged_state,
    topics,
    without_epochs,
)

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


def group_with_pending_revocation() -> GroupHarness:
    """Return a harness in which `ann` has to revoke half of her partitions for `bob`."""
    harness = GroupHarness()
    harness.stable("ann")
    harness.beat("bob")
    harness.beat("ann", 2)
    assert harness.member("ann").current.state is MemberState.UNREVOKED_PARTITIONS
    return harness


def commit(harness: GroupHarness, member_id: str, epoch: int, partition: int) -> Errors:
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=(row,)),),
    )
    response = harness.ask(request, 9)
    return response if isinstance(response, Errors) else NONE


def test_bug_20_a_partition_was_given_to_two_members() -> None:
    """KAFKA-16147: a partition's epoch was lost if it was pending revocation and then assigned again."""
    harness = group_with_pending_revocation()
    harness.beat("bob", -1)
    harness.beat("ann", 2)
    assert without_epochs(harness.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
    assert harness.group.owner_epoch(ORDERS, 3) == 2
    harness.beat("bob")
    assert without_epochs(harness.member("bob").current.assigned) == {}
    harness.beat("ann", 2, owned=THREE)
    harness.beat("bob", harness.member("bob").current.epoch)
    assert without_epochs(harness.member("bob").current.assigned) == {ORDERS: (3, 4, 5)}


def test_bug_21_a_revocation_was_missed_when_the_target_changed() -> None:
    """KAFKA-16249: a newer target discarded the confirmed revocation and restarted the timeout for ever."""
    harness = group_with_pending_revocation()
    due_ms = harness.timers["revocation", "g", "ann"]
    for nth in range(3):
        harness.advance(5_000)
        harness.beat(f"new-{nth}")
        harness.beat("ann", 2)
        assert harness.timers["revocation", "g", "ann"] == due_ms
    harness.beat("ann", 2, owned=THREE)
    assert without_epochs(harness.member("ann").current.pending_revocation) != {ORDERS: (3, 4, 5)}
    harness.advance(30_000)
    assert "ann" not in harness.group.members, "a second revocation was due, and ann confirmed nothing"


def test_bug_22_a_full_heartbeat_had_a_partial_answer() -> None:
    """KAFKA-16367: a member that sent a full heartbeat after a lost response did not get its assignment."""
    harness = GroupHarness()
    harness.stable("ann")
    everything = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ("orders",),
        "owned": {ORDERS: (0,)},
    }
    assert harness.beat("ann", 2, owned={ORDERS: (0,)}).assignment is None
    response = harness.beat("ann", 2, **everything)
    assert response.assignment is not None
    assert response.assignment.topic_partitions[0].partitions == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("instance_id", [None, "i1"])
def test_bug_23_a_fenced_member_could_not_come_back(instance_id: str | None) -> None:
    """KAFKA-19233: a member that was fenced joins with epoch 0, and was fenced again for that epoch."""
    harness = GroupHarness()
    harness.stable("ann", instance_id=instance_id)
    assert error(harness.beat("ann", 9, instance_id=instance_id)) is FENCED
    response = harness.beat("ann", 0, instance_id=instance_id)
    assert (error(response), response.member_epoch) == (NONE, 2)
    assert harness.group.epoch == 2, "nothing changed, so no other member is affected"


def test_bug_24_an_empty_group_waited_for_an_assignment() -> None:
    """KAFKA-20442: the last member left, and the assignment epoch stayed behind the group epoch for ever."""
    harness = GroupHarness()
    harness.stable("ann", "bob")
    harness.beat("ann", -1)
    harness.beat("bob", -1)
    assert (harness.group.state, harness.group.epoch) == (State.EMPTY, harness.group.assignment_epoch)


def test_bug_25_a_commit_in_flight_was_refused_as_stale() -> None:
    """KAFKA-20066, KIP-1251: a commit was refused because the epoch was bumped while it was in flight."""
    harness = group_with_pending_revocation()
    harness.beat("ann", 2, owned=THREE)
    assert harness.member("ann").current.epoch == 3
    assert commit(harness, "ann", 2, 0) is NONE
    assert commit(harness, "ann", 2, 5) is Errors.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_bug_27_an_assignor_fell_over_a_member_without_subscription(assignor: str) -> None:
    """KAFKA-16930: a member that reads nothing, or something that there is not, broke the assignor."""
    harness = GroupHarness()
    harness.beat("ann", server_assignor=assignor)
    assert error(harness.beat("bob", subscribed_topic_names=(), server_assignor=assignor)) is NONE
    assert error(harness.beat("cid", subscribed_topic_names=("none",), server_assignor=assignor)) is NONE
    assert harness.group.targets["ann"] == {ORDERS: (0, 1, 2, 3, 4, 5)}


def test_bug_29_an_expression_outlived_the_member_that_used_it() -> None:
    """KAFKA-19720: a static member came back with the classic protocol. Its expression stayed, and the topics
    that it had matched were still assigned."""
    harness = GroupHarness()
    harness.stable("bob")
    harness.beat("ann", instance_id="i1", subscribed_topic_regex="au.*")
    harness.work()
    harness.beat("ann", harness.member("ann").current.epoch, instance_id="i1")
    assert harness.group.targets["ann"] == {AUDIT: (0, 1)}
    Client("ann", "i1", classic=True).step(harness)
    assert not harness.group.regexes
    tombstones = [r for r in harness.batches[-1].records if type(r.key) is ConsumerGroupRegularExpressionKey]
    assert [r.value for r in tombstones] == [None]
    assert not any(AUDIT in target for target in harness.group.targets.values())


def mixed(**settings: str) -> tuple[GroupHarness, Client]:
    """Return a settled group of a classic member and `new`, the only member of the consumer protocol."""
    harness = GroupHarness(**settings)
    old = Client("old", "i1", classic=True, eager=False)
    harness.beat("new", instance_id="i2")
    for _ in range(4):
        old.step(harness)
        current = harness.member("new").current
        harness.beat("new", current.epoch, instance_id="i2", owned=without_epochs(current.assigned))
    assert harness.group.state is State.STABLE
    return harness, old


def test_bug_30_a_group_was_downgraded_above_the_limit() -> None:
    """KAFKA-16861: a consumer group became a classic one with more members than `group.max.size`."""
    harness, _ = mixed(group_max_size="1")
    Client("other", "i3", classic=True).step(harness)
    harness.beat("new", -1, instance_id="i2")
    assert isinstance(harness.group, ConsumerGroup)
    assert len(harness.group.members) == 2


def test_bug_31_a_static_replacement_did_not_downgrade() -> None:
    """KAFKA-17317: the last member of the consumer protocol came back as a classic one; no downgrade
    followed."""
    harness, _ = mixed()
    Client("anew", "i2", classic=True).step(harness)
    assert isinstance(harness.group, ClassicGroup)
    assert harness.group.generation == 3


def test_bug_32_a_static_member_could_not_change_its_protocol() -> None:
    """KAFKA-17228: a static member could not replace itself when it switched to the consumer protocol."""
    harness, old = mixed()
    held = without_epochs(harness.member(old.member_id).current.assigned)
    response = harness.beat("newer", instance_id="i1")
    assert error(response) is NONE
    assert harness.group.instances["i1"] == "newer"
    assert without_epochs(harness.member("newer").current.assigned) == held
    assert harness.group.classic_members == 0


def test_bug_33_a_static_member_was_fenced_by_its_own_instance_id() -> None:
    """PR 23542: the response to its join was lost. It joined again under its own member id, and was refused
    because its own instance id was in use, until its session expired."""
    harness = GroupHarness()
    harness.beat("ann", instance_id="i1")
    response = harness.beat("ann", instance_id="i1")
    assert (error(response), response.member_epoch) == (NONE, 2)
    assert error(harness.beat("eve", instance_id="i1")) is Errors.UNRELEASED_INSTANCE_ID


def test_bug_34_a_classic_static_member_was_fenced_by_its_own_abandoned_join() -> None:
    """KAFKA-20985: it gave up waiting and joined again, and the first join fenced it. In a consumer group no
    join waits: each is answered at once, and the last one owns the instance id."""
    harness, _ = mixed()
    first, second = Client("a", "i3", classic=True), Client("b", "i3", classic=True)
    first.step(harness)
    second.step(harness)
    assert harness.group.instances["i3"] == second.member_id
    assert error(second.step(harness)) is NONE
    assert error(first.step(harness)) is Errors.FENCED_INSTANCE_ID


def test_bug_35_a_leave_without_the_instance_id_was_ignored() -> None:
    """KAFKA-16152: a static member that left without its instance id was answered NONE, but stayed in the
    group."""
    harness = GroupHarness()
    harness.stable("ann", instance_id="i1")
    assert error(harness.beat("ann", -2)) is Errors.INVALID_REQUEST
    assert "ann" in harness.group.members
    assert error(harness.beat("ann", -1)) is NONE
    assert not harness.group.members
    assert not harness.group.instances


def test_bug_40_a_late_heartbeat_confirmed_a_revocation_that_the_member_had_not_received() -> None:
    """kfake ac7d0fb8: a heartbeat sent before the member received the revocation confirmed it, and two
    members consumed one partition."""
    harness = group_with_pending_revocation()
    harness.beat("ann", 2)
    harness.beat("ann", 2, owned={ORDERS: (0, 1, 2, 3, 4, 5)})
    harness.beat("bob", 3)
    assert without_epochs(harness.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
    assert without_epochs(harness.member("bob").current.assigned) == {}


def test_bug_41_a_member_was_left_with_nothing() -> None:
    """kfake 007d8635: the target changed during a revocation, and the member never got the rest of it."""
    harness = group_with_pending_revocation()
    harness.beat("bob", -1)
    harness.beat("ann", 2, owned=THREE)
    assert without_epochs(harness.member("ann").current.assigned) == {ORDERS: (0, 1, 2, 3, 4, 5)}
    assert harness.group.state is State.STABLE


def test_bug_42_an_assignment_with_a_topic_unknown_to_the_client_was_sent_only_once() -> None:
    """kfake 1dc1b71d: the client could not resolve a topic's name, and never received the assignment again.
    Every full heartbeat is answered with the whole assignment."""
    harness = GroupHarness()
    harness.stable("ann")
    everything = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("orders",), "owned": {}}
    responses = [harness.beat("ann", 2, **everything) for _ in range(3)]
    assert all(response.assignment is not None for response in responses)
    assert responses[0] == responses[2]
    assert without_epochs(harness.member("ann").current.assigned) == {ORDERS: (0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("owned", [None, {ORDERS: (0,)}])
def test_bug_44_a_join_that_owns_something_was_accepted(owned: dict | None) -> None:  # type: ignore[type-arg]
    """kfake 0013f780: a client that joined with owned partitions was accepted, which hid that it was stuck
    (M11)."""
    harness = GroupHarness()
    fields = {"owned": owned} if owned is not None else {"topic_partitions": None}
    response = harness.beat("ann", 0, **fields)
    assert error(response) is Errors.INVALID_REQUEST
    assert harness.group is None


def test_bug_97_members_claimed_partitions_of_others() -> None:
    """KAFKA-12984, KAFKA-15170, librdkafka#4783: sticky assignors trusted members that claimed partitions of
    others. Here claims have no effect: a member owns what it was assigned."""
    harness = GroupHarness()
    harness.stable("ann", "bob")
    before = logged_state(harness.group)
    harness.beat("bob", 3, owned={ORDERS: (0, 1, 2, 3, 4, 5, 99)}, subscribed_topic_names=("orders",))
    assert logged_state(harness.group) == before
    liar = Client("liar", "i9", classic=True, eager=False)
    liar.owns = {(ORDERS, p) for p in range(6)}
    liar.step(harness)
    assert without_epochs(harness.member(liar.member_id).current.assigned) == {}


def test_a_topic_change_bumps_the_epoch_once() -> None:
    """M12, and our side of bug 43: the first heartbeat after the change bumps the epoch, and no other one
    does."""
    harness = GroupHarness()
    harness.stable("ann", "bob")
    harness.topics = topics(orders=8, audit=2)
    first, second = harness.beat("ann", 3), harness.beat("bob", 3)
    assert (first.member_epoch, second.member_epoch, harness.group.epoch) == (4, 4, 4)


def test_a_member_that_left_the_classic_protocol_is_not_fenced_for_a_missing_sync() -> None:
    """Ours: a classic member switched to the consumer protocol under its own id, and was fenced when the time
    ran out in which it should have synced. Apache Kafka 4.4 does that."""
    harness, _ = mixed()
    third = Client("third", classic=True)
    third.step(harness)
    assert ("resync", "g", third.member_id) in harness.timers
    assert error(harness.beat(third.member_id)) is NONE
    assert [key[0] for key in harness.timers if key[2] == third.member_id] == ["session"]
    request = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=third.member_id),))
    harness.ask(request, 5)
    armed = [timer for timer in harness.last.timers if isinstance(timer, Arm)]
    assert not armed
