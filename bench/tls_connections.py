"""Memory of many short TLS connections, and service while many handshakes are left open.

    python -m bench.tls_connections [--connections 20000] [--half-open 10000]

Each short connection completes a handshake, is answered ApiVersions, and closes. Half-open ones are a third
each: clients that send nothing, clients that send half of their first message, and clients that speak another
protocol; meanwhile other clients are served. The last line reports whether the broker's memory returned to
within `--bound` MiB of that before the connections, and whether all half-open ones were closed at their
deadline. `--connections 100000` takes some minutes.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import ssl
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.against import brokers

from bench.systems import Running, report_progress
from konvene.broker.net.tls_acceptor import HANDSHAKE_TIMEOUT_S
from konvene.testing.certificates import CertificateAuthority

CLIENTS = 4
"""Processes that connect."""
WARM_UP = 1_000
SETTLE_S = 2.0
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
HALF_HELLO = bytes.fromhex("160301020001")
SPOKEN = (b"", HALF_HELLO, b"GET / HTTP/1.1\r\n\r\n")
"""What half-open clients send."""


class SecuredKonvene(brokers.Konvene):
    """konvene with a plaintext listener and one with TLS."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tls_port = brokers.free_port()
        authority = CertificateAuthority()
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_text(authority.certificate)
        address, key_store = (
            f"{brokers.HOST}:{self.tls_port}",
            authority.server().write(directory, "server")[2],
        )
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},TLS://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            # If the backlog is full, the operating system retries a connection only after a second.
            "socket.listen.backlog.size": "2000",
        }

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "konvene", "serve", "--data-dir", str(self.directory / "data")]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--connections", type=int, default=20_000)
    options.add_argument("--half-open", type=int, default=10_000)
    options.add_argument("--bound", type=float, default=30, help="MiB that may remain [%(default)g]")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        broker = SecuredKonvene(Path(place))
        running = Running(broker)
        running.start()
        try:
            remains = connect_briefly(running, broker, arguments.connections)
            all_closed = leave_open(running, broker, arguments.half_open)
            is_fine = remains <= arguments.bound and all_closed
            report_progress(
                f"{remains:+.1f} MiB after {arguments.connections:,} connections (bound {arguments.bound:g}),"
                f" half-open connections {'closed' if all_closed else 'NOT CLOSED'}"
            )
            sys.exit(0 if is_fine else 1)
        finally:
            running.kill()


def connect_briefly(running: Running, broker: SecuredKonvene, count: int) -> float:
    """Make short connections, and return the growth of the broker's memory in MiB."""
    with ProcessPoolExecutor(CLIENTS) as pool:
        _spread(pool, broker, WARM_UP)
        time.sleep(SETTLE_S)
        before_mib, cpu_s, highest = running.rss_mib(), running.cpu_s(), 0.0
        for done in range(0, count, 5_000):
            _spread(pool, broker, min(5_000, count - done))
            highest = max(highest, running.rss_mib())
            report_progress(f"{done + 5_000:>9,} connections  RSS {running.rss_mib():6.1f} MiB")
        spent_s = running.cpu_s() - cpu_s
    time.sleep(SETTLE_S)
    report_progress(
        f"{before_mib:.1f} MiB before, {highest:.1f} at most, {running.rss_mib():.1f} after;"
        f" {count / spent_s:,.0f} connections per CPU second"
    )
    return running.rss_mib() - before_mib


def _spread(pool: ProcessPoolExecutor, broker: SecuredKonvene, count: int) -> None:
    share = [count // CLIENTS] * CLIENTS
    share[0] += count % CLIENTS
    list(pool.map(_connect, [broker.tls_port] * CLIENTS, [str(broker.ca_file)] * CLIENTS, share))


def _connect(port: int, ca_file: str, count: int) -> None:
    context = ssl.create_default_context(cafile=ca_file)
    for _ in range(count):
        with (
            socket.create_connection((brokers.HOST, port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=brokers.HOST) as secured,
        ):
            secured.sendall(API_VERSIONS)
            if not secured.recv(4):
                raise ConnectionError("closed without a response")


def leave_open(running: Running, broker: SecuredKonvene, count: int) -> bool:
    """Leave handshakes open; return True if the broker closes all of them and serves others meanwhile."""
    before_mib, began = running.rss_mib(), time.monotonic()
    clients = []
    for number in range(count):
        client = socket.create_connection((brokers.HOST, broker.tls_port), timeout=60)
        client.sendall(SPOKEN[number % len(SPOKEN)])
        clients.append(client)
        if number % 1_000 == 999:
            _connect(broker.tls_port, str(broker.ca_file), 1)
    _connect(broker.tls_port, str(broker.ca_file), 100)
    report_progress(
        f"{count:,} half-open connections after {time.monotonic() - began:.1f} s: {running.descriptors():,}"
        f" descriptors, RSS {before_mib:.1f} -> {running.rss_mib():.1f} MiB; 100 others were served"
    )
    closed = _closed(clients, within_s=3 * HANDSHAKE_TIMEOUT_S)
    time.sleep(SETTLE_S)
    report_progress(
        f"{closed:,} closed after {time.monotonic() - began:.1f} s: {running.descriptors():,} descriptors,"
        f" RSS {running.rss_mib():.1f} MiB"
    )
    return closed == count


def _closed(clients: list[socket.socket], within_s: float) -> int:
    """Return how many of the connections the broker closes within a time."""
    selector, closed, deadline = selectors.DefaultSelector(), 0, time.monotonic() + within_s
    for client in clients:
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ)
    while closed < len(clients) and time.monotonic() < deadline:
        for key, _ in selector.select(1):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            try:
                is_closed = not ready.recv(4_096)  # An alert may come first.
            except ConnectionError:
                is_closed = True
            if is_closed:
                selector.unregister(ready)
                ready.close()
                closed += 1
    return closed


if __name__ == "__main__":
    main()
