"""The decision of one request or timer of a classic group, with the steps that requests share.

A `Decision` changes a private copy of the group, and collects the replies, timers, records and audit rows.
They take effect when `outcome` returns them; if a request is rejected half-way, the decision is discarded.

A rebalance: `start_rebalance` (or `maybe_complete_join` if one is in progress) -> members join ->
`complete_join` starts the generation -> the leader's SyncGroup -> `propagate_assignment`.
"""

from __future__ import annotations

from dataclasses import replace

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.audit_members import cause_of, rebalanced_member
from konvene.groups.classic import log
from konvene.groups.classic.group import (
    CAN_REBALANCE,
    ClassicGroup,
    ClassicGroupSnapshot,
    Member,
    RebalanceTrace,
    State,
)
from konvene.groups.classic.subscriptions import topics_of_generation
from konvene.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from konvene.messages.sync_group import SyncGroupResponse
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Outcome, Rebalance, Reply, Waiter

SUPERSEDED = "Superseded"
"""The audited state of a generation that the next rebalance ended before it was stable."""


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


SHORTEST_INITIAL_DELAY_MS = 5
"""Members that join at the same moment share the first generation, even if the configured delay is 0. In
Kafka the queue of requests in front of the coordinator has this effect."""


def initial_delay_ms(context: Context) -> int:
    """Return how long the first rebalance of an empty group waits for further members to join."""
    configured_ms: int = context.config["group.initial.rebalance.delay.ms"]
    return max(configured_ms, SHORTEST_INITIAL_DELAY_MS)


def rejected_join(error: Errors, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a rejected JoinGroup, without a generation and a protocol."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


class Decision:
    """The changes, replies and timers that follow from one request or timer; `group` is a private copy."""

    __slots__ = ("context", "group", "rebalances", "records", "replies", "timers")

    def __init__(self, group: ClassicGroup, context: Context) -> None:
        self.group = group.copy()
        self.context = context
        self.replies: list[Reply] = []
        self.records: list[Record] = []
        self.timers: list[Arm | Disarm] = []
        self.rebalances: list[Rebalance] = []

    def outcome(self) -> Outcome:
        return Outcome(
            tuple(self.replies),
            tuple(self.records),
            (ClassicGroupSnapshot(self.group),),
            tuple(self.timers),
            (),
            tuple(self.rebalances),
        )

    # --- replies and timers ---

    def reply(self, waiter: Waiter, response: Struct) -> None:
        self.replies.append(Reply(waiter, response))

    def arm(self, key: tuple[str, ...], after_ms: int) -> None:
        self.timers.append(Arm(key, after_ms))

    def disarm(self, key: tuple[str, ...]) -> None:
        self.timers.append(Disarm(key))

    def arm_session(self, member: Member) -> None:
        self.arm(session_key(self.group.group_id, member.member_id), member.session_timeout_ms)

    def answer_join(self, member: Member, response: JoinGroupResponse) -> Member:
        """Answer the member's pending JoinGroup, if it has one; return the member without that request."""
        if member.join_waiter is None:
            return member
        self.reply(member.join_waiter, response)
        member = replace(member, join_waiter=None)
        self.group.put(member)
        return member

    def joined_response(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Return the JoinGroup response for a member of the current generation.

        The response to the leader lists all members. `skip_assignment`: the leader is not to compute an
        assignment, since the last one stays.
        """
        group = self.group
        leads = group.leader == member.member_id
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self._member_metadata() if leads else (),
        )

    def _member_metadata(self) -> tuple[JoinGroupResponseMember, ...]:
        protocol = self.group.protocol
        return tuple(
            JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(protocol)
            )
            for m in self.group.members.values()
        )

    # --- the audit ---

    def cause(self, kind: str, member: Member | None, reason: str | None = None) -> None:
        """Add a cause (`shard.causes`) of the rebalance in progress, or of the one that is about to start.

        `member`: None if the cause concerns the group. If the group is in CompletingRebalance, the current
        generation first gets an audit row as superseded.
        """
        now = self.context.now_ms
        if self.group.state is State.COMPLETING_REBALANCE:
            self.audit_generation(SUPERSEDED)
        cause = cause_of(kind, now, member, reason=reason)
        trace = self.group.trace or RebalanceTrace(now, ())
        self.group.trace = replace(trace, causes=(*trace.causes, cause))

    def audit_generation(self, state: str) -> None:
        """End the rebalance in progress with an audit row for the current generation.

        `state`: the state of the group then, or SUPERSEDED if another rebalance starts before it is stable.
        No effect if no rebalance is in progress."""
        group, trace = self.group, self.group.trace
        if trace is None:
            return
        self.rebalances.append(
            Rebalance(
                group.group_id,
                RebalanceValue(
                    group_type="classic",
                    epoch=group.generation,
                    state=state,
                    started_ms=trace.started_ms,
                    joined_ms=trace.joined_ms,
                    ended_ms=self.context.now_ms,
                    protocol=group.protocol,
                    leader=group.leader,
                    causes=trace.causes,
                    members=tuple(rebalanced_member(m, m.joined_ms) for m in group.members.values()),
                ),
            )
        )
        group.trace = None

    # --- steps ---

    def transition_to(self, state: State) -> None:
        self.group.state = state
        self.group.state_timestamp_ms = self.context.now_ms

    def maybe_prepare_rebalance_or_complete_join(self) -> None:
        """Start a rebalance if none is in progress, else complete the join if all members have joined."""
        if self.group.state in CAN_REBALANCE:
            self.start_rebalance()
        else:
            self.maybe_complete_join()

    def start_rebalance(self) -> None:
        """Move to PreparingRebalance; answer pending SyncGroups with REBALANCE_IN_PROGRESS."""
        group = self.group
        if group.state is State.COMPLETING_REBALANCE:
            self._reset_assignments()
        self.clear_pending_syncs()
        group.was_empty = group.state is State.EMPTY
        self.transition_to(State.PREPARING_REBALANCE)
        if group.was_empty:
            delay = initial_delay_ms(self.context)
            group.member_added = False
            group.initial_delay_ms = delay
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
            self.arm(join_key(group.group_id), delay)
        elif group.all_joined:
            self.complete_join()
        else:
            self.arm(join_key(group.group_id), group.rebalance_timeout_ms)

    def maybe_complete_join(self) -> None:
        """Complete the join if all members have joined, except during the initial delay of a group."""
        group = self.group
        if group.state is State.PREPARING_REBALANCE and not group.was_empty and group.all_joined:
            self.complete_join()

    def complete_join(self) -> None:
        """Remove dynamic members that did not join, and start the next generation.

        If only static members are left and none joined, wait for another rebalance timeout instead. A group
        without members becomes Empty."""
        group = self.group
        self.disarm(join_key(group.group_id))
        for member in [m for m in group.members.values() if m.join_waiter is None and m.instance_id is None]:
            group.drop(member.member_id)
            self.disarm(session_key(group.group_id, member.member_id))
            self.cause(causes.REBALANCE_TIMEOUT, member)
        if group.members and not self._maybe_elect_new_leader():
            # No member joined, but static members remain: wait until they join or their sessions expire.
            self.arm(join_key(group.group_id), group.rebalance_timeout_ms)
            return
        group.generation += 1
        group.accepts_earlier_epochs = False
        group.pending_syncs.clear()
        if group.trace is not None:
            group.trace = replace(group.trace, joined_ms=self.context.now_ms)
        if not group.members:
            group.protocol = None
            group.subscribed = topics_of_generation(group)
            self.transition_to(State.EMPTY)
            self.records.append(log.to_record(group))
            self.audit_generation(State.EMPTY)
            return
        group.protocol = group.select_protocol()
        group.subscribed = topics_of_generation(group)
        self.transition_to(State.COMPLETING_REBALANCE)
        self._respond_to_joins()

    def _respond_to_joins(self) -> None:
        group = self.group
        for member in list(group.members.values()):
            answered = self.answer_join(member, self.joined_response(member))
            self.arm_session(answered)
            if answered.is_new:
                group.put(replace(answered, is_new=False))
        group.pending_syncs.update(group.members)
        self.arm(sync_key(group.group_id), group.rebalance_timeout_ms)

    def _maybe_elect_new_leader(self) -> bool:
        """Keep the leader if it joined, else elect the first member that did. Return False if none did."""
        group = self.group
        leader = group.members.get(group.leader or "")
        if leader is not None and leader.join_waiter is not None:
            return True
        for member in group.members.values():
            if member.join_waiter is not None:
                group.leader = member.member_id
                return True
        return False

    def propagate_assignment(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignment, answer the pending SyncGroups, and make the group stable.

        Members that the leader omits get an empty assignment.
        """
        group = self.group
        for member in list(group.members.values()):
            assigned = assignments.get(member.member_id, b"")
            waiter = member.sync_waiter
            member = replace(member, assignment=assigned, sync_waiter=None)
            group.put(member)
            if waiter is not None:
                self.reply(waiter, self.assignment_response(member))
                self.arm_session(member)
        group.state = State.STABLE
        self.records.append(log.to_record(group))
        self.audit_generation(State.STABLE)

    def assignment_response(self, member: Member) -> SyncGroupResponse:
        group = self.group
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )

    def clear_pending_syncs(self) -> None:
        self.group.pending_syncs.clear()
        self.disarm(sync_key(self.group.group_id))

    def remove_pending_sync(self, member_id: str) -> None:
        """Note that a member has sent its SyncGroup; stop the sync timer if no other member has yet to."""
        self.group.pending_syncs.discard(member_id)
        if not self.group.pending_syncs:
            self.disarm(sync_key(self.group.group_id))

    def _reset_assignments(self) -> None:
        """Discard all assignments; answer pending SyncGroups with REBALANCE_IN_PROGRESS."""
        group = self.group
        for member in list(group.members.values()):
            if member.sync_waiter is not None:
                self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
                self.arm_session(member)
            group.put(replace(member, assignment=b"", sync_waiter=None))

    def remove(self, member: Member) -> None:
        """Remove a member, and answer its pending requests with UNKNOWN_MEMBER_ID."""
        self.answer_join(member, rejected_join(Errors.UNKNOWN_MEMBER_ID))
        if member.sync_waiter is not None:
            self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))
        self.disarm(session_key(self.group.group_id, member.member_id))
        self.group.drop(member.member_id)

    def rebalance_after_expiry(self) -> None:
        """Rebalance the group after a member whose timer expired was removed.

        In Stable and CompletingRebalance a rebalance starts; in PreparingRebalance the join is completed if
        all remaining members have joined."""
        if self.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.start_rebalance()
        elif self.group.state is State.PREPARING_REBALANCE and self.group.all_joined:
            self.complete_join()
