"""Kafka's own log of streams groups is read to what Kafka said of them, whatever compaction left of it; and
what is written says the same as what Kafka wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.codec import batches as rb
from konvene.groups.streams.current_assignment import CurrentAssignment, Held, MemberState, Role
from konvene.groups.streams.group import Member, State, StreamsGroup
from konvene.groups.streams.log import (
    REPLAYS,
    assignment_record,
    current_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
    replay,
    target_record,
    topology_record,
)
from konvene.records import streams as rs
from konvene.records.coordinator import GROUP_RECORDS, Record, encode_record
from konvene.sim.journal import Batch, batch_of
from konvene.sim.world.compaction import compacted

LOG = Path(__file__).parents[2] / "vectors" / "logs" / "streams"


def batches(place: str) -> list[Batch]:
    """What a partition's log says of streams groups, batch by batch."""
    found = []
    for file in sorted((LOG / place).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            told = batch_of((bytes(r.key or b""), r.value) for r in rb.records(batch, header))
            ours = [i for i, r in enumerate(told.records) if type(r) is Record and type(r.key) in REPLAYS]
            found.append(Batch(tuple(told.pairs[i] for i in ours), tuple(told.records[i] for i in ours)))
    return found


PLACES = [place.name for place in sorted(LOG.glob("__consumer_offsets-*"))]


def read(told: Iterable[Batch]) -> dict[str, StreamsGroup]:
    groups: dict[str, Any] = {}
    for batch in told:
        for record in batch.records:
            replay(groups, record)
    return groups


def described(group: StreamsGroup) -> dict[str, Any]:
    """A group in the words of `final.json`."""

    def told(tasks: Any) -> list[str]:
        return sorted(f"{name}_{p}" for name, ps in tasks.items() for p in ps)

    return {
        "state": group.state.value,
        "groupEpoch": group.epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "topologyEpoch": group.topology_epoch,
        "members": [
            {
                "memberId": m.member_id,
                "clientId": m.client_id,
                "processId": m.process_id,
                "memberEpoch": m.current.epoch,
                "active": told(m.current.assigned.active),
                "standby": told(m.current.assigned.standby),
                "targetActive": told(group.target_of(m.member_id).active),
                "targetStandby": told(group.target_of(m.member_id).standby),
            }
            for m in sorted(group.members.values(), key=lambda m: m.member_id)
        ],
    }


def test_kafkas_log_is_read_to_what_kafka_said() -> None:
    """Members, epochs, what each has and is meant to have."""
    told = json.loads((LOG / "final.json").read_text())
    groups = {name: group for place in PLACES for name, group in read(batches(place)).items()}
    wanted = {name: g for name, g in told["groups"].items() if g["type"] == "Streams"}
    assert wanted.keys() <= groups.keys()
    assert any(g["members"] for g in wanted.values())
    for name, group in wanted.items():
        found = described(groups[name])
        assert {k: group[k] for k in found if k != "members"} == {
            k: v for k, v in found.items() if k != "members"
        }
        assert found["members"] == sorted(group["members"], key=lambda m: str(m["memberId"]))


@pytest.mark.parametrize("place", PLACES)
def test_books_agree_after_every_record(place: str) -> None:
    """Who has which task, names and who is behind are what can be counted."""
    groups: dict[str, Any] = {}
    for batch in batches(place):
        for record in batch.records:
            replay(groups, record)
            for group in groups.values():
                assert_books_agree(group)


@pytest.mark.parametrize("place", PLACES)
def test_members_of_kafkas_log_speak_the_streams_protocol(place: str) -> None:
    """What Kafka does not write says nothing: nobody is taken for a member of the classic protocol. And of
    who is none as much is written as Kafka writes."""
    members = 0
    groups: dict[str, Any] = {}
    for batch in batches(place):
        for (key, value), record in zip(batch.pairs, batch.records, strict=True):
            replay(groups, record)
            if type(record.key) is rs.StreamsGroupMemberMetadataKey and value is not None:
                group = groups[record.key.group_id]
                assert group.classic_members == 0
                written = member_record(group.group_id, group.members[record.key.member_id])
                assert encode_record(written, GROUP_RECORDS) == (key, value)
                members += 1
    assert members or not groups


def assert_books_agree(group: StreamsGroup) -> None:
    """What a group keeps beside its members is what follows from them."""
    has: dict[Role, dict[tuple[str, int], set[str]]] = {role: defaultdict(set) for role in Role}
    for m in group.members.values():
        for held in (m.current.assigned, m.current.pending_revocation):
            for role, name, p in held.units():
                has[role][name, p].add(m.member_id)
    active = {(name, p): owner for name, ps in group.active.items() for p, owner in ps.items()}
    assert active.keys() == has[Role.ACTIVE].keys()
    assert all(owner in has[Role.ACTIVE][task] for task, owner in active.items())
    for role, holders in ((Role.STANDBY, group.standby), (Role.WARMUP, group.warmup)):
        assert {(name, p): some for name, ps in holders.items() for p, some in ps.items()} == has[role]
    named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert group.instances == named
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
    assert made > 10


def written(groups: dict[str, Any], record: Record) -> Record:
    key: Any = record.key
    group: StreamsGroup = groups[key.group_id]
    if isinstance(key, rs.StreamsGroupMetadataKey):
        return group_record(
            group, group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
        )
    if isinstance(key, rs.StreamsGroupMemberMetadataKey):
        return member_record(group.group_id, group.members[key.member_id])
    if isinstance(key, rs.StreamsGroupTargetAssignmentMetadataKey):
        return assignment_record(group.group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    if isinstance(key, rs.StreamsGroupTargetAssignmentMemberKey):
        return target_record(group.group_id, key.member_id, group.targets[key.member_id])
    if isinstance(key, rs.StreamsGroupCurrentMemberAssignmentKey):
        return current_record(group.group_id, key.member_id, group.members[key.member_id].current)
    assert isinstance(key, rs.StreamsGroupTopologyKey)
    assert group.topology is not None
    value = rs.StreamsGroupTopologyValue(
        epoch=group.topology.epoch, subtopologies=tuple(group.topology.subtopologies.values())
    )
    return topology_record(group.group_id, value)


def in_order(value: Any) -> Any:
    """A value whose lists are sorted; partitions go with their epochs."""
    if isinstance(value, rs.TaskIdsWithEpochs):
        epochs = value.assignment_epochs or (None,) * len(value.partitions)
        return value.subtopology_id, sorted(zip(value.partitions, epochs, strict=True))
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
    assert count > 50


def seen(group: StreamsGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs,
        group.topology, group.assignment_epoch, group.members, group.targets, group.state, group.active,
        group.standby, group.warmup,
    )  # fmt: skip


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    """G8: nor do they make a group; nor does the end of a group of another kind."""
    groups: dict[str, Any] = {"classic": object()}
    for record in (
        *group_tombstones(StreamsGroup("gone")),
        *member_tombstones("gone", "m"),
        *group_tombstones(StreamsGroup("classic")),
    ):
        replay(groups, record)
    assert list(groups) == ["classic"]


def test_a_group_that_is_deleted_leaves_nothing() -> None:
    """Its tombstones take all of it."""
    groups = read(batches(PLACES[0])) | read(batches(PLACES[1]))
    assert groups
    for group in list(groups.values()):
        for record in group_tombstones(group):
            replay(groups, record)
    assert groups == {}


def told_current(member_id: str, has: dict[str, dict[int, int]]) -> Record:
    return current_record("g", member_id, CurrentAssignment(MemberState.STABLE, 3, 2, Held(has)))


def test_a_batch_that_stands_twice_is_what_it_is_once() -> None:
    """G8: also where a static member has what another id of its had, all in one batch."""
    batch = [
        member_record("g", Member("old", "ann")),
        told_current("old", {"0": {0: 1}}),
        *member_tombstones("g", "old"),
        member_record("g", Member("new", "ann")),
        told_current("new", {"0": {0: 1}}),
        member_record("g", Member("new", "ann", client_id="ann")),
    ]
    once: dict[str, Any] = {}
    twice: dict[str, Any] = {}
    for record in batch:
        replay(once, record)
    for record in (*batch, *batch):
        replay(twice, record)
    assert once["g"].active == {"0": {0: "new"}}
    assert once == twice


def test_an_assignment_that_is_gone_is_that_of_a_new_group() -> None:
    """G2: a group that was deleted and made again, read from a log that was compacted meanwhile. What is left
    of its end are the tombstones for which nothing came after it."""
    groups: dict[str, Any] = {}
    for record in (member_record("g", Member("bob")), assignment_record("g", 7, 5)):
        replay(groups, record)
    for record in group_tombstones(groups["g"]):
        if not isinstance(record.key, rs.StreamsGroupMetadataKey):
            replay(groups, record)
    fresh: dict[str, Any] = {}
    for told in (groups, fresh):
        replay(told, member_record("g", Member("ann")))
    assert groups == fresh
