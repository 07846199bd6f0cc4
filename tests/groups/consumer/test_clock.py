"""A wall clock that is set back does not delay a consumer group.

The times of the last target computation and of the last regex resolution are wall-clock times, since they are
in
the log. In Kafka a group waits until the clock has caught up with them.
"""

from __future__ import annotations

from konvene.sim.transcript.scenario import Scenario

AN_HOUR_BACK = "clock -3600000"


def test_a_target_is_computed_although_the_last_ones_time_is_in_the_future() -> None:
    """The assignment interval is one second, and the clock goes back by an hour."""
    scenario = Scenario()
    scenario.run(
        ["kinds consumer", "config group.consumer.assignment.interval.ms=1000", "consumer-heartbeat ann join"]
    )
    transcript = scenario.run([AN_HOUR_BACK, "advance 100", "consumer-heartbeat bob join", "show g"])
    assert any("record assignment g epoch 3" in line for line in transcript), transcript


def test_expressions_are_resolved_although_the_last_resolution_is_in_the_future() -> None:
    """Expressions are resolved at most every ten seconds, and the clock goes back by an hour."""
    scenario = Scenario()
    scenario.run(["kinds consumer", "consumer-heartbeat ann join regex=ord.*", "work"])
    transcript = scenario.run([AN_HOUR_BACK, "consumer-heartbeat bob join regex=aud.*"])
    assert any(line.startswith("work resolve-regexes g") for line in transcript), transcript
