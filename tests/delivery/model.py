"""What the model of a share partition knows: offsets, the log, and what is to become of records."""

from __future__ import annotations

from typing import NamedTuple

from konvene.delivery.contract import Acknowledged, RecordState, Terms

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
DONE = (ACKNOWLEDGED, ARCHIVED)
MEMBERS = ("a", "b", "c")
LOCK_MS = 100
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Known(NamedTuple):
    """What the model has of an offset."""

    state: RecordState
    count: int
    member: str = ""
    lock_end: int = -1
    write: object = None
    """The change that is being written about it."""
    lapsed: bool = False


class Batch(NamedTuple):
    first: int
    last: int
    producer_id: int = -1
    attributes: int = 0


def after(terms: Terms, kind: int, count: int) -> RecordState:
    """What a record is that was delivered so often, when a member has said this of it."""
    if kind == ACCEPT:
        return ACKNOWLEDGED
    if kind == REJECT:
        return ARCHIVING
    if kind == GAP:
        return ARCHIVED
    return AVAILABLE if count < terms.delivery_count_limit else ARCHIVING


def held_by(known: dict[int, Known], member: str) -> list[int]:
    """The offsets that it has, in order."""
    return [each for each in sorted(known) if known[each].member == member]


def judged(
    known: dict[int, Known], start: int, terms: Terms, member: str, acks: list[Acknowledged]
) -> tuple[dict[int, RecordState], set[int], bool]:
    """What becomes of each offset, which locks begin anew, and whether it is all refused."""
    expected: dict[int, RecordState] = {}
    renewed: set[int] = set()
    for first, last, types in acks:
        if last < start:
            continue
        if not any(each <= max(first, start) for each in known):
            return {}, set(), True
        if last not in known:
            return {}, set(), True
        for each in range(max(first, start), last + 1):
            has = known.get(each)
            if has is None:
                continue
            if has.state is not ACQUIRED or has.member != member or each in expected:
                return {}, set(), True
            kind = types[0] if len(types) == 1 else types[each - first]
            if kind == RENEW:
                renewed.add(each)
            else:
                expected[each] = after(terms, kind, has.count)
    return expected, renewed, False
