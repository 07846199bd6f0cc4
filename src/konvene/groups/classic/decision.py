"""A decision about a classic group while it is being made, and the moves that requests share.

A `Decision` holds a private copy of the group and collects what follows: replies, timers, the record, the
story. Nothing of it is visible until `outcome` hands everything over at once; if a request is refused
half-way, the decision is dropped.

The path of a rebalance: `start_rebalance` (or `go_on` if one runs) -> members join -> `complete_join` makes
the generation -> the leader's SyncGroup -> `stabilise`.
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
"""How a generation ended that was followed by another before it was stable."""


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


SHORTEST_INITIAL_DELAY_MS = 5
"""Members that come at the same moment begin together, also where they need not wait for one another. In
Kafka it is the queue of requests in front of the coordinator that has this effect."""


def initial_delay_ms(context: Context) -> int:
    """For how long the first rebalance of a group waits for the next member."""
    told: int = context.config["group.initial.rebalance.delay.ms"]
    return max(told, SHORTEST_INITIAL_DELAY_MS)


def rejected_join(error: Errors, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup's answer that is no generation: there is no protocol to tell."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


class Decision:
    """One decision. `group` is a copy that nobody else sees yet."""

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
        """Answer the member's JoinGroup if it waits for one."""
        if member.join_waiter is None:
            return member
        self.reply(member.join_waiter, response)
        member = replace(member, join_waiter=None)
        self.group.put(member)
        return member

    def joined_response(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """What a member of the current generation is told: the leader hears of all members."""
        group = self.group
        leads = group.leader == member.member_id
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self._everyone() if leads else (),
        )

    def _everyone(self) -> tuple[JoinGroupResponseMember, ...]:
        protocol = self.group.protocol
        return tuple(
            JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(protocol)
            )
            for m in self.group.members.values()
        )

    # --- the story ---

    def cause(self, kind: str, member: Member | None, reason: str | None = None) -> None:
        """Remember why the rebalance under way, or the one about to start, takes place; no member: the group.

        A generation that this cuts off before it was stable is told first, as superseded."""
        now = self.context.now_ms
        if self.group.state is State.COMPLETING_REBALANCE:
            self.tell(SUPERSEDED)
        told = cause_of(kind, now, member, reason=reason)
        story = self.group.story or RebalanceTrace(now, ())
        self.group.story = replace(story, causes=(*story.causes, told))

    def tell(self, state: str) -> None:
        """The generation came to its end as `state`: hand its story to the shell."""
        group, story = self.group, self.group.story
        if story is None:
            return
        self.rebalances.append(
            Rebalance(
                group.group_id,
                RebalanceValue(
                    group_type="classic",
                    epoch=group.generation,
                    state=state,
                    started_ms=story.started_ms,
                    joined_ms=story.joined_ms,
                    ended_ms=self.context.now_ms,
                    protocol=group.protocol,
                    leader=group.leader,
                    causes=story.causes,
                    members=tuple(rebalanced_member(m, m.joined_ms) for m in group.members.values()),
                ),
            )
        )
        group.story = None

    # --- moves ---

    def move(self, state: State) -> None:
        self.group.state = state
        self.group.state_timestamp_ms = self.context.now_ms

    def rebalance_or_go_on(self) -> None:
        """Start a rebalance where none runs; else see whether the one that runs is complete."""
        if self.group.state in CAN_REBALANCE:
            self.start_rebalance()
        else:
            self.go_on()

    def start_rebalance(self) -> None:
        """Leave for PreparingRebalance: whoever waits for an assignment has to join again."""
        group = self.group
        if group.state is State.COMPLETING_REBALANCE:
            self._refuse_syncs()
        self.end_sync_phase()
        group.was_empty = group.state is State.EMPTY
        self.move(State.PREPARING_REBALANCE)
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

    def go_on(self) -> None:
        """Complete the join if nobody is missing; the first rebalance of a group waits for its delay."""
        group = self.group
        if group.state is State.PREPARING_REBALANCE and not group.was_empty and group.all_joined:
            self.complete_join()

    def complete_join(self) -> None:
        """Make the next generation of those who joined; who did not is out, unless static."""
        group = self.group
        self.disarm(join_key(group.group_id))
        for member in [m for m in group.members.values() if m.join_waiter is None and m.instance_id is None]:
            group.drop(member.member_id)
            self.disarm(session_key(group.group_id, member.member_id))
            self.cause(causes.REBALANCE_TIMEOUT, member)
        if group.members and not self._elect():
            # Nobody joined, yet static members remain: wait on, until their sessions end.
            self.arm(join_key(group.group_id), group.rebalance_timeout_ms)
            return
        group.generation += 1
        group.hears_earlier = False
        group.pending_syncs.clear()
        if group.story is not None:
            group.story = replace(group.story, joined_ms=self.context.now_ms)
        if not group.members:
            group.protocol = None
            group.subscribed = topics_of_generation(group)
            self.move(State.EMPTY)
            self.records.append(log.to_record(group))
            self.tell(State.EMPTY)
            return
        group.protocol = group.vote()
        group.subscribed = topics_of_generation(group)
        self.move(State.COMPLETING_REBALANCE)
        self._hand_out_generation()

    def _hand_out_generation(self) -> None:
        group = self.group
        for member in list(group.members.values()):
            answered = self.answer_join(member, self.joined_response(member))
            self.arm_session(answered)
            if answered.is_new:
                group.put(replace(answered, is_new=False))
        group.pending_syncs.update(group.members)
        self.arm(sync_key(group.group_id), group.rebalance_timeout_ms)

    def _elect(self) -> bool:
        """Keep a leader that joined, else take the first member that did. False if none did."""
        group = self.group
        leader = group.members.get(group.leader or "")
        if leader is not None and leader.join_waiter is not None:
            return True
        for member in group.members.values():
            if member.join_waiter is not None:
                group.leader = member.member_id
                return True
        return False

    def stabilise(self, assignments: dict[str, bytes]) -> None:
        """The leader's assignment is stored and handed out. Members it forgot get an empty one."""
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
        self.tell(State.STABLE)

    def assignment_response(self, member: Member) -> SyncGroupResponse:
        group = self.group
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )

    def end_sync_phase(self) -> None:
        self.group.pending_syncs.clear()
        self.disarm(sync_key(self.group.group_id))

    def synced(self, member_id: str) -> None:
        """A member asked for its assignment; when all have, nobody needs to be waited for."""
        self.group.pending_syncs.discard(member_id)
        if not self.group.pending_syncs:
            self.disarm(sync_key(self.group.group_id))

    def _refuse_syncs(self) -> None:
        """The generation never becomes stable: who waits for its assignment has to join again."""
        group = self.group
        for member in list(group.members.values()):
            if member.sync_waiter is not None:
                self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.REBALANCE_IN_PROGRESS))
                self.arm_session(member)
            group.put(replace(member, assignment=b"", sync_waiter=None))

    def remove(self, member: Member) -> None:
        """Take a member out. If it waits for a join, it is told to come back as a new one."""
        self.answer_join(member, rejected_join(Errors.UNKNOWN_MEMBER_ID))
        if member.sync_waiter is not None:
            self.reply(member.sync_waiter, SyncGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID))
        self.disarm(session_key(self.group.group_id, member.member_id))
        self.group.drop(member.member_id)

    def close_ranks(self) -> None:
        """What follows when a member's time ran out and it is gone."""
        if self.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.start_rebalance()
        elif self.group.state is State.PREPARING_REBALANCE and self.group.all_joined:
            self.complete_join()
