"""What stands between a client and the broker, on every connection: whole frames come by, faults are done.

A `Gate` is the protocol that the listener gives a new connection to. Behind it, in the same process, is the
broker's own `Connection`, for which an `Inlet` plays the transport: there is no second socket, and addresses
are the true ones. As long as nobody asked for a fault, a gate reads no more than the header of a request,
and of a response nothing.

Laws: what is delayed or held keeps its place, as on a wire: what comes behind it waits too, each way by
itself. Responses leave in the order of their requests; a broker answers a connection in that order, so the
next response belongs to the oldest request without one. What announces itself as no frame is passed on as it
is, for the broker to judge.
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
from konvene.testing.request_header import Asked

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.testing.fault import Fault
    from konvene.testing.faults import Faults


class _Answer:
    """A request that was delivered, and its response once it is there."""

    __slots__ = ("asked", "judged", "parts", "swallowed")

    def __init__(self, asked: Asked, *, swallowed: bool = False) -> None:
        self.asked = asked
        self.parts: list[bytes] | None = None
        self.judged = False
        self.swallowed = swallowed
        """The client asked once only, and so hears of it once."""


class Inlet(asyncio.Transport):
    """The broker's end of a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def __repr__(self) -> str:
        return f"<inlet of {self._gate!r}>"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._gate.client.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._gate.client.is_closing()

    def close(self) -> None:
        self._gate.client.close()

    def abort(self) -> None:
        self._gate.client.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._gate.answered([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._gate.answered([bytes(data) for data in list_of_data])

    def pause_reading(self) -> None:
        self._gate.broker_is_full(True)

    def resume_reading(self) -> None:
        self._gate.broker_is_full(False)


class Gate(asyncio.Protocol):
    """One connection of a client, and what faults do to it."""

    def __init__(self, broker: Broker, faults: Faults, known: dict[Gate, None]) -> None:
        self.client: asyncio.Transport = cast("asyncio.Transport", None)
        self._broker = broker
        self._faults = faults
        self._known = known
        self._inner = Connection(broker.network)
        self._bytes = bytearray()
        self._requests: deque[Asked] = deque()
        self._answers: deque[_Answer] = deque()
        self._in_waits = self._out_waits = False
        self._deaf = self._mute = False
        self._full = False
        self._feeding = False
        self._as_it_is = False

    def __repr__(self) -> str:
        return f"<gate: {len(self._requests)} requests, {len(self._answers)} answers under way>"

    # --- what the client's transport tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client = cast("asyncio.Transport", transport)
        self._known[self] = None
        self._inner.connection_made(Inlet(self))

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
            self._requests.append(Asked(self._broker, bytes(held[start:end])))
            start = end
        del held[:start]
        self._let_in()

    # --- requests ---

    def _let_in(self) -> None:
        """Pass on what came, until something has to wait."""
        while self._requests and not (self._in_waits or self._full or self._feeding):
            asked = self._requests.popleft()
            if self._deaf:
                continue
            fault = self._faults.for_message(asked, "request")
            if fault is None:
                self._deliver(asked)
            else:
                self._do(fault, asked)

    def _do(self, fault: Fault, asked: Asked) -> None:
        action = fault.action
        if action.verb == "lose":
            self._deaf = action.after != "stays"
            if action.after == "cut":
                self.client.close()
        elif action.verb == "delay":
            self._in_waits = True
            self._broker.loop.call_later(action.ms / 1000, self._let_in_late, asked)
        elif action.verb == "hold":
            self._in_waits = True
            fault.keep(self._from_anywhere(lambda: self._let_in_late(asked)))
        elif action.verb == "duplicate":
            self._deliver(asked)
            self._deliver(asked, swallowed=True)
        elif action.verb == "cut":
            self._deaf = True
            self._feed(asked.frame[: action.at_byte])
            self.client.close()
        elif action.verb == "answer":
            self._refuse(fault, asked)
        else:
            self._in_waits = True
            self._faults.replace_member(self._broker, asked, lambda: self._let_in_late(asked))

    def _let_in_late(self, asked: Asked) -> None:
        self._in_waits = False
        if not self._deaf:
            self._deliver(asked)
            self._let_in()

    def _from_anywhere(self, call: Callable[[], None]) -> Callable[[], None]:
        """To be called from any thread, and also after the broker is gone; it is the broker that does it."""
        loop, context = self._broker.loop, copy_context()

        def later() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(call, context=context)

        return later

    def _deliver(self, asked: Asked, *, swallowed: bool = False) -> None:
        if not asked.has_no_answer:
            self._answers.append(_Answer(asked, swallowed=swallowed))
        self._feed(asked.frame)

    def _feed(self, data: bytes) -> None:
        """Hand bytes to the broker. It may say meanwhile that it has room: for what comes after these."""
        self._feeding = True
        at = 0
        while at < len(data) and not self.client.is_closing():
            room = self._inner.get_buffer(-1)
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self._inner.buffer_updated(count)
            at += count
        self._feeding = False

    def _refuse(self, fault: Fault, asked: Asked) -> None:
        """Answer in the broker's place. What cannot be read or refused so is let in instead."""
        route = self._broker.network.routes.get(asked.api_key)
        if route is None or asked.request is None:
            self._deliver(asked)
            return
        try:
            response = refusal(route.api, asked.version, asked.request, fault.action.error)
            parts = route.write(asked.version, asked.head.correlation_id, response)
        except (CannotRefuse, CodecError):
            self._deliver(asked)
            return
        answer = _Answer(asked)
        answer.parts, answer.judged = parts, True
        self._answers.append(answer)
        self._let_out()

    def broker_is_full(self, full: bool) -> None:
        self._full = full
        if full:
            self.client.pause_reading()
        else:
            self.client.resume_reading()
            self._let_in()

    # --- responses ---

    def answered(self, parts: list[bytes]) -> None:
        """The broker answered the oldest request without an answer."""
        for answer in self._answers:
            if answer.parts is None:
                answer.parts = parts
                break
        self._let_out()

    def _let_out(self) -> None:
        """Send what is answered, in order, until something has to wait."""
        while self._answers and not self._out_waits:
            answer = self._answers[0]
            if answer.parts is None:
                return
            fault = None
            if not answer.judged and not answer.swallowed and not self._mute:
                answer.judged = True
                fault = self._faults.for_message(answer.asked, "response")
            if fault is None:
                self._answers.popleft()
                self._send(answer)
            else:
                self._do_back(fault, answer)

    def _send(self, answer: _Answer) -> None:
        if answer.parts is not None and not (answer.swallowed or self._mute or self.client.is_closing()):
            self.client.writelines(answer.parts)

    def _do_back(self, fault: Fault, answer: _Answer) -> None:
        action = fault.action
        if action.verb == "delay":
            self._out_waits = True
            self._broker.loop.call_later(action.ms / 1000, self._let_out_late)
        elif action.verb == "hold":
            self._out_waits = True
            fault.keep(self._from_anywhere(self._let_out_late))
        else:  # lose, cut
            self._answers.popleft()
            if action.verb == "cut":
                self.client.write(b"".join(answer.parts or ())[: action.at_byte])
            self._mute = action.verb == "cut" or action.after != "stays"
            if action.verb == "cut" or action.after == "cut":
                self.client.close()

    def _let_out_late(self) -> None:
        self._out_waits = False
        self._let_out()
