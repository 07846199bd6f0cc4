"""Share sessions (KIP-932): a member names its partitions once, later requests only have the differences.

A session belongs to a member of a group and to its connection. Epoch 0 opens one, replacing the former one
(acquired records stay acquired), epoch -1 closes it, and each request in between has the next epoch; 2^31-1
is followed by 1. Fetches and acknowledgements count alike.

Sessions do not decide about records: the caller of `remove` releases the member's records. There is no clock,
since sessions do not expire: they end when they are closed or replaced, or when the member leaves or its
connection is lost. Their partitions may not exist; so there is a limit for those of all sessions, which Kafka
does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from konvene.codec.uuid import Uuid
from konvene.errors import Errors

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_INT = 0x7FFF_FFFF

MAX_PARTITIONS = 1_000_000
"""Maximum number of partitions in all sessions."""

TopicIdPartition = tuple[Uuid, int]
"""A topic id and a partition index."""
Member = tuple[str, str]
"""A group id and a member id."""


class SessionError(Exception):
    """Raised for a request that matches no session, has a wrong epoch, or exceeds a limit.

    No session changes, except that a session which the request would have replaced is removed."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's next request."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_INT else epoch + 1


class ShareSession:
    """A share session: the partitions of one member, in the order in which they are served."""

    __slots__ = ("connection", "epoch", "is_open", "member", "must_report")

    def __init__(self, member: Member, partitions: Iterable[TopicIdPartition], connection: object) -> None:
        self.member = member
        self.must_report: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)
        """Each partition, and whether the next response has to include it even without records."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch of the next request."""
        self.connection = connection
        self.is_open = True

    def __repr__(self) -> str:
        name = "/".join(self.member)
        return f"<share session of {name}: epoch {self.epoch}, {len(self.must_report)} partitions>"


class SessionFetch:
    """One ShareFetch request of a session, from its beginning to its response."""

    __slots__ = ("_epoch", "_session", "partitions")

    def __init__(self, session: ShareSession, epoch: int) -> None:
        self._session = session
        self._epoch = epoch
        self.partitions: tuple[TopicIdPartition, ...] = (
            () if epoch == FINAL_EPOCH else tuple(session.must_report)
        )
        """The partitions to fetch: all of the session; none in its last request."""

    def __repr__(self) -> str:
        return f"<fetch {self._epoch} of {self._session!r}>"

    @property
    def is_final(self) -> bool:
        """True for the last request of a session.

        The caller removes the session after it and releases its records."""
        return self._epoch == FINAL_EPOCH

    @property
    def is_open(self) -> bool:
        """False once the session was closed or replaced, or its connection was lost."""
        return self._session.is_open

    def answer(
        self, found: Mapping[TopicIdPartition, tuple[bool, bool]]
    ) -> tuple[Errors, tuple[TopicIdPartition, ...]]:
        """Return the error code and the partitions of the response.

        `found` has (has records, has error) of each fetched partition. A full response has all partitions. An
        incremental one has those with records or an error; those that the request added; and those that had
        an error in the response before. INVALID_SHARE_SESSION_EPOCH if the member has sent a later request
        meanwhile."""
        if self._epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return Errors.NONE, tuple(found)
        if self._session.epoch != next_epoch(self._epoch):
            return Errors.INVALID_SHARE_SESSION_EPOCH, ()
        must_report = self._session.must_report
        reported = []
        for partition, (has_records, has_error) in found.items():
            if has_records or has_error or must_report.get(partition):
                reported.append(partition)
            if partition not in must_report:
                continue
            if has_records:
                del must_report[partition]  # Move it behind the others.
            must_report[partition] = has_error
        return Errors.NONE, tuple(reported)


class ShareSessions:
    """All share sessions of a broker."""

    __slots__ = ("_by_connection", "_sessions", "limit", "partitions")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.partitions = 0
        """Number of partitions in all sessions."""
        self._sessions: dict[Member, ShareSession] = {}
        self._by_connection: dict[object, dict[Member, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<{len(self._sessions)} share sessions, {self.partitions} partitions>"

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return a member's session, if it has one."""
        return self._sessions.get((group_id, member_id))

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added_partitions: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition] = (),
        *,
        acknowledges: bool = False,
        connection: object = None,
    ) -> SessionFetch:
        """Begin a ShareFetch: open a session or update it. Raises `SessionError`.

        The first request of a session has all its partitions in `added_partitions`. A last request
        (`FINAL_EPOCH`) leaves the session open: call `remove` after responding. `acknowledges`: the request
        has acknowledgements, which a first request may not have. `connection`: owner of a new session, as in
        `of_connection`."""
        member = (group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise SessionError(Errors.INVALID_REQUEST)
            return SessionFetch(self._open(member, added_partitions, connection), epoch)
        session = self._current_session(member, epoch)
        if epoch != FINAL_EPOCH:
            self._update(session, tuple(added_partitions), forgotten)
            session.epoch = next_epoch(epoch)
        return SessionFetch(session, epoch)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> None:
        """Begin a ShareAcknowledge: check and advance the session's epoch. Raises `SessionError`.

        A last request (`FINAL_EPOCH`) leaves the session open: call `remove` after responding."""
        if epoch == INITIAL_EPOCH:
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        session = self._current_session((group_id, member_id), epoch)
        if epoch != FINAL_EPOCH:
            session.epoch = next_epoch(epoch)

    def remove(self, group_id: str, member_id: str) -> tuple[TopicIdPartition, ...]:
        """End a session, if there is one, and return its partitions, whose records are to be released."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is None:
            return ()
        session.is_open = False
        self.partitions -= len(session.must_report)
        others = self._by_connection[session.connection]
        del others[session.member]
        if not others:
            del self._by_connection[session.connection]
        return tuple(session.must_report)

    def of_connection(self, connection: object) -> tuple[Member, ...]:
        """Return the group and member ids of the sessions on a connection."""
        return tuple(self._by_connection.get(connection, ()))

    def of_group(self, group_id: str) -> int:
        """Return the number of sessions of a group's members."""
        return sum(1 for member in self._sessions if member[0] == group_id)

    def clear(self) -> None:
        """End all sessions."""
        for member in tuple(self._sessions):
            self.remove(*member)

    def _open(
        self, member: Member, added_partitions: Iterable[TopicIdPartition], connection: object
    ) -> ShareSession:
        self.remove(*member)
        session = ShareSession(member, added_partitions, connection)
        if len(self._sessions) >= self.limit or self.partitions + len(session.must_report) > MAX_PARTITIONS:
            raise SessionError(Errors.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[member] = session
        self._by_connection.setdefault(connection, {})[member] = None
        self.partitions += len(session.must_report)
        return session

    def _current_session(self, member: Member, epoch: int) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise SessionError(Errors.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise SessionError(Errors.INVALID_SHARE_SESSION_EPOCH)
        return session

    def _update(
        self,
        session: ShareSession,
        added_partitions: tuple[TopicIdPartition, ...],
        forgotten: Iterable[TopicIdPartition],
    ) -> None:
        """Add and remove partitions of a session. Raises `SessionError` before anything changes."""
        must_report = session.must_report
        if added_partitions:
            added = dict.fromkeys(
                (partition for partition in added_partitions if partition not in must_report), True
            )
            if self.partitions + len(added) > MAX_PARTITIONS:
                raise SessionError(Errors.SHARE_SESSION_LIMIT_REACHED)
            must_report.update(added)
            self.partitions += len(added)
        for partition in forgotten:
            if must_report.pop(partition, None) is not None:
                self.partitions -= 1
