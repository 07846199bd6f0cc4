"""Requests that say what was said before, answered without being read.

Nearly all requests of a quiet day are a member's heartbeat, byte for byte its last one but for the
correlation id. While its group is the very value that it was when the last one was accepted, the answer is
the same and so is what follows from it: the session's timer is moved. Any change to a group makes a new
value, and the next heartbeat is then decided as if for the first time. What must hold besides: the
coordinator is active, it has not loaded its log anew, and no reply of it waits for the disk, for replies
leave in order.

And every client begins with ApiVersions, whose answer is the same bytes until a feature changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.schema import Struct

if TYPE_CHECKING:
    from konvene.broker.net.frames import Route
    from konvene.runtime.coordinator import Coordinator, KeepAlive

REMEMBERED = 20_000
"""So many requests are remembered at most; then all are forgotten and learnt again."""

LONGEST = 512
"""No request of more bytes is remembered."""

CORRELATION_ID = slice(8, 12)


class CachedResponse:
    """A request that was answered. It is a heartbeat where `coordinator` says whose."""

    __slots__ = (
        "_head", "_tail", "coordinator", "group_id", "hold_ms", "is_forgotten", "is_learnt", "is_static",
        "keep_alive", "kind", "member_id", "software",
    )  # fmt: skip

    def __init__(self, sent: bytes, kind: tuple[int, int] = (0, 0)) -> None:
        self._head, self._tail = sent[:4], sent[8:]
        self.kind = kind
        """The API's key, and the interval that the answer tells, or 0: what it is counted as."""
        self.coordinator: Coordinator | None = None
        self.keep_alive: KeepAlive | None = None
        self.group_id = self.member_id = ""
        self.hold_ms = 0
        """For how long its answer may be kept."""
        self.is_learnt = self.is_static = False
        """Whether that is to be learnt from its sender, and for static members, who wait less long."""
        self.software = ("", "")
        """Who asked, if this is ApiVersions: name and version."""
        self.is_forgotten = False

    def answer(self, frame: bytes) -> bytes:
        """The answer to the same request with another correlation id."""
        return self._head + frame[CORRELATION_ID] + self._tail

    def holds(self) -> bool:
        """Whether it is still the answer."""
        if self.coordinator is None or self.keep_alive is None:
            return not self.is_forgotten
        return not self.is_forgotten and self.coordinator.holds(self.keep_alive)

    def again(self, *, before: bool = False) -> bool:
        """Do what follows from the request; False where it has to be decided anew. `before`: it was held."""
        if self.coordinator is None or self.keep_alive is None:
            return not self.is_forgotten
        return not self.is_forgotten and self.coordinator.keep_alive(self.keep_alive, before=before)


class ResponseCache:
    """The last requests of their kind, by their bytes without the length and the correlation id."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, CachedResponse] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} requests remembered>"

    def __len__(self) -> int:
        return len(self._known)

    def find(self, frame: bytes) -> CachedResponse | None:
        """A request that changes nothing, its session prolonged; None: it must be read."""
        known = self._known.get(frame[4:8] + frame[12:])
        return known if known is not None and known.again() else None

    def constant(self, frame: bytes, route: Route, answer: Struct, software: tuple[str, str]) -> None:
        """The same bytes are answered alike until `forget`."""
        known = self._remember(frame, route, answer)
        if known is not None:
            known.software = software

    def heartbeat(
        self, frame: bytes, route: Route, answer: Struct, coordinator: Coordinator, request: Struct
    ) -> CachedResponse | None:
        """A heartbeat was accepted: the same bytes may be answered alike from now on."""
        keep_alive = coordinator.keeps_alive(request)
        if keep_alive is None:
            return None
        known = self._remember(frame, route, answer)
        if known is not None:
            known.coordinator, known.keep_alive = coordinator, keep_alive
        return known

    def _remember(self, frame: bytes, route: Route, answer: Struct) -> CachedResponse | None:
        if len(frame) > LONGEST:
            return None
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        version = int.from_bytes(frame[6:8], "big")
        kind = route.api.key, getattr(answer, "heartbeat_interval_ms", 0)
        known = CachedResponse(b"".join(route.write(version, 0, answer)), kind)
        self._known[frame[4:8] + frame[12:]] = known
        return known

    def forget(self) -> None:
        """What was constant has changed."""
        for known in self._known.values():
            known.is_forgotten = True
        self._known.clear()
