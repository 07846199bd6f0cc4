"""What members of consumer groups and of streams groups have in common: a pure state machine.

It decides when a heartbeat is due, and what an answer or an error changes. What a heartbeat carries, and
what a member holds, is said by the kinds: `membership` and `streams_membership`. It never waits, sends or
calls anybody: `heartbeat_member` does that, with the time in hand, and so can a simulator. Times are in
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
is started again before its former self has left needs no more than patience.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from konvene.client.errors import ClientError, KafkaError
from konvene.errors import Errors

__all__ = ["JOIN_EPOCH", "Machine", "State"]

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH = 0, -1, -2

Held = TypeVar("Held")


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


class Machine(ABC, Generic[Held]):
    """One member of one group. `member_id` is the member's own to choose, and stays through all its lives."""

    def __init__(
        self, group_id: str, member_id: str, nothing: Held, *, instance_id: str | None,
        rebalance_timeout_ms: int, retry_backoff_ms: int, retry_backoff_max_ms: int, unreleased_ms: int,
    ) -> None:  # fmt: skip
        """`nothing` is what is held where nothing is."""
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.unreleased_ms = unreleased_ms
        """How long UNRELEASED_INSTANCE_ID is borne."""

        self.epoch = JOIN_EPOCH
        self.life = 1
        """How often it has joined as if it had never been there."""
        self.target: Held = nothing
        self.held: Held = nothing
        """What it has taken over and not given up."""
        self.turn = self.held_turn = 0
        """The number of the target, and of the one that `held` was taken from."""
        self.interval_ms = 0
        self.error: ClientError | None = None
        """Why it FAILED; in JOINING, why it is not in yet."""
        self.complaint: KafkaError | None = None
        """An error that the caller should hear of, though the member goes on."""

        self._nothing = nothing
        self._phase = State.JOINING
        self._asked = self._in_flight = False
        self._sent_ms = self._not_before_ms = 0
        self._failures = 0
        self._unreleased_since_ms: int | None = None

    # what the kinds say

    @property
    @abstractmethod
    def _told_turn(self) -> int | None:
        """The turn that the coordinator heard of; None where it is to be told all anew."""

    @property
    @abstractmethod
    def _all_is_told(self) -> bool:
        """Whether there is nothing that should not wait for the interval."""

    @abstractmethod
    def _forget_told(self) -> None:
        """Tell all anew with the next heartbeat."""

    @abstractmethod
    def _farewell(self, epoch: int) -> Any:
        """The heartbeat that leaves."""

    @abstractmethod
    def _whole(self, version: int) -> Any:
        """Any other heartbeat, with what the coordinator does not know yet. Notes what was told."""

    @abstractmethod
    def _heard(self, answer: Any) -> Held | None:
        """What an answer without an error says beside epoch and interval; the target, where it has one."""

    @abstractmethod
    def _words(self, code: int, message: str | None) -> str | None:
        """What Kafka's client makes of a code, where it does not pass on the coordinator's own words."""

    # where it stands

    @property
    def state(self) -> State:
        """Where it stands; between STABLE, RECONCILING and ACKNOWLEDGING what it holds decides."""
        if self._phase is not State.STABLE:
            return self._phase
        told = self._told_turn
        if told is not None and told != self.held_turn:
            return State.ACKNOWLEDGING
        if (self.turn, self.target) != (self.held_turn, self.held):
            return State.RECONCILING
        return State.STABLE

    @property
    def due_ms(self) -> int | None:
        """When the next heartbeat is due; None while one is under way, or where there will be none."""
        if self._in_flight or self._phase in _SILENT:
            return None
        if self._phase is State.STABLE and self._all_is_told:
            return max(self._not_before_ms, self._sent_ms + self.interval_ms)
        return self._not_before_ms

    # what the caller does

    def took(self, life: int, turn: int, held: Held) -> bool:
        """The caller holds exactly this now, out of the target of this turn, and nothing else.

        False where it is too late: the member was thrown out or has left since."""
        if self._phase is not State.STABLE or life != self.life:
            return False
        self.held, self.held_turn = held, turn
        return True

    def released(self, now_ms: int) -> None:
        """The caller has let go of what was lost; the member joins anew."""
        if self._phase is State.LOST:
            self._phase = State.JOINING
            self.life += 1
            self.target = self.held = self._nothing
            self.held_turn = self.turn
            self._not_before_ms = now_ms

    def leave(self, now_ms: int) -> None:
        """Leave, where there is something to leave. An answer that is still under way counts no more."""
        there = self._asked and self._phase not in _SILENT
        self._phase = State.LEAVING if there else State.LEFT
        self._in_flight = False
        self._not_before_ms = now_ms

    # heartbeats

    def request(self, now_ms: int, version: int) -> Any:
        """The heartbeat to send now. Raises `UnsupportedVersion` where the version cannot say it."""
        self._sent_ms, self._in_flight, self._asked = now_ms, True, True
        if self._phase is State.LEAVING:
            self._phase = State.LEFT
            return self._farewell(LEAVE_FOR_A_WHILE_EPOCH if self.instance_id else LEAVE_EPOCH)
        return self._whole(version)

    def answered(self, answer: Any, now_ms: int) -> None:
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
        target = self._heard(answer)
        if target is not None and (joined or target != self.target):
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
        error = KafkaError(code, self._words(code, message), about=f"group {self.group_id}")
        then = AFTER.get(code, Then.FAIL)
        if then is Then.AGAIN_FOR_A_WHILE:
            if self._unreleased_since_ms is None:
                self._unreleased_since_ms = now_ms
            then = Then.AGAIN if now_ms - self._unreleased_since_ms < self.unreleased_ms else Then.FAIL
        if then is Then.LOSE:
            self._phase, self.epoch = State.LOST, JOIN_EPOCH
            self._forget_told()
            self._failures, self.error = 0, error
        elif then is Then.FAIL:
            self._fail(error)
        else:
            self.complaint = error if then is Then.TELL else self.complaint
            self._again(error, now_ms)

    def _again(self, error: ClientError, now_ms: int) -> None:
        pause = min(self.retry_backoff_ms << min(self._failures, 20), self.retry_backoff_max_ms)
        self._failures += 1
        self._forget_told()
        self.error = error
        self._not_before_ms = now_ms + pause

    def _fail(self, error: ClientError) -> None:
        self._phase, self.epoch, self.error = State.FAILED, JOIN_EPOCH, error
