"""Committed offsets from the log are those that the coordinator answers."""

from __future__ import annotations

import pytest
from tests.console.logs import golden_history
from tests.pipeline.commit_logs import final

from konvene.client.net.cluster import TopicPartition
from konvene.codec import batches as rb
from konvene.codec.batches import Record
from konvene.console.commits import CommittedOffsets
from konvene.records.coordinator import GROUP_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated
from konvene.records.offsets import OffsetCommitKey, OffsetCommitValue


@pytest.mark.parametrize("name", ["classic", "consumer", "streams", "transactions"])
def test_offsets_of_recorded_logs_are_those_that_kafka_described(name: str) -> None:
    _, commits = golden_history(name)
    found = {
        f"{group}/{tp.topic}/{tp.partition}": (at.offset, at.metadata)
        for group in commits.group_ids
        for tp, at in commits.of(group).items()
    }
    expected = final(name)
    assert expected
    assert {key: found[key] for key in expected} == expected


def batch(offset: int, *committed: int | None, producer: int = -1, transactional: bool = False) -> bytes:
    """Return a batch of commits of group g for partitions t-0, t-1, …; None deletes an offset."""
    records = []
    for partition, value in enumerate(committed):
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        stored = None if value is None else OffsetCommitValue(offset=value, metadata="", commit_timestamp=7)
        pair = encode_record(Coordinated(key, stored), GROUP_RECORDS)
        records.append(Record(offset + partition, 7, *pair))
    return bytes(
        rb.build(
            records, producer_id=producer, producer_epoch=0, base_sequence=0 if producer >= 0 else -1,
            transactional=transactional,
        )
    )  # fmt: skip


def take(commits: CommittedOffsets, data: bytes) -> None:
    for header, each in rb.batches(data):
        commits.take(0, header, rb.records(each, header))


def offsets(commits: CommittedOffsets) -> dict[int, int]:
    return {tp.partition: at.offset for tp, at in commits.of("g").items()}


def test_the_last_commit_counts_and_a_tombstone_deletes_it() -> None:
    commits = CommittedOffsets()
    take(commits, batch(0, 5, 6))
    take(commits, batch(2, 8))
    assert commits.of("g")[TopicPartition("t", 0)] == (8, 7, "")
    assert offsets(commits) == {0: 8, 1: 6}
    take(commits, batch(3, None, None))
    assert commits.group_ids == [] and commits.topics_of("g") == set()


@pytest.mark.parametrize(("committed", "expected"), [(True, {0: 9}), (False, {0: 5})])
def test_offsets_of_a_transaction_count_once_it_is_committed(
    committed: bool, expected: dict[int, int]
) -> None:
    commits = CommittedOffsets()
    take(commits, batch(0, 5))
    take(commits, batch(1, 9, producer=4, transactional=True))
    assert offsets(commits) == {0: 5}
    marker = rb.end_marker(
        committed, producer_id=4, producer_epoch=0, coordinator_epoch=0, timestamp_ms=8, base_offset=2
    )
    take(commits, marker)
    assert offsets(commits) == expected


def test_records_that_cannot_be_decoded_are_ignored() -> None:
    commits = CommittedOffsets()
    header, _ = next(iter(rb.batches(batch(0, 1))))
    commits.take(0, header, [Record(0, 0, b"\x00\x01\x00", b""), Record(1, 0, None, b"x")])
    assert commits.group_ids == []


def test_offsets_are_current_each_time_they_are_read() -> None:
    commits = CommittedOffsets()
    take(commits, batch(0, 5, 6))
    assert offsets(commits) == offsets(commits) == {0: 5, 1: 6}
    take(commits, batch(2, 8))
    assert offsets(commits) == {0: 8, 1: 6}
    take(commits, batch(3, None, None))
    assert offsets(commits) == {}
    take(commits, batch(5, 5))
    assert offsets(commits) == {0: 5}
