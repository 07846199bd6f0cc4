"""Summary of many rebalances: the groups with the highest cost, storms, and the clients that trigger most.

Groups are ranked by partition-seconds without an owner, then by the number of rebalances. A storm is what the
table `group_health` calls one: five or more rebalances in ten minutes, for as long as that lasts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from konvene.groups.history import duration
from konvene.pipeline.answers.advice import Advice, Facts, advise
from konvene.pipeline.answers.damage import Damage
from konvene.pipeline.answers.rebalance import Cause, Rebalance, Selection
from konvene.plurals import counted
from konvene.shard.causes import WARMUP_CAUGHT_UP

if TYPE_CHECKING:
    from konvene.pipeline.answers.gold import Gold

__all__ = ["Group", "Storm", "Summary", "TriggeringClient", "storms", "summarise"]

STORM_REBALANCES = 5
STORM_MS = 600_000
MAX_ADVISED_GROUPS = 50
"""Advice is computed for this many groups, the most expensive ones."""


@dataclass(frozen=True, slots=True)
class Group:
    """Totals of one group's rebalances."""

    cluster: str
    group_id: str
    group_type: str
    rebalances: int
    members: int
    """Number of members after the last rebalance."""
    median_ms: int | None
    slowest_ms: int | None
    unavailable_ms: int | None
    """None if no rebalance of the group has a known value."""
    moved: int
    storms: int
    causes: tuple[tuple[str, int], ...]
    """Kinds and counts, most frequent first."""

    @property
    def state(self) -> str:
        return counted(self.rebalances, "rebalance")


@dataclass(frozen=True, slots=True)
class Storm:
    """A period in which a group rebalanced five or more times within ten minutes."""

    cluster: str
    group_id: str
    from_ms: int
    to_ms: int
    rebalances: int

    def __str__(self) -> str:
        rebalances = counted(self.rebalances, "rebalance")
        return f"{self.group_id}: {rebalances} in {duration(self.to_ms - self.from_ms)}"


@dataclass(frozen=True, slots=True)
class TriggeringClient:
    """A client of one group, with the number and causes of the rebalances that it triggered."""

    cluster: str
    group_id: str
    name: str
    """Its instance id, else its client id, else its member id."""
    rebalances: int
    of: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals, rankings and advice for the selected rebalances."""

    groups: tuple[Group, ...]
    """Most expensive first."""
    storms: tuple[Storm, ...]
    """Newest first."""
    triggering: tuple[TriggeringClient, ...]
    """Clients that triggered two or more rebalances, most first."""
    advice: tuple[Advice, ...]
    rebalances: int
    from_ms: int
    to_ms: int
    damage: tuple[Damage, ...] = ()
    """What of the logs could not be read, as far as it may concern these groups."""

    @property
    def unavailable_ms(self) -> int:
        return sum(each.unavailable_ms or 0 for each in self.groups)

    def document(self) -> dict[str, object]:
        return {
            "rebalances": self.rebalances, "groups": len(self.groups), "from_ms": self.from_ms,
            "to_ms": self.to_ms, "unavailable_ms": self.unavailable_ms,
            "advice": [each.document() for each in self.advice],
            "damage": [each.document() for each in self.damage],
        }  # fmt: skip


def summarise(gold: Gold, wanted: Selection, selected: Sequence[Rebalance] | None = None) -> Summary:
    """Summarise the rebalances that `wanted` selects; a caller that has read them already passes them as
    `selected`."""
    selected = gold.select(wanted) if selected is None else selected
    by_group: dict[tuple[str, str], list[Rebalance]] = defaultdict(list)
    for each in reversed(selected):
        by_group[each.cluster, each.group_id].append(each)
    found_storms = [storm for each in by_group.values() for storm in storms(each)]
    groups = sorted(
        (_group(each, found_storms) for each in by_group.values()),
        key=lambda g: (-(g.unavailable_ms or 0), -g.rebalances, g.cluster, g.group_id),
    )
    worst = [g for g in groups if g.rebalances > 1][:MAX_ADVISED_GROUPS]
    times = [ms for each in selected for ms in (each.at_ms, each.until_ms) if ms >= 0]
    return Summary(
        groups=tuple(groups),
        storms=tuple(sorted(found_storms, key=lambda s: (-s.to_ms, s.group_id))),
        triggering=tuple(_triggering(by_group.values())),
        advice=tuple(_advice(gold, worst, by_group)),
        rebalances=len(selected),
        from_ms=min(times, default=-1),
        to_ms=max(times, default=-1),
        damage=tuple(each for each in gold.damage if each.concerns(wanted.groups, wanted.since_ms)),
    )


def storms(rebalances: Sequence[Rebalance]) -> list[Storm]:
    """Find the storms in one group's rebalances, which are sorted oldest first.

    Rebalances triggered by a warm-up that caught up do not count: they continue an older one."""
    rebalances = [r for r in rebalances if r.cause != WARMUP_CAUGHT_UP]
    found: list[Storm] = []
    current: list[Rebalance] = []
    for i in range(STORM_REBALANCES - 1, len(rebalances)):
        window = rebalances[i - STORM_REBALANCES + 1 : i + 1]
        if window[-1].at_ms - window[0].at_ms > STORM_MS or window[0].at_ms < 0:
            continue
        fresh = window if not current or window[0].at_ms > current[-1].at_ms else [rebalances[i]]
        if len(fresh) > 1 and current:
            found.append(_storm(current))
            current = []
        current.extend(fresh)
    return [*found, *([_storm(current)] if current else [])]


def _storm(rebalances: Sequence[Rebalance]) -> Storm:
    return Storm(
        rebalances[0].cluster,
        rebalances[0].group_id,
        rebalances[0].at_ms,
        rebalances[-1].until_ms,
        len(rebalances),
    )


def _group(rebalances: Sequence[Rebalance], found: Iterable[Storm]) -> Group:
    last = rebalances[-1]
    durations = sorted(r.duration_ms for r in rebalances if r.duration_ms is not None and r.converged)
    known = [r.unavailable_ms for r in rebalances if r.unavailable_ms is not None]
    own_storms = [s for s in found if (s.cluster, s.group_id) == (last.cluster, last.group_id)]
    return Group(
        cluster=last.cluster,
        group_id=last.group_id,
        group_type=last.group_type,
        rebalances=len(rebalances),
        members=last.members,
        median_ms=durations[len(durations) // 2] if durations else None,
        slowest_ms=durations[-1] if durations else None,
        unavailable_ms=sum(known) if known else None,
        moved=sum(r.moved for r in rebalances),
        storms=len(own_storms),
        causes=tuple(Counter(r.cause for r in rebalances).most_common()),
    )


def _triggering(groups: Iterable[Sequence[Rebalance]]) -> list[TriggeringClient]:
    found = []
    for rebalances in groups:
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        for r in rebalances:
            for name, kind in {(_name(c), c.kind) for c in r.all_causes if _name(c)}:
                kinds[name][kind] += 1
        for name, counts in sorted(kinds.items()):
            count = sum(1 for r in rebalances if any(_name(c) == name for c in r.all_causes))
            if count > 1:
                ranked = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
                last = rebalances[-1]
                found.append(
                    TriggeringClient(last.cluster, last.group_id, name, count, len(rebalances), ranked)
                )
    return sorted(found, key=lambda t: (-t.rebalances, t.cluster, t.group_id, t.name))


def _name(cause: Cause) -> str:
    return cause.instance_id or cause.client_id or cause.member_id or ""


def _advice(
    gold: Gold, worst: Sequence[Group], by_group: dict[tuple[str, str], list[Rebalance]]
) -> list[Advice]:
    found: list[Advice] = []
    names = sorted({g.group_id for g in worst})
    if not names:
        return found
    members, gaps = gold.rows_by_group("rebalance_member", names), gold.rows_by_group("unavailability", names)
    for g in worst:
        key = (g.cluster, g.group_id)
        advice = advise(g.group_id, Facts(by_group[key], members[key], gaps[key]))
        found += [replace(each, cluster=g.cluster) for each in advice]
    return sorted(found, key=lambda a: (-a.weight_ms, a.cluster, a.group, a.rule))
