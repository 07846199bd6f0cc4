"""Gauges of all groups, computed for each scrape: numbers of groups by state, members, waiting members, lag.

Nothing is counted while groups change, so the gauges cost nothing between scrapes. Reading a group takes
about a microsecond; it is done in slices of two milliseconds, so that no heartbeat waits, and the values of
different groups are therefore from slightly different moments.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING

from konvene.broker.metrics.group_lags import SLICE_S, Lags, measure_lags
from konvene.broker.metrics.group_types import KINDS
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.warmups import stale_members, warming
from konvene.groups.assignors.tasks.racks import Cost
from konvene.groups.group_type import TYPES, Group
from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import StreamsGroup

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.metrics.meter import Meter

BATCH = 64
"""Number of groups that are read before the clock is checked."""


class GroupGauges:
    """Sums over the groups that were added, for the gauges of one scrape."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.groups: Counter[tuple[str, str]] = Counter()
        """Number of groups by type and state."""
        self.offsets = 0
        self.members: Counter[tuple[str, str]] = Counter()
        """Members by group label and type, as `waiting`, `epochs` and `classic_members`."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.epochs: dict[tuple[str, str], int] = {}
        self.classic_members: Counter[tuple[str, str]] = Counter()
        """Members that use the classic protocol, for group types that allow it."""
        self.warmups: Counter[str] = Counter()
        """Warm-up tasks of streams groups by group label, as `warmup_lags`, `stale` and `costs`."""
        self.warmup_lags: dict[str, int] = {}
        self.stale: Counter[str] = Counter()
        self.costs: dict[str, Cost] = {}
        """Placement cost of streams groups, by label."""
        self.states: set[tuple[str, str, str]] = set()
        """Label, type and state of the groups with a label of their own."""
        self.lags = Lags({}, {}, 0)

    def __repr__(self) -> str:
        return f"<gauges of {self.groups.total()} groups>"

    def add(self, group: Group) -> None:
        kind = TYPES[type(group)].name
        self.groups[kind, str(group.state)] += 1
        if not group.members and group.group_id not in self._meter.labels:
            return  # An empty group that never rebalanced has no line of its own.
        self._add_lines(kind, group)

    def add_idle(self, group: Group) -> None:
        """Add the lines of a group that `add` only counted, if it gets a label: it may have a lag."""
        if not group.members and self._meter.labels.of_idle(group.group_id) != OTHER:
            self._add_lines(TYPES[type(group)].name, group)

    def _add_lines(self, kind: str, group: Group) -> None:
        row, label = KINDS[kind], self._meter.labels.of(group.group_id)
        self.members[label, kind] += len(group.members)
        self.waiting[label, kind] += row.waiting(group)
        if label != OTHER:
            self.epochs[label, kind] = row.epoch(group)
            self.states.add((label, kind, str(group.state)))
        if row.classic_members is not None:
            self.classic_members[label, kind] += row.classic_members(group)
        if isinstance(group, StreamsGroup):
            self._add_tasks(label, group)

    def _add_tasks(self, label: str, group: StreamsGroup) -> None:
        warmups = warming(group)
        self.warmups[label] += warmups.tasks
        self.stale[label] += stale_members(group)
        if warmups.largest_lag is not None:
            self.warmup_lags[label] = max(warmups.largest_lag, self.warmup_lags.get(label, 0))
        cost = self._meter.costs.of(group) if label != OTHER else None
        if cost is not None:
            self.costs[label] = cost


async def collect_gauges(broker: Broker, meter: Meter) -> GroupGauges:
    """Compute the gauges of all groups; first release the labels of deleted groups."""
    _release_labels(broker, meter)
    gauges, slice_start_s = GroupGauges(meter), perf_counter()
    idle: list[Group] = []
    for coordinator in broker.groups.all():
        shard = coordinator.core
        if not isinstance(shard, GroupShard):
            continue
        groups, offsets = list(shard.groups.values()), list(shard.offsets.values())
        for start in range(0, max(len(groups), len(offsets)), BATCH):
            for group in groups[start : start + BATCH]:
                gauges.add(group)
                if not group.members and group.group_id not in meter.labels and _has_lag(shard, group):
                    idle.append(group)
            for topics in offsets[start : start + BATCH]:
                gauges.offsets += sum(map(len, topics.values()))
            if perf_counter() - slice_start_s > SLICE_S:
                await asyncio.sleep(0)
                slice_start_s = perf_counter()
    for group in idle:
        gauges.add_idle(group)
    gauges.lags = await measure_lags(broker, meter)
    return gauges


def _has_lag(shard: GroupShard, group: Group) -> bool:
    """Return True if the group has committed offsets, or is a share group, whose offsets are elsewhere."""
    return group.group_id in shard.offsets or isinstance(group, ShareGroup)


def _release_labels(broker: Broker, meter: Meter) -> None:
    for group_id in list(meter.labels):
        coordinator = broker.groups.of(group_id)
        if coordinator is not None and coordinator.state == "active":
            shard = coordinator.core
            if isinstance(shard, GroupShard) and group_id not in shard.groups:
                meter.forget(group_id)
