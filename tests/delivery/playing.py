"""A share partition played with in short words.

    play = Play(limit=3)
    play.take("a", "0-4 5-9")   == "0-4*1 5-9*1"     offsets of the log's batches; what was acquired
    play.ack("a", "0-4:1 7:2")  == "0 5 0-4:2*1 7:0*1"   start, complete count and batches that were written
    play.window                 == "5-6 a*1 | 7 free*1 | 8-9 a*1"

A write is answered at once, unless `play.waits` is set; then it waits for `answer`.
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
    RecordState.ARCHIVING: "leaving",
    RecordState.ARCHIVED: "gone",
}


def header(first: int, last: int, producer_id: int = -1, attributes: int = 0) -> BatchHeader:
    """A batch of the log with these offsets."""
    return BatchHeader(
        first, 100, 0, 2, 0, attributes, last - first, 0, 0, producer_id, -1, -1, last - first + 1
    )


def offsets(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def headers(text: str) -> list[BatchHeader]:
    """`0-4` is a batch, `0-4@7` one of producer 7's transactions, `5@7!` a marker of it."""
    made = []
    for word in text.split():
        place, _, producer = word.partition("@")
        attributes = TRANSACTIONAL * bool(producer) + CONTROL * producer.endswith("!")
        made.append(header(*offsets(place), int(producer.rstrip("!") or -1), attributes))
    return made


def state_batches(text: str) -> tuple[StateBatch, ...]:
    """`0-4:2*1`: offsets, state, delivery count."""
    made = []
    for word in text.split():
        place, _, said = word.partition(":")
        state, _, count = said.partition("*")
        made.append(StateBatch(*offsets(place), int(state), int(count)))
    return tuple(made)


def acknowledged(text: str) -> list[Acknowledged]:
    """`0-4:1` or `0-2:1,2,3`."""
    made = []
    for word in text.split():
        place, _, types = word.partition(":")
        made.append(Acknowledged(*offsets(place), tuple(int(each) for each in types.split(",") if each)))
    return made


def told(change: Change | None) -> str:
    """What a change has written."""
    if change is None:
        return ""
    words = [str(change.start_offset), str(change.delivery_complete_count)]
    words += [f"{span(b[0], b[1])}:{b[2]}*{b[3]}" for b in change.batches]
    return " ".join(words)


class Play:
    """See the top of this file."""

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
        self.waits = False
        self.waiting: list[Change] = []
        self.letters: list[DeadLetter] = []
        self.core = SharePartition(KEY, self.terms)
        self.load(start, state)

    def load(self, start: int, state: str = "") -> None:
        self.core = SharePartition(KEY, self.terms)
        self.core.load(StateAnswer(state_epoch=3, start_offset=start, batches=state_batches(state)), 2, start)
        self.letters = list(self.core.dead_letters)
        self.waiting = []

    def change_terms(self, **terms: object) -> None:
        self.core.terms = self.terms = self.terms._replace(**terms)  # type: ignore[arg-type]

    def take(
        self,
        member_id: str,
        log: str,
        *,
        most: int = 500,
        size: int = 500,
        limited: bool = False,
        at: int | None = None,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> str:
        """Acquire from batches that were read where the partition wants to be read, or `at` an offset."""
        acquired, change = self.core.acquire(
            member_id,
            headers(log),
            tuple(aborted),
            fetch_offset=self.core.next_fetch_offset if at is None else at,
            mode=AcquireMode.RECORD_LIMIT if limited else AcquireMode.BATCH_OPTIMIZED,
            max_records=most,
            batch_size=size,
            now_ms=self.now_ms,
        )
        said = [f"{span(first, last)}*{count}" for first, last, count in acquired]
        if change is not None:
            said.append(f"written {self._write(change)}")
        return " ".join(said)

    def ack(self, member_id: str, text: str) -> str:
        try:
            change = self.core.acknowledge(member_id, acknowledged(text), self.now_ms)
        except DeliveryError as refused:
            return f"{refused.error.name}: {refused.message}"
        return self._write(change)

    def release(self, member_id: str) -> str:
        return self._write(self.core.release(member_id))

    def passes(self, ms: int) -> str:
        """Let time pass, and the locks end whose time is over."""
        self.now_ms += ms
        return self._write(self.core.expire(self.now_ms))

    def log_begins(self, offset: int) -> str:
        return self._write(self.core.log_start_moved(offset))

    def _write(self, change: Change | None) -> str:
        if change is not None:
            self.waiting.append(change)
            if not self.waits:
                self.answer()
        return told(change)

    def answer(self, error: Errors = Errors.NONE) -> str:
        """The oldest write is done, or has failed. What is written next."""
        change = self.waiting.pop(0)
        follow = self.core.finished(change, error)
        if not error:
            self.letters += change.dead_letters
        if follow is not None and not follow.batches and follow.start_offset < 0:
            self.letters += follow.dead_letters
            assert self.core.finished(follow, Errors.NONE) is None
            return ""
        return self._write(follow)

    def copied(self) -> str:
        """The oldest dead letter is copied."""
        return self._write(self.core.archived(self.letters.pop(0)))

    @property
    def window(self) -> str:
        return " | ".join(_shown(cell) for cell in self.core._window.cells)

    @property
    def ends(self) -> tuple[int, int]:
        return self.core.start_offset, self.core.end_offset


def _shown(cell: Cell) -> str:
    name = NAMES.get(cell.state, cell.member_id)
    return f"{span(cell.first, cell.last)} {name}{'?' if cell.change is not None else ''}*{cell.count}"
