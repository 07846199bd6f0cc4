"""Retention in bulk: what expires at once is let go of in batches that a log takes."""

from __future__ import annotations

from konvene.groups.offsets.expiry import EXPIRY_KEY, MAX_BATCH_BYTES, NEXT_BATCH_MS
from konvene.records.commits import Committed, OffsetCommitted, encode_group_record
from konvene.sim.journal import Log, batch_of
from konvene.sim.transcript.sandbox import Sandbox

COUNT, NOW_MS = 30_000, 1_000_000


def test_what_expires_at_once_goes_in_batches_that_fit() -> None:
    """No batch is larger than its bound, one follows the other, and the group goes with its last offset."""
    log = Log()
    written = (OffsetCommitted("g", "orders", p, Committed(p, commit_ms=NOW_MS)) for p in range(COUNT))
    log.batches.append(batch_of(map(encode_group_record, written)))
    log.durable = 1
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "60000"}
    life = Sandbox(settings, log=log)
    assert life.now_ms == NOW_MS
    life.advance(60_000)
    sizes = [sum(len(key) for key, _ in batch.pairs) for batch in life.log.batches[1:]]
    assert len(sizes) == 1
    assert life.runtime.due_ms(EXPIRY_KEY) == NEXT_BATCH_MS
    life.advance(NEXT_BATCH_MS * COUNT)
    batches = life.log.batches[1:]
    assert max(sum(len(key) for key, _ in batch.pairs) for batch in batches) <= MAX_BATCH_BYTES
    assert sum(len(batch.pairs) for batch in batches) == COUNT + 1
    assert not life.shard.offsets
    assert not life.shard.groups
    due_ms = life.runtime.due_ms(EXPIRY_KEY)
    assert due_ms is not None
    assert due_ms > NEXT_BATCH_MS
