"""Fetch sessions: which partitions a response has, and which sessions are evicted."""

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
    partitions = tuple(FetchPartition(partition=i, fetch_offset=offset) for i in indexes)
    topics = (FetchTopic(topic_id=TOPIC, partitions=partitions),) if partitions else ()
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **more)


def idle(index: int, **more: Any) -> PartitionData:
    """Result of a partition without new records, with offsets 0 to 5."""
    unchanged: dict[str, Any] = {"high_watermark": 5, "log_start_offset": 0, "records": b""}
    return PartitionData(partition_index=index, **(unchanged | more))


def fetch(
    sessions: FetchSessions,
    request: FetchRequest,
    *results: PartitionData,
    now_ms: int = 0,
    fresh_id: int = 7,
) -> FinishedFetch:
    """Run a fetch whose partitions have these results; the others are idle."""
    open_session = sessions.begin(request, with_ids=True, now_ms=now_ms)
    by_index = {data.partition_index: data for data in results}
    read = [
        (partition, by_index.get(partition.request.partition, idle(partition.request.partition)))
        for partition in open_session.partitions.values()
    ]
    return sessions.finish(open_session, read, now_ms=now_ms, fresh_id=fresh_id)


def indexes(response: FinishedFetch) -> list[int]:
    return [data.partition_index for _, data in response.results]


def opened(*partitions: int, limit: int = 10) -> FetchSessions:
    sessions = FetchSessions(limit)
    response = fetch(sessions, request(0, INITIAL_EPOCH, *partitions))
    assert response[:2] == (Errors.NONE, 7)
    return sessions


def error_of(sessions: FetchSessions, request: FetchRequest, *, with_ids: bool = True) -> Errors:
    with pytest.raises(SessionError) as info:
        sessions.begin(request, with_ids=with_ids, now_ms=0)
    return info.value.error


def test_full_fetch_opens_a_session_and_returns_all_partitions() -> None:
    """The session then has all requested partitions."""
    sessions = FetchSessions(10)
    response = fetch(sessions, request(0, INITIAL_EPOCH, 0, 1))
    assert indexes(response) == [0, 1]
    assert repr(sessions) == "<1 fetch sessions, 2 partitions>"


def test_idle_fetch_has_an_empty_response() -> None:
    """An incremental response leaves out unchanged partitions."""
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
def test_incremental_response_has_changed_partitions(change: dict[str, Any]) -> None:
    """Records, an error, a divergence, or a moved watermark; the unchanged partition is left out."""
    assert indexes(fetch(opened(0, 1), request(7, 1), idle(1, **change))) == [1]


def test_partition_that_recovers_from_an_error_is_included_again() -> None:
    """Even though its watermarks are those that the client received before the error."""
    sessions = opened(0)
    failed = idle(0, error_code=Errors.KAFKA_STORAGE_ERROR, high_watermark=-1, log_start_offset=-1)
    assert indexes(fetch(sessions, request(7, 1), failed)) == [0]
    assert indexes(fetch(sessions, request(7, 2))) == [0]
    assert indexes(fetch(sessions, request(7, 3))) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    """An incremental request has the differences only; the other partitions stay."""
    sessions = opened(0, 1)
    forget = (ForgottenTopic(topic_id=TOPIC, partitions=(0, 9)), ForgottenTopic(topic_id=OTHER))
    incremental = request(7, 1, 1, 2, offset=4, forgotten_topics_data=forget)
    open_session = sessions.begin(incremental, with_ids=True, now_ms=0)
    kept = [(i.request.partition, i.request.fetch_offset) for i in open_session.partitions.values()]
    assert kept == [(1, 4), (2, 4)]
    assert repr(sessions) == "<1 fetch sessions, 2 partitions>"


def test_repeated_partition_is_fetched_once_with_its_last_offset() -> None:
    """It keeps the position of its first entry."""
    partitions = tuple(FetchPartition(partition=i, fetch_offset=o) for i, o in ((0, 1), (1, 2), (0, 3)))
    repeated = FetchRequest(topics=(FetchTopic(topic_id=TOPIC, partitions=partitions),))
    open_session = FetchSessions(0).begin(repeated, with_ids=True, now_ms=0)
    assert [(i.request.partition, i.request.fetch_offset) for i in open_session.partitions.values()] == [
        (0, 3),
        (1, 2),
    ]


def test_partitions_with_records_move_behind_the_others() -> None:
    """Otherwise a size limit would starve the others."""
    sessions = opened(0, 1, 2)
    fetch(sessions, request(7, 1), idle(0, records=b"x"), idle(1, high_watermark=9))
    open_session = sessions.begin(request(7, 2), with_ids=True, now_ms=0)
    assert [i.request.partition for i in open_session.partitions.values()] == [1, 2, 0]


def test_unknown_session_is_not_found() -> None:
    """FETCH_SESSION_ID_NOT_FOUND, for session 0 and negative ones as well."""
    sessions = opened(0)
    for session_id in (0, 8, -5):
        assert error_of(sessions, request(session_id, 1)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_wrong_epoch_is_rejected_and_changes_nothing() -> None:
    """INVALID_FETCH_SESSION_EPOCH, and the next request with the right epoch succeeds."""
    sessions = opened(0)
    for epoch in (2, 99, MAX_INT):
        assert error_of(sessions, request(7, epoch, 5)) == Errors.INVALID_FETCH_SESSION_EPOCH
    assert indexes(fetch(sessions, request(7, 1))) == []


def test_session_with_topic_ids_rejects_topic_names() -> None:
    """FETCH_SESSION_TOPIC_ID_ERROR, and the session stays open."""
    sessions = opened(0)
    assert error_of(sessions, request(7, 1), with_ids=False) == Errors.FETCH_SESSION_TOPIC_ID_ERROR
    assert indexes(fetch(sessions, request(7, 1))) == []


def test_fetch_overtaken_by_a_later_epoch_is_rejected() -> None:
    """The client sent a request with the next epoch while this one waited."""
    sessions = opened(0)
    slow = sessions.begin(request(7, 1), with_ids=True, now_ms=0)
    fetch(sessions, request(7, 2))
    response = sessions.finish(slow, [], now_ms=0, fresh_id=1)
    assert FinishedFetch(Errors.INVALID_FETCH_SESSION_EPOCH, 7, []) == response


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_full_fetch_closes_the_session_of_its_id(epoch: int) -> None:
    """The initial epoch opens a new session, the final epoch does not."""
    sessions = opened(0)
    response = fetch(sessions, request(7, epoch, 0), fresh_id=9)
    assert (9 if epoch == INITIAL_EPOCH else 0) == response.session_id
    assert indexes(response) == [0]
    assert error_of(sessions, request(7, 1)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_session_without_partitions_is_closed() -> None:
    """After the last partition is forgotten, the response has session id 0."""
    sessions = opened(0)
    forget = (ForgottenTopic(topic_id=TOPIC, partitions=(0,)),)
    assert FinishedFetch(Errors.NONE, 0, []) == fetch(sessions, request(7, 1, forgotten_topics_data=forget))
    assert len(sessions) == 0


def test_recreated_topic_has_another_partition() -> None:
    """The session has the partitions of both topic ids; the deleted one keeps its name."""
    sessions = opened(0)
    incremental = FetchRequest(
        session_id=7,
        session_epoch=1,
        topics=(FetchTopic(topic_id=OTHER, partitions=(FetchPartition(partition=0),)),),
    )
    open_session = sessions.begin(incremental, with_ids=True, now_ms=0)
    assert list(open_session.partitions) == [(TOPIC, 0), (OTHER, 0)]


def test_largest_epoch_is_followed_by_one() -> None:
    assert [next_epoch(e) for e in (0, 1, MAX_INT - 1, MAX_INT)] == [1, 2, MAX_INT, 1]


def fill(sessions: FetchSessions, sizes: Iterable[int], now_ms: int = 0) -> list[int]:
    """Open sessions with these numbers of partitions; return their ids, 0 for none."""
    return [
        fetch(sessions, request(0, INITIAL_EPOCH, *range(size)), now_ms=now_ms).session_id for size in sizes
    ]


def test_used_session_id_is_not_taken_again() -> None:
    """The next unused id is taken; the largest is followed by 1."""
    sessions = FetchSessions(10)
    ids = [
        fetch(sessions, request(0, INITIAL_EPOCH, 0), fresh_id=MAX_INT).session_id,
        fetch(sessions, request(0, INITIAL_EPOCH, 0), fresh_id=MAX_INT).session_id,
    ]
    assert ids == [MAX_INT, 1]


def test_limit_of_zero_disables_sessions() -> None:
    """Every response has session id 0."""
    assert fill(FetchSessions(0), [1, 1]) == [0, 0]


def test_recent_sessions_are_not_evicted() -> None:
    """A later full fetch opens no session, however many partitions it has."""
    sessions = FetchSessions(2)
    assert fill(sessions, [1, 1, 100]) == [7, 8, 0]
    assert fill(sessions, [100], now_ms=EVICTION_MS)[0] == 0


def test_least_recently_used_session_is_evicted() -> None:
    """A session used since then stays."""
    sessions = FetchSessions(2)
    fill(sessions, [3, 3])
    fetch(sessions, request(7, 1), now_ms=1)
    assert fill(sessions, [1], now_ms=EVICTION_MS + 1) == [8]
    assert error_of(sessions, request(7, 9)) == Errors.INVALID_FETCH_SESSION_EPOCH


def test_smallest_old_session_is_evicted_for_a_larger_one() -> None:
    """Both are in use. A session of the same size is not evicted."""
    sessions = FetchSessions(2)
    fill(sessions, [2, 3])
    now_ms = EVICTION_MS + 1
    for session_id in (7, 8):
        fetch(sessions, request(session_id, 1), now_ms=now_ms)
    assert fill(sessions, [2], now_ms=now_ms) == [0]
    assert [fetch(sessions, request(0, INITIAL_EPOCH, 0, 1, 2), now_ms=now_ms, fresh_id=9).session_id] == [9]
    assert error_of(sessions, request(7, 2)) == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_of_all_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session above the limit is not opened; one that grows above it is closed."""
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 5)
    sessions = FetchSessions(10)
    assert fill(sessions, [3, 3, 2]) == [7, 0, 8]
    assert error_of(sessions, request(8, 1, 0, 1, 2)) == Errors.FETCH_SESSION_ID_NOT_FOUND
    assert repr(sessions) == "<1 fetch sessions, 3 partitions>"
