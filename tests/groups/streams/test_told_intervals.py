"""How soon a member is told to come again, where the policy is responsive."""

from __future__ import annotations

import re

from tests.groups.streams.members import Play

CONFIGURED_MS, WAITING_MS, QUIET_MS = 5000, 500, 1000


def told_ms(lines: list[str]) -> int:
    (found,) = (re.search(r"heartbeat_interval_ms=(\d+)", line) for line in lines if "<-" in line)
    assert found is not None
    return int(found[1])


def test_whoever_waits_comes_again_soon() -> None:
    """For internal topics, and for a task that somebody has to give up; then less often."""
    play = Play(konvene_heartbeat_policy="responsive")
    assert told_ms(play.say("streams-heartbeat ann join topology=0:orders!c0")) == WAITING_MS
    play.say("create")
    play.say("streams-heartbeat ann")
    assert told_ms(play.say("streams-heartbeat ann")) == QUIET_MS
    assert told_ms(play.say("streams-heartbeat bob join topology=0:orders!c0")) == WAITING_MS
    assert told_ms(play.say("streams-heartbeat ann")) == WAITING_MS


def test_whose_source_topic_is_missing_has_all_the_time_that_kafka_gives() -> None:
    """Java's client waits for twice the interval that it was told, and then ends its application."""
    play = Play(konvene_heartbeat_policy="responsive")
    assert told_ms(play.say("streams-heartbeat ann join topology=0:nowhere")) == CONFIGURED_MS
    assert told_ms(play.say("streams-heartbeat ann")) == CONFIGURED_MS
    play.say("topic nowhere partitions=2")
    assert told_ms(play.say("streams-heartbeat ann")) == QUIET_MS
