"""State machine of a share consumer (KIP-932): fetches and acknowledgements. Pure.

It keeps a session with each broker that leads an assigned partition, the delivered records that were not
taken, the records that the caller holds, and the acknowledgements in flight. It never waits, sends or calls
back; `ShareConsumer` runs it against a cluster, and the simulator on a virtual clock:

    machine.assign({unit: node})              leaders of the assigned partitions
    for node, request in machine.requests(now_ms, fetching=True): ...
    machine.handle_response(node, response, now_ms)    or machine.handle_failure(node, error, now_ms)
    for delivered in machine.take(): machine.acknowledge(delivered.unit, delivered.record.offset, ACCEPT)
    machine.queue(deadline_ms)                send the decided acknowledgements
    machine.close(), machine.requests(...) until machine.is_closed

At most one request is in flight per broker. Acknowledgements are sent with the next ShareFetch, or with a
ShareAcknowledge if nothing is to be fetched.

States of a record:

| State | It ends when |
| --- | --- |
| waiting | `take` returns it; or its session is lost, and other members may get it |
| held, undecided | the caller decides: `acknowledge`, `accept_all` |
| held, decided | `queue`: from then on the caller does not hold it |
| in flight | the broker has answered, or is unreachable: its `Acknowledgement` is done |
| renewing | as in flight; then the next `take` returns it again, if the lock was renewed |

Unlike Java's client, acknowledgements in a ShareFetch are retried after a retriable error, as those in a
ShareAcknowledge are; undelivered records of a lost session are dropped, as other members may have them; and
final errors of whole requests are raised to the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from konvene.client.errors import ClientError, CorruptRecord, KafkaError, OutOfTurn
from konvene.client.share.records import Delivered, unpack
from konvene.client.share.session import AcknowledgeType, FetchTerms, ShareSession, Unit
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from konvene.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse

__all__ = ["AcknowledgeType", "Acknowledgement", "Delivered", "FetchTerms", "ShareMachine", "Unit"]

Response = ShareFetchResponse | ShareAcknowledgeResponse

_SESSION_LOST = frozenset({Errors.SHARE_SESSION_NOT_FOUND, Errors.INVALID_SHARE_SESSION_EPOCH})
_SESSION_OVER = _SESSION_LOST | {Errors.SHARE_SESSION_LIMIT_REACHED}

_MOVED = frozenset(
    {
        Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH, Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID, Errors.INCONSISTENT_TOPIC_ID, Errors.REPLICA_NOT_AVAILABLE,
        Errors.KAFKA_STORAGE_ERROR, Errors.OFFSET_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Partition errors after which the leader is looked up again. The locks of the old leader are lost."""

_PASSING = frozenset({Errors.UNKNOWN_LEADER_EPOCH, Errors.UNKNOWN_SERVER_ERROR})
"""Other partition errors that mean that nothing is available now."""

NOT_ANSWERED = "Acknowledgement not successful due to invalid response from broker"
NOT_HELD = "The record cannot be acknowledged."
"""Both are messages of Kafka's client."""


class Acknowledgement:
    """Acknowledgements of records of one partition that were queued together, and their common result."""

    __slots__ = ("deadline_ms", "error", "is_done", "node", "types", "unit")

    def __init__(self, node: int, unit: Unit, types: dict[int, int], deadline_ms: int) -> None:
        self.node = node
        self.unit = unit
        self.types = types
        """Acknowledgement types by offset."""
        self.deadline_ms = deadline_ms
        self.is_done = False
        self.error: ClientError | None = None

    def __repr__(self) -> str:
        how = "on its way" if not self.is_done else str(self.error or "done")
        return f"<Acknowledgement of {len(self.types)} records of {self.unit[0]}-{self.unit[1]}: {how}>"


class _Node:
    """Session, queued acknowledgements and request in flight of one broker."""

    __slots__ = ("busy", "closes", "failures", "flight", "is_stale", "not_before_ms", "session", "waiting")

    def __init__(self, session: ShareSession) -> None:
        self.session = session
        self.waiting: list[Acknowledgement] = []
        self.flight: list[Acknowledgement] = []
        self.busy: type[ShareFetchRequest | ShareAcknowledgeRequest] | None = None
        """Type of the request in flight."""
        self.closes = False
        """Whether the request in flight closes the session."""
        self.is_stale = False
        """Whether the response in flight belongs to a fenced member and must be ignored."""
        self.not_before_ms = 0
        self.failures = 0


class ShareMachine:
    """State machine of the fetches and acknowledgements of one share consumer."""

    def __init__(
        self, group_id: str, member_id: str, terms: FetchTerms | None = None, *,
        retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000,
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self.member_id = member_id
        self.terms = terms or FetchTerms()
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.leaders: dict[Unit, int] = {}
        self.lock_ms: int | None = None
        """Duration of acquisition locks, as reported by a broker."""
        self.outdated: set[Unit] = set()
        """Partitions whose leader has moved. The caller refreshes the metadata, assigns, and clears the
        set."""
        self.complaints: deque[ClientError] = deque()
        """Errors to raise to the caller, though the consumer goes on."""
        self.done: deque[Acknowledgement] = deque()
        """Completed acknowledgements, for the caller to take."""
        self._nodes: dict[int, _Node] = {}
        self._waiting: deque[list[Delivered]] = deque()
        self._held: dict[Unit, dict[int, Delivered]] = {}
        self._decided: dict[Unit, dict[int, int]] = {}
        self._renewing: dict[tuple[Unit, int], Delivered] = {}
        self._renewed: list[Delivered] = []
        self._closing = False
        self._last_fetched = -1

    def __repr__(self) -> str:
        return (
            f"<ShareMachine {self.member_id} of {self.group_id}: {len(self.leaders)} partitions, "
            f"{sum(map(len, self._waiting))} records wait, {self.undecided} are undecided>"
        )

    # what the caller does

    def assign(self, leaders: Mapping[Unit, int]) -> None:
        """Set the partitions to fetch from, each with its leader."""
        self.leaders = {unit: leaders[unit] for unit in sorted(leaders)}

    def take(self) -> list[Delivered]:
        """Return the next records as whole batches; they are held from now on.

        Renewed records are returned first, in a batch of their own."""
        taken, self._renewed = self._renewed, []
        while self._waiting and not taken and not self._renewing:
            taken = list(self._waiting.popleft())
            while self._waiting and len(taken) + len(self._waiting[0]) <= self.terms.max_records:
                taken += self._waiting.popleft()
        for each in taken:
            self._held.setdefault(each.unit, {})[each.record.offset] = each
        return taken

    def acknowledge(self, unit: Unit, offset: int, kind: int = AcknowledgeType.ACCEPT) -> None:
        """Set the acknowledgement type of a held record; it can be changed until `queue`. Raises
        `OutOfTurn`."""
        if offset not in self._held.get(unit, ()):
            raise OutOfTurn(NOT_HELD)
        self._decided.setdefault(unit, {})[offset] = kind

    def accept_all(self) -> None:
        """Accept all undecided records."""
        for unit, held in self._held.items():
            accepted = dict.fromkeys(held, int(AcknowledgeType.ACCEPT))
            self._decided[unit] = accepted | self._decided.get(unit, {})

    @property
    def undecided(self) -> int:
        """Number of held records without a decision."""
        return sum(map(len, self._held.values())) - sum(map(len, self._decided.values()))

    @property
    def is_renewing(self) -> bool:
        """Whether renewed records will be returned by `take`."""
        return bool(self._renewing or self._renewed)

    def queue(self, deadline_ms: int) -> list[Acknowledgement]:
        """Queue the decided acknowledgements for sending; retriable errors are retried until the deadline."""
        made: dict[tuple[int, Unit], Acknowledgement] = {}
        for unit, types in self._decided.items():
            held = self._held[unit]
            for offset, kind in types.items():
                each = held.pop(offset)
                if kind == AcknowledgeType.RENEW:
                    self._renewing[unit, offset] = each
                ack = made.get((each.node, unit))
                if ack is None:
                    ack = made[each.node, unit] = Acknowledgement(each.node, unit, {}, deadline_ms)
                ack.types[offset] = kind
            if not held:
                del self._held[unit]
        self._decided = {}
        for ack in made.values():
            self._node(ack.node).waiting.append(ack)
        return list(made.values())

    def member_lost(self, error: ClientError) -> None:
        """Drop all sessions and records after the member was fenced; fail all acknowledgements with
        `error`."""
        for node in self._nodes.values():
            for ack in (*node.flight, *node.waiting):
                self._finish(ack, error)
            node.flight, node.waiting = [], []
            node.session.reset()
            node.is_stale = node.busy is not None
        self._waiting.clear()
        self._renewed = []

    def close(self) -> None:
        """Close all sessions. Queued acknowledgements are sent with that; other held records are released."""
        self._closing = True
        self.leaders = {}
        self._waiting.clear()

    @property
    def is_closed(self) -> bool:
        """Whether all sessions are closed."""
        return self._closing and not any(
            node.busy or node.waiting or not node.session.is_new for node in self._nodes.values()
        )

    # requests

    def requests(
        self, now_ms: int, *, fetching: bool
    ) -> list[tuple[int, ShareFetchRequest | ShareAcknowledgeRequest]]:
        """Return the requests to send now, by broker id. `fetching`: whether the caller waits for records."""
        self._give_up(now_ms)
        out: list[tuple[int, ShareFetchRequest | ShareAcknowledgeRequest]] = []
        for node_id in self._round_robin():
            node = self._node(node_id)
            if node.busy or now_ms < node.not_before_ms:
                continue
            if node.session.is_new:
                self._fail_acknowledgements(node)
            request = self._request(node_id, node, fetching=fetching and not self._closing)
            if request is not None:
                node.busy, node.flight, node.waiting = type(request), node.waiting, []
                if isinstance(request, ShareFetchRequest) and request.max_records:
                    self._last_fetched = node_id
                out.append((node_id, request))
        return out

    def due_ms(self, now_ms: int, *, fetching: bool) -> int | None:
        """Return when a backoff ends and `requests` returns more; None if nothing waits for a backoff."""
        pauses = [
            node.not_before_ms
            for node_id, node in self._nodes.items()
            if not node.busy
            and node.not_before_ms > now_ms
            and (node.waiting or self._closing or (fetching and node_id in self.leaders.values()))
        ]
        return min(pauses, default=None)

    def _request(
        self, node_id: int, node: _Node, *, fetching: bool
    ) -> ShareFetchRequest | ShareAcknowledgeRequest | None:
        acks = _merged(node.waiting)
        wanted = [unit for unit, leader in self.leaders.items() if leader == node_id]
        node.closes = not node.session.is_new and (
            self._closing or (fetching and not wanted and not self._has_open_records(node_id))
        )
        if node.closes or (acks and not fetching):
            return node.session.acknowledge(acks, closes=node.closes)
        if not fetching:
            return None
        return node.session.fetch(wanted, acks, self.terms, records=self._may_fetch_from(node_id))

    def _round_robin(self) -> list[int]:
        """Return all broker ids in round-robin order: the one that was fetched from last is last."""
        nodes = {*self._nodes, *self.leaders.values()}
        return sorted(nodes, key=lambda node_id: (node_id <= self._last_fetched, node_id))

    def _may_fetch_from(self, node_id: int) -> bool:
        """Return True if a ShareFetch to this broker may request records.

        With a record limit only one broker at a time may, and only while no records wait for `take`."""
        if not self.terms.record_limit:
            return True
        others = (node.busy for each, node in self._nodes.items() if each != node_id)
        return ShareFetchRequest not in others and not self._waiting

    def _has_open_records(self, node_id: int) -> bool:
        """Return True if undelivered or held records of this broker require that its session stays open."""
        return any(each.node == node_id for batch in self._waiting for each in batch) or any(
            each.node == node_id for held in self._held.values() for each in held.values()
        )

    def _give_up(self, now_ms: int) -> None:
        for node in self._nodes.values():
            late = [ack for ack in node.waiting if ack.deadline_ms <= now_ms]
            if late:
                node.waiting = [ack for ack in node.waiting if ack.deadline_ms > now_ms]
                for ack in late:
                    self._finish(ack, ack.error or KafkaError(Errors.REQUEST_TIMED_OUT))

    def _fail_acknowledgements(self, node: _Node) -> None:
        """Fail the queued acknowledgements for this broker, because their session is over."""
        for ack in node.waiting:
            self._finish(ack, KafkaError(Errors.NETWORK_EXCEPTION, "the share session is over"))
        node.waiting = []

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(ShareSession(self.group_id, self.member_id))
        return node

    # answers

    def handle_response(self, node_id: int, response: Response, now_ms: int) -> None:
        """Process the response to the request in flight."""
        node = self._nodes[node_id]
        flight, node.busy, node.flight = node.flight, None, []
        if node.is_stale:
            node.is_stale = False
            return
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_ms = response.acquisition_lock_timeout_ms
        if node.closes:
            node.session.reset()
        elif response.error_code:
            self._handle_request_error(node_id, node, flight, response, now_ms)
            return
        else:
            node.session.advance_epoch()
            node.failures = 0
        self._complete_acknowledgements(node, flight, response, now_ms)
        if isinstance(response, ShareFetchResponse) and not node.closes:
            for topic in response.responses:
                for row in topic.partitions:
                    self._receive(node_id, (Uuid(topic.topic_id), row.partition_index), row, now_ms)

    def handle_failure(self, node_id: int, error: ClientError, now_ms: int) -> None:
        """Process a request without a valid response."""
        node = self._nodes[node_id]
        flight, node.busy, node.flight, node.is_stale = node.flight, None, [], False
        self._lose_session(node_id, node)
        self.outdated |= {unit for unit, leader in self.leaders.items() if leader == node_id}
        for ack in flight:
            self._finish(ack, error)
        if not error.retriable:
            self.complaints.append(error)
        self._pause(node, now_ms)

    def _handle_request_error(
        self, node_id: int, node: _Node, flight: list[Acknowledgement], response: Response, now_ms: int
    ) -> None:
        """Handle a response whose error concerns the whole request: fail or requeue all its
        acknowledgements."""
        code = response.error_code
        error = KafkaError(code, response.error_message, about=f"group {self.group_id}")
        self._pause(node, now_ms)
        if code in _SESSION_OVER:
            self._lose_session(node_id, node)
        else:
            if not node.session.is_new:
                node.session.advance_epoch()
            if code in _MOVED:
                self.outdated |= {unit for unit, leader in self.leaders.items() if leader == node_id}
            elif not error.retriable:
                self.complaints.append(error)
        ended = KafkaError(Errors.NETWORK_EXCEPTION, "the share session is over")
        for ack in flight:
            self._complete_or_retry(node, ack, ended if code in _SESSION_LOST else error)

    def _complete_acknowledgements(
        self, node: _Node, flight: list[Acknowledgement], response: Response, now_ms: int
    ) -> None:
        """Complete the acknowledgements in `flight` with the errors of their partitions in the response."""
        results: dict[Unit, tuple[int, str | None]] = {}
        for topic in response.responses:
            for row in topic.partitions:
                unit = Uuid(topic.topic_id), row.partition_index
                if isinstance(row, PartitionData):
                    results[unit] = row.acknowledge_error_code, row.acknowledge_error_message
                else:
                    results[unit] = row.error_code, row.error_message
        silence = response.error_code or Errors.INVALID_RECORD_STATE, response.error_message or NOT_ANSWERED
        again = False
        for ack in flight:
            code, message = results.get(ack.unit, silence)
            error = KafkaError(code, message, about=f"group {self.group_id}") if code else None
            if code in _MOVED and ack.unit in self.leaders:
                self.outdated.add(ack.unit)
            again = not self._complete_or_retry(node, ack, error) or again
        if again:
            self._pause(node, now_ms)

    def _complete_or_retry(self, node: _Node, ack: Acknowledgement, error: ClientError | None) -> bool:
        """Complete an acknowledgement and return True, or queue it again if a retry can help."""
        final = error is None or not error.retriable or node.closes or node.session.is_new
        if final or (isinstance(error, KafkaError) and error.code in _MOVED):
            self._finish(ack, error)
            return True
        ack.error = error
        node.waiting.append(ack)
        return False

    def _finish(self, ack: Acknowledgement, error: ClientError | None) -> None:
        ack.is_done, ack.error = True, error
        for offset, kind in ack.types.items():
            if kind == AcknowledgeType.RENEW:
                each = self._renewing.pop((ack.unit, offset), None)
                if each is not None and error is None:
                    self._renewed.append(each)
        self.done.append(ack)

    def _receive(self, node_id: int, unit: Unit, row: PartitionData, now_ms: int) -> None:
        """Add the records of one partition (`row`) of a ShareFetch response to those that wait for `take`."""
        if row.error_code in _MOVED:
            if unit in self.leaders:
                self.outdated.add(unit)
            self._pause(self._nodes[node_id], now_ms)
        elif row.error_code in _PASSING:
            self._pause(self._nodes[node_id], now_ms)
        elif row.error_code:
            self.complaints.append(_read_error(unit, row))
        if not row.acquired_records or self._closing:
            return
        got = unpack(unit, node_id, row.records or b"", row.acquired_records)
        if got.error is not None:
            self.complaints.append(CorruptRecord(f"{unit[0]}-{unit[1]}: {got.error}"))
        self._waiting.extend(got.batches)
        if got.settled:
            later = now_ms + 60_000  # No caller waits for these.
            self._nodes[node_id].waiting.append(Acknowledgement(node_id, unit, got.settled, later))

    def _lose_session(self, node_id: int, node: _Node) -> None:
        """Drop the undelivered records of this broker; other members may have them."""
        node.session.reset()
        self._waiting = deque(batch for batch in self._waiting if batch[0].node != node_id)

    def _pause(self, node: _Node, now_ms: int) -> None:
        pause = min(self.retry_backoff_ms << min(node.failures, 20), self.retry_backoff_max_ms)
        node.failures += 1
        node.not_before_ms = now_ms + pause


def _read_error(unit: Unit, row: PartitionData) -> ClientError:
    about = f"reading {unit[0]}-{unit[1]}"
    if row.error_code == Errors.CORRUPT_MESSAGE:
        return CorruptRecord(f"{about}: CORRUPT_MESSAGE: {row.error_message or 'the log is damaged'}")
    return KafkaError(row.error_code, row.error_message, about=about)


def _merged(acks: list[Acknowledgement]) -> dict[Unit, dict[int, int]]:
    merged: dict[Unit, dict[int, int]] = {}
    for ack in acks:
        merged.setdefault(ack.unit, {}).update(ack.types)
    return merged
