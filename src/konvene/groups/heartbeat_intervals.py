"""How soon a member is told to send its next heartbeat.

A member hears of a new target only by the answer to its heartbeat, so the interval between two is what a
rebalance waits for. Kafka tells everybody the configured one, always (`konvene.heartbeat.policy=kafka`). With
`responsive` it is, and never above the configured one,

    konvene.heartbeat.waiting.interval.ms     of a member that owes an acknowledgement, or waits: for a
                                              partition, or for the next target
    konvene.heartbeat.interval.ms             else, while all members together send no more heartbeats than
                                              konvene.heartbeat.budget.per.second; then longer

so that small clusters are quick and large ones behave as Kafka. Members of streams groups whose source topics
are missing are told the configured one: their clients give up after twice as long as they are told. Nothing
of this is written down, and nothing rests on it: sessions are as long as configured.

Members of classic groups are told nothing. They have an interval of their own, which can only be learnt from
when their heartbeats come (`HeartbeatSpacing`).
"""

from __future__ import annotations

from collections import deque
from typing import Any
from zlib import crc32

RESPONSIVE = "responsive"

STEP_MS = 250
"""Intervals are told in steps, so that one more member does not change everybody's."""


SPREAD = 10
"""Where intervals are stretched, each member's own is up to this part of it shorter."""


def heartbeat_interval_ms(
    configured_ms: int, config: Any, members: int, *, waits: bool, member_id: str = ""
) -> int:
    """The interval for one member. `members`: how many there are in all groups of the broker.

    Thousands who joined in the same moment would heartbeat in the same moment ever after. So where there are
    that many, each has an interval that is its own by its id, and after some of them they are apart."""
    if config["konvene.heartbeat.policy"] != RESPONSIVE:
        return configured_ms
    if waits:
        waiting_ms: int = config["konvene.heartbeat.waiting.interval.ms"]
        return min(configured_ms, waiting_ms)
    shortest_ms: int = config["konvene.heartbeat.interval.ms"]
    budget: int = config["konvene.heartbeat.budget.per.second"]
    needed_ms = -(-members * 1000 // budget)
    stepped_ms = -(-needed_ms // STEP_MS) * STEP_MS
    told_ms = min(configured_ms, max(shortest_ms, stepped_ms))
    if not member_id or told_ms <= shortest_ms:
        return told_ms
    longest_ms = min(configured_ms, told_ms + told_ms // SPREAD)  # Half of the spread is above.
    return longest_ms - crc32(member_id.encode()) % max(longest_ms // SPREAD, 1)


AFTER_THE_INTERVAL_MS = 500
"""How much later than expected the heartbeat of a member may come that is on another connection now."""


def disconnect_grace_ms(kind: str, group_config: Any, config: Any, members: int) -> int | None:
    """How long a member of that kind of group has to be heard of again that lost its connection.

    Not less than a heartbeat's interval, for a client that is back may have nothing to say before. None where
    its session counts as ever: `konvene.session.disconnect.grace.ms` is not set, or longer."""
    grace: int = config["konvene.session.disconnect.grace.ms"]
    if not grace:
        return None
    configured_ms = group_config[f"{kind}.heartbeat.interval.ms"]
    interval_ms = heartbeat_interval_ms(configured_ms, config, members, waits=False)
    left_ms = max(grace, interval_ms + AFTER_THE_INTERVAL_MS)
    return left_ms if left_ms < group_config[f"{kind}.session.timeout.ms"] else None


def max_hold_ms(told_ms: int, *, is_static: bool) -> int:
    """How long the answer to a heartbeat may be kept from a client that was told this interval.

    A fifth of it stays: librdkafka gives up on an answer that takes as long as the interval, and Java's
    client spins. A static member's close waits for the answer, so its own is not kept for long."""
    longest_ms = told_ms - max(told_ms // 5, 100)
    return max(0, min(longest_ms, MOST_STATIC_MS) if is_static else longest_ms)


MOST_STATIC_MS = 800


def max_classic_hold_ms(learnt_ms: int, *, is_static: bool) -> int:
    """The same for a member of a classic group, whose interval was learnt; 0: it is not known yet.

    kafka-python's client spins from its interval on, and other requests time out at five seconds."""
    longest_ms = min(learnt_ms * 9 // 10, MOST_CLASSIC_MS)
    return min(longest_ms, MOST_STATIC_MS) if is_static else longest_ms


MOST_CLASSIC_MS = 4500


class HeartbeatSpacing:
    """The interval of a client that nobody tells one: the shortest of the last gaps between its heartbeats.

    A gap counts if the heartbeat before it was answered at once, for some clients count from the answer."""

    __slots__ = ("_answered_ms", "_came_ms", "_gaps")

    def __init__(self) -> None:
        self._gaps: deque[int] = deque(maxlen=GAPS)
        self._came_ms = self._answered_ms = 0

    def __repr__(self) -> str:
        return f"<a heartbeat every {self.learnt_ms} ms>" if self.learnt_ms else "<a spacing to be learnt>"

    @property
    def learnt_ms(self) -> int:
        """0 while it is not known."""
        return min(self._gaps) if len(self._gaps) == GAPS else 0

    def came(self, now_ms: int, *, again: bool) -> None:
        """A heartbeat came. `again`: the same as the one before, and none was between them."""
        gap_ms = now_ms - self._came_ms
        if again and (self._answered_ms - self._came_ms) * 10 <= gap_ms:
            self._gaps.append(gap_ms)
        self._came_ms = self._answered_ms = now_ms

    def answered(self, now_ms: int) -> None:
        """Only now, for it was held."""
        self._answered_ms = now_ms


GAPS = 3
