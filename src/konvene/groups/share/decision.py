"""The decision of one request or timer of a share group: extends `groups.modern.decision`."""

from __future__ import annotations

from typing import ClassVar

from konvene.groups.assignors.contract import Assignor
from konvene.groups.assignors.share.table import assignor_of
from konvene.groups.modern.decision import ModernDecision, session_key
from konvene.groups.modern.log import RecordTypes
from konvene.groups.share import log
from konvene.groups.share.group import Member, ShareGroup, SoftState
from konvene.groups.share.state_topics import StateTopics
from konvene.shard.contract import Context, Disarm

__all__ = ["CLEANUP_TIMER", "Decision", "session_key"]

CLEANUP_TIMER = ("share-state",)
"""Key of the shard's timer that removes deleted topics from the groups' share partitions."""


class Decision(ModernDecision[ShareGroup, Member]):
    """The changes, replies and timers that follow from one request or timer of a share group."""

    soft: SoftState
    log: ClassVar[RecordTypes[ShareGroup]] = log.RECORDS
    session_timeout: ClassVar[str] = "share.session.timeout.ms"

    __slots__ = ("metadata_hash", "state_topics")

    def __init__(self, group: ShareGroup, context: Context) -> None:
        super().__init__(group, context)
        self.metadata_hash = group.metadata_hash
        self.state_topics = group.state_topics

    @property
    def assignor(self) -> Assignor:
        return assignor_of(self.context)

    def _protocol(self) -> str:
        return self.assignor.name

    # --- steps that requests share ---

    def bump(self, metadata_hash: int) -> None:
        """Bump the group's epoch because an input of its target assignment changed.

        `metadata_hash`: hash of the subscribed topics with their partitions, recorded with the epoch.
        """
        self.epoch += 1
        self.metadata_hash = metadata_hash
        self.record(log.group_record(self.group.group_id, self.epoch, metadata_hash))

    def disarm_all(self, member_id: str) -> None:
        self.timers.append(Disarm(session_key(self.group.group_id, member_id)))

    def remove(self, member: Member) -> None:
        super().remove(member)
        self.disarm_all(member.member_id)

    def record_state_topics(self, state: StateTopics) -> None:
        """Record which share partitions of the group are initializing, initialized or to be deleted."""
        self.state_topics = state
        self.record(log.state_record(self.group.group_id, state))
        interval_ms = self.context.config["offsets.retention.check.interval.ms"]
        self.arm(CLEANUP_TIMER, interval_ms, unless_armed=True)
