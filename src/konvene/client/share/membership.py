"""State machine of a member of a share group (KIP-932): the fields of its heartbeats and its assignment.

`MembershipMachine` decides when a heartbeat is due and how errors are handled. The assignment is a set of
partitions by topic id. Several members of a share group have the same partition, so no revocation is needed
before another member takes it: the member owns its target at once and never sends its owned set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from konvene.client.errors import Misconfigured
from konvene.client.membership.state_machine import MembershipMachine, MembershipSettings, MemberState
from konvene.client.membership.topic_partitions import Partitions, assigned_partitions
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

__all__ = ["NO_SHARE_PROTOCOL", "ShareMembership", "topic_names"]

NO_SHARE_PROTOCOL = (
    "The cluster does not support the share group protocol using ShareGroupHeartbeat API version 1 or later. "
    "This version of the API was introduced in Apache Kafka v4.1."
)
NOT_ENABLED = (
    "The cluster does not support the share group protocol. To use share groups, the cluster must have the "
    "share group protocol enabled."
)
"""Both are messages of Kafka's client."""


class ShareMembership(MembershipMachine[Partitions, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]):
    """State machine of one member of one share group. Share groups have no static members.

    The rebalance timeout of `settings` is not sent; it bounds how long a caller waits for the join."""

    error_messages: ClassVar = {Errors.UNSUPPORTED_VERSION: NOT_ENABLED}
    acknowledges_assignment = False

    def __init__(
        self, group_id: str, member_id: str, topics: Iterable[str], settings: MembershipSettings | None = None
    ) -> None:
        settings = settings or MembershipSettings()
        # Without static members no join is rejected because the instance id is in use.
        super().__init__(group_id, member_id, frozenset(), settings._replace(unreleased_timeout_ms=0))
        self.topics = topic_names(topics)
        self._sent_topics: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<ShareMembership {self.member_id} of {self.group_id}: {self.state.value}, epoch {self.epoch}, "
            f"{len(self.target)} partitions>"
        )

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the subscription; the next heartbeat, due at once, sends it."""
        self.topics = topic_names(topics)

    def request(self, now_ms: int, version: int = 1) -> ShareGroupHeartbeatRequest:
        """Return the heartbeat to send now."""
        return super().request(now_ms, version)

    @property
    def _has_unsent_changes(self) -> bool:
        return self._sent_topics != self.topics

    def _leave_request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch
        )

    def _heartbeat_request(self, version: int) -> ShareGroupHeartbeatRequest:
        request = self._leave_request(self.epoch)
        sends_all = self._sent_owned_version is None
        if sends_all:
            request = request.replace(rack_id=self.settings.rack_id)
        if sends_all or self._has_unsent_changes or self._phase is MemberState.JOINING:
            request = request.replace(subscribed_topic_names=self.topics)
        self._sent_topics = self.topics
        return request

    def _read_response(self, response: ShareGroupHeartbeatResponse) -> Partitions | None:
        return assigned_partitions(response)


def topic_names(topics: Iterable[str]) -> tuple[str, ...]:
    """Return topic names, sorted and distinct. Raises `Misconfigured` if there is none, or an empty one."""
    names = tuple(sorted(set(topics)))
    if not names or not all(name.strip() for name in names):
        raise Misconfigured("a member of a share group subscribes to topics by name")
    return names
