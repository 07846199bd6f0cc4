"""The records of a consumer group: types 3 to 8 and 16, as Kafka 4.4 writes them.

    3   the group's epoch and metadata hash               tombstone: the group is deleted
    4   no longer written, except its tombstone when a group is deleted
    5   the subscription of a member                      tombstone: the member is removed
    6   the assignment epoch                              tombstone: there is no assignment
    7   the target assignment of a member                 tombstone: the target is empty
    8   the current assignment of a member                tombstone: the assignment is empty
    16  the topics that a regular expression matches      tombstone: no member uses it

How they are replayed, and how groups and members are deleted, is in `groups.modern.log`.
"""

from __future__ import annotations

from typing import Final

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import CurrentAssignment, Epochs, MemberState, Partitions
from konvene.groups.consumer.group import ConsumerGroup, Member, Resolved, topic_names
from konvene.groups.modern.classic_member import from_metadata, to_metadata
from konvene.groups.modern.log import RecordTypes, assignment_epochs, read_epoch
from konvene.records.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from konvene.records.coordinator import Record

_STATES = {state.value: state for state in MemberState}


# --- records -------------------------------------------------------------------------------


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Return the record of a group's epoch and metadata hash."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return Record(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_record(group_id: str, member: Member) -> Record:
    """Return the record of a member's subscription."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=to_metadata(member.classic),
    )
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """Return the record of a member's target assignment."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topics = tuple(
        TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions[topic])))
        for topic in sorted(partitions)
    )
    return Record(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """Return the record of a member's current assignment."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_write_epochs(current.assigned),
        partitions_pending_revocation=_write_epochs(current.pending_revocation),
    )
    return Record(key, value)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> Record:
    """Return the record of the topics that a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Record(key, value)


def regex_tombstone(group_id: str, regex: str) -> Record:
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def _write_epochs(epochs: Epochs) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(
            topic_id=topic,
            partitions=tuple(partitions),
            assignment_epochs=tuple(map(epochs[topic].__getitem__, partitions)),
        )
        for topic in sorted(epochs)
        for partitions in (sorted(epochs[topic]),)
    )


# --- replay ------------------------------------------------------------------------------


def _read_member(
    member_id: str, value: ConsumerGroupMemberMetadataValue, current: CurrentAssignment
) -> Member:
    return Member(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        topic_names(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.server_assignor,
        from_metadata(value.classic_member_metadata),
        current,
    )


def _read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions}


def _read_current(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        _STATES.get(value.state, MemberState.UNKNOWN),
        value.member_epoch,
        value.previous_member_epoch,
        _read_epochs(value.assigned_partitions, value.member_epoch),
        _read_epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _read_epochs(topics: tuple[TopicPartitions, ...], member_epoch: int) -> dict[Uuid, dict[int, int]]:
    return {topic.topic_id: assignment_epochs(topic, member_epoch) for topic in topics}


def _write_regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue,
) -> None:
    resolved = Resolved(frozenset(value.topics), value.version, value.timestamp)
    group.regexes[key.regular_expression] = resolved


def _clear_regex(group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey) -> None:
    group.regexes.pop(key.regular_expression, None)


def _other_keys(group: ConsumerGroup) -> list[Struct]:
    group_id = group.group_id
    return [
        *(
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            for regex in sorted(group.regexes)
        ),
        ConsumerGroupPartitionMetadataKey(group_id=group_id),
        ConsumerGroupMetadataKey(group_id=group_id),
    ]


RECORDS: Final = RecordTypes(
    group_class=ConsumerGroup,
    group_key=ConsumerGroupMetadataKey,
    member_key=ConsumerGroupMemberMetadataKey,
    assignment_key=ConsumerGroupTargetAssignmentMetadataKey,
    assignment_value=ConsumerGroupTargetAssignmentMetadataValue,
    target_key=ConsumerGroupTargetAssignmentMemberKey,
    current_key=ConsumerGroupCurrentMemberAssignmentKey,
    member_record=member_record,
    target_record=target_record,
    current_record=current_record,
    read_group=read_epoch,
    read_member=_read_member,
    read_target=_read_target,
    read_current=_read_current,
    new_member=Member,
    departed=CurrentAssignment(epoch=-1, previous_epoch=-1),
    other_keys=_other_keys,
    other_records={ConsumerGroupRegularExpressionKey: (_write_regex, _clear_regex)},
    ignored_keys=(ConsumerGroupPartitionMetadataKey,),  # Replaced by the metadata hash.
)

assignment_record = RECORDS.assignment_record
member_tombstones = RECORDS.member_tombstones
group_tombstones = RECORDS.group_tombstones
replay = RECORDS.replay
