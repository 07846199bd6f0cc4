"""What only share groups have: share partitions, records in flight, dead letters."""

from __future__ import annotations

from collections.abc import Mapping

from konvene.client.admin.admin import GROUP_CONFIG
from konvene.client.admin.share_groups import ShareGroupDescription, SharePartitionOffset
from konvene.client.errors import ClientError
from konvene.client.net.cluster import TopicPartition
from konvene.console.views.view import Row
from konvene.console.watch import ClusterWatch

__all__ = ["dead_letter_facts", "in_flight_rows", "share_unit_rows"]

MAX_IN_FLIGHT = 500
"""Ranges of records in flight that are listed."""
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

Offsets = Mapping[TopicPartition, SharePartitionOffset]


def share_unit_rows(
    group: ShareGroupDescription, offsets: Offsets, names: Mapping[str, str]
) -> dict[str, Row]:
    """Return a row for each share partition that is assigned or initialized."""
    owners: dict[TopicPartition, list[str]] = {}
    for m in group.members:
        for tp in m.assignment:
            owners.setdefault(tp, []).append(m.member_id)
    rows = {}
    for tp in sorted(owners.keys() | offsets.keys()):
        at, assigned = offsets.get(tp), owners.get(tp, [])
        in_flight = None if at is None else at.in_flight
        rows[f"{tp.topic}:{tp.partition}"] = {
            "name": f"{tp.topic}:{tp.partition}", "topic": tp.topic, "partition": tp.partition,
            "owner": assigned[0] if len(assigned) == 1 else None,
            "owner_name": ", ".join(sorted(names[each] for each in assigned)) or None,
            "start": None if at is None else at.start_offset, "lag": None if at is None else at.lag,
            "in_flight": None if in_flight is None else _records(at),
            "acquired": None if in_flight is None else _records(at, "acquired"),
            "available": None if in_flight is None else _records(at, "available"),
            "max_delivery_count": max((each.delivery_count for each in in_flight or ()), default=None),
        }  # fmt: skip
    return rows


def _records(at: SharePartitionOffset | None, state: str = "") -> int:
    """Count the records in flight, or those in one state."""
    listed = at.in_flight if at is not None else None
    return sum(r.last_offset - r.first_offset + 1 for r in listed or () if state in ("", r.state))


def in_flight_rows(offsets: Offsets, names: Mapping[str, str]) -> dict[str, Row]:
    """Return a row for each range of records in flight, the most often delivered first."""
    found: list[Row] = []
    for tp, at in offsets.items():
        for each in at.in_flight or ():
            owner = each.member_id
            row = {
                "partition": f"{tp.topic}:{tp.partition}", "first": each.first_offset,
                "last": each.last_offset, "state": each.state,
                "member_name": None if not owner else names.get(owner, owner),
                "delivery_count": each.delivery_count, "held_ms": each.held_ms,
                "lock_left_ms": each.lock_left_ms,
            }  # fmt: skip
            found.append(row)
    found.sort(key=lambda row: (-row["delivery_count"], row["partition"], row["first"]))
    return {f"{row['partition']} {row['first']}": row for row in found[:MAX_IN_FLIGHT]}


async def dead_letter_facts(watch: ClusterWatch, group_id: str) -> Row:
    """Return the group's dead letter topic and the number of records in it; None where there is none."""
    try:
        configs = {c.name: c.value for c in await watch.configs(GROUP_CONFIG, group_id)}
    except ClientError:
        return {"dead_letter_topic": None, "dead_letters": None}
    name = configs.get(DEAD_LETTER_TOPIC) or None
    if name is None:
        return {"dead_letter_topic": None, "dead_letters": None}
    topic = next((t for t in await watch.topics() if t.name == name), None)
    partitions = [TopicPartition(name, p.partition) for p in topic.partitions] if topic is not None else []
    ends, starts = await watch.ends(partitions), await watch.starts(partitions)
    return {"dead_letter_topic": name, "dead_letters": sum(ends[tp] - starts.get(tp, 0) for tp in ends)}
