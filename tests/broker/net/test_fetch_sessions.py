"""Fetch sessions: what a client is told, and what it is told once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from konvene.broker.net import fetch_sessions
from konvene.broker.net.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_INT,
    FetchSessions,
    FinishedFetch,
    SessionError,
    next_epoch,
)
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

TOPIC, OTHER = Uuid(b"a" * 16), Uuid(b"b" * 16)


def request(session_id: int, epoch: int, *indexes: int, offset: int = 0, **more: Any) -> FetchRequest:
    wanted = tuple(FetchPartition(partition=i, fetch_offset=offset) for i in indexes)
    topics = (FetchTopic(topic_id=TOPIC, partitions=wanted),) if wanted else ()
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **more)


def quiet(index: int, **more: Any) -> PartitionData:
    """A partition at its end, with offsets 0 to 5."""
    told: dict[str, Any] = {"high_watermark": 5, "log_start_offset": 0, "records": b""}
    return PartitionData(partition_index=index, **(told | more))


def fetch(
    sessions: FetchSessions, asked: FetchRequest, *told: PartitionData, now_ms: int = 0, fresh_id: int = 7
) -> FinishedFetch:
    """A fetch whose partitions answer as told, or are quiet."""
    begun = sessions.begin(asked, with_ids=True, now_ms=now_ms)
    answers = {data.partition_index: data for data in told}
    found = [
        (i, answers.get(i.wanted.partition, quiet(i.wanted.partition))) for i in begun.interests.values()
    ]
    return sessions.finish(begun, found, now_ms=now_ms, fresh_id=fresh_id)


def indexes(answer: FinishedFetch) -> list[int]:
    return [data.partition_index for _, data in answer.found]


def opened(*partitions: int, slots: int = 10) -> FetchSessions:
    sessions = FetchSessions(slots)
    answer = fetch(sessions, request(0, INITIAL_EPOCH, *partitions))
    assert answer[:2] == (Errors.NONE, 7)
    return sessions


def refused(sessions: FetchSessions, asked: FetchRequest, *, with_ids: bool = True) -> Errors:
    with pytest.raises(SessionError) as info:
        sessions.begin(asked, with_ids=with_ids, now_ms=0)
    return info.value.error


def test_full_fetch_opens_a_session_and_is_answered_in_full() -> None:
    """Everything that was asked for is told, and the session remembers it."""
    sessions = FetchSessions(10)
    answer = fetch(sessions, request(0, INITIAL_EPOCH, 0, 1))
    assert indexes(answer) == [0, 1]
    assert repr(sessions) == "<1 fetch sessions, 2 partitions>"


def test_nothing_new_is_nothing_told() -> None:
    """The empty answer of an idle consumer."""
    sessions = opened(0, 1)
    for epoch in (1, 2, 3):
        assert FinishedFetch(Errors.NONE, 7, []) == fetch(sessions, request(7, epoch))


@pytest.mark.parametrize(
    "change",
    [
        {"high_watermark": 6},
        {"log_start_offset": 1},
        {"records": b"x"},
        {"error_code": Errors.OFFSET_OUT_OF_RANGE},
        {"diverging_epoch": EpochEndOffset(epoch=0, end_offset=3)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_new_is_told(change: dict[str, Any]) -> None:
    """Records, an error, a divergence, or a watermark that moved; of the other partition nothing."""
    assert indexes(fetch(opened(0, 1), request(7, 1), quiet(1, **change))) == [1]


def test_partition_that_recovers_from_an_error_is_told_again() -> None:
    """Though its watermarks are those that the client knew before."""
    sessions = opened(0)
    failed = quiet(0, error_code=Errors.KAFKA_STORAGE_ERROR, high_watermark=-1, log_start_offset=-1)
    assert indexes(fetch(sessions, request(7, 1), failed)) == [0]
    assert indexes(fetch(sessions, request(7, 2))) == [0]
    assert indexes(fetch(sessions, request(7, 3))) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    """An incremental request says only what is different, and the rest stays."""
    sessions = opened(0, 1)
    forget = (ForgottenTopic(topic_id=TOPIC, partitions=(0, 9)), ForgottenTopic(topic_id=OTHER))
    asked = request(7, 1, 1, 2, offset=4, forgotten_topics_data=forget)
    begun = sessions.begin(asked, with_ids=True, now_ms=0)
    kept = [(i.wanted.partition, i.wanted.fetch_offset) for i in begun.interests.values()]
    assert kept == [(1, 4), (2, 4)]
    assert repr(sessions) == "<1 fetch sessions, 2 partitions>"


def test_partition_named_twice_is_fetched_once_as_said_last() -> None:
    """The same key keeps its place and takes the last word."""
    wanted = tuple(FetchPartition(partition=i, fetch_offset=o) for i, o in ((0, 1), (1, 2), (0, 3)))
    asked = FetchRequest(topics=(FetchTopic(topic_id=TOPIC, partitions=wanted),))
    begun = FetchSessions(0).begin(asked, with_ids=True, now_ms=0)
    assert [(i.wanted.partition, i.wanted.fetch_offset) for i in begun.interests.values()] == [(0, 3), (1, 2)]


def test_partitions_that_were_served_go_behind_the_others() -> None:
    """So that those behind them are not starved by a size limit."""
    sessions = opened(0, 1, 2)
    fetch(sessions, request(7, 1), quiet(0, records=b"x"), quiet(1, high_watermark=9))
    begun = sessions.begin(request(7, 2), with_ids=True, now_ms=0)
    assert [i.wanted.partition for i in begun.interests.values()] == [1, 2, 0]


def test_session_that_nobody_has() -> None:
    """FETCH_SESSION_ID_NOT_FOUND, for session 0 and negative ones as well."""
    sessions = opened(0)
    for session_id in (0, 8, -5):
        assert refused(sessions, request(session_id, 1)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_out_of_turn_changes_nothing() -> None:
    """INVALID_FETCH_SESSION_EPOCH, and the right epoch is served afterwards."""
    sessions = opened(0)
    for epoch in (2, 99, MAX_INT):
        assert refused(sessions, request(7, epoch, 5)) == Errors.INVALID_FETCH_SESSION_EPOCH
    assert indexes(fetch(sessions, request(7, 1))) == []


def test_session_by_id_is_not_continued_by_name() -> None:
    """FETCH_SESSION_TOPIC_ID_ERROR, and the session lives on."""
    sessions = opened(0)
    assert refused(sessions, request(7, 1), with_ids=False) == Errors.FETCH_SESSION_TOPIC_ID_ERROR
    assert indexes(fetch(sessions, request(7, 1))) == []


def test_fetch_that_was_overtaken_is_told_so() -> None:
    """While it waited, the client went on with the next epoch."""
    sessions = opened(0)
    slow = sessions.begin(request(7, 1), with_ids=True, now_ms=0)
    fetch(sessions, request(7, 2))
    answer = sessions.finish(slow, [], now_ms=0, fresh_id=1)
    assert FinishedFetch(Errors.INVALID_FETCH_SESSION_EPOCH, 7, []) == answer


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_full_fetch_closes_the_session_it_names(epoch: int) -> None:
    """A first epoch opens another in its place, a final one opens none."""
    sessions = opened(0)
    answer = fetch(sessions, request(7, epoch, 0), fresh_id=9)
    assert (9 if epoch == INITIAL_EPOCH else 0) == answer.session_id
    assert indexes(answer) == [0]
    assert refused(sessions, request(7, 1)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_session_without_partitions_is_closed() -> None:
    """Once all are forgotten the answer has session id 0."""
    sessions = opened(0)
    forget = (ForgottenTopic(topic_id=TOPIC, partitions=(0,)),)
    assert FinishedFetch(Errors.NONE, 0, []) == fetch(sessions, request(7, 1, forgotten_topics_data=forget))
    assert len(sessions) == 0


def test_recreated_topic_is_another_partition() -> None:
    """By id the old one and the new one stand beside each other; the name of the old one stays."""
    sessions = opened(0)
    asked = FetchRequest(
        session_id=7,
        session_epoch=1,
        topics=(FetchTopic(topic_id=OTHER, partitions=(FetchPartition(partition=0),)),),
    )
    begun = sessions.begin(asked, with_ids=True, now_ms=0)
    assert list(begun.interests) == [(TOPIC, 0), (OTHER, 0)]


def test_epochs_begin_again_at_one() -> None:
    assert [next_epoch(e) for e in (0, 1, MAX_INT - 1, MAX_INT)] == [1, 2, MAX_INT, 1]


def fill(sessions: FetchSessions, sizes: Iterable[int], now_ms: int = 0) -> list[int]:
    """Open sessions of so many partitions; the ids they got, 0 for none."""
    return [
        fetch(sessions, request(0, INITIAL_EPOCH, *range(size)), now_ms=now_ms).session_id for size in sizes
    ]


def test_ids_are_never_shared() -> None:
    """A random id that is taken gives way to the next that is free, around the end."""
    sessions = FetchSessions(10)
    ids = [
        fetch(sessions, request(0, INITIAL_EPOCH, 0), fresh_id=MAX_INT).session_id,
        fetch(sessions, request(0, INITIAL_EPOCH, 0), fresh_id=MAX_INT).session_id,
    ]
    assert ids == [MAX_INT, 1]


def test_no_slots_no_sessions() -> None:
    """Every fetch is answered in full."""
    assert fill(FetchSessions(0), [1, 1]) == [0, 0]


def test_full_house_keeps_young_sessions() -> None:
    """Whoever comes late is answered in full, however much it asks for."""
    sessions = FetchSessions(2)
    assert fill(sessions, [1, 1, 100]) == [7, 8, 0]
    assert fill(sessions, [100], now_ms=EVICTION_MS)[0] == 0


def test_the_longest_unused_session_goes_first() -> None:
    """Using a session keeps it."""
    sessions = FetchSessions(2)
    fill(sessions, [3, 3])
    fetch(sessions, request(7, 1), now_ms=1)
    assert fill(sessions, [1], now_ms=EVICTION_MS + 1) == [8]
    assert refused(sessions, request(7, 9)) == Errors.INVALID_FETCH_SESSION_EPOCH


def test_a_small_old_session_gives_way_to_a_larger_one() -> None:
    """Both are in use, and the one with more partitions gains more by a session."""
    sessions = FetchSessions(2)
    fill(sessions, [2, 3])
    now_ms = EVICTION_MS + 1
    for session_id in (7, 8):
        fetch(sessions, request(session_id, 1), now_ms=now_ms)
    assert fill(sessions, [2], now_ms=now_ms) == [0]
    assert [fetch(sessions, request(0, INITIAL_EPOCH, 0, 1, 2), now_ms=now_ms, fresh_id=9).session_id] == [9]
    assert refused(sessions, request(7, 2)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that would not fit is not opened; one that outgrows the bound is closed."""
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 5)
    sessions = FetchSessions(10)
    assert fill(sessions, [3, 3, 2]) == [7, 0, 8]
    assert refused(sessions, request(8, 1, 0, 1, 2)) == Errors.FETCH_SESSION_ID_NOT_FOUND
    assert repr(sessions) == "<1 fetch sessions, 3 partitions>"
