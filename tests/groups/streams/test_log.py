"""Kafka's own log of streams groups replays to the state that Kafka described, whatever compaction left of
it; and records written from that state equal Kafka's."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.codec import batches as rb
from konvene.groups.streams.current_assignment import CurrentAssignment, MemberState, OwnedTasks, Role
from konvene.groups.streams.group import Member, State, StreamsGroup
from konvene.groups.streams.log import (
    RECORDS,
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


def batches(partition: str) -> list[Batch]:
    """Return the streams groups' batches in the log of a partition."""
    found = []
    for file in sorted((LOG / partition).glob("*.log")):
        for header, batch in rb.batches(file.read_bytes()):
            log_batch = batch_of((bytes(r.key or b""), r.value) for r in rb.records(batch, header))
            ours = [
                i
                for i, r in enumerate(log_batch.records)
                if type(r) is Record and type(r.key) in RECORDS.replays
            ]
            found.append(
                Batch(tuple(log_batch.pairs[i] for i in ours), tuple(log_batch.records[i] for i in ours))
            )
    return found


PARTITIONS = [partition.name for partition in sorted(LOG.glob("__consumer_offsets-*"))]


def replayed(log: Iterable[Batch]) -> dict[str, StreamsGroup]:
    groups: dict[str, Any] = {}
    for batch in log:
        for record in batch.records:
            replay(groups, record)
    return groups


def described(group: StreamsGroup) -> dict[str, Any]:
    """Return a group in the format of `final.json`."""

    def names_of(tasks: Any) -> list[str]:
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
                "active": names_of(m.current.assigned.active),
                "standby": names_of(m.current.assigned.standby),
                "targetActive": names_of(group.target_of(m.member_id).active),
                "targetStandby": names_of(group.target_of(m.member_id).standby),
            }
            for m in sorted(group.members.values(), key=lambda m: m.member_id)
        ],
    }


def test_kafkas_log_replays_to_the_state_that_kafka_described() -> None:
    """Members, epochs, assignments and targets."""
    expected = json.loads((LOG / "final.json").read_text())
    groups = {name: group for partition in PARTITIONS for name, group in replayed(batches(partition)).items()}
    streams_groups = {name: g for name, g in expected["groups"].items() if g["type"] == "Streams"}
    assert streams_groups.keys() <= groups.keys()
    assert any(g["members"] for g in streams_groups.values())
    for name, group in streams_groups.items():
        found = described(groups[name])
        assert {k: group[k] for k in found if k != "members"} == {
            k: v for k, v in found.items() if k != "members"
        }
        assert found["members"] == sorted(group["members"], key=lambda m: str(m["memberId"]))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_indexes_are_consistent_after_every_record(partition: str) -> None:
    """Owners of tasks, instance ids and lagging members match what can be counted from the members."""
    groups: dict[str, Any] = {}
    for batch in batches(partition):
        for record in batch.records:
            replay(groups, record)
            for group in groups.values():
                assert_indexes_are_consistent(group)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_members_of_kafkas_log_speak_the_streams_protocol(partition: str) -> None:
    """Absent fields have their defaults, so no member counts as a classic one; and a streams member's record
    is written with the same bytes as Kafka's."""
    members = 0
    groups: dict[str, Any] = {}
    for batch in batches(partition):
        for (key, value), record in zip(batch.pairs, batch.records, strict=True):
            replay(groups, record)
            if type(record.key) is rs.StreamsGroupMemberMetadataKey and value is not None:
                group = groups[record.key.group_id]
                assert group.classic_members == 0
                written = member_record(group.group_id, group.members[record.key.member_id])
                assert encode_record(written, GROUP_RECORDS) == (key, value)
                members += 1
    assert members or not groups


def assert_indexes_are_consistent(group: StreamsGroup) -> None:
    """Check that a group's indexes follow from its members."""
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


@pytest.mark.parametrize("partition", PARTITIONS)
def test_written_records_equal_kafkas(partition: str) -> None:
    """Each record, written again from the state after it, is equal up to the order of lists."""
    groups: dict[str, Any] = {}
    made = 0
    for batch in batches(partition):
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
    """Return a value with its lists sorted; partitions stay paired with their epochs."""
    if isinstance(value, rs.TaskIdsWithEpochs):
        epochs = value.assignment_epochs or (None,) * len(value.partitions)
        return value.subtopology_id, sorted(zip(value.partitions, epochs, strict=True))
    if isinstance(value, tuple):
        return sorted((in_order(v) for v in value), key=repr)
    if hasattr(value, "__fields__"):
        return {f.name: in_order(getattr(value, f.name)) for f in value.__fields__}
    return value


def compacted_logs(log: list[Batch]) -> Iterator[list[Batch]]:
    """Yield every prefix compacted, with and without tombstones, and every window that begins a third in."""
    for end in range(1, len(log) + 1):
        yield compacted(log, end, tombstones=True)
        yield compacted(log, end, tombstones=False)
        yield compacted(log, end, tombstones=True, begin=len(log) // 3)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_compaction_does_not_change_the_visible_state(partition: str) -> None:
    """G2: a log compacted up to any point replays to the same groups."""
    log = batches(partition)
    whole = {name: visible_state(group) for name, group in replayed(log).items()}
    count = 0
    for remaining in compacted_logs(log):
        groups = replayed(remaining)
        assert {name: visible_state(group) for name, group in groups.items()} == whole
        for group in groups.values():
            assert_indexes_are_consistent(group)
        count += 1
    assert count > 50


def visible_state(group: StreamsGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs,
        group.topology, group.assignment_epoch, group.members, group.targets, group.state, group.active,
        group.standby, group.warmup,
    )  # fmt: skip


def test_tombstones_of_absent_state_change_nothing() -> None:
    """G8: nor do they create a group, nor delete a group of another type."""
    groups: dict[str, Any] = {"classic": object()}
    for record in (
        *group_tombstones(StreamsGroup("gone")),
        *member_tombstones("gone", "m"),
        *group_tombstones(StreamsGroup("classic")),
    ):
        replay(groups, record)
    assert list(groups) == ["classic"]


def test_a_deleted_group_leaves_nothing() -> None:
    """A group's tombstones remove all of its state."""
    groups = replayed(batches(PARTITIONS[0])) | replayed(batches(PARTITIONS[1]))
    assert groups
    for group in list(groups.values()):
        for record in group_tombstones(group):
            replay(groups, record)
    assert groups == {}


def stable_assignment(member_id: str, has: dict[str, dict[int, int]]) -> Record:
    return current_record("g", member_id, CurrentAssignment(MemberState.STABLE, 3, 2, OwnedTasks(has)))


def test_replaying_a_batch_twice_changes_nothing() -> None:
    """G8: also if a static member takes over the tasks of its former member id within one batch."""
    batch = [
        member_record("g", Member("old", "ann")),
        stable_assignment("old", {"0": {0: 1}}),
        *member_tombstones("g", "old"),
        member_record("g", Member("new", "ann")),
        stable_assignment("new", {"0": {0: 1}}),
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


def test_an_assignment_tombstone_resets_the_assignment_to_that_of_a_new_group() -> None:
    """G2: the group was deleted and created again, and its log was compacted meanwhile. Of the tombstones of
    its end only those remain that no later record replaced."""
    groups: dict[str, Any] = {}
    for record in (member_record("g", Member("bob")), assignment_record("g", 7, 5)):
        replay(groups, record)
    for record in group_tombstones(groups["g"]):
        if not isinstance(record.key, rs.StreamsGroupMetadataKey):
            replay(groups, record)
    fresh: dict[str, Any] = {}
    for state in (groups, fresh):
        replay(state, member_record("g", Member("ann")))
    assert groups == fresh
