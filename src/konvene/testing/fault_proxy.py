"""Proxy between each client connection and the broker: it passes whole frames and applies faults to them.

A `FaultProxy` is the protocol that the listener gives a new connection to. Behind it, in the same process, is
the broker's own `Connection`, with a `BrokerTransport`: there is no second socket, and addresses
are the real ones. Without faults the proxy reads only the header of a request, and nothing of a response.

Order is kept as on a wire: what follows a delayed or held message waits too, in each direction separately.
Responses leave in the order of their requests; a broker answers a connection in that order, so the next
response belongs to the oldest request without one. Data that is no valid frame is passed on unchanged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.net.connection import Connection
from konvene.codec.errors import CodecError
from konvene.testing.refusal import CannotRefuse, refusal
from konvene.testing.request_header import ProxiedRequest

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.testing.fault import Fault
    from konvene.testing.faults import Faults


class _ProxiedResponse:
    """A delivered request, and its response once the broker sent it."""

    __slots__ = ("judged", "parts", "proxied", "swallowed")

    def __init__(self, proxied: ProxiedRequest, *, swallowed: bool = False) -> None:
        self.proxied = proxied
        self.parts: list[bytes] | None = None
        self.judged = False
        self.swallowed = swallowed
        """The client asked once only, and so hears of it once."""


class BrokerTransport(asyncio.Transport):
    """The broker's end of a proxied connection."""

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__()
        self._proxy = proxy

    def __repr__(self) -> str:
        return f"<inlet of {self._proxy!r}>"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._proxy.client.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._proxy.client.is_closing()

    def close(self) -> None:
        self._proxy.client.close()

    def abort(self) -> None:
        self._proxy.client.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._proxy.answered([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._proxy.answered([bytes(data) for data in list_of_data])

    def pause_reading(self) -> None:
        self._proxy.broker_is_full(True)

    def resume_reading(self) -> None:
        self._proxy.broker_is_full(False)


class FaultProxy(asyncio.Protocol):
    """One proxied client connection; it passes whole frames and applies faults."""

    def __init__(self, broker: Broker, faults: Faults, known: dict[FaultProxy, None]) -> None:
        self.client: asyncio.Transport = cast("asyncio.Transport", None)
        self._broker = broker
        self._faults = faults
        self._known = known
        self._inner = Connection(broker.network)
        self._bytes = bytearray()
        self._requests: deque[ProxiedRequest] = deque()
        self._answers: deque[_ProxiedResponse] = deque()
        self._in_waits = self._out_waits = False
        self._deaf = self._mute = False
        self._full = False
        self._feeding = False
        self._as_it_is = False

    def __repr__(self) -> str:
        return f"<proxy: {len(self._requests)} requests, {len(self._answers)} answers under way>"

    # --- what the client's transport tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client = cast("asyncio.Transport", transport)
        self._known[self] = None
        self._inner.connection_made(BrokerTransport(self))

    def connection_lost(self, error: Exception | None) -> None:
        self._known.pop(self, None)
        self._requests.clear()
        self._answers.clear()
        self._deaf = self._mute = True
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._as_it_is:
            self._feed(data)
            return
        held = self._bytes
        held += data
        start = 0
        while len(held) - start >= 4:
            size = int.from_bytes(held[start : start + 4], "big", signed=True)
            if not 0 < size <= self._broker.network.max_request_bytes:
                self._as_it_is = True
                self._feed(bytes(held[start:]))
                start = len(held)
                break
            end = start + 4 + size
            if len(held) < end:
                break
            self._requests.append(ProxiedRequest(self._broker, bytes(held[start:end])))
            start = end
        del held[:start]
        self._deliver_pending()

    # --- requests ---

    def _deliver_pending(self) -> None:
        """Deliver received requests until one has to wait."""
        while self._requests and not (self._in_waits or self._full or self._feeding):
            proxied = self._requests.popleft()
            if self._deaf:
                continue
            fault = self._faults.for_message(proxied, "request")
            if fault is None:
                self._deliver(proxied)
            else:
                self._do(fault, proxied)

    def _do(self, fault: Fault, proxied: ProxiedRequest) -> None:
        action = fault.action
        if action.verb == "lose":
            self._deaf = action.after != "stays"
            if action.after == "cut":
                self.client.close()
        elif action.verb == "delay":
            self._in_waits = True
            self._broker.loop.call_later(action.ms / 1000, self._deliver_delayed, proxied)
        elif action.verb == "hold":
            self._in_waits = True
            fault.hold(self._threadsafe(lambda: self._deliver_delayed(proxied)))
        elif action.verb == "duplicate":
            self._deliver(proxied)
            self._deliver(proxied, swallowed=True)
        elif action.verb == "cut":
            self._deaf = True
            self._feed(proxied.frame[: action.at_byte])
            self.client.close()
        elif action.verb == "answer":
            self._refuse(fault, proxied)
        else:
            self._in_waits = True
            self._faults.replace_member(self._broker, proxied, lambda: self._deliver_delayed(proxied))

    def _deliver_delayed(self, proxied: ProxiedRequest) -> None:
        self._in_waits = False
        if not self._deaf:
            self._deliver(proxied)
            self._deliver_pending()

    def _threadsafe(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return a function that may be called from any thread, also after the broker stopped."""
        loop, context = self._broker.loop, copy_context()

        def later() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(call, context=context)

        return later

    def _deliver(self, proxied: ProxiedRequest, *, swallowed: bool = False) -> None:
        if not proxied.has_no_response:
            self._answers.append(_ProxiedResponse(proxied, swallowed=swallowed))
        self._feed(proxied.frame)

    def _feed(self, data: bytes) -> None:
        """Pass bytes to the broker's protocol, which may resume reading meanwhile."""
        self._feeding = True
        at = 0
        while at < len(data) and not self.client.is_closing():
            room = self._inner.get_buffer(-1)
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self._inner.buffer_updated(count)
            at += count
        self._feeding = False

    def _refuse(self, fault: Fault, proxied: ProxiedRequest) -> None:
        """Answer in place of the broker; a request that has no error response is delivered instead."""
        route = self._broker.network.routes.get(proxied.api_key)
        if route is None or proxied.request is None:
            self._deliver(proxied)
            return
        try:
            response = refusal(route.api, proxied.version, proxied.request, fault.action.error)
            parts = route.write(proxied.version, proxied.head.correlation_id, response)
        except (CannotRefuse, CodecError):
            self._deliver(proxied)
            return
        answer = _ProxiedResponse(proxied)
        answer.parts, answer.judged = parts, True
        self._answers.append(answer)
        self._send_pending()

    def broker_is_full(self, full: bool) -> None:
        self._full = full
        if full:
            self.client.pause_reading()
        else:
            self.client.resume_reading()
            self._deliver_pending()

    # --- responses ---

    def answered(self, parts: list[bytes]) -> None:
        """Handle the response to the oldest pending request."""
        for answer in self._answers:
            if answer.parts is None:
                answer.parts = parts
                break
        self._send_pending()

    def _send_pending(self) -> None:
        """Send responses in order until one has to wait."""
        while self._answers and not self._out_waits:
            answer = self._answers[0]
            if answer.parts is None:
                return
            fault = None
            if not answer.judged and not answer.swallowed and not self._mute:
                answer.judged = True
                fault = self._faults.for_message(answer.proxied, "response")
            if fault is None:
                self._answers.popleft()
                self._send(answer)
            else:
                self._apply_to_response(fault, answer)

    def _send(self, answer: _ProxiedResponse) -> None:
        if answer.parts is not None and not (answer.swallowed or self._mute or self.client.is_closing()):
            self.client.writelines(answer.parts)

    def _apply_to_response(self, fault: Fault, answer: _ProxiedResponse) -> None:
        action = fault.action
        if action.verb == "delay":
            self._out_waits = True
            self._broker.loop.call_later(action.ms / 1000, self._send_delayed)
        elif action.verb == "hold":
            self._out_waits = True
            fault.hold(self._threadsafe(self._send_delayed))
        else:  # lose, cut
            self._answers.popleft()
            if action.verb == "cut":
                self.client.write(b"".join(answer.parts or ())[: action.at_byte])
            self._mute = action.verb == "cut" or action.after != "stays"
            if action.verb == "cut" or action.after == "cut":
                self.client.close()

    def _send_delayed(self) -> None:
        self._out_waits = False
        self._send_pending()
