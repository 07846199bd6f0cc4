"""Partitions that nobody would be told of: ways in which Kafka 4.4 leaves some without an owner for ever."""

from __future__ import annotations

import pytest

from konvene.sim.transcript.scenario import Scenario

RANGE = "reads=orders protocols=range"


def played(*commands: str) -> list[str]:
    scenario = Scenario()
    said = scenario.run(["kinds consumer", *commands])
    assert scenario.broken is None, scenario.broken
    return said


def test_an_expression_that_matches_nothing_hands_on_what_was_read_before() -> None:
    """Who has a half reads an expression from now on that matches no topic: the other one gets it back."""
    said = played(
        "config group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat bob join",
        "consumer-heartbeat ann join regex=ord.* topics=-",
        "work",
        "consumer-heartbeat bob",
        "consumer-heartbeat bob owns=-",
        "consumer-heartbeat ann",
        "advance 11000",
        "consumer-heartbeat ann regex=nothing",
        "consumer-heartbeat ann owns=-",
        "work",
        "consumer-heartbeat bob",
    )
    assert "assignment=orders:0-5" in said[-1], said


@pytest.mark.parametrize("what", ["topics=orders", "regex=ord.*"])
def test_work_that_does_not_fit_into_the_log_is_done_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came of it is refused whole; the group asks once more, and does not wait for ever."""
    monkeypatch.setattr("konvene.groups.consumer.targets.HEAVY", 1)
    said = played(
        f"consumer-heartbeat ann join {what}", "too-large", "work", "consumer-heartbeat ann", "work"
    )
    assert sum(line.startswith("work ") for line in said) == 2, said
    assert any(line.startswith(("record assignment", "record regex")) for line in said), said


@pytest.mark.parametrize("policy", ["upgrade", "bidirectional"])
def test_classic_members_who_are_left_alone_are_assigned_anew(policy: str) -> None:
    """The last member of the new protocol leaves; whether or not the group may be a classic one again, who is
    left is told to rejoin, and gets everything."""
    said = played(
        f"config group.consumer.migration.policy={policy} group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat ann join",
        f"join old {RANGE}",
        f"join old {RANGE}",
        "consumer-heartbeat ann owns=told",
        "consumer-heartbeat ann owns=told",
        "sync old",
        "consumer-heartbeat ann leave",
        "heartbeat old",
    )
    assert said[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS", said


def test_classic_members_who_are_alone_see_new_partitions() -> None:
    """Nobody of the new protocol is left to see that the topic grew, and the group may not be a classic one
    again: the next heartbeat tells to rejoin, and the new partition is somebody's."""
    said = played(
        "config group.consumer.migration.policy=upgrade group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat ann join",
        *(f"join old {RANGE}",) * 2,
        "consumer-heartbeat ann leave",
        *("heartbeat old", f"join old {RANGE} owns=orders:0-5", "sync old", "heartbeat old"),
        "topic orders partitions=7",
        *("heartbeat old", f"join old {RANGE} owns=orders:0-5", "sync old", "heartbeat old"),
    )
    said = [line for line in said if line.startswith("old <-")]
    assert [line.split()[2:4] for line in said if "Heartbeat" in line] == [
        ["Heartbeat", "REBALANCE_IN_PROGRESS"], ["Heartbeat", "NONE"],
    ] * 2, said  # fmt: skip
    assert "assignment=orders:0-6" in said[-2], said


def test_a_group_whose_first_generation_is_still_being_made_is_not_upgraded_to_an_epoch_of_0() -> None:
    """Who came with an expression that is not resolved yet moves no epoch, and must not be told 0: that would
    be a join each time."""
    said = played(
        "config group.initial.rebalance.delay.ms=3000",
        f"join ann {RANGE} version=3",
        "consumer-heartbeat bob join regex=ord.* topics=-",
        "consumer-heartbeat bob",
    )
    assert any("ann <- JoinGroup REBALANCE_IN_PROGRESS" in line for line in said), said
    assert "member_epoch=1" in said[-1], said


def test_a_group_that_went_back_rebalances_though_its_coordinator_starts_anew() -> None:
    """The log has the group without who left, and without a rebalance: nobody would ask for what that one
    had, for who is left is at the generation that it knows."""
    said = played(
        "config group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat ann join",
        *(f"join old {RANGE}",) * 2,
        "consumer-heartbeat ann owns=told",
        *("heartbeat old", f"join old {RANGE}", "sync old"),
        "consumer-heartbeat ann leave",
        "restart",
        "heartbeat old",
    )
    assert said[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS", said
