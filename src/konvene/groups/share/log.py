"""The records of a share group: types 10 to 15, as Kafka 4.4 writes them.

    10   the subscription of a member                     tombstone: the member is removed
    11   the group's epoch and metadata hash              tombstone: the group is deleted
    12   the assignment epoch                             tombstone: there is no assignment
    13   the target assignment of a member                tombstone: the target is empty
    14   the current assignment of a member               tombstone: the assignment is empty
    15   the group's share partitions, by state           tombstone: there are none

Type 9 of Kafka 4.0 is skipped as an unknown type. How the records are replayed, and how groups and members
are deleted, is in `groups.modern.log`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.group import topic_names
from konvene.groups.modern.log import RecordTypes, read_epoch
from konvene.groups.share.current_assignment import CurrentAssignment, Partitions
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.state_topics import ListedPartitions, PartitionsByTopic, StateTopics
from konvene.records.coordinator import Record
from konvene.records.share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

# --- records -------------------------------------------------------------------------------


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Return the record of a group's epoch and metadata hash."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Record(ShareGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: Member) -> Record:
    """Return the record of a member's subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
    )
    return Record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """Return the record of a member's target assignment."""
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topics = tuple(
        TopicPartition(topic_id=topic, partitions=tuple(partitions[topic])) for topic in partitions
    )
    return Record(key, ShareGroupTargetAssignmentMemberValue(topic_partitions=topics))


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Return the record of a member's current assignment."""
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(some))
            for topic, some in current.assigned.items()
        ),
    )
    return Record(key, value)


def state_record(group_id: str, state: StateTopics) -> Record:
    """Return the record of the group's share partitions by state."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_write_listed(state.initializing),
        initialized_topics=_write_listed(state.initialized),
        deleting_topics=tuple(TopicInfo(topic_id=t, topic_name=name) for t, name in state.deleting.items()),
    )
    return Record(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _write_listed(listed: PartitionsByTopic) -> tuple[TopicPartitionsInfo, ...]:
    return tuple(
        TopicPartitionsInfo(topic_id=topic, topic_name=some.name, partitions=some.partitions)
        for topic, some in listed.items()
    )


# --- replay ------------------------------------------------------------------------------


def _read_member(member_id: str, value: ShareGroupMemberMetadataValue, current: CurrentAssignment) -> Member:
    return Member(
        member_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        topic_names(value.subscribed_topic_names),
        current,
    )


def _read_target(value: ShareGroupTargetAssignmentMemberValue) -> Partitions:
    return _read_partitions(value.topic_partitions)


def _read_current(value: ShareGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    partitions = _read_partitions(value.assigned_partitions)
    return CurrentAssignment(value.member_epoch, value.previous_member_epoch, partitions, value.state)


def _read_partitions(topics: Iterable[TopicPartition | TopicPartitions]) -> dict[Uuid, tuple[int, ...]]:
    return {topic.topic_id: tuple(topic.partitions) for topic in topics}


def _write_state(group: ShareGroup, key: object, value: ShareGroupStatePartitionMetadataValue) -> None:
    group.state_topics = StateTopics(
        _read_listed(value.initializing_topics),
        _read_listed(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _clear_state(group: ShareGroup, key: ShareGroupStatePartitionMetadataKey) -> None:
    group.state_topics = StateTopics()


def _read_listed(topics: tuple[TopicPartitionsInfo, ...]) -> PartitionsByTopic:
    return {topic.topic_id: ListedPartitions(topic.topic_name, tuple(topic.partitions)) for topic in topics}


RECORDS: Final = RecordTypes(
    group_class=ShareGroup,
    group_key=ShareGroupMetadataKey,
    member_key=ShareGroupMemberMetadataKey,
    assignment_key=ShareGroupTargetAssignmentMetadataKey,
    assignment_value=ShareGroupTargetAssignmentMetadataValue,
    target_key=ShareGroupTargetAssignmentMemberKey,
    current_key=ShareGroupCurrentMemberAssignmentKey,
    member_record=member_record,
    target_record=target_record,
    current_record=current_record,
    read_group=read_epoch,
    read_member=_read_member,
    read_target=_read_target,
    read_current=_read_current,
    new_member=Member,
    departed=CurrentAssignment(epoch=-1, previous_epoch=-1),
    other_keys=lambda group: (
        ShareGroupStatePartitionMetadataKey(group_id=group.group_id),
        ShareGroupMetadataKey(group_id=group.group_id),
    ),
    other_records={ShareGroupStatePartitionMetadataKey: (_write_state, _clear_state)},
)

assignment_record = RECORDS.assignment_record
member_tombstones = RECORDS.member_tombstones
group_tombstones = RECORDS.group_tombstones
replay = RECORDS.replay
