"""Sources of `konvene groups history`, and its rows.

A konvene broker records rebalances in `__konvene_audit`; all of its partitions are read in full. Any other
broker keeps the metadata of the group in one partition of `__consumer_offsets`, from which `groups.history`
infers rebalances; compaction removes the older ones over time.

A classic group has a row for each generation. For other types an epoch has a row when it begins, with its
causes, and one when all members have reached it, with its duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from konvene.cli.output import Table, iso
from konvene.client.consumer.fetch import read_partition
from konvene.client.errors import raise_for
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.errors import CodecError
from konvene.codec.hashes import group_partition
from konvene.errors import Errors
from konvene.groups.history import History, duration, epoch_noun, sentences
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, decode_record

__all__ = ["PastRebalances", "document", "read_history", "table"]


class PastRebalances(NamedTuple):
    """The rebalances of a group, oldest first."""

    rebalances: list[RebalanceValue]
    note: str = ""
    """A remark about the source, for the user."""
    reason_empty: str = ""
    """Why there are no rebalances, if that is known."""


async def read_history(cluster: Cluster, group: str) -> PastRebalances:
    """Return all rebalances of the group that the cluster still has records of. Raises `ClientError`."""
    metadata = await cluster.refresh([AUDIT_TOPIC, OFFSETS_TOPIC])
    audit, offsets = metadata.topics[AUDIT_TOPIC], metadata.topics[OFFSETS_TOPIC]
    if audit.error_code == 0:
        past = await _read_audit(cluster, group, [p.partition for p in audit.partitions])
    elif offsets.error_code == 0:
        past = await _infer_all(cluster, group, group_partition(group, len(offsets.partitions)))
    elif offsets.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
        return PastRebalances([], reason_empty="the cluster has never had a group")
    else:
        raise_for(offsets.error_code, about=f"topic {OFFSETS_TOPIC}")
        raise AssertionError("unreachable")
    past.rebalances.sort(key=lambda value: (value.ended_ms, value.epoch))
    return past


async def _read_audit(cluster: Cluster, group: str, partitions: Sequence[int]) -> PastRebalances:
    found: list[RebalanceValue] = []
    skipped = 0
    for partition in partitions:
        async for record in read_partition(cluster, TopicPartition(AUDIT_TOPIC, partition)):
            try:
                decoded = decode_record(record.key or b"", record.value, AUDIT_RECORDS)
            except CodecError:
                skipped += 1
                continue
            if decoded is None or not isinstance(decoded.key, RebalanceKey) or decoded.key.group != group:
                continue
            if isinstance(decoded.value, RebalanceValue):
                found.append(decoded.value)
    return PastRebalances(found, f"skipped {skipped} records of a newer version" if skipped else "")


async def _infer_all(cluster: Cluster, group: str, partition: int) -> PastRebalances:
    found: list[RebalanceValue] = []
    history = History(partition)
    async for record in read_partition(cluster, TopicPartition(OFFSETS_TOPIC, partition)):
        try:
            decoded = decode_record(record.key or b"", record.value, GROUP_RECORDS)
        except CodecError:
            decoded = (
                None  # A newer version, or not a record of a coordinator: nothing can be inferred from it.
            )
        inferred = history.take(record.offset, record.timestamp, decoded)
        if inferred is not None and inferred.group_id == group:
            found.append(inferred.value)
    return PastRebalances(
        found, f"The cluster has no audit topic: inferred from {OFFSETS_TOPIC}-{partition}."
    )


# output ---------------------------------------------------------------------------------------


def table(rows: Sequence[RebalanceValue], notes: Sequence[str] = ()) -> Table:
    """Return a table with a row for each generation or epoch, and its causes as lines below the row.

    LEADER is shown for classic groups only, TYPE only if the group has changed its type. `notes` are printed
    to standard error."""
    types = {v.group_type for v in rows}
    classic = "classic" in types
    numbers = [
        head for head, is_shown in (("GENERATION", classic), ("EPOCH", bool(types - {"classic"}))) if is_shown
    ]
    columns = ["/".join(numbers), "ENDED (UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL"]
    columns += ["LEADER"] if classic else []
    columns += ["TYPE"] if len(types) > 1 else []
    lines = []
    for v in rows:
        line: list[object] = [v.epoch, iso(v.ended_ms), v.state, _duration(v), _members(v), v.protocol]
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
    """Return True for a row about the beginning of an epoch, False for one about its end."""
    return v.group_type != "classic" and v.state in ("Assigning", "Empty")


def document(group: str, v: RebalanceValue) -> dict[str, object]:
    """Return a row as a JSON document, with null for unknown values. The epoch of a classic group is named
    `generation`."""
    return {
        "group": group,
        "group_type": v.group_type,
        epoch_noun(v): v.epoch,
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
    """Return the time from the first cause to the end of the rebalance in ms; None for a row about the
    beginning of an epoch."""
    return v.ended_ms - v.started_ms if 0 <= v.started_ms <= v.ended_ms and not _begins(v) else None


def _known(number: int) -> int | None:
    return number if number >= 0 else None
