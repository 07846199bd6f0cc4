"""Planted bugs in consumer groups that random runs would rarely find: a short scenario for each."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from konvene.groups.consumer import classic_members
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.modern.decision import ModernDecision
from konvene.sim.runs.run import Run, simulate
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.world.compaction import assert_compaction_changes_nothing
from konvene.sim.world.event import InvariantViolation

HANDED_OVER = [
    "kinds consumer",
    "config group.consumer.assignment.interval.ms=0",
    "consumer-heartbeat ann join",
    "consumer-heartbeat bob join",
    "consumer-heartbeat ann",
    "consumer-heartbeat ann owns=told",
    "consumer-heartbeat bob",
    "consumer-heartbeat cid join",
    "consumer-heartbeat ann",
    "consumer-heartbeat ann owns=told",
    "consumer-heartbeat bob",
    "consumer-heartbeat bob owns=told",
    "consumer-heartbeat cid",
]
"""Partitions move from member to member, and each member advances after its revocation."""


def test_released_partition_with_a_new_owner_breaks_compaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAFKA-19862: the log is compacted while it is read. A member that releases a partition must not remove
    its new owner. The members still own partitions when the log is checked."""
    scenario = Scenario()
    scenario.run(HANDED_OVER)
    assert scenario.broken is None
    runtime = scenario.life.runtime
    assert_compaction_changes_nothing(runtime, Random(1), most=40)

    def release(group: ConsumerGroup, member: Member) -> None:
        current = member.current
        for topic, partitions in (*current.assigned.items(), *current.pending_revocation.items()):
            for partition in partitions:
                group.owners.get(topic, {}).pop(partition, None)
            if not group.owners.get(topic, True):
                del group.owners[topic]

    monkeypatch.setattr(ConsumerGroup, "_release", release)
    with pytest.raises(AssertionError, match="the compacted log shows"):
        assert_compaction_changes_nothing(runtime, Random(1), most=40)


@pytest.mark.parametrize(("field", "commands"), [
    ("resolving", ["consumer-heartbeat ann join regex=or.*", "work"]),
    ("computing", ["heavy 1", "consumer-heartbeat ann join", "work"]),
])  # fmt: skip
def test_waiting_for_completed_work_is_detected(
    field: str, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that keeps waiting never requests new work."""
    first = ["kinds consumer", "config group.consumer.assignment.interval.ms=0", *commands]
    sound = Scenario()
    sound.run(first)
    assert sound.broken is None
    remember = ModernDecision.remember

    def remember_without_reset(step: Any, **changes: Any) -> None:
        remember(step, **{name: value for name, value in changes.items() if name != field or value})

    monkeypatch.setattr(ModernDecision, "remember", remember_without_reset)
    scenario = Scenario()
    scenario.run(first)
    assert isinstance(scenario.broken, InvariantViolation)
    assert scenario.broken.invariant == "CompletedWorkIsNotPending"


def test_members_of_both_protocols_change_their_subscriptions() -> None:
    """A classic member in a consumer group rejoins with its new subscription."""
    joins = 0
    for seed in range(6):
        lines: list[str] = []
        sets = (("fault.resubscribe", "9"), ("fault.every", "20"), ("upgraded", "0.3"))
        assert simulate(Run(seed, ("migration",), 600, sets=sets), trace=lines.append).violation is None
        joins += sum("the subscription has changed" in line for line in lines)
    assert joins > 3


CHANGED_SUBSCRIPTION = [
    "kinds migration",
    "config group.consumer.assignment.interval.ms=0",
    "consumer-heartbeat new join topics=orders,audit",
    "join old reads=orders,audit",
    "join old reads=orders,audit",
    "consumer-heartbeat new",
    "consumer-heartbeat new owns=told",
    "join old reads=orders,audit",
    "sync old",
    "heavy 1",
    "join old reads=audit owns=orders:2-5",
    "heartbeat old",
]
"""A classic member unsubscribes from `orders` and has to revoke it, before there is a newer target."""


def test_classic_member_that_need_not_rejoin_to_revoke_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would keep partitions of a topic that it does not subscribe to. Random runs rarely get here: the
    heartbeat has to fall between the revocation and the next JoinGroup, before the next target."""
    sound = Scenario()
    assert sound.run(CHANGED_SUBSCRIPTION)[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS"
    assert sound.broken is None
    has_to_rejoin = classic_members._has_to_rejoin

    def has_to_rejoin_unless_unrevoked(step: Any, member: Any) -> bool:
        unrevoked = member.current.state is MemberState.UNREVOKED_PARTITIONS
        return not (unrevoked and member.current.epoch == step.assignment_epoch) and has_to_rejoin(
            step, member
        )

    monkeypatch.setattr(classic_members, "_has_to_rejoin", has_to_rejoin_unless_unrevoked)
    scenario = Scenario()
    scenario.run(CHANGED_SUBSCRIPTION)
    assert isinstance(scenario.broken, InvariantViolation)
    assert scenario.broken.invariant == "ClassicMembersRejoinOnChanges"
