"""A simulated client process: it sends requests, waits for responses, pauses and dies.

Every request has a timeout. When it passes, or when the connection breaks, all pending requests complete with
None: the coordinator may or may not have handled them. A response that arrives for a closed connection is
dropped. When a paused process resumes, it runs everything that became due meanwhile, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.sim.event_queue import Entry

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Answer = Struct | Errors | None
"""A response; an error if the request was rejected as a whole; None if no response arrived."""

REQUEST_TIMEOUT_MS = 5_000
"""`request.timeout.ms` of simulated clients; shorter than Kafka's, so that more happens in as many steps."""


class Process:
    """A simulated client process with one connection to the coordinator; the base class of all clients."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.paused = False
        self.life = 0
        """Number of starts and deaths so far; callbacks of an earlier life are dropped."""
        self.connection = 0
        self._calls: dict[int, tuple[Callable[[Answer], None], Entry]] = {}
        self._last_call = 0
        self._backlog: list[tuple[int, Callable[..., None], tuple[object, ...]]] = []

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive" if self.alive else "dead"
        return f"<{self.name} {state}>"

    # --- life ---

    def start(self) -> None:
        """Start the process; subclasses override this to send their first request."""
        self.life += 1
        self.alive, self.paused = True, False

    def die(self) -> None:
        """Stop at once and lose all state."""
        self.alive = self.paused = False
        self.life += 1
        self._backlog.clear()
        self._close_connection()
        self._calls.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Continue after a pause and run the callbacks that became due meanwhile."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for life, call, args in backlog:
            self._do(life, call, args)

    def schedule(self, delay_ms: int, call: Callable[..., None], *args: object) -> Entry:
        """Schedule a callback, which is dropped if the process dies or restarts before it is due."""
        return self.world.event_queue.after(delay_ms, self._do, self.life, call, args)

    def _do(self, life: int, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if life != self.life:
            return
        if self.paused:
            self._backlog.append((life, call, args))
        else:
            call(*args)

    # --- requests ---

    def send(
        self,
        request: Struct,
        version: int,
        answered: Callable[[Answer], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Send a request; `answered` is called once with the response, an error, or None if none arrives."""
        self._last_call += 1
        number = self._last_call
        timer = self.schedule(timeout_ms, self._timed_out, number)
        self._calls[number] = (answered, timer)
        self.world.send(self, number, request, version)

    def receive(self, life: int, connection: int, number: int, answer: Answer) -> None:
        """Deliver a response to request `number`, unless its connection or process has ended."""
        if connection == self.connection:
            self._do(life, self._answered, (number, answer))

    def _answered(self, number: int, answer: Answer) -> None:
        pending = self._calls.pop(number, None)
        if pending is not None:
            pending[1].cancel()
            pending[0](answer)

    def _timed_out(self, number: int) -> None:
        if number in self._calls:
            self.world.log_event(self.name, "disconnects after a request timeout", None)
            self.disconnect()

    def connection_broken(self, life: int, connection: int) -> None:
        """Disconnect because the network broke this connection; ignored if it was closed before."""
        if connection == self.connection:
            self._do(life, self.disconnect, ())

    def disconnect(self) -> None:
        """Close the connection; all pending requests complete with None."""
        self._close_connection()
        calls, self._calls = self._calls, {}
        for answered, timer in calls.values():
            timer.cancel()
            answered(None)

    def _close_connection(self) -> None:
        self.connection += 1
        for _, timer in self._calls.values():
            timer.cancel()


def error_of(answer: Answer) -> Errors | None:
    """Return the error of a response; None if there was no response."""
    if answer is None or isinstance(answer, Errors):
        return answer
    return Errors(getattr(answer, "error_code", 0))
