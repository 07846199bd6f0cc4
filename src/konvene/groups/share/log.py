"""The records in which a share group survives: 10 to 15, as Kafka 4.4 writes them.

    10   what a member said of itself                            gone: so is the member
    11   the group's epoch, and the hash of its topics           gone: so is the group
    12   the assignment's epoch                                  gone: there is no assignment
    13   what a member is meant to have                          gone: nothing
    14   what a member has                                       gone: it has nothing
    15   which share partitions it has, or is about to           gone: none

Record 9 of Kafka 4.0, which said what topics looked like, is passed over like any that nobody knows. As with
consumer groups no record relies on another: a log may have been compacted, while it was read.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.group import topic_names
from konvene.groups.share.current_assignment import CurrentAssignment, Partitions
from konvene.groups.share.group import FIRST_EPOCH, Member, ShareGroup
from konvene.groups.share.state_topics import Listed, Some, StateTopics
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

Groups = MutableMapping[str, Any]
"""All groups of a shard, of whatever kind."""

LEFT = CurrentAssignment(epoch=-1, previous_epoch=-1)
"""What a member has whose record of it is gone."""


# --- what is written -------------------------------------------------------------------------------


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group is at this epoch, for topics that look like this."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Record(ShareGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: Member) -> Record:
    """What a member said of itself."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
    )
    return Record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def assignment_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Targets were computed for this epoch."""
    key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return Record(key, value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """What a member is meant to have."""
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    told = tuple(TopicPartition(topic_id=topic, partitions=tuple(partitions[topic])) for topic in partitions)
    return Record(key, ShareGroupTargetAssignmentMemberValue(topic_partitions=told))


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """What a member has."""
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
    """Which share partitions the group has."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_told(state.initializing),
        initialized_topics=_told(state.initialized),
        deleting_topics=tuple(TopicInfo(topic_id=t, topic_name=name) for t, name in state.deleting.items()),
    )
    return Record(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _told(listed: Listed) -> tuple[TopicPartitionsInfo, ...]:
    return tuple(
        TopicPartitionsInfo(topic_id=topic, topic_name=some.name, partitions=some.partitions)
        for topic, some in listed.items()
    )


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """All that is kept of a member goes, in Kafka's order."""
    return [
        Record(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> list[Record]:
    """All that is kept of a group goes, in Kafka's order: its members, then itself."""
    name, members = group.group_id, list(group.members)
    keys: list[Any] = [
        *(ShareGroupCurrentMemberAssignmentKey(group_id=name, member_id=m) for m in members),
        *(ShareGroupTargetAssignmentMemberKey(group_id=name, member_id=m) for m in members),
        ShareGroupTargetAssignmentMetadataKey(group_id=name),
        *(ShareGroupMemberMetadataKey(group_id=name, member_id=m) for m in members),
        ShareGroupStatePartitionMetadataKey(group_id=name),
        ShareGroupMetadataKey(group_id=name),
    ]
    return [Record(key, None) for key in keys]


# --- what is taken in ------------------------------------------------------------------------------


def replay(groups: Groups, record: Record) -> None:
    """Take a record into its group."""
    REPLAYS[type(record.key)](groups, record.key, record.value)


def _group(groups: Groups, group_id: str) -> ShareGroup:
    """The group of that name, made if need be: also where it was of another kind."""
    known = groups.get(group_id)
    if not isinstance(known, ShareGroup):
        known = groups[group_id] = ShareGroup(group_id)
    return known


def _known(groups: Groups, group_id: str) -> ShareGroup | None:
    known = groups.get(group_id)
    return known if isinstance(known, ShareGroup) else None


def _metadata(groups: Groups, key: ShareGroupMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif _known(groups, key.group_id) is not None:
        del groups[key.group_id]


def _member(groups: Groups, key: ShareGroupMemberMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        known = group.members.get(key.member_id)
        group.put(
            Member(
                key.member_id,
                value.rack_id,
                value.client_id,
                value.client_host,
                topic_names(value.subscribed_topic_names),
                known.current if known is not None else CurrentAssignment(),
            )
        )
    elif (there := _known(groups, key.group_id)) is not None:
        there.drop(key.member_id)


def _assignment(groups: Groups, key: ShareGroupTargetAssignmentMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        group.assigned_at(value.assignment_epoch, value.assignment_timestamp)
    elif (there := _known(groups, key.group_id)) is not None:
        there.assigned_at(FIRST_EPOCH, 0)


def _target(groups: Groups, key: ShareGroupTargetAssignmentMemberKey, value: Any) -> None:
    if value is not None:
        _group(groups, key.group_id).targets[key.member_id] = _read(value.topic_partitions)
    elif (there := _known(groups, key.group_id)) is not None:
        there.targets.pop(key.member_id, None)


def _current(groups: Groups, key: ShareGroupCurrentMemberAssignmentKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        current = CurrentAssignment(
            value.member_epoch, value.previous_member_epoch, _read(value.assigned_partitions), value.state
        )
        member = group.members.get(key.member_id)
        if member is not None:
            group.have(member, current)
        else:
            group.put(Member(key.member_id, current=current))
        return
    there = _known(groups, key.group_id)
    known = there.members.get(key.member_id) if there is not None else None
    if there is not None and known is not None:
        there.have(known, LEFT)


def _read(told: tuple[Any, ...]) -> dict[Uuid, tuple[int, ...]]:
    return {topic.topic_id: tuple(topic.partitions) for topic in told}


def _state(groups: Groups, key: ShareGroupStatePartitionMetadataKey, value: Any) -> None:
    if value is not None:
        _group(groups, key.group_id).state_topics = StateTopics(
            _listed(value.initializing_topics),
            _listed(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )
    elif (there := _known(groups, key.group_id)) is not None:
        there.state_topics = StateTopics()


def _listed(told: tuple[TopicPartitionsInfo, ...]) -> Listed:
    return {topic.topic_id: Some(topic.topic_name, tuple(topic.partitions)) for topic in told}


REPLAYS: dict[type, Callable[[Groups, Any, Any], None]] = {
    ShareGroupMemberMetadataKey: _member,
    ShareGroupMetadataKey: _metadata,
    ShareGroupTargetAssignmentMetadataKey: _assignment,
    ShareGroupTargetAssignmentMemberKey: _target,
    ShareGroupCurrentMemberAssignmentKey: _current,
    ShareGroupStatePartitionMetadataKey: _state,
}
