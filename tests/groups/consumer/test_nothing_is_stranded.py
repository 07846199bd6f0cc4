"""Cases in which Kafka 4.4 leaves partitions without an owner for ever: here each of them is assigned
again."""

from __future__ import annotations

import pytest

from konvene.sim.transcript.scenario import Scenario

RANGE = "reads=orders protocols=range"


def play(*commands: str) -> list[str]:
    scenario = Scenario()
    transcript = scenario.run(["kinds consumer", *commands])
    assert scenario.broken is None, scenario.broken
    return transcript


def test_partitions_are_reassigned_when_an_expression_matches_nothing() -> None:
    """The member that has half of the topic changes to an expression without a match; the other gets it
    back."""
    transcript = play(
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
    assert "assignment=orders:0-5" in transcript[-1], transcript


@pytest.mark.parametrize("subscription", ["topics=orders", "regex=ord.*"])
def test_work_whose_result_does_not_fit_into_the_log_is_repeated(
    subscription: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the work is refused as a whole; the group requests the work again instead of waiting."""
    monkeypatch.setattr("konvene.groups.consumer.targets.OFFLOAD_WEIGHT", 1)
    transcript = play(
        f"consumer-heartbeat ann join {subscription}", "too-large", "work", "consumer-heartbeat ann", "work"
    )
    assert sum(line.startswith("work ") for line in transcript) == 2, transcript
    assert any(line.startswith(("record assignment", "record regex")) for line in transcript), transcript


@pytest.mark.parametrize("policy", ["upgrade", "bidirectional"])
def test_remaining_classic_members_are_reassigned(policy: str) -> None:
    """The last member of the consumer protocol leaves. Whether or not the group may be downgraded, the
    remaining classic member has to rejoin, and gets every partition."""
    transcript = play(
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
    assert transcript[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS", transcript


def test_remaining_classic_members_get_new_partitions() -> None:
    """No member of the consumer protocol is left to notice that the topic grew, and the group may not be
    downgraded: the next heartbeat triggers a rejoin, and the new partition is assigned."""
    transcript = play(
        "config group.consumer.migration.policy=upgrade group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat ann join",
        *(f"join old {RANGE}",) * 2,
        "consumer-heartbeat ann leave",
        *("heartbeat old", f"join old {RANGE} owns=orders:0-5", "sync old", "heartbeat old"),
        "topic orders partitions=7",
        *("heartbeat old", f"join old {RANGE} owns=orders:0-5", "sync old", "heartbeat old"),
    )
    responses = [line for line in transcript if line.startswith("old <-")]
    assert [line.split()[2:4] for line in responses if "Heartbeat" in line] == [
        ["Heartbeat", "REBALANCE_IN_PROGRESS"], ["Heartbeat", "NONE"],
    ] * 2, responses  # fmt: skip
    assert "assignment=orders:0-6" in responses[-2], responses


def test_a_group_upgraded_during_its_first_rebalance_does_not_get_epoch_0() -> None:
    """A member that joins with an unresolved expression bumps no epoch, and must not be answered epoch 0,
    which would mean a join each time."""
    transcript = play(
        "config group.initial.rebalance.delay.ms=3000",
        f"join ann {RANGE} version=3",
        "consumer-heartbeat bob join regex=ord.* topics=-",
        "consumer-heartbeat bob",
    )
    assert any("ann <- JoinGroup REBALANCE_IN_PROGRESS" in line for line in transcript), transcript
    assert "member_epoch=1" in transcript[-1], transcript


def test_a_downgraded_group_rebalances_after_a_coordinator_restart() -> None:
    """The log has the group without the departed member and without a rebalance. No heartbeat would request
    that member's partitions, since the remaining member is at the generation that it knows."""
    transcript = play(
        "config group.consumer.assignment.interval.ms=0",
        "consumer-heartbeat ann join",
        *(f"join old {RANGE}",) * 2,
        "consumer-heartbeat ann owns=told",
        *("heartbeat old", f"join old {RANGE}", "sync old"),
        "consumer-heartbeat ann leave",
        "restart",
        "heartbeat old",
    )
    assert transcript[-1] == "old <- Heartbeat REBALANCE_IN_PROGRESS", transcript
