"""A proxy between a client connection and the broker, which applies faults to whole frames.

The listener creates one `FaultProxy` for each client connection. The proxy feeds the broker's own
`Connection` in the same process through a `BrokerTransport`, without a second socket, so peer addresses stay
real. While no fault is armed, the proxy decodes only request headers and never looks into responses.

A delayed or held message also delays all later messages of its direction, as on a TCP stream. The broker
answers the requests of a connection in order, so a response belongs to the oldest request without one. Bytes
that are not a valid frame pass unchanged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from konvene.broker.net.endpoint import Endpoint
from konvene.codec.errors import CodecError
from konvene.testing.error_response import NoErrorField, error_response
from konvene.testing.request_header import ProxiedRequest

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.testing.fault import Fault
    from konvene.testing.faults import Faults


class _ProxiedResponse:
    """The place of a response in the order of requests; `parts` has its bytes once the broker has sent it."""

    __slots__ = ("checked", "parts", "proxied", "suppressed")

    def __init__(self, proxied: ProxiedRequest, *, suppressed: bool = False) -> None:
        self.proxied = proxied
        self.parts: list[bytes] | None = None
        self.checked = False
        self.suppressed = suppressed
        """True for the response to the second copy of a duplicated request, which the client must not
        receive."""


class BrokerTransport(asyncio.Transport):
    """The transport of the broker's `Connection` behind a proxy: it passes written data to the proxy, and all
    other calls to the client's transport."""

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__()
        self._proxy = proxy

    def __repr__(self) -> str:
        return f"<broker side of {self._proxy!r}>"

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._proxy.client.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._proxy.client.is_closing()

    def close(self) -> None:
        self._proxy.client.close()

    def abort(self) -> None:
        self._proxy.client.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._proxy.response_received([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._proxy.response_received([bytes(data) for data in list_of_data])

    def pause_reading(self) -> None:
        self._proxy.set_broker_paused(True)

    def resume_reading(self) -> None:
        self._proxy.set_broker_paused(False)


class FaultProxy(asyncio.Protocol):
    """The asyncio protocol of one client connection: forwards whole frames in both directions, with
    faults."""

    def __init__(
        self,
        broker: Broker,
        endpoint: Endpoint,
        faults: Faults,
        proxies: dict[FaultProxy, None],
        is_killed: Callable[[], bool] = lambda: False,
    ) -> None:
        """`proxies` has those that are connected; `is_killed`: returns whether the broker was killed."""
        self.client: asyncio.Transport = cast("asyncio.Transport", None)
        self._broker = broker
        self._faults = faults
        self._proxies = proxies
        self._is_killed = is_killed
        self._connection = endpoint.connection(broker.network)
        self._bytes = bytearray()
        self._requests: deque[ProxiedRequest] = deque()
        self._pending_responses: deque[_ProxiedResponse] = deque()
        self._requests_blocked = self._responses_blocked = False
        self._drop_requests = self._drop_responses = False
        self._broker_paused = False
        self._feeding = False
        self._passthrough = False

    def __repr__(self) -> str:
        return f"<proxy: {len(self._requests)} requests, {len(self._pending_responses)} responses pending>"

    # --- callbacks of the client's transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client = cast("asyncio.Transport", transport)
        if self._is_killed():  # The connection was accepted just before.
            self.client.abort()
            return
        self._proxies[self] = None
        self._connection.connection_made(BrokerTransport(self))

    def connection_lost(self, error: Exception | None) -> None:
        if self not in self._proxies:
            return
        del self._proxies[self]
        self._requests.clear()
        self._pending_responses.clear()
        self._drop_requests = self._drop_responses = True
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._passthrough:
            self._feed(data)
            return
        held = self._bytes
        held += data
        start = 0
        while len(held) - start >= 4:
            size = int.from_bytes(held[start : start + 4], "big", signed=True)
            if not 0 < size <= self._broker.network.max_request_bytes:
                self._passthrough = True
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
        """Deliver received requests to the broker in order until a fault or back-pressure blocks one."""
        while self._requests and not (self._requests_blocked or self._broker_paused or self._feeding):
            proxied = self._requests.popleft()
            if self._drop_requests:
                continue
            fault = self._faults.for_message(proxied, "request")
            if fault is None:
                self._deliver(proxied)
            else:
                self._apply_to_request(fault, proxied)

    def _apply_to_request(self, fault: Fault, proxied: ProxiedRequest) -> None:
        action = fault.action
        if action.verb == "lose":
            self._drop_requests = action.after != "stays"
            if action.after == "cut":
                self.client.close()
        elif action.verb == "delay":
            self._requests_blocked = True
            self._broker.loop.call_later(action.ms / 1000, self._deliver_delayed, proxied)
        elif action.verb == "hold":
            self._requests_blocked = True
            fault.hold(self._threadsafe(lambda: self._deliver_delayed(proxied)))
        elif action.verb == "duplicate":
            self._deliver(proxied)
            self._deliver(proxied, suppressed=True)
        elif action.verb == "cut":
            self._drop_requests = True
            self._feed(proxied.frame[: action.at_byte])
            self.client.close()
        elif action.verb == "answer":
            self._send_error(fault, proxied)
        else:
            self._requests_blocked = True
            self._faults.replace_member(self._broker, proxied, lambda: self._deliver_delayed(proxied))

    def _deliver_delayed(self, proxied: ProxiedRequest) -> None:
        self._requests_blocked = False
        if not self._drop_requests:
            self._deliver(proxied)
            self._deliver_pending()

    def _threadsafe(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return a function that any thread may call, which schedules `call` on the broker's event loop; it
        does nothing once that loop is closed."""
        loop, context = self._broker.loop, copy_context()

        def schedule() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(call, context=context)

        return schedule

    def _deliver(self, proxied: ProxiedRequest, *, suppressed: bool = False) -> None:
        if not proxied.has_no_response:
            self._pending_responses.append(_ProxiedResponse(proxied, suppressed=suppressed))
        self._feed(proxied.frame)

    def _feed(self, data: bytes) -> None:
        """Pass bytes to the broker's connection. While the connection handles them, `_deliver_pending`
        delivers no further request."""
        self._feeding = True
        position = 0
        while position < len(data) and not self.client.is_closing():
            buffer = self._connection.get_buffer(-1)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            self._connection.buffer_updated(count)
            position += count
        self._feeding = False

    def _send_error(self, fault: Fault, proxied: ProxiedRequest) -> None:
        """Answer the request with the fault's error in place of the broker, which does not receive the
        request.

        If the request cannot be decoded, or its response has no error code, deliver it to the broker
        instead."""
        route = self._broker.network.routes.get(proxied.api_key)
        if route is None or proxied.request is None:
            self._deliver(proxied)
            return
        try:
            response = error_response(route.api, proxied.version, proxied.request, fault.action.error)
            parts = route.write(proxied.version, proxied.head.correlation_id, response)
        except (NoErrorField, CodecError):
            self._deliver(proxied)
            return
        proxied_response = _ProxiedResponse(proxied)
        proxied_response.parts, proxied_response.checked = parts, True
        self._pending_responses.append(proxied_response)
        self._send_pending()

    def set_broker_paused(self, full: bool) -> None:
        self._broker_paused = full
        if full:
            self.client.pause_reading()
        else:
            self.client.resume_reading()
            self._deliver_pending()

    # --- responses ---

    def response_received(self, parts: list[bytes]) -> None:
        """Called with each response of the broker, as `parts`: assign it to the oldest request that has none,
        and send what can be sent."""
        for response in self._pending_responses:
            if response.parts is None:
                response.parts = parts
                break
        self._send_pending()

    def _send_pending(self) -> None:
        """Send responses to the client in the order of the requests, until one is not complete yet or a fault
        blocks it."""
        while self._pending_responses and not self._responses_blocked:
            response = self._pending_responses[0]
            if response.parts is None:
                return
            fault = None
            if not response.checked and not response.suppressed and not self._drop_responses:
                response.checked = True
                fault = self._faults.for_message(response.proxied, "response")
            if fault is None:
                self._pending_responses.popleft()
                self._send(response)
            else:
                self._apply_to_response(fault, response)

    def _send(self, response: _ProxiedResponse) -> None:
        if response.parts is not None and not (
            response.suppressed or self._drop_responses or self.client.is_closing()
        ):
            self.client.writelines(response.parts)

    def _apply_to_response(self, fault: Fault, response: _ProxiedResponse) -> None:
        action = fault.action
        if action.verb == "delay":
            self._responses_blocked = True
            self._broker.loop.call_later(action.ms / 1000, self._send_delayed)
        elif action.verb == "hold":
            self._responses_blocked = True
            fault.hold(self._threadsafe(self._send_delayed))
        else:  # lose, cut
            self._pending_responses.popleft()
            if action.verb == "cut":
                self.client.write(b"".join(response.parts or ())[: action.at_byte])
            self._drop_responses = action.verb == "cut" or action.after != "stays"
            if action.verb == "cut" or action.after == "cut":
                self.client.close()

    def _send_delayed(self) -> None:
        self._responses_blocked = False
        self._send_pending()
