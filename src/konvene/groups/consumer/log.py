"""The records in which a consumer group survives: 3 to 8 and 16, as Kafka 4.4 writes them.

    3   the group's epoch, and the hash of what its topics look like     gone: so is the group
    4   not written any more; a tombstone comes with the end of a group
    5   what a member said of itself                                     gone: so is the member
    6   the assignment's epoch                                           gone: there is no assignment
    7   what a member is meant to have                                   gone: nothing
    8   what a member has                                                gone: it has nothing
    16  the topics that a regular expression matches                     gone: nobody uses it

A log may have been compacted, up to any point and while it was read. So no record relies on another: one of a
member that is not there makes it, a tombstone of what is not there changes nothing, and whatever a group was
before, the last record of its kind says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import CurrentAssignment, Epochs, MemberState, Partitions
from konvene.groups.consumer.group import FIRST_EPOCH, ConsumerGroup, Member, Resolved, topic_names
from konvene.groups.modern.classic_member import from_metadata, to_metadata
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

Groups = MutableMapping[str, Any]
"""All groups of a shard, of whatever kind."""

_STATES = {state.value: state for state in MemberState}

LEFT = CurrentAssignment(epoch=-1, previous_epoch=-1)
"""What a member has whose record of it is gone."""


# --- what is written -------------------------------------------------------------------------------


def group_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group is at this epoch, for topics that look like this."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return Record(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_record(group_id: str, member: Member) -> Record:
    """What a member said of itself."""
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


def assignment_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """Targets were computed for this epoch."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return Record(key, value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """What a member is meant to have."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    told = tuple(
        TopicPartition(topic_id=topic, partitions=tuple(sorted(partitions[topic])))
        for topic in sorted(partitions)
    )
    return Record(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=told))


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """What a member has."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_told(current.assigned),
        partitions_pending_revocation=_told(current.pending_revocation),
    )
    return Record(key, value)


def regex_record(group_id: str, regex: str, resolved: Resolved) -> Record:
    """What an expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Record(key, value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """All that is kept of a member goes, in Kafka's order."""
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def regex_tombstone(group_id: str, regex: str) -> Record:
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def group_tombstones(group: ConsumerGroup, replaced: tuple[str, str] | None = None) -> list[Record]:
    """All that is kept of a group goes, in Kafka's order: its members, then itself.

    `replaced`: a member id whose records are gone already, and that of who took its place."""
    name, members = group.group_id, list(group.members)
    if replaced is not None:
        old, new = replaced
        members = [new if member == old else member for member in members]
    current = [ConsumerGroupCurrentMemberAssignmentKey(group_id=name, member_id=m) for m in members]
    target = [ConsumerGroupTargetAssignmentMemberKey(group_id=name, member_id=m) for m in members]
    metadata = [ConsumerGroupMemberMetadataKey(group_id=name, member_id=m) for m in members]
    regexes = [
        ConsumerGroupRegularExpressionKey(group_id=name, regular_expression=r) for r in sorted(group.regexes)
    ]
    keys: list[Any] = [
        *current, *target, ConsumerGroupTargetAssignmentMetadataKey(group_id=name), *metadata, *regexes,
        ConsumerGroupPartitionMetadataKey(group_id=name), ConsumerGroupMetadataKey(group_id=name),
    ]  # fmt: skip
    return [Record(key, None) for key in keys]


def _told(epochs: Epochs) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(
            topic_id=topic,
            partitions=tuple(partitions),
            assignment_epochs=tuple(map(epochs[topic].__getitem__, partitions)),
        )
        for topic in sorted(epochs)
        for partitions in (sorted(epochs[topic]),)
    )


# --- what is taken in ------------------------------------------------------------------------------


def replay(groups: Groups, record: Record) -> None:
    """Take a record into its group."""
    REPLAYS[type(record.key)](groups, record.key, record.value)


def _group(groups: Groups, group_id: str) -> ConsumerGroup:
    """The group of that name, made if need be: also where it was of another kind."""
    known = groups.get(group_id)
    if not isinstance(known, ConsumerGroup):
        known = groups[group_id] = ConsumerGroup(group_id)
    return known


def _known(groups: Groups, group_id: str) -> ConsumerGroup | None:
    known = groups.get(group_id)
    return known if isinstance(known, ConsumerGroup) else None


def _metadata(groups: Groups, key: ConsumerGroupMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif _known(groups, key.group_id) is not None:
        del groups[key.group_id]


def _member(groups: Groups, key: ConsumerGroupMemberMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        known = group.members.get(key.member_id)
        group.put(
            _read_member(key.member_id, value, known.current if known is not None else CurrentAssignment())
        )
    elif (there := _known(groups, key.group_id)) is not None:
        there.drop(key.member_id)


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


def _assignment(groups: Groups, key: ConsumerGroupTargetAssignmentMetadataKey, value: Any) -> None:
    if value is not None:
        group = _group(groups, key.group_id)
        group.assigned_at(value.assignment_epoch, value.assignment_timestamp)
    elif (there := _known(groups, key.group_id)) is not None:
        there.assigned_at(FIRST_EPOCH, 0)


def _target(groups: Groups, key: ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
    if value is not None:
        told = {t.topic_id: tuple(sorted(t.partitions)) for t in value.topic_partitions}
        _group(groups, key.group_id).targets[key.member_id] = told
    elif (there := _known(groups, key.group_id)) is not None:
        there.targets.pop(key.member_id, None)


def _current(groups: Groups, key: ConsumerGroupCurrentMemberAssignmentKey, value: Any) -> None:
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


def _read_current(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        _STATES.get(value.state, MemberState.UNKNOWN),
        value.member_epoch,
        value.previous_member_epoch,
        _epochs(value.assigned_partitions, value.member_epoch),
        _epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _epochs(told: tuple[TopicPartitions, ...], member_epoch: int) -> dict[Uuid, dict[int, int]]:
    """Before Kafka 4.3 no epoch was written for each partition: the member's stands for it."""
    found: dict[Uuid, dict[int, int]] = {}
    for topic in told:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = (member_epoch,) * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found


def _regex(groups: Groups, key: ConsumerGroupRegularExpressionKey, value: Any) -> None:
    if value is not None:
        resolved = Resolved(frozenset(value.topics), value.version, value.timestamp)
        _group(groups, key.group_id).regexes[key.regular_expression] = resolved
    elif (there := _known(groups, key.group_id)) is not None:
        there.regexes.pop(key.regular_expression, None)


def _says_nothing(groups: Groups, key: Any, value: Any) -> None:
    """What topics looked like is kept as a hash by now."""


REPLAYS: dict[type, Callable[[Groups, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _metadata,
    ConsumerGroupPartitionMetadataKey: _says_nothing,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _assignment,
    ConsumerGroupTargetAssignmentMemberKey: _target,
    ConsumerGroupCurrentMemberAssignmentKey: _current,
    ConsumerGroupRegularExpressionKey: _regex,
}
