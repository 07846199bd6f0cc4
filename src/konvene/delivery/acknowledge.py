"""What a member says of records that it has, checked as Kafka checks it.

All of what is said holds, or nothing of it: the first thing that cannot be takes back what was before it.
Renewals are done last, for they are not written and could not be taken back.
"""

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
from konvene.delivery.runs import Cell, Decided
from konvene.delivery.window import Window
from konvene.errors import Errors

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED

Range = tuple[int, int]

GAP, ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)

REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."
"""Why records go to a dead letter topic, in Kafka's words, which are the value of a header there."""

NOT_CACHED = "Batch record not found. The request batch offsets are not found in the cache."
FIRST_NOT_FOUND = "Batch record not found. The first offset in request is past acquired records."
LAST_NOT_FOUND = "Batch record not found. The last offset in request is past acquired records."
BATCH_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
BATCH_OF_ANOTHER = "Member is not the owner of batch record"
OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
OFFSET_OF_ANOTHER = "Member is not the owner of offset"
NO_RENEWALS = "Renewing acquisition locks is not enabled for the group."


def given_back(cell: Cell, terms: Terms) -> RecordState:
    """What records become that are not done: available, unless they were delivered too often."""
    if cell.count < terms.delivery_count_limit:
        return AVAILABLE
    return ARCHIVING if terms.dead_letters else ARCHIVED


def give_up(decided: Decided, cell: Cell, cause: str) -> None:
    """Note that a copy has to be made of these records before they are archived."""
    letters = decided.letters
    if letters:
        first, last, count, why = letters[-1]
        if last + 1 == cell.first and count == cell.count and why == cause:
            letters[-1] = DeadLetter(first, cell.last, count, cause)
            return
    letters.append(DeadLetter(cell.first, cell.last, cell.count, cause))


def acknowledge(
    window: Window, terms: Terms, member_id: str, acks: Sequence[Acknowledged]
) -> tuple[Decided, list[Range]]:
    """What is to be written, and the offsets whose locks begin anew. Raises `DeliveryError`."""
    decided = Decided(member_id)
    renewed: list[Range] = []
    try:
        for ack in acks:
            _check(ack)
            if ack.last_offset >= window.start_offset:
                _apply(window, terms, member_id, ack, decided, renewed)
    except DeliveryError:
        for cell in decided.cells:
            window.move(cell, ACQUIRED, member_id)
        raise
    return decided, renewed


def _check(ack: Acknowledged) -> None:
    """Whether it can be read. Who speaks the wire's language has done this before."""
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
    decided: Decided,
    renewed: list[Range],
) -> None:
    """Do what one batch of a request says."""
    cells = window.cells
    at = _first_cell(window, ack)
    first, last, types = ack
    while at < len(cells) and cells[at].first <= last:
        cell = cells[at]
        _expect(cell, member_id)
        upto = min(cell.last, last)
        if len(types) == 1 and first <= cell.first and cell.last <= last:
            _say(window, terms, cell, types[0], decided, renewed)
        else:
            for begin, end, said in _runs(ack, max(cell.first, first), upto):
                part = window.cut_out(window.cells[window.find(begin)], begin, end)
                _say(window, terms, part, said, decided, renewed)
        at = window.floor(upto) + 1


def _first_cell(window: Window, ack: Acknowledged) -> int:
    """The index of the first cell that an acknowledgement is about."""
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


def _expect(cell: Cell, member_id: str) -> None:
    """Whether the member has these records, and nothing is being written about them."""
    if cell.state is not ACQUIRED:
        message = BATCH_NOT_ACQUIRED if cell.batch is None else OFFSET_NOT_ACQUIRED
    elif cell.member_id != member_id:
        message = BATCH_OF_ANOTHER if cell.batch is None else OFFSET_OF_ANOTHER
    else:
        return
    raise DeliveryError(Errors.INVALID_RECORD_STATE, message)


def _runs(ack: Acknowledged, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The offsets between these two, as runs of which the same is said."""
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


def _say(window: Window, terms: Terms, cell: Cell, said: int, decided: Decided, renewed: list[Range]) -> None:
    """Do what is said of a whole cell."""
    if said == RENEW:
        if not terms.renew:
            raise DeliveryError(Errors.INVALID_RECORD_STATE, NO_RENEWALS)
        renewed.append((cell.first, cell.last))
        return
    state, cause = ARCHIVED, DELIVERED_TOO_OFTEN
    if said == ACCEPT:
        state = ACKNOWLEDGED
    elif said == RELEASE:
        state = given_back(cell, terms)
    elif said == REJECT and terms.dead_letters:
        state, cause = ARCHIVING, REJECTED
    records = cell.last - cell.first + 1
    decided.cells.append(cell)
    decided.said.append((said, records))
    if said == REJECT or (said == RELEASE and state is not AVAILABLE):
        decided.given_up += records
    window.move(cell, state, change=decided)
    if state is ARCHIVING:
        give_up(decided, cell, cause)
