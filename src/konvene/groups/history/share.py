"""Why a share group's epoch moved, told from its records. Pure.

`epochs` says which rows there are. The causes of an epoch are what else its batch says:

    a member of which nothing was known           member-joined
    a member that went                            member-gone
    a member that reads other topics              subscription-changed

and where it says none of that,

    nobody is a member                            offsets-altered
    share partitions have begun (or are no more)  share-partitions-initialized
    that the target does not account for
    other topics (their hash), and not that       topic-metadata-changed
    nothing of all that                           unknown

A member has what it is meant to have as soon as it has spoken, for nobody waits for anybody.

What is guessed: Kafka may put several requests into one batch. Which topic changed cannot be seen from a
hash, nor whether share partitions that are listed are those of a topic that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from konvene.codec.uuid import Uuid
from konvene.groups.history.modern import (
    At,
    EpochHistory,
    Memory,
    Take,
    cause_of,
    changed_members,
    key_of,
)
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.log import replay
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.coordinator import Record
from konvene.records.share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from konvene.shard import causes

__all__ = ["ShareHistory"]


class ShareHistory(EpochHistory[ShareGroup, Memory]):
    """The share groups of a partition."""

    group_type: ClassVar[str] = "share"

    def _begin(self, group_id: str) -> tuple[ShareGroup, Memory]:
        return ShareGroup(group_id), Memory()

    def _replay(self, record: Record) -> None:
        replay(self._groups, record)

    def _without_units(self, value: Any) -> Any:
        return value.replace(assigned_partitions=())

    def _state(self, group: ShareGroup) -> str:
        return group.state.value

    # --- types of records of its own ---

    def _take_member(
        self, group: ShareGroup, memory: Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        member_id = key_of(record).member_id
        memory.members.setdefault(member_id, group.members.get(member_id))
        memory.latest = member_id
        self._replay(record)
        if member_id not in group.members:
            memory.reached_ms.pop(member_id, None)
        return None

    def _take_beside(
        self, group: ShareGroup, memory: Memory, record: Record, at: At
    ) -> RebalanceValue | None:
        """Targets and share partitions: the next epoch may be due to them."""
        self._replay(record)
        return None

    # --- causes ---

    def _why(self, group: ShareGroup, memory: Memory, value: Any, at: At) -> list[Cause]:
        gone, there = changed_members(group, memory)
        found = [cause_of(causes.MEMBER_DEPARTED, m, at) for m in gone]
        for before, after in there:
            if before is None:
                found.append(cause_of(causes.MEMBER_JOINED, after, at))
            elif before.topics != after.topics:
                found.append(cause_of(causes.SUBSCRIPTION_CHANGED, after, at))
        if found:
            return found
        if not group.members:
            return [cause_of(causes.OFFSETS_ALTERED, None, at)]
        if group.assignment_epoch >= group.epoch and _assignment_lacks_some(group):
            return [cause_of(causes.SHARE_PARTITIONS_INITIALIZED, None, at)]
        if value.metadata_hash != group.metadata_hash:
            return [cause_of(causes.TOPIC_METADATA_CHANGED, None, at)]
        return []

    takes: ClassVar[Mapping[type, Take]] = {
        ShareGroupMetadataKey: EpochHistory._take_epoch,
        ShareGroupMemberMetadataKey: _take_member,
        ShareGroupTargetAssignmentMetadataKey: EpochHistory._take_assignment,
        ShareGroupTargetAssignmentMemberKey: _take_beside,
        ShareGroupCurrentMemberAssignmentKey: EpochHistory._take_current,
        ShareGroupStatePartitionMetadataKey: _take_beside,
    }


def _assignment_lacks_some(group: ShareGroup) -> bool:
    """Whether the share partitions of topics that members read are others than those of the targets."""
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic, partitions in target.items():
            assigned.setdefault(topic, set()).update(partitions)
    return any(
        some.name in group.subscribers and set(some.partitions) != assigned.get(topic, set())
        for topic, some in group.state_topics.initialized.items()
    )
