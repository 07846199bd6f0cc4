"""Measures a group: ownership over time, rebalances with their causes, and the resulting figures.

A meter receives every change of ownership and every completed rebalance. It accounts from `begin` to `end`,
exact to the millisecond of virtual time, without sampling. Figures over many seeds are nearest-rank
percentiles: each is a value that occurred.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from konvene.runtime.ports import ExplainedRebalance
from konvene.sim.world.world import MembershipListener

if TYPE_CHECKING:
    from konvene.sim.invariants.offset_oracle import TopicPartition
    from konvene.sim.members.member import Member

__all__ = ["Measured", "Meter", "Outcome", "Rebalanced", "causes_of", "measures", "percentile"]


@dataclass(slots=True)
class Rebalanced:
    """A rebalance that ended with a new generation or group epoch: when, how long it took, and its causes.

    Times are seconds; `at_s` counts from the beginning of the measurement."""

    at_s: float
    took_s: float
    state: str
    causes: tuple[str, ...]
    moved: int = 0
    """Number of partitions that got another owner than their previous one."""


@dataclass(slots=True)
class Outcome:
    """The figures that a `Meter` measured in one run of a plan, that is with one seed."""

    seed: int
    stable_after_s: float = 0.0
    """Time until all initial members had joined."""
    rebalances: list[Rebalanced] = field(default_factory=list)
    unavailable_s: float = 0.0
    """Unavailable time, summed over partitions."""
    outages_ms: Counter[int] = field(default_factory=Counter)
    """Durations of outages of single partitions, with their counts."""
    most_unavailable: int = 0
    idle_s: float = 0.0
    """Time alive without partitions, summed over members."""
    killed: int = 0
    restarted: int = 0
    failovers: int = 0
    stopped: int = 0
    timeline: list[tuple[float, int]] = field(default_factory=list)
    """Times and numbers of unavailable partitions at each change."""
    steps: int = 0
    wall_s: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as a JSON object, without the timeline and with the number of outages."""
        fields = dataclasses.asdict(self)
        fields["outages"] = sum(self.outages_ms.values())
        del fields["timeline"], fields["outages_ms"]
        return fields


class Meter(MembershipListener):
    """A listener that measures the ownership and rebalances of one group, from `begin` to `end`."""

    def __init__(self, outcome: Outcome, partitions: int) -> None:
        self._outcome = outcome
        self._now_ms: Callable[[], int] = lambda: 0
        self._began_ms = -1
        self._at_ms = 0
        self._held: dict[Member, set[TopicPartition]] = {}
        self._owners: Counter[TopicPartition] = Counter()
        self._last: dict[TopicPartition, Member] = {}
        self._since: dict[TopicPartition, int] = {}
        self._idle: set[Member] = set()
        self._alive: set[Member] = set()
        self.missing = partitions
        self.explained_rebalances: list[ExplainedRebalance] = []
        """All explained rebalances, also those before `begin`."""

    def clock(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def begin(self) -> None:
        """Start the measurement; changes before it only set the initial ownership and are not measured."""
        self._began_ms = self._at_ms = self._now_ms()
        self._since = dict.fromkeys(self._since, self._began_ms)
        self._outcome.timeline.append((0.0, self.missing))

    def end(self) -> None:
        """End the measurement; outages that have not ended count until now."""
        self._account()
        for since_ms in self._since.values():
            self._outcome.outages_ms[self._at_ms - since_ms] += 1

    def _account(self) -> None:
        """Add the time since the last call, once for each partition without an owner to `unavailable_s`, and
        once for each member without partitions to `idle_s`."""
        now_ms = self._now_ms()
        if self._began_ms >= 0:
            passed_s = (now_ms - self._at_ms) / 1000
            self._outcome.unavailable_s += passed_s * self.missing
            self._outcome.idle_s += passed_s * len(self._idle)
        self._at_ms = now_ms

    # --- events ---

    def started(self, member: Member) -> None:
        self._account()
        self._alive.add(member)
        self._idle.add(member)

    def died(self, member: Member) -> None:
        self._account()
        self._alive.discard(member)
        self._idle.discard(member)

    def owned(self, member: Member, added: int, removed: int) -> None:
        now_ms = self._now_ms()
        self._account()
        before, after = self._held.get(member, set()), member.owned
        self._held[member] = after
        for tp in before - after:
            self._owners[tp] -= 1
            if not self._owners[tp]:
                self.missing += 1
                self._since[tp] = now_ms
        for tp in after - before:
            self._owners[tp] += 1
            if self._owners[tp] == 1:
                self.missing -= 1
                self._available(tp, now_ms)
            self._moved(tp, member)
        if member in self._alive:
            (self._idle.discard if after else self._idle.add)(member)
        self._record_timeline(now_ms)

    def _available(self, tp: TopicPartition, now_ms: int) -> None:
        since_ms = self._since.pop(tp, None)
        if since_ms is not None and self._began_ms >= 0:
            self._outcome.outages_ms[now_ms - since_ms] += 1

    def _moved(self, tp: TopicPartition, member: Member) -> None:
        rebalances = self._outcome.rebalances
        if self._last.get(tp, member) is not member and rebalances:
            rebalances[-1].moved += 1
        self._last[tp] = member

    def _record_timeline(self, now_ms: int) -> None:
        if self._began_ms < 0:
            return
        outcome, at_s = self._outcome, (now_ms - self._began_ms) / 1000
        outcome.most_unavailable = max(outcome.most_unavailable, self.missing)
        timeline = outcome.timeline
        if timeline and timeline[-1][0] == at_s:
            timeline[-1] = (at_s, self.missing)
        elif not timeline or timeline[-1][1] != self.missing:
            timeline.append((at_s, self.missing))

    def explained(self, explained: ExplainedRebalance) -> None:
        self.explained_rebalances.append(explained)
        if self._began_ms < 0:
            return
        trace = explained.rebalance.value
        self._outcome.rebalances.append(
            Rebalanced(
                (self._now_ms() - self._began_ms) / 1000,
                max(0, trace.ended_ms - trace.started_ms) / 1000,
                trace.state,
                tuple(cause.kind for cause in trace.causes) + ("left out",) * trace.causes_left_out,
            )
        )


# --- results -----------------------------------------------------------------------------


class Measured(NamedTuple):
    """A row of the result of a plan: median, 99th percentile and maximum of one measure over all seeds.

    `per` is "run", "rebalance" or "outage": the measure has one value for each of these."""

    name: str
    per: str
    unit: str
    p50: float
    p99: float
    most: float
    values: int
    """Number of values."""


def percentile(values: Counter[float], part: float) -> float:
    """Return the nearest-rank percentile of counted values; 0 if there are none.

    `part` is from 0 to 1."""
    rank = part * sum(values.values())
    rank_reached = 0
    for value in sorted(values):
        rank_reached += values[value]
        if rank_reached >= rank:
            return value
    return 0.0


def measures(partitions: int, minutes: float, outcomes: Sequence[Outcome]) -> list[Measured]:
    """Return the rows of the result of a plan with this many partitions and minutes, from its outcomes with
    all seeds."""
    all_s = partitions * minutes * 60
    rebalances = [rebalance for o in outcomes for rebalance in o.rebalances]
    outages: Counter[float] = Counter()
    for o in outcomes:
        for ms, count in o.outages_ms.items():
            outages[ms / 1000] += count
    rows: list[tuple[str, str, str, Counter[float]]] = [
        ("rebalances", "run", "", Counter(len(o.rebalances) for o in outcomes)),
        ("time to stable", "rebalance", "s", Counter(r.took_s for r in rebalances if r.state == "Stable")),
        ("partitions moved", "run", "", Counter(sum(r.moved for r in o.rebalances) for o in outcomes)),
        ("partitions moved", "rebalance", "", Counter(r.moved for r in rebalances)),
        ("partition-seconds unavailable", "run", "s", Counter(round(o.unavailable_s, 3) for o in outcomes)),
        ("unavailable", "run", "%", Counter(round(100 * o.unavailable_s / all_s, 3) for o in outcomes)),
        ("unavailable at once", "run", "", Counter(o.most_unavailable for o in outcomes)),
        ("unavailable for", "outage", "s", outages),
        ("member-seconds idle", "run", "s", Counter(round(o.idle_s, 3) for o in outcomes)),
    ]
    return [
        Measured(name, per, unit, percentile(values, 0.5), percentile(values, 0.99), max(values, default=0),
                 sum(values.values()))
        for name, per, unit, values in rows
    ]  # fmt: skip


def causes_of(outcomes: Iterable[Outcome]) -> list[tuple[str, int, int]]:
    """Return (cause, number of rebalances that have it, number of times that it occurs in them) for each
    cause of the outcomes' rebalances, sorted by the number of rebalances, most first."""
    mentions: Counter[str] = Counter()
    rebalances_by_cause: Counter[str] = Counter()
    for outcome in outcomes:
        for rebalance in outcome.rebalances:
            mentions.update(rebalance.causes)
            rebalances_by_cause.update(set(rebalance.causes))
    return sorted(
        ((c, rebalances_by_cause[c], mentions[c]) for c in mentions), key=lambda row: (-row[1], row[0])
    )
