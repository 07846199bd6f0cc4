"""EndTxn: every state, result and epoch with and without KIP-890; exhausted epochs; markers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.transactions.harness import FIRST_ID, NEW, OLD, OUT, TransactionHarness, end_request
from tests.transactions.test_init_producer_id import put

from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest
from konvene.shard.contract import NOTHING, Effect
from konvene.transactions.markers import WRITE_MARKERS, MarkersToWrite, MarkersWritten
from konvene.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

OK, FENCED, MAPPING = Errors.NONE, Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, STATE = Errors.CONCURRENT_TRANSACTIONS, Errors.INVALID_TXN_STATE

BEFORE, NOW, LATER, OTHER = (7, 2), (7, 3), (7, 4), (6, 3)
"""Producers with the previous, the current and the next epoch, and with another id."""

SAME, BUMPED = (7, 3), (7, 4)

OLD_CLIENTS: list[tuple[TransactionState, Any, Any]] = [
    # state, response to an abort and to a commit of the current producer
    (EMPTY, STATE, STATE),
    (ONGOING, OK, OK),
    (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT, CONCURRENT),
    (COMPLETE_COMMIT, STATE, OK),
    (COMPLETE_ABORT, OK, STATE),
]

NEW_CLIENTS: list[tuple[TransactionState, tuple[Any, ...], tuple[Any, ...]]] = [
    # state, responses to aborts and to commits with the previous, the current and the next epoch
    (EMPTY, (FENCED, BUMPED, FENCED), (FENCED, STATE, FENCED)),
    (ONGOING, (FENCED, BUMPED, FENCED), (FENCED, BUMPED, FENCED)),
    (PREPARE_COMMIT, (CONCURRENT, CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT, CONCURRENT)),
    (PREPARE_ABORT, (CONCURRENT, CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT, CONCURRENT)),
    (COMPLETE_COMMIT, (STATE, BUMPED, FENCED), (SAME, STATE, FENCED)),
    (COMPLETE_ABORT, (SAME, BUMPED, FENCED), (STATE, STATE, FENCED)),
]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("state", "abort", "commit"), OLD_CLIENTS)
def test_older_client_in_each_state(
    state: TransactionState, abort: Errors, commit: Errors, level: int
) -> None:
    for committed, answer in ((False, abort), (True, commit)):
        for producer, expected in ((NOW, answer), (BEFORE, FENCED), (LATER, FENCED), (OTHER, MAPPING)):
            harness = TransactionHarness(level)
            put(harness, state=state)
            assert harness.end(producer, committed, OLD) is expected
            ends = state is ONGOING and expected is OK
            assert len(harness.log) == len(harness.effects) == ends


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("state", "aborts", "commits"), NEW_CLIENTS)
def test_newer_client_in_each_state(
    state: TransactionState, aborts: tuple[Any, ...], commits: tuple[Any, ...], level: int
) -> None:
    ending = state in (PREPARE_ABORT, PREPARE_COMMIT)
    for committed, answers in ((False, aborts), (True, commits)):
        other = CONCURRENT if ending else MAPPING
        for producer, expected in zip((BEFORE, NOW, LATER, OTHER), (*answers, other), strict=True):
            harness = TransactionHarness(level)
            put(harness, state=state)
            assert harness.end(producer, committed, NEW) == expected
            assert len(harness.log) == len(harness.effects) == (expected == BUMPED)


@pytest.mark.parametrize("version", range(6))
def test_unknown_transactional_id_is_rejected(version: int) -> None:
    harness = TransactionHarness()
    assert harness.end(NOW, True, version) is MAPPING
    assert harness.end(NOW, True, version, name="") is Errors.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_old_versions_get_invalid_producer_epoch(version: int) -> None:
    harness = TransactionHarness()
    put(harness, state=ONGOING)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert harness.end((7, 9), True, version) is fenced


@pytest.mark.parametrize("committed", [False, True])
def test_older_client_keeps_its_epoch(committed: bool) -> None:
    harness = TransactionHarness(1)
    producer = harness.init()
    harness.now_ms += 5
    harness.add(producer, [OUT, ("in", 3)], version=3)
    began_ms = harness.now_ms
    harness.now_ms += 5
    assert harness.end(producer, committed, OLD) is OK
    markers = MarkersToWrite("t", FIRST_ID, 0, committed, 0, (("in", 3), OUT))
    assert harness.effects == [Effect(WRITE_MARKERS, markers)]
    prepared = harness.transaction()
    assert prepared.state is (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (prepared.start_ms, prepared.last_update_ms) == (began_ms, harness.now_ms)
    assert prepared.partitions == {OUT, ("in", 3)}
    harness.now_ms += 5
    harness.write_markers()
    complete = COMPLETE_COMMIT if committed else COMPLETE_ABORT
    assert harness.transaction() == replace(
        prepared, state=complete, partitions=frozenset(), last_update_ms=harness.now_ms
    )
    assert harness.end(producer, committed, OLD) is OK
    assert harness.add(producer, version=3) is OK
    assert harness.transaction().start_ms == harness.now_ms


@pytest.mark.parametrize("committed", [False, True])
def test_newer_client_gets_the_next_epoch(committed: bool) -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer)
    assert harness.end(producer, committed) == (FIRST_ID, 1)
    markers = MarkersToWrite("t", FIRST_ID, 1, committed, 2, (OUT,))
    assert harness.effects == [Effect(WRITE_MARKERS, markers)]
    assert harness.end(producer, committed) is CONCURRENT
    assert harness.transaction().last_producer_epoch == 0
    harness.write_markers()
    assert harness.end(producer, committed) == (FIRST_ID, 1)
    assert harness.end(producer, not committed) is STATE
    assert harness.add(producer) is FENCED
    assert harness.add((FIRST_ID, 1)) is OK
    assert harness.end(producer, committed) is FENCED


def test_abort_without_partitions_writes_no_markers() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    assert harness.end(producer, False) == (FIRST_ID, 1)
    assert harness.transaction().start_ms == harness.now_ms
    assert harness.write_markers() == [MarkersToWrite("t", FIRST_ID, 1, False, 2, ())]
    assert harness.transaction().state is COMPLETE_ABORT
    assert harness.transaction().start_ms != -1


def test_client_that_lost_its_end_response_continues() -> None:
    """InitProducerId with the epoch before the end returns the epoch after it."""
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer)
    harness.end(producer, True)
    harness.write_markers()
    assert harness.init(producer) == (FIRST_ID, 1)


LAST_USABLE = (7, LAST_EPOCH - 1)


@pytest.mark.parametrize("committed", [False, True])
def test_end_that_exhausts_the_epochs(committed: bool) -> None:
    """The response has the next producer id; the markers still have the old one."""
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({OUT}))
    assert harness.end(LAST_USABLE, committed) == (FIRST_ID, 0)
    assert (harness.transaction().producer_id, harness.transaction().producer_epoch) == (7, LAST_EPOCH)
    assert harness.transaction().next_producer_id == FIRST_ID
    assert harness.add((FIRST_ID, 0)) is CONCURRENT
    again = harness.restarted()
    for coordinator in (harness, again):
        markers = coordinator.write_markers()
        assert markers == [MarkersToWrite("t", 7, LAST_EPOCH, committed, 2, (OUT,))]
        known = coordinator.transaction()
        assert (known.producer_id, known.producer_epoch, known.next_producer_id) == (FIRST_ID, 0, -1)
        assert known.previous_producer_id == 7
        assert coordinator.end(LAST_USABLE, committed) == (FIRST_ID, 0)
        assert coordinator.end(LAST_USABLE, not committed) is STATE
    assert harness.transaction().last_producer_epoch == LAST_EPOCH - 1
    assert harness.init(LAST_USABLE) == (FIRST_ID, 0)
    assert harness.add((FIRST_ID, 0)) is OK
    assert harness.end(LAST_USABLE, committed) is MAPPING


def test_second_to_last_epoch_needs_no_producer_id() -> None:
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 2, state=ONGOING)
    assert not harness.shard.needs_producer_id(end_request((7, LAST_EPOCH - 2), True), NEW)
    assert harness.end((7, LAST_EPOCH - 2), True) == LAST_USABLE


def test_end_with_the_last_epoch_needs_a_producer_id() -> None:
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH - 1, state=ONGOING)
    request = end_request(LAST_USABLE, True)
    assert harness.shard.needs_producer_id(request, NEW)
    assert not harness.shard.needs_producer_id(request, OLD)
    assert not harness.shard.needs_producer_id(EndTxnRequest(transactional_id="unknown"), NEW)
    (reply,) = harness.apply(harness.shard.handle(request, harness.context(NEW))).replies
    assert reply.response.error_code == CONCURRENT  # type: ignore[attr-defined]
    assert harness.log == []


def test_abort_at_the_fencing_epoch_is_accepted() -> None:
    """The transaction of an old client was aborted with the fencing epoch; another abort is no error."""
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH, state=COMPLETE_ABORT)
    assert harness.end((7, LAST_EPOCH), False) == (FIRST_ID, 0)
    assert harness.transaction().producer_epoch == LAST_EPOCH
    harness.write_markers()
    assert (harness.transaction().producer_id, harness.transaction().producer_epoch) == (FIRST_ID, 0)


def test_commit_at_the_fencing_epoch_is_impossible() -> None:
    """No client has this epoch, and there is no next one."""
    harness = TransactionHarness()
    put(harness, producer_epoch=LAST_EPOCH, state=ONGOING)
    with pytest.raises(ValueError, match="cannot become"):
        harness.end((7, LAST_EPOCH), True)
    assert harness.log == []


def test_markers_have_the_transaction_version_of_the_end_request() -> None:
    """The version of the first AddPartitionsToTxn does not matter."""
    for version, expected in ((OLD, (0, 0)), (NEW, (1, 2))):
        harness = TransactionHarness()
        producer = harness.init()
        harness.add(producer, version=5 if version == OLD else 3)
        harness.end(producer, True, version)
        (marked,) = harness.write_markers()
        assert (marked.producer_epoch, marked.transaction_version) == expected


def test_written_markers_complete_their_own_transaction_once() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    assert harness.inform(MarkersWritten("t", *producer)) == NOTHING
    harness.add(producer)
    assert harness.inform(MarkersWritten("t", *producer)) == NOTHING
    harness.end(producer, True)
    assert harness.inform(MarkersWritten("t", *producer)) == NOTHING
    assert harness.inform(MarkersWritten("t", 6, 1)) == NOTHING
    assert harness.inform(MarkersWritten("u", FIRST_ID, 1)) == NOTHING
    assert harness.inform(MarkersWritten("t", FIRST_ID, 1)) != NOTHING
    assert harness.inform(MarkersWritten("t", FIRST_ID, 1)) == NOTHING
    assert harness.transaction().state is COMPLETE_COMMIT


@pytest.mark.parametrize("level", [0, 1, 2])
def test_restart_writes_pending_markers(level: int) -> None:
    harness = TransactionHarness(level)
    producer = harness.init()
    version, added = (NEW, 5) if level == 2 else (OLD, 3)
    harness.add(producer, version=added)
    harness.end(producer, True, version)
    again = harness.restarted()
    assert again.effects == harness.effects
    assert sorted(again.timers) == [("expired",), ("timed-out",)]
    again.write_markers()
    assert again.transaction().state is COMPLETE_COMMIT
    assert again.restarted().effects == []


def test_feature_level_0_writes_version_0() -> None:
    harness = TransactionHarness(0)
    producer = harness.init()
    harness.add(producer, version=3)
    harness.end(producer, True, OLD)
    harness.write_markers()
    assert {value[:2] for _, value in harness.log if value is not None} == {b"\0\0"}
    assert harness.transaction().previous_producer_id == FIRST_ID
    assert harness.restarted().transaction() == replace(harness.transaction(), previous_producer_id=-1)
    harness.level = 1
    harness.init()
    last = harness.log[-1][1]
    assert last is not None
    assert last[:2] == b"\0\1"
    assert harness.restarted().transaction() == harness.transaction()


def test_version_0_rejects_newer_clients() -> None:
    """Kafka rejects them too, and answers CONCURRENT_TRANSACTIONS from then on; here nothing changes."""
    harness = TransactionHarness(0)
    producer = harness.init()
    assert harness.add(producer, version=5) is Errors.UNSUPPORTED_VERSION
    assert harness.end(producer, False, NEW) is Errors.UNSUPPORTED_VERSION
    assert harness.end(producer, True, NEW) is STATE
    assert harness.add(producer, version=3) is OK
    assert harness.add(producer, version=5) is OK
    assert harness.add(producer, [("in", 0)], 5, verify_only=True) == {
        ("in", 0): Errors.TRANSACTION_ABORTABLE
    }
    assert harness.add(producer, [("in", 0)], version=5) is Errors.UNSUPPORTED_VERSION
    assert harness.end(producer, True, NEW) is Errors.UNSUPPORTED_VERSION
    assert harness.end(producer, True, OLD) is OK


def test_transaction_of_a_newer_client_completes_at_a_lower_level() -> None:
    harness = TransactionHarness(2)
    producer = harness.init()
    harness.add(producer)
    harness.end(producer, True, NEW)
    harness.level = 0
    harness.write_markers()
    assert harness.transaction().state is COMPLETE_COMMIT
    assert harness.init() == (FIRST_ID, 2)
    again = harness.restarted().transaction()
    assert (again.producer_id, again.producer_epoch, again.client_transaction_version) == (FIRST_ID, 2, 0)
