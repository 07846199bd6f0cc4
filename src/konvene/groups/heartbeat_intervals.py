"""Heartbeat intervals: the interval that a member gets, and how long a response may be held back.

A member learns of a new target only from the response to its heartbeat, so a rebalance takes at least one
interval. Kafka always returns the configured interval to every member (`konvene.heartbeat.policy=kafka`).
With `responsive`, the interval is at most the configured one, and

    konvene.heartbeat.waiting.interval.ms     for a member that owes an acknowledgement, or waits for a
                                              partition or for the next target
    konvene.heartbeat.interval.ms             otherwise, while all members together send no more heartbeats
                                              than konvene.heartbeat.budget.per.second; longer above that

so that small clusters react quickly and large ones behave as Kafka. While share partitions of a share group
are being initialized, which takes milliseconds, the interval of its members is `INITIALIZING_MS`, or as long
as the budget requires. Members of streams groups whose source topics are missing get the configured interval:
their clients give up after twice the interval that they were sent. The interval is not persisted, and
sessions do not depend on it.

The classic protocol has no interval in its responses. A classic member's own interval is estimated from the
times at which its heartbeats arrive (`HeartbeatSpacing`).
"""

from __future__ import annotations

from collections import deque
from zlib import crc32

from konvene.shard.contract import Configs, Context

RESPONSIVE = "responsive"

INITIALIZING_MS = 100
"""Heartbeat interval while share partitions are being initialized."""

STEP_MS = 250
"""Intervals are multiples of this, so that one more member does not change the interval of all others."""


SPREAD = 10
"""A stretched interval is shortened by up to this fraction (1/10), by member."""


def is_responsive(config: Configs) -> bool:
    """Return whether members learn of rebalances sooner than in Kafka."""
    return bool(config["konvene.heartbeat.policy"] == RESPONSIVE)


def resends_assignment(context: Context) -> bool:
    """Return whether the response has the member's assignment although that has not changed.

    librdkafka closes its connection when a heartbeat times out, and repeats the heartbeat without a full
    request. In Kafka it never receives a partition that the lost response contained, if the member epoch has
    not changed. Responsive intervals are shorter, so that time-outs are likelier than in Kafka."""
    return context.may_have_lost_response and is_responsive(context.config)


def initializing_interval_ms(configured_ms: int, config: Configs, members: int) -> int:
    """Return the heartbeat interval of a member while share partitions of its group are being initialized.

    The parameters are those of `heartbeat_interval_ms`."""
    if not is_responsive(config):
        return configured_ms
    waiting_ms: int = config["konvene.heartbeat.waiting.interval.ms"]
    return min(configured_ms, waiting_ms, max(INITIALIZING_MS, _budget_ms(config, members)))


def _budget_ms(config: Configs, members: int) -> int:
    """Return the interval at which so many members send as many heartbeats as the budget allows."""
    budget: int = config["konvene.heartbeat.budget.per.second"]
    return -(-members * 1000 // budget)


def heartbeat_interval_ms(
    configured_ms: int, config: Configs, members: int, *, waits: bool, member_id: str = ""
) -> int:
    """Return the heartbeat interval to send to one member, at most `configured_ms`.

    `members`: the number of members in all groups of the broker; `waits`: the member owes an acknowledgement,
    or waits for a partition or for the next target.

    Thousands of members that joined at the same moment would send all later heartbeats at the same moment.
    Therefore an interval that the budget stretches varies by member id, and the heartbeats spread out."""
    if not is_responsive(config):
        return configured_ms
    if waits:
        waiting_ms: int = config["konvene.heartbeat.waiting.interval.ms"]
        return min(configured_ms, waiting_ms)
    shortest_ms: int = config["konvene.heartbeat.interval.ms"]
    stepped_ms = -(-_budget_ms(config, members) // STEP_MS) * STEP_MS
    interval_ms = min(configured_ms, max(shortest_ms, stepped_ms))
    if not member_id or interval_ms <= shortest_ms:
        return interval_ms
    longest_ms = min(configured_ms, interval_ms + interval_ms // SPREAD)  # Half of the spread is above.
    return longest_ms - crc32(member_id.encode()) % max(longest_ms // SPREAD, 1)


LATE_HEARTBEAT_MS = 500
"""How much later than its interval the next heartbeat of a member that reconnected may come."""


def disconnect_grace_ms(group_type: str, group_config: Configs, config: Configs, members: int) -> int | None:
    """Return within which time a member that lost its connection must send its next heartbeat.

    It is at least one heartbeat interval, since a client that reconnected may have nothing to send before
    that. Return None to leave the session unchanged: if `konvene.session.disconnect.grace.ms` is 0, or if the
    session ends earlier anyway. `members`: the number of members in all groups of the broker."""
    grace: int = config["konvene.session.disconnect.grace.ms"]
    if not grace:
        return None
    configured_ms = group_config[f"{group_type}.heartbeat.interval.ms"]
    interval_ms = heartbeat_interval_ms(configured_ms, config, members, waits=False)
    grace_ms = max(grace, interval_ms + LATE_HEARTBEAT_MS)
    return grace_ms if grace_ms < group_config[f"{group_type}.session.timeout.ms"] else None


def max_hold_ms(interval_ms: int, *, is_static: bool) -> int:
    """Return how long the response to a heartbeat may be held back from a client with this interval.

    At least a fifth of the interval and `LEAST_MARGIN_MS` remain: the Java client spins when a response takes
    a whole interval, and librdkafka times out and never gets the assignment that a lost response contained.
    The close of a static member waits for the response, which is therefore held back for `MOST_STATIC_MS` at
    most."""
    longest_ms = interval_ms - max(interval_ms // 5, LEAST_MARGIN_MS)
    return max(0, min(longest_ms, MOST_STATIC_MS) if is_static else longest_ms)


LEAST_MARGIN_MS = 250
"""The time that a busy machine may need to send a response at the end of its hold."""

MOST_STATIC_MS = 800
"""The longest hold of a response to a static member."""


def max_classic_hold_ms(learnt_ms: int, *, is_static: bool) -> int:
    """Return how long the response to a heartbeat of a classic member may be held back.

    `learnt_ms`: the member's interval as `HeartbeatSpacing` estimates it. It is 0 until it is known, and so
    is the result. kafka-python spins once its interval has passed, and other clients' requests time out after
    five seconds."""
    longest_ms = min(learnt_ms * 9 // 10, MOST_CLASSIC_MS)
    return min(longest_ms, MOST_STATIC_MS) if is_static else longest_ms


MOST_CLASSIC_MS = 4500
"""The longest hold of a response to a classic member."""


class HeartbeatSpacing:
    """An estimate of a classic client's heartbeat interval: the shortest of the last few gaps.

    The gap between two heartbeats counts only if the earlier one was answered at once, since some clients
    measure the interval from the response."""

    __slots__ = ("_answered_ms", "_came_ms", "_gaps")

    def __init__(self) -> None:
        self._gaps: deque[int] = deque(maxlen=GAPS)
        self._came_ms = self._answered_ms = 0

    def __repr__(self) -> str:
        return (
            f"<a heartbeat every {self.learnt_ms} ms>"
            if self.learnt_ms
            else "<heartbeat interval not known yet>"
        )

    @property
    def learnt_ms(self) -> int:
        """Return the estimated interval in milliseconds; 0 until there are `GAPS` gaps."""
        return min(self._gaps) if len(self._gaps) == GAPS else 0

    def came(self, now_ms: int, *, again: bool) -> None:
        """Record the arrival of a heartbeat. `again`: it repeats the previous request of this client."""
        gap_ms = now_ms - self._came_ms
        if again and (self._answered_ms - self._came_ms) * 10 <= gap_ms:
            self._gaps.append(gap_ms)
        self._came_ms = self._answered_ms = now_ms

    def answered(self, now_ms: int) -> None:
        """Record when the response to a heartbeat that was held back was sent."""
        self._answered_ms = now_ms


GAPS = 3
"""How many gaps between heartbeats are needed for an estimate; later ones replace earlier ones."""
