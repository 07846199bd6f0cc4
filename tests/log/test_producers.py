"""Producers: a retry is answered, a gap or an old instance refused, a transaction remembered, as in Kafka."""

from __future__ import annotations

import pytest

from konvene.codec import batches as rb
from konvene.codec.batches import BatchHeader, build_simple, end_marker, read_header, records
from konvene.codec.errors import Malformed
from konvene.log.config import LogConfig
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from konvene.log.opening import open_log
from konvene.log.partition import PartitionLog
from konvene.log.producers import AbortedTransaction, Origin, Producers

NOW = 1_760_000_000_000


def batch(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = 9,
    transactional: bool = False,
    base: int = 0,
) -> bytes:
    return build_simple(
        [(b"k", b"v")] * count,
        NOW,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        base_offset=base,
    )


def header(*args: int, **options: int) -> BatchHeader:
    return read_header(batch(*args, **options))


def opened() -> PartitionLog:
    return open_log(MemoryDisk(), "/t-0", LogConfig(), clean=False, now_ms=NOW)[0]


def test_each_of_the_last_five_batches_is_known_again():
    """A retry of any of them is answered with its first offsets and not written; an older one is refused."""
    log = opened()
    for at in range(7):
        log.append_as_leader(batch(at * 2, 2), 0, NOW)
    for at in range(2, 7):
        again = log.append_as_leader(batch(at * 2, 2), 0, NOW)
        assert (again.base_offset, again.last_offset, again.duplicate) == (at * 2, at * 2 + 1, True)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(2, 2), 0, NOW)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(12, 3), 0, NOW)  # another range than the one that was written
    assert log.end_offset == 14


def test_sequences_follow_one_another_and_wrap():
    """A gap is refused; after 2^31-1 comes 0."""
    log = opened()
    log.append_as_leader(batch(2**31 - 2, 2), 0, NOW)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(1), 0, NOW)
    assert log.append_as_leader(batch(0), 0, NOW).base_offset == 2
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(2), 0, NOW)


def test_an_unknown_producer_may_begin_anywhere():
    """Its earlier records may have been deleted; transactions of version 2 nevertheless ask for 0."""
    assert opened().append_as_leader(batch(41), 0, NOW).base_offset == 0
    with pytest.raises(OutOfOrderSequence):
        opened().append_as_leader(batch(41), 0, NOW, sequence_zero=True)
    assert opened().append_as_leader(batch(0), 0, NOW, sequence_zero=True).base_offset == 0


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one():
    """A bumped epoch restarts its sequence; a producer with the old epoch is fenced."""
    log = opened()
    log.append_as_leader(batch(0, 5), 0, NOW)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(5, epoch=1), 0, NOW)
    log.append_as_leader(batch(0, epoch=1), 0, NOW)
    with pytest.raises(InvalidProducerEpoch):
        log.append_as_leader(batch(5), 0, NOW)
    with pytest.raises(InvalidRecord):
        log.append_as_leader(batch(-1, epoch=1), 0, NOW)


def test_a_coordinators_batches_have_no_sequence():
    """Offsets committed in a transaction are written by the coordinator: only the epoch is checked."""
    log = opened()
    for _ in range(2):
        log.append_built([(b"k", b"v")], 0, NOW, producer_id=9, producer_epoch=3, transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append_built([(b"k", b"v")], 0, NOW, producer_id=9, producer_epoch=2, transactional=True)
    with pytest.raises(InvalidTransactionState):
        log.append_built([(b"k", b"v")], 0, NOW, producer_id=9, producer_epoch=3)
    assert log.end_offset == 2


def test_readers_of_committed_data_stop_at_the_first_open_transaction():
    """The last stable offset waits for the oldest transaction, and then for its marker to be readable."""
    log = opened()
    log.append_as_leader(batch(0, producer=1), 0, NOW)
    log.append_as_leader(batch(0, producer=2, transactional=True), 0, NOW)
    log.append_as_leader(batch(0, producer=3, transactional=True), 0, NOW)
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(1) == 1
    log.append_marker(False, 0, NOW, producer_id=2, producer_epoch=0, coordinator_epoch=0)
    assert log.last_stable_offset(3) == 1  # the marker at 3 is not readable yet
    assert log.last_stable_offset(4) == 2
    log.append_marker(True, 0, NOW, producer_id=3, producer_epoch=0, coordinator_epoch=0)
    assert log.last_stable_offset(5) == 5
    assert log.aborted == [AbortedTransaction(2, 1, 3, 2)]
    assert log.aborted_transactions(0, 5) == log.aborted
    assert log.aborted_transactions(4, 5) == []
    assert log.aborted_transactions(0, 1) == []


def test_markers_are_fenced_by_epoch_and_coordinator():
    """Version 2 asks for the next epoch, an equal one is a retry; an old coordinator is refused."""
    log = opened()

    def mark(epoch: int, coordinator: int, version: int) -> int:
        return log.append_marker(
            True,
            0,
            NOW,
            producer_id=9,
            producer_epoch=epoch,
            coordinator_epoch=coordinator,
            transaction_version=version,
        ).base_offset

    log.append_as_leader(batch(0, epoch=4, transactional=True), 0, NOW)
    with pytest.raises(InvalidProducerEpoch):
        mark(4, 5, 2)
    with pytest.raises(InvalidProducerEpoch):
        mark(3, 5, 0)
    assert mark(5, 5, 2) == 1
    assert mark(5, 5, 2) == 2  # a retry: nothing is open any more
    with pytest.raises(TransactionCoordinatorFenced):
        mark(6, 4, 2)
    log.append_as_leader(batch(0, epoch=5), 0, NOW)
    assert mark(5, 5, 0) == 4


def test_a_silent_producer_is_forgotten():
    """After the expiration, unless its transaction is open."""
    producers = Producers()
    producers.note(header(0, producer=1))
    producers.note(header(0, producer=2, transactional=True))
    assert producers.expire(NOW + 999, 1000) == 0
    assert producers.expire(NOW + 1000, 1000) == 1
    assert list(producers.by_id) == [2]


def test_a_snapshot_keeps_what_a_producer_needs():
    """Epoch, last batch, open transaction and coordinator epoch come back; damage is noticed."""
    producers = Producers()
    producers.note(header(7, 3, producer=1, epoch=2, base=10))
    producers.note(header(0, 1, producer=2, transactional=True, base=13))
    marker = end_marker(
        True, producer_id=3, producer_epoch=1, coordinator_epoch=6, timestamp_ms=NOW, base_offset=14
    )
    end = rb.read_end_marker(records(marker)[0])
    assert end is not None
    producers.note_marker(read_header(marker), end)
    data = producers.snapshot()
    again = Producers.restore(data)
    assert again.snapshot() == data
    assert again.check(header(7, 3, producer=1, epoch=2), origin=Origin.CLIENT) == (7, 9, 10, 12, NOW)
    assert again.last_stable_offset(20) == 13
    assert again.by_id[3].coordinator_epoch == 6
    for at in range(len(data)):
        with pytest.raises(Malformed):
            Producers.restore(data[:at])
        with pytest.raises(Malformed):
            Producers.restore(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
