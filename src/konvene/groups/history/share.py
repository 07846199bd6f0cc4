"""Infer why a share group's epoch was bumped from its records, without I/O.

`modern` defines when there is a row. The causes of an epoch are the other records of its batch:

    record                                        cause
    a new member                                  member-joined
    a member's tombstone                          MEMBER_DEPARTED
    a member with another subscription            subscription-changed

and without any of these,

    the group has no members                      offsets-altered
    share partitions were initialized or deleted  share-partitions-initialized
    since the last target
    only another metadata hash                    topic-metadata-changed
    none of these                                 unknown

A member reaches its target with its first heartbeat, since share partitions need no revocation.

Assumptions: Kafka may put several requests into one batch. A hash does not show which topic changed, and
records do not show whether initialized share partitions belong to a deleted topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from konvene.codec.uuid import Uuid
from konvene.groups.history.modern import (
    EpochHistory,
    Memory,
    Position,
    RecordHandler,
    cause_of,
    changed_members,
)
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.log import RECORDS
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.records.share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from konvene.shard import causes

__all__ = ["ShareHistory"]


class ShareHistory(EpochHistory[ShareGroup, Memory[Member]]):
    """A reader that infers the rebalances of a partition's share groups from their records."""

    records = RECORDS
    separate_keys = (ShareGroupStatePartitionMetadataKey,)

    def _without_units(
        self, value: ShareGroupCurrentMemberAssignmentValue
    ) -> ShareGroupCurrentMemberAssignmentValue:
        return value.replace(assigned_partitions=())

    # --- record handlers ---

    def _take_assignment_record(
        self, group: ShareGroup, memory: Memory[Member], record: Record, position: Position
    ) -> RebalanceValue | None:
        """Apply a record of a target or of share partitions, which may explain the next epoch."""
        self._replay(record)
        return None

    # --- causes ---

    def _infer_causes(
        self, group: ShareGroup, memory: Memory[Member], value: ShareGroupMetadataValue, position: Position
    ) -> list[Cause]:
        departed, present = changed_members(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, position) for m in departed]
        for before, after in present:
            if before is None:
                found.append(cause_of(causes.MEMBER_JOINED, after, position))
            elif before.topics != after.topics:
                found.append(cause_of(causes.SUBSCRIPTION_CHANGED, after, position))
        if found:
            return found
        if not group.members:
            return [cause_of(causes.OFFSETS_ALTERED, None, position)]
        if group.assignment_epoch >= group.epoch and _has_unassigned_state(group):
            return [cause_of(causes.SHARE_PARTITIONS_INITIALIZED, None, position)]
        if value.metadata_hash != group.metadata_hash:
            return [cause_of(causes.TOPIC_METADATA_CHANGED, None, position)]
        return []

    handlers: ClassVar[Mapping[type, RecordHandler]] = {
        ShareGroupMetadataKey: EpochHistory._take_epoch,
        ShareGroupMemberMetadataKey: EpochHistory._take_member,
        ShareGroupTargetAssignmentMetadataKey: EpochHistory._take_assignment,
        ShareGroupTargetAssignmentMemberKey: _take_assignment_record,
        ShareGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        ShareGroupStatePartitionMetadataKey: _take_assignment_record,
    }


def _has_unassigned_state(group: ShareGroup) -> bool:
    """Return whether the initialized share partitions of subscribed topics differ from the assigned ones."""
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic, partitions in target.items():
            assigned.setdefault(topic, set()).update(partitions)
    return any(
        some.name in group.subscribers and set(some.partitions) != assigned.get(topic, set())
        for topic, some in group.state_topics.initialized.items()
    )
