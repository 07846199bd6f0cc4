"""The simulated network: streams that are TCP's, and every way in which they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from konvene.sim.machine.loop import SimLoop
from konvene.sim.machine.network import Endpoint, NetworkFaults


class Keeper(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.pieces: list[int] = []
        self.lost: list[Exception | None] = []
        self.full: list[bool] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came += data
        self.pieces.append(len(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)

    def pause_writing(self) -> None:
        self.full.append(True)

    def resume_writing(self) -> None:
        self.full.append(False)


class Buffering(asyncio.BufferedProtocol):
    """The same, with a buffer of seven bytes."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: Any = None
        self._buffer = bytearray(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.came += self._buffer[:nbytes]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


Story = Callable[[SimLoop, Any, Any], Awaitable[None]]


def play(story: Story, faults: NetworkFaults | None = None, *, server: Any = Keeper, seed: int = 1) -> None:
    """A client on one host, a server on another, connected."""
    loop = SimLoop(Random(seed), order="all")

    async def main() -> None:
        served: list[Any] = []

        def accept() -> Any:
            served.append(server())
            return served[-1]

        async def serve() -> None:
            await loop.create_server(accept, "server", 99)

        async def connect() -> Keeper:
            _, protocol = await loop.create_connection(Keeper, "server", 99)
            assert isinstance(protocol, Keeper)
            return protocol

        await loop.spawn("server", serve())
        client = await loop.spawn("client", connect())
        loop.network.faults = faults or NetworkFaults()
        await story(loop, client, served[0])

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("server", [Keeper, Buffering])
@pytest.mark.parametrize("window", [16, 256 * 1024])
def test_bytes_come_in_their_order_however_they_are_cut(server: Any, window: int) -> None:
    data = Random(5).randbytes(5_000)

    async def story(loop: SimLoop, client: Keeper, theirs: Any) -> None:
        for at in range(0, len(data), 1_000):
            client.transport.write(data[at : at + 1_000])
        theirs.transport.writelines([b"b", b"ack"])
        await asyncio.sleep(600)
        assert bytes(theirs.came) == data
        assert bytes(client.came) == b"back"

    play(story, NetworkFaults(split=0.9, clog=0.1, clog_mean_ms=500, window=window), server=server)


def test_both_sides_know_their_names() -> None:
    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        for one, other in ((client, theirs), (theirs, client)):
            name = one.transport.get_extra_info("sockname")
            assert name == other.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("sockname") == ("10.0.0.1", 40_001)
        assert theirs.transport.get_extra_info("sockname") == ("10.0.0.2", 99)
        assert client.transport.get_extra_info("sslcontext") is None

    play(story)


def test_a_peer_that_does_not_read_is_felt() -> None:
    """No more than a window is under way; the writer is told to stop, and to go on."""

    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        theirs.transport.pause_reading()
        client.transport.write(bytes(200_000))
        await asyncio.sleep(10)
        assert client.full == [True]
        assert client.transport.get_write_buffer_size() == 199_000
        assert theirs.came == b""
        theirs.transport.resume_reading()
        await asyncio.sleep(10)
        assert len(theirs.came) == 200_000
        assert client.full == [True, False]

    play(story, NetworkFaults(window=1_000))


def test_a_close_sends_what_was_written_and_an_abort_does_not() -> None:
    async def closing(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        client.transport.write(bytes(5_000))
        client.transport.close()
        assert client.transport.is_closing()
        await asyncio.sleep(10)
        assert len(theirs.came) == 5_000
        assert (client.lost, theirs.lost) == ([None], [None])
        assert not loop.network.endpoints

    async def aborting(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        client.transport.write(bytes(5_000))
        client.transport.abort()
        await asyncio.sleep(10)
        assert len(theirs.came) < 5_000
        assert client.lost == [None]
        assert isinstance(theirs.lost[0], ConnectionResetError)

    play(closing, NetworkFaults(window=100))
    play(aborting, NetworkFaults(window=100))


def test_a_reset_takes_both_sides_anywhere_within_a_piece() -> None:
    """What came before it is a prefix of what was sent, and no side is told twice."""
    came = set()
    for seed in range(20):

        async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
            client.transport.write(b"0123456789")
            await asyncio.sleep(10)
            assert b"0123456789".startswith(theirs.came)
            assert [type(e) for e in client.lost + theirs.lost] == [ConnectionResetError] * 2
            came.add(len(theirs.came))

        play(story, NetworkFaults(reset=1.0), seed=seed)
    assert len(came) > 5


def test_a_partition_holds_and_heals() -> None:
    """One way or both; a connect hangs as well."""

    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        loop.network.partition("client", "server", one_way=True)
        client.transport.write(b"lost?")
        theirs.transport.write(b"there")
        await asyncio.sleep(60)
        assert (bytes(theirs.came), bytes(client.came)) == (b"", b"there")
        connecting = loop.spawn("client", loop.create_connection(Keeper, "server", 99))
        await asyncio.sleep(60)
        assert not connecting.done()
        loop.network.heal()
        await asyncio.sleep(1)
        assert bytes(theirs.came) == b"lost?"
        assert connecting.done()
        connecting.result()

    play(story)


def test_nobody_listens_and_nobody_answers() -> None:
    """A process that is not there refuses; a machine that is dark says nothing until it is up."""

    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Keeper, "server", 98)
        loop.kill("server")
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Keeper, "server", 99)
        await asyncio.sleep(1)
        assert len(client.lost) == 1

    async def dark(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        loop.kill("server", silently=True)
        client.transport.write(b"hello?")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await loop.create_connection(Keeper, "server", 99)
        assert client.lost == []
        loop.host("server")
        await asyncio.sleep(200)
        assert isinstance(client.lost[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Keeper, "server", 99)

    play(story)
    play(dark)


def test_what_a_dead_process_had_sent_still_comes() -> None:
    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        client.transport.write(b"last words")
        loop.kill("client")
        client.transport.write(b"never")
        await asyncio.sleep(10)
        assert bytes(theirs.came) == b"last words"
        assert len(theirs.lost) == 1
        assert client.lost == []

    play(story)


def test_whoever_is_paused_or_deaf_gets_it_later() -> None:
    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
        loop.pause("server")
        client.transport.write(b"one")
        await asyncio.sleep(10)
        assert theirs.came == b""
        loop.resume("server")
        await asyncio.sleep(1)
        assert theirs.came == b"one"
        endpoint = theirs.transport
        assert isinstance(endpoint, Endpoint)
        loop.network.stop_reading(endpoint)
        client.transport.write(b"two")
        client.transport.close()
        await asyncio.sleep(10)
        assert theirs.came == b"one"
        assert theirs.lost == []
        loop.network.resume_reading(endpoint)
        await asyncio.sleep(1)
        assert theirs.came == b"onetwo"
        assert theirs.lost == [None]

    play(story)


def test_streams_work() -> None:
    async def story(loop: SimLoop, client: Keeper, theirs: Keeper) -> None:
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

    play(story, NetworkFaults(split=1.0))
