"""Simulated network: byte streams between hosts, with latency, fragmentation and faults.

A stream keeps its order, as TCP does, and is fragmented at seeded positions. Written bytes are first in the
write buffer of the sender, then in flight, then in the read buffer of the receiver. A window bounds the bytes
that are in flight or unread, so that a peer that does not read causes back pressure.

Faults are rates (`NetworkFaults`) and actions (`partition`, `heal`, `stop_reading`). A partition holds bytes
and connects until it is healed, in one direction or both. A killed process closes its connections. A machine
that loses power does not: writes to it have no effect until it is up again, and then the connection is reset.
A reset discards the bytes in flight.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from konvene.sim.machine.endpoint import End, Endpoint, Pipe, was_reset

if TYPE_CHECKING:
    from konvene.sim.machine.loop import Host, SimLoop

__all__ = ["Endpoint", "Network", "NetworkFaults"]

FIRST_EPHEMERAL = 40_000
ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Connected = asyncio.Future[tuple[Endpoint, asyncio.BaseProtocol]]

ANYWHERE = ("localhost", "127.0.0.1", "0.0.0.0", "", None)
RETRANSMIT_S = 1.0


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Latencies of a network, and the probability of each fault per piece of data or per connect.

    By default there are no faults."""

    latency_min_ms: float = 0.1
    latency_mean_ms: float = 0.5
    split: float = 0.0
    """A piece is cut somewhere."""
    clog: float = 0.0
    """A piece, and all behind it, comes late."""
    clog_mean_ms: float = 1000.0
    reset: float = 0.0
    """A connection is reset somewhere within a piece."""
    refuse: float = 0.0
    """A connect is refused."""
    window: int = 256 * 1024
    """Bytes under way and unread, at most."""


SOUND = NetworkFaults()


class Server(asyncio.AbstractServer):
    """A listening socket of a host, as asyncio's server object."""

    def __init__(self, network: Network, factory: ProtocolFactory, host: Host, port: int) -> None:
        self._network = network
        self.factory = factory
        self.host = host
        self.port = port
        self.open = True

    def __repr__(self) -> str:
        return f"<server at {self.host.name}:{self.port}>"

    @property
    def sockets(self) -> tuple[Server, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._network.address(self.host.name), self.port

    def is_serving(self) -> bool:
        return self.open and self.host.alive

    def close(self) -> None:
        self.open = False

    async def start_serving(self) -> None:
        """Do nothing: the server listens from the beginning."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Do nothing: closing is immediate."""

    def get_loop(self) -> SimLoop:
        return self._network.loop

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()


class Network:
    """The connections between all hosts. `faults` can be replaced at any time."""

    def __init__(self, loop: SimLoop, faults: NetworkFaults = SOUND) -> None:
        self.loop = loop
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self.endpoints: dict[Endpoint, None] = {}
        self._servers: dict[tuple[str, int], Server] = {}
        self._addresses: dict[str, str] = {}
        self._ports: Counter[str] = Counter()
        self._blocked: set[tuple[str, str]] = set()
        self._held: list[tuple[str, str, Callable[[], None]]] = []

    def __repr__(self) -> str:
        return f"<network: {len(self.endpoints)} endpoints, {len(self._blocked)} blocked directions>"

    def address(self, name: str) -> str:
        """Return the IP address of the host `name`, which is assigned at the first use."""
        if name not in self._addresses:
            self._addresses[name] = f"10.0.0.{len(self._addresses) + 1}"
        return self._addresses[name]

    # --- actions ---

    def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Begin a partition: hold messages from `one` to `other` and, unless `one_way`, also those in the
        other direction, until `heal`."""
        self._blocked.add((one, other))
        if not one_way:
            self._blocked.add((other, one))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End the partition between two hosts, and deliver the messages that it held.

        Without arguments, end all partitions, and let all hosts that `stop_reading` stopped read again."""
        if one is None:
            self._blocked.clear()
        else:
            self._blocked -= {(one, other or one), (other or one, one)}
        held, self._held = self._held, []
        for src, dst, call in held:
            if (src, dst) in self._blocked:
                self._held.append((src, dst, call))
            else:
                self.loop.schedule(self.latency(), "held", partial("{}>{}".format, src, dst), call)
        if one is None:
            for endpoint in list(self.endpoints):
                self.resume_reading(endpoint)

    def is_blocked(self, src: str, dst: str) -> bool:
        return (src, dst) in self._blocked

    def stop_reading(self, endpoint: Endpoint) -> None:
        """Make the host of an endpoint stop reading from it, until `resume_reading` or a `heal` without
        arguments."""
        endpoint.inn.deaf = True

    def resume_reading(self, endpoint: Endpoint) -> None:
        """Let the host read from an endpoint again."""
        if endpoint.inn.deaf:
            endpoint.inn.deaf = False
            self.loop.run_on(endpoint.host, endpoint.take)

    def reset(self, endpoint: Endpoint) -> None:
        """Reset a connection on both sides."""
        for side in (endpoint, endpoint.peer):
            if not side.lost:
                self.loop.run_on(side.host, partial(side.end, was_reset(), None))

    def latency(self) -> float:
        faults, chance = self.faults, self.loop.chance
        wait = faults.latency_min_ms + chance.expovariate(1.0) * faults.latency_mean_ms
        if faults.clog and chance.random() < faults.clog:
            self.counts["clog"] += 1
            wait += chance.expovariate(1.0) * faults.clog_mean_ms
        return wait / 1000

    # --- connecting ---

    def listen(self, factory: ProtocolFactory, host: str | None, port: int | None) -> Server:
        here = self.loop.here()
        if host == "::1":
            raise OSError(errno.EADDRNOTAVAIL, "there are no such addresses")
        number = port or next(p for p in range(30_000, 40_000) if (here.name, p) not in self._servers)
        known = self._servers.get((here.name, number))
        if known is not None and known.is_serving():
            raise OSError(errno.EADDRINUSE, f"{here.name}:{number} is in use")
        server = self._servers[here.name, number] = Server(self, factory, here, number)
        return server

    def _find(self, host: str | None, port: int) -> Server | None:
        if host is None or host in ANYWHERE:
            names = [self.loop.here().name, *(name for name, p in self._servers if p == port)]
        else:
            names = [host]
        for name in names:
            server = self._servers.get((name, port))
            if server is not None and server.is_serving():
                return server
        return None

    async def connect(
        self, factory: ProtocolFactory, host: str | None, port: int
    ) -> tuple[Endpoint, asyncio.BaseProtocol]:
        """Connect to an address. Raises OSError if nothing listens; waits while a partition separates the
        hosts in either direction."""
        here = self.loop.here()
        target = here.name if host in ANYWHERE else str(host)
        found = self._find(host, port)
        if found is not None:
            target = found.host.name
        done: Connected = self.loop.create_future()
        arrive = lambda: self._syn(here, target, host, port, factory, done)  # noqa: E731
        self.loop.schedule(self.latency(), "connect", lambda: f"{here.name}>{target}:{port}", arrive)
        return await done

    def _syn(
        self, here: Host, target: str, host: str | None, port: int, factory: ProtocolFactory, done: Connected
    ) -> None:  # fmt: skip
        again = lambda: self._syn(here, target, host, port, factory, done)  # noqa: E731
        if done.done() or not here.alive:
            return
        for src, dst in ((here.name, target), (target, here.name)):
            if (src, dst) in self._blocked:
                self._held.append((src, dst, again))
                return
        machine = self.loop._hosts.get(target)
        if machine is not None and not machine.alive and machine.silent:
            self.loop.schedule(RETRANSMIT_S, "connect", lambda: f"{here.name}>{target}:{port} again", again)
            return
        server = self._servers.get((target, port))
        refused = self.faults.refuse and self.loop.chance.random() < self.faults.refuse
        if server is None or not server.is_serving() or refused:
            self.counts["refused"] += bool(refused)
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{target}', {port})")
            self.loop.run_on(here, lambda: None if done.done() else done.set_exception(error))
            return
        self._ports[here.name] += 1
        number = FIRST_EPHEMERAL + self._ports[here.name]
        theirs = Endpoint(self, server.host, server.port, asyncio.Protocol())
        ours = Endpoint(self, here, number, asyncio.Protocol())
        theirs.peer, ours.peer = ours, theirs
        ours.out = theirs.inn = Pipe(ours, theirs)
        theirs.out = ours.inn = Pipe(theirs, ours)
        self.endpoints[ours] = self.endpoints[theirs] = None
        self.loop.run_on(server.host, lambda: self._accepted(theirs, server))
        self.loop.schedule(
            self.latency(), "connected", lambda: f"{ours.label}>{theirs.label}",
            self.loop.run_on, here, lambda: self._connected(ours, factory, done),
        )  # fmt: skip

    def _accepted(self, endpoint: Endpoint, server: Server) -> None:
        if endpoint.lost:
            return
        if not server.is_serving():
            endpoint.abort()
            return
        protocol = server.factory()
        endpoint.set_protocol(protocol)
        protocol.connection_made(endpoint)

    def _connected(self, endpoint: Endpoint, factory: ProtocolFactory, done: Connected) -> None:
        if done.done():
            endpoint.abort()
            return
        if endpoint.lost:
            done.set_exception(was_reset())
            return
        protocol = factory()
        endpoint.set_protocol(protocol)
        protocol.connection_made(endpoint)
        done.set_result((endpoint, protocol))
        endpoint.take()

    # --- bytes ---

    def pump(self, pipe: Pipe) -> None:
        """Move written data of a pipe into flight, as much as the window allows; at seeded rates it is split,
        or the connection is reset."""
        faults, chance, waiting = self.faults, self.loop.chance, pipe.waiting
        moved = False
        while waiting and not pipe.src.lost:
            size = min(len(waiting), faults.window - pipe.under_way - len(pipe.arrived))
            if size <= 0:
                break
            if faults.split and chance.random() < faults.split:
                size = chance.randint(1, size)
            moved = True
            if faults.reset and chance.random() < faults.reset:
                self.counts["reset"] += 1
                size = chance.randint(0, size)
                if size:
                    self._send(pipe, bytes(waiting[:size]))
                self._send(pipe, End(was_reset()))
                self._reset_sender(pipe)
                waiting.clear()
                break
            self._send(pipe, bytes(waiting[:size]))
            del waiting[:size]
        if moved:
            pipe.src.drained()

    def send_end(self, pipe: Pipe, end: End) -> None:
        self._send(pipe, end)

    def _send(self, pipe: Pipe, item: bytes | End) -> None:
        pipe.flight.append(item)
        if not isinstance(item, End):
            pipe.under_way += len(item)
        pipe.last_at = max(pipe.last_at, self.loop.now + self.latency())
        self.loop.schedule(
            pipe.last_at - self.loop.now, "bytes", lambda: _describe_piece(pipe), self._arrive, pipe
        )

    def _arrive(self, pipe: Pipe) -> None:
        src, dst = pipe.src, pipe.dst
        ways = (src.host.name, dst.host.name)
        if ways in self._blocked:
            self._held.append((*ways, lambda: self._arrive(pipe)))
        elif dst.host.alive:
            self.loop.run_on(dst.host, lambda: self._deliver(pipe))
        elif dst.host.silent and not self.loop.is_up(dst.host.name):
            pipe.retries = min(pipe.retries + 1, 6)
            self.loop.schedule(
                RETRANSMIT_S * 2**pipe.retries,
                "bytes",
                lambda: f"{_describe_piece(pipe)} again",
                self._arrive,
                pipe,
            )
        else:
            self._reset_sender(pipe)

    def _deliver(self, pipe: Pipe) -> None:
        """Deliver the next piece of data that is in flight in a pipe; if the receiving side has ended, reset
        the sender instead."""
        item, dst = pipe.flight.popleft(), pipe.dst
        if not isinstance(item, End):
            pipe.under_way -= len(item)
        if dst.lost:
            if not isinstance(item, End):
                self._reset_sender(pipe)
            return
        if isinstance(item, End):
            pipe.ends = item
            if item.error is not None:
                pipe.arrived.clear()
                dst.end(item.error, None)
                return
        else:
            pipe.arrived += item
        if not pipe.deaf and type(dst._protocol) is not asyncio.Protocol:
            dst.take()

    def _reset_sender(self, pipe: Pipe) -> None:
        """Reset the connection at the sender of this pipe; that takes as long as a message to it."""
        src = pipe.src
        if not src.lost and src.host.alive:
            self.loop.schedule(
                self.latency(), "reset", lambda: src.label, self.loop.run_on, src.host,
                lambda: src.end(was_reset(), None),
            )  # fmt: skip

    def host_died(self, host: Host) -> None:
        """Remove the connections of a host that has died, with their unsent data; the peers are notified
        unless the machine lost power."""
        for endpoint in [e for e in self.endpoints if e.host is host]:
            endpoint._closing = endpoint.lost = True
            endpoint.out.waiting.clear()
            del self.endpoints[endpoint]
            if not host.silent:
                error = was_reset() if self.loop.chance.random() < 0.5 else None
                self._send(endpoint.out, End(error))


def _describe_piece(pipe: Pipe) -> str:
    """Return a description of the piece of data that is delivered next, for the trace: endpoints, size and
    checksum."""
    if not pipe.flight:
        return f"{pipe.src.label}>{pipe.dst.label} nothing"
    item = pipe.flight[0]
    if isinstance(item, End):
        return f"{pipe.src.label}>{pipe.dst.label} {'reset' if item.error else 'end'}"
    return f"{pipe.src.label}>{pipe.dst.label} {len(item)} bytes {zlib.crc32(item):08x}"
