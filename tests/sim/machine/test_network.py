"""The simulated network delivers bytes as TCP does, and injects network faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from konvene.sim.machine.loop import SimLoop
from konvene.sim.machine.network import Endpoint, NetworkFaults


class RecordingProtocol(asyncio.Protocol):
    """Records the received bytes, the closures and the flow control calls."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces: list[int] = []
        self.closures: list[Exception | None] = []
        self.paused: list[bool] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces.append(len(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.closures.append(error)

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)


class RecordingBufferedProtocol(asyncio.BufferedProtocol):
    """Records the received bytes and closures, with a receive buffer of seven bytes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closures: list[Exception | None] = []
        self.transport: Any = None
        self._buffer = bytearray(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def connection_lost(self, error: Exception | None) -> None:
        self.closures.append(error)


Scenario = Callable[[SimLoop, Any, Any], Awaitable[None]]


def run_scenario(
    scenario: Scenario, faults: NetworkFaults | None = None, *, server: Any = RecordingProtocol, seed: int = 1
) -> None:
    """Run a scenario with a client and a server protocol, connected and on different hosts."""
    loop = SimLoop(Random(seed), order="all")

    async def main() -> None:
        servers: list[Any] = []

        def accept() -> Any:
            servers.append(server())
            return servers[-1]

        async def serve() -> None:
            await loop.create_server(accept, "server", 99)

        async def connect() -> RecordingProtocol:
            _, protocol = await loop.create_connection(RecordingProtocol, "server", 99)
            assert isinstance(protocol, RecordingProtocol)
            return protocol

        await loop.spawn("server", serve())
        client = await loop.spawn("client", connect())
        loop.network.faults = faults or NetworkFaults()
        await scenario(loop, client, servers[0])

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("server", [RecordingProtocol, RecordingBufferedProtocol])
@pytest.mark.parametrize("window", [16, 256 * 1024])
def test_segmented_bytes_arrive_in_order(server: Any, window: int) -> None:
    data = Random(5).randbytes(5_000)

    async def scenario(loop: SimLoop, client: RecordingProtocol, server: Any) -> None:
        for at in range(0, len(data), 1_000):
            client.transport.write(data[at : at + 1_000])
        server.transport.writelines([b"b", b"ack"])
        await asyncio.sleep(600)
        assert bytes(server.received) == data
        assert bytes(client.received) == b"back"

    run_scenario(scenario, NetworkFaults(split=0.9, clog=0.1, clog_mean_ms=500, window=window), server=server)


def test_both_endpoints_report_their_addresses() -> None:
    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        for local, remote in ((client, server), (server, client)):
            name = local.transport.get_extra_info("sockname")
            assert name == remote.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("sockname") == ("10.0.0.1", 40_001)
        assert server.transport.get_extra_info("sockname") == ("10.0.0.2", 99)
        assert client.transport.get_extra_info("sslcontext") is None

    run_scenario(scenario)


def test_receiver_that_does_not_read_pauses_the_writer() -> None:
    """At most one window is in flight; the writer gets `pause_writing`, then `resume_writing`."""

    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        server.transport.pause_reading()
        client.transport.write(bytes(200_000))
        await asyncio.sleep(10)
        assert client.paused == [True]
        assert client.transport.get_write_buffer_size() == 199_000
        assert server.received == b""
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert len(server.received) == 200_000
        assert client.paused == [True, False]

    run_scenario(scenario, NetworkFaults(window=1_000))


def test_close_flushes_written_bytes_and_abort_discards_them() -> None:
    async def closing(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        client.transport.write(bytes(5_000))
        client.transport.close()
        assert client.transport.is_closing()
        await asyncio.sleep(10)
        assert len(server.received) == 5_000
        assert (client.closures, server.closures) == ([None], [None])
        assert not loop.network.endpoints

    async def aborting(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        client.transport.write(bytes(5_000))
        client.transport.abort()
        await asyncio.sleep(10)
        assert len(server.received) < 5_000
        assert client.closures == [None]
        assert isinstance(server.closures[0], ConnectionResetError)

    run_scenario(closing, NetworkFaults(window=100))
    run_scenario(aborting, NetworkFaults(window=100))


def test_reset_closes_both_endpoints_within_a_segment() -> None:
    """The received bytes are a prefix of the sent ones; each endpoint gets one ConnectionResetError."""
    received = set()
    for seed in range(20):

        async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
            client.transport.write(b"0123456789")
            await asyncio.sleep(10)
            assert b"0123456789".startswith(server.received)
            assert [type(e) for e in client.closures + server.closures] == [ConnectionResetError] * 2
            received.add(len(server.received))

        run_scenario(scenario, NetworkFaults(reset=1.0), seed=seed)
    assert len(received) > 5


def test_partition_delays_bytes_until_it_heals() -> None:
    """A one-way partition delays bytes in one direction; a connection attempt waits as well."""

    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        loop.network.partition("client", "server", one_way=True)
        client.transport.write(b"lost?")
        server.transport.write(b"there")
        await asyncio.sleep(60)
        assert (bytes(server.received), bytes(client.received)) == (b"", b"there")
        connecting = loop.spawn("client", loop.create_connection(RecordingProtocol, "server", 99))
        await asyncio.sleep(60)
        assert not connecting.done()
        loop.network.heal()
        await asyncio.sleep(1)
        assert bytes(server.received) == b"lost?"
        assert connecting.done()
        connecting.result()

    run_scenario(scenario)


def test_dead_process_refuses_and_dead_host_times_out() -> None:
    """A closed port refuses; a dead host does not respond, and resets connections after its restart."""

    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(RecordingProtocol, "server", 98)
        loop.kill("server")
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(RecordingProtocol, "server", 99)
        await asyncio.sleep(1)
        assert len(client.closures) == 1

    async def dead_host(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        loop.kill("server", silently=True)
        client.transport.write(b"hello?")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await loop.create_connection(RecordingProtocol, "server", 99)
        assert client.closures == []
        loop.host("server")
        await asyncio.sleep(200)
        assert isinstance(client.closures[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(RecordingProtocol, "server", 99)

    run_scenario(scenario)
    run_scenario(dead_host)


def test_bytes_sent_before_a_crash_are_delivered() -> None:
    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        client.transport.write(b"last words")
        loop.kill("client")
        client.transport.write(b"never")
        await asyncio.sleep(10)
        assert bytes(server.received) == b"last words"
        assert len(server.closures) == 1
        assert client.closures == []

    run_scenario(scenario)


def test_paused_process_and_stopped_reader_receive_bytes_later() -> None:
    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        loop.pause("server")
        client.transport.write(b"one")
        await asyncio.sleep(10)
        assert server.received == b""
        loop.resume("server")
        await asyncio.sleep(1)
        assert server.received == b"one"
        endpoint = server.transport
        assert isinstance(endpoint, Endpoint)
        loop.network.stop_reading(endpoint)
        client.transport.write(b"two")
        client.transport.close()
        await asyncio.sleep(10)
        assert server.received == b"one"
        assert server.closures == []
        loop.network.resume_reading(endpoint)
        await asyncio.sleep(1)
        assert server.received == b"onetwo"
        assert server.closures == [None]

    run_scenario(scenario)


def test_asyncio_streams_work() -> None:
    async def scenario(loop: SimLoop, client: RecordingProtocol, server: RecordingProtocol) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(answer, "localhost", 0) as server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("localhost", port)
            writer.write(b"hello\n")
            assert await reader.read() == b"HELLO\n"
            writer.close()

    run_scenario(scenario, NetworkFaults(split=1.0))
