"""EndTxn: every state, request and epoch of both generations of clients; epochs that run out; markers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.transactions.asking import FIRST_ID, NEW, OLD, OUT, Asked, end_request
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
"""Producers: with the epoch before the present one, the present, the next; with another id."""

SAME, BUMPED = (7, 3), (7, 4)

OLD_CLIENTS: list[tuple[TransactionState, Any, Any]] = [
    # state, what an abort and a commit of the present producer are answered
    (EMPTY, STATE, STATE),
    (ONGOING, OK, OK),
    (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT, CONCURRENT),
    (COMPLETE_COMMIT, STATE, OK),
    (COMPLETE_ABORT, OK, STATE),
]

NEW_CLIENTS: list[tuple[TransactionState, tuple[Any, ...], tuple[Any, ...]]] = [
    # state, what aborts and commits with the epoch before, the present, and the next one are answered
    (EMPTY, (FENCED, BUMPED, FENCED), (FENCED, STATE, FENCED)),
    (ONGOING, (FENCED, BUMPED, FENCED), (FENCED, BUMPED, FENCED)),
    (PREPARE_COMMIT, (CONCURRENT, CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT, CONCURRENT)),
    (PREPARE_ABORT, (CONCURRENT, CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT, CONCURRENT)),
    (COMPLETE_COMMIT, (STATE, BUMPED, FENCED), (SAME, STATE, FENCED)),
    (COMPLETE_ABORT, (SAME, BUMPED, FENCED), (STATE, STATE, FENCED)),
]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("state", "abort", "commit"), OLD_CLIENTS)
def test_an_older_client_in_each_state(
    state: TransactionState, abort: Errors, commit: Errors, level: int
) -> None:
    for committed, answer in ((False, abort), (True, commit)):
        for producer, told in ((NOW, answer), (BEFORE, FENCED), (LATER, FENCED), (OTHER, MAPPING)):
            asked = Asked(level)
            put(asked, state=state)
            assert asked.end(producer, committed, OLD) is told
            moves = state is ONGOING and told is OK
            assert len(asked.log) == len(asked.effects) == moves


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("state", "aborts", "commits"), NEW_CLIENTS)
def test_a_newer_client_in_each_state(
    state: TransactionState, aborts: tuple[Any, ...], commits: tuple[Any, ...], level: int
) -> None:
    ending = state in (PREPARE_ABORT, PREPARE_COMMIT)
    for committed, answers in ((False, aborts), (True, commits)):
        other = CONCURRENT if ending else MAPPING
        for producer, told in zip((BEFORE, NOW, LATER, OTHER), (*answers, other), strict=True):
            asked = Asked(level)
            put(asked, state=state)
            assert asked.end(producer, committed, NEW) == told
            assert len(asked.log) == len(asked.effects) == (told == BUMPED)


@pytest.mark.parametrize("version", range(6))
def test_nobody_knows_the_id(version: int) -> None:
    asked = Asked()
    assert asked.end(NOW, True, version) is MAPPING
    assert asked.end(NOW, True, version, name="") is Errors.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_old_clients_hear_an_older_word(version: int) -> None:
    asked = Asked()
    put(asked, state=ONGOING)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert asked.end((7, 9), True, version) is fenced


@pytest.mark.parametrize("committed", [False, True])
def test_an_older_client_keeps_its_epoch(committed: bool) -> None:
    asked = Asked(1)
    producer = asked.init()
    asked.now_ms += 5
    asked.add(producer, [OUT, ("in", 3)], version=3)
    began_ms = asked.now_ms
    asked.now_ms += 5
    assert asked.end(producer, committed, OLD) is OK
    told = MarkersToWrite("t", FIRST_ID, 0, committed, 0, (("in", 3), OUT))
    assert asked.effects == [Effect(WRITE_MARKERS, told)]
    prepared = asked.of()
    assert prepared.state is (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (prepared.start_ms, prepared.last_update_ms) == (began_ms, asked.now_ms)
    assert prepared.partitions == {OUT, ("in", 3)}
    asked.now_ms += 5
    asked.write_markers()
    complete = COMPLETE_COMMIT if committed else COMPLETE_ABORT
    assert asked.of() == replace(
        prepared, state=complete, partitions=frozenset(), last_update_ms=asked.now_ms
    )
    assert asked.end(producer, committed, OLD) is OK
    assert asked.add(producer, version=3) is OK
    assert asked.of().start_ms == asked.now_ms


@pytest.mark.parametrize("committed", [False, True])
def test_a_newer_client_has_the_next_epoch(committed: bool) -> None:
    asked = Asked()
    producer = asked.init()
    asked.add(producer)
    assert asked.end(producer, committed) == (FIRST_ID, 1)
    told = MarkersToWrite("t", FIRST_ID, 1, committed, 2, (OUT,))
    assert asked.effects == [Effect(WRITE_MARKERS, told)]
    assert asked.end(producer, committed) is CONCURRENT
    assert asked.of().last_producer_epoch == 0
    asked.write_markers()
    assert asked.end(producer, committed) == (FIRST_ID, 1)
    assert asked.end(producer, not committed) is STATE
    assert asked.add(producer) is FENCED
    assert asked.add((FIRST_ID, 1)) is OK
    assert asked.end(producer, committed) is FENCED


def test_an_abort_of_nothing_has_markers_for_nobody() -> None:
    asked = Asked()
    producer = asked.init()
    assert asked.end(producer, False) == (FIRST_ID, 1)
    assert asked.of().start_ms == asked.now_ms
    assert asked.write_markers() == [MarkersToWrite("t", FIRST_ID, 1, False, 2, ())]
    assert asked.of().state is COMPLETE_ABORT
    assert asked.of().start_ms != -1


def test_a_client_that_did_not_hear_of_its_end_goes_on() -> None:
    """InitProducerId with the epoch of before the end is answered with the one that the end brought."""
    asked = Asked()
    producer = asked.init()
    asked.add(producer)
    asked.end(producer, True)
    asked.write_markers()
    assert asked.init(producer) == (FIRST_ID, 1)


LAST_TOLD = (7, LAST_EPOCH - 1)


@pytest.mark.parametrize("committed", [False, True])
def test_epochs_run_out_in_an_end(committed: bool) -> None:
    """The answer names the next id; until the markers are written the old one ends its transaction."""
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1, state=ONGOING, partitions=frozenset({OUT}))
    assert asked.end(LAST_TOLD, committed) == (FIRST_ID, 0)
    assert (asked.of().producer_id, asked.of().producer_epoch) == (7, LAST_EPOCH)
    assert asked.of().next_producer_id == FIRST_ID
    assert asked.add((FIRST_ID, 0)) is CONCURRENT
    again = asked.restarted()
    for coordinator in (asked, again):
        told = coordinator.write_markers()
        assert told == [MarkersToWrite("t", 7, LAST_EPOCH, committed, 2, (OUT,))]
        known = coordinator.of()
        assert (known.producer_id, known.producer_epoch, known.next_producer_id) == (FIRST_ID, 0, -1)
        assert known.previous_producer_id == 7
        assert coordinator.end(LAST_TOLD, committed) == (FIRST_ID, 0)
        assert coordinator.end(LAST_TOLD, not committed) is STATE
    assert asked.of().last_producer_epoch == LAST_EPOCH - 1
    assert asked.init(LAST_TOLD) == (FIRST_ID, 0)
    assert asked.add((FIRST_ID, 0)) is OK
    assert asked.end(LAST_TOLD, committed) is MAPPING


def test_the_epoch_before_the_last_needs_no_id() -> None:
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 2, state=ONGOING)
    assert not asked.shard.needs_producer_id(end_request((7, LAST_EPOCH - 2), True), NEW)
    assert asked.end((7, LAST_EPOCH - 2), True) == LAST_TOLD


def test_who_needs_an_id_to_end() -> None:
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH - 1, state=ONGOING)
    request = end_request(LAST_TOLD, True)
    assert asked.shard.needs_producer_id(request, NEW)
    assert not asked.shard.needs_producer_id(request, OLD)
    assert not asked.shard.needs_producer_id(EndTxnRequest(transactional_id="nobody"), NEW)
    (reply,) = asked.carry_out(asked.shard.handle(request, asked.context(NEW))).replies
    assert reply.response.error_code == CONCURRENT  # type: ignore[attr-defined]
    assert asked.log == []


def test_at_the_epoch_that_nobody_has() -> None:
    """An old client's transaction was aborted with it. To abort is no error even then."""
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH, state=COMPLETE_ABORT)
    assert asked.end((7, LAST_EPOCH), False) == (FIRST_ID, 0)
    assert asked.of().producer_epoch == LAST_EPOCH
    asked.write_markers()
    assert (asked.of().producer_id, asked.of().producer_epoch) == (FIRST_ID, 0)


def test_nobody_commits_at_the_epoch_that_nobody_has() -> None:
    """It cannot be asked for; were it, there is no epoch to go to."""
    asked = Asked()
    put(asked, producer_epoch=LAST_EPOCH, state=ONGOING)
    with pytest.raises(ValueError, match="cannot become"):
        asked.end((7, LAST_EPOCH), True)
    assert asked.log == []


def test_the_end_tells_the_generation_of_whoever_asked_for_it() -> None:
    """Not that of who began; the markers carry the epoch that goes with it."""
    for version, told in ((OLD, (0, 0)), (NEW, (1, 2))):
        asked = Asked()
        producer = asked.init()
        asked.add(producer, version=5 if version == OLD else 3)
        asked.end(producer, True, version)
        (marked,) = asked.write_markers()
        assert (marked.producer_epoch, marked.transaction_version) == told


def test_news_of_markers_count_once_and_for_their_own_end() -> None:
    asked = Asked()
    producer = asked.init()
    assert asked.inform(MarkersWritten("t", *producer)) == NOTHING
    asked.add(producer)
    assert asked.inform(MarkersWritten("t", *producer)) == NOTHING
    asked.end(producer, True)
    assert asked.inform(MarkersWritten("t", *producer)) == NOTHING
    assert asked.inform(MarkersWritten("t", 6, 1)) == NOTHING
    assert asked.inform(MarkersWritten("u", FIRST_ID, 1)) == NOTHING
    assert asked.inform(MarkersWritten("t", FIRST_ID, 1)) != NOTHING
    assert asked.inform(MarkersWritten("t", FIRST_ID, 1)) == NOTHING
    assert asked.of().state is COMPLETE_COMMIT


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_restart_ends_what_was_to_end(level: int) -> None:
    asked = Asked(level)
    producer = asked.init()
    version, added = (NEW, 5) if level == 2 else (OLD, 3)
    asked.add(producer, version=added)
    asked.end(producer, True, version)
    again = asked.restarted()
    assert again.effects == asked.effects
    assert sorted(again.timers) == [("expired",), ("timed-out",)]
    again.write_markers()
    assert again.of().state is COMPLETE_COMMIT
    assert again.restarted().effects == []


def test_a_cluster_at_level_0_writes_version_0() -> None:
    asked = Asked(0)
    producer = asked.init()
    asked.add(producer, version=3)
    asked.end(producer, True, OLD)
    asked.write_markers()
    assert {value[:2] for _, value in asked.log if value is not None} == {b"\0\0"}
    assert asked.of().previous_producer_id == FIRST_ID
    assert asked.restarted().of() == replace(asked.of(), previous_producer_id=-1)
    asked.level = 1
    asked.init()
    last = asked.log[-1][1]
    assert last is not None
    assert last[:2] == b"\0\1"
    assert asked.restarted().of() == asked.of()


def test_version_0_has_no_room_for_newer_clients() -> None:
    """Kafka refuses as well, and answers CONCURRENT_TRANSACTIONS ever after; here nothing has changed."""
    asked = Asked(0)
    producer = asked.init()
    assert asked.add(producer, version=5) is Errors.UNSUPPORTED_VERSION
    assert asked.end(producer, False, NEW) is Errors.UNSUPPORTED_VERSION
    assert asked.end(producer, True, NEW) is STATE
    assert asked.add(producer, version=3) is OK
    assert asked.add(producer, version=5) is OK
    assert asked.add(producer, [("in", 0)], 5, verify_only=True) == {("in", 0): Errors.TRANSACTION_ABORTABLE}
    assert asked.add(producer, [("in", 0)], version=5) is Errors.UNSUPPORTED_VERSION
    assert asked.end(producer, True, NEW) is Errors.UNSUPPORTED_VERSION
    assert asked.end(producer, True, OLD) is OK


def test_what_a_newer_client_left_is_ended_at_a_lower_level() -> None:
    asked = Asked(2)
    producer = asked.init()
    asked.add(producer)
    asked.end(producer, True, NEW)
    asked.level = 0
    asked.write_markers()
    assert asked.of().state is COMPLETE_COMMIT
    assert asked.init() == (FIRST_ID, 2)
    again = asked.restarted().of()
    assert (again.producer_id, again.producer_epoch, again.client_transaction_version) == (FIRST_ID, 2, 0)
