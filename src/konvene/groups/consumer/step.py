"""A decision about a consumer group while it is being made.

A group of ten thousand is not copied for a heartbeat. A `Step` reads the group as it is before the decision
and collects what follows: records, replies, timers, effects, the causes. Only the replay of its records
changes the group, so a request that is refused half-way leaves no trace. What a decision has changed so far
(`epoch`, `metadata_hash`, the member at hand) is therefore handed on by the functions that share a step, and
not read back from the group.

A group that does not exist yet, or that a classic group is becoming, is a private one: the records that make
it are in the step already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from konvene.codec.schema import Struct
from konvene.groups.assignors import OFFERED, Assignor
from konvene.groups.classic.step import session_key
from konvene.groups.consumer import log
from konvene.groups.consumer.current import Current, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member, Soft, SoftIs, State, Story
from konvene.groups.telling import came_out, cause_of
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard import causes
from konvene.shard.contract import Arm, Context, Disarm, Effect, Outcome, Rebalance, Reply, Waiter

__all__ = ["Step", "join_key", "revocation_key", "session_key", "sync_key"]


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Runs while a member owes a revocation."""
    return ("revocation", group_id, member_id)


def join_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Runs while a member of the classic protocol has been told to rejoin."""
    return ("rejoin", group_id, member_id)


def sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Runs while a member of the classic protocol has joined and not asked for its assignment."""
    return ("resync", group_id, member_id)


def offered(context: Context) -> Mapping[str, Assignor]:
    """The assignors on offer by name, the default first."""
    return context.assignors or OFFERED


class Step:
    """One decision about one group."""

    __slots__ = (
        "arrived", "assignment_epoch", "causes", "config", "context", "effects", "epoch", "gone", "group",
        "metadata_hash", "records", "replies", "settled", "soft", "timers", "why",
    )  # fmt: skip

    def __init__(self, group: ConsumerGroup, context: Context) -> None:
        self.group = group
        self.context = context
        self.config = context.group_configs.of(group.group_id)
        self.epoch = group.epoch
        self.metadata_hash = group.metadata_hash
        self.assignment_epoch = group.assignment_epoch
        self.soft: Soft = group.soft
        self.arrived: list[Member] = []
        """Members that are new, or not as they were."""
        self.gone: set[str] = set()
        """Members that will not be in the group any more."""
        self.settled: dict[str, Current] = {}
        """What members will have, where that changes."""
        self.records: list[Any] = []
        self.replies: list[Reply] = []
        self.timers: list[Arm | Disarm] = []
        self.effects: list[Effect] = []
        self.causes: list[Cause] = []
        self.why: list[Rebalance] = []

    def outcome(self) -> Outcome:
        self._tell()
        soft: tuple[SoftIs, ...] = ()
        if self.soft is not self.group.soft or (self.settled and self.soft.story is not None):
            soft = (SoftIs(self.group.group_id, self.soft, self._reached()),)
        return Outcome(
            tuple(self.replies), tuple(self.records), soft, tuple(self.timers), tuple(self.effects),
            tuple(self.why),
        )  # fmt: skip

    # --- what follows ---

    def reply(self, waiter: Waiter, response: Struct) -> None:
        self.replies.append(Reply(waiter, response))

    def record(self, record: Record) -> None:
        self.records.append(record)

    def arm(self, key: tuple[str, str, str], after_ms: int, *, unless_armed: bool = False) -> None:
        self.timers.append(Arm(key, after_ms, unless_armed))

    def arm_session(self, member: Member) -> None:
        """Count the member's session from now on."""
        timeout_ms = self.config["consumer.session.timeout.ms"]
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.arm(session_key(self.group.group_id, member.member_id), timeout_ms)

    def disarm_all(self, member_id: str) -> None:
        """The member is gone, and whatever it was waited for."""
        group_id = self.group.group_id
        self.timers += (
            Disarm(key(group_id, member_id)) for key in (session_key, revocation_key, join_key, sync_key)
        )

    def disarm_classic(self, member_id: str) -> None:
        """The member speaks the consumer protocol now: nobody waits for it to join or to sync. Kafka does."""
        group_id = self.group.group_id
        self.timers += (Disarm(join_key(group_id, member_id)), Disarm(sync_key(group_id, member_id)))

    def revocation_key(self, member: Member) -> tuple[str, str, str]:
        return revocation_key(self.group.group_id, member.member_id)

    def remember(self, **known: Any) -> None:
        """Note what is kept beside the log."""
        self.soft = replace(self.soft, **known)

    # --- moves that requests share ---

    def bump(self, metadata_hash: int) -> None:
        """The group is at its next epoch: whatever its assignment rests on has changed."""
        self.epoch += 1
        self.metadata_hash = metadata_hash
        self.record(log.group_record(self.group.group_id, self.epoch, metadata_hash))

    def settle(self, member: Member, current: Current) -> Member:
        """The member has something else now. It has a time limit while it owes a revocation."""
        group_id = self.group.group_id
        self.record(log.current_record(group_id, member.member_id, current))
        self.settled[member.member_id] = current
        if member.classic is None:
            key = self.revocation_key(member)
            if current.state is MemberState.UNREVOKED_PARTITIONS:
                self.arm(key, member.rebalance_timeout_ms)
            else:
                self.timers.append(Disarm(key))
        return member.having(current)

    def remove(self, member: Member) -> None:
        """Let go of all that is kept of a member."""
        self.records += log.member_tombstones(self.group.group_id, member.member_id)
        self.gone.add(member.member_id)

    def take_place(self, old: Member, member_id: str) -> Member:
        """A static member is back under another id: all that it had is copied, at epoch 0."""
        group_id = self.group.group_id
        current = replace(old.current, epoch=0, previous_epoch=0)
        member = replace(old, member_id=member_id, current=current)
        self.remove(old)
        self.record(log.member_record(group_id, member))
        self.record(log.target_record(group_id, member_id, self.group.targets.get(old.member_id, {})))
        self.record(log.current_record(group_id, member_id, current))
        self.settled[member_id] = current
        self.disarm_all(old.member_id)
        return member

    # --- the story ---

    def cause(self, kind: str, member: Member | None = None, *, reason: str | None = None) -> None:
        """Remember why the epoch moves."""
        self.causes.append(self.told(kind, member, reason=reason))

    def told(self, kind: str, member: Member | None, *, reason: str | None = None) -> Cause:
        """A cause, and who it was."""
        return cause_of(kind, self.context.now_ms, member, reason=reason)

    def _tell(self) -> None:
        """One row where the epoch moved, and one when all members have what they are meant to have."""
        group, now = self.group, self.context.now_ms
        story = self.soft.story
        if self.epoch == group.epoch and story is None and not self.causes:
            return
        size = self._size()
        if self.epoch > group.epoch:
            self._row(self.epoch, State.ASSIGNING if size else State.EMPTY, Story(now, tuple(self.causes)))
            story = (story or Story(now)).with_causes(self.causes) if size else None
        elif any(cause.kind == causes.UPGRADED for cause in self.causes):
            # A static member came back with the new protocol: nothing moves, but for what the group is.
            self._row(self.epoch, group.state, Story(now, tuple(self.causes)))
        if story is not None and self.assignment_epoch > group.assignment_epoch:
            story = replace(story, targeted_ms=now)
        touched = bool(self.settled or self.gone) and self.epoch == self.assignment_epoch
        if story is not None and story.targeted_ms >= 0 and touched and not self._behind(size):
            self._row(self.epoch, State.STABLE, story)
            story = None
        if story is not self.soft.story:
            self.remember(story=story)

    def _size(self) -> int:
        """How many members there will be."""
        known = self.group.members
        left = sum(m in known for m in self.gone)
        return len(known) - left + sum(m not in known or m in self.gone for m in self.settled)

    def _reached(self) -> dict[str, int]:
        """Who comes to the target with this decision."""
        return {
            member_id: self.context.now_ms
            for member_id, current in self.settled.items()
            if current.state is MemberState.STABLE and current.epoch == self.assignment_epoch
        }

    def _behind(self, size: int) -> int:
        """How many members will not be where they should be."""
        reached = self._reached()
        if self.assignment_epoch > self.group.assignment_epoch:
            return size - len(reached)
        behind = self.group.behind
        before = sum(m in behind for m in self.settled)
        before += sum(m in behind for m in self.gone if m not in self.settled)
        return len(behind) - before + len(self.settled) - len(reached)

    def _row(self, epoch: int, state: State, story: Story) -> None:
        members: list[RebalancedMember] = []
        protocol = None
        if state is State.STABLE:
            protocol = self.group.preferred_assignor() or next(iter(offered(self.context)))
            reached_ms = self.group.reached_ms | self._reached()
            known = [m for m in self.group.members.values() if m.member_id not in self.gone]
            members = [
                came_out(m, reached_ms.get(m.member_id, -1))
                for m in {m.member_id: m for m in (*known, *self.arrived)}.values()
            ]
        value = RebalanceValue(
            group_type="consumer",
            epoch=epoch,
            state=state,
            started_ms=story.started_ms,
            joined_ms=story.targeted_ms,
            ended_ms=self.context.now_ms,
            protocol=protocol,
            causes=story.causes,
            causes_left_out=story.causes_left_out,
            members=tuple(members),
        )
        self.why.append(Rebalance(self.group.group_id, value))
