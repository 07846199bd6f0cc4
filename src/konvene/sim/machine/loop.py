"""Simulated asyncio event loop: virtual time, seeded scheduling, and hosts that are killed and paused.

When no callback is ready, time jumps to the next deadline. Ready callbacks run in a seeded order (`order`):
"fifo" is asyncio's own; "hosts" interleaves hosts and keeps asyncio's order within each; "all" breaks that
order too, for code that must not depend on it. Every callback belongs to the host in whose context it was
started. A killed host stops at once: none of its callbacks, tasks and timers runs again, and the network
closes its sockets. A paused host runs nothing, and everything at once when it resumes.

There are no threads: a function passed to an executor runs later in one step, and its result arrives in
another one. Races between threads are not simulated.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import socket
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar

if TYPE_CHECKING:
    from konvene.sim.machine.endpoint import Endpoint
    from konvene.sim.machine.network import Network, ProtocolFactory, Server

_Base: Any = asyncio.AbstractEventLoop

__all__ = ["WORLD", "Deadlock", "Host", "SimLoop"]

Order = Literal["fifo", "hosts", "all"]
T = TypeVar("T")

WORLD = "world"
"""The host of callbacks that were started on no other host."""

_HOST: ContextVar[Host] = ContextVar("konvene.sim.host")


class Deadlock(RuntimeError):
    """Raised when the loop cannot go on: tasks wait, but no callback is ready and no timer is pending."""


class Host:
    """One life of a simulated process. A restarted process is another object with the same name."""

    __slots__ = ("alive", "context", "name", "parked", "paused", "silent", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.silent = False
        """Whether it lost power: its connections are not closed."""
        self.parked: list[Callable[[], None]] = []
        self.tasks: list[asyncio.Task[object]] = []
        self.context = Context()
        self.context.run(_HOST.set, self)

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "paused" if self.paused else "alive"
        return f"<host {self.name}: {state}>"

    def unfinished(self) -> list[asyncio.Task[object]]:
        return [task for task in self.tasks if not task.done()]


class _Callback(asyncio.Handle):
    __slots__ = ("host",)
    host: Host


class _Timer(asyncio.TimerHandle):
    __slots__ = ("host", "kind", "what")
    host: Host
    kind: str
    what: Callable[[], str] | None


class SimLoop(_Base):  # type: ignore[misc]
    """An asyncio event loop in virtual time, on which several hosts run."""

    def __init__(
        self, chance: Random | None = None, *, order: Order = "hosts",
        disk_latency: Callable[[], float] = lambda: 0.001, time_costs: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        from konvene.sim.machine.network import Network

        self.chance = chance or Random(0)
        self.order: Order = order
        self.disk_latency = disk_latency
        """Returns the seconds that an executor job waits for a thread, and then its result for the loop."""
        self.time_costs = time_costs
        """Seconds that each read of the clock takes, so that code with time slices is interrupted."""
        self.steps = 0
        self.note: Callable[[str, str], None] | None = None
        """Called before each step with its kind and its description."""
        self.after: Callable[[], None] | None = None
        """Called after each step."""
        self.errors: Callable[[Host, dict[str, object]], None] | None = None
        self.network: Network = Network(self)
        self._now = self.began = 1000.0
        self._ready: list[_Callback | _Timer] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._serial = 0
        self._hosts: dict[str, Host] = {}
        self._graveyard: list[Host] = []
        self._world = self.host(WORLD)
        self._running = self._stopping = self._closed = False
        self._halted: BaseException | None = None
        self._handler: Callable[..., object] | None = None
        self._tasks_made = 0
        self.close_error: BaseException | None = None
        """Exception of a coroutine that was still running when the loop was closed."""

    def __repr__(self) -> str:
        return f"<simulated loop at {self._now:.3f} s: {len(self._ready)} ready, {len(self._timers)} timers>"

    # --- hosts ---

    def host(self, name: str) -> Host:
        """Return the live host of that name; start a new life if it has none."""
        found = self._hosts.get(name)
        if found is None or not found.alive:
            found = self._hosts[name] = Host(name)
        return found

    def hosts(self) -> list[Host]:
        """Return the live hosts in the order of their start."""
        return [host for host in self._hosts.values() if host.alive and host is not self._world]

    def is_up(self, name: str) -> bool:
        return name in self._hosts and self._hosts[name].alive

    def here(self) -> Host:
        """Return the host whose code is running."""
        return _HOST.get(self._world)

    def spawn(self, host: str, coro: Coroutine[object, Never, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task on the live host named `host`; start that host if there is none."""
        return self.create_task(coro, name=name, context=self.host(host).context.copy())

    def kill(self, name: str, *, silently: bool = False) -> None:
        """Kill a host as `kill -9` does; `silently` as a power cut does, which does not notify its peers."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        host.alive, host.silent = False, silently
        host.parked.clear()
        self._graveyard.append(host)
        for task in host.unfinished():  # They must not be awaited when the loop ends.
            asyncio.tasks._unregister_task(task)
        self.network.host_died(host)

    def pause(self, name: str) -> None:
        """Suspend a host as SIGSTOP does; clocks continue."""
        self.host(name).paused = True

    def resume(self, name: str) -> None:
        """Resume a host as SIGCONT does."""
        host = self.host(name)
        host.paused = False
        parked, host.parked = host.parked, []
        for call in parked:
            self._push(host, call)

    def _push(self, host: Host, call: Callable[[], None]) -> None:
        handle = _Callback(call, (), self, host.context.copy())
        handle.host = host
        self._ready.append(handle)

    def run_on(self, host: Host, call: Callable[[], None]) -> None:
        """Run `call` on a host as external input: now, or when the host resumes; never on a dead host."""
        if not host.alive:
            return
        if host.paused:
            host.parked.append(call)
            return
        host.context.copy().run(self._guarded, call)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": "a protocol failed", "exception": error, "handle": None})

    # --- callbacks and time ---

    def time(self) -> float:
        if self.time_costs is not None:
            self._now += self.time_costs()
        return self._now

    @property
    def now(self) -> float:
        """Virtual time in seconds. Reading it never advances it, as `time()` may."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        host = _HOST.get(self._world) if context is None else context.get(_HOST, self._world)
        handle = _Callback(callback, args, self, context)
        handle.host = host
        if host.alive and not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        host = _HOST.get(self._world) if context is None else context.get(_HOST, self._world)
        return self._schedule(when, "timer", host, callback, args, context, None)

    def schedule(
        self, delay: float, kind: str, what: Callable[[], str], callback: Callable[..., object], *args: object
    ) -> None:
        """Schedule an event outside of all hosts; `kind` and `what` describe it in the trace."""
        self._schedule(self._now + delay, kind, self._world, callback, args, self._world.context, what)

    def _schedule(
        self, when: float, kind: str, host: Host, callback: Callable[..., object], args: tuple[object, ...],
        context: Context | None, what: Callable[[], str] | None,
    ) -> _Timer:  # fmt: skip
        timer = _Timer(when, callback, args, self, context)
        timer.host, timer.kind, timer.what = host, kind, what
        if host.alive and not self._closed:
            self._serial += 1
            heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    # --- running ---

    def run_forever(self) -> None:
        if self._running:
            raise RuntimeError("this loop runs already")
        if self._closed:
            raise RuntimeError("this loop is closed")
        self._running = True
        events._set_running_loop(self)
        try:
            while not self._stopping and self._halted is None:
                self._turn()
        finally:
            self._running = self._stopping = False
            events._set_running_loop(None)
        if self._halted is not None:
            raise self._halted

    def run_until_complete(self, future: Awaitable[T]) -> T:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_for)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_for)
        if not task.done():
            raise RuntimeError("the loop stopped before its future was done")
        return task.result()

    def _stop_for(self, _task: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping = True

    def halt(self, why: BaseException) -> None:
        """End the run with the error `why`; only the first one counts."""
        if self._halted is None:
            self._halted = why

    def _turn(self) -> None:
        if not self._ready:
            self._advance()
            return
        handle = self._pick()
        host = handle.host
        if handle._cancelled or not host.alive:
            return
        if host.paused:
            host.parked.append(lambda: None if handle._cancelled else handle._run())
        elif type(handle) is _Timer:
            self.steps += 1
            if self.note is not None:
                called: Any = handle
                what = _name(called._callback) if handle.what is None else handle.what()
                self.note(handle.kind, what if host is self._world else f"{host.name} {what}")
            handle._run()
            if self.after is not None:
                self.after()
        else:
            handle._run()

    def _pick(self) -> _Callback | _Timer:
        ready = self._ready
        if self.order == "fifo" or len(ready) == 1:
            return ready.pop(0)
        at = int(self.chance.random() * len(ready))
        if self.order == "hosts":
            host = ready[at].host
            at = next(i for i, handle in enumerate(ready) if handle.host is host)
        return ready.pop(at)

    def _advance(self) -> None:
        """Advance the time to the next timer."""
        timers, ready = self._timers, self._ready
        while timers and not ready:
            when = timers[0][0]
            while timers and timers[0][0] <= max(when, self._now):
                timer = heapq.heappop(timers)[2]
                if not timer._cancelled and timer.host.alive:
                    ready.append(timer)
            if ready:
                self._now = max(self._now, when)
        if not ready:
            raise Deadlock(f"nothing will ever happen; {self._pending_tasks()}")

    def _pending_tasks(self) -> str:
        waiting = [
            f"{task.get_name()} ({_name(task.get_coro())})"
            for host in self._hosts.values()
            if host.alive
            for task in host.unfinished()
        ]
        return f"pending tasks: {', '.join(waiting)}" if waiting else "no pending tasks"

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the loop, and close the coroutines that killed hosts left behind."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for host in [*self._graveyard, *self._hosts.values()]:
            host.alive = False
            for task in host.unfinished():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coro = task.get_coro()
                try:
                    if inspect.iscoroutine(coro):
                        host.context.copy().run(_end, coro)
                except BaseException as error:
                    self.close_error = error
            host.tasks.clear()

    # --- futures, tasks, executors, connections ---

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[object, Never, T], *, name: str | None = None, context: Context | None = None,
        **more: Any,
    ) -> asyncio.Task[T]:  # fmt: skip
        host = self.here() if context is None else context.get(_HOST, self._world)
        self._tasks_made += 1
        name = name or f"{host.name}/{self._tasks_made}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context, **more)
        tasks = host.tasks
        tasks.append(task)
        if len(tasks) > 64 and len(tasks) & (len(tasks) - 1) == 0:
            host.tasks = [each for each in tasks if not _is_settled(each)]
        return task

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        host = self.here()
        self._schedule(
            self._now + self.disk_latency(), "thread", host, self._execute, (future, func, args),
            host.context.copy(), lambda: f"runs {_name(func)}",
        )  # fmt: skip
        return future

    def _execute(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[object, ...]) -> None:
        host = self.here()
        result, error = None, None
        try:
            result = func(*args)
        except BaseException as raised:
            error = raised
        self._schedule(
            self._now + self.disk_latency(), "thread", host, _settle, (future, result, error),
            host.context.copy(), lambda: f"is done with {_name(func)}",
        )  # fmt: skip

    def set_default_executor(self, executor: object) -> None:
        """Do nothing: there are no threads."""

    async def shutdown_default_executor(self, *_timeout: float | None) -> None:
        """Do nothing: there are no threads."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: async generators are not tracked."""

    async def create_server(
        self,
        protocol_factory: ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        **kw: object,
    ) -> Server:
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(
        self, protocol_factory: ProtocolFactory, host: str | None, port: int, **kw: object
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        if kw.get("ssl") or kw.get("sock") is not None:
            raise NotImplementedError("the simulated network knows neither TLS nor real sockets")
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: object, port: object, **kw: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def getnameinfo(self, sockaddr: tuple[object, ...], flags: int = 0) -> tuple[str, str]:
        return str(sockaddr[0]), str(sockaddr[1])

    # --- what goes wrong ---

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Callable[..., object] | None:
        return self._handler

    def default_exception_handler(self, context: dict[str, object]) -> None:
        """Pass an error to the callback `errors`; if that is None, the error ends the run."""
        host = self.here()
        if self._closed or not host.alive:
            return
        if self.errors is not None:
            self.errors(host, context)
        elif isinstance(error := context.get("exception"), BaseException) and "handle" in context:
            self.halt(error)

    def call_exception_handler(self, context: dict[str, object]) -> None:
        if self._handler is not None and self.here().alive:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: there is no debug mode."""

    def get_task_factory(self) -> None:
        return None


def _end(coro: CoroutineType[object, Never, object]) -> None:
    """Close a coroutine; if it never started, also the coroutines among its arguments."""
    if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED and coro.cr_frame is not None:
        for given in list(coro.cr_frame.f_locals.values()):
            if inspect.iscoroutine(given):
                given.close()
    coro.close()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _is_settled(task: asyncio.Task[object]) -> bool:
    """Return True if the task was cancelled or has finished without an exception."""
    return task.done() and (task.cancelled() or task.exception() is None)


def _name(callback: object) -> str:
    """Return a name for a callback that is the same in every run."""
    while hasattr(callback, "func"):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return getattr(callback, "__qualname__", None) or type(callback).__name__
