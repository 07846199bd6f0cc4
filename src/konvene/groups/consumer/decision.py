"""A decision about a consumer group: extends `groups.modern.decision` with its own steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from konvene.groups.assignors import OFFERED, Assignor
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.modern.decision import ModernDecision, revocation_key, session_key
from konvene.shard import causes
from konvene.shard.contract import Context, Disarm

__all__ = ["Decision", "join_key", "revocation_key", "session_key", "sync_key"]


def join_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Runs while a member of the classic protocol has been told to rejoin."""
    return ("rejoin", group_id, member_id)


def sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Runs while a member of the classic protocol has joined and not asked for its assignment."""
    return ("resync", group_id, member_id)


def offered(context: Context) -> Mapping[str, Assignor]:
    """The assignors on offer by name, the default first."""
    return context.assignors or OFFERED


class Decision(ModernDecision[ConsumerGroup]):
    """One decision about one group."""

    group_type: ClassVar[str] = "consumer"

    __slots__ = ("metadata_hash",)

    def __init__(self, group: ConsumerGroup, context: Context) -> None:
        super().__init__(group, context)
        self.metadata_hash = group.metadata_hash

    # --- what follows ---

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

    # --- moves that requests share ---

    def bump(self, metadata_hash: int) -> None:
        """The group is at its next epoch: whatever its assignment rests on has changed."""
        self.epoch += 1
        self.metadata_hash = metadata_hash
        self.record(log.group_record(self.group.group_id, self.epoch, metadata_hash))

    def settle(self, member: Member, current: CurrentAssignment) -> Member:
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

    def _protocol(self) -> str:
        return self.group.preferred_assignor() or next(iter(offered(self.context)))

    def _moved_without_epoch(self) -> bool:
        """A static member came back with the new protocol: nothing moves, but for what the group is."""
        return any(cause.kind == causes.UPGRADED for cause in self.causes)
