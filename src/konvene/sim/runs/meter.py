"""What is measured of a group: who owns what and since when, why it rebalanced, and what that comes to.

A meter is told what members own, and of each rebalance when it is over. It keeps an account from `begin` to
`end`, exact to the millisecond of virtual time; nothing is sampled. Figures over many seeds are percentiles
by nearest rank: each is a value that was met.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.runtime.ports import ExplainedRebalance
from konvene.sim.world.world import MembershipListener

if TYPE_CHECKING:
    from konvene.sim.invariants.offset_oracle import TopicPartition
    from konvene.sim.members.member import Member

__all__ = ["Measured", "Meter", "Outcome", "Rebalanced", "causes_of", "measures", "percentile"]


@dataclass(slots=True)
class Rebalanced:
    """A generation that the group came to. Times are seconds; `at_s` counts from the beginning."""

    at_s: float
    took_s: float
    state: str
    causes: tuple[str, ...]
    moved: int = 0
    """Partitions that another member has than the one that had them last."""


@dataclass(slots=True)
class Outcome:
    """What came of a plan with one seed."""

    seed: int
    stable_after_s: float = 0.0
    """How long it took until all that were started at first were in."""
    rebalances: list[Rebalanced] = field(default_factory=list)
    unavailable_s: float = 0.0
    """Summed over partitions."""
    outages_ms: Counter[int] = field(default_factory=Counter)
    """How long partitions were unavailable at a time: how often each length was met."""
    most_unavailable: int = 0
    idle_s: float = 0.0
    """Summed over members: alive, and owning nothing."""
    killed: int = 0
    restarted: int = 0
    failovers: int = 0
    stopped: int = 0
    timeline: list[tuple[float, int]] = field(default_factory=list)
    """When how many partitions became unavailable."""
    steps: int = 0
    wall_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = dataclasses.asdict(self)
        told["outages"] = sum(self.outages_ms.values())
        del told["timeline"], told["outages_ms"]
        return told


class Meter(MembershipListener):
    """Keeps an account of who owns what, from `begin` on."""

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
        self.told: list[ExplainedRebalance] = []
        """What the coordinator explained, from the very beginning."""

    def clock(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def begin(self) -> None:
        """From now on it counts."""
        self._began_ms = self._at_ms = self._now_ms()
        self._since = dict.fromkeys(self._since, self._began_ms)
        self._outcome.timeline.append((0.0, self.missing))

    def end(self) -> None:
        """It is over; what is unavailable now was so until now."""
        self._pass()
        for since_ms in self._since.values():
            self._outcome.outages_ms[self._at_ms - since_ms] += 1

    def _pass(self) -> None:
        """Time has passed in which nothing changed."""
        now_ms = self._now_ms()
        if self._began_ms >= 0:
            passed_s = (now_ms - self._at_ms) / 1000
            self._outcome.unavailable_s += passed_s * self.missing
            self._outcome.idle_s += passed_s * len(self._idle)
        self._at_ms = now_ms

    # --- what it is told ---

    def started(self, member: Member) -> None:
        self._pass()
        self._alive.add(member)
        self._idle.add(member)

    def died(self, member: Member) -> None:
        self._pass()
        self._alive.discard(member)
        self._idle.discard(member)

    def owned(self, member: Member, added: int, gone: int) -> None:
        now_ms = self._now_ms()
        self._pass()
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
        self._note(now_ms)

    def _available(self, tp: TopicPartition, now_ms: int) -> None:
        since_ms = self._since.pop(tp, None)
        if since_ms is not None and self._began_ms >= 0:
            self._outcome.outages_ms[now_ms - since_ms] += 1

    def _moved(self, tp: TopicPartition, member: Member) -> None:
        rebalances = self._outcome.rebalances
        if self._last.get(tp, member) is not member and rebalances:
            rebalances[-1].moved += 1
        self._last[tp] = member

    def _note(self, now_ms: int) -> None:
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
        self.told.append(explained)
        if self._began_ms < 0:
            return
        story = explained.rebalance.story
        self._outcome.rebalances.append(
            Rebalanced(
                (self._now_ms() - self._began_ms) / 1000,
                max(0, story.ended_ms - story.started_ms) / 1000,
                story.state,
                tuple(cause.kind for cause in story.causes) + ("left out",) * story.causes_left_out,
            )
        )


# --- what it comes to ----------------------------------------------------------------------------


class Measured(NamedTuple):
    """A row of the result, over all seeds. `per`: what has such a value, a run, a rebalance or an outage."""

    name: str
    per: str
    unit: str
    p50: float
    p99: float
    most: float
    values: int
    """How many there were."""


def percentile(values: Counter[float], part: float) -> float:
    """The least value that so large a part of them does not exceed; 0 where there are none."""
    rank = part * sum(values.values())
    seen = 0
    for value in sorted(values):
        seen += values[value]
        if seen >= rank:
            return value
    return 0.0


def measures(partitions: int, minutes: float, outcomes: Sequence[Outcome]) -> list[Measured]:
    """The rows of the result, for so many partitions and minutes."""
    all_s = partitions * minutes * 60
    rebalances = [each for o in outcomes for each in o.rebalances]
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
    """Why there were rebalances: each cause, in how many rebalances it is named, and how often."""
    named: Counter[str] = Counter()
    took_part: Counter[str] = Counter()
    for outcome in outcomes:
        for rebalance in outcome.rebalances:
            named.update(rebalance.causes)
            took_part.update(set(rebalance.causes))
    return sorted(((c, took_part[c], named[c]) for c in named), key=lambda row: (-row[1], row[0]))
