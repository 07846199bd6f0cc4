"""One group: its members, which members wait for others, its partitions or tasks, their owners over time, its
rebalances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from konvene.client.admin import pending_partitions, pending_tasks
from konvene.client.admin.groups import GroupDescription
from konvene.client.admin.reconciliation import MemberProgress
from konvene.client.admin.share_groups import ShareGroupDescription
from konvene.client.admin.streams_groups import StreamsGroupDescription
from konvene.client.streams.tasks import Subtopology
from konvene.console.rebalances import RebalanceHistory, key_of
from konvene.console.tail import wall_clock_ms
from konvene.console.views.groups import is_open, live_sentence
from konvene.console.views.lanes import lanes
from konvene.console.views.members import heartbeat_times, member_rows, names_of
from konvene.console.views.share import dead_letter_facts, in_flight_rows, share_unit_rows
from konvene.console.views.streams import task_rows, topology_rows
from konvene.console.views.view import Row, Sections, View
from konvene.console.watch import AnyGroup, ClusterWatch
from konvene.pipeline.answers.cost import Ends, costs
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.sentences import note

__all__ = ["GroupView"]

U = TypeVar("U")

MAX_REBALANCES = 500
MINUTE_MS = 60_000
WINDOW_MS = 3_600_000
"""Owners are shown over the last hour."""


class GroupView(View):
    """The view `group`, of the group `group`."""

    arguments = ("group",)
    interval_s = 0.5

    def __init__(self, watch: ClusterWatch, arguments: Mapping[str, str]) -> None:
        super().__init__(watch, arguments)
        self._heartbeats_ms: dict[str, int] = {}
        self._history: tuple[tuple[RebalanceHistory, int, int], Sections] | None = None
        """What the logs contain, and from which state of them."""

    async def build(self) -> Sections:
        group, described_ms = await self.watch.described(self.given["group"])
        sections: Sections = {"facts": self.facts(id=self.given["group"], exists=group is not None)}
        history = self._history_sections()
        sections["rebalances"], sections["lanes"] = history["rebalances"], history["lanes"]
        sections["facts"] |= history["facts"]
        if group is not None:
            names = names_of(group.members)
            units = await self._units(group, names)
            sections["units"] = units
            sections["members"] = self._members(group, names, described_ms)
            sections["waits"] = wait_rows(group, names)
            sections["facts"] |= _group_facts(group, units)
            if isinstance(group, ShareGroupDescription):
                sections["in_flight"] = in_flight_rows(await self.watch.share_offsets(group.group_id), names)
                sections["facts"] |= await dead_letter_facts(self.watch, group.group_id)
            if isinstance(group, StreamsGroupDescription):
                sections["topology"] = topology_rows(group)
        newest = next(iter(history["rebalances"].values()), None)
        sections["facts"]["evidence"] = None if newest is None else newest["evidence"]
        if newest is not None and sections["facts"].get("type") == "classic":
            sections["facts"]["epoch"] = newest["epoch"]  # Its description has no generation.
        return sections

    def _members(self, group: AnyGroup, names: Mapping[str, str], described_ms: int) -> dict[str, Row]:
        rows = member_rows(group, names)
        self._heartbeats_ms = heartbeat_times(group.members, described_ms, self._heartbeats_ms)
        for member_id, ms in self._heartbeats_ms.items():
            rows[member_id]["heartbeat_ms"] = ms
        return rows

    async def _units(self, group: AnyGroup, names: Mapping[str, str]) -> dict[str, Row]:
        """Return the rows of the partitions or tasks of a group, by name."""
        if isinstance(group, ShareGroupDescription):
            return share_unit_rows(group, await self.watch.share_offsets(group.group_id), names)
        committed = await self.watch.committed(group.group_id)
        if isinstance(group, StreamsGroupDescription):
            reads = {topic for each in _subtopologies(group) for topic in each.reads}
            partitions = {tp for tp in committed if tp.topic in reads}
            return task_rows(group, committed, await self.watch.ends(partitions), names)
        owners = {tp: m.member_id for m in group.members for tp in m.assignment}
        wanted = owners.keys() | committed.keys() | {tp for m in group.members for tp in m.target or ()}
        ends = await self.watch.ends(wanted)
        rows = {}
        for tp in sorted(wanted):
            at, end, owner = committed.get(tp), ends.get(tp), owners.get(tp)
            rows[f"{tp.topic}:{tp.partition}"] = {
                "name": f"{tp.topic}:{tp.partition}", "topic": tp.topic, "partition": tp.partition,
                "owner": owner, "owner_name": None if owner is None else names[owner],
                "committed": None if at is None else at.offset, "end": end,
                "committed_ms": None if at is None or at.at_ms < 0 else at.at_ms,
                "lag": None if at is None or end is None else max(end - at.offset, 0),
            }  # fmt: skip
        return rows

    def _history_sections(self) -> Sections:
        """Return what the logs contain about the group; computed again after a record of the group, and each
        minute, since owners of more than an hour ago are left out."""
        history = self.watch.tail.history
        basis = history, history.version_of(self.given["group"]), wall_clock_ms() // MINUTE_MS
        if self._history is None or self._history[0] != basis:
            self._history = basis, self._read_history(history)
        return self._history[1]

    def _read_history(self, history: RebalanceHistory) -> Sections:
        group_id = self.given["group"]
        found = history.rebalances_of(group_id)[:MAX_REBALANCES]
        gaps = history.rows("unavailability", (group_id,))
        cost = costs(found, gaps, Ends(()))
        rebalances = {}
        for each in found:
            stopped = cost.get(each.key)
            rebalances[key_of(each)] = rebalance_row(each) | {
                "stopped": None if stopped is None else stopped.stopped,
                "sentence": live_sentence(each, stopped),
            }
        since_ms = wall_clock_ms() - WINDOW_MS
        owned = history.rows("ownership", (group_id,))
        drawn, left_out = lanes(owned, gaps, since_ms)
        return {"rebalances": rebalances, "lanes": drawn, "facts": {"lanes_left_out": left_out}}


def rebalance_row(r: Rebalance) -> Row:
    """Return a rebalance as a row of the section `rebalances`, without its cost."""
    return {
        "key": key_of(r), "epoch": r.to_epoch, "from_epoch": r.from_epoch, "at_ms": r.at_ms,
        "until_ms": r.end_ms, "duration_ms": r.duration_ms, "cause": r.cause,
        "client": r.instance_id or r.client_id or r.member_id or "", "members": r.members, "units": r.units,
        "moved": r.moved, "kept": r.kept, "unavailable_ms": r.unavailable_ms, "lag_records": None,
        "evidence": r.evidence, "state": r.state, "open": is_open(r), "note": note(r),
    }  # fmt: skip


def wait_rows(group: AnyGroup, names: Mapping[str, str]) -> dict[str, Row]:
    """Return a row for each pair of a waiting member and the member that it waits for."""
    if isinstance(group, ShareGroupDescription):
        return {}
    rows: dict[str, Row] = {}
    if isinstance(group, StreamsGroupDescription):
        for task_progress in pending_tasks.member_progress(group):
            units = _by_owner(task_progress)
            for owner, some in units.items():
                text = pending_tasks.format_tasks(some)
                _add_wait(rows, task_progress.member.member_id, owner, text, names)
        return rows
    for progress in pending_partitions.member_progress(group):
        for owner, partitions in _by_owner(progress).items():
            text = pending_partitions.format_partitions(partitions)
            _add_wait(rows, progress.member.member_id, owner, text, names)
    return rows


def _by_owner(progress: MemberProgress[Any, U]) -> dict[str, list[U]]:
    """Return the units that a member waits for, by the id of each member that owns them."""
    found: dict[str, list[U]] = defaultdict(list)
    for unit, owners in progress.waits.items():
        for owner in owners:
            found[owner.member_id].append(unit)
    return found


def _add_wait(rows: dict[str, Row], member_id: str, owner: str, units: str, names: Mapping[str, str]) -> None:
    rows[f"{member_id} {owner}"] = {
        "member": member_id, "name": names[member_id], "for": owner, "for_name": names[owner], "units": units,
        "sentence": f"{names[member_id]} is waiting for {units}, owned by {names[owner]}",
    }  # fmt: skip


def _subtopologies(group: StreamsGroupDescription) -> Sequence[Subtopology]:
    return group.topology.subtopologies if group.topology is not None else ()


def _group_facts(group: AnyGroup, units: Mapping[str, Row]) -> Row:
    lags = [row["lag"] for row in units.values()]
    known = [lag for lag in lags if lag is not None]
    is_known = len(known) == len(lags) if group.type == "share" else bool(known or not lags)
    return {
        "type": group.type, "state": group.state, "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch, "assignor": group.assignor or None,
        "protocol_type": group.protocol_type if isinstance(group, GroupDescription) else None,
        "heartbeat_policy": getattr(group, "heartbeat_policy", None),
        "coordinator": str(group.coordinator), "members": len(group.members),
        "lag": sum(known) if is_known else None,
        "unit": "task" if group.type == "streams" else "partition",
    }  # fmt: skip
