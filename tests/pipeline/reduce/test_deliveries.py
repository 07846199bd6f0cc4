"""Share-partition histories replay state records as a share coordinator's shard does."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.groups.history.logs import LOGS

from konvene.codec import batches as rb
from konvene.codec.uuid import Uuid
from konvene.pipeline.reduce.deliveries import SharePartitionHistory
from konvene.records.coordinator import SHARE_STATE_RECORDS, Record, decode_record
from konvene.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from konvene.share_state.requests import SharePartitionKey, StateBatch
from konvene.share_state.shard import ShareStateShard


def kafka_records(folder: Path) -> list[tuple[int, Record]]:
    return [
        (r.timestamp, record)
        for file in sorted(folder.glob("*.log"))
        for header, batch in rb.batches(file.read_bytes())
        for r in rb.records(batch, header)
        if isinstance(record := decode_record(r.key, r.value, SHARE_STATE_RECORDS), Record)
    ]


def assert_states_match(records: list[tuple[int, Record]]) -> int:
    """Replay records and compare every state with a shard's after each; return the number of partitions."""
    shard = ShareStateShard()
    histories: dict[SharePartitionKey, SharePartitionHistory] = {}
    for ms, record in records:
        key: Any = record.key
        partition = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        shard.replay(record)
        value: Any = record.value
        if value is not None:
            batches = tuple(StateBatch(*b[:4]) for b in map(as_tuple, value.state_batches))
            value = value.replace(state_batches=batches)
        histories.setdefault(partition, SharePartitionHistory(ms)).take(ms, value)
        assert histories[partition].known == shard.states.get(partition)
    assert {k for k, history in histories.items() if history.known is not None} == shard.states.keys()
    return len(histories)


def as_tuple(batch: Any) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def test_states_match_the_shard_for_kafkas_log() -> None:
    folders = sorted((LOGS / "share").glob("__share_group_state-*"))
    assert sum(assert_states_match(kafka_records(folder)) for folder in folders) == 16


def random_records(rng: Random) -> list[tuple[int, Record]]:
    """Return records of three share partitions, as a log with missing records may have them."""
    found: list[tuple[int, Record]] = []
    for ms in range(150):
        names: dict[str, Any] = {"group_id": "g", "topic_id": Uuid(16), "partition": rng.randrange(3)}
        batches, at = [], rng.randrange(20)
        for _ in range(rng.randrange(4)):
            last = at + rng.randrange(5)
            batches.append(StateBatch(at, last, rng.choice((0, 2, 3, 4)), rng.randrange(1, 4)))
            at = last + 1 + rng.choice((-2, 0, 3))  # Some overlap.
        fields: dict[str, Any] = {
            "snapshot_epoch": rng.randrange(5), "leader_epoch": rng.randrange(-1, 3),
            "start_offset": rng.randrange(-1, 20), "delivery_complete_count": rng.randrange(-1, 3),
            "state_batches": tuple(batches),
        }  # fmt: skip
        roll = rng.random()
        if roll < 0.1:
            found.append((ms, Record(ShareSnapshotKey(**names), None)))
        elif roll < 0.3:
            fields["state_epoch"] = rng.randrange(3)
            found.append((ms, Record(ShareSnapshotKey(**names), ShareSnapshotValue(**fields))))
        else:
            found.append((ms, Record(ShareUpdateKey(**names), ShareUpdateValue(**fields))))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_states_match_the_shard_for_random_records(seed: int) -> None:
    assert assert_states_match(random_records(Random(seed))) == 3


def test_overlapping_batches_of_one_record_count_once() -> None:
    """They count as if they were in consecutive records."""
    batches = (StateBatch(0, 9, 0, 1), StateBatch(5, 14, 2, 2))
    history = SharePartitionHistory(0)
    history.take(0, ShareSnapshotValue(start_offset=0, state_batches=batches))  # type: ignore[arg-type]
    assert (history.counts.delivered, history.counts.redelivered) == (10 + 5 + 10, 5 + 5)
    assert (history.counts.released, history.counts.acknowledged) == (10, 10)
