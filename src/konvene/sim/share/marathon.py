"""Long run of share partitions: millions of records, none lost and none acquired twice.

Only share partitions and the shard of the share coordinator run, without clients, requests or network.
Members acquire, accept, release and reject records, or let their locks expire; writes fail; both sides
restart from the log. A byte per record holds its owner, or that it is done, and is checked with each
acquisition.

    python -m konvene.sim.share.marathon --acquisitions 10000000
"""

# A command prints.
# ruff: noqa: T201

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from konvene.codec.batches import BatchHeader, Record, build, read_header
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.delivery.contract import Acknowledged, Acquired, AcquireMode, Change, Terms
from konvene.delivery.partition import SharePartition
from konvene.errors import Errors
from konvene.records.coordinator import Record as StateRecord
from konvene.shard.contract import Context
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import Initialize, Read, SharePartitionKey, Write
from konvene.share_state.shard import ShareStateShard
from konvene.sim.world.event import InvariantViolation

TOPIC = Topic("orders", Uuid(b"orders".ljust(16, b"-")), 1)
KEY = SharePartitionKey("g", TOPIC.id, 0)
RECORDS = 200_000
"""Number of records of a share partition."""
BATCH = 100
MEMBERS = 5
FREE, DONE = 0, 255
ACCEPT, RELEASE, REJECT = 1, 2, 3

_BASE = read_header(build([Record(offset, 0, None, None, ()) for offset in range(BATCH)]))


class SharePartitionRun:
    """A run of one share partition and its coordinator from the first record to the last."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.random = Random(seed)
        self.counts = counts
        self.now_ms = 0
        self.owners = bytearray(RECORDS)
        """For each record `FREE`, `DONE`, or the number of the member that acquired it."""
        self.acquired: list[tuple[int, Acquired, int]] = []
        self._config, _ = BrokerConfig.load()
        self._topics = Topics([TOPIC])
        self._log: list[StateRecord] = []
        self.terms = Terms(lock_ms=1_000, delivery_count_limit=5, max_record_locks=2_000)
        self.state = ShareStateShard()
        self._submit(Initialize(KEY, 1, 0))
        self.core = self._loaded()

    def __repr__(self) -> str:
        return f"<{self.core!r}>"

    def _submit(self, request: Initialize | Read | Write) -> Any:
        outcome = self.state.handle(request, Context(self.now_ms, self._config, 1, topics=self._topics))
        self._log.extend(outcome.records)
        for record in outcome.records:
            self.state.replay(record)
        return dict(outcome.replies)[1]

    def _loaded(self) -> SharePartition:
        core = SharePartition(KEY, self.terms)
        read = self._submit(Read(KEY, 0))
        core.load(read, 0, read.start_offset)
        return core

    def run(self) -> None:
        """Acquire and acknowledge records, at random, until all are done. Raises `InvariantViolation`."""
        while self.core.start_offset < RECORDS:
            self.now_ms += self.random.randint(0, 20)
            draw = self.random.random()
            if draw < 0.5:
                self._acquire()
            elif draw < 0.97:
                self._acknowledge()
            elif draw < 0.975:
                self._leave()
            elif draw < 0.999:
                self._expire()
            else:
                self._restart()
        if self.owners.count(DONE) != RECORDS:
            raise InvariantViolation(
                "NoRecordIsLost", f"{RECORDS - self.owners.count(DONE)} records are not done"
            )

    # --- events ---

    def _acquire(self) -> None:
        member = self.random.randint(1, MEMBERS)
        offset = self.core.next_fetch_offset
        if offset >= RECORDS or not self.core.can_acquire:
            self._expire()
            return
        base = offset - offset % BATCH
        headers: list[BatchHeader] = [
            _BASE._replace(base_offset=base_offset)
            for base_offset in range(base, min(base + 5 * BATCH, RECORDS), BATCH)
        ]  # fmt: skip
        rows, change = self.core.acquire(
            f"m{member}", headers, (), fetch_offset=offset, mode=AcquireMode(self.random.randint(0, 1)),
            max_records=self.random.choice([1, 50, 500]), batch_size=500, now_ms=self.now_ms,
        )  # fmt: skip
        for row in rows:
            count = row.last_offset - row.first_offset + 1
            if any(self.owners[row.first_offset : row.last_offset + 1]):
                raise InvariantViolation("RecordsAreAcquiredOnce", f"{row} of {self.core!r}")
            self.owners[row.first_offset : row.last_offset + 1] = bytes((member,)) * count
            self.acquired.append((member, row, self.now_ms + self.terms.lock_ms))
            self.counts["acquired"] += count
            self.counts["redelivered"] += count * (row.delivery_count > 1)
        self._write(change)

    def _acknowledge(self) -> None:
        """Let a member acknowledge one of the acquired batches, chosen at random, or only its first part."""
        if not self.acquired:
            return
        index = self.random.randrange(len(self.acquired))
        member, row, end_ms = self.acquired[index]
        if end_ms <= self.now_ms or self.random.random() < 0.02:
            self._expire()
            return
        del self.acquired[index]
        first, last, count = row
        middle = self.random.randint(first, last) if self.random.random() < 0.2 else last
        kind = self.random.choices((ACCEPT, RELEASE, REJECT), (90, 8, 2))[0]
        if middle < last:
            self.acquired.append((member, Acquired(middle + 1, last, count), end_ms))
        change = self.core.acknowledge(f"m{member}", [Acknowledged(first, middle, (kind,))], self.now_ms)
        if self._write(change):
            done = kind != RELEASE or count >= self.terms.delivery_count_limit
            self._mark(first, middle, DONE if done else FREE)
        else:
            self.acquired.append((member, Acquired(first, middle, count), end_ms))

    def _leave(self) -> None:
        member = self.random.randint(1, MEMBERS)
        change = self.core.release(f"m{member}")
        while not self._write(change):
            change = self.core.release(f"m{member}")
        self._drop_acquired(lambda owner, end_ms: owner == member)

    def _expire(self) -> None:
        self.now_ms += 100
        self._write(self.core.expire(self.now_ms))
        self._drop_acquired(lambda owner, end_ms: end_ms <= self.now_ms)

    def _restart(self) -> None:
        """Restart the share partition and the share coordinator from the log."""
        self.counts["restarts"] += 1
        self.state = ShareStateShard()
        for record in self._log:
            self.state.replay(record)
        self._drop_acquired(lambda owner, end_ms: True, restarted=True)
        self.core = self._loaded()
        for batch in self._submit(Read(KEY, 0)).batches:
            if batch.delivery_state in (2, 4):
                self._mark(max(batch.first_offset, 0), batch.last_offset, DONE)

    def _drop_acquired(self, matches: Callable[[int, int], bool], *, restarted: bool = False) -> None:
        """Remove those batches from `acquired` for whose member and lock end `matches` returns True.

        Their records become available again; or they are done if they reached the delivery limit. After a
        restart of the share partition (`restarted`) they are always available."""
        kept = []
        for member, row, end_ms in self.acquired:
            if not matches(member, end_ms):
                kept.append((member, row, end_ms))
                continue
            given_up = row.delivery_count >= self.terms.delivery_count_limit and not restarted
            self._mark(row.first_offset, row.last_offset, DONE if given_up else FREE)
        self.acquired = kept

    def _mark(self, first: int, last: int, owner: int) -> None:
        self.owners[first : last + 1] = bytes((owner,)) * (last - first + 1)

    def _write(self, change: Change | None) -> bool:
        """Write a change, and further ones that follow from it, to the share coordinator.

        Return False if a write failed. Only writes that the share partition can undo fail, at random."""
        while change is not None:
            fails = change.ticket.can_fail and self.random.random() < 0.01
            error = Errors.COORDINATOR_NOT_AVAILABLE
            if not fails:
                response = self._submit(
                    Write(KEY, self.core.state_epoch, 0, change.start_offset,
                          change.delivery_complete_count, change.batches)
                )  # fmt: skip
                error = response.error
                if error:
                    raise InvariantViolation("ShareWritesAreKept", f"{change} is answered with {response}")
            change = self.core.finished(change, error)
            if fails:
                self.counts["failed writes"] += 1
                return False
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Acquire and acknowledge millions of records.")
    parser.add_argument("--acquisitions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    started_s, seed = time.perf_counter(), options.seed
    while counts["acquired"] < options.acquisitions:
        SharePartitionRun(seed, counts).run()
        seed += 1
        counts["share partitions"] += 1
    seconds = time.perf_counter() - started_s
    totals = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(
        f"{totals}; none lost, none acquired twice; {seconds:.0f} s, {counts['acquired'] / seconds:.0f} per s"
    )


if __name__ == "__main__":
    main()
