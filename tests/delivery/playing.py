"""A harness for share partitions that writes requests and results as short texts.

    play = Play(limit=3)
    play.acquire("a", "0-4 5-9")        == "0-4*1 5-9*1"         log batches; acquired offsets*delivery count
    play.acknowledge("a", "0-4:1 7:2")  == "0 5 0-4:2*1 7:0*1"   start, complete count and batches written
    play.window                         == "5-6 a*1 | 7 free*1 | 8-9 a*1"

A write completes at once, unless `play.hold_writes` is set; then it waits for `complete_write`.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.codec.batches import BatchHeader
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import (
    Acknowledged,
    AcquireMode,
    Change,
    DeadLetter,
    DeliveryError,
    RecordState,
    Terms,
)
from konvene.delivery.partition import SharePartition
from konvene.delivery.runs import Cell
from konvene.errors import Errors
from konvene.share_state.requests import SharePartitionKey, StateAnswer, StateBatch

KEY = SharePartitionKey("g", Uuid(1), 0)
TRANSACTIONAL, CONTROL = 0x10, 0x20
NAMES = {
    RecordState.AVAILABLE: "free",
    RecordState.ACKNOWLEDGED: "done",
    RecordState.ARCHIVING: "archiving",
    RecordState.ARCHIVED: "archived",
}


def header(first: int, last: int, producer_id: int = -1, attributes: int = 0) -> BatchHeader:
    """Return the header of a log batch with the given offsets."""
    return BatchHeader(
        first, 100, 0, 2, 0, attributes, last - first, 0, 0, producer_id, -1, -1, last - first + 1
    )


def offsets(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def headers(text: str) -> list[BatchHeader]:
    """Parse log batches: `0-4`, `0-4@7` in a transaction of producer 7, `5@7!` its end marker."""
    result = []
    for token in text.split():
        span_text, _, producer = token.partition("@")
        attributes = TRANSACTIONAL * bool(producer) + CONTROL * producer.endswith("!")
        result.append(header(*offsets(span_text), int(producer.rstrip("!") or -1), attributes))
    return result


def state_batches(text: str) -> tuple[StateBatch, ...]:
    """Parse state batches such as `0-4:2*1`: offsets, state, delivery count."""
    result = []
    for token in text.split():
        span_text, _, delivery = token.partition(":")
        state, _, count = delivery.partition("*")
        result.append(StateBatch(*offsets(span_text), int(state), int(count)))
    return tuple(result)


def acknowledged(text: str) -> list[Acknowledged]:
    """Parse acknowledgements such as `0-4:1` or `0-2:1,2,3`."""
    result = []
    for token in text.split():
        span_text, _, types = token.partition(":")
        result.append(
            Acknowledged(*offsets(span_text), tuple(int(kind) for kind in types.split(",") if kind))
        )
    return result


def change_text(change: Change | None) -> str:
    """Return start offset, complete count and batches of a change."""
    if change is None:
        return ""
    words = [str(change.start_offset), str(change.delivery_complete_count)]
    words += [f"{span(b[0], b[1])}:{b[2]}*{b[3]}" for b in change.batches]
    return " ".join(words)


class Play:
    """A share partition with a clock, its pending writes and its dead letters."""

    def __init__(
        self,
        *,
        start: int = 0,
        state: str = "",
        limit: int = 5,
        locks: int = 2000,
        lock_ms: int = 1000,
        renew: bool = True,
        dead_letters: bool = False,
        read_committed: bool = False,
    ) -> None:
        self.terms = Terms(lock_ms, limit, locks, renew, read_committed, dead_letters)
        self.now_ms = 0
        self.hold_writes = False
        self.pending_writes: list[Change] = []
        self.dead_letters: list[DeadLetter] = []
        self.core = SharePartition(KEY, self.terms)
        self.load(start, state)

    def load(self, start: int, state: str = "") -> None:
        self.core = SharePartition(KEY, self.terms)
        self.core.load(StateAnswer(state_epoch=3, start_offset=start, batches=state_batches(state)), 2, start)
        self.dead_letters = list(self.core.dead_letters)
        self.pending_writes = []

    def change_terms(self, **terms: object) -> None:
        self.core.terms = self.terms = self.terms._replace(**terms)  # type: ignore[arg-type]

    def acquire(
        self,
        member_id: str,
        log: str,
        *,
        max_records: int = 500,
        batch_size: int = 500,
        record_limit: bool = False,
        fetch_offset: int | None = None,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> str:
        """Acquire from log batches, read at the next fetch offset or at `fetch_offset`."""
        acquired, change = self.core.acquire(
            member_id,
            headers(log),
            tuple(aborted),
            fetch_offset=self.core.next_fetch_offset if fetch_offset is None else fetch_offset,
            mode=AcquireMode.RECORD_LIMIT if record_limit else AcquireMode.BATCH_OPTIMIZED,
            max_records=max_records,
            batch_size=batch_size,
            now_ms=self.now_ms,
        )
        parts = [f"{span(first, last)}*{count}" for first, last, count in acquired]
        if change is not None:
            parts.append(f"written {self._write(change)}")
        return " ".join(parts)

    def acknowledge(self, member_id: str, text: str) -> str:
        try:
            change = self.core.acknowledge(member_id, acknowledged(text), self.now_ms)
        except DeliveryError as rejected:
            return f"{rejected.error.name}: {rejected.message}"
        return self._write(change)

    def release(self, member_id: str) -> str:
        return self._write(self.core.release(member_id))

    def advance_time(self, ms: int) -> str:
        """Advance the clock and expire acquisition locks."""
        self.now_ms += ms
        return self._write(self.core.expire(self.now_ms))

    def move_log_start(self, offset: int) -> str:
        return self._write(self.core.log_start_moved(offset))

    def _write(self, change: Change | None) -> str:
        if change is not None:
            self.pending_writes.append(change)
            if not self.hold_writes:
                self.complete_write()
        return change_text(change)

    def complete_write(self, error: Errors = Errors.NONE) -> str:
        """Complete or fail the oldest write; return the write that follows."""
        change = self.pending_writes.pop(0)
        follow = self.core.finished(change, error)
        if not error:
            self.dead_letters += change.dead_letters
        if follow is not None and not follow.batches and follow.start_offset < 0:
            self.dead_letters += follow.dead_letters
            assert self.core.finished(follow, Errors.NONE) is None
            return ""
        return self._write(follow)

    def complete_copy(self) -> str:
        """Report the oldest dead letter as copied."""
        return self._write(self.core.archived(self.dead_letters.pop(0)))

    @property
    def window(self) -> str:
        return " | ".join(_cell_text(cell) for cell in self.core._window.cells)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.core.start_offset, self.core.end_offset


def _cell_text(cell: Cell) -> str:
    name = NAMES.get(cell.state, cell.member_id)
    return f"{span(cell.first, cell.last)} {name}{'?' if cell.change is not None else ''}*{cell.count}"
