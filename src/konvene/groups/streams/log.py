"""The records of a streams group: types 17 and 19 to 23, as Kafka 4.4 writes them.

    17  the group's epoch, metadata hash, validated topology epoch,   tombstone: the group is deleted
        assignment settings, and the epochs of topology descriptions
    19  the fields that a member sent; of a classic member also       tombstone: the member is removed
        its metadata, in a tagged field that Apache Kafka skips
    20  the assignment epoch                                          tombstone: there is no assignment
    21  the target assignment of a member                             tombstone: the target is empty
    22  the current assignment of a member                            tombstone: the assignment is empty
    23  the topology                                                  tombstone: there is none

How they are replayed, and how groups and members are deleted, is in `groups.modern.log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from konvene.groups.assignors.tasks.contract import NO_TASKS, MemberAssignment, Tasks
from konvene.groups.modern.classic_member import from_metadata, to_metadata
from konvene.groups.modern.log import RecordTypes, assignment_epochs, read_epoch
from konvene.groups.streams.current_assignment import (
    NO_OWNED_TASKS,
    CurrentAssignment,
    Epochs,
    MemberState,
    OwnedTasks,
)
from konvene.groups.streams.group import Member, StreamsGroup
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

_STATES = {state.value: state for state in MemberState}


# --- records -------------------------------------------------------------------------------


def group_record(
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
) -> Record:
    """Return the record of the group's epoch, with the epochs of its topology descriptions unchanged."""
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
    """Return the record of the fields that a member sent."""
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
    """Return the record of the group's topology."""
    return Record(StreamsGroupTopologyKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, tasks: MemberAssignment) -> Record:
    """Return the record of a member's target assignment."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_write_tasks(tasks.active),
        standby_tasks=_write_tasks(tasks.standby),
        warmup_tasks=_write_tasks(tasks.warmup),
    )
    return Record(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Return the record of a member's current assignment."""
    assigned, pending_revocation = current.assigned, current.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        active_tasks=_write_epochs(assigned.active),
        standby_tasks=_write_copies(assigned.standby),
        warmup_tasks=_write_copies(assigned.warmup),
        active_tasks_pending_revocation=_write_epochs(pending_revocation.active),
        standby_tasks_pending_revocation=_write_copies(pending_revocation.standby),
        warmup_tasks_pending_revocation=_write_copies(pending_revocation.warmup),
    )
    return Record(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _write_tasks(tasks: Tasks) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(tasks[name])) for name in sorted(tasks))


def _write_copies(tasks: Tasks) -> tuple[TaskIdsWithEpochs, ...]:
    """Return standby or warm-up tasks for a record; they have no epochs."""
    return tuple(
        TaskIdsWithEpochs(subtopology_id=name, partitions=tuple(tasks[name])) for name in sorted(tasks)
    )


def _write_epochs(epochs: Epochs) -> tuple[TaskIdsWithEpochs, ...]:
    return tuple(
        TaskIdsWithEpochs(
            subtopology_id=name,
            partitions=tuple(partitions),
            assignment_epochs=tuple(map(epochs[name].__getitem__, partitions)),
        )
        for name in sorted(epochs)
        for partitions in (sorted(epochs[name]),)
    )


# --- replay ------------------------------------------------------------------------------


def _read_group(group: StreamsGroup, value: StreamsGroupMetadataValue) -> None:
    read_epoch(group, value)
    group.validated_topology_epoch = value.validated_topology_epoch
    group.assignment_configs = {row.key: row.value for row in value.last_assignment_configs or ()}
    group.stored_description_epoch = value.stored_description_topology_epoch
    group.failed_description_epoch = value.failed_description_topology_epoch


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


def _read_target(value: StreamsGroupTargetAssignmentMemberValue) -> MemberAssignment:
    return MemberAssignment(
        _read_tasks(value.active_tasks), _read_tasks(value.standby_tasks), _read_tasks(value.warmup_tasks)
    )


def _read_current(value: StreamsGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    epoch = value.member_epoch
    assigned = OwnedTasks(
        _read_epochs(value.active_tasks, epoch),
        _read_tasks(value.standby_tasks),
        _read_tasks(value.warmup_tasks),
    )
    pending_revocation = OwnedTasks(
        _read_epochs(value.active_tasks_pending_revocation, epoch),
        _read_tasks(value.standby_tasks_pending_revocation),
        _read_tasks(value.warmup_tasks_pending_revocation),
    )
    state = _STATES.get(value.state, MemberState.UNKNOWN)
    return CurrentAssignment(
        state,
        epoch,
        value.previous_member_epoch,
        assigned or NO_OWNED_TASKS,
        pending_revocation or NO_OWNED_TASKS,
    )


def _read_tasks(tasks: Iterable[TaskIds | TaskIdsWithEpochs]) -> Tasks:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in tasks} or NO_TASKS


def _read_epochs(tasks: tuple[TaskIdsWithEpochs, ...], member_epoch: int) -> dict[str, dict[int, int]]:
    return {each.subtopology_id: assignment_epochs(each, member_epoch) for each in tasks}


def _write_topology(group: StreamsGroup, key: object, value: StreamsGroupTopologyValue) -> None:
    group.topology = Topology.from_value(value)


def _clear_topology(group: StreamsGroup, key: StreamsGroupTopologyKey) -> None:
    group.topology = None


RECORDS: Final = RecordTypes(
    group_class=StreamsGroup,
    group_key=StreamsGroupMetadataKey,
    member_key=StreamsGroupMemberMetadataKey,
    assignment_key=StreamsGroupTargetAssignmentMetadataKey,
    assignment_value=StreamsGroupTargetAssignmentMetadataValue,
    target_key=StreamsGroupTargetAssignmentMemberKey,
    current_key=StreamsGroupCurrentMemberAssignmentKey,
    member_record=member_record,
    target_record=target_record,
    current_record=current_record,
    read_group=_read_group,
    read_member=_read_member,
    read_target=_read_target,
    read_current=_read_current,
    new_member=Member,
    departed=CurrentAssignment(epoch=-1, previous_epoch=-1),
    other_keys=lambda group: (
        StreamsGroupMetadataKey(group_id=group.group_id),
        StreamsGroupTopologyKey(group_id=group.group_id),
    ),
    other_records={StreamsGroupTopologyKey: (_write_topology, _clear_topology)},
)

assignment_record = RECORDS.assignment_record
member_tombstones = RECORDS.member_tombstones
group_tombstones = RECORDS.group_tombstones
replay = RECORDS.replay
