"""Caches responses by the bytes of the request, so that a repeated request is answered without decoding it.

Nearly all requests of a stable cluster are heartbeats that equal the member's last one byte for byte, except
for the correlation id. As long as the member and what the response depends on are unchanged
(`Coordinator.is_current`), the response is the same, and so is its effect: the session timer is re-armed.
After any change to them the next heartbeat is decided in full. The coordinator must also be active, must not
have reloaded its log, and must have no reply that waits for the disk, because replies leave in order.

With an authorizer a response is cached for one identity, the client's principal and host: the same bytes of
another client are decided, and authorized, anew. A change of ACLs empties the cache.

ApiVersions, the first request of every client, is cached as well: its response stays the same until a feature
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from konvene.codec.schema import Struct

if TYPE_CHECKING:
    from konvene.messages import Api
    from konvene.runtime.coordinator import CachedDecision, Coordinator

MAX_CACHED = 20_000
"""When the cache is full, it is emptied and fills again."""

MAX_REQUEST_BYTES = 512
"""Longer requests are not cached."""

CORRELATION_ID = slice(8, 12)


class ResponseEncoder(Protocol):
    """An encoder for the responses of one API, such as a `Route`."""

    @property
    def api(self) -> Api: ...

    def write(self, version: int, correlation_id: int, response: Struct) -> list[bytes]:
        """Encode a response as byte strings."""


class CachedResponse:
    """An encoded response, and what is needed to check that it is still valid.

    `coordinator` and `decision` are set for heartbeats, None for ApiVersions."""

    __slots__ = (
        "_head",
        "_tail",
        "coordinator",
        "decision",
        "group_id",
        "hold_ms",
        "is_invalid",
        "is_learnt",
        "is_static",
        "kind",
        "member_id",
        "software",
    )  # fmt: skip

    def __init__(self, response: bytes, kind: tuple[int, int] = (0, 0)) -> None:
        self._head, self._tail = response[:4], response[8:]
        self.kind = kind
        """API key and heartbeat interval of the response (0 if none), for the metrics."""
        self.coordinator: Coordinator | None = None
        self.decision: CachedDecision | None = None
        self.group_id = self.member_id = ""
        self.hold_ms = 0
        """How long the response may be held back in the purgatory; 0 if not at all."""
        self.is_learnt = self.is_static = False
        """`is_learnt`: the client's heartbeats determine the hold time. `is_static`: the member is static."""
        self.software = ("", "")
        """Name and version of the client, if this is ApiVersions."""
        self.is_invalid = False

    def response(self, frame: bytes) -> bytes:
        """Return the response with the correlation id of the request in `frame`."""
        return self._head + frame[CORRELATION_ID] + self._tail

    def is_current(self) -> bool:
        """Return True if deciding the request anew would give the same response."""
        if self.coordinator is None or self.decision is None:
            return not self.is_invalid
        return not self.is_invalid and self.coordinator.is_current(self.decision)

    def apply(self, *, was_held: bool = False) -> bool:
        """Repeat the effect of the request; return False if it has to be decided anew.

        `was_held` is True if the request waited in the heartbeat purgatory."""
        if self.coordinator is None or self.decision is None:
            return not self.is_invalid
        return not self.is_invalid and self.coordinator.repeat(self.decision, was_held=was_held)


class ResponseCache:
    """A cache of responses by the bytes of the request, except for its length and correlation id.

    `identity`: the principal and host that the response is cached for; empty without an authorizer."""

    __slots__ = ("_cached",)

    def __init__(self) -> None:
        self._cached: dict[bytes, CachedResponse] = {}

    def __repr__(self) -> str:
        return f"<{len(self._cached)} cached responses>"

    def __len__(self) -> int:
        return len(self._cached)

    def find(self, frame: bytes, identity: bytes = b"") -> CachedResponse | None:
        """Repeat a request's effect and return the cached response; None if the request has to be decided."""
        cached = self._cached.get(identity + frame[4:8] + frame[12:])
        return cached if cached is not None and cached.apply() else None

    def add_constant(
        self,
        frame: bytes,
        encoder: ResponseEncoder,
        response: Struct,
        software: tuple[str, str],
        identity: bytes = b"",
    ) -> None:
        """Cache a response that is valid until `invalidate` is called."""
        cached = self._add(frame, encoder, response, identity)
        if cached is not None:
            cached.software = software

    def add_heartbeat(
        self,
        frame: bytes,
        encoder: ResponseEncoder,
        response: Struct,
        coordinator: Coordinator,
        request: Struct,
        identity: bytes = b"",
    ) -> CachedResponse | None:
        """Cache and return the response to an accepted heartbeat; return None if it is not cacheable."""
        decision = coordinator.cacheable_decision(request)
        if decision is None:
            return None
        cached = self._add(frame, encoder, response, identity)
        if cached is not None:
            cached.coordinator, cached.decision = coordinator, decision
        return cached

    def _add(
        self, frame: bytes, encoder: ResponseEncoder, response: Struct, identity: bytes
    ) -> CachedResponse | None:
        if len(frame) > MAX_REQUEST_BYTES:
            return None
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        version = int.from_bytes(frame[6:8], "big")
        kind = encoder.api.key, getattr(response, "heartbeat_interval_ms", 0)
        cached = CachedResponse(b"".join(encoder.write(version, 0, response)), kind)
        self._cached[identity + frame[4:8] + frame[12:]] = cached
        return cached

    def invalidate(self) -> None:
        """Drop all responses, because topics, settings or features have changed."""
        for cached in self._cached.values():
            cached.is_invalid = True
        self._cached.clear()
