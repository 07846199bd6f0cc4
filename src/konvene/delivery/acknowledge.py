"""Acknowledgement of records by the member that acquired them, with Kafka's checks.

A request is applied as a whole or not at all: the first error undoes what was applied before it. Renewals are
applied last, since they are not written and could not be undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from konvene.delivery.contract import (
    Acknowledged,
    AcknowledgeType,
    DeadLetter,
    DeliveryError,
    RecordState,
    Terms,
)
from konvene.delivery.runs import Cell, PendingChange
from konvene.delivery.window import Window
from konvene.errors import Errors

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED

Range = tuple[int, int]

GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)

REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."
"""Causes in the header of records in the dead letter topic, in Kafka's words."""

NOT_CACHED = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_NOT_FOUND = "Batch record not found. The first offset in request is past acquired records."
LAST_NOT_FOUND = "Batch record not found. The last offset in request is past acquired records."
BATCH_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
BATCH_OF_ANOTHER = "Member is not the owner of batch record"
OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
OFFSET_OF_ANOTHER = "Member is not the owner of offset"
NO_RENEWALS = "Renewing acquisition locks is not enabled for the group."


def released_state(cell: Cell, terms: Terms) -> RecordState:
    """Return the state that the records of `cell` get when they are released.

    They become available below the delivery count limit. At the limit they become archiving if the group has
    a dead letter topic, else archived."""
    if cell.count < terms.delivery_count_limit:
        return AVAILABLE
    return ARCHIVING if terms.dead_letters else ARCHIVED


def add_dead_letter(change: PendingChange, cell: Cell, cause: str) -> None:
    """Add the records of `cell` to the dead letters of `change`.

    `cause`: why they are archived, written into a header of the copies."""
    dead_letters = change.dead_letters
    if dead_letters:
        first, last, count, previous_cause = dead_letters[-1]
        if last + 1 == cell.first and count == cell.count and previous_cause == cause:
            dead_letters[-1] = DeadLetter(first, cell.last, count, cause)
            return
    dead_letters.append(DeadLetter(cell.first, cell.last, cell.count, cause))


def acknowledge(
    window: Window, terms: Terms, member_id: str, acks: Sequence[Acknowledged]
) -> tuple[PendingChange, list[Range]]:
    """Apply a request's acknowledgements to the window.

    Return the change to write, and the offset ranges whose locks the caller has to renew. Raises
    `DeliveryError`."""
    change = PendingChange(member_id)
    renewed: list[Range] = []
    try:
        for ack in acks:
            _check(ack)
            if ack.last_offset >= window.start_offset:
                _apply(window, terms, member_id, ack, change, renewed)
    except DeliveryError:
        for cell in change.cells:
            window.move(cell, ACQUIRED, member_id)
        raise
    return change, renewed


def _check(ack: Acknowledged) -> None:
    """Raise INVALID_REQUEST for malformed acknowledge types. Those of a Kafka request were checked before."""
    types, count = ack.types, len(ack.types)
    if not types or min(types) < GAP or max(types) > RENEW:
        raise DeliveryError(Errors.INVALID_REQUEST, f"Invalid acknowledge type: {list(types)}")
    if count not in (1, ack.last_offset - ack.first_offset + 1):
        raise DeliveryError(Errors.INVALID_REQUEST, "The acknowledge types do not match the offsets.")


def _apply(
    window: Window,
    terms: Terms,
    member_id: str,
    ack: Acknowledged,
    change: PendingChange,
    renewed: list[Range],
) -> None:
    """Apply one acknowledged range of a request; adds to `change` and `renewed`."""
    cells = window.cells
    at = _first_cell(window, ack)
    first, last, types = ack
    while at < len(cells) and cells[at].first <= last:
        cell = cells[at]
        _check_owner(cell, member_id)
        upto = min(cell.last, last)
        if len(types) == 1 and first <= cell.first and cell.last <= last:
            _acknowledge_cell(window, terms, cell, types[0], change, renewed)
        else:
            for begin, end, ack_type in _runs_of_type(ack, max(cell.first, first), upto):
                part = window.cut_out(window.cells[window.find(begin)], begin, end)
                _acknowledge_cell(window, terms, part, ack_type, change, renewed)
        at = window.floor(upto) + 1


def _first_cell(window: Window, ack: Acknowledged) -> int:
    """Return the index in the window of the first cell that the acknowledged range covers.

    Raises `DeliveryError` as Kafka does if the window does not contain the range."""
    cells = window.cells
    first, last, _ = ack
    at = window.floor(first)
    if at < 0 and first < window.start_offset <= last:
        at = window.floor(window.start_offset)
    if at < 0:
        raise DeliveryError(Errors.INVALID_RECORD_STATE, NOT_CACHED)
    end = cells[at] if cells[at].last >= last else cells[window.floor(last)]
    if end.last < first:
        raise DeliveryError(Errors.INVALID_REQUEST, FIRST_NOT_FOUND)
    if end.last < last:
        raise DeliveryError(Errors.INVALID_REQUEST, LAST_NOT_FOUND)
    return at if cells[at].last >= first else at + 1


def _check_owner(cell: Cell, member_id: str) -> None:
    """Check that the member has acquired the records of the cell. Raises INVALID_RECORD_STATE."""
    if cell.state is not ACQUIRED:
        message = BATCH_NOT_ACQUIRED if cell.batch is None else OFFSET_NOT_ACQUIRED
    elif cell.member_id != member_id:
        message = BATCH_OF_ANOTHER if cell.batch is None else OFFSET_OF_ANOTHER
    else:
        return
    raise DeliveryError(Errors.INVALID_RECORD_STATE, message)


def _runs_of_type(ack: Acknowledged, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, type) of each run with one acknowledge type between two offsets."""
    types, base = ack.types, ack.first_offset
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = first
    for offset in range(first + 1, last + 1):
        if types[offset - base] != types[begin - base]:
            yield begin, offset - 1, types[begin - base]
            begin = offset
    yield begin, last, types[begin - base]


def _acknowledge_cell(
    window: Window, terms: Terms, cell: Cell, ack_type: int, change: PendingChange, renewed: list[Range]
) -> None:
    """Apply one acknowledge type to all records of a cell; adds to `change` or `renewed`."""
    if ack_type == RENEW:
        if not terms.renew:
            raise DeliveryError(Errors.INVALID_RECORD_STATE, NO_RENEWALS)
        renewed.append((cell.first, cell.last))
        return
    state, cause = ARCHIVED, DELIVERED_TOO_OFTEN
    if ack_type == ACCEPT:
        state = ACKNOWLEDGED
    elif ack_type == RELEASE:
        state = released_state(cell, terms)
    elif ack_type == REJECT and terms.dead_letters:
        state, cause = ARCHIVING, REJECTED
    records = cell.last - cell.first + 1
    change.cells.append(cell)
    change.acknowledged.append((ack_type, records))
    if ack_type == REJECT or (ack_type == RELEASE and state is not AVAILABLE):
        change.archived += records
    window.move(cell, state, change=change)
    if state is ARCHIVING:
        add_dead_letter(change, cell, cause)
