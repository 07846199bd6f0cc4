"""Model of a share partition: the state of each offset, and the effect of acknowledgements on it."""

from __future__ import annotations

from typing import NamedTuple

from konvene.delivery.contract import Acknowledged, RecordState, Terms

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
DONE = (ACKNOWLEDGED, ARCHIVED)
MEMBERS = ("a", "b", "c")
LOCK_MS = 100
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Offset(NamedTuple):
    """Expected state of one offset."""

    state: RecordState
    count: int
    member: str = ""
    lock_end: int = -1
    write: object = None
    """The pending write of this state, if any."""
    lock_expired: bool = False


class Batch(NamedTuple):
    first: int
    last: int
    producer_id: int = -1
    attributes: int = 0


def state_after(terms: Terms, kind: int, count: int) -> RecordState:
    """Return the state after an acknowledgement of `kind` for a record that was delivered `count` times."""
    if kind == ACCEPT:
        return ACKNOWLEDGED
    if kind == REJECT:
        return ARCHIVING
    if kind == GAP:
        return ARCHIVED
    return AVAILABLE if count < terms.delivery_count_limit else ARCHIVING


def offsets_of(offsets: dict[int, Offset], member: str) -> list[int]:
    """Return the offsets that a member has acquired, in order."""
    return [offset for offset in sorted(offsets) if offsets[offset].member == member]


def expected_states(
    offsets: dict[int, Offset], start: int, terms: Terms, member: str, acks: list[Acknowledged]
) -> tuple[dict[int, RecordState], set[int], bool]:
    """Return the new states by offset, the offsets with renewed locks, and True if the request is invalid."""
    expected: dict[int, RecordState] = {}
    renewed: set[int] = set()
    for first, last, types in acks:
        if last < start:
            continue
        if not any(offset <= max(first, start) for offset in offsets):
            return {}, set(), True
        if last not in offsets:
            return {}, set(), True
        for offset in range(max(first, start), last + 1):
            current = offsets.get(offset)
            if current is None:
                continue
            if current.state is not ACQUIRED or current.member != member or offset in expected:
                return {}, set(), True
            kind = types[0] if len(types) == 1 else types[offset - first]
            if kind == RENEW:
                renewed.add(offset)
            else:
                expected[offset] = state_after(terms, kind, current.count)
    return expected, renewed, False
