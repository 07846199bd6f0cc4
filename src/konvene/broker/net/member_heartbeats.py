"""The heartbeats of one connection: the last one, and how long the response to the next may be held back.

A response is held back (`heartbeat_purgatory`) only if the client has received the same response on this
connection, tolerates the delay (`konvene.heartbeat.hold.clients`), and has not sent another request already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.net.heartbeat_purgatory import may_be_held
from konvene.groups.heartbeat_intervals import HeartbeatSpacing, max_classic_hold_ms, max_hold_ms

if TYPE_CHECKING:
    from konvene.broker.net.response_cache import CachedResponse
    from konvene.configs import BrokerConfig

__all__ = ["MemberHeartbeats"]


class MemberHeartbeats:
    """What a connection knows of its member: client software, last heartbeat, spacing of heartbeats."""

    __slots__ = ("_share_member", "_spacing", "knows_assignment", "last", "software")

    def __init__(self) -> None:
        self.software = ("", "")
        """Name and version of the client (ApiVersions)."""
        self.last: CachedResponse | None = None
        """The last heartbeat of this connection, if its response is cached."""
        self.knows_assignment = False
        """Whether a heartbeat of a member was answered on this connection."""
        self._share_member: tuple[str, int] | None = None  # Member id and heartbeat interval in ms.
        self._spacing: HeartbeatSpacing | None = None  # Of the heartbeats of a classic member.

    def __repr__(self) -> str:
        return f"<heartbeats of {' '.join(self.software).strip() or 'an unknown client'}>"

    def hold_ms(self, cached: CachedResponse, now_s: float, config: BrokerConfig, *, is_alone: bool) -> int:
        """Return how long the response to a heartbeat may be held back, 0 if not at all.

        `is_alone`: no other request of the connection has been received."""
        repeated, hold_ms = self.last is cached, cached.hold_ms
        if cached.is_learnt:
            self._spacing = spacing = self._spacing or HeartbeatSpacing()
            spacing.came(int(now_s * 1000), again=repeated)
            hold_ms = max_classic_hold_ms(spacing.learnt_ms, is_static=cached.is_static)
        if not repeated or not hold_ms or not is_alone:
            return 0
        if cached.is_learnt:
            clients = config["konvene.heartbeat.hold.classic.clients"]
        else:
            clients = config["konvene.heartbeat.hold.clients"]
        return hold_ms if may_be_held(self.software, clients) else 0

    def hold_ms_after_change(self, config: BrokerConfig, *, is_alone: bool) -> int:
        """Return how long the response to a share member's heartbeat that was just decided may be held back.

        The member has received the group's last change on this connection, and need not acknowledge it. If
        its next heartbeat were answered at once, it would learn of a further change only from the one after
        that."""
        cached, member = self.last, self._share_member
        if cached is None or member is None or member[0] != cached.member_id or not is_alone:
            return 0
        hold_ms = min(cached.hold_ms, max_hold_ms(member[1], is_static=False))
        return (
            hold_ms if hold_ms and may_be_held(self.software, config["konvene.heartbeat.hold.clients"]) else 0
        )

    def answered(self, now_s: float) -> None:
        """Record that the response to a held heartbeat is sent now."""
        if self._spacing is not None:
            self._spacing.answered(int(now_s * 1000))

    def share_member_answered(self, response: Any) -> None:
        """Record the response to a share member's heartbeat."""
        self._share_member = (response.member_id or "", response.heartbeat_interval_ms)

    def forget(self) -> None:
        """Drop the last heartbeat: the next one is decided, and its response is not held back."""
        self.last = self._share_member = None
