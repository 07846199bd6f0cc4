"""Share sessions: epochs, partitions of a request, limits, and the partitions in a response."""

from __future__ import annotations

import pytest

from konvene.codec.uuid import Uuid
from konvene.delivery import sessions as sessions_module
from konvene.delivery.sessions import (
    FINAL_EPOCH,
    MAX_INT,
    SessionError,
    SessionFetch,
    ShareSessions,
    TopicIdPartition,
    next_epoch,
)
from konvene.errors import Errors

OWN, OTHER = Uuid(b"\1" * 16), Uuid(b"\2" * 16)
A, B, C = (OWN, 0), (OWN, 1), (OTHER, 0)
NOTHING, RECORDS, WRONG = (False, False), (True, False), (False, True)


def opened(
    sessions: ShareSessions, *partitions: TopicIdPartition, member: str = "a", connection: object = 1
) -> SessionFetch:
    return sessions.fetch("g", member, 0, partitions, connection=connection)


def session_error(
    sessions: ShareSessions, epoch: int, *, member: str = "a", acknowledges: bool = False
) -> Errors:
    with pytest.raises(SessionError) as rejected:
        sessions.fetch("g", member, epoch, (A,), acknowledges=acknowledges)
    return rejected.value.error


def test_next_epoch() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_INT - 1, MAX_INT, -1)] == [1, 2, MAX_INT, 1, -1]


def test_first_fetch_opens_a_session() -> None:
    sessions = ShareSessions(10)
    fetch = opened(sessions, A, B)
    assert fetch.partitions == (A, B)
    assert (fetch.is_open, fetch.is_final) == (True, False)
    assert (len(sessions), sessions.partitions, sessions.of_group("g")) == (1, 2, 1)
    assert fetch.answer({A: NOTHING, B: RECORDS}) == (Errors.NONE, (A, B))


def test_later_fetches_have_only_changes() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A, B)
    assert sessions.fetch("g", "a", 1, ()).partitions == (A, B)
    assert sessions.fetch("g", "a", 2, (C, A)).partitions == (A, B, C)
    assert sessions.fetch("g", "a", 3, (), (A, (OTHER, 7))).partitions == (B, C)
    assert sessions.partitions == 2


def test_epoch_must_be_the_next_one() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    assert session_error(sessions, 2) is Errors.INVALID_SHARE_SESSION_EPOCH
    assert session_error(sessions, -2) is Errors.INVALID_SHARE_SESSION_EPOCH
    sessions.fetch("g", "a", 1, ())
    assert session_error(sessions, 1) is Errors.INVALID_SHARE_SESSION_EPOCH
    sessions.fetch("g", "a", 2, ())


def test_epoch_wraps_around_to_one() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    session = sessions.get("g", "a")
    assert session is not None
    session.epoch = MAX_INT
    fetch = sessions.fetch("g", "a", MAX_INT, ())
    assert fetch.answer({A: RECORDS}) == (Errors.NONE, (A,))
    sessions.fetch("g", "a", 1, ())


@pytest.mark.parametrize("epoch", [1, 7, FINAL_EPOCH, -2])
def test_unopened_session_is_not_found(epoch: int) -> None:
    sessions = ShareSessions(10)
    opened(sessions, A, member="b")
    assert session_error(sessions, epoch) is Errors.SHARE_SESSION_NOT_FOUND


def test_first_fetch_with_acknowledgements_is_rejected() -> None:
    """Bug 76 (KAFKA-19485): after a restart of the broker, members opened a session with acknowledgements."""
    sessions = ShareSessions(10)
    assert session_error(sessions, 0, acknowledges=True) is Errors.INVALID_REQUEST
    opened(sessions, A)
    assert session_error(sessions, 0, acknowledges=True) is Errors.INVALID_REQUEST
    sessions.fetch("g", "a", 1, (), acknowledges=True)


def test_new_session_replaces_the_old_one() -> None:
    sessions = ShareSessions(1)
    first = opened(sessions, A, B)
    second = opened(sessions, C, connection=2)
    assert (first.is_open, second.is_open) == (False, True)
    assert second.partitions == (C,)
    assert (len(sessions), sessions.partitions) == (1, 1)
    assert sessions.of_connection(1) == ()
    assert sessions.of_connection(2) == (("g", "a"),)


def test_number_of_sessions_is_limited() -> None:
    sessions = ShareSessions(2)
    opened(sessions, A)
    opened(sessions, A, member="b")
    assert session_error(sessions, 0, member="c") is Errors.SHARE_SESSION_LIMIT_REACHED
    opened(sessions, B, member="b")
    sessions.remove("g", "a")
    opened(sessions, A, member="c")


def test_number_of_partitions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_PARTITIONS", 2)
    sessions = ShareSessions(10)
    opened(sessions, A, B)
    assert session_error(sessions, 0, member="b") is Errors.SHARE_SESSION_LIMIT_REACHED
    with pytest.raises(SessionError) as rejected:
        sessions.fetch("g", "a", 1, (C,))
    assert rejected.value.error is Errors.SHARE_SESSION_LIMIT_REACHED
    assert sessions.fetch("g", "a", 1, (A,), (B,)).partitions == (A,)


def test_final_fetch_has_no_partitions_and_keeps_the_session_until_its_response() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    last = sessions.fetch("g", "a", FINAL_EPOCH, (B,), acknowledges=True)
    assert (last.partitions, last.is_final) == ((), True)
    assert last.answer({A: WRONG}) == (Errors.NONE, (A,))
    assert sessions.remove("g", "a") == (A,)
    assert sessions.remove("g", "a") == ()
    assert len(sessions) == 0 and sessions.partitions == 0


def test_response_has_changed_partitions() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    fetch = sessions.fetch("g", "a", 1, (B,))
    assert fetch.answer({A: NOTHING, B: NOTHING}) == (Errors.NONE, (B,)), "B was added"
    fetch = sessions.fetch("g", "a", 2, ())
    assert fetch.answer({A: WRONG, B: NOTHING}) == (Errors.NONE, (A,))
    fetch = sessions.fetch("g", "a", 3, ())
    assert fetch.answer({A: NOTHING, B: NOTHING}) == (Errors.NONE, (A,)), "A had an error before"
    fetch = sessions.fetch("g", "a", 4, ())
    assert fetch.answer({A: NOTHING, B: NOTHING}) == (Errors.NONE, ())
    fetch = sessions.fetch("g", "a", 5, (), (B,))
    assert fetch.answer({A: RECORDS, B: NOTHING, C: WRONG}) == (Errors.NONE, (A, C))


def test_partitions_with_records_move_to_the_end() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A, B, C)
    sessions.fetch("g", "a", 1, ()).answer({A: RECORDS, B: NOTHING})
    assert sessions.fetch("g", "a", 2, ()).partitions == (B, C, A)


def test_overtaken_fetch_is_rejected() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    slow = sessions.fetch("g", "a", 1, ())
    fast = sessions.fetch("g", "a", 2, ())
    assert slow.answer({A: RECORDS}) == (Errors.INVALID_SHARE_SESSION_EPOCH, ())
    assert fast.answer({A: RECORDS}) == (Errors.NONE, (A,))


def test_acknowledgements_advance_the_epoch() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    sessions.acknowledge("g", "a", 1)
    sessions.fetch("g", "a", 2, ())
    sessions.acknowledge("g", "a", FINAL_EPOCH)
    sessions.acknowledge("g", "a", 3)
    for member, epoch, error in (
        ("a", 0, Errors.INVALID_SHARE_SESSION_EPOCH),
        ("b", 0, Errors.INVALID_SHARE_SESSION_EPOCH),
        ("a", 3, Errors.INVALID_SHARE_SESSION_EPOCH),
        ("b", 1, Errors.SHARE_SESSION_NOT_FOUND),
        ("b", FINAL_EPOCH, Errors.SHARE_SESSION_NOT_FOUND),
    ):
        with pytest.raises(SessionError) as rejected:
            sessions.acknowledge("g", member, epoch)
        assert rejected.value.error is error


def test_one_connection_has_sessions_of_several_members() -> None:
    sessions = ShareSessions(10)
    opened(sessions, A)
    opened(sessions, A, member="b")
    opened(sessions, A, member="c", connection=2)
    assert sessions.of_connection(1) == (("g", "a"), ("g", "b"))
    assert sessions.of_connection(3) == ()
    fetch = sessions.fetch("g", "c", 1, ())
    sessions.clear()
    assert not fetch.is_open
    assert len(sessions) == 0
    assert sessions.of_connection(2) == ()
