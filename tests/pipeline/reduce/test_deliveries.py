"""There is one replay of share states as well: what is counted rests on the states that a coordinator has."""

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


def kafkas(place: Path) -> list[tuple[int, Record]]:
    return [
        (r.timestamp, record)
        for file in sorted(place.glob("*.log"))
        for header, batch in rb.batches(file.read_bytes())
        for r in rb.records(batch, header)
        if isinstance(record := decode_record(r.key, r.value, SHARE_STATE_RECORDS), Record)
    ]


def follow(records: list[tuple[int, Record]]) -> int:
    """After each record: every partition is as a shard that read the same has it; and how many there were."""
    shard = ShareStateShard()
    lives: dict[SharePartitionKey, SharePartitionHistory] = {}
    for ms, record in records:
        key: Any = record.key
        named = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        shard.replay(record)
        value: Any = record.value
        if value is not None:
            batches = tuple(StateBatch(*b[:4]) for b in map(as_tuple, value.state_batches))
            value = value.replace(state_batches=batches)
        lives.setdefault(named, SharePartitionHistory(ms)).take(ms, value)
        assert lives[named].known == shard.states.get(named)
    assert {k for k, life in lives.items() if life.known is not None} == shard.states.keys()
    return len(lives)


def as_tuple(batch: Any) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def test_each_share_partition_is_as_a_coordinator_that_read_kafkas_log_has_it() -> None:
    places = sorted((LOGS / "share").glob("__share_group_state-*"))
    assert sum(follow(kafkas(place)) for place in places) == 16


def whatever(rng: Random) -> list[tuple[int, Record]]:
    """Records of three share partitions, as they may stand in a log of which something is missing."""
    found: list[tuple[int, Record]] = []
    for ms in range(150):
        names: dict[str, Any] = {"group_id": "g", "topic_id": Uuid(16), "partition": rng.randrange(3)}
        batches, at = [], rng.randrange(20)
        for _ in range(rng.randrange(4)):
            last = at + rng.randrange(5)
            batches.append(StateBatch(at, last, rng.choice((0, 2, 3, 4)), rng.randrange(1, 4)))
            at = last + 1 + rng.choice((-2, 0, 3))  # Some overlap.
        says: dict[str, Any] = {
            "snapshot_epoch": rng.randrange(5), "leader_epoch": rng.randrange(-1, 3),
            "start_offset": rng.randrange(-1, 20), "delivery_complete_count": rng.randrange(-1, 3),
            "state_batches": tuple(batches),
        }  # fmt: skip
        roll = rng.random()
        if roll < 0.1:
            found.append((ms, Record(ShareSnapshotKey(**names), None)))
        elif roll < 0.3:
            says["state_epoch"] = rng.randrange(3)
            found.append((ms, Record(ShareSnapshotKey(**names), ShareSnapshotValue(**says))))
        else:
            found.append((ms, Record(ShareUpdateKey(**names), ShareUpdateValue(**says))))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_so_is_it_after_whatever_may_be_written(seed: int) -> None:
    assert follow(whatever(Random(seed))) == 3


def test_batches_of_one_record_that_overlap_count_once() -> None:
    """As if they were told one after another."""
    batches = (StateBatch(0, 9, 0, 1), StateBatch(5, 14, 2, 2))
    life = SharePartitionHistory(0)
    life.take(0, ShareSnapshotValue(start_offset=0, state_batches=batches))  # type: ignore[arg-type]
    assert (life.counts.delivered, life.counts.redelivered) == (10 + 5 + 10, 5 + 5)
    assert (life.counts.released, life.counts.acknowledged) == (10, 10)
