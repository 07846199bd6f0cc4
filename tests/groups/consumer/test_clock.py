"""A wall clock that is set back does not hold a consumer group up.

When the last target was computed, and when expressions were looked at last, is told by the wall clock, since
it stands in the log. In Kafka a group waits until the clock is where it was.
"""

from __future__ import annotations

from konvene.sim.transcript.scenario import Scenario

AN_HOUR_BACK = "clock -3600000"


def test_a_target_is_computed_though_the_last_one_is_of_a_time_to_come() -> None:
    """The assignment interval is a second; the clock goes back by an hour."""
    scenario = Scenario()
    scenario.run(
        ["kinds consumer", "config group.consumer.assignment.interval.ms=1000", "consumer-heartbeat ann join"]
    )
    said = scenario.run([AN_HOUR_BACK, "advance 100", "consumer-heartbeat bob join", "show g"])
    assert any("record assignment g epoch 3" in line for line in said), said


def test_expressions_are_looked_at_though_the_last_time_is_to_come() -> None:
    """They are not looked at twice in ten seconds; the clock goes back by an hour."""
    scenario = Scenario()
    scenario.run(["kinds consumer", "consumer-heartbeat ann join regex=ord.*", "work"])
    said = scenario.run([AN_HOUR_BACK, "consumer-heartbeat bob join regex=aud.*"])
    assert any(line.startswith("work resolve-regexes g") for line in said), said
