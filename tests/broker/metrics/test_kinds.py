"""Counting rebalances by audit rows, and moved partitions by records."""

from __future__ import annotations

import pytest

from konvene.broker.metrics.group_types import KINDS, MOVES, Moved, begins, counts_in_kafka, ends, moved
from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.log import member_tombstones, target_record
from konvene.groups.group_type import TYPES
from konvene.groups.streams.current_assignment import MemberAssignment
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.log import target_record as streams_target
from konvene.records.audit import RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.commits import OffsetCommitted
from konvene.records.coordinator import GROUP_RECORDS, Record

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def test_each_group_type_has_a_row() -> None:
    """Each group type has its states, its epoch, and a count of waiting members."""
    assert {row.name for row in TYPES.values()} <= set(KINDS)
    assert set(MOVES) <= {kind.key for kind in GROUP_RECORDS.values()}


ROWS = [
    # Group type, state, started, joined; expected: begins, ends, counted by Kafka.
    ("classic", "Stable", 5, 6, True, True, True),
    ("classic", "Empty", 5, -1, True, False, False),
    ("classic", "Superseded", 5, 6, True, False, False),
    ("consumer", "Assigning", 5, -1, True, False, True),
    ("consumer", "Empty", 5, -1, True, False, True),
    ("consumer", "Stable", 5, 6, False, True, False),
    ("consumer", "Stable", 5, -1, True, False, False),  # An upgraded group, without an epoch bump.
    ("streams", "NotReady", 5, -1, True, False, True),
    ("streams", "Stable", 5, 6, False, True, False),
]


@pytest.mark.parametrize(("kind", "state", "started", "joined", "is_begin", "is_end", "in_kafka"), ROWS)
def test_audit_rows_begin_or_end_rebalances(
    kind: str, state: str, started: int, joined: int, is_begin: bool, is_end: bool, in_kafka: bool
) -> None:
    """A rebalance is counted once, although it may have two audit rows."""
    row = RebalanceValue(group_type=kind, state=state, started_ms=started, joined_ms=joined, ended_ms=9)
    assert (begins(row), ends(row), counts_in_kafka(row)) == (is_begin, is_end, in_kafka)


def test_target_moves_newly_assigned_partitions() -> None:
    """Kept and revoked partitions do not count as moved, nor does a tombstone."""
    group = ConsumerGroup("g", targets={"m": {T: (0, 1, 2)}})
    groups = {"g": group}
    assert moved(groups, target_record("g", "m", {T: (1, 2, 3), U: (0, 1)})) == Moved("g", "consumer", 3)
    assert moved(groups, target_record("g", "m", {T: (0,)})) == Moved("g", "consumer", 0)
    assert moved(groups, target_record("g", "new", {T: (0,)})) == Moved("g", "consumer", 1)
    assert moved({}, target_record("g", "m", {T: (0, 1)})) == Moved("g", "consumer", 2)
    assert [moved(groups, record) for record in member_tombstones("g", "m")] == [None] * 3


def test_tasks_are_counted_by_role() -> None:
    """A standby that becomes active moves, an unchanged task does not; subtopologies are distinguished."""
    group = StreamsGroup("s", targets={"m": MemberAssignment({"0": (0, 1)}, {"0": (2,)}, {})})
    groups = {"s": group}
    more = MemberAssignment({"0": (0, 1, 2), "1": (0,)}, {"0": (3,)}, {"1": (1,)})
    assert moved(groups, streams_target("s", "m", more)) == Moved("s", "streams", 4)
    assert moved(groups, streams_target("s", "m", group.targets["m"])) == Moved("s", "streams", 0)
    assert moved({}, streams_target("s", "m", more)) == Moved("s", "streams", 6)


def encode_assignment(**partitions: tuple[int, ...]) -> bytes:
    return write_assignment(sorted(partitions.items()), b"\0\0")


def classic(**members: bytes) -> dict[str, ClassicGroup]:
    """Return a stable classic group of members with these assignments."""
    group = ClassicGroup("g", protocol_type="consumer")
    for name, assignment in members.items():
        group.put(Member(name, None, "", "", 0, 0, "consumer", (), assignment))
    return {"g": group}


def generation(protocol_type: str = "consumer", **members: bytes) -> Record:
    """Return the record of a leader's assignment."""
    metadata = tuple(
        MemberMetadata(member_id=name, assignment=assignment) for name, assignment in members.items()
    )
    return Record(
        GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type=protocol_type, members=metadata)
    )


def test_leader_assignment_moves_newly_assigned_partitions() -> None:
    """By topic and partition, from one generation to the next."""
    before = classic(a=encode_assignment(t=(0, 1)), b=encode_assignment(t=(2, 3)))
    record = generation(
        a=encode_assignment(t=(0, 1, 2)), b=encode_assignment(t=(3,), u=(0,)), c=encode_assignment(u=(1, 2))
    )
    assert moved(before, record) == Moved("g", "classic", 4)
    assert moved(before, generation(a=encode_assignment(t=(0, 1)), b=encode_assignment(t=(2, 3)))) == Moved(
        "g", "classic", 0
    )
    assert moved({}, generation(a=encode_assignment(t=(0, 1)))) == Moved("g", "classic", 2)


def test_unreadable_assignment_moves_nothing() -> None:
    """Assignments of Connect, invalid bytes of a member, and offset records."""
    assert moved({}, generation("connect", a=encode_assignment(t=(0, 1)))) is None
    assert moved({}, generation(a=b"\0")) == Moved("g", "classic", 0)
    assert moved({}, generation(a=b"\0\0\xff\xff\xff")) == Moved("g", "classic", 0)
    assert moved({}, OffsetCommitted("g", "t", 0, None)) is None
