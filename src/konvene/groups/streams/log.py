"""The records in which a streams group survives: 17 and 19 to 23, as Kafka 4.4 writes them.

    17  the group's epoch, the hash of its topics, the topology that was   gone: so is the group
        found ready, the settings on which its targets rest, and what is
        known of descriptions
    19  what a member said of itself, also in the classic protocol         gone: so is the member
        (that is ours alone: a tag that Apache Kafka reads over)
    20  the assignment's epoch                                             gone: there is no assignment
    21  what a member is meant to have                                     gone: nothing
    22  what a member has                                                  gone: it has nothing
    23  the topology                                                       gone: there is none

A log may have been compacted, up to any point and while it was read. So no record relies on another: one of a
member that is not there makes it, a tombstone of what is not there changes nothing, and whatever a group was
before, the last record of its kind says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from konvene.groups.assignors.tasks.contract import NO_TASKS, MemberAssignment, Tasks
from konvene.groups.modern.classic_member import from_metadata, to_metadata
from konvene.groups.streams.current_assignment import NONE_HELD, CurrentAssignment, Epochs, Held, MemberState
from konvene.groups.streams.group import FIRST_EPOCH, Member, StreamsGroup
from konvene.groups.streams.topology.topology import Topology
from konvene.records.coordinator import Record
from konvene.records.streams import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
    TaskIdsWithEpochs,
)

Groups = MutableMapping[str, Any]
"""All groups of a shard, of whatever kind."""

_STATES = {state.value: state for state in MemberState}

LEFT = CurrentAssignment(epoch=-1, previous_epoch=-1)
"""What a member has whose record of it is gone."""


# --- what is written -------------------------------------------------------------------------------


def group_record(
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
) -> Record:
    """The group is at this epoch; what is known of its topology's descriptions stays as it is."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=tuple(
            LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
        ),
        stored_description_topology_epoch=group.stored_description_epoch,
        failed_description_topology_epoch=group.failed_description_epoch,
    )
    return Record(StreamsGroupMetadataKey(group_id=group.group_id), value)


def member_record(group_id: str, member: Member) -> Record:
    """What a member said of itself."""
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=tuple(KeyValue(key=key, value=value) for key, value in member.client_tags),
        classic_member_metadata=to_metadata(member.classic),
    )
    return Record(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> Record:
    """What the members of the group run."""
    return Record(StreamsGroupTopologyKey(group_id=group_id), value)


def assignment_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Targets were computed for this epoch."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return Record(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, tasks: MemberAssignment) -> Record:
    """What a member is meant to have."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_told(tasks.active), standby_tasks=_told(tasks.standby), warmup_tasks=_told(tasks.warmup)
    )
    return Record(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """What a member has."""
    has, gives_up = current.assigned, current.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        active_tasks=_told_with_epochs(has.active),
        standby_tasks=_told_plain(has.standby),
        warmup_tasks=_told_plain(has.warmup),
        active_tasks_pending_revocation=_told_with_epochs(gives_up.active),
        standby_tasks_pending_revocation=_told_plain(gives_up.standby),
        warmup_tasks_pending_revocation=_told_plain(gives_up.warmup),
    )
    return Record(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """All that is kept of a member goes, in Kafka's order."""
    return [
        Record(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: StreamsGroup, replaced: tuple[str, str] | None = None) -> list[Record]:
    """All that is kept of a group goes, in Kafka's order: its members, then itself.

    `replaced`: a member id whose records are gone already, and that of who took its place."""
    name, members = group.group_id, list(group.members)
    if replaced is not None:
        old, new = replaced
        members = [new if member == old else member for member in members]
    keys: list[Any] = [
        *(StreamsGroupCurrentMemberAssignmentKey(group_id=name, member_id=m) for m in members),
        *(StreamsGroupTargetAssignmentMemberKey(group_id=name, member_id=m) for m in members),
        StreamsGroupTargetAssignmentMetadataKey(group_id=name),
        *(StreamsGroupMemberMetadataKey(group_id=name, member_id=m) for m in members),
        StreamsGroupMetadataKey(group_id=name),
        StreamsGroupTopologyKey(group_id=name),
    ]
    return [Record(key, None) for key in keys]


def _told(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(tasks[name])) for name in sorted(tasks))


def _told_plain(tasks: Tasks) -> tuple[TaskIdsWithEpochs, ...]:
    """Only active tasks have epochs."""
    return tuple(
        TaskIdsWithEpochs(subtopology_id=name, partitions=tuple(tasks[name])) for name in sorted(tasks)
    )


def _told_with_epochs(epochs: Epochs) -> tuple[TaskIdsWithEpochs, ...]:
    return tuple(
        TaskIdsWithEpochs(
            subtopology_id=name,
            partitions=tuple(partitions),
            assignment_epochs=tuple(map(epochs[name].__getitem__, partitions)),
        )
        for name in sorted(epochs)
        for partitions in (sorted(epochs[name]),)
    )


# --- what is taken in ------------------------------------------------------------------------------


def replay(groups: Groups, record: Record) -> None:
    """Take a record into its group."""
    REPLAYS[type(record.key)](groups, record.key, record.value)


def _group(groups: Groups, group_id: str) -> StreamsGroup:
    """The group of that name, made if need be: also where it was of another kind."""
    known = groups.get(group_id)
    if not isinstance(known, StreamsGroup):
        known = groups[group_id] = StreamsGroup(group_id)
    return known


def _known(groups: Groups, group_id: str) -> StreamsGroup | None:
    known = groups.get(group_id)
    return known if isinstance(known, StreamsGroup) else None


def _metadata(groups: Groups, key: StreamsGroupMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = {row.key: row.value for row in value.last_assignment_configs or ()}
        group.stored_description_epoch = value.stored_description_topology_epoch
        group.failed_description_epoch = value.failed_description_topology_epoch
    elif _known(groups, key.group_id) is not None:
        del groups[key.group_id]


def _topology(groups: Groups, key: StreamsGroupTopologyKey, value: Any) -> None:
    if value is not None:
        _group(groups, key.group_id).topology = Topology.from_value(value)
    elif (there := _known(groups, key.group_id)) is not None:
        there.topology = None


def _member(groups: Groups, key: StreamsGroupMemberMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        known = group.members.get(key.member_id)
        group.put(
            _read_member(key.member_id, value, known.current if known is not None else CurrentAssignment())
        )
    elif (there := _known(groups, key.group_id)) is not None:
        there.drop(key.member_id)


def _read_member(
    member_id: str, value: StreamsGroupMemberMetadataValue, current: CurrentAssignment
) -> Member:
    endpoint = value.user_endpoint
    return Member(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        tuple(sorted((tag.key, tag.value) for tag in value.client_tags)),
        from_metadata(value.classic_member_metadata),
        current,
    )


def _assignment(groups: Groups, key: StreamsGroupTargetAssignmentMetadataKey, value: Any) -> None:
    if value is not None:
        _group(groups, key.group_id).assigned_at(value.assignment_epoch, value.assignment_timestamp)
    elif (there := _known(groups, key.group_id)) is not None:
        there.assigned_at(FIRST_EPOCH, 0)


def _target(groups: Groups, key: StreamsGroupTargetAssignmentMemberKey, value: Any) -> None:
    if value is not None:
        told = MemberAssignment(*map(_tasks, (value.active_tasks, value.standby_tasks, value.warmup_tasks)))
        _group(groups, key.group_id).targets[key.member_id] = told
    elif (there := _known(groups, key.group_id)) is not None:
        there.targets.pop(key.member_id, None)


def _current(groups: Groups, key: StreamsGroupCurrentMemberAssignmentKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        member = group.members.get(key.member_id)
        if member is not None:
            group.have(member, _read_current(value))
        else:
            group.put(Member(key.member_id).having(_read_current(value)))
        return
    there = _known(groups, key.group_id)
    known = there.members.get(key.member_id) if there is not None else None
    if there is not None and known is not None:
        there.have(known, LEFT)


def _read_current(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    has = Held(_epochs(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks))
    gives_up = Held(
        _epochs(value.active_tasks_pending_revocation, epoch),
        _tasks(value.standby_tasks_pending_revocation),
        _tasks(value.warmup_tasks_pending_revocation),
    )
    state = _STATES.get(value.state, MemberState.UNKNOWN)
    return CurrentAssignment(
        state, epoch, value.previous_member_epoch, has or NONE_HELD, gives_up or NONE_HELD
    )


def _tasks(told: Iterable[TaskIds | TaskIdsWithEpochs]) -> Tasks:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in told} or NO_TASKS


def _epochs(told: tuple[TaskIdsWithEpochs, ...], member_epoch: int) -> dict[str, dict[int, int]]:
    """Before Kafka 4.2 no epoch was written for each task: the member's stands for it."""
    found: dict[str, dict[int, int]] = {}
    for each in told:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = (member_epoch,) * len(each.partitions)
        found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


REPLAYS: dict[type, Callable[[Groups, Any, Any], None]] = {
    StreamsGroupMetadataKey: _metadata,
    StreamsGroupMemberMetadataKey: _member,
    StreamsGroupTargetAssignmentMetadataKey: _assignment,
    StreamsGroupTargetAssignmentMemberKey: _target,
    StreamsGroupCurrentMemberAssignmentKey: _current,
    StreamsGroupTopologyKey: _topology,
}
