"""One client's connection: reads frames, runs one request at a time, sends responses in order.

While a response is deferred (a member waits for its group, a consumer for records), the connection keeps
reading, up to a limit, so that it notices a disconnect. Requests that arrive meanwhile run afterwards. While
a client does not read its responses, or is throttled because of a quota, the connection reads nothing.

A malformed frame closes the connection, as in Kafka. Every length is checked before it is used, and no memory
is allocated for bytes that have not arrived. A large frame is read into a buffer of its own. The batches of a
Produce get their offsets in that buffer, and are written from it to the log without a copy.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.net.client_quotas import timed
from konvene.broker.net.closed_transport import CLOSED
from konvene.broker.net.endpoint import PLAINTEXT_ENDPOINT, Endpoint
from konvene.broker.net.frames import Route, read_frame_header, read_request
from konvene.broker.net.member_heartbeats import MemberHeartbeats
from konvene.broker.net.response_cache import MAX_REQUEST_BYTES, CachedResponse
from konvene.broker.net.response_caching import cache_response
from konvene.broker.net.supported_apis import unsupported_version
from konvene.codec.errors import CodecError
from konvene.messages import API_VERSIONS
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import HANG_UP, Deferred
from konvene.security.session import ANONYMOUS_SESSION, Session

if TYPE_CHECKING:
    from konvene.broker.net.client_quotas import RequestUsage
    from konvene.broker.net.network import Network

log = logging.getLogger("konvene.connection")

PRODUCE = b"\0\0"

SHARE_HEARTBEAT = 76
MEMBER_HEARTBEATS = frozenset((68, SHARE_HEARTBEAT))
"""Heartbeats whose first response on a connection has the assignment: the one before may have been lost."""
CACHED_APIS = frozenset((12, 68, SHARE_HEARTBEAT, 88, API_VERSIONS))
"""Keys of the APIs whose responses are cached: heartbeats of members and ApiVersions."""

LARGE_FRAME_BYTES = 64 * 1024
"""Larger frames are read into a buffer of their own; larger responses are sent in parts."""

MAX_RESPONSE_PARTS = 512
"""Responses with more parts are joined."""

MAX_UNPROCESSED_BYTES = 64 * 1024
"""Bytes that are read beyond the current request before reading pauses."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one client's connection."""

    __slots__ = (
        "_busy", "_frame_start", "_heartbeats", "_host", "_identity", "_is_held", "_is_processing",
        "_large_frame", "_large_received", "_large_size", "_max_frame_bytes", "_muted",
        "_network", "_paused", "_task", "_transport", "_unprocessed", "_usage", "active_at", "endpoint",
        "is_write_blocked", "session",
    )  # fmt: skip

    def __init__(self, network: Network, endpoint: Endpoint = PLAINTEXT_ENDPOINT) -> None:
        self._network = network
        self.endpoint = endpoint
        self.session = ANONYMOUS_SESSION
        self._identity = b""  # The identity that responses are cached for; empty without an authorizer.
        self._max_frame_bytes = network.max_request_bytes
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._unprocessed: bytes | bytearray = b""
        self._frame_start = 0  # Start of the next frame in `_unprocessed`.
        # Buffer of a large frame; `_large_received` of its `_large_size` bytes have been received.
        self._large_frame: bytearray | None = None
        self._large_received = self._large_size = 0
        self._busy = False
        self._is_processing = False
        self._paused = False
        self.is_write_blocked = False  # The client does not read its responses.
        self._host = ""
        self._is_held = False  # The response to a heartbeat is in the purgatory.
        self._heartbeats = MemberHeartbeats()
        self._task: asyncio.Task[None] | None = None
        self._usage: RequestUsage | None = None  # Of the current request, if clients have quotas.
        self._muted: asyncio.TimerHandle | None = None  # Until then the client is throttled.
        self.active_at = 0.0

    def __repr__(self) -> str:
        state = "busy" if self._busy else "idle"
        return f"<connection {self._host}: {state}, {self.unprocessed_bytes} bytes unprocessed>"

    @property
    def _is_alone(self) -> bool:
        """Return True if nothing was received after the current request."""
        return len(self._unprocessed) <= self._frame_start

    @property
    def _frame_limit(self) -> str:
        return f"socket.request.max.bytes is {self._max_frame_bytes}"

    @property
    def unprocessed_bytes(self) -> int:
        """Return the number of bytes that were read and not processed yet."""
        return len(self._unprocessed) + (self._large_received if self._large_frame is not None else 0)

    @property
    def is_idle(self) -> bool:
        """Return True if no request waits for its response."""
        return not self._busy

    # --- callbacks of the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = f"/{peer[0]}" if isinstance(peer, tuple) else "/local"
        self.active_at = self._network.loop.time()
        admission, listener = self._network.connection_admission, self.endpoint.name
        # Connections with TLS have waited before their handshake.
        if not self.endpoint.security_protocol.has_tls and admission.rates.is_limited(listener):
            self._busy = self._paused = True
            self._transport.pause_reading()
            admission.admit(self, listener, self._host)
        else:
            self.accept()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def accept(self) -> None:
        """Begin to serve the connection, unless there are too many."""
        if self._transport.is_closing():
            return
        reason = self._network.connection_quotas.rejection_reason(self._host, self.endpoint.name)
        if reason is not None:
            log.warning("%s: rejected: %s", self._host, reason)
            self._transport.abort()
            return
        self._network.connection_quotas.connected(self._host, self.endpoint.name)
        self._network.connections[self] = None
        try:
            session = self.endpoint.session_of(self._transport)
        except ValueError as error:  # The principal mapping rules have no name for the certificate.
            log.info("%s: failed authentication: %s", self._host, error)
            self._transport.abort()
            return
        self._begin_session(session)
        if self._busy:  # The connection had to wait.
            self._busy = False
            self._process_frames()

    def _begin_session(self, session: Session) -> None:
        """Serve requests as the principal of `session` from now on."""
        self.session = session
        self._heartbeats.forget()
        if self._network.authorization.is_enabled:
            self._identity = f"{session.principal}\0{self._host}\0".encode()

    def connection_lost(self, error: Exception | None) -> None:
        self._network.request_scheduler.run_now(self)
        if self in self._network.connections:
            del self._network.connections[self]
            self._network.connection_quotas.disconnected(self._host, self.endpoint.name)
            self._network.telemetry.disconnected(self)
            self._network.heartbeat_purgatory.drop(self)
            self._network.groups.disconnected(self)
            self._network.share_partitions.disconnected(self)
        self._unprocessed = b""
        if self._large_frame is not None:
            self._network.frame_buffers.finished(self)
            self._network.frame_buffers.release(self._large_frame)
            self._large_frame = None
        self._busy = True  # Later responses are dropped.
        for pending in (self._task, self._muted):
            if pending is not None:
                pending.cancel()
        self._transport = CLOSED

    def pause_writing(self) -> None:
        self.is_write_blocked = True

    def resume_writing(self) -> None:
        self.is_write_blocked = False
        self._process_frames()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: the shared one, or the rest of the current large frame's."""
        buffer = self._large_frame
        if buffer is None:
            return self._network.frame_buffers.view
        if self._large_received == len(buffer):
            self._large_frame = self._network.frame_buffers.grow(buffer, self._large_size)
            return self.get_buffer(sizehint)
        return memoryview(buffer)[self._large_received : self._large_size]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large_frame is not None:
            self._large_received += nbytes
            self._network.frame_buffers.received(self, nbytes)
            if self._large_received == self._large_size:
                self._process_large_frame(self._large_frame)
            return
        data = self._network.frame_buffers.view[:nbytes].tobytes()
        if self._unprocessed:
            if not isinstance(self._unprocessed, bytearray):
                self._unprocessed = bytearray(self._unprocessed)
            self._unprocessed += data
        else:
            self._unprocessed = data
        if self._is_held:
            self._network.heartbeat_purgatory.release(self)
        if not self._busy and not self.is_write_blocked:
            self._process_frames()
        elif len(self._unprocessed) > MAX_UNPROCESSED_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    # --- large frames ---

    def _start_large_frame(self, start: int, size: int) -> None:
        """Read the rest of the large frame that begins at `start` into a buffer of its own."""
        frame_buffers, received = self._network.frame_buffers, len(self._unprocessed) - start
        buffer = frame_buffers.acquire(size, min(size, received + LARGE_FRAME_BYTES))
        buffer[:received] = memoryview(self._unprocessed)[start:]
        self._large_frame, self._large_received, self._large_size = buffer, received, size
        self._unprocessed, self._frame_start = b"", 0
        frame_buffers.received(self, received)

    def _process_large_frame(self, buffer: bytearray) -> None:
        """Process a complete large frame: a Produce in the buffer itself, other requests as a copy."""
        self._large_frame, self._busy = None, True
        in_buffer = buffer[4:6] == PRODUCE
        try:
            self._process(
                buffer if in_buffer else bytes(memoryview(buffer)[: self._large_size]), self._large_size
            )
        finally:
            frame_buffers = self._network.frame_buffers
            frame_buffers.finished(self)
            if in_buffer and self._task is not None:
                self._task.add_done_callback(lambda _task: frame_buffers.release(buffer))
            else:
                frame_buffers.release(buffer)

    def pause_frame(self) -> None:
        self._transport.pause_reading()

    def resume_frame(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # --- requests ---

    def _process_frames(self) -> None:
        """Process the complete frames that were read, until one has no response yet."""
        if self._is_processing:
            return
        self._is_processing = True
        while not self._busy and not self.is_write_blocked:
            unprocessed, start = self._unprocessed, self._frame_start
            if len(unprocessed) - start < 4:
                break
            size = int.from_bytes(unprocessed[start : start + 4], "big", signed=True)
            if not 0 < size <= self._max_frame_bytes:
                self._close_malformed(f"a request of {size} bytes, and {self._frame_limit}")
                break
            stop = start + 4 + size
            if len(unprocessed) < stop:
                if size > LARGE_FRAME_BYTES:
                    self._start_large_frame(start, 4 + size)
                break
            if start == 0 and stop == len(unprocessed):
                frame, self._unprocessed = bytes(unprocessed), b""
            else:
                frame, self._frame_start = bytes(unprocessed[start:stop]), stop
            self._busy = True
            self._process(frame, len(frame))
        self._is_processing = False
        if self._frame_start:
            self._unprocessed, self._frame_start = self._unprocessed[self._frame_start :], 0
        if (
            self._paused
            and len(self._unprocessed) <= MAX_UNPROCESSED_BYTES
            and not self._transport.is_closing()
        ):
            self._paused = False
            self._transport.resume_reading()

    def _process(self, frame: bytes | bytearray, end: int) -> None:
        self.active_at = self._network.loop.time()
        if 5 < end <= MAX_REQUEST_BYTES and frame[5] in CACHED_APIS:
            quotas = self._network.client_quotas
            started_ns = quotas.clock_ns() if quotas.limits_requests else 0
            is_first = frame[5] in MEMBER_HEARTBEATS and not self._heartbeats.knows_assignment
            cached = (
                None if is_first else self._network.response_cache.find(frame, self._identity)  # type: ignore[arg-type]
            )
            if cached is not None and not started_ns:
                self._send_cached(cached, frame)  # type: ignore[arg-type]
                return
            if cached is not None and self._send_measured(cached, bytes(frame), started_ns):
                return
            self._heartbeats.last = None
        if end > LARGE_FRAME_BYTES or self._network.request_scheduler.admit(self, frame):  # type: ignore[arg-type]
            self._decide(frame, end)

    def decide(self, frame: bytes) -> None:
        """Run a request that the scheduler had queued; the scheduler calls this."""
        self._decide(frame, len(frame))

    def _send_cached(self, cached: CachedResponse, frame: bytes) -> None:
        """Send a cached response, now or when it leaves the heartbeat purgatory."""
        network = self._network
        if cached.coordinator is None:
            self._heartbeats.software = cached.software
        else:
            network.groups.heartbeat_received(cached.group_id, cached.member_id, self)
            hold_ms = self._heartbeats.hold_ms(
                cached, self.active_at, network.settings.config, is_alone=self._is_alone
            )
            self._heartbeats.last = cached
            if hold_ms and self._hold(cached, frame, hold_ms):
                return
        if network.meter is not None:
            network.meter.cached_response_sent(cached)
        self._transport.write(cached.response(frame))
        self._busy = False

    def _send_measured(self, cached: CachedResponse, frame: bytes, started_ns: int) -> bool:
        """Send a cached response and count its time; return False if the client is throttled instead."""
        client_id = read_frame_header(frame, 4, len(frame)).client_id
        usage = self._network.client_quotas.usage(self.session, client_id, len(frame) - 4, started_ns)
        if usage.throttle_cached():
            return False
        self._send_cached(cached, frame)
        usage.sent()
        return True

    def answer_held(self, cached: CachedResponse, frame: bytes) -> None:
        """Answer a heartbeat that leaves the purgatory: from the cache if valid, else decide it anew."""
        self._is_held = False
        if self._transport.is_closing():
            return
        self._heartbeats.answered(self._network.loop.time())
        if not cached.apply(was_held=True):
            self._heartbeats.forget()
            self._decide(frame, len(frame))
            return
        if self._network.meter is not None:
            self._network.meter.cached_response_sent(cached)
        self._transport.write(cached.response(frame))
        self._busy = False
        if self._unprocessed and not self._is_processing:
            self._process_frames()

    def _decide(self, frame: bytes | bytearray, end: int) -> None:
        quotas = self._network.client_quotas
        started_ns = quotas.clock_ns() if quotas.limits_requests else 0
        try:
            header, route, request = read_request(self._network.routes, frame, end)
        except CodecError as error:
            self._close_malformed(str(error))
            return
        if request is None:
            self._send(route, 0, header.correlation_id, unsupported_version())
            return
        version = header.api_version
        usage = self._usage = (
            quotas.usage(self.session, header.client_id, end - 4, started_ns) if quotas.is_enabled else None
        )
        context = RequestContext(
            version, header.client_id, self._host, session=self.session, api_key=header.api_key,
            connection=self, usage=usage,
        )  # fmt: skip
        if header.api_key in MEMBER_HEARTBEATS and not self._heartbeats.knows_assignment:
            context = context._replace(may_have_lost_response=True)
        try:
            answer = route.handler(request, context)
        except Exception:
            self._handler_failed(route)
            return
        if isinstance(answer, Deferred):
            answer.listen(lambda response: self._send(route, version, header.correlation_id, response))
        elif asyncio.iscoroutine(answer):
            if started_ns and usage is not None:
                answer = timed(answer, usage)
            self._task = self._network.loop.create_task(
                self._send_later(route, version, header.correlation_id, answer)
            )
        else:
            if header.api_key in CACHED_APIS and answer is not HANG_UP and not answer.error_code:
                cache_response(
                    self._network, self._heartbeats, self._identity, bytes(frame), route, request, answer
                )
                if header.api_key == SHARE_HEARTBEAT and self._hold_after_change(bytes(frame)):
                    if usage is not None:
                        usage.sent()
                    return
            self._send(route, version, header.correlation_id, answer)
        if usage is not None:
            usage.pause()

    def _hold_after_change(self, frame: bytes) -> bool:
        """Hold back the response to a share member's heartbeat that was just decided, if possible."""
        cached, config = self._heartbeats.last, self._network.settings.config
        hold_ms = self._heartbeats.hold_ms_after_change(config, is_alone=self._is_alone)
        return cached is not None and hold_ms > 0 and self._hold(cached, frame, hold_ms)

    def _hold(self, cached: CachedResponse, frame: bytes, held_ms: int) -> bool:
        """Put the heartbeat into the purgatory. Return False if the broker is stopping."""
        self._is_held = self._network.heartbeat_purgatory.hold(self, cached, frame, held_ms)
        if self._is_held and self._network.meter is not None:
            self._network.meter.held_heartbeats += 1
        return self._is_held

    async def _send_later(self, route: Route, version: int, correlation_id: int, answer: Any) -> None:
        try:
            response = await answer
        except asyncio.CancelledError:
            return
        except Exception:
            self._handler_failed(route)
            return
        self._task = None
        self._send(route, version, correlation_id, response)

    def _send(self, route: Route, version: int, correlation_id: int, response: Any) -> None:
        """Send a response unless it is None, then process the requests that were read meanwhile.

        `HANG_UP` closes the connection instead."""
        usage, self._usage, throttle_ms = self._usage, None, 0
        if self._transport.is_closing():
            return
        if response is HANG_UP:
            self._transport.close()
            return
        if usage is not None:
            usage.resume()
            response, throttle_ms = usage.finish(route.api.key, response)
        if response is not None:
            try:
                parts = route.write(version, correlation_id, response)
            except CodecError:
                self._handler_failed(route)
                return
            if len(parts) > MAX_RESPONSE_PARTS or sum(map(len, parts)) < LARGE_FRAME_BYTES:
                self._transport.write(b"".join(parts))
            else:
                self._transport.writelines(parts)
        if self._network.meter is not None:
            self._network.meter.answered(route.api.key, response)
        if route.api.key in MEMBER_HEARTBEATS and response is not None and not response.error_code:
            self._heartbeats.knows_assignment = True
        if route.api.key == SHARE_HEARTBEAT:
            self._heartbeats.share_member_answered(response)
        if usage is not None:
            usage.sent()
        if throttle_ms:
            self._mute(throttle_ms)
            return
        self._busy = False
        if self._unprocessed and not self._is_processing:
            self._process_frames()

    def _mute(self, throttle_ms: int) -> None:
        """Read nothing from a throttled client for this time, and process nothing that was read."""
        self._transport.pause_reading()
        self._muted = self._network.loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        if self._transport.is_closing():
            return
        self._busy = False
        if not self._paused:
            self._transport.resume_reading()
        self._process_frames()

    def _handler_failed(self, route: Route) -> None:
        log.exception("%s: %s failed; the connection is closed", self._host, route.api.name)
        self._transport.close()

    def _close_malformed(self, reason: str) -> None:
        log.warning("%s: closed: %s", self._host, reason)
        self._busy = True
        self._unprocessed, self._frame_start = b"", 0
        self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def close_if_idle(self, since: float) -> None:
        """Close unless a request arrived after `since`, in the loop's time (`connections.max.idle.ms`)."""
        if not self._busy and self.active_at < since:
            self._transport.close()
