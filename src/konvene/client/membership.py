"""What a member of a consumer group (KIP-848) knows and says next: a pure state machine.

It decides when a heartbeat is due and what it carries, and what an answer changes. It never waits, sends or
calls anybody: `consumer_member` does that, with the time in hand, and so can a simulator. Times are in
milliseconds, on any clock that only goes forward.

| State | Its next heartbeat | It ends when |
| --- | --- | --- |
| JOINING | at once, whole, with epoch 0 | an answer without an error makes it a member |
| STABLE | after the interval that it was told | a target comes, or it is thrown out, or leaves |
| RECONCILING | after the interval | the caller has given up and taken over: `took` |
| ACKNOWLEDGING | at once: what it holds has changed | that heartbeat is made |
| LOST | none: the coordinator does not know it | the caller has let go of all: `released`; then JOINING |
| FAILED | none, ever: `error` says why | |
| LEAVING | at once, with epoch -1, or -2 for a static member | that heartbeat is made; then LEFT |
| LEFT | none, ever | |

What was told before is left out, except after an error: whether that heartbeat was carried out is not known,
and only a whole one is answered with the whole assignment. One heartbeat is under way at a time.

Otherwise than Java's member, one that is refused UNRELEASED_INSTANCE_ID tries again for a while: who
is started again before its former self has left needs no more than patience. And one that once sent a regular
expression takes it back in whole heartbeats too, as the one that took it back may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from konvene.client.errors import ClientError, KafkaError, UnsupportedVersion
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["NO_CONSUMER_PROTOCOL", "Membership", "State", "Topics", "Units"]

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH = 0, -1, -2

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


class State(Enum):
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    LOST = "lost"
    FAILED = "failed"
    LEAVING = "leaving"
    LEFT = "left"


class Then(Enum):
    """What follows from an error code in an answer; every other code is FAIL."""

    AGAIN = "the same, after a pause"
    AGAIN_FOR_A_WHILE = "the same, after a pause, but not for ever"
    TELL = "the same, after a pause; the caller is told once"
    LOSE = "everything is lost; join anew"
    FAIL = "nothing can help"


AFTER: dict[int, Then] = {
    Errors.COORDINATOR_NOT_AVAILABLE: Then.AGAIN,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: Then.AGAIN,
    Errors.NOT_COORDINATOR: Then.AGAIN,
    Errors.UNRELEASED_INSTANCE_ID: Then.AGAIN_FOR_A_WHILE,
    Errors.TOPIC_AUTHORIZATION_FAILED: Then.TELL,
    Errors.FENCED_MEMBER_EPOCH: Then.LOSE,
    Errors.UNKNOWN_MEMBER_ID: Then.LOSE,
}

_SILENT = frozenset({State.LOST, State.FAILED, State.LEFT})
_GOING = frozenset({State.LEAVING, *_SILENT})


class Topics(NamedTuple):
    """What a member wants to read: topics by name, and those whose names match an RE2 expression."""

    names: tuple[str, ...] = ()
    regex: str | None = None


class _Told(NamedTuple):
    """What the coordinator knows of the member, if the last heartbeat reached it."""

    topics: Topics
    held_turn: int


class Membership:
    """One member of one group. `member_id` is the member's own to choose, and stays through all its lives."""

    def __init__(
        self, group_id: str, member_id: str, topics: Topics, *, instance_id: str | None = None,
        rack_id: str | None = None, assignor: str | None = None, rebalance_timeout_ms: int = 300_000,
        retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000, unreleased_ms: int = 60_000,
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self.member_id = member_id
        self.topics = topics
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.unreleased_ms = unreleased_ms
        """How long UNRELEASED_INSTANCE_ID is borne."""

        self.epoch = JOIN_EPOCH
        self.life = 1
        """How often it has joined as if it had never been there."""
        self.target: Units = frozenset()
        self.held: Units = frozenset()
        """What it has taken over and not given up."""
        self.turn = self.held_turn = 0
        """The number of the target, and of the one that `held` was taken from."""
        self.interval_ms = 0
        self.error: ClientError | None = None
        """Why it FAILED; in JOINING, why it is not in yet."""
        self.complaint: KafkaError | None = None
        """An error that the caller should hear of, though the member goes on."""

        self._phase = State.JOINING
        self._told: _Told | None = None
        self._asked = self._regex_was_told = self._in_flight = False
        self._sent_ms = self._not_before_ms = 0
        self._failures = 0
        self._unreleased_since_ms: int | None = None

    def __repr__(self) -> str:
        return (
            f"<Membership {self.member_id} of {self.group_id}: {self.state.value}, epoch {self.epoch}, "
            f"{len(self.held)} of {len(self.target)} partitions>"
        )

    @property
    def state(self) -> State:
        """Where it stands; between STABLE, RECONCILING and ACKNOWLEDGING what it holds decides."""
        if self._phase is not State.STABLE:
            return self._phase
        if self._told is not None and self._told.held_turn != self.held_turn:
            return State.ACKNOWLEDGING
        if (self.turn, self.target) != (self.held_turn, self.held):
            return State.RECONCILING
        return State.STABLE

    @property
    def due_ms(self) -> int | None:
        """When the next heartbeat is due; None while one is under way, or where there will be none."""
        if self._in_flight or self._phase in _SILENT:
            return None
        if self._phase is State.STABLE and self._told == _Told(self.topics, self.held_turn):
            return max(self._not_before_ms, self._sent_ms + self.interval_ms)
        return self._not_before_ms

    # what the caller does

    def subscribe(self, topics: Topics) -> None:
        """Read other topics from now on; the coordinator hears of it at once."""
        self.topics = topics

    def took(self, life: int, turn: int, units: Units) -> bool:
        """The caller holds exactly these units now, out of the target of this turn, and nothing else.

        False where it is too late: the member was thrown out or has left since."""
        if self._phase is not State.STABLE or life != self.life:
            return False
        self.held, self.held_turn = units, turn
        return True

    def released(self, now_ms: int) -> None:
        """The caller has let go of what was lost; the member joins anew."""
        if self._phase is State.LOST:
            self._phase = State.JOINING
            self.life += 1
            self.target = self.held = frozenset()
            self.held_turn = self.turn
            self._not_before_ms = now_ms

    def leave(self, now_ms: int) -> None:
        """Leave, where there is something to leave. An answer that is still under way counts no more."""
        there = self._asked and self._phase not in _SILENT
        self._phase = State.LEAVING if there else State.LEFT
        self._in_flight = False
        self._not_before_ms = now_ms

    # heartbeats

    def request(self, now_ms: int, version: int = FIRST_VERSION_WITH_REGEX) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat to send now. Raises `UnsupportedVersion` where the version cannot say it."""
        self._sent_ms, self._in_flight, self._asked = now_ms, True, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch,
            instance_id=self.instance_id,
        )  # fmt: skip
        if self._phase is State.LEAVING:
            self._phase = State.LEFT
            return request.replace(
                member_epoch=LEAVE_EPOCH if not self.instance_id else LEAVE_FOR_A_WHILE_EPOCH
            )
        if self.topics.regex and version < FIRST_VERSION_WITH_REGEX:
            raise UnsupportedVersion(NO_REGEX)
        request = request.replace(**self._news())
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

    def answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        """What the coordinator said."""
        self._in_flight = False
        if self._phase in _GOING:
            return
        if answer.error_code:
            self._refused(answer.error_code, answer.error_message, now_ms)
            return
        self._failures, self._not_before_ms = 0, now_ms
        self._unreleased_since_ms = self.error = None
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.member_epoch < 0:
            return
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        joined, self._phase = self._phase is State.JOINING, State.STABLE
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            target = frozenset((Uuid(row.topic_id), p) for row in rows for p in row.partitions)
            if joined or target != self.target:
                self.turn += 1
                self.target = target

    def failed(self, error: ClientError, now_ms: int) -> None:
        """No answer came, or none that could be understood."""
        self._in_flight = False
        if self._phase in _GOING:
            return
        if error.retriable:
            self._again(error, now_ms)
        else:
            self._fail(error)

    def _refused(self, code: int, message: str | None, now_ms: int) -> None:
        error = KafkaError(code, _words(code, message, self.group_id), about=f"group {self.group_id}")
        then = AFTER.get(code, Then.FAIL)
        if then is Then.AGAIN_FOR_A_WHILE:
            if self._unreleased_since_ms is None:
                self._unreleased_since_ms = now_ms
            then = Then.AGAIN if now_ms - self._unreleased_since_ms < self.unreleased_ms else Then.FAIL
        if then is Then.LOSE:
            self._phase, self.epoch, self._told = State.LOST, JOIN_EPOCH, None
            self._failures, self.error = 0, error
        elif then is Then.FAIL:
            self._fail(error)
        else:
            self.complaint = error if then is Then.TELL else self.complaint
            self._again(error, now_ms)

    def _again(self, error: ClientError, now_ms: int) -> None:
        pause = min(self.retry_backoff_ms << min(self._failures, 20), self.retry_backoff_max_ms)
        self._failures += 1
        self._told, self.error = None, error
        self._not_before_ms = now_ms + pause

    def _fail(self, error: ClientError) -> None:
        self._phase, self.epoch, self.error = State.FAILED, JOIN_EPOCH, error


def _words(code: int, message: str | None, group: str) -> str | None:
    """What Kafka's client makes of a code, where it does not pass on the coordinator's own words."""
    if code == Errors.UNSUPPORTED_VERSION:
        return NO_CONSUMER_PROTOCOL
    if code == Errors.GROUP_AUTHORIZATION_FAILED:
        return f"Not authorized to access group: {group}"
    if code == Errors.INVALID_REGULAR_EXPRESSION:
        return f"Invalid RE2J SubscriptionPattern provided in the call to subscribe. {message or ''}".rstrip()
    return message


def _rows(units: Iterable[tuple[Uuid, int]]) -> tuple[TopicPartitions, ...]:
    grouped: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(units):
        grouped.setdefault(topic_id, []).append(partition)
    return tuple(TopicPartitions(topic_id=t, partitions=tuple(ps)) for t, ps in grouped.items())
