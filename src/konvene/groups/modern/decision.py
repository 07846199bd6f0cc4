"""A decision about a group whose coordinator assigns, while it is being made: what all such kinds share.

A group of ten thousand is not copied for a heartbeat. A decision reads the group as it is before the decision
and collects what follows: records, replies, timers, effects, the causes. Only the replay of its records
changes the group, so a request that is refused half-way leaves no trace. What a decision has changed so far
(`epoch`, the member at hand) is therefore handed on by the functions that share a decision, and not read back
from the group.

A group that does not exist yet, or that another kind of group is becoming, is a private one: the records that
make it are in the decision already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from konvene.codec.schema import Struct
from konvene.groups.audit_members import AuditedMember, cause_of, rebalanced_member
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.decision import join_key, session_key, sync_key
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.modern.group import Member, ModernGroup
from konvene.groups.modern.log import RecordTypes
from konvene.groups.modern.rebalance_trace import RebalanceTrace, SoftStateRecord
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Rebalance, Reply, Waiter

__all__ = ["ModernDecision", "rejoin_key", "resync_key", "revocation_key", "session_key"]


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that runs while a member owes a revocation."""
    return ("revocation", group_id, member_id)


def rejoin_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that runs while a member of the classic protocol has to rejoin."""
    return ("rejoin", group_id, member_id)


def resync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that runs while a member of the classic protocol has joined and not sent its SyncGroup."""
    return ("resync", group_id, member_id)


G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Member)


class ModernDecision(ABC, Generic[G, M]):
    """One decision about one group."""

    log: ClassVar[RecordTypes[Any]]
    unrevoked: ClassVar[object] = None
    """The state of a member that owes a revocation; None where revocations need no acknowledgement."""
    assigning: ClassVar[str] = "Assigning"
    stable: ClassVar[str] = "Stable"
    empty: ClassVar[str] = "Empty"

    __slots__ = (
        "assignment_epoch",
        "assignments",
        "causes",
        "changed",
        "config",
        "context",
        "departed",
        "effects",
        "epoch",
        "group",
        "rebalances",
        "records",
        "replies",
        "soft",
        "timers",
    )  # fmt: skip

    def __init__(self, group: G, context: Context) -> None:
        self.group = group
        self.context = context
        self.config = context.group_configs.of(group.group_id)
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.soft = group.soft
        self.changed: list[Any] = []
        """Members that are new, or not as they were."""
        self.departed: set[str] = set()
        """Members that will not be in the group any more."""
        self.assignments: dict[str, Any] = {}
        """What members will have, where that changes."""
        self.records: list[Any] = []
        self.replies: list[Reply] = []
        self.timers: list[Arm | Disarm] = []
        self.effects: list[Effect] = []
        self.causes: list[Cause] = []
        self.rebalances: list[Rebalance] = []

    def outcome(self) -> Outcome:
        self._tell()
        soft: tuple[SoftStateRecord, ...] = ()
        reported = self._reported()
        if self.soft is not self.group.soft or reported or (self.assignments and self.soft.story is not None):
            soft = (SoftStateRecord(self.group.group_id, self.soft, self._reached(), reported),)
        return Outcome(
            tuple(self.replies), tuple(self.records), soft, tuple(self.timers), tuple(self.effects),
            tuple(self.rebalances),
        )  # fmt: skip

    # --- what follows ---

    def reply(self, waiter: Waiter, response: Struct) -> None:
        self.replies.append(Reply(waiter, response))

    def record(self, record: Record) -> None:
        self.records.append(record)

    def arm(self, key: tuple[str, ...], after_ms: int, *, unless_armed: bool = False) -> None:
        self.timers.append(Arm(key, after_ms, unless_armed))

    def replace_classic_group(self, classic: ClassicGroup) -> None:
        """The group takes the place of a classic one: its record goes, and whatever it waited for."""
        group_id = classic.group_id
        self.record(classic_log.tombstone(group_id))
        self.timers += [Disarm(join_key(group_id)), Disarm(sync_key(group_id))]
        self.timers += (Disarm(session_key(group_id, pending)) for pending in sorted(classic.pending_joins))

    def remember(self, **known: Any) -> None:
        """Note what is kept beside the log."""
        self.soft = replace(self.soft, **known)

    # --- moves that requests share ---

    @abstractmethod
    def arm_session(self, member: M) -> None:
        """Start the session of a member anew."""

    def arm_all(self) -> None:
        """After a restart: start each member's session, and its time to revoke, from the beginning."""
        for member in self.group.members.values():
            self.arm_session(member)
            owes = self.unrevoked is not None and member.current.state is self.unrevoked
            if owes and member.current.epoch >= 0 and member.classic is None:
                self.arm(revocation_key(self.group.group_id, member.member_id), member.rebalance_timeout_ms)

    def settle(self, member: M, current: Any) -> M:
        """Return the member with another current assignment.

        It has its rebalance timeout to revoke what it owes; a member of the classic protocol has that time to
        rejoin."""
        group_id, member_id = self.group.group_id, member.member_id
        self.record(self.log.current_record(group_id, member_id, current))
        self.assignments[member_id] = current
        if self.unrevoked is not None and member.classic is None:
            key = revocation_key(group_id, member_id)
            if current.state is self.unrevoked:
                self.arm(key, member.rebalance_timeout_ms)
            else:
                self.timers.append(Disarm(key))
        settled: M = member.having(current)
        return settled

    def remove(self, member: M) -> None:
        """Delete a member's records."""
        self.records += self.log.member_tombstones(self.group.group_id, member.member_id)
        self.departed.add(member.member_id)

    def assign_nothing(self) -> None:
        """Complete the assignment of a group that is empty at its new epoch: the next member to join need not
        wait."""
        self.assignment_epoch = self.epoch
        self.record(self.log.assignment_record(self.group.group_id, self.epoch, 0))

    def set_aside(self, member: M, current: Any) -> None:
        """Keep the place and the current assignment of a static member that leaves temporarily."""
        group_id, member_id = self.group.group_id, member.member_id
        self.record(self.log.current_record(group_id, member_id, current))
        self.assignments[member_id] = current
        self.timers.append(Disarm(revocation_key(group_id, member_id)))

    @abstractmethod
    def disarm_all(self, member_id: str) -> None:
        """Stop all timers of a member that is removed."""

    def replace_static_member(self, old: M, member_id: str) -> M:
        """Return a static member that is back under another member id: its assignments are copied, at epoch
        0."""
        group: Any = self.group
        group_id: str = group.group_id
        current = replace(old.current, epoch=0, previous_epoch=0)
        member: M = replace(old, member_id=member_id, current=current)  # type: ignore[type-var]
        self.remove(old)
        self.record(self.log.member_record(group_id, member))
        self.record(self.log.target_record(group_id, member_id, group.target_of(old.member_id)))
        self.record(self.log.current_record(group_id, member_id, current))
        self.assignments[member_id] = current
        self.disarm_all(old.member_id)
        return member

    def _reported(self) -> Mapping[str, Any]:
        """What members say beside all else, where that is kept; None of who is gone."""
        return {}

    # --- the story ---

    def cause(
        self,
        kind: str,
        member: AuditedMember | None = None,
        *,
        reason: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Remember why the epoch moves."""
        self.causes.append(cause_of(kind, self.context.now_ms, member, reason=reason, topic=topic))

    @abstractmethod
    def _protocol(self) -> str:
        """The assignor by which the group's target came about."""

    def _moved_without_epoch(self) -> bool:
        """Whether there is something to tell though no epoch moved."""
        return False

    def _settled_state(self) -> str:
        """The state of the group now that all members have what they are meant to have."""
        return self.stable

    def _targeted(self, story: RebalanceTrace) -> RebalanceTrace:
        """The story, with what the new target moves, where that is counted."""
        return story

    def _tell(self) -> None:
        """One row where the epoch moved, and one when all members have what they are meant to have."""
        group, now = self.group, self.context.now_ms
        story: RebalanceTrace | None = self.soft.story
        if self.epoch == group.epoch and story is None and not self.causes:
            return
        size = self._size()
        if self.epoch > group.epoch:
            self._row(
                self.epoch, self.assigning if size else self.empty, RebalanceTrace(now, tuple(self.causes))
            )
            story = (story or RebalanceTrace(now)).with_causes(self.causes) if size else None
        elif self._moved_without_epoch():
            self._row(self.epoch, group.state, RebalanceTrace(now, tuple(self.causes)))
        if story is not None and self.assignment_epoch > group.assignment_epoch:
            story = self._targeted(replace(story, targeted_ms=now))
        touched = bool(self.assignments or self.departed) and self.epoch == self.assignment_epoch
        if story is not None and story.targeted_ms >= 0 and touched and not self._behind(size):
            self._row(self.epoch, self._settled_state(), story, is_over=True)
            story = None
        if story is not self.soft.story:
            self.remember(story=story)

    def _size(self) -> int:
        """How many members there will be."""
        known = self.group.members
        left = sum(m in known for m in self.departed)
        return len(known) - left + sum(m not in known or m in self.departed for m in self.assignments)

    def _reached(self) -> dict[str, int]:
        """Who comes to the target with this decision."""
        now, epoch = self.context.now_ms, self.assignment_epoch
        return {member_id: now for member_id, current in self.assignments.items() if current.is_at(epoch)}

    def _behind(self, size: int) -> int:
        """How many members will not be where they should be."""
        reached = self._reached()
        if self.assignment_epoch > self.group.assignment_epoch:
            return size - len(reached)
        behind = self.group.behind
        before = sum(m in behind for m in self.assignments)
        before += sum(m in behind for m in self.departed if m not in self.assignments)
        return len(behind) - before + len(self.assignments) - len(reached)

    def _row(self, epoch: int, state: str, story: RebalanceTrace, *, is_over: bool = False) -> None:
        members: list[RebalancedMember] = []
        protocol = None
        if is_over:
            protocol = self._protocol()
            reached_ms: Mapping[str, int] = self.group.reached_ms | self._reached()
            known = [m for m in self.group.members.values() if m.member_id not in self.departed]
            members = [
                rebalanced_member(m, reached_ms.get(m.member_id, -1))
                for m in {m.member_id: m for m in (*known, *self.changed)}.values()
            ]
        value = RebalanceValue(
            group_type=self.group.group_type,
            epoch=epoch,
            state=state,
            started_ms=story.started_ms,
            joined_ms=story.targeted_ms,
            ended_ms=self.context.now_ms,
            protocol=protocol,
            causes=story.causes,
            causes_left_out=story.causes_left_out,
            members=tuple(members),
            moved=story.moved if is_over else (),
        )
        self.rebalances.append(Rebalance(self.group.group_id, value))
