"""Where `konvene groups history` gets a group's past from, and how a row of it is shown.

Two sources. A broker of ours keeps the past in `__konvene_audit`: all its partitions are read from their
first to their last record. Any other broker keeps the group's metadata in one partition of
`__consumer_offsets`; from what was written there of groups of all kinds `groups.history` infers what
can be inferred (compaction takes the older records away in time).

A classic group counts generations, and has a row for each. Others count epochs; an epoch has a row when it
begins, which says why, and one when all members have come to it, which says how long that took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from konvene.cli.output import Table, iso
from konvene.client.consumer.fetch import read_partition
from konvene.client.errors import raise_for
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.errors import CodecError
from konvene.codec.hashes import group_partition
from konvene.errors import Errors
from konvene.groups.history import History, duration, sentences, word
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, decode_record

__all__ = ["Told", "document", "read_history", "table"]


class Told(NamedTuple):
    """A group's rebalances, oldest first, and what the reader should know about them."""

    rebalances: list[RebalanceValue]
    note: str = ""
    why_none: str = ""
    """Where there are none: why, if that is known."""


async def read_history(cluster: Cluster, group: str) -> Told:
    """Everything that the cluster still knows of the group's rebalances. Raises `ClientError`."""
    metadata = await cluster.refresh([AUDIT_TOPIC, OFFSETS_TOPIC])
    audit, offsets = metadata.topics[AUDIT_TOPIC], metadata.topics[OFFSETS_TOPIC]
    if audit.error_code == 0:
        told = await _read_audit(cluster, group, [p.partition for p in audit.partitions])
    elif offsets.error_code == 0:
        told = await _infer_all(cluster, group, group_partition(group, len(offsets.partitions)))
    elif offsets.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
        return Told([], why_none="the cluster has never had a group")
    else:
        raise_for(offsets.error_code, about=f"topic {OFFSETS_TOPIC}")
        raise AssertionError("unreachable")
    told.rebalances.sort(key=lambda value: (value.ended_ms, value.epoch))
    return told


async def _read_audit(cluster: Cluster, group: str, partitions: Sequence[int]) -> Told:
    found: list[RebalanceValue] = []
    unread = 0
    for partition in partitions:
        async for record in read_partition(cluster, TopicPartition(AUDIT_TOPIC, partition)):
            try:
                decoded = decode_record(record.key or b"", record.value, AUDIT_RECORDS)
            except CodecError:
                unread += 1
                continue
            if decoded is None or not isinstance(decoded.key, RebalanceKey) or decoded.key.group != group:
                continue
            if isinstance(decoded.value, RebalanceValue):
                found.append(decoded.value)
    return Told(found, f"{unread} rows are of a newer version and left out" if unread else "")


async def _infer_all(cluster: Cluster, group: str, partition: int) -> Told:
    found: list[RebalanceValue] = []
    history = History(partition)
    async for record in read_partition(cluster, TopicPartition(OFFSETS_TOPIC, partition)):
        try:
            decoded = decode_record(record.key or b"", record.value, GROUP_RECORDS)
        except CodecError:
            decoded = None  # Of a newer version, or not a coordinator's: nothing can be inferred from it.
        told = history.take(record.offset, record.timestamp, decoded)
        if told is not None and told.group_id == group:
            found.append(told.story)
    return Told(found, f"The broker keeps no audit: inferred from {OFFSETS_TOPIC}-{partition}.")


# how a row is shown ---------------------------------------------------------------------------


def table(rows: Sequence[RebalanceValue], notes: Sequence[str] = ()) -> Table:
    """A row per generation or epoch, its causes as sentences under it.

    Only classic groups have leaders. A group that changed its type says in each row what it was then."""
    types = {v.group_type for v in rows}
    classic = "classic" in types
    counts = [
        head for head, is_shown in (("GENERATION", classic), ("EPOCH", bool(types - {"classic"}))) if is_shown
    ]
    columns = ["/".join(counts), "ENDED (UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL"]
    columns += ["LEADER"] if classic else []
    columns += ["TYPE"] if len(types) > 1 else []
    lines = []
    for v in rows:
        line: list[Any] = [v.epoch, iso(v.ended_ms), v.state, _duration(v), _members(v), v.protocol]
        line += [v.leader] if classic else []
        line += [v.group_type] if len(types) > 1 else []
        lines.append(line)
    return Table(columns, lines, notes, [sentences(v) for v in rows])


def _duration(v: RebalanceValue) -> str | None:
    ms = _duration_ms(v)
    return None if ms is None else duration(ms)


def _members(v: RebalanceValue) -> int | None:
    return None if _begins(v) and v.state != "Empty" else len(v.members) + v.members_left_out


def _begins(v: RebalanceValue) -> bool:
    """Whether the row tells why an epoch was begun, and not what became of it."""
    return v.group_type != "classic" and v.state in ("Assigning", "Empty")


def document(group: str, v: RebalanceValue) -> dict[str, Any]:
    """A row as JSON; what is not known is null. The epoch is called `generation` in a classic group."""
    return {
        "group": group,
        "group_type": v.group_type,
        word(v): v.epoch,
        "state": v.state,
        "started_ms": _known(v.started_ms),
        "joined_ms": _known(v.joined_ms),
        "ended_ms": _known(v.ended_ms),
        "duration_ms": _duration_ms(v),
        "partition": _known(v.partition),
        "base_offset": _known(v.base_offset),
        "last_offset": _known(v.last_offset),
        "inferred": v.inferred,
        "protocol": v.protocol,
        "leader": v.leader,
        "causes": [
            {
                "kind": c.kind,
                "at_ms": _known(c.at_ms),
                "member_id": c.member_id,
                "instance_id": c.instance_id,
                "client_id": c.client_id,
                "client_host": c.client_host,
                "reason": c.reason,
                "topic": c.topic,
            }
            for c in v.causes
        ],
        "members": [
            {
                "member_id": m.member_id,
                "instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "joined_ms": _known(m.joined_ms),
            }
            for m in v.members
        ],
        "tasks_moved": dict(zip(("active", "standby", "warmup"), v.moved, strict=False)) if v.moved else None,
        "causes_left_out": v.causes_left_out,
        "members_left_out": v.members_left_out,
    }


def _duration_ms(v: RebalanceValue) -> int | None:
    """From its cause to its end; an epoch that only begins here has no end."""
    return v.ended_ms - v.started_ms if 0 <= v.started_ms <= v.ended_ms and not _begins(v) else None


def _known(number: int) -> int | None:
    return number if number >= 0 else None
