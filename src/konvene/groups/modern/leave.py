"""How members leave consumer, share and streams groups without a request: their timers expire.

Each type of group removes members in its own way (`leave.fence` of its package). The timers are common:

    session      no heartbeat came within the session timeout, or soon enough after the connection was lost
    revocation   a member did not acknowledge a revocation within its rebalance timeout
    rejoin       a member of the classic protocol did not rejoin within its rebalance timeout
    resync       a member of the classic protocol joined and did not send its SyncGroup

A timer changes nothing if its member has left the group, or has acknowledged the revocation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from konvene.groups.heartbeat_intervals import disconnect_grace_ms
from konvene.groups.modern.decision import session_key
from konvene.groups.modern.group import Member, ModernGroup, get_or_throw_member, get_or_throw_static_member
from konvene.shard import causes
from konvene.shard.contract import NOTHING, Arm, Context, Outcome

G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Member)

Departure = tuple[M, str, str | None]
"""A member that leaves, the cause (`shard.causes`), and the reason that its client gave, if any."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """An event: the connection of a member's last heartbeat was closed, and the member had not left."""

    group_id: str
    member_id: str


def leaving_member(group: ModernGroup[M], member_id: str, instance_id: str | None) -> M:
    """Return the member that a heartbeat at epoch -1 or -2 names. Raises `GroupError`."""
    if instance_id is None:
        return get_or_throw_member(group, member_id)
    return get_or_throw_static_member(group, member_id, instance_id)


@dataclass(frozen=True, slots=True)
class MemberTimers(Generic[G]):
    """The handlers of the expired timers of members, for one type of group."""

    fence: Callable[[G, Any, str, Context], Outcome]
    """Remove one member from the group; the string is the cause (`shard.causes`)."""
    unrevoked: object = None
    """The state of a member that has yet to acknowledge a revocation."""

    def by_name(self) -> dict[str, Callable[[G, str, Context], Outcome]]:
        """Return the handlers by the name of the timer, which is the first item of its key."""
        return {
            "session": self.session_expired,
            "revocation": self.revocation_timed_out,
            "rejoin": self.rejoin_timed_out,
            "resync": self.resync_timed_out,
        }

    def session_expired(self, group: G, member_id: str, context: Context) -> Outcome:
        """Fence a member that sent no heartbeat within its session timeout."""
        return self._fence(group, member_id, context, causes.SESSION_EXPIRED)

    def revocation_timed_out(self, group: G, member_id: str, context: Context) -> Outcome:
        """Fence a member that did not acknowledge a revocation within its rebalance timeout."""
        member = group.members.get(member_id)
        if member is None or member.current.state is not self.unrevoked:
            return NOTHING
        return self.fence(group, member, causes.REBALANCE_TIMEOUT, context)

    def rejoin_timed_out(self, group: G, member_id: str, context: Context) -> Outcome:
        """Fence a member of the classic protocol that did not rejoin within its rebalance timeout."""
        return self._fence(group, member_id, context, causes.REBALANCE_TIMEOUT)

    def resync_timed_out(self, group: G, member_id: str, context: Context) -> Outcome:
        """Fence a member of the classic protocol that joined and did not send its SyncGroup."""
        return self._fence(group, member_id, context, causes.SYNC_TIMEOUT)

    def _fence(self, group: G, member_id: str, context: Context, cause: str) -> Outcome:
        member = group.members.get(member_id)
        return NOTHING if member is None else self.fence(group, member, cause, context)


def disconnected(group: ModernGroup[Any], member_id: str, context: Context) -> Outcome:
    """Shorten the session of a dynamic member that lost its connection.

    It then lasts `konvene.session.disconnect.grace.ms`, or one heartbeat interval if that is longer. Nothing
    changes for members of the classic protocol, or if that config is 0."""
    member = group.members.get(member_id)
    if member is None or member.instance_id is not None or member.classic is not None:
        return NOTHING
    config = context.group_configs.of(group.group_id)
    left_ms = disconnect_grace_ms(group.group_type, config, context.config, context.members)
    if left_ms is None:
        return NOTHING
    return Outcome(timers=(Arm(session_key(group.group_id, member_id), left_ms),))
