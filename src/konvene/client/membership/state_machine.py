"""State machine of a member whose coordinator assigns: what consumer, share and streams groups have in
common.

The machine decides when a heartbeat is due and how a response or an error changes the member. The group types
add the fields of their heartbeats and the kind of assignment: `client.consumer.membership`,
`client.share.membership` and `client.streams.membership`. The machine is pure: it never waits, sends or calls
back. `heartbeat_member` runs it against a cluster, and the simulator runs it on a virtual clock. Times are
milliseconds of any monotonic clock.

| State | Its next heartbeat | It ends when |
| --- | --- | --- |
| JOINING | at once, with all fields and epoch 0 | a response without an error makes it a member |
| STABLE | after the heartbeat interval | a new target arrives, or it is fenced, or leaves |
| RECONCILING | after the heartbeat interval | the caller has revoked and taken over: `confirm_owned` |
| ACKNOWLEDGING | at once, as its owned set has changed | that heartbeat is sent |
| FENCED | none: the coordinator rejects it | the caller has released all: `rejoin_fenced`; then JOINING |
| FATAL | none; `error` is the reason | |
| LEAVING | at once, with epoch -1, or -2 for a static member | that heartbeat is sent; then LEFT |
| LEFT | none | |

A heartbeat leaves out the fields that an earlier one carried. After an error it carries all of them again,
because the coordinator may not have processed the failed one, and only a full heartbeat is answered with the
full assignment. At most one heartbeat is in flight.

Unlike Java's member, one that is rejected with UNRELEASED_INSTANCE_ID retries until `unreleased_timeout_ms`:
a static member that restarts before its previous incarnation has left then joins without help.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from konvene.client.errors import ClientError, KafkaError
from konvene.codec.schema import Struct
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
    from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

__all__ = ["JOIN_EPOCH", "HeartbeatResponse", "MemberState", "MembershipMachine", "MembershipSettings"]

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2

Owned = TypeVar("Owned")
Request = TypeVar("Request", bound=Struct)
HeartbeatResponse: TypeAlias = (
    "ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse"
)
Response = TypeVar("Response", bound=HeartbeatResponse)


class MembershipSettings(NamedTuple):
    """Settings that members of all group types share."""

    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    unreleased_timeout_ms: int = 60_000
    """How long a join that is rejected with UNRELEASED_INSTANCE_ID is retried."""


class MemberState(Enum):
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    FENCED = "fenced"
    FATAL = "fatal"
    LEAVING = "leaving"
    LEFT = "left"


class ErrorAction(Enum):
    """What the member does after an error code in a heartbeat response."""

    RETRY = "retry with backoff"
    RETRY_WITH_TIMEOUT = "retry with backoff until the timeout, then fail"
    RETRY_AND_RAISE = "retry with backoff, and raise the error to the caller once"
    FENCE = "drop the assignment and join with epoch 0"
    FAIL = "stop"


ERROR_ACTIONS: dict[int, ErrorAction] = {
    Errors.COORDINATOR_NOT_AVAILABLE: ErrorAction.RETRY,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    Errors.NOT_COORDINATOR: ErrorAction.RETRY,
    Errors.UNRELEASED_INSTANCE_ID: ErrorAction.RETRY_WITH_TIMEOUT,
    Errors.TOPIC_AUTHORIZATION_FAILED: ErrorAction.RETRY_AND_RAISE,
    Errors.FENCED_MEMBER_EPOCH: ErrorAction.FENCE,
    Errors.UNKNOWN_MEMBER_ID: ErrorAction.FENCE,
}
"""Actions by error code; every other code means FAIL."""

_SILENT = frozenset({MemberState.FENCED, MemberState.FATAL, MemberState.LEFT})
_IGNORES_RESPONSES = frozenset({MemberState.LEAVING, *_SILENT})


class MembershipMachine(ABC, Generic[Owned, Request, Response]):
    """Base class of the state machines of one member of one group, for groups whose coordinator assigns.

    The client chooses `member_id` and keeps it when the member rejoins."""

    error_messages: ClassVar[Mapping[int, str]] = {}
    """Messages of Kafka's client that replace the coordinator's message, by error code."""
    acknowledges_assignment: ClassVar[bool] = True
    """Whether the coordinator waits for a heartbeat that confirms the owned set."""

    def __init__(self, group_id: str, member_id: str, empty: Owned, settings: MembershipSettings) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.settings = settings

        self.epoch = JOIN_EPOCH
        self.incarnation = 1
        """How many times it has joined with epoch 0."""
        self.target: Owned = empty
        """The assignment of the last response that carried one."""
        self.owned: Owned = empty
        """What the caller has taken over and not released."""
        self.target_version = self.owned_version = 0
        """Number of the target, and of the target that `owned` was taken from."""
        self.heartbeat_interval_ms = 0
        self.error: ClientError | None = None
        """The error of a FATAL member; of a JOINING one, the reason of its last failed attempt."""
        self.nonfatal_error: KafkaError | None = None
        """An error to raise to the caller once, though the member goes on."""

        self._empty = empty
        self._phase = MemberState.JOINING
        self._was_sent = self._in_flight = False
        self._sent_ms = self._not_before_ms = 0
        self._sent_owned_version: int | None = None
        """Version of the owned set that the last heartbeat carried; None if all fields must be sent again."""
        self._failures = 0
        self._unreleased_since_ms: int | None = None

    # group types define

    @property
    @abstractmethod
    def _has_unsent_changes(self) -> bool:
        """Whether a field other than the owned set has changed since the last heartbeat."""

    @abstractmethod
    def _leave_request(self, epoch: int) -> Request:
        """Return the heartbeat that leaves the group, with epoch -1 or -2."""

    @abstractmethod
    def _heartbeat_request(self, version: int) -> Request:
        """Return the next heartbeat of a member that stays: all fields, or those that changed since the last
        one."""

    @abstractmethod
    def _read_response(self, response: Response) -> Owned | None:
        """Read a response without an error; return its target assignment, or None if it has none."""

    def _error_message(self, code: int, message: str | None) -> str | None:
        """Return the message for an error: that of Kafka's client if it has one, else the coordinator's."""
        if code == Errors.GROUP_AUTHORIZATION_FAILED:
            return f"Not authorized to access group: {self.group_id}"
        return self.error_messages.get(code, message)

    # state

    @property
    def state(self) -> MemberState:
        """The current state. STABLE, RECONCILING and ACKNOWLEDGING follow from the owned partitions."""
        if self._phase is not MemberState.STABLE:
            return self._phase
        if not self._is_acknowledged and self._sent_owned_version is not None:
            return MemberState.ACKNOWLEDGING
        if (self.target_version, self.target) != (self.owned_version, self.owned):
            return MemberState.RECONCILING
        return MemberState.STABLE

    @property
    def due_ms(self) -> int | None:
        """Time of the next heartbeat; None while one is in flight, or if there will be none."""
        if self._in_flight or self._phase in _SILENT:
            return None
        if self._phase is MemberState.STABLE and self._is_up_to_date:
            return max(self._not_before_ms, self._sent_ms + self.heartbeat_interval_ms)
        return self._not_before_ms

    @property
    def _is_acknowledged(self) -> bool:
        return not self.acknowledges_assignment or self._sent_owned_version == self.owned_version

    @property
    def _is_up_to_date(self) -> bool:
        """Whether nothing has to be sent before the heartbeat interval is over."""
        return self._sent_owned_version is not None and self._is_acknowledged and not self._has_unsent_changes

    # calls of the application

    def confirm_owned(self, incarnation: int, target_version: int, owned: Owned) -> bool:
        """Record that the caller owns exactly `owned`, taken from the target of version `target_version`.

        Returns False if it is too late, because the member was fenced or has left since: `incarnation`, as it
        was when the caller began, is not the current one."""
        if self._phase is not MemberState.STABLE or incarnation != self.incarnation:
            return False
        self.owned, self.owned_version = owned, target_version
        return True

    def rejoin_fenced(self, now_ms: int) -> None:
        """Join with epoch 0, now that the caller has released what a FENCED member owned."""
        if self._phase is MemberState.FENCED:
            self._phase = MemberState.JOINING
            self.incarnation += 1
            self.target = self.owned = self._empty
            self.owned_version = self.target_version
            self._not_before_ms = now_ms

    def leave(self, now_ms: int) -> None:
        """Leave the group, or stop if the coordinator does not know the member.

        A response that is still in flight is ignored."""
        is_known = self._was_sent and self._phase not in _SILENT
        self._phase = MemberState.LEAVING if is_known else MemberState.LEFT
        self._in_flight = False
        self._not_before_ms = now_ms

    # heartbeats

    def request(self, now_ms: int, version: int) -> Request:
        """Return the heartbeat to send now. Raises `UnsupportedVersion` if a field does not exist in
        `version`."""
        self._sent_ms, self._in_flight, self._was_sent = now_ms, True, True
        if self._phase is MemberState.LEAVING:
            self._phase = MemberState.LEFT
            return self._leave_request(STATIC_LEAVE_EPOCH if self.settings.instance_id else LEAVE_EPOCH)
        request = self._heartbeat_request(version)
        self._sent_owned_version = self.owned_version
        return request

    def handle_response(self, response: Response, now_ms: int) -> None:
        """Process the response to the heartbeat in flight."""
        self._in_flight = False
        if self._phase in _IGNORES_RESPONSES:
            return
        if response.error_code:
            self._handle_error(response.error_code, response.error_message, now_ms)
            return
        self._failures, self._not_before_ms = 0, now_ms
        self._unreleased_since_ms = self.error = None
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        if response.member_epoch < 0:
            return
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        joined, self._phase = self._phase is MemberState.JOINING, MemberState.STABLE
        target = self._read_response(response)
        if target is not None and (joined or target != self.target):
            self.target_version += 1
            self.target = target

    def handle_failure(self, error: ClientError, now_ms: int) -> None:
        """Process a heartbeat that got no response, or none that could be decoded."""
        self._in_flight = False
        if self._phase in _IGNORES_RESPONSES:
            return
        if error.retriable:
            self._retry(error, now_ms)
        else:
            self._fail(error)

    def _handle_error(self, code: int, message: str | None, now_ms: int) -> None:
        error = KafkaError(code, self._error_message(code, message), about=f"group {self.group_id}")
        action = ERROR_ACTIONS.get(code, ErrorAction.FAIL)
        if action is ErrorAction.RETRY_WITH_TIMEOUT:
            if self._unreleased_since_ms is None:
                self._unreleased_since_ms = now_ms
            is_over = now_ms - self._unreleased_since_ms >= self.settings.unreleased_timeout_ms
            action = ErrorAction.FAIL if is_over else ErrorAction.RETRY
        if action is ErrorAction.FENCE:
            self._phase, self.epoch = MemberState.FENCED, JOIN_EPOCH
            self._sent_owned_version = None
            self._failures, self.error = 0, error
        elif action is ErrorAction.FAIL:
            self._fail(error)
        else:
            if action is ErrorAction.RETRY_AND_RAISE:
                self.nonfatal_error = error
            self._retry(error, now_ms)

    def _retry(self, error: ClientError, now_ms: int) -> None:
        settings = self.settings
        backoff_ms = min(settings.retry_backoff_ms << min(self._failures, 20), settings.retry_backoff_max_ms)
        self._failures += 1
        self._sent_owned_version = None
        self.error = error
        self._not_before_ms = now_ms + backoff_ms

    def _fail(self, error: ClientError) -> None:
        self._phase, self.epoch, self.error = MemberState.FATAL, JOIN_EPOCH, error
