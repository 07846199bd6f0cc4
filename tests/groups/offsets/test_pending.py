"""Offsets of open transactions: which commit counts, what is told meanwhile, and that a log says the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.groups.offsets.transacting import UNSTABLE, Place, compacted, shard_of

from konvene.errors import Errors
from konvene.groups.classic import log as classic_log
from konvene.groups.offsets.pending import Pending
from konvene.groups.shard import GroupShard
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.records.commits import Committed, OffsetCommitted, OffsetsCommitted
from konvene.records.transactional import InTransaction, TransactionEnded

PLAIN, ABORT, COMMIT = "plain", False, True


@pytest.mark.parametrize(
    ("happens", "expected"),
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
def test_the_commit_counts_that_stands_last(happens: list[tuple[Any, Any]], expected: int) -> None:
    """Whichever transaction ended first; and the same after a restart at any point, and after compaction."""
    place = Place()
    for who, what in happens:
        if who == PLAIN:
            place.commits(what)
        elif isinstance(what, bool):
            place.ends(who, what)
        else:
            place.commits(what, producer=who)
        place.restart()
    assert place.fetched() == expected
    assert shard_of(compacted(place.log)).offsets == place.shard.offsets


def test_what_is_pending_is_unstable_and_nothing_else() -> None:
    """Who asks for what is stable hears of the one partition; who does not, what was committed before."""
    place = Place()
    place.commits(1, partitions=(0, 1))
    place.commits(5, producer=7, partitions=(1, 2))
    assert [place.fetched(p) for p in range(4)] == [1, 1, -1, -1]
    assert [place.fetched(p, stable=True) for p in range(4)] == [1, UNSTABLE, UNSTABLE, -1]
    place.commits(2, partitions=(1,))
    assert place.fetched(1, stable=True) == UNSTABLE, "it is open still, though it was overtaken"
    place.ends(7)
    assert [place.fetched(p, stable=True) for p in range(4)] == [1, 2, 5, -1]


def test_all_of_a_group_is_told_with_what_is_unstable() -> None:
    """Asked for everything, a group tells the partitions that it has committed; these say if they move."""
    place = Place()
    place.commits(1, partitions=(0, 1))
    place.commits(5, producer=7, partitions=(1, 2))
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = place.ask(OffsetFetchRequest(groups=(everything,), require_stable=True), 9)
    told = [
        (p.partition_index, p.committed_offset, p.error_code) for p in answer.groups[0].topics[0].partitions
    ]
    assert told == [(0, 1, 0), (1, -1, Errors.UNSTABLE_OFFSET_COMMIT)]


def test_a_marker_is_written_though_nothing_was_committed() -> None:
    """The producer's transaction is over in this partition, whatever it wrote there."""
    place = Place()
    place.ends(7)
    assert place.last.ending is not None
    assert not place.shard.groups
    place.restart()


def test_a_run_of_commits_overtakes_what_is_pending() -> None:
    """What a loader reads at one stroke is later than what was pending, for each of its partitions."""
    pending = Pending()
    for partition in range(3):
        pending.add(7, OffsetCommitted("g", "t", partition, Committed(5)))
    pending.supersede(OffsetsCommitted("g", "t", {0: Committed(1), 2: Committed(1)}))
    assert list(pending.of("g")["t"]) == [0, 1, 2]
    assert pending.end(7, committed=True) == [OffsetCommitted("g", "t", 1, Committed(5))]
    assert not pending.by_group
    assert not pending.by_producer


def test_a_run_that_a_loader_reads_is_later_than_what_is_pending() -> None:
    """One batch of plain commits, behind a transaction that is open: live and from the log the same."""
    place = Place()
    place.commits(5, producer=7, partitions=(0, 1, 2, 3))
    place.commits(1, partitions=(0, 1, 2))
    place.restart()
    place.ends(7)
    place.restart()
    assert [place.fetched(p) for p in range(4)] == [1, 1, 1, 5]


def test_a_tombstone_in_a_transaction_does_not_wait() -> None:
    """Nobody writes one; Kafka's coordinator reads it so."""
    shard = GroupShard()
    shard.replay(OffsetCommitted("g", "t", 0, Committed(1)))
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, Committed(2))))
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, None)))
    assert not shard.offsets
    assert not shard.pending.by_group


def test_offsets_are_never_without_a_group() -> None:
    """Brokers before KAFKA-19163 let go of groups whose offsets were pending: the marker makes it anew."""
    shard = GroupShard()
    shard.replay(InTransaction(7, OffsetCommitted("g", "t", 0, Committed(2))))
    shard.replay(classic_log.tombstone("g"))
    assert not shard.groups
    shard.replay(TransactionEnded(7, committed=True))
    assert repr(shard) == "<group shard: 1 groups with 0 members, 1 offsets>"


def test_a_run_of_commits_may_be_in_a_transaction() -> None:
    """Each of its partitions is pending, and counts in the end."""
    pending = Pending()
    pending.add(7, OffsetsCommitted("g", "t", {0: Committed(1), 2: Committed(3)}))
    assert repr(pending) == "<pending: 1 transactions, 1 groups>"
    assert [r.partition for r in pending.end(7, committed=True)] == [0, 2]


class ByOffset:
    """Kafka's own rule as it says it: each commit remembers where its record stands, and the greater wins."""

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
        for held in self.open.values():
            held.pop(partition, None)

    def end(self, producer: int, committed: bool) -> None:
        for partition, told in self.open.pop(producer, {}).items():
            if committed and told > self.counts.get(partition, (0, 0)):
                self.counts[partition] = told

    def told(self, partition: int) -> int:
        return self.counts.get(partition, (0, -1))[1]

    def is_open(self, partition: int) -> bool:
        return any(partition in held for held in self.open.values())


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
def test_any_order_comes_to_what_kafka_makes_of_it(steps: list[tuple[str, int, Any]]) -> None:
    """At every step; after a restart; and after the cleaner was there, who is never in front of a commit that
    is open."""
    place, model = Place(), ByOffset()
    for number, (kind, which, what) in enumerate(steps):
        if kind == "commit":
            assert place.commits(number, producer=what, partitions=(which,)) is Errors.NONE
            model.commit(which, number, what)
        elif kind == "end":
            place.ends(which, what)
            model.end(which, what)
        elif "g" in place.shard.groups:
            assert place.forgets(which) == [Errors.NONE]
            model.forget(which)
        place.restart()
        assert [place.fetched(p) for p in range(3)] == [model.told(p) for p in range(3)]
        unstable = [place.fetched(p, stable=True) == UNSTABLE for p in range(3)]
        assert unstable == [model.is_open(p) for p in range(3)]
        left = shard_of(compacted(place.log))
        assert left.offsets == place.shard.offsets
        assert left.pending.by_group == place.shard.pending.by_group
