"""Heartbeat intervals of streams group members with the responsive policy."""

from __future__ import annotations

import re

from tests.groups.streams.members import Play

CONFIGURED_MS, WAITING_MS, QUIET_MS = 5000, 500, 1000


def heartbeat_interval_ms(lines: list[str]) -> int:
    (found,) = (re.search(r"heartbeat_interval_ms=(\d+)", line) for line in lines if "<-" in line)
    assert found is not None
    return int(found[1])


def test_waiting_members_get_a_short_interval() -> None:
    """While internal topics are created, and while a task is revoked; then the interval is longer."""
    play = Play(konvene_heartbeat_policy="responsive")
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann join topology=0:orders!c0")) == WAITING_MS
    play.run("create")
    play.run("streams-heartbeat ann")
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann")) == QUIET_MS
    assert heartbeat_interval_ms(play.run("streams-heartbeat bob join topology=0:orders!c0")) == WAITING_MS
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann")) == WAITING_MS


def test_members_without_their_source_topic_get_kafkas_interval() -> None:
    """Java's client waits for twice its heartbeat interval and then closes its application."""
    play = Play(konvene_heartbeat_policy="responsive")
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann join topology=0:nowhere")) == CONFIGURED_MS
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann")) == CONFIGURED_MS
    play.run("topic nowhere partitions=2")
    assert heartbeat_interval_ms(play.run("streams-heartbeat ann")) == QUIET_MS
