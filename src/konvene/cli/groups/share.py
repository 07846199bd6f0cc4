"""Tables and JSON of `konvene groups describe` for share groups.

The tables have the columns of `kafka-share-groups`, in its order. `--in-flight` shows what only a konvene
broker reports: the records that were delivered and not completed, their owner, how long it has had them, the
delivery count and the remaining lock time. For other brokers a note explains that they do not report it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.cli.groups.overview import (
    coordinator_cell,
    group_document,
    heartbeat_cells,
    heartbeat_columns,
    heartbeats_document,
)
from konvene.cli.output import Table
from konvene.client.admin.any_group import described_or_none
from konvene.client.admin.group_state import GroupState
from konvene.client.admin.pending_partitions import format_partitions
from konvene.client.net.cluster import TopicPartition

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.share_groups import (
        InFlightRecords,
        ShareGroupDescription,
        ShareMemberDescription,
        SharePartitionOffset,
    )

__all__ = ["DescribedShare", "describe", "document", "tables"]

NOT_REPORTED = "This broker does not report in-flight records; konvene brokers do."


class DescribedShare(NamedTuple):
    group: ShareGroupDescription
    offsets: Mapping[TopicPartition, SharePartitionOffset]


async def describe(admin: Admin, name: str, *, part: str, verbose: bool) -> DescribedShare | None:
    """Describe a share group, and request what the table `part` (such as `offsets`) shows in addition; None
    if there is no such share group."""
    group = await described_or_none(admin.describe_share_group(name, heartbeats=verbose))
    if group is None:
        return None
    if part not in ("offsets", "in-flight"):
        return DescribedShare(group, {})
    found = await admin.list_share_group_offsets({name: None}, in_flight=part == "in-flight")
    return DescribedShare(group, found[name])


# tables ---------------------------------------------------------------------------------------


def tables(described: DescribedShare, part: str, verbose: bool) -> list[Table]:
    """Return the tables of one part of a description, such as its offsets or members."""
    return _TABLES[part](described, verbose)


def _offsets_table(described: DescribedShare, verbose: bool) -> list[Table]:
    group = described.group
    if not described.offsets:
        nothing = f"Share group '{group.group_id}' has no offset information."
        return [Table((), (), [*_notes(group), nothing])]
    columns = ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    if verbose:
        columns.insert(3, "LEADER-EPOCH")
    rows = [
        [
            group.group_id, tp.topic, tp.partition, *([at.leader_epoch] if verbose else []),
            at.start_offset, at.lag,
        ]
        for tp, at in described.offsets.items()
    ]  # fmt: skip
    return [Table(columns, rows, [*_notes(group), *_errors(described)])]


def _members_table(described: DescribedShare, verbose: bool) -> list[Table]:
    group = described.group
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    if verbose:
        columns.insert(5, "MEMBER-EPOCH")
    columns += heartbeat_columns(group)
    rows = [
        [
            group.group_id, m.member_id, m.client_host, m.client_id, len(m.assignment),
            *([m.epoch] if verbose else []), format_partitions(m.assignment),
            *heartbeat_cells(group, m.heartbeats),
        ]
        for m in group.members
    ]  # fmt: skip
    return [Table(columns if rows else (), rows, _notes(group))]


def _state_table(described: DescribedShare, verbose: bool) -> list[Table]:
    group = described.group
    columns = ["GROUP", "COORDINATOR (ID)", "STATE"]
    row: list[object] = [group.group_id, coordinator_cell(group), group.state]
    if verbose:
        columns += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.assignment_epoch]
    return [Table([*columns, "#MEMBERS"], [[*row, len(group.members)]], _notes(group))]


def _in_flight_table(described: DescribedShare, verbose: bool) -> list[Table]:
    """Return a table with a row for each range of records in flight; `verbose` includes ranges that no member
    has acquired."""
    group, members = described.group, _by_id(described.group)
    columns = (
        "GROUP", "TOPIC", "PARTITION", "FIRST-OFFSET", "LAST-OFFSET", "STATE", "DELIVERY-COUNT",
        "CONSUMER-ID", "HOST", "CLIENT-ID", "HELD", "LOCK-LEFT",
    )  # fmt: skip
    rows = []
    for tp, at in described.offsets.items():
        for each in at.in_flight or ():
            if each.member_id is None and not verbose:
                continue
            member = members.get(each.member_id or "")
            rows.append(
                (
                    group.group_id, tp.topic, tp.partition, each.first_offset, each.last_offset,
                    each.state, each.delivery_count, each.member_id,
                    member.client_host if member else None, member.client_id if member else None,
                    _seconds(each.held_ms), _seconds(each.lock_left_ms),
                )
            )  # fmt: skip
    notes = [*_notes(group), *_errors(described)]
    reported = [at for at in described.offsets.values() if at.error is None]
    if any(at.in_flight is None for at in reported):
        notes.append(NOT_REPORTED)
    elif not rows:
        notes.append(f"No member of share group '{group.group_id}' has acquired any records.")
    return [Table(columns if rows else (), rows, notes)]


def _no_reconciliation(described: DescribedShare, verbose: bool) -> list[Table]:
    group = described.group
    line = f"Group '{group.group_id}' is a share group: its assignments need no reconciliation."
    return [Table((), (), [line])]


_TABLES = {
    "offsets": _offsets_table, "members": _members_table, "state": _state_table,
    "in-flight": _in_flight_table, "reconciliation": _no_reconciliation,
}  # fmt: skip


def _by_id(group: ShareGroupDescription) -> dict[str, ShareMemberDescription]:
    return {m.member_id: m for m in group.members}


def _seconds(ms: int | None) -> str | None:
    return None if ms is None else f"{ms / 1000:.1f} s"


def _notes(group: ShareGroupDescription) -> list[str]:
    if group.state == GroupState.EMPTY:
        return [f"Share group '{group.group_id}' has no active members."]
    return []


def _errors(described: DescribedShare) -> list[str]:
    return [f"Warning: {at.error}" for at in described.offsets.values() if at.error is not None]


# JSON -----------------------------------------------------------------------------------------


def document(described: DescribedShare, part: str | None) -> dict[str, object]:
    """Return the description as a JSON document. It includes `offsets`, `members` or `in_flight` if `part`
    selects that field; `offsets` and `members` if `part` is None."""
    g = described.group
    out = group_document(g)
    if part in (None, "members"):
        out["members"] = [_member(each) for each in g.members]
    if part in (None, "offsets"):
        out["offsets"] = [_offset(tp, at) for tp, at in described.offsets.items()]
    if part == "in-flight":
        out["in_flight"] = [
            _records(tp, each, _by_id(g))
            for tp, at in described.offsets.items()
            for each in at.in_flight or ()
        ]
    return out


def _member(m: ShareMemberDescription) -> dict[str, object]:
    return {
        "member_id": m.member_id,
        "client_id": m.client_id,
        "client_host": m.client_host,
        "rack_id": m.rack_id,
        "epoch": m.epoch,
        "subscribed_topics": list(m.subscribed),
        "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in m.assignment],
        **heartbeats_document(m.heartbeats),
    }


def _offset(tp: TopicPartition, at: SharePartitionOffset) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "start_offset": at.start_offset,
        "leader_epoch": at.leader_epoch,
        "lag": at.lag,
        "error": at.error.name if at.error else None,
    }


def _records(
    tp: TopicPartition, each: InFlightRecords, members: Mapping[str, ShareMemberDescription]
) -> dict[str, object]:
    member = members.get(each.member_id or "")
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "first_offset": each.first_offset,
        "last_offset": each.last_offset,
        "state": each.state,
        "delivery_count": each.delivery_count,
        "member_id": each.member_id,
        "client_id": member.client_id if member else None,
        "client_host": member.client_host if member else None,
        "held_ms": each.held_ms,
        "lock_left_ms": each.lock_left_ms,
    }
