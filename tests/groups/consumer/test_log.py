"""Kafka's own log of consumer groups is read to what Kafka said of them, whatever compaction left of it; and
what is written says the same as what Kafka wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.codec import batches as rb
from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import NO_OWNER, CurrentAssignment, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, State
from konvene.groups.consumer.log import (
    REPLAYS,
    assignment_record,
    current_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_record,
    replay,
    target_record,
)
from konvene.records import consumer as rc
from konvene.records.coordinator import Record
from konvene.sim.journal import Batch, batch_of
from konvene.sim.world.compaction import compacted

LOG = Path(__file__).parents[2] / "vectors" / "logs" / "consumer"


def batches(place: str) -> list[Batch]:
    """What a partition's log says of consumer groups, batch by batch."""
    found = []
    for file in sorted((LOG / place).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            told = batch_of((bytes(r.key or b""), r.value) for r in rb.records(batch, header))
            ours = [i for i, r in enumerate(told.records) if type(r) is Record and type(r.key) in REPLAYS]
            found.append(Batch(tuple(told.pairs[i] for i in ours), tuple(told.records[i] for i in ours)))
    return found


PLACES = [place.name for place in sorted(LOG.glob("__consumer_offsets-*"))]


def read(told: Iterable[Batch]) -> dict[str, ConsumerGroup]:
    groups: dict[str, Any] = {}
    for batch in told:
        for record in batch.records:
            replay(groups, record)
    return groups


def final() -> dict[str, Any]:
    return json.loads((LOG / "final.json").read_text())


def described(group: ConsumerGroup, names: dict[Uuid, str]) -> dict[str, Any]:
    """A group in the words of `final.json`."""

    def told(partitions: Any) -> list[str]:
        return sorted(f"{names[t]}-{p}" for t, ps in partitions.items() for p in ps)

    return {
        "state": group.state.value,
        "groupEpoch": group.epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "members": sorted(
            (
                {
                    "memberId": m.member_id,
                    "clientId": m.client_id,
                    "instanceId": m.instance_id,
                    "memberEpoch": m.current.epoch,
                    "upgraded": m.classic is None,
                    "assignment": told(m.current.assigned),
                    "target": told(group.targets.get(m.member_id, {})),
                }
                for m in group.members.values()
            ),
            key=lambda m: str(m["memberId"]),
        ),
    }


def test_kafkas_log_is_read_to_what_kafka_said() -> None:
    """Members, epochs, what each has and is meant to have."""
    told = final()
    names = {Uuid.parse(t["id"]): name for name, t in told["topics"].items()}
    groups = {name: group for place in PLACES for name, group in read(batches(place)).items()}
    wanted = {name: g for name, g in told["groups"].items() if g["type"] == "Consumer"}
    assert wanted.keys() <= groups.keys()
    assert any(g["members"] for g in wanted.values())
    for name, group in wanted.items():
        found = described(groups[name], names)
        members = sorted(group["members"], key=lambda m: str(m["memberId"]))
        assert found["members"] == members
        assert {k: group[k] for k in ("state", "groupEpoch", "targetAssignmentEpoch")} == {
            k: v for k, v in found.items() if k != "members"
        }


@pytest.mark.parametrize("place", PLACES)
def test_books_agree_after_every_record(place: str) -> None:
    """Owners, subscribers, names and who is behind are what can be counted."""
    groups: dict[str, Any] = {}
    for batch in batches(place):
        for record in batch.records:
            replay(groups, record)
            for group in groups.values():
                assert_books_agree(group)


def assert_books_agree(group: ConsumerGroup) -> None:
    has = {
        (topic, p): m.member_id
        for m in group.members.values()
        for epochs in (m.current.assigned, m.current.pending_revocation)
        for topic, ps in epochs.items()
        for p in ps
    }
    kept = {(topic, p): owner for topic, ps in group.owners.items() for p, owner in ps.items()}
    assert kept.keys() <= has.keys()
    assert all(unit in kept for unit in has), "somebody has what nobody owns"
    named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert group.instances == named
    names = [name for m in group.members.values() for name in m.topics]
    assert group.subscribers == {name: names.count(name) for name in names}
    behind = {m.member_id for m in group.members.values() if not m.is_reconciled_to(group.assignment_epoch)}
    assert group.behind == behind
    assert (group.state is State.EMPTY) == (not group.members)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_written_is_what_kafka_wrote(place: str) -> None:
    """Each record, made again from the state behind it, says the same; lists may stand in another order."""
    groups: dict[str, Any] = {}
    made = 0
    for batch in batches(place):
        for record in batch.records:
            replay(groups, record)
            if record.value is not None:
                again = written(groups, record)
                assert again.key == record.key
                assert in_order(again.value) == in_order(record.value)
                made += 1
    assert made > 50


def written(groups: dict[str, Any], record: Record) -> Record:
    key: Any = record.key
    group = groups[key.group_id]
    if isinstance(key, rc.ConsumerGroupMetadataKey):
        return group_record(group.group_id, group.epoch, group.metadata_hash)
    if isinstance(key, rc.ConsumerGroupMemberMetadataKey):
        return member_record(group.group_id, group.members[key.member_id])
    if isinstance(key, rc.ConsumerGroupTargetAssignmentMetadataKey):
        return assignment_record(group.group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    if isinstance(key, rc.ConsumerGroupTargetAssignmentMemberKey):
        return target_record(group.group_id, key.member_id, group.targets[key.member_id])
    if isinstance(key, rc.ConsumerGroupCurrentMemberAssignmentKey):
        return current_record(group.group_id, key.member_id, group.members[key.member_id].current)
    assert isinstance(key, rc.ConsumerGroupRegularExpressionKey)
    return regex_record(group.group_id, key.regular_expression, group.regexes[key.regular_expression])


def in_order(value: Any) -> Any:
    """A value whose lists are sorted; partitions go with their epochs."""
    if isinstance(value, rc.TopicPartitions):
        return value.topic_id, sorted(zip(value.partitions, value.assignment_epochs or (), strict=True))
    if isinstance(value, tuple):
        return sorted((in_order(v) for v in value), key=repr)
    if hasattr(value, "__fields__"):
        return {f.name: in_order(getattr(value, f.name)) for f in value.__fields__}
    return value


def left_overs(told: list[Batch]) -> Iterator[list[Batch]]:
    """Every prefix compacted, with its tombstones and without, and every window that begins a third in."""
    for end in range(1, len(told) + 1):
        yield compacted(told, end, tombstones=True)
        yield compacted(told, end, tombstones=False)
        yield compacted(told, end, tombstones=True, begin=len(told) // 3)


@pytest.mark.parametrize("place", PLACES)
def test_compaction_changes_nothing_that_can_be_seen(place: str) -> None:
    """G2: a log of which compaction left something, wherever it was, is read to the same groups."""
    told = batches(place)
    whole = {name: seen(group) for name, group in read(told).items()}
    count = 0
    for left in left_overs(told):
        groups = read(left)
        assert {name: seen(group) for name, group in groups.items()} == whole
        for group in groups.values():
            assert_books_agree(group)
        count += 1
    assert count > 150


def seen(group: ConsumerGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.assignment_epoch, group.members, group.targets, group.regexes,
        group.state, {t: ps for t, ps in group.owners.items() if ps},
    )  # fmt: skip


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    """G8: nor do they make a group; nor does the end of a group of another kind."""
    groups: dict[str, Any] = {"classic": object()}
    gone = ConsumerGroup("gone")
    for record in (
        *group_tombstones(gone),
        *member_tombstones("gone", "m"),
        *group_tombstones(ConsumerGroup("classic")),
    ):
        replay(groups, record)
    assert list(groups) == ["classic"]


def test_a_group_that_is_deleted_leaves_nothing() -> None:
    """Its tombstones take all of it."""
    groups = read(batches(PLACES[0])) | read(batches(PLACES[1]))
    for group in list(groups.values()):
        for record in group_tombstones(group):
            replay(groups, record)
    assert groups == {}


def test_a_partition_stays_with_its_last_owner() -> None:
    """KAFKA-19862: a log compacted while it is read tells of the new owner before the old one has let go."""
    topic = Uuid(b"t" * 16)
    groups: dict[str, Any] = {}
    for member, has in (("old", {topic: {0: 1}}), ("new", {topic: {0: 2}}), ("old", {topic: {1: 3}})):
        current = rc.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=0,
            assigned_partitions=tuple(
                rc.TopicPartitions(topic_id=t, partitions=tuple(ps), assignment_epochs=tuple(ps.values()))
                for t, ps in has.items()
            ),
        )
        key = rc.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member)
        replay(groups, Record(key, current))
    group = groups["g"]
    assert group.owners == {topic: {0: "new", 1: "old"}}
    assert group.owner_epoch(topic, 0) == 3
    assert group.owner_epoch(topic, 2) == NO_OWNER


def told_current(member_id: str, has: dict[Uuid, dict[int, int]]) -> Record:
    current = CurrentAssignment(MemberState.STABLE, 3, 2, has)
    return current_record("g", member_id, current)


def test_a_batch_that_stands_twice_is_what_it_is_once() -> None:
    """G8: also where a static member has what another id of its had, all in one batch."""
    topic = Uuid(b"t" * 16)
    batch = [
        member_record("g", Member("old", "ann")),
        told_current("old", {topic: {0: 1}}),
        *member_tombstones("g", "old"),
        member_record("g", Member("new", "ann")),
        told_current("new", {topic: {0: 1}}),
        member_record("g", Member("new", "ann", client_id="ann")),
    ]
    once: dict[str, Any] = {}
    twice: dict[str, Any] = {}
    for record in batch:
        replay(once, record)
    for record in (*batch, *batch):
        replay(twice, record)
    assert once["g"].owners == {topic: {0: "new"}}
    assert once == twice


def test_what_a_member_says_of_itself_gives_it_nothing_back() -> None:
    """KAFKA-19862: it let go of a partition in a record that compaction has taken; another one has it."""
    topic = Uuid(b"t" * 16)
    groups: dict[str, Any] = {}
    for record in (
        told_current("old", {topic: {0: 1}}),
        told_current("new", {topic: {0: 2}}),
        member_record("g", Member("old", client_id="bob")),
        told_current("old", {topic: {1: 3}}),
    ):
        replay(groups, record)
    assert groups["g"].owners == {topic: {0: "new", 1: "old"}}


def test_an_assignment_that_is_gone_is_that_of_a_new_group() -> None:
    """G2: a group that was a classic one in between, read from a log that was compacted meanwhile. What is
    left of its end are the tombstones for which nothing came after it."""
    groups: dict[str, Any] = {}
    first = ConsumerGroup("g", epoch=7)
    for record in (group_record("g", 7, 1), assignment_record("g", 7, 5)):
        replay(groups, record)
    for record in group_tombstones(first):
        if not isinstance(record.key, rc.ConsumerGroupMetadataKey):
            replay(groups, record)
    for record in (member_record("g", Member("ann")), group_record("g", 2, 1)):
        replay(groups, record)
    fresh: dict[str, Any] = {}
    for record in (member_record("g", Member("ann")), group_record("g", 2, 1)):
        replay(fresh, record)
    assert groups == fresh
