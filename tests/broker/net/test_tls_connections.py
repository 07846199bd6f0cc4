"""TLS connections under attack and under change: limits, deadlines, memory, and certificates that rotate."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.raw_connections import until
from tests.broker.net.secured import Secured

from konvene.broker.net import tls_acceptor
from konvene.broker.net.tls_acceptor import TlsAcceptor
from konvene.security.tls.alerts import AlertingContext

API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
HALF_HELLO = bytes.fromhex("160301020001")
CONNECTIONS, HALF_OPEN = 100, 300
NEVER_S = 3_600.0
WITHIN_S = 60


def uvloop_or_none() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


LOOPS = [asyncio.new_event_loop, *filter(None, (uvloop_or_none(),))]
on_each_loop = pytest.mark.parametrize("loop", LOOPS, ids=lambda factory: factory.__module__)


def run(
    work: Coroutine[Any, Any, None],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    async def limited() -> None:
        async with asyncio.timeout(WITHIN_S):
            await work

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


def port(secured: Secured) -> int:
    return secured.server.listeners["TLS"].port


def acceptor(secured: Secured) -> TlsAcceptor:
    found = secured.server.listeners["TLS"].tls_acceptor
    assert found is not None
    return found


async def half_open(secured: Secured, data: bytes = b"") -> asyncio.StreamReader:
    """Connect without TLS, and send these bytes; return what the broker sends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(secured))
    writer.write(data)
    reader.writer = writer  # type: ignore[attr-defined] # Open as long as the reader exists.
    return reader


async def ends(reader: asyncio.StreamReader) -> bool:
    """Wait until the broker closes the connection."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    return True


async def is_served(context: ssl.SSLContext, tls_port: int, requests: int = 1) -> bytes:
    """Connect, send requests, and return the broker's certificate. Raises OSError without a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", tls_port, ssl=context)
    try:
        for _ in range(requests):
            writer.write(API_VERSIONS)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("closed without a response") from error
    finally:
        writer.close()
    assert isinstance(found, bytes)
    return found


def trusting(secured: Secured) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(secured.ca_file))


# --- memory ---


def exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "closed without a response"
        data += part
    return data


def connect_and_close(tls_port: int, ca_file: Path, count: int) -> None:
    """Make connections of each kind, one after the other."""
    context = ssl.create_default_context(cafile=str(ca_file))
    for number in range(count):
        with socket.create_connection(("127.0.0.1", tls_port), timeout=WITHIN_S) as plain:
            if number % 4 == 0:  # Not TLS.
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while plain.recv(100):
                    pass
            elif number % 4 == 1:  # Abandoned in the middle of its first message.
                plain.sendall(HALF_HELLO)
            else:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                    secured.sendall(API_VERSIONS)
                    exactly(secured, int.from_bytes(exactly(secured, 4), "big"))
                    if number % 4 == 3:
                        secured.unwrap()  # Closed properly.


@on_each_loop
def test_closed_connections_are_freed_without_the_garbage_collector(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle of a connection and its transport would stay until a collection, with all buffers of TLS."""
    living: weakref.WeakSet[ssl.SSLObject] = weakref.WeakSet()
    made = []
    wrap = AlertingContext.wrap_bio

    def recorded(*arguments: Any, **options: Any) -> Any:
        session = wrap(*arguments, **options)
        living.add(session)
        made.append(id(session))
        return session

    monkeypatch.setattr(AlertingContext, "wrap_bio", recorded)

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            gc.disable()
            try:
                await asyncio.to_thread(connect_and_close, port(secured), secured.ca_file, CONNECTIONS)
                await until(lambda: not living, WITHIN_S)
            finally:
                gc.enable()
            assert len(made) == CONNECTIONS
            assert not secured.broker.network.connections
            assert not acceptor(secured).handshakes
            assert secured.broker.network.connection_quotas.is_empty

    run(scenario(), loop)


# --- limits and deadlines ---


def test_connections_count_before_their_handshake(tmp_path: Path) -> None:
    """Against the limit of the broker, of the host and of the listener; a place is given back at the end."""

    async def scenario(limit: str) -> None:
        secured = Secured(tmp_path)
        async with secured.running(secured.settings() | {limit: "3"}):
            acceptor(secured).handshake_timeout_s = NEVER_S
            silent = [await half_open(secured, data) for data in (b"", b"", HALF_HELLO)]
            await until(lambda: acceptor(secured).handshakes == 3, WITHIN_S)
            assert await ends(await half_open(secured))
            with pytest.raises(OSError):
                await is_served(trusting(secured), port(secured))
            silent[0].writer.close()  # type: ignore[attr-defined]
            await until(lambda: acceptor(secured).handshakes == 2, WITHIN_S)
            await is_served(trusting(secured), port(secured))

    for limit in ("max.connections", "max.connections.per.ip", "listener.name.tls.max.connections"):
        run(scenario(limit))


@on_each_loop
def test_half_open_connections_end_at_their_deadline(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Others are served meanwhile. Bytes that trickle in do not move the deadline."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(secured.settings(socket_listen_backlog_size="1000")):
            acceptor(secured).handshake_timeout_s = NEVER_S
            waiting = [await half_open(secured, (b"", HALF_HELLO)[n % 2]) for n in range(HALF_OPEN)]
            await until(lambda: acceptor(secured).handshakes == HALF_OPEN, WITHIN_S)
            for _ in range(5):
                await is_served(trusting(secured), port(secured))
            acceptor(secured).handshake_timeout_s = 0.3
            slow = await half_open(secured, HALF_HELLO)
            ended = asyncio.create_task(ends(slow))
            while not ended.done():
                slow.writer.write(b"\0")  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            assert acceptor(secured).handshakes == HALF_OPEN
        assert all([await ends(reader) for reader in waiting])

    run(scenario(), loop)


def test_a_connection_counts_once_for_the_rate_of_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its handshake, which does not begin while it has to wait."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        limited = secured.settings() | {"listener.name.tls.max.connection.creation.rate": "1000"}
        async with secured.running(limited):
            acceptor(secured).handshake_timeout_s = NEVER_S
            admission, counted = secured.broker.network.connection_admission, []
            record = admission.rates.record

            def recorded(listener: str) -> int:
                counted.append(listener)
                return record(listener)

            monkeypatch.setattr(admission.rates, "record", recorded)
            for _ in range(3):
                await is_served(trusting(secured), port(secured))
            assert counted == ["TLS"] * 3
            silent = await half_open(secured)
            await until(lambda: acceptor(secured).handshakes == 1, WITHIN_S)
            assert counted == ["TLS"] * 4
            monkeypatch.setattr(admission.rates, "record", lambda _listener: int(1_000 * NEVER_S))
            waiting = await half_open(secured)
            await until(lambda: repr(admission).startswith("<1 connections wait"), WITHIN_S)
            assert acceptor(secured).handshakes == 1
        assert await ends(silent)
        assert await ends(waiting)

    run(scenario())


def test_a_broker_without_descriptors_accepts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running():
            accept, failures = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

            def exhausted(listening: socket.socket) -> Any:
                if failures:
                    raise OSError(failures.pop(), "exhausted")
                return accept(listening)

            monkeypatch.setattr(socket.socket, "accept", exhausted)
            monkeypatch.setattr(tls_acceptor, "PAUSE_S", 0.01)
            await is_served(trusting(secured), port(secured))
            assert not failures

    run(scenario())


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_system_without_one_family_of_addresses_listens_on_the_other(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        secured, bind = Secured(tmp_path), socket.socket.bind

        def bind_ipv4(unbound: socket.socket, address: Any) -> None:
            if unbound.family == socket.AF_INET6:
                raise OSError(code, "no IPv6")
            bind(unbound, address)

        monkeypatch.setattr(socket.socket, "bind", bind_ipv4)
        async with secured.running():
            before = repr(acceptor(secured))
            assert await acceptor(secured).listen(None, 0) > 0
            assert before == "<TLS acceptor: 1 sockets, 0 handshakes>"
            assert repr(acceptor(secured)) == "<TLS acceptor: 2 sockets, 0 handshakes>"
            with pytest.raises(OSError, match="no IPv6") as raised:
                await acceptor(secured).listen("::1", 0)
            assert raised.value.errno == code

    run(scenario())


# --- change ---


@on_each_loop
def test_keys_and_trust_rotate_under_load(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """No handshake and no request fails, and each new certificate is served."""
    clients, rotations, requests = 4, 6, 5

    async def scenario() -> None:
        secured = Secured(tmp_path)
        async with secured.running(), asyncio.TaskGroup() as group:
            seen: list[bytes] = []
            stopped = asyncio.Event()

            async def client() -> None:
                while not stopped.is_set():
                    seen.append(await is_served(trusting(secured), port(secured), requests))

            async def steady() -> None:
                """Send requests on one connection, which keeps its certificate."""
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port(secured), ssl=trusting(secured)
                )
                while not stopped.is_set():
                    writer.write(API_VERSIONS)
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                writer.close()

            for _ in range(clients):
                group.create_task(client())
            group.create_task(steady())
            for number in range(rotations):
                made = secured.authority.server()
                secured.keystore.write_text(made.key + made.certificate)
                secured.ca_file.write_text(secured.authority.certificate + "\n" * number)
                secured.broker.listener_security.reload_changed_files()
                await until(lambda made=made: made.der in seen, WITHIN_S)  # type: ignore[misc]
            stopped.set()

    run(scenario(), loop)


def test_other_trusted_authorities_are_for_new_connections(tmp_path: Path) -> None:
    """An open connection stays, although its certificate is not trusted any more."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        (tmp_path / "other").mkdir()
        other = Secured(tmp_path / "other")
        trust = tmp_path / "trusted.pem"
        trust.write_text(secured.authority.certificate)
        required = secured.settings(ssl_client_auth="required", ssl_truststore_location=str(trust))
        async with secured.running(required):
            contexts = []
            for authority in (secured.authority, other.authority):
                context = trusting(secured)
                context.load_cert_chain(authority.client("CN=alice").write(tmp_path, "client")[2])
                contexts.append(context)
            ours, theirs = contexts
            reader, writer = await asyncio.open_connection("127.0.0.1", port(secured), ssl=ours)
            with pytest.raises(OSError):
                await is_served(theirs, port(secured))
            trust.write_text(other.authority.certificate)
            secured.broker.listener_security.reload_changed_files()
            await is_served(theirs, port(secured))
            with pytest.raises(OSError):
                await is_served(ours, port(secured))
            writer.write(API_VERSIONS)
            assert await reader.readexactly(4)
            writer.close()

    run(scenario())
