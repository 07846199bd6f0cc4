"""Konvene's share partition behind the line protocol of `Beside.java`, and a generator of random scripts."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.delivery.playing import KEY, acknowledged, header, offsets, state_batches

from konvene.codec.batches import BatchHeader
from konvene.delivery.contract import AcquireMode, Change, DeliveryError, Terms
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.share_state.requests import StateAnswer

MEMBERS = ("a", "b", "c")
FAILED = Errors.COORDINATOR_NOT_AVAILABLE


class KonvenePartition:
    """A share partition that executes commands and answers as `Beside.java` does."""

    def __init__(self) -> None:
        self.core = SharePartition(KEY, Terms())
        self.now_ms = 0
        self.writes: list[Change | None] = []
        self.log_gaps: list[tuple[int, int]] = []
        """Fetch offset and first offset found in the log, per read: the log has no records in between."""

    def run(self, line: str) -> tuple[str, str, str, str]:
        """Execute a command; return its result, the write, the window's position, and each offset in it."""
        name, *arguments = line.split()
        change: Change | None = None
        result = ""
        if name == "new":
            self._begin(arguments)
        elif name == "take":
            result = self._take(arguments)
        elif name == "ack":
            try:
                change = self.core.acknowledge(
                    arguments[0], acknowledged(" ".join(arguments[1:])), self.now_ms
                )
            except DeliveryError as rejected:
                result = f"{rejected.error.name}: {rejected.message}"
        elif name == "release":
            change = self.core.release(arguments[0])
        elif name == "answer":
            self._answer(arguments[0])
        elif name == "passes":
            self.now_ms += int(arguments[0])
            self._finish(self.core.expire(self.now_ms), failed=arguments[1] == "fails")
        elif name == "begins":
            self._finish(self.core.log_start_moved(int(arguments[0])))
        if change is not None:
            self.writes.append(change)
        core = self.core
        position = (
            f"{core.next_fetch_offset} {core.start_offset} {core.end_offset} "
            f"{core.delivery_complete_count} {str(core.can_acquire).lower()}"
        )
        return result, _written(change), position, " ".join(self._states())

    def _answer(self, outcome: str) -> None:
        write = self.writes.pop(0)
        if write is not None:
            self._finish(write, failed=outcome == "fails")
        elif outcome == "fine":
            self.core._window.settle()  # As after any write.

    def skip_write(self) -> None:
        """Expect the completion of a write that only Kafka makes."""
        self.writes.append(None)

    def _begin(self, arguments: list[str]) -> None:
        limit, locks, dead_letters, start = (int(token) for token in arguments[:4])
        terms = Terms(1000, limit, locks, dead_letters=bool(dead_letters))
        self.core = SharePartition(KEY, terms)
        self.core.load(StateAnswer(3, batches=state_batches(" ".join(arguments[4:]))), 2, start)
        self.now_ms = 0
        self.writes = []
        self.log_gaps = []
        self._copy_dead_letters(self.core.dead_letters)

    def _take(self, arguments: list[str]) -> str:
        member, mode, size, max_records, offset = arguments[:5]
        self.log_gaps.append((int(offset), offsets(arguments[5])[0]))
        acquired, change = self.core.acquire(
            member,
            [header(*offsets(token)) for token in arguments[5:]],
            (),
            fetch_offset=int(offset),
            mode=AcquireMode(int(mode)),
            max_records=int(max_records),
            batch_size=int(size),
            now_ms=self.now_ms,
        )
        self._finish(change)
        return " ".join(f"{first}-{last}*{count}" for first, last, count in acquired)

    def _finish(self, change: Change | None, *, failed: bool = False) -> None:
        if change is None:
            return
        follow = self.core.finished(change, FAILED if failed else Errors.NONE)
        if not failed:
            self._copy_dead_letters(change.dead_letters)
        self._finish(follow)

    def _copy_dead_letters(self, dead_letters: tuple[object, ...]) -> None:
        for dead_letter in dead_letters:
            self._finish(self.core.archived(dead_letter))  # type: ignore[arg-type]

    def _states(self) -> Iterator[str]:
        for cell in self.core._window.cells:
            ongoing = "?" if cell.change is not None else ""
            for offset in range(cell.first, cell.last + 1):
                yield f"{offset}:{int(cell.state)}*{cell.count}@{cell.member_id}{ongoing}"


def _written(change: Change | None) -> str:
    """Return start offset and complete count of a change, and each written offset in order."""
    if change is None:
        return ""
    each = sorted(
        (offset, batch.delivery_state, batch.delivery_count)
        for batch in change.batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    )
    position = f"{change.start_offset}/{change.delivery_complete_count}"
    return " ".join([position, *(f"{offset}:{state}*{count}" for offset, state, count in each)])


def parse_answer(answer: str, line: str) -> tuple[str, str, str, str]:
    """Parse an answer of Kafka into the form of `KonvenePartition.run`."""
    result, written, position, states = (part.strip() for part in answer.split(" |"))
    if not line.startswith(("ack", "release")) or not written:
        return result, "", position, states
    position_written, *batches = written.split(",")
    each = []
    for batch in batches:
        span_text, _, delivery = batch.partition(":")
        state, _, count = delivery.partition("*")
        first, last = offsets(span_text)
        each += [(offset, int(state), int(count)) for offset in range(first, last + 1)]
    rows = [f"{offset}:{state}*{count}" for offset, state, count in sorted(each)]
    return result, " ".join([position_written, *rows]), position, states


class RandomScript:
    """Draws random commands that suit the current state of a konvene share partition."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.partition = KonvenePartition()
        self.log: list[BatchHeader] = []
        self.end = 0
        self.start = 0
        self.has_log_gaps = seed % 3 == 0

    def first(self) -> str:
        chance = self.random
        limit = chance.choice((1, 2, 3, 5, 5, 7))
        locks = chance.choice((10, 20, 2000))
        self.start = chance.choice((0, 0, 5))
        for _ in range(chance.randint(2, 8)):
            self._produce()
        rows = []
        offset = self.start
        while chance.random() < 0.5 and offset < self.end - 4:
            offset += chance.choice((0, 0, 0, 3))
            last = min(offset + chance.randint(0, 6), self.end - 1)
            state = chance.choice((0, 0, 2, 4))
            rows.append(f"{offset}-{last}:{state}*{chance.randint(1, max(limit - 1, 1))}")
            offset = last + 1
        return " ".join(
            ["new", str(limit), str(locks), str(chance.choice((0, 0, 1))), str(self.start), *rows]
        )

    def _produce(self) -> None:
        count = self.random.choice((1, 2, 5, 10, 20))
        self.log.append(header(self.end, self.end + count - 1))
        self.end += count

    def next(self) -> str:
        chance, core = self.random, self.partition.core
        owners = list(core._window.held)
        draw = chance.random()
        if draw < 0.35 and core.can_acquire:
            read = self._read(core.next_fetch_offset)
            if read:
                batches = " ".join(f"{batch.base_offset}-{batch.last_offset}" for batch in read)
                mode, size, max_records = (
                    chance.choice((0, 0, 1)),
                    chance.choice((3, 500)),
                    chance.choice((1, 4, 10, 500)),
                )
                return (
                    f"take {chance.choice(MEMBERS)} {mode} {size} {max_records} "
                    f"{core.next_fetch_offset} {batches}"
                )
            self._produce()
        if draw < 0.75 and owners:
            member = chance.choice(owners) if chance.random() < 0.9 else chance.choice(MEMBERS)
            return f"ack {member} {self._acks(member)}"
        if draw < 0.8:
            return f"release {chance.choice(MEMBERS)}"
        if draw < 0.9 and self.partition.writes:
            return f"answer {chance.choice(('fine', 'fine', 'fails'))}"
        if draw < 0.96:
            return f"passes {chance.choice((1, 300, 1000))} {chance.choice(('fine', 'fails'))}"
        if draw < 0.98 and self.end > core.start_offset and not core._window.gaps:
            offset = chance.randint(core.start_offset + 1, min(self.end, core.end_offset + 3))
            self.start = max(self.start, offset)
            return f"begins {offset}"
        self._produce()
        if self.has_log_gaps and len(self.log) > 3 and chance.random() < 0.3:
            del self.log[chance.randrange(len(self.log) - 1)]
        return "passes 1 fine"

    def _read(self, offset: int) -> list[BatchHeader]:
        available = [batch for batch in self.log if batch.last_offset >= max(offset, self.start)]
        return available[: self.random.choice((1, 2, 5))]

    def _acks(self, member: str) -> str:
        chance = self.random
        cells = [cell for cell in self.partition.core._window.cells if cell.member_id == member]
        if not cells or chance.random() < 0.1:
            first = chance.randint(self.partition.core.start_offset, self.end)
            return f"{first}-{first + chance.randint(0, 5)}:1"
        arguments = []
        offset = -1
        for cell in chance.sample(cells, min(len(cells), chance.choice((1, 1, 2, 3)))):
            first = chance.choice((cell.first, chance.randint(cell.first, cell.last)))
            last = chance.choice((cell.last, chance.randint(first, cell.last)))
            if chance.random() < 0.7:
                types = [chance.choice((0, 1, 1, 2, 2, 3))]
            else:
                types = [chance.choice((0, 1, 2, 3)) for _ in range(first, last + 1)]
            arguments.append((first, f"{first}-{last}:{','.join(map(str, types))}"))
            offset = last
        return " ".join(token for _, token in sorted(arguments)) if offset >= 0 else ""
