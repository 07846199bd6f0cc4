"""Generated logs of a consumer group whose members read different topics: both readers agree, gaps are the
holes between owners, and no sum exceeds partitions × time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.groups.history.logs import Batch, Entry
from tests.pipeline.independent.comparing import differences, printed
from tests.pipeline.independent.reader import Reader
from tests.pipeline.reduce.reading import Rows, reduced

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import Member
from konvene.groups.consumer.log import (
    assignment_record,
    current_record,
    group_record,
    member_record,
    member_tombstones,
    target_record,
)
from konvene.records.coordinator import Record

TOPICS = [Uuid(bytes([65 + i]) * 16) for i in range(3)]
NAMES = {str(topic): f"topic-{i}" for i, topic in enumerate(TOPICS)}
PARTITIONS = 2
Partition = tuple[Uuid, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "subscribe", "reconcile", "reconcile", "reconcile", "converge"]),
        st.integers(0, 3), st.integers(0, 7), st.sampled_from([0, 1, 40, 5_000]), st.booleans(),
    ),
    max_size=30,
)  # fmt: skip
"""What happens; to which member; its topics as bits; the time since; whether a new batch begins."""


class Writer:
    """A coordinator in miniature, which writes what it decides as Kafka does."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.now_ms = 1_000
        self.present: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        """When each member was in the group."""
        self._entries: list[Entry] = []
        self._offset, self._epoch = 0, 0
        self._topics: dict[str, int] = {}
        self._targets: dict[str, set[Partition]] = {}
        self._owned: dict[str, set[Partition]] = {}
        self._names: dict[int, str] = {}
        self._ids = 0

    def write(self, steps: list[tuple[str, int, int, int, bool]]) -> None:
        for what, slot, topics, later_ms, new_batch in steps:
            if new_batch:
                self.end_batch()
            self.now_ms += later_ms
            name = self._names.get(slot, "")
            if what == "join" and not name:
                self._ids += 1
                self._names[slot] = f"m{self._ids}"
                self._subscribe(self._names[slot], topics)
            elif what == "subscribe" and name:
                self._subscribe(name, topics)
            elif what == "leave" and name:
                self._leave(slot, name)
            elif what == "reconcile" and name:
                self._reconcile(name)
            elif what == "converge":
                for each in [*self._topics, *self._topics]:
                    self._reconcile(each)
        self.end_batch()

    def end_batch(self) -> None:
        if self._entries:
            first, last = self._entries[0].offset, self._entries[-1].offset
            self.log.append(Batch(first, last, tuple(self._entries)))
            self._entries = []

    def _put(self, *records: Record) -> None:
        for record in records:
            self._entries.append(Entry(self._offset, self.now_ms, record.key, record))
            self._offset += 1

    def _subscribe(self, name: str, topics: int) -> None:
        if name not in self._topics:
            self.present[name].append((self._offset, None))
        elif self._topics[name] == topics:
            return
        self._topics[name] = topics
        subscribed = frozenset(NAMES[str(t)] for i, t in enumerate(TOPICS) if topics >> i & 1)
        self._put(member_record("g", Member(name, client_id=name, topics=subscribed)))
        self._bump()
        self._owned.setdefault(name, set())
        self._reconcile(name)

    def _leave(self, slot: int, name: str) -> None:
        self.present[name][-1] = (self.present[name][-1][0], self._offset)
        del self._names[slot], self._topics[name]
        self._targets.pop(name, None)
        self._owned.pop(name, None)
        self._put(*member_tombstones("g", name))
        self._bump()

    def _bump(self) -> None:
        """Bump the epoch and compute targets: partition p of a topic for its subscriber number p."""
        self._epoch += 1
        self._put(group_record("g", self._epoch, self._epoch))
        if not self._topics:
            return
        self._targets = {name: set() for name in self._topics}
        for i, topic in enumerate(TOPICS):
            readers = sorted(name for name, bits in self._topics.items() if bits >> i & 1)
            for p in range(PARTITIONS if readers else 0):
                self._targets[readers[p % len(readers)]].add((topic, p))
        for name, target in sorted(self._targets.items()):
            self._put(target_record("g", name, _by_topic(target)))
        self._put(assignment_record("g", self._epoch, self.now_ms))

    def _reconcile(self, name: str) -> None:
        """Let a member release what is not in its target, and get what others have released."""
        target = self._targets[name]
        taken = {p for other, owned in self._owned.items() if other != name for p in owned}
        self._owned[name] = target - taken
        state = MemberState.STABLE if self._owned[name] == target else MemberState.UNRELEASED_PARTITIONS
        given = {t: dict.fromkeys(ps, self._epoch) for t, ps in _by_topic(self._owned[name]).items()}
        self._put(
            current_record("g", name, CurrentAssignment(state, self._epoch, self._epoch - 1, given, {}))
        )


def _by_topic(partitions: set[Partition]) -> dict[Uuid, tuple[int, ...]]:
    found: dict[Uuid, tuple[int, ...]] = {}
    for topic, p in sorted(partitions):
        found[topic] = (*found.get(topic, ()), p)
    return found


@given(STEPS)
def test_readers_agree_and_gaps_are_holes(steps: list[tuple[str, int, int, int, bool]]) -> None:
    writer = Writer()
    writer.write(steps)
    rows = reduced(writer.log, names=NAMES)
    records = [
        printed(entry.offset, batch.base_offset, entry.timestamp_ms, entry.record, None)
        for batch in writer.log
        for entry in batch.entries
    ]
    assert differences(rows, Reader(NAMES).read(records)) == []
    assert_gaps_are_holes(writer, rows)
    duration_ms = writer.now_ms - 1_000
    gaps_ms = sum(gap["gap_ms"] or 0 for gap in rows["unavailability"])
    known_ms = sum(row["unavailable_ms"] or 0 for row in rows["rebalance"])
    assert max(gaps_ms, known_ms) <= len(TOPICS) * PARTITIONS * duration_ms


def assert_gaps_are_holes(writer: Writer, rows: Rows) -> None:
    """The rows of `unavailability` that have ended are the holes in `ownership`, except where the owner gave
    the partition up and was a member until the group had completed a rebalance without it."""
    by_unit: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows["ownership"], key=lambda row: row["from_offset"]):
        by_unit[row["topic"], row["partition"]].append(row)
    holes = {
        (*unit, one["to_ms"], other["from_ms"]): one
        for unit, intervals in by_unit.items()
        for one, other in pairwise(intervals)
        if one["to_ms"] < other["from_ms"]
    }
    gaps = {
        (g["topic"], g["partition"], g["from_ms"], g["to_ms"]) for g in rows["unavailability"] if g["to_ms"]
    }
    assert gaps <= holes.keys()
    for hole in holes.keys() - gaps:
        owner, lost = holes[hole]["member_id"], holes[hole]["to_offset"]
        completed = [
            row["last_offset"] for row in rows["rebalance"]
            if row["converged"] and row["state"] == "Stable" and row["last_offset"] >= lost
        ]  # fmt: skip
        assert any(since <= min(completed) < (until or 1 << 60) for since, until in writer.present[owner])
