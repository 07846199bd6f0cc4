"""The steps of a decision that are common to consumer, share and streams groups.

A group of ten thousand members is not copied for each heartbeat. A decision reads the group as it was before
the request, and collects its results: records, replies, timers, effects, and the causes. Only the replay of
the records changes the group, so a request that is rejected half-way leaves no trace. Functions that share a
decision pass on what it has changed so far (`epoch`, the member at hand) instead of reading it from the
group.

A group that does not exist yet, or a classic group that is being converted, is private to the decision: its
records create the group.
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
from konvene.groups.modern.group import Current, Member, ModernGroup
from konvene.groups.modern.log import RecordTypes
from konvene.groups.modern.rebalance_trace import RebalanceTrace, SoftStateRecord
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Rebalance, Reply, Waiter

__all__ = ["ModernDecision", "rejoin_key", "resync_key", "revocation_key", "session_key"]


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of the timer that runs until a member acknowledges a revocation."""
    return ("revocation", group_id, member_id)


def rejoin_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of the timer that runs until a member of the classic protocol rejoins."""
    return ("rejoin", group_id, member_id)


def resync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Return the key of the timer that runs from a classic member's JoinGroup until its SyncGroup."""
    return ("resync", group_id, member_id)


G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Member)


class ModernDecision(ABC, Generic[G, M]):
    """The decision about one request, timer or event of a group, while it is being made."""

    log: ClassVar[RecordTypes[Any]]
    session_timeout: ClassVar[str]
    """Name of the group config with the members' session timeout."""
    unrevoked: ClassVar[object] = None
    """The state of a member that has yet to acknowledge a revocation; None where it is not acknowledged."""
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
        self.changed: list[M] = []
        """Members that the decision adds or changes."""
        self.departed: set[str] = set()
        """Ids of the members that the decision removes."""
        self.assignments: dict[str, Current] = {}
        """Changed current assignments, by member id."""
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.timers: list[Arm | Disarm] = []
        self.effects: list[Effect] = []
        self.causes: list[Cause] = []
        self.rebalances: list[Rebalance] = []

    def outcome(self) -> Outcome:
        """Return the collected results, with the audit rows of this decision and the changed soft state."""
        self._trace_rebalance()
        soft: tuple[SoftStateRecord, ...] = ()
        reported = self._reported()
        if self.soft is not self.group.soft or reported or (self.assignments and self.soft.trace is not None):
            soft = (SoftStateRecord(self.group.group_id, self.soft, self._reached(), reported),)
        return Outcome(
            tuple(self.replies), tuple(self.records), soft, tuple(self.timers), tuple(self.effects),
            tuple(self.rebalances),
        )  # fmt: skip

    # --- replies, records and timers ---

    def reply(self, waiter: Waiter, response: Struct) -> None:
        self.replies.append(Reply(waiter, response))

    def record(self, record: Record) -> None:
        self.records.append(record)

    def arm(self, key: tuple[str, ...], after_ms: int, *, unless_armed: bool = False) -> None:
        self.timers.append(Arm(key, after_ms, unless_armed))

    def replace_classic_group(self, classic: ClassicGroup) -> None:
        """Delete the record of the classic group that this group replaces, and stop its timers."""
        group_id = classic.group_id
        self.record(classic_log.tombstone(group_id))
        self.timers += [Disarm(join_key(group_id)), Disarm(sync_key(group_id))]
        self.timers += (Disarm(session_key(group_id, pending)) for pending in sorted(classic.pending_joins))

    def remember(self, **fields: Any) -> None:
        """Replace fields of the group's soft state, which is not in its log."""
        self.soft = replace(self.soft, **fields)

    # --- steps that requests share ---

    def arm_session(self, member: M) -> None:
        """Restart the session timer of a member."""
        timeout_ms = self.config[self.session_timeout]
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.arm(session_key(self.group.group_id, member.member_id), timeout_ms)

    def arm_all(self) -> None:
        """Start, after a load, each member's session timer and the timers of unacknowledged revocations."""
        for member in self.group.members.values():
            self.arm_session(member)
            owes = self.unrevoked is not None and member.current.state is self.unrevoked
            if owes and member.current.epoch >= 0 and member.classic is None:
                self.arm(revocation_key(self.group.group_id, member.member_id), member.rebalance_timeout_ms)

    def settle(self, member: M, current: Current) -> M:
        """Record a member's new current assignment, and return the member with it.

        A member that has something to revoke must acknowledge it within its rebalance timeout. This does not
        apply to members of the classic protocol, which have the rejoin timer instead."""
        group_id, member_id = self.group.group_id, member.member_id
        self.record(self.log.current_record(group_id, member_id, current))
        self.assignments[member_id] = current
        if self.unrevoked is not None and member.classic is None:
            key = revocation_key(group_id, member_id)
            if current.state is self.unrevoked:
                self.arm(key, member.rebalance_timeout_ms)
            else:
                self.timers.append(Disarm(key))
        return member.having(current)

    def remove(self, member: M) -> None:
        """Record the tombstones of a member, and count it as departed."""
        self.records += self.log.member_tombstones(self.group.group_id, member.member_id)
        self.departed.add(member.member_id)

    def assign_nothing(self) -> None:
        """Record the assignment of an empty group as complete.

        Its timestamp is 0, so that the target of the next member is computed at once."""
        self.complete_assignment(0)

    def record_target(self, member_id: str, old: object, new: object) -> bool:
        """Write the record of a member's target if it changed; return whether it did.

        `old`: the last recorded target; None if there is none."""
        if old is not None and (new is old or new == old):
            return False
        self.record(self.log.target_record(self.group.group_id, member_id, new))
        return True

    def complete_assignment(self, timestamp_ms: int) -> None:
        """Write the record that targets were computed for the group's epoch.

        `timestamp_ms`: when they were computed; 0 lets the next target be computed at once."""
        self.assignment_epoch = self.epoch
        self.record(self.log.assignment_record(self.group.group_id, self.epoch, timestamp_ms))

    def set_aside(self, member: M, current: Current) -> None:
        """Record the current assignment of a static member that leaves temporarily."""
        group_id, member_id = self.group.group_id, member.member_id
        self.record(self.log.current_record(group_id, member_id, current))
        self.assignments[member_id] = current
        self.timers.append(Disarm(revocation_key(group_id, member_id)))

    @abstractmethod
    def disarm_all(self, member_id: str) -> None:
        """Stop all timers of a member that is removed."""

    def disarm_classic(self, member_id: str) -> None:
        """Stop the rejoin and resync timers of a member that is removed or not classic any more.

        Unlike this broker, Kafka leaves them running."""
        group_id = self.group.group_id
        self.timers += (Disarm(rejoin_key(group_id, member_id)), Disarm(resync_key(group_id, member_id)))

    def replace_static_member(self, old: M, member_id: str) -> M:
        """Move a static member to a new member id, and return it with its assignments, at epoch 0."""
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

    def _reported(self) -> Mapping[str, object]:
        """Return the task offsets to store as soft state, by id of the member that reported them.

        Only members of streams groups report them. The value None deletes those of a removed member."""
        return {}

    # --- the audit ---

    def cause(
        self,
        kind: str,
        member: AuditedMember | None = None,
        *,
        reason: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Add a cause of the epoch bump, with the member or the topic behind it.

        `kind`: one of the kinds in `shard.causes`."""
        self.causes.append(cause_of(kind, self.context.now_ms, member, reason=reason, topic=topic))

    @abstractmethod
    def _protocol(self) -> str:
        """Return the name of the assignor that computed the target."""

    def _is_audited_without_bump(self) -> bool:
        """Return whether a decision that does not bump the epoch gets an audit row nevertheless."""
        return False

    def _settled_state(self) -> str:
        """Return the state of the group once all members have reached the target."""
        return self.stable

    def _with_moves(self, trace: RebalanceTrace) -> RebalanceTrace:
        """Return the trace with counts of the tasks that the new target moves between members.

        Other groups than streams groups have no tasks: for them the trace is returned as it is."""
        return trace

    def _trace_rebalance(self) -> None:
        """Add an audit row for an epoch bump, and one when the last member reaches the target."""
        group, now = self.group, self.context.now_ms
        trace: RebalanceTrace | None = self.soft.trace
        if self.epoch == group.epoch and trace is None and not self.causes:
            return
        size = self._next_size()
        if self.epoch > group.epoch:
            self._audit(
                self.epoch, self.assigning if size else self.empty, RebalanceTrace(now, tuple(self.causes))
            )
            trace = (trace or RebalanceTrace(now)).with_causes(self.causes) if size else None
        elif self._is_audited_without_bump():
            self._audit(self.epoch, group.state, RebalanceTrace(now, tuple(self.causes)))
        if trace is not None and self.assignment_epoch > group.assignment_epoch:
            trace = self._with_moves(replace(trace, targeted_ms=now))
        has_progress = bool(self.assignments or self.departed) and self.epoch == self.assignment_epoch
        if trace is not None and trace.targeted_ms >= 0 and has_progress and not self._count_behind(size):
            self._audit(self.epoch, self._settled_state(), trace, is_over=True)
            trace = None
        if trace is not self.soft.trace:
            self.remember(trace=trace)

    def _next_size(self) -> int:
        """Return the number of members after this decision."""
        known = self.group.members
        removed = sum(m in known for m in self.departed)
        return len(known) - removed + sum(m not in known or m in self.departed for m in self.assignments)

    def _reached(self) -> dict[str, int]:
        """Return the ids of members that reach the target in this decision, each with the current time."""
        now, epoch = self.context.now_ms, self.assignment_epoch
        return {member_id: now for member_id, current in self.assignments.items() if current.is_at(epoch)}

    def _count_behind(self, size: int) -> int:
        """Return how many members are behind the target after this decision."""
        reached = self._reached()
        if self.assignment_epoch > self.group.assignment_epoch:
            return size - len(reached)
        behind = self.group.behind
        before = sum(m in behind for m in self.assignments)
        before += sum(m in behind for m in self.departed if m not in self.assignments)
        return len(behind) - before + len(self.assignments) - len(reached)

    def _audit(self, epoch: int, state: str, trace: RebalanceTrace, *, is_over: bool = False) -> None:
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
            started_ms=trace.started_ms,
            joined_ms=trace.targeted_ms,
            ended_ms=self.context.now_ms,
            protocol=protocol,
            causes=trace.causes,
            causes_left_out=trace.causes_left_out,
            members=tuple(members),
            moved=trace.moved if is_over else (),
            session_timeout_ms=self.config[self.session_timeout] if _has_expiry(trace) else -1,
        )
        self.rebalances.append(Rebalance(self.group.group_id, value))


def _has_expiry(trace: RebalanceTrace) -> bool:
    return any(cause.kind == causes.SESSION_EXPIRED for cause in trace.causes)
