"""Invariants of the transaction coordinator, checked after each of its events.

The valid state transitions are stated here a second time, from Kafka's `TransactionState`, so that a mistake
in the core's own table is found.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.end_txn import EndTxnRequest
from konvene.sim.transactions.runtime import Event, as_logged
from konvene.sim.world.event import InvariantViolation
from konvene.transactions.expiry import EXPIRED, TIMED_OUT
from konvene.transactions.markers import FETCH_PRODUCER_ID
from konvene.transactions.state import Transaction, TransactionState

MOVES: dict[str, frozenset[str]] = {
    "": frozenset({"EMPTY"}),
    "EMPTY": frozenset({"", "EMPTY", "ONGOING", "PREPARE_ABORT"}),
    "ONGOING": frozenset({"ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT"}),
    "PREPARE_COMMIT": frozenset({"COMPLETE_COMMIT"}),
    "PREPARE_ABORT": frozenset({"COMPLETE_ABORT"}),
    "COMPLETE_COMMIT": frozenset({"", "EMPTY", "ONGOING", "PREPARE_ABORT"}),
    "COMPLETE_ABORT": frozenset({"", "EMPTY", "ONGOING", "PREPARE_ABORT"}),
}
"""Valid next states by state; the empty string is an unknown transactional id."""

NEWER = 5
"""First version of EndTxn that gives every transaction its own epoch (KIP-890)."""

LAST_GIVEN = 32_766
"""The last epoch that a producer may get."""


class TransactionInvariant:
    """Base class of invariants that hold after every event of the transaction coordinator."""

    def check(self, event: Event) -> None:
        """Call `after`, and raise its AssertionError as `InvariantViolation` with the name of this class."""
        try:
            self.after(event)
        except AssertionError as wrong:
            raise InvariantViolation(type(self).__name__, str(wrong) or "does not hold") from wrong

    def after(self, event: Event) -> None:
        """Check the invariant after `event`, as each subclass defines it. Raises AssertionError if it does
        not hold."""
        raise NotImplementedError


class TransactionsAreStored(TransactionInvariant):
    """TX7, G1, G3: the state of each transactional id equals the replay of the log, and a restart loads the
    same state."""

    def after(self, event: Event) -> None:
        runtime = event.runtime
        level = runtime.features["transaction.version"]
        shadow = runtime.shadow.transactions
        assert event.after.keys() == shadow.keys(), f"{sorted(event.after)}, in the log {sorted(shadow)}"
        for name in event.after:
            if event.after[name] is event.before.get(name) and event.kind != "loaded":
                continue
            live, logged = (as_logged(ids.get(name), level) for ids in (event.after, shadow))
            assert live == logged, f"{name}: live {live}, in the log {logged}"
        if event.kind == "loaded" and not event.lost:
            for name in sorted(event.before.keys() | event.after.keys()):
                was, now = (as_logged(ids.get(name), level) for ids in (event.before, event.after))
                assert was == now, f"{name} was {was}, and is loaded as {now}"


class TransactionsChangeByRecords(TransactionInvariant):
    """TX7, G5: the state changes by records only: a rejected request, or a failed append, changes nothing."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" and event.batch is None:
            assert event.before == event.after, f"{event.api or event.request}: changed without a record"


class TransactionStatesAreValid(TransactionInvariant):
    """TX3: a transaction makes only the state transitions that Kafka permits. The decision to end it keeps
    its partitions, and it completes only when the markers are reported as written."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            return
        for name in sorted(event.before.keys() | event.after.keys()):
            was, now = event.before.get(name), event.after.get(name)
            if was is now:
                continue
            moves = MOVES[_state(was)]
            assert _state(now) in moves, f"{was!r} became {now!r} by {event.api or event.request}"
            if was is not None and now is not None:
                self._moved(event, was, now)

    def _moved(self, event: Event, was: Transaction, now: Transaction) -> None:
        if now.is_ending and was.state is TransactionState.ONGOING:
            assert now.partitions == was.partitions, f"{was!r} ends as {now!r}: {now.partitions}"
        elif was.state is TransactionState.ONGOING:
            assert now.partitions >= was.partitions, f"{was!r} lost partitions: {now.partitions}"
        if was.is_ending:
            assert event.kind == "completion", f"{was!r} is complete by {event.api or event.request}"
            assert not now.partitions, f"{now!r} has partitions: {now.partitions}"


class EpochsRise(TransactionInvariant):
    """TX4: the epoch of a producer id never decreases, and at most 32766 is given out, so that one more can
    fence it. A new producer id begins at 0 and was never used. InitProducerId without a producer id returns
    another id or epoch than before."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            return
        for name, now in event.after.items():
            was = event.before.get(name)
            if was is now:
                continue
            if was is None or was.producer_id != now.producer_id:
                known = self.ids.setdefault(now.producer_id, name)
                assert was is None or now.producer_epoch == 0, f"{now!r} does not begin at 0, behind {was!r}"
                assert known == name, f"producer {now.producer_id} of {name} belongs to {known}"
            else:
                assert now.producer_epoch >= was.producer_epoch, f"{was!r} became {now!r}"
        if event.kind != "request" or event.error:
            return
        epoch = getattr(event.answer, "producer_epoch", -1)
        assert epoch <= LAST_GIVEN, f"{event.client_id} gets epoch {epoch}"
        if event.api == "InitProducerId" and event.request.producer_id < 0:
            was = event.before.get(event.request.transactional_id)
            before = (-1, -1) if was is None else (was.producer_id, was.producer_epoch)
            after = event.answer.producer_id, epoch
            assert after != before, f"{event.client_id} gets {after}, which is in use"


class OwnersDecide(TransactionInvariant):
    """TX3: the error code of EndTxn is Kafka's for its producer id, epoch, the state, and whether it is a
    retry; and the requested result is decided. AddOffsetsToTxn succeeds only for the current producer, and
    not while the transaction is ending."""

    def after(self, event: Event) -> None:
        if event.kind != "request" or event.api not in ("EndTxn", "AddOffsetsToTxn"):
            return
        request, was = event.request, event.before.get(event.request.transactional_id)
        expected = _expected(was, request, event.version) if event.api == "EndTxn" else _adds(was, request)
        error = Errors.PRODUCER_FENCED if event.error is Errors.INVALID_PRODUCER_EPOCH else event.error
        no_id = expected is Errors.NONE and error is Errors.CONCURRENT_TRANSACTIONS and was is not None
        if not (no_id and was is not None and was.is_exhausted):
            assert error is expected, f"{request} is answered {error.name}, not {expected.name}: {was!r}"
        if error is not Errors.NONE or event.api != "EndTxn":
            return
        now = event.after[request.transactional_id]
        if was is not None and was.state is TransactionState.ONGOING:
            committed = now.state is TransactionState.PREPARE_COMMIT
            assert committed == request.committed, f"commit requested: {request.committed}, decided {now!r}"
        if event.version >= NEWER:
            given = event.answer.producer_id, event.answer.producer_epoch
            assert given != (request.producer_id, request.producer_epoch), (
                f"{request} is answered the same epoch"
            )


def _adds(was: Transaction | None, request: AddOffsetsToTxnRequest) -> Errors:
    if was is not None and was.is_ending:
        return Errors.CONCURRENT_TRANSACTIONS
    if was is None or was.producer_id != request.producer_id:
        return Errors.INVALID_PRODUCER_ID_MAPPING
    return Errors.NONE if was.producer_epoch == request.producer_epoch else Errors.PRODUCER_FENCED


def _expected(was: Transaction | None, request: EndTxnRequest, version: int) -> Errors:
    """Return the error code with which Kafka answers an EndTxn of this version; `was` is the transaction
    before the request, None if there was none."""
    newer, same = version >= NEWER, "COMPLETE_COMMIT" if request.committed else "COMPLETE_ABORT"
    if was is None:
        return Errors.INVALID_PRODUCER_ID_MAPPING
    if newer and was.is_ending:
        return Errors.CONCURRENT_TRANSACTIONS
    rotated = newer and (
        (request.producer_id, request.producer_epoch, was.producer_epoch)
        == (was.previous_producer_id, LAST_GIVEN, 0)
    )
    if request.producer_id != was.producer_id and not rotated:
        return Errors.INVALID_PRODUCER_ID_MAPPING
    retried = rotated or (newer and request.producer_epoch + 1 == was.producer_epoch)
    complete = was.state.name.startswith("COMPLETE")
    if request.producer_epoch != was.producer_epoch and not (retried and complete):
        return Errors.PRODUCER_FENCED
    if retried:
        return Errors.NONE if was.state.name == same else Errors.INVALID_TXN_STATE
    if was.is_ending:
        return Errors.CONCURRENT_TRANSACTIONS
    if was.state is TransactionState.ONGOING or (newer and not request.committed):
        return Errors.NONE
    return Errors.NONE if not newer and was.state.name == same else Errors.INVALID_TXN_STATE


class FencedProducersStayFenced(TransactionInvariant):
    """TX5: a fenced producer gets no new epoch. It is fenced by a new producer with its transactional id, or
    by the timeout of its transaction (there only below transaction.version 2)."""

    def __init__(self) -> None:
        self.floors: dict[str, tuple[int, int]] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            if event.lost:
                self.floors.clear()
            return
        for name in event.before.keys() - event.after.keys():
            self.floors.pop(name, None)  # An expired id fences no producer.
        takes = event.kind == "request" and event.api == "InitProducerId" and not event.error
        begins = takes and event.request.producer_id < 0
        late = event.kind == "timer" and event.runtime.features["transaction.version"] < 2
        if takes and not begins:
            name, request = event.request.transactional_id, event.request
            floor = self.floors.get(name, (-1, -1))
            fenced = request.producer_id == floor[0] and request.producer_epoch < floor[1]
            assert not fenced, f"{request} gets an epoch, but {floor} fenced it"
        if begins or late:
            for name, now in event.after.items():
                if now is not event.before.get(name):
                    self.floors[name] = (now.producer_id, now.producer_epoch)


class DecisionsWriteMarkers(TransactionInvariant):
    """TX3: the decision to end a transaction requests its markers, with the decided result, in all of its
    partitions; a restart requests those of each transaction that is ending again."""

    def after(self, event: Event) -> None:
        if event.outcome is None:
            return
        markers = {e.subject.transactional_id: e.subject for e in event.outcome.effects
                 if e.verb == "write-markers"}  # fmt: skip
        for name, now in event.after.items():
            ends = now.is_ending and (event.kind == "loaded" or now is not event.before.get(name))
            assert ends == (name in markers), f"{now!r}: its markers are requested: {name in markers}"
            if ends:
                requested = markers[name]
                expected = (
                    now.producer_id, now.producer_epoch, now.state is TransactionState.PREPARE_COMMIT,
                    tuple(sorted(now.partitions)),
                )  # fmt: skip
                found = (
                    requested.producer_id, requested.producer_epoch, requested.committed,
                    requested.partitions,
                )  # fmt: skip
                assert found == expected, f"{now!r}: markers {found}, not {expected}"


class TransactionsTimeOut(TransactionInvariant):
    """TX6: a transaction is aborted, and its producer fenced, by the first check after it exceeded its
    timeout, and by none before. A transactional id is removed when it was unused for its retention time."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            for key in (TIMED_OUT, EXPIRED):
                assert key in event.runtime.coordinator.deadlines, f"the timer {key} is not armed"
        if event.kind != "timer":
            return
        now_ms = event.runtime.event_queue.wall_clock_ms()
        config = event.runtime.config
        for name, was in event.before.items():
            now = event.after.get(name)
            late = (
                was.state is TransactionState.ONGOING and now_ms - was.start_ms > was.timeout_ms
                and event.request == TIMED_OUT
            )  # fmt: skip
            exhausted = was.is_exhausted and event.runtime.features["transaction.version"] >= 2
            if event.outcome is not None and late and exhausted:
                requested = [e.subject for e in event.outcome.effects if e.verb == FETCH_PRODUCER_ID]
                assert name in requested, f"{was!r} exceeds its timeout, and no producer id is fetched"
            elif event.outcome is not None and late:
                assert now is not was, f"{was!r} is open since {was.start_ms}, now it is {now_ms}"
            if now is was:
                continue
            if now is None:
                kept_ms = config["transactional.id.expiration.ms"]
                old = now_ms - was.last_update_ms >= kept_ms and event.request == EXPIRED
                assert old, f"{was!r} is removed, {now_ms - was.last_update_ms} ms old"
            else:
                assert late, f"{was!r} became {now!r} by {event.request}"
                assert now.producer_epoch > was.producer_epoch, f"{now!r}: its producer is not fenced"
        if event.outcome is not None and event.request == EXPIRED:
            self._check_expired(event, now_ms, config["transactional.id.expiration.ms"])

    def _check_expired(self, event: Event, now_ms: int, kept_ms: int) -> None:
        for now in event.after.values():
            at_rest = now.state.name in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")
            assert not at_rest or now_ms - now.last_update_ms < kept_ms, f"{now!r} should have expired"


def _state(transaction: Transaction | None) -> str:
    return "" if transaction is None else transaction.state.name


def transaction_invariants() -> list[TransactionInvariant]:
    """Return new instances of all invariants of the transaction coordinator."""
    return [invariant() for invariant in INVARIANTS]


INVARIANTS: tuple[type[TransactionInvariant], ...] = (
    TransactionsAreStored, TransactionsChangeByRecords, TransactionStatesAreValid, EpochsRise, OwnersDecide,
    FencedProducersStayFenced, DecisionsWriteMarkers, TransactionsTimeOut,
)  # fmt: skip
