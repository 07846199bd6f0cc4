"""Recompute the rebalances of groups, the time in which units had no owner, and the moves, from records.

    Reader(names).read(records) -> Found(rebalances, gaps)

A record is a mapping with `offset`, `batch_base_offset`, `timestamp`, `key_name`, `key` and `value`, the last
two as Kafka's JSON.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Unit = tuple[str, int, str]
"""Topic name, topic id or subtopology; partition; role."""
Owners = dict[Unit, frozenset[str]]
STABLE_STATE = {"consumer": 0, "share": 0, "streams": 1}


class Gap(NamedTuple):
    """A time without an owner; `to_ms` is None if it had not ended."""

    group: str
    unit: Unit
    from_ms: int
    to_ms: int | None
    left_open_by: int | None


@dataclass
class Rebalance:
    """What a rebalance did. The field names are columns of the table `rebalance`."""

    group_id: str
    group_type: str
    to_epoch: int
    start_ms: int | None
    state: str = "Assigning"
    end_ms: int | None = None
    converged: bool = False
    superseded_by: int | None = None
    members: int = 0
    units: int = 0
    moved: int = 0
    kept: int = 0
    added: int = 0
    revoked: int = 0
    unavailable_ms: int | None = 0
    last_offset: int = -1
    is_computed: bool = False
    """Whether the target assignment was computed."""

    @property
    def duration_ms(self) -> int | None:
        if self.start_ms is None or self.end_ms is None or self.end_ms < self.start_ms:
            return None
        return self.end_ms - self.start_ms


class Found(NamedTuple):
    rebalances: list[Rebalance]
    gaps: list[Gap]


@dataclass
class Hole:
    """A unit without an owner: since when, the last owner, and the rebalance that completed without it."""

    ms: int
    owner: str
    epoch: int
    left_by: Rebalance | None = None


@dataclass
class Group:
    """One group id while the log is read."""

    name: str
    kind: str = ""
    members: dict[str, str] = field(default_factory=dict)
    """The key of each member: its instance id if it has one."""
    classic: set[str] = field(default_factory=set)
    """Members of another type of group that speak the classic protocol."""
    has: dict[str, set[Unit]] = field(default_factory=dict)
    """The units of each member, in roles that are read."""
    at: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Epoch and state of each member."""
    epoch: int = -1
    target_epoch: int = -1
    topology: int | None = None
    valid_topology: int = -1
    owners: Owners = field(default_factory=dict)
    before: Owners = field(default_factory=dict)
    """The owners when the last rebalance ended."""
    last: dict[Unit, str] = field(default_factory=dict)
    """The last owner of units that had none at that time and got one."""
    lost: dict[Unit, str] = field(default_factory=dict)
    """The last owner of units that lost theirs since a rebalance completed."""
    holes: dict[Unit, Hole] = field(default_factory=dict)
    released: dict[Unit, set[str]] = field(default_factory=dict)
    """Units of members that departed in this batch since its last epoch."""
    open: Rebalance | None = None
    batch: int = -1
    size: int = 0
    ended_batch: int = -1
    ended_kind: str = ""
    generation: int = 0
    """The generation of the last record of a classic group."""

    @property
    def has_ended(self) -> bool:
        return not self.kind and self.ended_batch >= 0

    @property
    def keys(self) -> set[str]:
        return set(self.members.values())


class Reader:
    """Reads the records of one log partition. `names` are topic names by id."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = names or {}
        self._groups: dict[str, Group] = {}
        self._found = Found([], [])
        self._ms = self._offset = self._batch = 0

    def read(self, records: Iterable[Mapping[str, Any]]) -> Found:
        for record in records:
            self._record(record)
        for group in self._groups.values():
            if group.has_ended:
                continue
            if group.open is not None:
                group.open.unavailable_ms, group.open.members = None, len(group.keys)
                group.open.state = "Reconciling" if group.open.is_computed else "Assigning"
                self._count(group, group.open, group.owners)
            for unit, hole in group.holes.items():
                if hole.left_by is None:
                    self._found.gaps.append(Gap(group.name, unit, hole.ms, None, None))
        return self._found

    def _record(self, record: Mapping[str, Any]) -> None:
        self._ms, self._offset = record["timestamp"], record["offset"]
        name = record.get("key_name") or ""
        if record["batch_base_offset"] != self._batch:
            self._batch = record["batch_base_offset"]
            for each, group in list(self._groups.items()):
                if group.has_ended:
                    del self._groups[each]
        key, value = record.get("key"), record.get("value")
        kind, _, what = name.partition("_GROUP_")
        if name == "GROUP_METADATA":
            kind, what = "CLASSIC", "METADATA"
        handler = getattr(self, f"_{what.lower()}", None)
        if handler is None or kind.lower() not in ("classic", *STABLE_STATE):
            return
        group_id = key["group"] if kind == "CLASSIC" else key["groupId"]
        if group_id not in self._groups and value is None:
            return
        group = self._groups.setdefault(group_id, Group(group_id))
        if group.batch != self._batch:
            group.batch, group.size, group.released = self._batch, len(group.keys), {}
        if kind == "CLASSIC":
            self._generation(group, value)
        elif value is not None or group.kind == kind.lower():
            if value is not None and group.kind != kind.lower():
                group.kind = kind.lower()
            handler(group, key, value)

    # --- records ---

    def _metadata(self, group: Group, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._end(group)
            return
        first, epoch = group.epoch < 0, value["epoch"]
        changed = epoch != group.epoch
        group.epoch = epoch
        group.valid_topology = value.get("validatedTopologyEpoch", -1)
        was_classic = group.ended_batch == self._batch and group.ended_kind == "classic"
        if first and was_classic and group.members and group.classic >= group.members.keys():
            return  # The generation of a classic group that was converted.
        if not changed:
            return
        self._close(group, "", superseded_by=epoch)
        group.released = {}
        group.size = len(group.keys)
        group.open = Rebalance(group.name, group.kind, epoch, self._ms)
        self._found.rebalances.append(group.open)
        if not group.members:
            self._close(group, "Empty")

    def _member_metadata(self, group: Group, key: Mapping[str, Any], value: Any) -> None:
        member = key["memberId"]
        if value is None:
            self._release(group, member)
            group.members.pop(member, None)
            group.at.pop(member, None)
        else:
            (group.classic.add if value.get("classicMemberMetadata") else group.classic.discard)(member)
            instance = value.get("instanceId")
            group.members[member] = member if instance is None else f"instance {instance}"

    def _target_assignment_metadata(self, group: Group, key: Any, value: Any) -> None:
        group.target_epoch = -1 if value is None else value["assignmentEpoch"]
        if group.open is not None and group.open.to_epoch == group.target_epoch:
            group.open.is_computed = True

    def _topology(self, group: Group, key: Any, value: Any) -> None:
        group.topology = None if value is None else value["epoch"]

    def _current_member_assignment(self, group: Group, key: Mapping[str, Any], value: Any) -> None:
        member = key["memberId"]
        if value is None:
            self._release(group, member)
            group.at.pop(member, None)
            return
        owner = group.members.setdefault(member, member)
        group.size = len(group.keys)
        had, has = group.has.get(member, set()), self._units(group.kind, value)
        group.has[member] = has
        for unit in sorted(had - has):
            self._lose(group, unit, owner)
        for unit in sorted(has - had):
            self._gain(group, unit, owner)
        group.at[member] = (value["memberEpoch"], value["state"])
        wanted = (group.target_epoch, STABLE_STATE[group.kind])
        is_reached = all(group.at.get(each) == wanted for each in group.members)
        if group.open is not None and is_reached and group.epoch == group.target_epoch:
            ready = group.kind != "streams" or group.topology == group.valid_topology
            self._close(group, "Stable" if ready else "NotReady")

    def _units(self, kind: str, value: Mapping[str, Any]) -> set[Unit]:
        if kind == "streams":
            rows = [*value["activeTasks"], *value["activeTasksPendingRevocation"]]
            return {(row["subtopologyId"], p, "active") for row in rows for p in row["partitions"]}
        rows = [*value["assignedPartitions"], *value.get("partitionsPendingRevocation", ())]
        role = "shared" if kind == "share" else "active"
        return {
            (self._names.get(row["topicId"], row["topicId"]), p, role)
            for row in rows
            for p in row["partitions"]
        }

    def _generation(self, group: Group, value: Mapping[str, Any] | None) -> None:
        """Apply the record of a classic group, which ends its rebalance."""
        if value is None:
            if group.kind == "classic":
                self._end(group)
            return
        converted = group.ended_batch == self._batch and group.ended_kind not in ("", "classic")
        if not group.kind and not converted:
            group.generation = 0
        group.kind = "classic"
        is_new = value["generation"] > 0 and value["generation"] != group.generation and not converted
        rebalance = None
        if is_new:
            rebalance = Rebalance(group.name, "classic", value["generation"], None, unavailable_ms=None)
            self._found.rebalances.append(rebalance)
        group.generation, group.open, group.epoch = value["generation"], rebalance, value["generation"]
        assigned: dict[Unit, str] = {}
        members = {}
        for row in value["members"]:
            instance = row.get("groupInstanceId")
            members[row["memberId"]] = row["memberId"] if instance is None else f"instance {instance}"
            if value["protocolType"] == "consumer":
                assigned |= dict.fromkeys(assigned_units(row["assignment"]), members[row["memberId"]])
        group.members = members
        for unit in sorted(group.owners):
            (owner,) = group.owners[unit]
            if unit not in assigned:
                self._lose(group, unit, owner)
        for unit, owner in sorted(assigned.items()):
            if group.owners.get(unit) != frozenset((owner,)):
                self._gain(group, unit, owner)
        group.has = {each: {u for u, k in assigned.items() if k == key} for each, key in members.items()}
        if rebalance is not None:
            eager = value["protocol"] in ("range", "roundrobin", "sticky")
            self._close(group, "Stable" if members else "Empty", waits=not eager)

    # --- ownership ---

    def _release(self, group: Group, member: str) -> None:
        owner = group.members.get(member, member)
        for unit in sorted(group.has.pop(member, set())):
            if owner in group.owners.get(unit, ()) and not self._is_taken_over(group, unit, member, owner):
                group.released.setdefault(unit, set()).add(owner)
                self._lose(group, unit, owner)

    def _is_taken_over(self, group: Group, unit: Unit, member: str, owner: str) -> bool:
        """Return True if the same static member has the unit under its next member id already."""
        return any(unit in units and group.members.get(other) == owner for other, units in group.has.items())

    def _lose(self, group: Group, unit: Unit, owner: str) -> None:
        left = group.owners.get(unit, frozenset()) - {owner}
        if left == group.owners.get(unit, frozenset()):
            return
        if left:
            group.owners[unit] = left
            return
        del group.owners[unit]
        group.lost[unit] = owner
        group.holes[unit] = Hole(self._ms, owner, group.epoch)

    def _gain(self, group: Group, unit: Unit, owner: str) -> None:
        if not group.before.get(unit) and unit in group.holes and unit in group.lost:
            group.last[unit] = group.lost[unit]
        hole = group.holes.pop(unit, None)
        others = group.owners.get(unit, frozenset()) if unit[2] == "shared" else frozenset()
        group.owners[unit] = others | {owner}
        if hole is None:
            return
        epoch = None if hole.left_by is None else hole.left_by.to_epoch
        if self._ms > hole.ms:
            self._found.gaps.append(Gap(group.name, unit, hole.ms, self._ms, epoch))
        self._add(hole.left_by or group.open, hole, self._ms)

    def _add(self, rebalance: Rebalance | None, hole: Hole, end_ms: int) -> None:
        if rebalance is None or rebalance.unavailable_ms is None or rebalance.start_ms is None:
            return
        rebalance.unavailable_ms += max(end_ms - max(hole.ms, rebalance.start_ms), 0)

    # --- the end of rebalances and groups ---

    def _close(
        self, group: Group, state: str, *, superseded_by: int | None = None, waits: bool = False
    ) -> None:
        """End the rebalance in progress, in this state; without one, because something else came first."""
        rebalance, group.open = group.open, None
        if rebalance is None:
            return
        owners = dict(group.owners)
        rebalance.end_ms, rebalance.last_offset = self._ms, self._offset
        rebalance.superseded_by = superseded_by
        if state:
            rebalance.state, rebalance.converged, rebalance.members = state, True, len(group.keys)
        else:
            rebalance.state = "Reconciling" if rebalance.is_computed else "Assigning"
            rebalance.members = group.size
            for hole in group.holes.values():
                if hole.left_by is None:
                    self._add(rebalance, hole, self._ms)
            for unit, keys in group.released.items():
                if unit[2] == "shared":
                    owners[unit] = owners.get(unit, frozenset()) | keys
                elif unit not in owners:
                    owners[unit] = frozenset(keys)
        self._count(group, rebalance, owners)
        group.before, group.last = owners, {}
        if state:
            group.lost = {}
        if state == "Stable":
            self._leave_open(group, rebalance, waits)

    def _leave_open(self, group: Group, rebalance: Rebalance, waits: bool) -> None:
        for unit, hole in list(group.holes.items()):
            if hole.owner not in group.keys:
                hole.left_by = hole.left_by or rebalance
            elif not (waits and hole.epoch == rebalance.to_epoch):
                del group.holes[unit]
            else:
                group.lost[unit] = hole.owner

    def _count(self, group: Group, rebalance: Rebalance, owners: Owners) -> None:
        for unit in group.before.keys() | owners.keys():
            before, after = group.before.get(unit, frozenset()), owners.get(unit, frozenset())
            last = group.last.get(unit)
            gained = len(after - before - {last})
            moved = min(gained, len(before - after) + (last is not None and last not in after))
            rebalance.units += len(after)
            rebalance.revoked += len(before - after)
            rebalance.moved += moved
            rebalance.added += gained - moved
        rebalance.kept = rebalance.units - rebalance.moved - rebalance.added

    def _end(self, group: Group) -> None:
        self._close(group, "")
        for member in list(group.members):
            self._release(group, member)
        group.ended_batch, group.ended_kind, group.kind = self._batch, group.kind, ""
        group.members, group.at, group.epoch, group.target_epoch = {}, {}, -1, -1
        group.topology = None


def assigned_units(assignment: str | Mapping[str, Any]) -> set[Unit]:
    """Return the units of a ConsumerProtocolAssignment: bytes in base64 (a version, then topics with their
    partitions), or decoded by Kafka's tool."""
    if not isinstance(assignment, str):
        return {(t["topic"], p, "active") for t in assignment["assignedPartitions"] for p in t["partitions"]}
    data = base64.b64decode(assignment)
    if len(data) < 6:
        return set()
    (count,), at = struct.unpack_from(">i", data, 2), 6
    found: set[Unit] = set()
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        topic, at = data[at + 2 : at + 2 + size].decode(), at + 2 + size
        (partitions,) = struct.unpack_from(">i", data, at)
        numbers = struct.unpack_from(f">{partitions}i", data, at + 4)
        found |= {(topic, number, "active") for number in numbers}
        at += 4 + 4 * partitions
    return found
