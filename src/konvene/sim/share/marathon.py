"""A long way with one share partition after another: millions of records, and none lost or held twice.

No members, no requests, no virtual network: share partitions and the core of the share coordinator alone, as
fast as they go. Members come and go, hold records, accept, give back, reject, and forget them until their
locks end; writes fail; who delivers and the share coordinator begin anew, each from what was written. Beside
them there is a byte for each record, which says who has it or that it is done, and is looked at and written
with each acquisition.

    python -m konvene.sim.share.marathon --acquisitions 10000000
"""

# A command prints.
# ruff: noqa: T201

from __future__ import annotations

import argparse
import time
from collections import Counter
from random import Random
from typing import Any

from konvene.codec.batches import BatchHeader, Record, build, read_header
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.delivery.contract import Acknowledged, Acquired, AcquireMode, Change, Terms
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.shard.contract import Context
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import Initialize, Read, SharePartitionKey, Write
from konvene.share_state.shard import ShareStateShard
from konvene.sim.world.event import InvariantViolation

TOPIC = Topic("orders", Uuid(b"orders".ljust(16, b"-")), 1)
KEY = SharePartitionKey("g", TOPIC.id, 0)
RECORDS = 200_000
"""Of one share partition; then comes another one."""
BATCH = 100
MEMBERS = 5
FREE, DONE = 0, 255
ACCEPT, RELEASE, REJECT = 1, 2, 3

_BASE = read_header(build([Record(offset, 0, None, None, ()) for offset in range(BATCH)]))


class Way:
    """One share partition from its first record to its last."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.random = Random(seed)
        self.counts = counts
        self.now_ms = 0
        self.fates = bytearray(RECORDS)
        """Of each record: nobody has it, the number of who has it, or it is done."""
        self.held: list[tuple[int, Acquired, int]] = []
        self._config, _ = BrokerConfig.load()
        self._topics = Topics([TOPIC])
        self._log: list[Any] = []
        self.terms = Terms(lock_ms=1_000, delivery_count_limit=5, max_record_locks=2_000)
        self.state = ShareStateShard()
        self._ask(Initialize(KEY, 1, 0))
        self.core = self._loaded()

    def __repr__(self) -> str:
        return f"<{self.core!r}>"

    def _ask(self, request: Any) -> Any:
        outcome = self.state.handle(request, Context(self.now_ms, self._config, 1, topics=self._topics))
        self._log.extend(outcome.records)
        for record in outcome.records:
            self.state.replay(record)
        return dict(outcome.replies)[1]

    def _loaded(self) -> SharePartition:
        core = SharePartition(KEY, self.terms)
        read = self._ask(Read(KEY, 0))
        core.load(read, 0, read.start_offset)
        return core

    def go(self) -> None:
        """To the end."""
        while self.core.start_offset < RECORDS:
            self.now_ms += self.random.randint(0, 20)
            what = self.random.random()
            if what < 0.5:
                self._acquire()
            elif what < 0.97:
                self._acknowledge()
            elif what < 0.975:
                self._leave()
            elif what < 0.999:
                self._expire()
            else:
                self._restart()
        if self.fates.count(DONE) != RECORDS:
            raise InvariantViolation(
                "NothingIsLost", f"{RECORDS - self.fates.count(DONE)} records are not done"
            )

    # --- what happens ---

    def _acquire(self) -> None:
        member = self.random.randint(1, MEMBERS)
        offset = self.core.next_fetch_offset
        if offset >= RECORDS or not self.core.can_acquire:
            self._expire()
            return
        base = offset - offset % BATCH
        headers: list[BatchHeader] = [
            _BASE._replace(base_offset=at)
            for at in range(base, min(base + 5 * BATCH, RECORDS), BATCH)
        ]  # fmt: skip
        got, change = self.core.acquire(
            f"m{member}", headers, (), fetch_offset=offset, mode=AcquireMode(self.random.randint(0, 1)),
            max_records=self.random.choice([1, 50, 500]), batch_size=500, now_ms=self.now_ms,
        )  # fmt: skip
        for row in got:
            count = row.last_offset - row.first_offset + 1
            if any(self.fates[row.first_offset : row.last_offset + 1]):
                raise InvariantViolation("RecordsAreHeldOnce", f"{row} of {self.core!r}")
            self.fates[row.first_offset : row.last_offset + 1] = bytes((member,)) * count
            self.held.append((member, row, self.now_ms + self.terms.lock_ms))
            self.counts["acquired"] += count
            self.counts["again"] += count * (row.delivery_count > 1)
        self._write(change)

    def _acknowledge(self) -> None:
        """All that was given out at once, or a part."""
        if not self.held:
            return
        at = self.random.randrange(len(self.held))
        member, row, end_ms = self.held[at]
        if end_ms <= self.now_ms or self.random.random() < 0.02:
            self._expire()
            return
        del self.held[at]
        first, last, count = row
        middle = self.random.randint(first, last) if self.random.random() < 0.2 else last
        kind = self.random.choices((ACCEPT, RELEASE, REJECT), (90, 8, 2))[0]
        if middle < last:
            self.held.append((member, Acquired(middle + 1, last, count), end_ms))
        change = self.core.acknowledge(f"m{member}", [Acknowledged(first, middle, (kind,))], self.now_ms)
        if self._write(change):
            done = kind != RELEASE or count >= self.terms.delivery_count_limit
            self._are(first, middle, DONE if done else FREE)
        else:
            self.held.append((member, Acquired(first, middle, count), end_ms))

    def _leave(self) -> None:
        member = self.random.randint(1, MEMBERS)
        change = self.core.release(f"m{member}")
        while not self._write(change):
            change = self.core.release(f"m{member}")
        self._given_back(lambda who, end_ms: who == member)

    def _expire(self) -> None:
        self.now_ms += 100
        self._write(self.core.expire(self.now_ms))
        self._given_back(lambda who, end_ms: end_ms <= self.now_ms)

    def _restart(self) -> None:
        """Who delivers is gone, and the share coordinator, too: what was written is read."""
        self.counts["restarts"] += 1
        self.state = ShareStateShard()
        for record in self._log:
            self.state.replay(record)
        self._given_back(lambda who, end_ms: True, forgotten=True)
        self.core = self._loaded()
        for batch in self._ask(Read(KEY, 0)).batches:
            if batch.delivery_state in (2, 4):
                self._are(max(batch.first_offset, 0), batch.last_offset, DONE)

    def _given_back(self, whose: Any, *, forgotten: bool = False) -> None:
        kept = []
        for member, row, end_ms in self.held:
            if not whose(member, end_ms):
                kept.append((member, row, end_ms))
                continue
            given_up = row.delivery_count >= self.terms.delivery_count_limit and not forgotten
            self._are(row.first_offset, row.last_offset, DONE if given_up else FREE)
        self.held = kept

    def _are(self, first: int, last: int, fate: int) -> None:
        self.fates[first : last + 1] = bytes((fate,)) * (last - first + 1)

    def _write(self, change: Change | None) -> bool:
        """Have it written. Some writes fail where that is allowed to undo what was decided."""
        while change is not None:
            fails = change.ticket.can_fail and self.random.random() < 0.01
            error = Errors.COORDINATOR_NOT_AVAILABLE
            if not fails:
                told = self._ask(
                    Write(KEY, self.core.state_epoch, 0, change.start_offset,
                          change.delivery_complete_count, change.batches)
                )  # fmt: skip
                error = told.error
                if error:
                    raise InvariantViolation("ShareWritesAreKept", f"{change} is answered {told}")
            change = self.core.finished(change, error)
            if fails:
                self.counts["failed writes"] += 1
                return False
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Acquire and acknowledge records by the million.")
    parser.add_argument("--acquisitions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    began, seed = time.perf_counter(), asked.seed
    while counts["acquired"] < asked.acquisitions:
        Way(seed, counts).go()
        seed += 1
        counts["ways"] += 1
    took = time.perf_counter() - began
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{told}; none lost, none held twice; {took:.0f} s, {counts['acquired'] / took:.0f} a second")


if __name__ == "__main__":
    main()
