"""What many rebalances come to: which groups are worst, when there were storms, who rebalances most.

Worst is what nobody read for the longest: partition-seconds without an owner, then the number of
rebalances. A storm is what `group_health` calls one: five rebalances or more in ten minutes, for as long as
that lasts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from konvene.groups.history import duration
from konvene.pipeline.answers.advice import Advice, Facts, advise
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.shard.causes import WARMUP_CAUGHT_UP

__all__ = ["Group", "Storm", "Summary", "Troubled", "storms", "summarise"]

STORM = 5
STORM_MS = 600_000
MOST_ADVISED = 50
"""Only so many of the worst groups are looked at for advice."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group, by what it went through."""

    cluster: str
    group_id: str
    group_type: str
    rebalances: int
    members: int
    """After the last rebalance."""
    median_ms: int | None
    slowest_ms: int | None
    unavailable_ms: int | None
    """None where the log does not tell it of any rebalance."""
    moved: int
    storms: int
    causes: tuple[tuple[str, int], ...]
    """Kinds and how often, most frequent first."""

    @property
    def state(self) -> str:
        return f"{self.rebalances} rebalances"


@dataclass(frozen=True, slots=True)
class Storm:
    """A time without rest."""

    cluster: str
    group_id: str
    from_ms: int
    to_ms: int
    rebalances: int

    def __str__(self) -> str:
        return f"{self.group_id}: {self.rebalances} rebalances in {duration(self.to_ms - self.from_ms)}"


@dataclass(frozen=True, slots=True)
class Troubled:
    """A client that sets off rebalances."""

    group_id: str
    name: str
    """Its instance id, else its client id, else its member id."""
    rebalances: int
    of: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    groups: tuple[Group, ...]
    """Worst first."""
    storms: tuple[Storm, ...]
    """Newest first."""
    troubled: tuple[Troubled, ...]
    """Those who set off two rebalances or more, most first."""
    advice: tuple[Advice, ...]
    rebalances: int
    from_ms: int
    to_ms: int

    @property
    def unavailable_ms(self) -> int:
        return sum(each.unavailable_ms or 0 for each in self.groups)

    def document(self) -> dict[str, Any]:
        return {
            "rebalances": self.rebalances, "groups": len(self.groups), "from_ms": self.from_ms,
            "to_ms": self.to_ms, "unavailable_ms": self.unavailable_ms,
            "advice": [each.document() for each in self.advice],
        }  # fmt: skip


def summarise(gold: Gold, wanted: Selection, told: Sequence[Rebalance] | None = None) -> Summary:
    """Of what is asked for. `told`: those rebalances, where somebody has them already."""
    told = gold.select(wanted) if told is None else told
    by_group: dict[tuple[str, str], list[Rebalance]] = defaultdict(list)
    for each in reversed(told):
        by_group[each.cluster, each.group_id].append(each)
    found_storms = [storm for each in by_group.values() for storm in storms(each)]
    groups = sorted(
        (_group(each, found_storms) for each in by_group.values()),
        key=lambda g: (-(g.unavailable_ms or 0), -g.rebalances, g.cluster, g.group_id),
    )
    worst = [g for g in groups if g.rebalances > 1][:MOST_ADVISED]
    times = [ms for each in told for ms in (each.at_ms, each.until_ms) if ms >= 0]
    return Summary(
        groups=tuple(groups),
        storms=tuple(sorted(found_storms, key=lambda s: (-s.to_ms, s.group_id))),
        troubled=tuple(_troubled(by_group.values())),
        advice=tuple(_advice(gold, worst, by_group)),
        rebalances=len(told),
        from_ms=min(times, default=-1),
        to_ms=max(times, default=-1),
    )


def storms(told: Sequence[Rebalance]) -> list[Storm]:
    """Those of one group; `told` oldest first. That a warm-up caught up is a step of an older one."""
    told = [r for r in told if r.cause != WARMUP_CAUGHT_UP]
    found: list[Storm] = []
    current: list[Rebalance] = []
    for i in range(STORM - 1, len(told)):
        window = told[i - STORM + 1 : i + 1]
        if window[-1].at_ms - window[0].at_ms > STORM_MS or window[0].at_ms < 0:
            continue
        fresh = window if not current or window[0].at_ms > current[-1].at_ms else [told[i]]
        if len(fresh) > 1 and current:
            found.append(_storm(current))
            current = []
        current.extend(fresh)
    return [*found, *([_storm(current)] if current else [])]


def _storm(told: Sequence[Rebalance]) -> Storm:
    return Storm(told[0].cluster, told[0].group_id, told[0].at_ms, told[-1].until_ms, len(told))


def _group(told: Sequence[Rebalance], found: Iterable[Storm]) -> Group:
    last = told[-1]
    took = sorted(r.duration_ms for r in told if r.duration_ms is not None and r.converged)
    known = [r.unavailable_ms for r in told if r.unavailable_ms is not None]
    here = [s for s in found if (s.cluster, s.group_id) == (last.cluster, last.group_id)]
    return Group(
        cluster=last.cluster,
        group_id=last.group_id,
        group_type=last.group_type,
        rebalances=len(told),
        members=last.members,
        median_ms=took[len(took) // 2] if took else None,
        slowest_ms=took[-1] if took else None,
        unavailable_ms=sum(known) if known else None,
        moved=sum(r.moved for r in told),
        storms=len(here),
        causes=tuple(Counter(r.cause for r in told).most_common()),
    )


def _troubled(groups: Iterable[Sequence[Rebalance]]) -> list[Troubled]:
    found = []
    for told in groups:
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        for r in told:
            for name, kind in {(_name(c), c.kind) for c in r.all_causes if _name(c)}:
                kinds[name][kind] += 1
        for name, counts in sorted(kinds.items()):
            rebalances = sum(1 for r in told if any(_name(c) == name for c in r.all_causes))
            if rebalances > 1:
                ranked = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
                found.append(Troubled(told[-1].group_id, name, rebalances, len(told), ranked))
    return sorted(found, key=lambda t: (-t.rebalances, t.group_id, t.name))


def _name(cause: Any) -> str:
    return cause.instance_id or cause.client_id or cause.member_id or ""


def _advice(
    gold: Gold, worst: Sequence[Group], by_group: dict[tuple[str, str], list[Rebalance]]
) -> list[Advice]:
    found: list[Advice] = []
    names = sorted({g.group_id for g in worst})
    if not names:
        return found
    members, gaps = _by_group(gold, "rebalance_member", names), _by_group(gold, "unavailability", names)
    for g in worst:
        key = (g.cluster, g.group_id)
        found += advise(g.group_id, Facts(by_group[key], members[key], gaps[key]))
    return sorted(found, key=lambda a: (-a.weight_ms, a.group, a.rule))


def _by_group(gold: Gold, table: str, names: Sequence[str]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in gold.rows(table, names):
        found[row["cluster"], row["group_id"]].append(row)
    return found
