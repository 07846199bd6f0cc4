"""Groups that change their type, and what a reader remembers."""

from __future__ import annotations

from typing import Any

from tests.groups.history.logs import Batch, Entry, told

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

OLD = ClassicProtocolMetadata(10_000, (("range", b""),))


def log(*batches: list[Record], start: int = 0) -> list[Batch]:
    """Each with the time of its first offset."""
    found = []
    for records in batches:
        entries = tuple(Entry(start + i, start, r.key, r) for i, r in enumerate(records))
        found.append(Batch(start, start + len(records) - 1, entries))
        start += len(records)
    return found


def classic(generation: int, *names: str, group: str = "g") -> Record:
    """Each name is a member's id, with its instance id behind a slash."""
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


GONE = Record(GroupMetadataKey(group="g"), None)


def speaks(name: str, *, instance: str | None = None, old: bool = False, topics: str = "t") -> Record:
    member = Member(
        name, instance, client_id="c", client_host="/h", topics=frozenset(topics.split()),
        classic=OLD if old else None,
    )  # fmt: skip
    return member_record("g", member)


def has(name: str, epoch: int, state: MemberState = MemberState.STABLE) -> Record:
    return current_record("g", name, CurrentAssignment(state, epoch, epoch - 1))


def ends(*members: str) -> list[Record]:
    group = ConsumerGroup("g")
    group.members.update((name, Member(name)) for name in members)
    return group_tombstones(group)


def why(*batches: list[Record]) -> list[tuple[str, int, str, list[str]]]:
    return [
        (row.group_type, row.epoch, row.state, [f"{c.kind} {c.member_id or ''}".rstrip() for c in row.causes])
        for _, row in told(log(*batches))
    ]


UPGRADE = [GONE, speaks("a", old=True), group_record("g", 1, 5), assignment_record("g", 1, 0), has("a", 1)]


def test_the_epoch_that_an_upgrade_begins_with_is_the_generation_and_no_row() -> None:
    rows = why([classic(1, "a")], [*UPGRADE, speaks("b"), group_record("g", 2, 5)])
    assert rows == [
        ("classic", 1, "Stable", ["member-joined a"]),
        ("consumer", 2, "Assigning", ["upgraded b", "member-joined b"]),
    ]


def test_a_static_member_that_upgrades_with_other_wishes_is_named() -> None:
    upgrade = [GONE, speaks("a", instance="i", old=True), group_record("g", 1, 5)]
    replaced = [*member_tombstones("g", "a"), speaks("b", instance="i", topics="t u")]
    rows = why([classic(1, "a/i")], [*upgrade, *replaced, group_record("g", 2, 6)])
    assert rows[1:] == [("consumer", 2, "Assigning", ["upgraded b", "static-member-rejoins b"])]


def test_an_empty_classic_group_that_makes_room_is_an_upgrade_too() -> None:
    rows = why([classic(4)], [GONE, speaks("b"), group_record("g", 2, 5)])
    assert rows[-1] == ("consumer", 2, "Assigning", ["upgraded b", "member-joined b"])


def test_a_group_that_was_deleted_before_is_a_new_one() -> None:
    rows = why([classic(4)], [GONE], [speaks("b"), group_record("g", 2, 5)])
    assert rows[-1] == ("consumer", 2, "Assigning", ["member-joined b"])


MIXED = [
    [speaks("b", instance="i"), group_record("g", 2, 5), assignment_record("g", 2, 0), has("b", 2)],
    [speaks("a", old=True), group_record("g", 3, 5), assignment_record("g", 3, 0), has("a", 3), has("b", 3)],
]


def test_the_generation_behind_a_downgrade_is_due_to_it() -> None:
    """The one that the group takes over from its epoch is none."""
    rows = why(*MIXED, [*ends("a", "b"), classic(3, "a")], [classic(4, "a", "d")])
    assert rows[-1] == ("classic", 4, "Stable", ["downgraded b", "member-gone b", "member-joined d"])
    assert [row[:3] for row in rows[:-1]] == [
        ("consumer", 2, "Assigning"), ("consumer", 2, "Stable"), ("consumer", 3, "Assigning"),
        ("consumer", 3, "Stable"),
    ]  # fmt: skip


def test_but_no_later_one() -> None:
    rows = why(*MIXED, [*ends("a", "b"), classic(3, "a")], [classic(5, "a", "d")])
    assert rows[-1] == ("classic", 5, "Stable", ["member-joined d"])


def test_a_static_member_that_downgrades_the_group_moves_nothing() -> None:
    """It takes the place of the last that spoke the new protocol: what comes later has other reasons."""
    rows = why(*MIXED, [*ends("a", "b"), classic(3, "a", "e/i")], [classic(4, "a")])
    assert rows[-1] == ("classic", 4, "Stable", ["member-gone e"])


def test_unless_there_was_no_target_for_the_last_epoch() -> None:
    stale = [group_record("g", 4, 6)]
    rows = why(*MIXED, stale, [*ends("a", "b"), classic(4, "a", "e/i")], [classic(5, "a", "e/i")])
    assert rows[-1] == ("classic", 5, "Stable", ["downgraded b", "static-member-rejoins e"])


def test_causes_and_members_stand_with_all_that_is_known_of_them() -> None:
    (_, row), (_, stable) = told(log(MIXED[0]), partition=7)
    assert (row.partition, row.base_offset, row.last_offset, row.inferred) == (7, 0, 1, True)
    (cause,) = row.causes
    assert (cause.member_id, cause.instance_id, cause.client_id, cause.client_host) == ("b", "i", "c", "/h")
    assert (stable.base_offset, stable.last_offset, stable.causes) == (3, 3, (cause,))
    assert [(m.member_id, m.instance_id, m.joined_ms) for m in stable.members] == [("b", "i", 0)]


def test_nothing_is_remembered_of_groups_that_are_gone() -> None:
    history = History(0)
    for batch in log(*MIXED, [*ends("a", "b")], [classic(1, "x", group="h")], [GONE]):
        history.batch(batch.base_offset, batch.last_offset, len(batch.entries))
        for entry in batch.entries:
            history.take(entry.offset, entry.timestamp_ms, entry.said)
    held: Any = history
    assert repr(held._consumer) == "<history of 0 consumer groups>"
    assert (held._consumer._memories, list(held._classic)) == ({}, ["h"])


def test_a_log_whose_beginning_is_gone_says_nothing_until_a_key_comes_again() -> None:
    """Who is there may be an old member whose first record is gone."""
    joins = [[speaks(name), group_record("g", epoch, 5)] for epoch, name in enumerate("abc", 7)]
    rows = [
        (row.epoch, [c.member_id for c in row.causes]) for _, row in told(log(joins[0], joins[1], start=3))
    ]
    assert rows == [(8, ["b"])]


def test_an_epoch_that_jumps_is_not_explained() -> None:
    rows = why([speaks("a"), group_record("g", 2, 5)], [speaks("b"), group_record("g", 9, 5)])
    assert rows[-1] == ("consumer", 9, "Assigning", ["unknown"])


def runs(name: str, epoch: int) -> list[Record]:
    """A member of a streams group, and the epoch that is raised for it."""
    value = StreamsGroupMetadataValue(epoch=epoch, metadata_hash=5)
    return [
        streams_log.member_record("g", StreamsMember(name)),
        Record(StreamsGroupMetadataKey(group_id="g"), value),
    ]


def test_a_group_of_another_type_has_nobody_of_those_that_it_had() -> None:
    """Also where compaction took the tombstones between: its first epoch is the first of its kind."""
    consumer = [speaks("b"), group_record("g", 7, 5)]
    rows = why(runs("a", 2), consumer, runs("c", 9), [classic(3, "d")], runs("e", 4))
    assert rows == [
        ("streams", 2, "Assigning", ["member-joined a"]),
        ("consumer", 7, "Assigning", ["member-joined b"]),
        ("streams", 9, "Assigning", ["member-joined c"]),
        ("classic", 3, "Stable", ["unknown"]),
        ("streams", 4, "Assigning", ["member-joined e"]),
    ]
