"""What a member of a consumer group (KIP-848) knows and says next: a pure state machine.

When it speaks and what errors change is in `machine`, which members of streams groups share; here is what
its heartbeats carry, and what it is assigned: partitions, by topic id.

A member that once sent a regular expression takes it back in whole heartbeats too, as the one that took it
back may have been lost; Java's does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from konvene.client.errors import UnsupportedVersion
from konvene.client.membership.state_machine import Machine, State
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["NO_CONSUMER_PROTOCOL", "Membership", "State", "Topics", "Units"]

FIRST_VERSION_WITH_REGEX = 1

Units = frozenset[tuple[Uuid, int]]
"""Partitions as the protocol has them: topic id and number."""

NO_CONSUMER_PROTOCOL = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on the "
    "consumer configs to revert to the CLASSIC protocol until the cluster is upgraded."
)
NO_REGEX = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It "
    "must be upgraded to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a "
    "SubscriptionPattern."
)
"""What Kafka's client says in these cases."""


class Topics(NamedTuple):
    """What a member wants to read: topics by name, and those whose names match an RE2 expression."""

    names: tuple[str, ...] = ()
    regex: str | None = None


class _Told(NamedTuple):
    """What the coordinator knows of the member, if the last heartbeat reached it."""

    topics: Topics
    held_turn: int


class Membership(Machine[Units]):
    """One member of one consumer group."""

    def __init__(
        self, group_id: str, member_id: str, topics: Topics, *, instance_id: str | None = None,
        rack_id: str | None = None, assignor: str | None = None, rebalance_timeout_ms: int = 300_000,
        retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000, unreleased_ms: int = 60_000,
    ) -> None:  # fmt: skip
        super().__init__(
            group_id, member_id, frozenset(), instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms, retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms, unreleased_ms=unreleased_ms,
        )  # fmt: skip
        self.topics = topics
        self.rack_id = rack_id
        self.assignor = assignor
        self._told: _Told | None = None
        self._regex_was_told = False

    def __repr__(self) -> str:
        return (
            f"<Membership {self.member_id} of {self.group_id}: {self.state.value}, epoch {self.epoch}, "
            f"{len(self.held)} of {len(self.target)} partitions>"
        )

    def subscribe(self, topics: Topics) -> None:
        """Read other topics from now on; the coordinator hears of it at once."""
        self.topics = topics

    def request(self, now_ms: int, version: int = FIRST_VERSION_WITH_REGEX) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat to send now. Raises `UnsupportedVersion` where the version cannot say it."""
        request: ConsumerGroupHeartbeatRequest = super().request(now_ms, version)
        return request

    # what it says

    @property
    def _told_turn(self) -> int | None:
        return None if self._told is None else self._told.held_turn

    @property
    def _all_is_told(self) -> bool:
        return self._told == _Told(self.topics, self.held_turn)

    def _forget_told(self) -> None:
        self._told = None

    def _bare(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    def _farewell(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return self._bare(epoch)

    def _whole(self, version: int) -> ConsumerGroupHeartbeatRequest:
        if self.topics.regex and version < FIRST_VERSION_WITH_REGEX:
            raise UnsupportedVersion(NO_REGEX)
        request = self._bare(self.epoch).replace(**self._news())
        self._told = _Told(self.topics, self.held_turn)
        self._regex_was_told = self._regex_was_told or self.topics.regex is not None
        return request

    def _news(self) -> dict[str, Any]:
        """The fields that the coordinator does not know yet, as far as we know."""
        told, (names, regex) = self._told, self.topics
        fields: dict[str, Any] = {}
        if told is None:
            fields["rebalance_timeout_ms"] = self.rebalance_timeout_ms
            fields["server_assignor"] = self.assignor
            if self._phase is State.JOINING:
                fields["rack_id"] = self.rack_id
        if told is None or told.topics.names != names:
            fields["subscribed_topic_names"] = names
        if (regex is not None or self._regex_was_told) if told is None else told.topics.regex != regex:
            fields["subscribed_topic_regex"] = regex or ""
        if told is None or told.held_turn != self.held_turn:
            fields["topic_partitions"] = _rows(self.held)
        return fields

    # what it hears

    def _heard(self, answer: ConsumerGroupHeartbeatResponse) -> Units | None:
        if answer.assignment is None:
            return None
        rows = answer.assignment.topic_partitions
        return frozenset((Uuid(row.topic_id), p) for row in rows for p in row.partitions)

    def _words(self, code: int, message: str | None) -> str | None:
        if code == Errors.UNSUPPORTED_VERSION:
            return NO_CONSUMER_PROTOCOL
        if code == Errors.GROUP_AUTHORIZATION_FAILED:
            return f"Not authorized to access group: {self.group_id}"
        if code == Errors.INVALID_REGULAR_EXPRESSION:
            said = f"Invalid RE2J SubscriptionPattern provided in the call to subscribe. {message or ''}"
            return said.rstrip()
        return message


def _rows(units: Iterable[tuple[Uuid, int]]) -> tuple[TopicPartitions, ...]:
    grouped: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(units):
        grouped.setdefault(topic_id, []).append(partition)
    return tuple(TopicPartitions(topic_id=t, partitions=tuple(ps)) for t, ps in grouped.items())
