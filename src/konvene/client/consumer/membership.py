"""State machine of a member of a consumer group (KIP-848): the fields of its heartbeats and its assignment.

`MembershipMachine` decides when a heartbeat is due and how errors are handled. The assignment is a set of
partitions by topic id.

A member that once sent a regular expression sends an empty one in later full heartbeats, as the heartbeat
that removed the expression may have been lost. Java's member does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from konvene.client.errors import UnsupportedVersion
from konvene.client.membership.state_machine import MembershipMachine, MembershipSettings, MemberState
from konvene.client.membership.topic_partitions import Partitions, assigned_partitions
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["NO_CONSUMER_PROTOCOL", "ConsumerMembership", "Subscription"]

FIRST_VERSION_WITH_REGEX = 1

NO_CONSUMER_PROTOCOL = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on the "
    "consumer configs to revert to the CLASSIC protocol until the cluster is upgraded."
)
NO_REGEX = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It "
    "must be upgraded to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a "
    "SubscriptionPattern."
)
"""Both are messages of Kafka's client."""


class Subscription(NamedTuple):
    """The subscription of a member: topic names, and an RE2 expression that whole topic names must match."""

    names: tuple[str, ...] = ()
    regex: str | None = None


class ConsumerMembership(
    MembershipMachine[Partitions, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]
):
    """State machine of one member of one consumer group. `assignor` names a server-side assignor."""

    error_messages: ClassVar = {Errors.UNSUPPORTED_VERSION: NO_CONSUMER_PROTOCOL}

    def __init__(
        self, group_id: str, member_id: str, subscription: Subscription,
        settings: MembershipSettings | None = None, *, assignor: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(group_id, member_id, frozenset(), settings or MembershipSettings())
        self.subscription = subscription
        self.assignor = assignor
        self._sent_subscription = subscription
        self._has_sent_regex = False

    def __repr__(self) -> str:
        return (
            f"<ConsumerMembership {self.member_id} of {self.group_id}: {self.state.value}, "
            f"epoch {self.epoch}, {len(self.owned)} of {len(self.target)} partitions>"
        )

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription; the next heartbeat, due at once, sends it."""
        self.subscription = subscription

    def request(self, now_ms: int, version: int = FIRST_VERSION_WITH_REGEX) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat to send now. Raises `UnsupportedVersion` for a regex in version 0."""
        return super().request(now_ms, version)

    @property
    def _has_unsent_changes(self) -> bool:
        return self._sent_subscription != self.subscription

    def _leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return self._bare_request(epoch)

    def _heartbeat_request(self, version: int) -> ConsumerGroupHeartbeatRequest:
        if self.subscription.regex and version < FIRST_VERSION_WITH_REGEX:
            raise UnsupportedVersion(NO_REGEX)
        request = self._bare_request(self.epoch).replace(**self._unsent_fields())
        self._sent_subscription = self.subscription
        self._has_sent_regex = self._has_sent_regex or self.subscription.regex is not None
        return request

    def _bare_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch,
            instance_id=self.settings.instance_id,
        )  # fmt: skip

    def _unsent_fields(self) -> dict[str, object]:
        """Return the fields that the coordinator does not have yet, as far as the client knows."""
        sends_all, sent = self._sent_owned_version is None, self._sent_subscription
        names, regex = self.subscription
        fields: dict[str, object] = {}
        if sends_all:
            fields["rebalance_timeout_ms"] = self.settings.rebalance_timeout_ms
            fields["server_assignor"] = self.assignor
            if self._phase is MemberState.JOINING:
                fields["rack_id"] = self.settings.rack_id
        if sends_all or sent.names != names:
            fields["subscribed_topic_names"] = names
        if (regex is not None or self._has_sent_regex) if sends_all else sent.regex != regex:
            fields["subscribed_topic_regex"] = regex or ""
        if self._sent_owned_version != self.owned_version:
            fields["topic_partitions"] = _topic_partitions(self.owned)
        return fields

    def _read_response(self, response: ConsumerGroupHeartbeatResponse) -> Partitions | None:
        return assigned_partitions(response)

    def _error_message(self, code: int, message: str | None) -> str | None:
        if code == Errors.INVALID_REGULAR_EXPRESSION:
            prefix = "Invalid RE2J SubscriptionPattern provided in the call to subscribe."
            return f"{prefix} {message or ''}".rstrip()
        return super()._error_message(code, message)


def _topic_partitions(partitions: Iterable[tuple[Uuid, int]]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple(TopicPartitions(topic_id=t, partitions=tuple(ps)) for t, ps in by_topic.items())
