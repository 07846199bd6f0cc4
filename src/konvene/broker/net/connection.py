"""One client's connection: frames in, one request at a time, answers in order.

While an answer is deferred (a member waits for its group, a consumer for records) the connection reads on,
up to a bound, so that a client that hangs up is noticed; what it reads is answered when its turn comes.
A client that does not read its answers is not read from either.

Bytes that are no request close the connection, as in Kafka; nothing they hold is believed before it is
checked, and no frame takes memory before its bytes have come. A large frame is read where it stays: a
Produce is given its offsets there and written to its log from there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.net.frames import Route, read_head, skip_tags
from konvene.broker.net.heartbeat_purgatory import may_be_held
from konvene.broker.net.response_cache import LONGEST, CachedResponse
from konvene.broker.net.supported_apis import unsupported_version
from konvene.codec.errors import CannotEncode, CodecError
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.heartbeat_intervals import HeartbeatSpacing, max_classic_hold_ms, max_hold_ms
from konvene.messages import API_VERSIONS
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from konvene.runtime.coordinator import Call
from konvene.runtime.deferred import HANG_UP, Deferred

if TYPE_CHECKING:
    from konvene.broker.net.network import Network

log = logging.getLogger("konvene.connection")

PRODUCE = b"\0\0"

SHARE_HEARTBEAT = 76
REMEMBERED = frozenset((12, 68, SHARE_HEARTBEAT, 88, API_VERSIONS))
"""The keys of those APIs whose requests may be answered unread: heartbeats of members and ApiVersions."""

TOLD_ONCE = "assignment", "active_tasks", "partitions_by_user_endpoint"
"""What a heartbeat is not told again by the next one, though it is the same."""

STREAMS = "stream"
"""The protocol of Kafka Streams in classic groups."""

LARGE = 64 * 1024
"""Frames above this size are read into a buffer of their own."""

MANY_PARTS = 512
"""Answers of more pieces are joined before they are sent."""

READ_AHEAD = 64 * 1024
"""How many bytes beyond the request being answered are read before the client has to wait."""


class Connection(asyncio.BufferedProtocol):
    """Speaks with one client."""

    __slots__ = (
        "_ahead", "_at", "_busy", "_filled", "_filling", "_going", "_heard", "_holds", "_host",
        "_need", "_network", "_paused", "_software", "_spacing", "_task", "_told", "_transport",
        "_write_full", "active_at",
    )  # fmt: skip

    def __init__(self, network: Network) -> None:
        self._network = network
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._ahead: bytes | bytearray = b""
        self._at = 0  # Up to where `_ahead` has been answered.
        self._filling: bytearray | None = None  # A large frame, of which `_filled` bytes have come.
        self._filled = self._need = 0
        self._busy = False
        self._going = False
        self._paused = False
        self._write_full = False
        self._host = ""
        self._holds = False  # The answer to a heartbeat is kept (`holding`).
        self._software = ("", "")  # Name and version, as the client told in ApiVersions.
        self._told: CachedResponse | None = None  # The heartbeat that was answered here last.
        self._heard: tuple[str, int] | None = None  # A member of a share group, and the interval it was told.
        self._spacing: HeartbeatSpacing | None = None  # Of a member of a classic group.
        self._task: asyncio.Task[None] | None = None
        self.active_at = 0.0

    def __repr__(self) -> str:
        state = "busy" if self._busy else "idle"
        return f"<connection {self._host}: {state}, {self.bytes_ahead} bytes ahead>"

    @property
    def waits_for_its_client(self) -> bool:
        """The client does not read its answers."""
        return self._write_full

    @property
    def bytes_ahead(self) -> int:
        """What has been read and not been answered."""
        return len(self._ahead) + (self._filled if self._filling is not None else 0)

    @property
    def is_idle(self) -> bool:
        """No request of its client waits for an answer."""
        return not self._busy

    # --- what the transport tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = f"/{peer[0]}" if isinstance(peer, tuple) else "/local"
        self.active_at = self._network.loop.time()
        why_not = self._network.admission.refusal(self._host)
        if why_not is not None:
            log.warning("%s: refused: %s", self._host, why_not)
            self._transport.abort()
            return
        self._network.admission.enter(self._host)
        self._network.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self._network.request_scheduler.at_once(self)
        if self in self._network.connections:
            del self._network.connections[self]
            self._network.admission.leave(self._host)
            self._network.telemetry.forget(self)
            self._network.heartbeat_purgatory.drop(self)
            self._network.groups.disconnected(self)
            self._network.share_partitions.disconnected(self)
        self._ahead = b""
        if self._filling is not None:
            self._network.frame_buffers.done(self)
            self._network.frame_buffers.give_back(self._filling)
            self._filling = None
        self._busy = True  # Whatever is answered from now on is answered to nobody.
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._write_full = True

    def resume_writing(self) -> None:
        self._write_full = False
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: no further than to the end of a large frame."""
        filling = self._filling
        if filling is None:
            return self._network.frame_buffers.view
        if self._filled == len(filling):
            self._filling = self._network.frame_buffers.exchange(filling, self._need)
            return self.get_buffer(sizehint)
        return memoryview(filling)[self._filled : self._need]

    def buffer_updated(self, nbytes: int) -> None:
        if self._filling is not None:
            self._filled += nbytes
            self._network.frame_buffers.came(self, nbytes)
            if self._filled == self._need:
                self._whole(self._filling)
            return
        data = self._network.frame_buffers.view[:nbytes].tobytes()
        if self._ahead:
            if not isinstance(self._ahead, bytearray):
                self._ahead = bytearray(self._ahead)
            self._ahead += data
        else:
            self._ahead = data
        if self._holds:
            self._network.heartbeat_purgatory.release(self)
        if not self._busy and not self._write_full:
            self._go_on()
        elif len(self._ahead) > READ_AHEAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    # --- large frames ---

    def _fill(self, start: int, need: int) -> None:
        """Read the rest of the frame that begins there into a buffer of its own."""
        intake, have = self._network.frame_buffers, len(self._ahead) - start
        buffer = intake.lend(need, min(need, have + LARGE))
        buffer[:have] = memoryview(self._ahead)[start:]
        self._filling, self._filled, self._need = buffer, have, need
        self._ahead, self._at = b"", 0
        intake.came(self, have)

    def _whole(self, buffer: bytearray) -> None:
        """Answer a large frame. Nobody keeps a Produce beyond its answer; every other request is copied."""
        self._filling, self._busy = None, True
        lent = buffer[4:6] == PRODUCE
        try:
            self._request(buffer if lent else bytes(memoryview(buffer)[: self._need]), self._need)
        finally:
            intake = self._network.frame_buffers
            intake.done(self)
            if lent and self._task is not None:
                self._task.add_done_callback(lambda _task: intake.give_back(buffer))
            else:
                intake.give_back(buffer)

    def pause_filling(self) -> None:
        self._transport.pause_reading()

    def resume_filling(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # --- requests, one after another ---

    def _go_on(self) -> None:
        """Answer what has been read, until an answer has to wait or a frame is not complete."""
        if self._going:
            return
        self._going = True
        while not self._busy and not self._write_full:
            ahead, start = self._ahead, self._at
            if len(ahead) - start < 4:
                break
            size = int.from_bytes(ahead[start : start + 4], "big", signed=True)
            if not 0 < size <= self._network.max_request_bytes:
                self._hang_up(
                    f"it announced a request of {size} bytes, and socket.request.max.bytes is"
                    f" {self._network.max_request_bytes}"
                )
                break
            stop = start + 4 + size
            if len(ahead) < stop:
                if size > LARGE:
                    self._fill(start, 4 + size)
                break
            if start == 0 and stop == len(ahead):
                frame, self._ahead = bytes(ahead), b""
            else:
                frame, self._at = bytes(ahead[start:stop]), stop
            self._busy = True
            self._request(frame, len(frame))
        self._going = False
        if self._at:
            self._ahead, self._at = self._ahead[self._at :], 0
        if self._paused and len(self._ahead) <= READ_AHEAD and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _request(self, frame: bytes | bytearray, end: int) -> None:
        self.active_at = self._network.loop.time()
        if 5 < end <= LONGEST and frame[5] in REMEMBERED:
            known = self._network.response_cache.find(frame)  # type: ignore[arg-type]
            if known is not None:
                self._again(known, frame)  # type: ignore[arg-type]
                return
            self._told = None
        if end > LARGE or self._network.request_scheduler.take(self, frame):  # type: ignore[arg-type]
            self._decide(frame, end)

    def decide(self, frame: bytes) -> None:
        """It is its turn."""
        self._decide(frame, len(frame))

    def _again(self, known: CachedResponse, frame: bytes) -> None:
        """Answer what was answered before, or keep the answer for a while."""
        network = self._network
        if known.coordinator is None:
            self._software = known.software
        else:
            network.groups.heard(known.group_id, known.member_id, self)
            max_hold_ms = self._hold_ms(known)
            self._told = known
            if max_hold_ms and self._hold(known, frame, max_hold_ms):
                return
        if network.meter is not None:
            network.meter.answered_again(known)
        self._transport.write(known.answer(frame))
        self._busy = False

    def _hold_ms(self, known: CachedResponse) -> int:
        """For how long this client waits for the answer in peace.

        It must have been told here by how much later an answer may come, or have shown it; and it must not
        have asked for more already."""
        again, max_hold_ms, config = self._told is known, known.hold_ms, self._network.settings.config
        if known.is_learnt:
            self._spacing = spacing = self._spacing or HeartbeatSpacing()
            spacing.came(int(self.active_at * 1000), again=again)
            max_hold_ms = max_classic_hold_ms(spacing.learnt_ms, is_static=known.is_static)
        if not again or not max_hold_ms or len(self._ahead) > self._at:
            return 0
        if known.is_learnt:
            clients = config["konvene.heartbeat.hold.classic.clients"]
        else:
            clients = config["konvene.heartbeat.hold.clients"]
        return max_hold_ms if may_be_held(self._software, clients) else 0

    def answer_held(self, known: CachedResponse, frame: bytes) -> None:
        """Answer the heartbeat that was held: the same, or what there is to tell by now."""
        self._holds = False
        if self._transport.is_closing():
            return
        if self._spacing is not None:
            self._spacing.answered(int(self._network.loop.time() * 1000))
        if not known.again(before=True):
            self._told = self._heard = None
            self._decide(frame, len(frame))
            return
        if self._network.meter is not None:
            self._network.meter.answered_again(known)
        self._transport.write(known.answer(frame))
        self._busy = False
        if self._ahead and not self._going:
            self._go_on()

    def _decide(self, frame: bytes | bytearray, end: int) -> None:
        try:
            head = read_head(frame, 4, end)
            route = self._network.routes.get(head.api_key)
            if route is None:
                raise CannotEncode(f"API key {head.api_key} is not served")
            version = head.api_version
            if not route.first <= version <= route.last:
                if head.api_key != API_VERSIONS:
                    raise CannotEncode(f"{route.api.name} has no version {version}")
                self._send(route, 0, head.correlation_id, unsupported_version())
                return
            body = skip_tags(frame, head.body, end) if version >= route.first_flexible else head.body
            request = route.read(version, frame, body, end)
        except CodecError as error:
            self._hang_up(str(error))
            return
        call = Call(version, head.client_id, self._host, connection=self)
        try:
            answer = route.handler(request, call)
        except Exception:
            self._broken(route)
            return
        if isinstance(answer, Deferred):
            answer.listen(lambda response: self._send(route, version, head.correlation_id, response))
        elif asyncio.iscoroutine(answer):
            self._task = self._network.loop.create_task(
                self._send_later(route, version, head.correlation_id, answer)
            )
        else:
            if head.api_key in REMEMBERED and not answer.error_code:
                self._remember(bytes(frame), route, request, answer)
                if head.api_key == SHARE_HEARTBEAT and self._holds_the_first(bytes(frame)):
                    return
            self._send(route, version, head.correlation_id, answer)

    def _holds_the_first(self, frame: bytes) -> bool:
        """Keep the answer to the first heartbeat after news as well.

        It says what the member was told here just before, so it has come; and a member of a share group has
        nothing to say of it. Without that, who has just heard of one change would hear late of the next."""
        known, heard = self._told, self._heard
        if known is None or heard is None or heard[0] != known.member_id or len(self._ahead) > self._at:
            return False
        held_ms = min(known.hold_ms, max_hold_ms(heard[1], is_static=False))
        if not held_ms or not may_be_held(
            self._software, self._network.settings.config["konvene.heartbeat.hold.clients"]
        ):
            return False
        return self._hold(known, frame, held_ms)

    def _hold(self, known: CachedResponse, frame: bytes, held_ms: int) -> bool:
        """Keep the answer for so long; False where the broker keeps none any more."""
        self._holds = self._network.heartbeat_purgatory.hold(self, known, frame, held_ms)
        if self._holds and self._network.meter is not None:
            self._network.meter.held += 1
        return self._holds

    def _remember(self, frame: bytes, route: Route, request: Any, answer: Any) -> None:
        """The same request may be answered alike next time."""
        remembered = self._network.response_cache
        if isinstance(answer, ApiVersionsResponse):
            if isinstance(request, ApiVersionsRequest):
                self._software = request.client_software_name, request.client_software_version
                remembered.constant(frame, route, answer, self._software)
            return
        coordinator = self._network.groups.of(request.group_id)
        if coordinator is None or any(getattr(answer, name, None) is not None for name in TOLD_ONCE):
            return
        if getattr(answer, "topology_description_required", False):
            return
        known = remembered.heartbeat(frame, route, answer, coordinator, request)
        if known is None:
            return
        self._told = known
        known.group_id, known.member_id = request.group_id, request.member_id
        if self._network.settings.holds_heartbeats:
            _may_wait(known, answer)

    async def _send_later(self, route: Route, version: int, correlation_id: int, answer: Any) -> None:
        try:
            response = await answer
        except asyncio.CancelledError:
            return
        except Exception:
            self._broken(route)
            return
        self._task = None
        self._send(route, version, correlation_id, response)

    def _send(self, route: Route, version: int, correlation_id: int, response: Any) -> None:
        """Send an answer (None: there is none to send), then go on with what was read meanwhile."""
        if self._transport.is_closing():
            return
        if response is HANG_UP:
            self._transport.close()
            return
        if response is not None:
            try:
                parts = route.write(version, correlation_id, response)
            except CodecError:
                self._broken(route)
                return
            if len(parts) > MANY_PARTS or sum(map(len, parts)) < LARGE:
                self._transport.write(b"".join(parts))
            else:
                self._transport.writelines(parts)
        if self._network.meter is not None:
            self._network.meter.answered(route.api.key, response)
        if route.api.key == SHARE_HEARTBEAT:
            self._heard = (response.member_id or "", response.heartbeat_interval_ms)
        self._busy = False
        if self._ahead and not self._going:
            self._go_on()

    def _broken(self, route: Route) -> None:
        log.exception("%s: %s failed; the connection is closed", self._host, route.api.name)
        self._transport.close()

    def _hang_up(self, why: str) -> None:
        log.warning("%s: closed: %s", self._host, why)
        self._busy = True
        self._ahead, self._at = b"", 0
        self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def close_if_idle(self, since: float) -> None:
        """Close if nothing was asked since then (`connections.max.idle.ms`)."""
        if not self._busy and self.active_at < since:
            self._transport.close()


def _may_wait(known: CachedResponse, answer: Any) -> None:
    """Note for how long the answer to this heartbeat may be kept next time."""
    value: Any = known.keep_alive and known.keep_alive.value
    if isinstance(value, ClassicGroup):
        # Kafka Streams closes without leaving, and waits for the answer as static members do.
        known.is_learnt = value.state is State.STABLE and value.protocol != STREAMS
        known.is_static = value.members[known.member_id].instance_id is not None
    else:
        is_static = value.member.instance_id is not None
        known.hold_ms = max_hold_ms(answer.heartbeat_interval_ms, is_static=is_static)
