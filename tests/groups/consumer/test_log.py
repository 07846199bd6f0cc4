"""Kafka's own log of consumer groups replays to the state that Kafka described, whatever compaction left of
it; and records written from that state equal Kafka's."""

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
    RECORDS,
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


def batches(partition: str) -> list[Batch]:
    """Return the consumer groups' batches in the log of a partition."""
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


def replayed(log: Iterable[Batch]) -> dict[str, ConsumerGroup]:
    groups: dict[str, Any] = {}
    for batch in log:
        for record in batch.records:
            replay(groups, record)
    return groups


def final() -> dict[str, Any]:
    return json.loads((LOG / "final.json").read_text())


def described(group: ConsumerGroup, names: dict[Uuid, str]) -> dict[str, Any]:
    """Return a group in the format of `final.json`."""

    def names_of(partitions: Any) -> list[str]:
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
                    "assignment": names_of(m.current.assigned),
                    "target": names_of(group.targets.get(m.member_id, {})),
                }
                for m in group.members.values()
            ),
            key=lambda m: str(m["memberId"]),
        ),
    }


def test_kafkas_log_replays_to_the_state_that_kafka_described() -> None:
    """Members, epochs, assignments and targets."""
    expected = final()
    names = {Uuid.parse(t["id"]): name for name, t in expected["topics"].items()}
    groups = {name: group for partition in PARTITIONS for name, group in replayed(batches(partition)).items()}
    consumer_groups = {name: g for name, g in expected["groups"].items() if g["type"] == "Consumer"}
    assert consumer_groups.keys() <= groups.keys()
    assert any(g["members"] for g in consumer_groups.values())
    for name, group in consumer_groups.items():
        found = described(groups[name], names)
        members = sorted(group["members"], key=lambda m: str(m["memberId"]))
        assert found["members"] == members
        assert {k: group[k] for k in ("state", "groupEpoch", "targetAssignmentEpoch")} == {
            k: v for k, v in found.items() if k != "members"
        }


@pytest.mark.parametrize("partition", PARTITIONS)
def test_indexes_are_consistent_after_every_record(partition: str) -> None:
    """Owners, subscribers, instance ids and lagging members match what can be counted from the members."""
    groups: dict[str, Any] = {}
    for batch in batches(partition):
        for record in batch.records:
            replay(groups, record)
            for group in groups.values():
                assert_indexes_are_consistent(group)


def assert_indexes_are_consistent(group: ConsumerGroup) -> None:
    has = {
        (topic, p): m.member_id
        for m in group.members.values()
        for epochs in (m.current.assigned, m.current.pending_revocation)
        for topic, ps in epochs.items()
        for p in ps
    }
    owners = {(topic, p): owner for topic, ps in group.owners.items() for p, owner in ps.items()}
    assert owners.keys() <= has.keys()
    assert all(unit in owners for unit in has), "somebody has what nobody owns"
    named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert group.instances == named
    names = [name for m in group.members.values() for name in m.topics]
    assert group.subscribers == {name: names.count(name) for name in names}
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
    """Return a value with its lists sorted; partitions stay paired with their epochs."""
    if isinstance(value, rc.TopicPartitions):
        return value.topic_id, sorted(zip(value.partitions, value.assignment_epochs or (), strict=True))
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
    assert count > 150


def visible_state(group: ConsumerGroup) -> Any:
    return (
        group.epoch, group.metadata_hash, group.assignment_epoch, group.members, group.targets, group.regexes,
        group.state, {t: ps for t, ps in group.owners.items() if ps},
    )  # fmt: skip


def test_tombstones_of_absent_state_change_nothing() -> None:
    """G8: nor do they create a group, nor delete a group of another type."""
    groups: dict[str, Any] = {"classic": object()}
    group = ConsumerGroup("gone")
    for record in (
        *group_tombstones(group),
        *member_tombstones("gone", "m"),
        *group_tombstones(ConsumerGroup("classic")),
    ):
        replay(groups, record)
    assert list(groups) == ["classic"]


def test_a_deleted_group_leaves_nothing() -> None:
    """A group's tombstones remove all of its state."""
    groups = replayed(batches(PARTITIONS[0])) | replayed(batches(PARTITIONS[1]))
    for group in list(groups.values()):
        for record in group_tombstones(group):
            replay(groups, record)
    assert groups == {}


def test_a_partition_stays_with_its_last_owner() -> None:
    """KAFKA-19862: in a log compacted while it is read, the new owner comes before the old owner's
    release."""
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


def stable_assignment(member_id: str, has: dict[Uuid, dict[int, int]]) -> Record:
    current = CurrentAssignment(MemberState.STABLE, 3, 2, has)
    return current_record("g", member_id, current)


def test_replaying_a_batch_twice_changes_nothing() -> None:
    """G8: also if a static member takes over the partitions of its former member id within one batch."""
    topic = Uuid(b"t" * 16)
    batch = [
        member_record("g", Member("old", "ann")),
        stable_assignment("old", {topic: {0: 1}}),
        *member_tombstones("g", "old"),
        member_record("g", Member("new", "ann")),
        stable_assignment("new", {topic: {0: 1}}),
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


def test_a_member_metadata_record_does_not_restore_released_partitions() -> None:
    """KAFKA-19862: compaction removed the record that released a partition; another member owns it by now."""
    topic = Uuid(b"t" * 16)
    groups: dict[str, Any] = {}
    for record in (
        stable_assignment("old", {topic: {0: 1}}),
        stable_assignment("new", {topic: {0: 2}}),
        member_record("g", Member("old", client_id="bob")),
        stable_assignment("old", {topic: {1: 3}}),
    ):
        replay(groups, record)
    assert groups["g"].owners == {topic: {0: "new", 1: "old"}}


def test_an_assignment_tombstone_resets_the_assignment_to_that_of_a_new_group() -> None:
    """G2: the group was a classic one in between, and its log was compacted meanwhile. Of the tombstones of
    its end only those remain that no later record replaced."""
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
