"""Invariants of consumer groups that seeds alone would break too seldom: planted bugs, a few lines each."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from konvene.groups.consumer import classic_members
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import ConsumerGroup
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
"""Partitions go from one member to the next, and who gave them up goes on."""


def test_an_owner_that_stands_in_front_of_who_had_it_before_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAFKA-19862: the log was compacted while somebody read it. Whoever lets go of a partition must not take
    it from who has it by then. Members are there when the log is looked at; later nobody owns anything."""
    scenario = Scenario()
    scenario.run(HANDED_OVER)
    assert scenario.broken is None
    runtime = scenario.life.runtime
    assert_compaction_changes_nothing(runtime, Random(1), most=40)

    def release(group: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
        for topic, partitions in (*current.assigned.items(), *current.pending_revocation.items()):
            for partition in partitions:
                group.owners.get(topic, {}).pop(partition, None)
            if not group.owners.get(topic, True):
                del group.owners[topic]

    monkeypatch.setattr(ConsumerGroup, "_release", release)
    with pytest.raises(AssertionError, match="the compacted log shows"):
        assert_compaction_changes_nothing(runtime, Random(1), most=40)


@pytest.mark.parametrize(("word", "commands"), [
    ("resolving", ["consumer-heartbeat ann join regex=or.*", "work"]),
    ("computing", ["heavy 1", "consumer-heartbeat ann join", "work"]),
])  # fmt: skip
def test_who_waits_for_what_has_come_is_found_out(
    word: str, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that goes on waiting asks for nothing new, for ever."""
    first = ["kinds consumer", "config group.consumer.assignment.interval.ms=0", *commands]
    sound = Scenario()
    sound.run(first)
    assert sound.broken is None
    remember = ModernDecision.remember

    def forgets(step: Any, **said: Any) -> None:
        remember(step, **{name: value for name, value in said.items() if name != word or value})

    monkeypatch.setattr(ModernDecision, "remember", forgets)
    scenario = Scenario()
    scenario.run(first)
    assert isinstance(scenario.broken, InvariantViolation)
    assert scenario.broken.invariant == "CompletedWorkIsNotPending"


def test_members_of_both_protocols_read_other_topics_as_they_run() -> None:
    """A classic member in a consumer group says so when it joins again."""
    joins = 0
    for seed in range(6):
        told: list[str] = []
        sets = (("fault.resubscribe", "9"), ("fault.every", "20"), ("upgraded", "0.3"))
        assert simulate(Run(seed, ("migration",), 600, sets=sets), trace=told.append).violation is None
        joins += sum("the subscription has changed" in line for line in told)
    assert joins > 3


CHANGES_ITS_MIND = [
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
"""A classic member does not read `orders` any more, and has yet to give it up; no newer target yet."""


def test_a_classic_member_that_is_not_told_to_give_something_up_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would keep what it does not read. Seeds hardly ever come here: a member joins again as soon as it
    has given up, and its heartbeat has to fall in between, before the next target is there."""
    sound = Scenario()
    assert sound.run(CHANGES_ITS_MIND)[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS"
    assert sound.broken is None
    has_to_rejoin = classic_members._has_to_rejoin

    def forgets(step: Any, member: Any) -> bool:
        owes = member.current.state is MemberState.UNREVOKED_PARTITIONS
        return not (owes and member.current.epoch == step.assignment_epoch) and has_to_rejoin(step, member)

    monkeypatch.setattr(classic_members, "_has_to_rejoin", forgets)
    scenario = Scenario()
    scenario.run(CHANGES_ITS_MIND)
    assert isinstance(scenario.broken, InvariantViolation)
    assert scenario.broken.invariant == "ClassicMembersRejoinOnChanges"
