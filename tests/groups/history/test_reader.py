"""Inferred rebalances of groups that change their type, and the state that the reader keeps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.history.logs import Batch, Entry, infer_rebalances

from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.log import (
    assignment_record,
    current_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
)
from konvene.groups.history import History
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.streams import log as streams_log
from konvene.groups.streams.group import Member as StreamsMember
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record
from konvene.records.streams import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from konvene.shard import causes

SUPERSEDED = causes.SUPERSEDED_UNRECORDED
OLD = ClassicProtocolMetadata(10_000, (("range", b""),))


def log(*batches: list[Record], start: int = 0) -> list[Batch]:
    """Return batches with consecutive offsets, each with the time of its first offset."""
    found = []
    for records in batches:
        entries = tuple(Entry(start + i, start, r.key, r) for i, r in enumerate(records))
        found.append(Batch(start, start + len(records) - 1, entries))
        start += len(records)
    return found


def classic(generation: int, *names: str, group: str = "g") -> Record:
    """Return a classic group's record; each name is a member id, with its instance id after a slash."""
    members = tuple(
        MemberMetadata(
            member_id=name.partition("/")[0], group_instance_id=name.partition("/")[2] or None,
            client_id="c", client_host="/h", session_timeout=1, subscription=b"", assignment=b"",
        )
        for name in names
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol="range", leader=None, members=members
    )
    return Record(GroupMetadataKey(group=group), value)


TOMBSTONE = Record(GroupMetadataKey(group="g"), None)


def member_metadata(
    name: str, *, instance: str | None = None, old: bool = False, topics: str = "t"
) -> Record:
    member = Member(
        name, instance, client_id="c", client_host="/h", topics=frozenset(topics.split()),
        classic=OLD if old else None,
    )  # fmt: skip
    return member_record("g", member)


def member_assignment(name: str, epoch: int, state: MemberState = MemberState.STABLE) -> Record:
    return current_record("g", name, CurrentAssignment(state, epoch, epoch - 1))


def end_of_group(*members: str) -> list[Record]:
    group = ConsumerGroup("g")
    group.members.update((name, Member(name)) for name in members)
    return group_tombstones(group)


def rows_of(*batches: list[Record]) -> list[tuple[str, int, str, list[str]]]:
    return [
        (row.group_type, row.epoch, row.state, [f"{c.kind} {c.member_id or ''}".rstrip() for c in row.causes])
        for _, row in infer_rebalances(log(*batches))
    ]


UPGRADE = [
    TOMBSTONE,
    member_metadata("a", old=True),
    group_record("g", 1, 5),
    assignment_record("g", 1, 0),
    member_assignment("a", 1),
]


def test_the_first_epoch_of_an_upgrade_is_the_generation_without_a_row() -> None:
    rows = rows_of([classic(1, "a")], [*UPGRADE, member_metadata("b"), group_record("g", 2, 5)])
    assert rows == [
        ("classic", 1, "Stable", ["member-joined a"]),
        ("consumer", 2, "Assigning", ["upgraded b", "member-joined b"]),
    ]


def test_a_static_member_that_upgrades_with_another_subscription_is_a_cause() -> None:
    upgrade = [TOMBSTONE, member_metadata("a", instance="i", old=True), group_record("g", 1, 5)]
    replaced = [*member_tombstones("g", "a"), member_metadata("b", instance="i", topics="t u")]
    rows = rows_of([classic(1, "a/i")], [*upgrade, *replaced, group_record("g", 2, 6)])
    assert rows[1:] == [("consumer", 2, "Assigning", ["upgraded b", "subscription-changed b"])]


def test_replacing_an_empty_classic_group_is_no_upgrade() -> None:
    rows = rows_of([classic(4)], [TOMBSTONE, member_metadata("b"), group_record("g", 2, 5)])
    assert rows[-1] == ("consumer", 2, "Assigning", ["member-joined b"])


def test_a_group_deleted_before_is_no_upgrade() -> None:
    rows = rows_of([classic(4)], [TOMBSTONE], [member_metadata("b"), group_record("g", 2, 5)])
    assert rows[-1] == ("consumer", 2, "Assigning", ["member-joined b"])


MIXED = [
    [
        member_metadata("b", instance="i"),
        group_record("g", 2, 5),
        assignment_record("g", 2, 0),
        member_assignment("b", 2),
    ],
    [
        member_metadata("a", old=True),
        group_record("g", 3, 5),
        assignment_record("g", 3, 0),
        member_assignment("a", 3),
        member_assignment("b", 3),
    ],
]


def test_the_generation_after_a_downgrade_has_that_cause() -> None:
    """The generation that the group takes over from its epoch is no rebalance."""
    rows = rows_of(*MIXED, [*end_of_group("a", "b"), classic(3, "a")], [classic(4, "a", "d")])
    assert rows[-1] == ("classic", 4, "Stable", ["downgraded b", "member-gone b", "member-joined d"])
    assert [row[:3] for row in rows[:-1]] == [
        ("consumer", 2, "Assigning"), ("consumer", 2, "Stable"), ("consumer", 3, "Assigning"),
        ("consumer", 3, "Stable"),
    ]  # fmt: skip


def test_later_generations_do_not_have_the_downgrade_as_cause() -> None:
    rows = rows_of(*MIXED, [*end_of_group("a", "b"), classic(3, "a")], [classic(5, "a", "d")])
    assert rows[-1] == ("classic", 5, "Stable", ["member-joined d"])


def test_a_downgrade_by_a_static_member_bumps_nothing() -> None:
    """It replaces the last streams or consumer member: later rebalances have other causes."""
    rows = rows_of(*MIXED, [*end_of_group("a", "b"), classic(3, "a", "e/i")], [classic(4, "a")])
    assert rows[-1] == ("classic", 4, "Stable", ["member-gone e"])


def test_a_downgrade_by_a_static_member_with_a_pending_target_is_a_cause() -> None:
    stale = [group_record("g", 4, 6)]
    rows = rows_of(*MIXED, stale, [*end_of_group("a", "b"), classic(4, "a", "e/i")], [classic(5, "a", "e/i")])
    assert rows[-1] == ("classic", 5, "Stable", ["downgraded b", "static-member-rejoins e"])


def test_causes_and_members_have_all_known_fields() -> None:
    (_, row), (_, stable) = infer_rebalances(log(MIXED[0]), partition=7)
    assert (row.partition, row.base_offset, row.last_offset, row.inferred) == (7, 0, 1, True)
    (cause,) = row.causes
    assert (cause.member_id, cause.instance_id, cause.client_id, cause.client_host) == ("b", "i", "c", "/h")
    assert (stable.base_offset, stable.last_offset, stable.causes) == (3, 3, (cause,))
    assert [(m.member_id, m.instance_id, m.joined_ms) for m in stable.members] == [("b", "i", 0)]


def test_no_state_of_deleted_groups_is_kept() -> None:
    history = History(0)
    for batch in log(*MIXED, [*end_of_group("a", "b")], [classic(1, "x", group="h")], [TOMBSTONE]):
        history.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            history.take(entry.offset, entry.timestamp_ms, entry.record)
    reader: Any = history
    assert repr(reader._consumer) == "<history of 0 consumer groups>"
    assert (reader._consumer._memories, list(reader._classic)) == ({}, ["h"])


def test_a_log_without_its_beginning_yields_no_row_until_the_next_bump() -> None:
    """A listed member may be an old one whose first record was removed."""
    joins = [[member_metadata(name), group_record("g", epoch, 5)] for epoch, name in enumerate("abc", 7)]
    rows = [
        (row.epoch, [c.member_id for c in row.causes])
        for _, row in infer_rebalances(log(joins[0], joins[1], start=3))
    ]
    assert rows == [(8, ["b"])]


@pytest.mark.parametrize(
    "names, whole, without_beginning",
    [
        (
            ("a",),
            ["member-joined|member-metadata-changed|leader-rejoined", SUPERSEDED, SUPERSEDED],
            ["unknown"],
        ),
        (("a", "b"), ["member-joined b", SUPERSEDED], ["member-joined b"]),
    ],
)
def test_generations_before_the_log_is_complete_are_not_superseded(
    names: tuple[str, ...], whole: list[str], without_beginning: list[str]
) -> None:
    """They may be ones whose records were removed."""
    for start, expected in ((0, whole), (3, without_beginning)):
        records = ([classic(1, "a")], [classic(4, *names)])
        _, row = list(infer_rebalances(log(*records, start=start)))[-1]
        assert [f"{c.kind} {c.member_id or ''}".rstrip() for c in row.causes] == expected


def test_an_epoch_that_jumps_is_not_explained() -> None:
    rows = rows_of(
        [member_metadata("a"), group_record("g", 2, 5)], [member_metadata("b"), group_record("g", 9, 5)]
    )
    assert rows[-1] == ("consumer", 9, "Assigning", ["unknown"])


def streams_member(name: str, epoch: int) -> list[Record]:
    """Return a streams member's record, and the epoch bumped for it."""
    value = StreamsGroupMetadataValue(epoch=epoch, metadata_hash=5)
    return [
        streams_log.member_record("g", StreamsMember(name)),
        Record(StreamsGroupMetadataKey(group_id="g"), value),
    ]


def test_a_group_of_another_type_has_no_former_members() -> None:
    """Also if compaction removed the tombstones in between: its first epoch is the first of its type."""
    consumer = [member_metadata("b"), group_record("g", 7, 5)]
    rows = rows_of(
        streams_member("a", 2), consumer, streams_member("c", 9), [classic(3, "d")], streams_member("e", 4)
    )
    assert rows == [
        ("streams", 2, "Assigning", ["member-joined a"]),
        ("consumer", 7, "Assigning", ["member-joined b"]),
        ("streams", 9, "Assigning", ["member-joined c"]),
        ("classic", 3, "Stable", ["unknown"]),
        ("streams", 4, "Assigning", ["member-joined e"]),
    ]
