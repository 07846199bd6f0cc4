"""A secured broker in a process of its own, konvene or Apache Kafka, and clients that break its rules.

Both brokers have the same listeners, users, keys and certificates, so the outcomes of the conversations in
this folder can be compared.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.against.brokers import HOST, Broker, Kafka, Konvene, free_port
from tests.broker.hostile.wire import WITHIN_S, Client, frame, header
from tests.security.oauth.tokens import key_set

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.messages import BY_NAME
from konvene.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest
from konvene.messages.sasl_handshake import SaslHandshakeRequest
from konvene.security.sasl.scram import ScramClient
from konvene.testing.certificates import CertificateAuthority

LISTENERS = {
    "TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "RENEWED": "SASL_PLAINTEXT",
    "BRIEF": "SASL_PLAINTEXT", "OAUTH": "SASL_PLAINTEXT",
}  # fmt: skip
"""Listeners beside the plaintext one. Sessions of RENEWED can be renewed, and those of BRIEF end at once."""
MODULES = "org.apache.kafka.common.security"
PLAIN_MODULE = f'{MODULES}.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
SCRAM_MODULE = f"{MODULES}.scram.ScramLoginModule required;"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
MAX_RECEIVE_BYTES = 50_000


class Outcome(NamedTuple):
    """What a client saw at the end: the error code of the last response, its message, and whether the
    connection is closed."""

    error: int | None
    is_closed: bool
    message: str | None = None


CLOSED = Outcome(None, True)
"""The connection was closed without a response."""


class _KonveneWithListeners(Konvene):
    def command(self) -> list[str]:
        words = [sys.executable, "-m", "konvene", "serve", "--data-dir", str(self.directory / "data")]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words


class _KafkaWithListeners(Kafka):
    def prepare(self) -> None:
        wanted = self.settings["listeners"]
        super().prepare()
        with self.properties.open("a") as file:  # The last value of a property applies.
            file.write(f"listeners={wanted},CONTROLLER://{HOST}:{self.controller_port}\n")
            file.write(f"advertised.listeners={wanted}\n")

    def java(self) -> list[str]:
        words = super().java()
        return [words[0], f"-D{ALLOWED_URLS}={self.settings['jwks.url']}", *words[1:]]


class Stage:
    """The broker, the certificate authority that it trusts, and the folder of its key stores."""

    def __init__(self, folder: Path, kind: type[Broker]) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_text(self.authority.certificate)
        self.key_store = folder / "server.pem"
        self.write_key_store(self.key_store)
        keys = folder / "jwks.json"
        keys.write_bytes(key_set())
        self.ports = {name: free_port() for name in LISTENERS}
        is_kafka = issubclass(kind, Kafka)
        self.broker: Broker = (_KafkaWithListeners if is_kafka else _KonveneWithListeners)(folder / "broker")
        self.is_kafka = is_kafka
        self.broker.settings |= self._settings(keys.as_uri())
        if is_kafka:
            self.broker.settings["jwks.url"] = keys.as_uri()
        else:
            self.broker.settings[ALLOWED_URLS] = keys.as_uri()

    def _settings(self, jwks_url: str) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.broker.port, **self.ports}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        settings = {
            "node.id": "1",
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": ",".join(":".join(pair) for pair in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.server.max.receive.size": str(MAX_RECEIVE_BYTES),
            "listener.name.renewed.connections.max.reauth.ms": "600000",
            "listener.name.brief.connections.max.reauth.ms": "1",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": OAUTH_MODULE,
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
                f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": jwks_url,
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        for name in ("tls", "mutual"):
            settings |= {
                f"listener.name.{name}.ssl.keystore.type": "PEM",
                f"listener.name.{name}.ssl.keystore.location": str(self.key_store),
                f"listener.name.{name}.ssl.truststore.type": "PEM",
                f"listener.name.{name}.ssl.truststore.location": str(self.ca_file),
            }
        for name in ("sasl", "renewed", "brief"):
            settings |= {
                f"listener.name.{name}.plain.sasl.jaas.config": PLAIN_MODULE,
                f"listener.name.{name}.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
            }
        return settings

    def write_key_store(self, path: Path, **options: Any) -> bytes:
        """Write a new key and a certificate of the authority, and return the certificate (DER).

        `options` are those of `authority.server`."""
        made = self.authority.server(**options)
        path.write_text(made.key + made.certificate)
        return made.der

    # --- clients ---

    def client(self, listener: str = "PLAINTEXT") -> Client:
        return Client(self.ports.get(listener, self.broker.port))

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def served_certificate(self, listener: str = "TLS") -> bytes:
        """Return the certificate (DER) that a new connection is shown."""
        with (
            socket.create_connection((HOST, self.ports[listener]), timeout=WITHIN_S) as plain,
            self.client_context().wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found

    def ask(self, request: Struct, version: int | None = None) -> Any:
        """Send a request as the anonymous user, and return its response."""
        with self.client() as client:
            return client.ask(request, version)


REFUSED = "refused"
"""The handshake failed."""


def read(client: Client, request: type[Struct], version: int) -> Any:
    """Return the next response, which is that to such a request; None if the connection is closed."""
    data = client.frame()
    api = BY_NAME[request.__name__.removesuffix("Request")]
    if data is None:
        return None
    return decode(api.response, version, data, 5 if api.response_header_version(version) else 4)


def request_frame(request: Struct, version: int) -> bytes:
    """Return an encoded request with its length."""
    api = BY_NAME[type(request).__name__.removesuffix("Request")]
    return frame(header(api.key, version) + encode(request, version))


def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: Client, message: bytes, version: int = 2) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), version)


def plain_message(user: str = "alice", password: str | None = None, authzid: str = "") -> bytes:
    secret = f"{user}-secret" if password is None else password
    return f"{authzid}\0{user}\0{secret}".encode()


def outcome(client: Client, response: Any) -> Outcome:
    """Return the outcome of a conversation whose last response was this one; None: there was none."""
    if response is None:
        return CLOSED
    message = getattr(response, "error_message", None)
    return Outcome(int(response.error_code), closes(client), message)


def closes(client: Client) -> bool:
    """Return True if the broker closes the connection instead of answering another request."""
    client.send_if_open(request_frame(ApiVersionsRequest(), 0))
    return client.frame() is None


@contextmanager
def secured_stage(folder: Path, kind: type[Broker]) -> Iterator[Stage]:
    """Start a broker with the listeners of the conversations, and stop it at the end."""
    stage = Stage(folder, kind)
    stage.broker.directory.mkdir()
    stage.broker.start(60)
    try:
        until(lambda: _all_open(stage))
        stage.ask(AlterUserScramCredentialsRequest(upsertions=(_ALICES_SCRAM,)))
        until(lambda: _can_log_in(stage))
        yield stage
    finally:
        stage.broker.kill9()


def until(holds: Callable[[], Any]) -> None:
    """Wait until a condition holds: Kafka applies changes some time after it has answered."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


SALT, ITERATIONS = b"salt" * 4, 4_096
_ALICES_SCRAM = ScramCredentialUpsertion(
    name="alice", mechanism=1, iterations=ITERATIONS, salt=SALT,
    salted_password=hashlib.pbkdf2_hmac("sha256", b"alice-secret", SALT, ITERATIONS),
)  # fmt: skip


def _can_log_in(stage: Stage) -> bool:
    """Return True if alice can log in with SCRAM."""
    with stage.client("SASL") as client:
        handshake(client, "SCRAM-SHA-256")
        scram = ScramClient("SCRAM-SHA-256", "alice", "alice-secret", "nonce")
        answer = authenticate(client, scram.start())
        if answer is not None and not answer.error_code:
            answer = authenticate(client, scram.step(answer.auth_bytes) or b"")
        return answer is not None and not answer.error_code


def _all_open(stage: Stage) -> bool:
    for port in stage.ports.values():
        try:
            socket.create_connection((HOST, port), timeout=2).close()
        except OSError:
            return False
    return True
