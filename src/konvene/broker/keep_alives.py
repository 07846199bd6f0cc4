"""Heartbeats that say what they said before, answered without being read.

Nearly all requests of a quiet day are a member's heartbeat, byte for byte its last one but for the
correlation id. While its group is the very value that it was when the last one was accepted, the answer is
the same and so is what follows from it: the session's timer is moved. Any change to a group makes a new
value, and the next heartbeat is then decided as if for the first time.

What must hold besides: the coordinator is active, it has not loaded its log anew, and no reply of it waits
for the disk, for replies leave in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from konvene.codec.schema import Struct

if TYPE_CHECKING:
    from konvene.broker.coordinator import Coordinator, KeepAlive
    from konvene.broker.frames import Route

REMEMBERED = 20_000
"""So many heartbeats are remembered at most; then all are forgotten and learnt again."""

CORRELATION_ID = slice(8, 12)


class _Known(NamedTuple):
    coordinator: Coordinator
    keep_alive: KeepAlive
    head: bytes
    tail: bytes


class KeepAlives:
    """The last accepted heartbeats, by their bytes without the length and the correlation id."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} keep-alives>"

    def answer(self, frame: bytes | bytearray) -> bytes | None:
        """The answer to a heartbeat that changes nothing, its session prolonged; None: it must be read."""
        known = self._known.get(bytes(frame[4:8] + frame[12:]))
        if known is None or not known.coordinator.keep_alive(known.keep_alive):
            return None
        answer: bytes = known.head + frame[CORRELATION_ID] + known.tail
        return answer

    def remember(
        self,
        frame: bytes | bytearray,
        coordinator: Coordinator,
        request: Struct,
        route: Route,
        answer: Struct,
    ) -> None:
        """A heartbeat was accepted: the same bytes may be answered alike from now on."""
        keep_alive = coordinator.keeps_alive(request)
        if keep_alive is None:
            return
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        version = int.from_bytes(frame[6:8], "big")
        sent = b"".join(route.write(version, 0, answer))
        self._known[bytes(frame[4:8] + frame[12:])] = _Known(coordinator, keep_alive, sent[:4], sent[8:])
