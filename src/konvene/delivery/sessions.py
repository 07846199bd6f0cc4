"""Share sessions (KIP-932): a member names its partitions once; after that only what changed is said.

A session belongs to a member of a group and to the connection on which it was begun. Epoch 0 opens one in
place of the one that was there (what the member has acquired stays its own), epoch -1 closes it, and each
request in between carries the next epoch; after 2^31-1 comes 1. Fetches and acknowledgements count alike.

Decides nothing about records: what a member had when its session ends is given back by whoever asks
`remove`. Reads no clock, since a session does not grow old: it ends when it is closed, replaced, its member
leaves, or its connection is lost. Partitions are the member's word and may not exist; that is why there is a
bound for them in all sessions together, which Kafka does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from konvene.codec.uuid import Uuid
from konvene.errors import Errors

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_INT = 0x7FFF_FFFF

MOST_PARTITIONS = 1_000_000
"""In all sessions together."""

Place = tuple[Uuid, int]
"""A topic's id and a partition."""
Member = tuple[str, str]
"""A group and a member of it."""


class SessionError(Exception):
    """A request that fits no session. Nothing has changed, but for a session that was to be replaced."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


def next_epoch(epoch: int) -> int:
    """The epoch of a session's next request."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT else epoch + 1


class ShareSession:
    """The partitions of one member, in the order in which they are to be served."""

    __slots__ = ("connection", "epoch", "is_open", "member", "news")

    def __init__(self, member: Member, places: Iterable[Place], connection: object) -> None:
        self.member = member
        self.news: dict[Place, bool] = dict.fromkeys(places, False)
        """Each partition, and whether the next answer tells of it whatever there is to tell."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """That of the next request."""
        self.connection = connection
        self.is_open = True

    def __repr__(self) -> str:
        return f"<share session of {'/'.join(self.member)}: epoch {self.epoch}, {len(self.news)} partitions>"


class Turn:
    """One ShareFetch in its session."""

    __slots__ = ("_epoch", "_session", "places")

    def __init__(self, session: ShareSession, epoch: int) -> None:
        self._session = session
        self._epoch = epoch
        self.places: tuple[Place, ...] = () if epoch == FINAL_EPOCH else tuple(session.news)
        """What is to be fetched: all partitions of the session; none in its last request."""

    def __repr__(self) -> str:
        return f"<turn {self._epoch} in {self._session!r}>"

    @property
    def is_final(self) -> bool:
        """Whether the session is to be removed, and what its member has released, once it is answered."""
        return self._epoch == FINAL_EPOCH

    @property
    def is_open(self) -> bool:
        """False once the session was closed, replaced, or its connection lost."""
        return self._session.is_open

    def answer(self, found: Mapping[Place, tuple[bool, bool]]) -> tuple[Errors, tuple[Place, ...]]:
        """Which of what was found is told. `found`: whether there are records, and whether there is an error.

        A full request is told everything; a later one what has records or an error, and each partition once
        after it was added or had an error. One that the member has overtaken with another is told nothing."""
        if self._epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return Errors.NONE, tuple(found)
        if self._session.epoch != next_epoch(self._epoch):
            return Errors.INVALID_SHARE_SESSION_EPOCH, ()
        news = self._session.news
        told = []
        for place, (has_records, has_error) in found.items():
            if has_records or has_error or news.get(place):
                told.append(place)
            if place not in news:
                continue
            if has_records:
                del news[place]  # It goes behind the others.
            news[place] = has_error
        return Errors.NONE, tuple(told)


class ShareSessions:
    """All share sessions of a broker."""

    __slots__ = ("_by_connection", "_sessions", "limit", "partitions")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.partitions = 0
        """In all sessions together."""
        self._sessions: dict[Member, ShareSession] = {}
        self._by_connection: dict[object, dict[Member, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<{len(self._sessions)} share sessions, {self.partitions} partitions>"

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
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
        """Begin a ShareFetch. Raises `SessionError`.

        `wanted` are partitions to add, and `forgotten` to take away; a session's first request has them all.
        A last one (`FINAL_EPOCH`) leaves the session in place: `remove` it when the answer is there."""
        member = (group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise SessionError(Errors.INVALID_REQUEST)
            return Turn(self._open(member, wanted, connection), epoch)
        session = self._expect(member, epoch)
        if epoch != FINAL_EPOCH:
            self._update(session, tuple(wanted), forgotten)
            session.epoch = next_epoch(epoch)
        return Turn(session, epoch)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> None:
        """Count a ShareAcknowledge. Raises `SessionError`.

        With `FINAL_EPOCH` the session stays too: `remove` it when the answer is there."""
        if epoch == INITIAL_EPOCH:
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        session = self._expect((group_id, member_id), epoch)
        if epoch != FINAL_EPOCH:
            session.epoch = next_epoch(epoch)

    def remove(self, group_id: str, member_id: str) -> tuple[Place, ...]:
        """End a session, if there is one. Answers with its partitions, where records are to be released."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is None:
            return ()
        session.is_open = False
        self.partitions -= len(session.news)
        others = self._by_connection[session.connection]
        del others[session.member]
        if not others:
            del self._by_connection[session.connection]
        return tuple(session.news)

    def of_connection(self, connection: object) -> tuple[Member, ...]:
        """The groups and members whose sessions were begun on a connection."""
        return tuple(self._by_connection.get(connection, ()))

    def of_group(self, group_id: str) -> int:
        """How many sessions members of a group have."""
        return sum(1 for member in self._sessions if member[0] == group_id)

    def clear(self) -> None:
        """End all of them."""
        for member in tuple(self._sessions):
            self.remove(*member)

    def _open(self, member: Member, wanted: Iterable[Place], connection: object) -> ShareSession:
        self.remove(*member)
        session = ShareSession(member, wanted, connection)
        if len(self._sessions) >= self.limit or self.partitions + len(session.news) > MOST_PARTITIONS:
            raise SessionError(Errors.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[member] = session
        self._by_connection.setdefault(connection, {})[member] = None
        self.partitions += len(session.news)
        return session

    def _expect(self, member: Member, epoch: int) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise SessionError(Errors.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        return session

    def _update(self, session: ShareSession, wanted: tuple[Place, ...], forgotten: Iterable[Place]) -> None:
        """Take partitions in and out. Raises `SessionError` before anything has changed."""
        news = session.news
        if wanted:
            added = dict.fromkeys((place for place in wanted if place not in news), True)
            if self.partitions + len(added) > MOST_PARTITIONS:
                raise SessionError(Errors.SHARE_SESSION_LIMIT_REACHED)
            news.update(added)
            self.partitions += len(added)
        for place in forgotten:
            if news.pop(place, None) is not None:
                self.partitions -= 1
