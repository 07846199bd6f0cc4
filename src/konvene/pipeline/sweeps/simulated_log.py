"""The log of a simulated coordinator, reduced like a real one.

A run of the simulator leaves a list of batches and the audit of its coordinator. They are passed to the
reducer that reads real logs, so that simulated and real rebalances have the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.reduce.diagnosis import AuditMember, AuditRow, cause_row
from konvene.pipeline.tables import TABLES
from konvene.records.audit import RebalancedMember
from konvene.shard.contract import Rebalance
from konvene.sim.journal import Batch

__all__ = ["audit_rows", "tables_of"]


def tables_of(
    cluster: str,
    batches: Sequence[Batch],
    explained: Iterable[tuple[Rebalance, int, int]],
    names: Mapping[str, str] = {},
) -> dict[str, pa.Table]:
    """Return the gold tables of a simulated log.

    `explained` is the coordinator's audit: each entry with the indices of its first and last batch, -1 if it
    left no record. `names` are topic names by id."""
    first = [0, *accumulate(batch.size for batch in batches)]
    reducer = PartitionReducer(cluster, 0, audit_rows(cluster, explained, first), names)
    for batch, base in zip(batches, first, strict=False):
        if not batch.pairs:
            continue
        reducer.batch(base, base + batch.size - 1, len(batch.pairs))
        for offset, (key, value) in enumerate(batch.pairs, base):
            reducer.take(offset, batch.timestamp_ms, key, value)
    reducer.finish()
    rows = reducer.drain()
    return {
        name: pa.Table.from_pylist(
            [dict(zip(t.schema.names, row, strict=True)) for row in rows[name]], t.schema
        )
        for name, t in TABLES.items()
        if name in rows
    }


def audit_rows(
    cluster: str, explained: Iterable[tuple[Rebalance, int, int]], first: Sequence[int]
) -> list[AuditRow]:
    """Return rows of `audit_event`.

    `first` has the first offset of each batch, and at its end the offset after the last one."""
    return [
        {
            "cluster": cluster,
            "audit_partition": 0,
            "audit_offset": at,
            "timestamp_ms": story.ended_ms,
            "group_id": group_id,
            "group_type": story.group_type,
            "epoch": story.epoch,
            "state": str(story.state),
            "started_ms": story.started_ms,
            "joined_ms": story.joined_ms,
            "ended_ms": story.ended_ms,
            "partition": 0 if base >= 0 else -1,
            "base_offset": first[base] if base >= 0 else -1,
            "last_offset": first[last + 1] - 1 if base >= 0 else -1,
            "inferred": story.inferred,
            "protocol": story.protocol,
            "leader": story.leader,
            "causes": [cause_row(cause) for cause in story.causes],
            "causes_left_out": story.causes_left_out,
            "members": [_member_row(member) for member in story.members],
            "members_left_out": story.members_left_out,
            "moved": list(story.moved),
            "session_timeout_ms": story.session_timeout_ms,
        }
        for at, ((group_id, story), base, last) in enumerate(explained)
    ]


def _member_row(member: RebalancedMember) -> AuditMember:
    return {
        "member_id": member.member_id, "instance_id": member.instance_id, "client_id": member.client_id,
        "client_host": member.client_host, "joined_ms": member.joined_ms,
    }  # fmt: skip
