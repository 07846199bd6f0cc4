"""Our share partition, told what to do by the same lines as Kafka's (`Beside.java`), with like answers."""

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


class Ours:
    """See the top of this file."""

    def __init__(self) -> None:
        self.core = SharePartition(KEY, Terms())
        self.now_ms = 0
        self.writes: list[Change | None] = []
        self.holes: list[tuple[int, int]] = []
        """Where was read, and the first offset that the log had there: between them it has none."""

    def run(self, line: str) -> tuple[str, str, str, str]:
        """What was said, what was written, where the window is, and each offset in it."""
        name, *words = line.split()
        written: Change | None = None
        said = ""
        if name == "new":
            self._begin(words)
        elif name == "take":
            said = self._take(words)
        elif name == "ack":
            try:
                written = self.core.acknowledge(words[0], acknowledged(" ".join(words[1:])), self.now_ms)
            except DeliveryError as refused:
                said = f"{refused.error.name}: {refused.message}"
        elif name == "release":
            written = self.core.release(words[0])
        elif name == "answer":
            self._answer(words[0])
        elif name == "passes":
            self.now_ms += int(words[0])
            self._finish(self.core.expire(self.now_ms), failed=words[1] == "fails")
        elif name == "begins":
            self._finish(self.core.log_start_moved(int(words[0])))
        if written is not None:
            self.writes.append(written)
        core = self.core
        place = (
            f"{core.next_fetch_offset} {core.start_offset} {core.end_offset} "
            f"{core.delivery_complete_count} {str(core.can_acquire).lower()}"
        )
        return said, _written(written), place, " ".join(self._states())

    def _answer(self, how: str) -> None:
        write = self.writes.pop(0)
        if write is not None:
            self._finish(write, failed=how == "fails")
        elif how == "fine":
            self.core._window.settle()  # So it does with any write.

    def pass_over(self) -> None:
        """Wait for an answer to a write that we have no need of."""
        self.writes.append(None)

    def _begin(self, words: list[str]) -> None:
        limit, locks, dead_letters, start = (int(word) for word in words[:4])
        terms = Terms(1000, limit, locks, dead_letters=bool(dead_letters))
        self.core = SharePartition(KEY, terms)
        self.core.load(StateAnswer(3, batches=state_batches(" ".join(words[4:]))), 2, start)
        self.now_ms = 0
        self.writes = []
        self.holes = []
        self._copy(self.core.dead_letters)

    def _take(self, words: list[str]) -> str:
        member, mode, size, most, offset = words[:5]
        self.holes.append((int(offset), offsets(words[5])[0]))
        acquired, change = self.core.acquire(
            member,
            [header(*offsets(word)) for word in words[5:]],
            (),
            fetch_offset=int(offset),
            mode=AcquireMode(int(mode)),
            max_records=int(most),
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
            self._copy(change.dead_letters)
        self._finish(follow)

    def _copy(self, letters: tuple[object, ...]) -> None:
        for letter in letters:
            self._finish(self.core.archived(letter))  # type: ignore[arg-type]

    def _states(self) -> Iterator[str]:
        for cell in self.core._window.cells:
            ongoing = "?" if cell.change is not None else ""
            for offset in range(cell.first, cell.last + 1):
                yield f"{offset}:{int(cell.state)}*{cell.count}@{cell.member_id}{ongoing}"


def _written(change: Change | None) -> str:
    """Each offset that was written, in order."""
    if change is None:
        return ""
    each = sorted(
        (offset, batch.delivery_state, batch.delivery_count)
        for batch in change.batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    )
    place = f"{change.start_offset}/{change.delivery_complete_count}"
    return " ".join([place, *(f"{offset}:{state}*{count}" for offset, state, count in each)])


def heard(answer: str, line: str) -> tuple[str, str, str, str]:
    """What Kafka answered, in the same words."""
    said, written, place, states = (part.strip() for part in answer.split(" |"))
    if not line.startswith(("ack", "release")) or not written:
        return said, "", place, states
    place_written, *batches = written.split(",")
    each = []
    for batch in batches:
        where, _, what = batch.partition(":")
        state, _, count = what.partition("*")
        first, last = offsets(where)
        each += [(offset, int(state), int(count)) for offset in range(first, last + 1)]
    rows = [f"{offset}:{state}*{count}" for offset, state, count in sorted(each)]
    return said, " ".join([place_written, *rows]), place, states


class Script:
    """A story by chance: it looks at our share partition for what could be said next."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ours = Ours()
        self.log: list[BatchHeader] = []
        self.end = 0
        self.start = 0
        self.with_holes = seed % 3 == 0

    def first(self) -> str:
        chance = self.chance
        limit = chance.choice((1, 2, 3, 5, 5, 7))
        locks = chance.choice((10, 20, 2000))
        self.start = chance.choice((0, 0, 5))
        for _ in range(chance.randint(2, 8)):
            self._produce()
        rows = []
        at = self.start
        while chance.random() < 0.5 and at < self.end - 4:
            at += chance.choice((0, 0, 0, 3))
            last = min(at + chance.randint(0, 6), self.end - 1)
            state = chance.choice((0, 0, 2, 4))
            rows.append(f"{at}-{last}:{state}*{chance.randint(1, max(limit - 1, 1))}")
            at = last + 1
        return " ".join(
            ["new", str(limit), str(locks), str(chance.choice((0, 0, 1))), str(self.start), *rows]
        )

    def _produce(self) -> None:
        count = self.chance.choice((1, 2, 5, 10, 20))
        self.log.append(header(self.end, self.end + count - 1))
        self.end += count

    def next(self) -> str:
        chance, core = self.chance, self.ours.core
        held = list(core._window.held)
        turn = chance.random()
        if turn < 0.35 and core.can_acquire:
            read = self._read(core.next_fetch_offset)
            if read:
                words = " ".join(f"{batch.base_offset}-{batch.last_offset}" for batch in read)
                mode, size, most = (
                    chance.choice((0, 0, 1)),
                    chance.choice((3, 500)),
                    chance.choice((1, 4, 10, 500)),
                )
                return f"take {chance.choice(MEMBERS)} {mode} {size} {most} {core.next_fetch_offset} {words}"
            self._produce()
        if turn < 0.75 and held:
            member = chance.choice(held) if chance.random() < 0.9 else chance.choice(MEMBERS)
            return f"ack {member} {self._acks(member)}"
        if turn < 0.8:
            return f"release {chance.choice(MEMBERS)}"
        if turn < 0.9 and self.ours.writes:
            return f"answer {chance.choice(('fine', 'fine', 'fails'))}"
        if turn < 0.96:
            return f"passes {chance.choice((1, 300, 1000))} {chance.choice(('fine', 'fails'))}"
        if turn < 0.98 and self.end > core.start_offset and not core._window.gaps:
            offset = chance.randint(core.start_offset + 1, min(self.end, core.end_offset + 3))
            self.start = max(self.start, offset)
            return f"begins {offset}"
        self._produce()
        if self.with_holes and len(self.log) > 3 and chance.random() < 0.3:
            del self.log[chance.randrange(len(self.log) - 1)]
        return "passes 1 fine"

    def _read(self, offset: int) -> list[BatchHeader]:
        there = [batch for batch in self.log if batch.last_offset >= max(offset, self.start)]
        return there[: self.chance.choice((1, 2, 5))]

    def _acks(self, member: str) -> str:
        chance = self.chance
        cells = [cell for cell in self.ours.core._window.cells if cell.member_id == member]
        if not cells or chance.random() < 0.1:
            first = chance.randint(self.ours.core.start_offset, self.end)
            return f"{first}-{first + chance.randint(0, 5)}:1"
        words = []
        at = -1
        for cell in chance.sample(cells, min(len(cells), chance.choice((1, 1, 2, 3)))):
            first = chance.choice((cell.first, chance.randint(cell.first, cell.last)))
            last = chance.choice((cell.last, chance.randint(first, cell.last)))
            if chance.random() < 0.7:
                types = [chance.choice((0, 1, 1, 2, 2, 3))]
            else:
                types = [chance.choice((0, 1, 2, 3)) for _ in range(first, last + 1)]
            words.append((first, f"{first}-{last}:{','.join(map(str, types))}"))
            at = last
        return " ".join(word for _, word in sorted(words)) if at >= 0 else ""
