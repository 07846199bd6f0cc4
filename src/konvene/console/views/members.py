"""The members of a group, of any type, as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from konvene.client.admin import pending_partitions, pending_tasks
from konvene.client.admin.groups import Heartbeats, MemberDescription
from konvene.client.admin.share_groups import ShareGroupDescription
from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription
from konvene.client.net.cluster import TopicPartition
from konvene.console.views.view import Row
from konvene.console.watch import AnyGroup
from konvene.pipeline.answers.sentences import short
from konvene.pipeline.answers.trace import units as format_units

__all__ = ["heartbeat_times", "member_rows", "names_of"]

MAX_TEXT = 300
"""Longest text of a member's units; the page lists them all by partition."""


SAME_HEARTBEAT_MS = 1_000
"""Two descriptions whose heartbeat times differ by less are about the same heartbeat."""


class _Identified(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...


def names_of(members: Iterable[_Identified]) -> dict[str, str]:
    """Return display names by member id: the instance id, or the client id, with a part of the member id if
    several members have it."""
    listed = list(members)
    counts = Counter(m.client_id for m in listed)
    return {m.member_id: _name(m, counts) for m in listed}


def _name(member: _Identified, counts: Mapping[str, int]) -> str:
    instance_id: str | None = getattr(member, "instance_id", None)
    if instance_id:
        return instance_id
    if member.client_id and counts[member.client_id] == 1:
        return member.client_id
    return f"{member.client_id} ({short(member.member_id)})" if member.client_id else short(member.member_id)


def heartbeat_times(members: Iterable[Any], now_ms: int, before: Mapping[str, int]) -> dict[str, int]:
    """Return when each member sent its last heartbeat, by member id, as far as the broker reports it.

    A time keeps its value from `before` unless it differs by `SAME_HEARTBEAT_MS`: the age in a description is
    older by the time that the description took, and a row that differs by that alone would be sent again."""
    found = {}
    for m in members:
        heartbeats: Heartbeats | None = m.heartbeats
        if heartbeats is not None and heartbeats.age_ms is not None:
            at_ms = now_ms - heartbeats.age_ms
            known_ms = before.get(m.member_id)
            is_same = known_ms is not None and abs(at_ms - known_ms) < SAME_HEARTBEAT_MS
            found[m.member_id] = known_ms if known_ms is not None and is_same else at_ms
    return found


def member_rows(group: AnyGroup, names: Mapping[str, str]) -> dict[str, Row]:
    """Return a row for each member of a group, by member id."""
    if isinstance(group, StreamsGroupDescription):
        return _streams_rows(group, names)
    if isinstance(group, ShareGroupDescription):
        return {
            m.member_id: _row(m, names, "share", m.assignment, None, group.assignment_epoch)
            for m in group.members
        }
    rows = {}
    for progress in pending_partitions.member_progress(group):
        m = progress.member
        row = _row(m, names, _protocol(m, group.type), m.assignment, m.target, group.assignment_epoch)
        if m.target is not None:
            row["reached"] = not (progress.revocations or progress.waits or progress.is_behind)
            row["pending"] = _cut(_partitions(progress.revocations)) or None
            row["waits"] = _cut(_partitions(progress.waits)) or None
            row["state"] = progress.state
        rows[m.member_id] = row
    return rows


def _protocol(member: MemberDescription, group_type: str) -> str:
    return "consumer" if group_type == "consumer" and member.upgraded is not False else "classic"


def _streams_rows(group: StreamsGroupDescription, names: Mapping[str, str]) -> dict[str, Row]:
    rows = {}
    for progress in pending_tasks.member_progress(group):
        m: StreamsMemberDescription = progress.member
        row = _row(m, names, "classic" if m.is_classic else "streams", (), None, group.assignment_epoch)
        owned, target = list(m.assignment.units()), list(m.target.units())
        row |= {
            "owned": len(owned), "target": len(target),
            "units": _cut(pending_tasks.format_tasks(owned)),
            "pending": _cut(pending_tasks.format_tasks(progress.revocations)) or None,
            "waits": _cut(pending_tasks.format_tasks(progress.waits)) or None,
            "reached": not (progress.revocations or progress.waits or progress.is_behind),
            "state": progress.state, "process_id": m.process_id,
            "tags": ", ".join(f"{k}={v}" for k, v in sorted(m.tags.items())) or None,
        }  # fmt: skip
        rows[m.member_id] = row
    return rows


def _row(
    m: Any, names: Mapping[str, str], protocol: str, owned: Iterable[TopicPartition],
    target: Iterable[TopicPartition] | None, target_epoch: int | None,
) -> Row:  # fmt: skip
    """Return the columns that members of all groups have; `m` is a member's description of any type."""
    heartbeats: Heartbeats | None = m.heartbeats
    listed = list(owned)
    return {
        "id": m.member_id, "name": names[m.member_id], "client_id": m.client_id, "host": m.client_host,
        "instance_id": getattr(m, "instance_id", None), "rack": m.rack_id, "protocol": protocol,
        "epoch": m.epoch, "target_epoch": target_epoch, "reached": None, "owned": len(listed),
        "target": None if target is None else len(list(target)),
        "units": _cut(_partitions(listed)), "pending": None, "waits": None, "state": None,
        "heartbeat_interval_ms": None if heartbeats is None else heartbeats.interval_ms,
        "heartbeat_ms": None,
        "heartbeat_held": None if heartbeats is None else heartbeats.held,
        "process_id": None, "tags": None,
    }  # fmt: skip


def _partitions(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions with ranges: `orders:0-4,7, payments:1`."""
    return format_units(
        {"topic": tp.topic, "partition": tp.partition, "role": "active", "group_type": "consumer"}
        for tp in sorted(partitions)
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
