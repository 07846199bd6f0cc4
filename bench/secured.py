"""Measured brokers with listeners for TLS and SASL, with and without an authorizer.

Each broker has a PLAINTEXT listener, two with TLS (keys P-256 and RSA-2048) and one with SASL_SSL. Kafka
and konvene get the same settings, certificates, users and ACLs.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.against import brokers

from bench.systems import SETTINGS, Kafka, Running
from bench.wire import HOST, WAIT_S, BadAnswer, Peer
from konvene.client.admin.acls import creation_of
from konvene.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from konvene.security.acls import Acl, PatternType, PermissionType
from konvene.security.resources import Operation, ResourceType
from konvene.testing.certificates import CertificateAuthority

PLAINTEXT, P256, RSA, SASL = "PLAINTEXT", "P256", "RSA", "SASL"
"""Names of the listeners."""
PROTOCOLS = {PLAINTEXT: "PLAINTEXT", P256: "SSL", RSA: "SSL", SASL: "SASL_SSL"}
ADMIN = "admin"
"""Super user of brokers with an authorizer; its password is its name."""
OTHER_ACLS = 100
"""ACLs of other users and resources, beside those that permit the requests."""
FIRST_HANDSHAKE_S = 10.0
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = f'{PLAIN_MODULE} username="{ADMIN}" password="{ADMIN}" user_{ADMIN}="{ADMIN}" user_alice="alice";'


def _listeners(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


class SecuredKonvene(brokers.Konvene):
    """konvene with all listeners."""

    ports: dict[str, int]

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "konvene", "serve", "--data-dir", str(self.directory / "data")]
        for name, value in (self.settings | {"listeners": _listeners(self.ports)}).items():
            words += ["--set", f"{name}={value}"]
        return words


class SecuredKafka(Kafka):
    """Apache Kafka with all listeners. Its controller has SASL, so that anonymous clients have no rights."""

    ports: dict[str, int]

    def prepare(self) -> None:
        super().prepare()
        with self.properties.open("a") as properties:  # The last value of a property counts.
            properties.write(
                f"listeners={_listeners(self.ports)},CONTROLLER://{HOST}:{self.controller_port}\n"
                f"advertised.listeners={_listeners(self.ports)}\n"
            )


BROKERS: dict[str, type[SecuredKonvene] | type[SecuredKafka]] = {
    "konvene": SecuredKonvene, "kafka": SecuredKafka,
}  # fmt: skip
KAFKA_ONLY = {
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": USERS,
}


@dataclass(frozen=True)
class Endpoint:
    """A listener as its clients see it."""

    port: int
    tls: ssl.SSLContext | None = None
    user: str = ""
    """User that authenticates with SASL PLAIN, with its name as the password; empty without SASL."""

    def connect(self, source: str = "") -> socket.socket:
        """Return a connection that is ready for requests; `source` is the local address, if any."""
        connected = socket.create_connection(
            (HOST, self.port), timeout=WAIT_S, source_address=(source, 0) if source else None
        )
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return connected
        connected = self.tls.wrap_socket(connected)
        if self.user:
            self._authenticate(Peer(self.port, connected))
        return connected

    def _authenticate(self, peer: Peer) -> None:
        credentials = f"\0{self.user}\0{self.user}".encode()
        shaken = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=credentials), SaslAuthenticateResponse)
        if shaken.error_code or answer.error_code:
            raise BadAnswer(f"{self.user} is not authenticated: {answer.error_message}")


class Secured:
    """A running broker and its endpoints by the listener's name."""

    def __init__(self, running: Running, ports: dict[str, int]) -> None:
        self.running = running
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self.endpoints = {
            name: Endpoint(
                port,
                None if name == PLAINTEXT else self.tls,
                "alice" if name == SASL else "",
            )
            for name, port in ports.items()
        }

    def __repr__(self) -> str:
        return f"<{self.running!r} with listeners {', '.join(self.endpoints)}>"

    def create_acls(self) -> None:
        """Permit anonymous clients what benchmarks do, and create ACLs that do not concern them."""
        acls = [
            Acl(kind, "bench-", PatternType.PREFIXED, user, "*", Operation.ALL, PermissionType.ALLOW)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
            for user in ("User:ANONYMOUS", "User:alice")
        ]
        acls += [
            Acl(
                ResourceType.GROUP, f"group-{i}", PatternType.LITERAL, f"User:user-{i}", "*", Operation.READ,
                PermissionType.ALLOW,
            )
            for i in range(OTHER_ACLS)
        ]  # fmt: skip
        endpoint = Endpoint(self.endpoints[SASL].port, self.tls, ADMIN)
        with Peer(endpoint.port, endpoint.connect()) as peer:
            request = CreateAclsRequest(creations=tuple(map(creation_of, acls)))
            answer = peer.ask(request, CreateAclsResponse)
        if any(result.error_code for result in answer.results):
            raise BadAnswer(f"ACLs are refused: {answer.results[0].error_message}")


@contextlib.contextmanager
def secured(system: str, *, has_acls: bool = False) -> Iterator[Secured]:
    """Start a broker with all listeners, and yield it."""
    with tempfile.TemporaryDirectory(prefix="konvene-bench-") as folder:
        settings = SETTINGS | _security(Path(folder))
        if has_acls:
            settings |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
            }
        if system == "kafka":
            settings |= KAFKA_ONLY
        broker = BROKERS[system](Path(folder), settings)
        broker.ports = {PLAINTEXT: broker.port} | {name: brokers.free_port() for name in (P256, RSA, SASL)}
        running = Running(broker)
        try:
            running.start()
            yield _ready(Secured(running, broker.ports), has_acls=has_acls)
        finally:
            if broker.process is not None:
                running.kill()


def _ready(broker: Secured, *, has_acls: bool) -> Secured:
    """Wait until the listeners serve clients, and create the ACLs."""
    deadline = time.monotonic() + FIRST_HANDSHAKE_S
    for endpoint in broker.endpoints.values():
        while True:
            try:
                endpoint.connect().close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    if has_acls:
        broker.create_acls()
    return broker


def _security(folder: Path) -> dict[str, str]:
    """Make certificates, and return the settings of the listeners."""
    authority = CertificateAuthority()
    keys = {RSA: authority.server(uses_rsa=True), P256: authority.server()}
    stores = {name: str(made.write(folder, name.lower())[2]) for name, made in keys.items()}
    protocols = PROTOCOLS | {"CONTROLLER": "SASL_PLAINTEXT"}
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": USERS,
        "max.connections": "2147483647",
    }
    for name, store in (stores | {SASL: stores[P256]}).items():
        settings[f"listener.name.{name.lower()}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = store
    return settings
