"""A decision about a share group: extends `groups.modern.decision` with its own steps."""

from __future__ import annotations

from typing import ClassVar

from konvene.groups.assignors.contract import Assignor
from konvene.groups.assignors.share.table import assignor_of
from konvene.groups.modern.decision import ModernDecision, session_key
from konvene.groups.share import log
from konvene.groups.share.current_assignment import CurrentAssignment
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.state_topics import StateTopics
from konvene.shard.contract import Context, Disarm

__all__ = ["TIDY", "Decision", "session_key"]

TIDY = ("share-state",)
"""The timer of the whole shard by which lists are compared with the topics that exist."""


class Decision(ModernDecision[ShareGroup]):
    """One decision about one group."""

    group_type: ClassVar[str] = "share"

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

    # --- moves that requests share ---

    def arm_session(self, member_id: str) -> None:
        """Count the member's session from now on."""
        self.arm(session_key(self.group.group_id, member_id), self.config["share.session.timeout.ms"])

    def bump(self, metadata_hash: int) -> None:
        """The group is at its next epoch: whatever its assignment rests on has changed."""
        self.epoch += 1
        self.metadata_hash = metadata_hash
        self.record(log.group_record(self.group.group_id, self.epoch, metadata_hash))

    def is_empty_at_its_epoch(self) -> None:
        """Nobody is left: there is nothing to assign, and the next to join need not wait."""
        self.assignment_epoch = self.epoch
        self.record(log.assignment_record(self.group.group_id, self.epoch, 0))

    def settle(self, member: Member, current: CurrentAssignment) -> Member:
        """The member has something else now."""
        self.record(log.current_record(self.group.group_id, member.member_id, current))
        self.settled[member.member_id] = current
        return member.having(current)

    def remove(self, member: Member) -> None:
        """Let go of all that is kept of a member."""
        group_id = self.group.group_id
        self.records += log.member_tombstones(group_id, member.member_id)
        self.gone.add(member.member_id)
        self.timers.append(Disarm(session_key(group_id, member.member_id)))

    def keep_state(self, state: StateTopics) -> None:
        """Write down which share partitions the group has now."""
        self.state_topics = state
        self.record(log.state_record(self.group.group_id, state))
        interval_ms = self.context.config["offsets.retention.check.interval.ms"]
        self.arm(TIDY, interval_ms, unless_armed=True)
