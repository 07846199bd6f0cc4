"""Offsets of open transactions: which commit counts, what a fetch returns meanwhile, and replay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.groups.offsets.transacting import UNSTABLE, TransactionalHarness, compacted, shard_of

from konvene.errors import Errors
from konvene.groups.classic import log as classic_log
from konvene.groups.offsets.pending import Pending
from konvene.groups.shard import GroupShard
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.records.commits import Committed, OffsetCommitted, OffsetsCommitted
from konvene.records.transactional import InTransaction, TransactionEnded

PLAIN, ABORT, COMMIT = "plain", False, True


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(PLAIN, 1), (7, 5)], 1),
        ([(PLAIN, 1), (7, 5), (7, COMMIT)], 5),
        ([(PLAIN, 1), (7, 5), (7, ABORT)], 1),
        ([(7, 5), (PLAIN, 1), (7, COMMIT)], 1),
        ([(7, 5), (PLAIN, 1), (7, 6), (7, COMMIT)], 6),
        ([(7, 5), (8, 6), (8, COMMIT), (7, COMMIT)], 6),
        ([(7, 5), (8, 6), (7, COMMIT), (8, COMMIT)], 6),
        ([(7, 5), (8, 6), (7, COMMIT), (8, ABORT)], 5),
        ([(7, 5), (8, 6), (7, 4), (7, COMMIT), (8, COMMIT)], 4),
        ([(7, 5), (7, 6), (7, COMMIT)], 6),
        ([(7, 5), (7, ABORT), (7, 4), (7, COMMIT), (PLAIN, 3)], 3),
        ([(7, COMMIT), (PLAIN, 1), (7, ABORT)], 1),
    ],
)
def test_the_last_commit_in_the_log_counts(events: list[tuple[Any, Any]], expected: int) -> None:
    """Whichever transaction ended first; and the same after a restart at any point, and after compaction."""
    harness = TransactionalHarness()
    for producer, what in events:
        if producer == PLAIN:
            harness.commit(what)
        elif isinstance(what, bool):
            harness.end_transaction(producer, what)
        else:
            harness.commit(what, producer=producer)
        harness.restart()
    assert harness.fetch_offset() == expected
    assert shard_of(compacted(harness.log)).offsets == harness.shard.offsets


def test_only_pending_partitions_are_unstable() -> None:
    """A fetch of stable offsets reports the pending partitions; any other fetch returns the last committed
    offset."""
    harness = TransactionalHarness()
    harness.commit(1, partitions=(0, 1))
    harness.commit(5, producer=7, partitions=(1, 2))
    assert [harness.fetch_offset(p) for p in range(4)] == [1, 1, -1, -1]
    assert [harness.fetch_offset(p, stable=True) for p in range(4)] == [1, UNSTABLE, UNSTABLE, -1]
    harness.commit(2, partitions=(1,))
    assert harness.fetch_offset(1, stable=True) == UNSTABLE, "a superseded commit is still pending"
    harness.end_transaction(7)
    assert [harness.fetch_offset(p, stable=True) for p in range(4)] == [1, 2, 5, -1]


def test_a_fetch_of_all_partitions_reports_unstable_ones() -> None:
    """A fetch of all partitions returns the committed ones, and reports those with a pending commit."""
    harness = TransactionalHarness()
    harness.commit(1, partitions=(0, 1))
    harness.commit(5, producer=7, partitions=(1, 2))
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = harness.ask(OffsetFetchRequest(groups=(everything,), require_stable=True), 9)
    rows = [
        (p.partition_index, p.committed_offset, p.error_code) for p in answer.groups[0].topics[0].partitions
    ]
    assert rows == [(0, 1, 0), (1, -1, Errors.UNSTABLE_OFFSET_COMMIT)]


def test_a_marker_is_written_without_a_commit() -> None:
    """The producer's transaction has ended in this partition, whatever it wrote there."""
    harness = TransactionalHarness()
    harness.end_transaction(7)
    assert harness.last.ending is not None
    assert not harness.shard.groups
    harness.restart()


def test_a_run_of_commits_supersedes_pending_ones() -> None:
    """A run of commits that is replayed at once is later than the pending commits, for each of its
    partitions."""
    pending = Pending()
    for partition in range(3):
        pending.add(7, OffsetCommitted("g", "t", partition, Committed(5)))
    pending.supersede(OffsetsCommitted("g", "t", {0: Committed(1), 2: Committed(1)}))
    assert list(pending.of("g")["t"]) == [0, 1, 2]
    assert pending.end(7, committed=True) == [OffsetCommitted("g", "t", 1, Committed(5))]
    assert not pending.by_group
    assert not pending.by_producer


def test_a_replayed_run_of_commits_supersedes_pending_ones() -> None:
    """One batch of plain commits after an open transaction: the same live and replayed."""
    harness = TransactionalHarness()
    harness.commit(5, producer=7, partitions=(0, 1, 2, 3))
    harness.commit(1, partitions=(0, 1, 2))
    harness.restart()
    harness.end_transaction(7)
    harness.restart()
    assert [harness.fetch_offset(p) for p in range(4)] == [1, 1, 1, 5]


def test_a_tombstone_in_a_transaction_does_not_wait() -> None:
    """No client writes one; Kafka's coordinator replays it so."""
    shard = GroupShard()
    shard.replay(OffsetCommitted("g", "t", 0, Committed(1)))
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, Committed(2))))
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, None)))
    assert not shard.offsets
    assert not shard.pending.by_group


def test_offsets_are_never_without_a_group() -> None:
    """Brokers before KAFKA-19163 removed groups with pending offsets: the marker creates the group again."""
    shard = GroupShard()
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, Committed(2))))
    shard.replay(classic_log.tombstone("g"))
    assert not shard.groups
    shard.replay(TransactionEnded(7, committed=True))
    assert repr(shard) == "<group shard: 1 groups with 0 members, 1 offsets>"


def test_a_run_of_commits_may_be_in_a_transaction() -> None:
    """Each of its partitions is pending, and counts once committed."""
    pending = Pending()
    pending.add(7, OffsetsCommitted("g", "t", {0: Committed(1), 2: Committed(3)}))
    assert repr(pending) == "<pending: 1 transactions, 1 groups>"
    assert [r.partition for r in pending.end(7, committed=True)] == [0, 2]


class OffsetModel:
    """A model of Kafka's own rule: each commit has its record's offset, and the greatest one wins."""

    def __init__(self) -> None:
        self.at = 0
        self.counts: dict[int, tuple[int, int]] = {}
        self.open: dict[int, dict[int, tuple[int, int]]] = {}

    def commit(self, partition: int, offset: int, producer: int | None) -> None:
        self.at += 1
        where = self.counts if producer is None else self.open.setdefault(producer, {})
        where[partition] = self.at, offset

    def forget(self, partition: int) -> None:
        self.counts.pop(partition, None)
        for commit in self.open.values():
            commit.pop(partition, None)

    def end(self, producer: int, committed: bool) -> None:
        for partition, commit in self.open.pop(producer, {}).items():
            if committed and commit > self.counts.get(partition, (0, 0)):
                self.counts[partition] = commit

    def offset_of(self, partition: int) -> int:
        return self.counts.get(partition, (0, -1))[1]

    def is_open(self, partition: int) -> bool:
        return any(partition in commit for commit in self.open.values())


PARTITIONS, PRODUCERS = st.integers(0, 2), st.sampled_from([7, 8, 9])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), PARTITIONS, st.one_of(st.none(), PRODUCERS)),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
        st.tuples(st.just("forget"), PARTITIONS, st.none()),
    ),
    max_size=14,
)


@settings(max_examples=depth.examples(150), deadline=None)
@given(steps=STEPS)
def test_any_order_of_commits_has_kafkas_result(steps: list[tuple[str, int, Any]]) -> None:
    """At every step; after a restart; and after compaction, which never passes an open commit."""
    harness, model = TransactionalHarness(), OffsetModel()
    for number, (kind, which, what) in enumerate(steps):
        if kind == "commit":
            assert harness.commit(number, producer=what, partitions=(which,)) is Errors.NONE
            model.commit(which, number, what)
        elif kind == "end":
            harness.end_transaction(which, what)
            model.end(which, what)
        elif "g" in harness.shard.groups:
            assert harness.delete_offsets(which) == [Errors.NONE]
            model.forget(which)
        harness.restart()
        assert [harness.fetch_offset(p) for p in range(3)] == [model.offset_of(p) for p in range(3)]
        unstable = [harness.fetch_offset(p, stable=True) == UNSTABLE for p in range(3)]
        assert unstable == [model.is_open(p) for p in range(3)]
        remaining = shard_of(compacted(harness.log))
        assert remaining.offsets == harness.shard.offsets
        assert remaining.pending.by_group == harness.shard.pending.by_group
