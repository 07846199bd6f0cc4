"""What a member of a share group (KIP-932) knows and says next: a pure state machine.

When it speaks and what errors change is in `machine`, which all members share that a coordinator assigns to.
Here is what its heartbeats carry, and what it is assigned: partitions, by topic id. In a share group several
members have the same partition, so nothing has to be given up before another may take it: what it is told to
have, it has, and it never says what it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.membership import Units
from konvene.client.errors import Misconfigured
from konvene.client.membership.state_machine import Machine, State
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

__all__ = ["NO_SHARE_PROTOCOL", "ShareMembership", "names_of"]

NO_SHARE_PROTOCOL = (
    "The cluster does not support the share group protocol using ShareGroupHeartbeat API version 1 or later. "
    "This version of the API was introduced in Apache Kafka v4.1."
)
NOT_ENABLED = (
    "The cluster does not support the share group protocol. To use share groups, the cluster must have the "
    "share group protocol enabled."
)
"""What Kafka's client says in these cases."""


class ShareMembership(Machine[Units]):
    """One member of one share group. There are no static members."""

    def __init__(
        self, group_id: str, member_id: str, topics: Iterable[str], *, rack_id: str | None = None,
        patience_ms: int = 300_000, retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000,
    ) -> None:  # fmt: skip
        """`patience_ms`: how long a caller waits to be let in."""
        super().__init__(
            group_id, member_id, frozenset(), instance_id=None, rebalance_timeout_ms=patience_ms,
            retry_backoff_ms=retry_backoff_ms, retry_backoff_max_ms=retry_backoff_max_ms, unreleased_ms=0,
        )  # fmt: skip
        self.topics = names_of(topics)
        self.rack_id = rack_id
        self._told: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return (
            f"<ShareMembership {self.member_id} of {self.group_id}: {self.state.value}, epoch {self.epoch}, "
            f"{len(self.target)} partitions>"
        )

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics from now on; the coordinator hears of it at once."""
        self.topics = names_of(topics)

    def request(self, now_ms: int, version: int = 1) -> ShareGroupHeartbeatRequest:
        """The heartbeat to send now."""
        request: ShareGroupHeartbeatRequest = super().request(now_ms, version)
        return request

    # what it says

    @property
    def _told_turn(self) -> int:
        return self.held_turn  # Nobody waits to hear that it has taken over.

    @property
    def _all_is_told(self) -> bool:
        return self._told == self.topics

    def _forget_told(self) -> None:
        self._told = None

    def _farewell(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch
        )

    def _whole(self, version: int) -> ShareGroupHeartbeatRequest:
        request = self._farewell(self.epoch)
        if self._told is None:
            request = request.replace(rack_id=self.rack_id)
        if self._told != self.topics or self._phase is State.JOINING:
            request = request.replace(subscribed_topic_names=self.topics)
        self._told = self.topics
        return request

    # what it hears

    def _heard(self, answer: ShareGroupHeartbeatResponse) -> Units | None:
        if answer.assignment is None:
            return None
        rows = answer.assignment.topic_partitions
        return frozenset((Uuid(row.topic_id), p) for row in rows for p in row.partitions)

    def _words(self, code: int, message: str | None) -> str | None:
        if code == Errors.UNSUPPORTED_VERSION:
            return NOT_ENABLED
        if code == Errors.GROUP_AUTHORIZATION_FAILED:
            return f"Not authorized to access group: {self.group_id}"
        return message


def names_of(topics: Iterable[str]) -> tuple[str, ...]:
    """Topics' names, each once. Raises `Misconfigured` where there is none."""
    found = tuple(sorted(set(topics)))
    if not found or not all(name.strip() for name in found):
        raise Misconfigured("a member of a share group subscribes to topics by name")
    return found
