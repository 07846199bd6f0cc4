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

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from konvene.codec.schema import Struct

if TYPE_CHECKING:
    from konvene.broker.coordinator import Coordinator
    from konvene.broker.frames import Route

REMEMBERED = 20_000
"""So many requests are remembered at most; then all are forgotten and learnt again."""

LONGEST = 512
"""No request of more bytes is remembered."""

CORRELATION_ID = slice(8, 12)


class _Known(NamedTuple):
    head: bytes
    tail: bytes
    still_holds: Callable[[], bool] | None


class Remembered:
    """The last requests of their kind, by their bytes without the length and the correlation id."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} requests remembered>"

    def answer(self, frame: bytes) -> bytes | None:
        """The answer to a request that changes nothing, its session prolonged; None: it must be read."""
        known = self._known.get(frame[4:8] + frame[12:])
        if known is None:
            return None
        head, tail, still_holds = known
        if still_holds is not None and not still_holds():
            return None
        return head + frame[CORRELATION_ID] + tail

    def constant(self, frame: bytes, route: Route, answer: Struct) -> None:
        """The same bytes are answered alike until `forget`."""
        self._remember(frame, route, answer, None)

    def heartbeat(
        self, frame: bytes, route: Route, answer: Struct, coordinator: Coordinator, request: Struct
    ) -> None:
        """A heartbeat was accepted: the same bytes may be answered alike from now on."""
        keep_alive = coordinator.keeps_alive(request)
        if keep_alive is not None:
            self._remember(frame, route, answer, partial(coordinator.keep_alive, keep_alive))

    def _remember(
        self, frame: bytes, route: Route, answer: Struct, still_holds: Callable[[], bool] | None
    ) -> None:
        if len(frame) > LONGEST:
            return
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        version = int.from_bytes(frame[6:8], "big")
        sent = b"".join(route.write(version, 0, answer))
        self._known[frame[4:8] + frame[12:]] = _Known(sent[:4], sent[8:], still_holds)

    def forget(self) -> None:
        """What was constant has changed."""
        self._known.clear()
