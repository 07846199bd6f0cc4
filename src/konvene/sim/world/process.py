"""A client's process as far as all clients are alike: it asks, waits, stands still, dies.

Every question has a time-out. When it passes, or when the connection breaks, all questions under way are
answered with None: they may have been carried out, nobody knows. An answer that comes for a connection that
is no more is not heard. A paused process hears and does in order, when it goes on, all that fell due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.sim.event_queue import Entry

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Answer = Struct | Errors | None
"""A response; an error where the request was refused as a whole; None if nothing was heard."""

REQUEST_TIMEOUT_MS = 5_000
"""`request.timeout.ms` of simulated clients; shorter than Kafka's, so that more happens in as many steps."""


class Process:
    """See the top of this file."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.paused = False
        self.life = 0
        """How often it was started."""
        self.connection = 0
        self._calls: dict[int, tuple[Callable[[Answer], None], Entry]] = {}
        self._last_call = 0
        self._backlog: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive" if self.alive else "dead"
        return f"<{self.name} {state}>"

    # --- life ---

    def start(self) -> None:
        """Begin. A subclass goes on from here."""
        self.life += 1
        self.alive, self.paused = True, False

    def die(self) -> None:
        """Stop where it is, and forget everything."""
        self.alive = self.paused = False
        self.life += 1
        self._backlog.clear()
        self._hang_up()
        self._calls.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """After a pause."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for life, call, args in backlog:
            self._do(life, call, args)

    def later(self, delay_ms: int, call: Callable[..., None], *args: Any) -> Entry:
        """Do something in a while, if this life lasts so long."""
        return self.world.agenda.after(delay_ms, self._do, self.life, call, args)

    def _do(self, life: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.paused:
            self._backlog.append((life, call, args))
        else:
            call(*args)

    # --- asking ---

    def ask(
        self,
        request: Struct,
        version: int,
        answered: Callable[[Answer], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Send a request to the coordinator."""
        self._last_call += 1
        number = self._last_call
        timer = self.later(timeout_ms, self._timed_out, number)
        self._calls[number] = (answered, timer)
        self.world.send(self, number, request, version)

    def receive(self, life: int, connection: int, number: int, answer: Answer) -> None:
        """An answer came."""
        if connection == self.connection:
            self._do(life, self._answered, (number, answer))

    def _answered(self, number: int, answer: Answer) -> None:
        waiting = self._calls.pop(number, None)
        if waiting is not None:
            waiting[1].cancel()
            waiting[0](answer)

    def _timed_out(self, number: int) -> None:
        if number in self._calls:
            self.world.log_event(self.name, "hears nothing and hangs up", None)
            self.disconnect()

    def broken(self, life: int, connection: int) -> None:
        """The connection broke."""
        if connection == self.connection:
            self._do(life, self.disconnect, ())

    def disconnect(self) -> None:
        """Give up the connection: whatever was asked has no answer."""
        self._hang_up()
        calls, self._calls = self._calls, {}
        for answered, timer in calls.values():
            timer.cancel()
            answered(None)

    def _hang_up(self) -> None:
        self.connection += 1
        for _, timer in self._calls.values():
            timer.cancel()
