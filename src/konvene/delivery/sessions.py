"""Share sessions: which partitions a member fetches, said once and then only changed (KIP-932).

A session begins with epoch 0 and ends with -1; in between each request brings the epoch that the last one
ended with. It belongs to the connection on which it was begun, and is over when that is lost. There are only
so many; who comes when there is no room is told so, and asks again.

An answer names the partitions that have records, an error, or just came into the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from konvene.codec.uuid import Uuid
from konvene.errors import Errors

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH = 0x7FFF_FFFF

Place = tuple[Uuid, int]
"""A topic's id and a partition."""


class SessionError(Exception):
    """The whole request is answered with this error."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


def next_epoch(epoch: int) -> int:
    """Behind the last one comes 1: 0 would begin another session."""
    return epoch + 1 if epoch != LAST_EPOCH else 1


class Session:
    """What one member fetches. Of each partition: whether it has to be in the next answer."""

    __slots__ = ("connection", "epoch", "is_open", "key", "places")

    def __init__(self, key: tuple[str, str], places: Iterable[Place], connection: object) -> None:
        self.key = key
        self.epoch = 1
        self.places: dict[Place, bool] = dict.fromkeys(places, False)
        self.connection = connection
        self.is_open = True

    def __repr__(self) -> str:
        return f"<share session of {self.key[1]} in {self.key[0]!r}: {len(self.places)} partitions>"


class Turn:
    """One fetch of a session: what it is about, and what of its result the member has to be told."""

    __slots__ = ("_is_first", "_next_epoch", "places", "session")

    def __init__(self, session: Session, *, is_first: bool = False, is_final: bool = False) -> None:
        self.session = session
        self.places: tuple[Place, ...] = () if is_final else tuple(session.places)
        self._is_first = is_first or is_final
        self._next_epoch = session.epoch

    @property
    def is_open(self) -> bool:
        """Whether the session still is the member's."""
        return self.session.is_open

    def answer(self, found: Mapping[Place, tuple[bool, bool]]) -> tuple[Errors, tuple[Place, ...]]:
        """The answer's error, and which partitions are in it. Of each it is told whether it has records, and
        whether it has an error."""
        if self._is_first:
            return Errors.NONE, tuple(found)
        session = self.session
        if session.epoch != self._next_epoch:
            return Errors.INVALID_SHARE_SESSION_EPOCH, ()
        places = session.places
        told: list[Place] = []
        for place, (has_records, is_wrong) in found.items():
            if has_records or is_wrong or places.get(place, False):
                told.append(place)
            if place in places:
                places[place] = is_wrong
        return Errors.NONE, tuple(told)


class ShareSessions:
    """All sessions of a broker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], Session] = {}
        self._on: dict[object, dict[tuple[str, str], None]] = {}

    def __repr__(self) -> str:
        return f"<{len(self)} share sessions>"

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> Session | None:
        return self._sessions.get((group_id, member_id))

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        wanted: Iterable[Place],
        forgotten: Iterable[Place] = (),
        *,
        acknowledges: bool = False,
        connection: object = None,
    ) -> Turn:
        """What a ShareFetch is about. Raises `SessionError`, and then nothing has changed.

        A new session cannot acknowledge anything: it has acquired nothing."""
        key = (group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise SessionError(Errors.INVALID_REQUEST)
            return Turn(self._begin(key, wanted, connection), is_first=True)
        session = self._sessions.get(key)
        if session is None:
            raise SessionError(Errors.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return Turn(session, is_final=True)
        self._pass(session, epoch)
        places = session.places
        for place in wanted:
            if place not in places:
                places[place] = True
        for place in forgotten:
            places.pop(place, None)
        return Turn(session)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> None:
        """Whether a ShareAcknowledge may come now. Raises `SessionError`."""
        if epoch == INITIAL_EPOCH:
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise SessionError(Errors.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            self._pass(session, epoch)

    def _pass(self, session: Session, epoch: int) -> None:
        if session.epoch != epoch:
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)

    def _begin(self, key: tuple[str, str], wanted: Iterable[Place], connection: object) -> Session:
        """A new session, in the place of the member's last one."""
        self.remove(*key)
        if len(self._sessions) >= self._most:
            raise SessionError(Errors.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = Session(key, wanted, connection)
        self._on.setdefault(connection, {})[key] = None
        return session

    # --- ends ---

    def remove(self, group_id: str, member_id: str) -> tuple[Place, ...]:
        """End a session; the partitions that it was about, none where there was no session."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is None:
            return ()
        session.is_open = False
        others = self._on[session.connection]
        del others[session.key]
        if not others:
            del self._on[session.connection]
        return tuple(session.places)

    def of_connection(self, connection: object) -> tuple[tuple[str, str], ...]:
        """Group and member of the sessions that were begun on it."""
        return tuple(self._on.get(connection, ()))

    def clear(self) -> None:
        """End all of them."""
        for key in tuple(self._sessions):
            self.remove(*key)
