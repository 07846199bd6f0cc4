"""Expiry of many offsets: in batches that fit into the log."""

from __future__ import annotations

from konvene.groups.offsets.expiry import EXPIRY_KEY, MAX_BATCH_BYTES, NEXT_BATCH_MS
from konvene.records.commits import Committed, OffsetCommitted, encode_group_record
from konvene.sim.journal import Log, batch_of
from konvene.sim.transcript.sandbox import Sandbox

COUNT, NOW_MS = 30_000, 1_000_000


def test_offsets_that_expire_at_once_are_removed_in_limited_batches() -> None:
    """No batch exceeds its limit, one follows the other, and the group is removed with its last offset."""
    log = Log()
    written = (OffsetCommitted("g", "orders", p, Committed(p, commit_ms=NOW_MS)) for p in range(COUNT))
    log.batches.append(batch_of(map(encode_group_record, written)))
    log.durable = 1
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "60000"}
    sandbox = Sandbox(settings, log=log)
    assert sandbox.now_ms == NOW_MS
    sandbox.advance(60_000)
    sizes = [sum(len(key) for key, _ in batch.pairs) for batch in sandbox.log.batches[1:]]
    assert len(sizes) == 1
    assert sandbox.runtime.due_ms(EXPIRY_KEY) == NEXT_BATCH_MS
    sandbox.advance(NEXT_BATCH_MS * COUNT)
    batches = sandbox.log.batches[1:]
    assert max(sum(len(key) for key, _ in batch.pairs) for batch in batches) <= MAX_BATCH_BYTES
    assert sum(len(batch.pairs) for batch in batches) == COUNT + 1
    assert not sandbox.shard.offsets
    assert not sandbox.shard.groups
    due_ms = sandbox.runtime.due_ms(EXPIRY_KEY)
    assert due_ms is not None
    assert due_ms > NEXT_BATCH_MS
