"""Which alerts apply to groups: a function of the groups and the time. Pure.

A rule is a row of `RULES`: a function that yields the alerts of one group. An alert is identified by its
rule, its group and a detail, such as a client; `konvene.pipeline.monitoring.firing` determines which are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from konvene.groups.history import duration
from konvene.pipeline.monitoring.current import GroupNow
from konvene.plurals import counted

__all__ = ["ADVICE", "RULES", "Alert", "Limits", "alerts_of"]

ADVICE = "advice"
AlertKey = tuple[str, str, str, str]
"""Rule, cluster, group and detail."""


class Limits(NamedTuple):
    """The limits above which alerts apply; None for no such alert."""

    rebalances: int | None = 10
    """More than this many rebalances of a group within `window_ms`."""
    window_ms: int = 600_000
    converge_ms: int | None = 300_000
    """A rebalance that is in progress for longer."""
    lag_ms: int | None = None
    """A record that a group has not read for longer."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that applies to a group. Its text has the numbers of when it began to apply."""

    rule: str
    cluster: str
    group: str
    text: str
    detail: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> AlertKey:
        return (self.rule, self.cluster, self.group, self.detail)


def alerts_of(groups: Iterable[GroupNow], now_ms: int, limits: Limits) -> list[Alert]:
    """Return the alerts that apply at a time, by group and rule."""
    return [alert for group in groups for rule in RULES.values() for alert in rule(group, now_ms, limits)]


def _rebalances(group: GroupNow, now_ms: int, limits: Limits) -> Iterator[Alert]:
    if limits.rebalances is None:
        return
    recent = [r for r in group.rebalances if r.at_ms > now_ms - limits.window_ms]
    if len(recent) > limits.rebalances:
        text = f"{counted(len(recent), 'rebalance')} of {group.group_id} within {duration(limits.window_ms)}."
        numbers = {"rebalances": len(recent), "window_ms": limits.window_ms}
        yield Alert("rebalances", *group.key, text, numbers=numbers)


def _overdue_ms(group: GroupNow, now_ms: int, limits: Limits) -> int | None:
    """Return how long the rebalance in progress has lasted; None if there is none, or within the limit."""
    if group.open is None or limits.converge_ms is None:
        return None
    lasted = now_ms - group.open.at_ms
    return lasted if lasted > limits.converge_ms else None


def _not_converging(group: GroupNow, now_ms: int, limits: Limits) -> Iterator[Alert]:
    lasted = _overdue_ms(group, now_ms, limits)
    if group.open is not None and lasted is not None:
        names = ", ".join(each.client for each in group.awaited[:5])
        text = (
            f"{group.group_id} has not converged for {duration(lasted)}, {group.open.epoch_noun} "
            f"{group.open.to_epoch}{f': waiting for {names}' if names else ''}."
        )
        numbers = {"epoch": group.open.to_epoch, "lasted_ms": lasted}
        yield Alert("not-converging", *group.key, text, numbers=numbers)


def _stuck_clients(group: GroupNow, now_ms: int, limits: Limits) -> Iterator[Alert]:
    lasted = _overdue_ms(group, now_ms, limits)
    if lasted is not None:
        for client in sorted({each.client for each in group.awaited}):
            text = f"Other members of {group.group_id} have waited for {client} for {duration(lasted)}."
            yield Alert("stuck-client", *group.key, text, client, {"waited_ms": lasted})


def _lag(group: GroupNow, now_ms: int, limits: Limits) -> Iterator[Alert]:
    age = group.lag_ms
    if limits.lag_ms is None or age is None or age <= limits.lag_ms:
        return
    late = [each for each in group.lags if each.age_ms is not None and each.age_ms > limits.lag_ms]
    records = sum(each.records for each in late)
    worst = max(late, key=lambda each: each.age_ms or 0)
    text = (
        f"{group.group_id} has not read {counted(records, 'record')} of {counted(len(late), 'partition')}, "
        f"the oldest for {duration(age)} ({worst.topic}-{worst.partition})."
    )
    yield Alert("lag", *group.key, text, numbers={"lag_ms": age, "records": records, "partitions": len(late)})


def _advice(group: GroupNow, now_ms: int, limits: Limits) -> Iterator[Alert]:
    for advice in group.advice:
        yield Alert(ADVICE, *group.key, advice.text, advice.rule, dict(advice.numbers))


RULES: dict[str, Callable[[GroupNow, int, Limits], Iterator[Alert]]] = {
    "rebalances": _rebalances,
    "not-converging": _not_converging,
    "stuck-client": _stuck_clients,
    "lag": _lag,
    ADVICE: _advice,
}
