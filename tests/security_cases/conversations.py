"""Hostile conversations with a secured broker, each with the outcome that Apache Kafka has.

`tests/against/test_hostile_security.py` plays them on Apache Kafka, `tests/broker/hostile/test_security.py`
on konvene. Where the outcomes differ, `konvene` has ours, and docs/differences.md has the reason.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.against.brokers import HOST
from tests.broker.hostile.wire import WITHIN_S, frame, header
from tests.security_cases.stage import (
    CLOSED,
    MAX_RECEIVE_BYTES,
    REFUSED,
    Outcome,
    Stage,
    authenticate,
    closes,
    handshake,
    outcome,
    plain_message,
    read,
    request_frame,
)

from konvene.codec.schema import Struct
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.metadata import MetadataRequest
from konvene.messages.produce import ProduceRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest
from konvene.messages.sasl_handshake import SaslHandshakeRequest
from konvene.security.sasl.scram import ScramClient

SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE = 58, 33, 34
METADATA = MetadataRequest(topics=())


class Conversation(NamedTuple):
    """A hostile client, and what it gets to see."""

    name: str
    play: Callable[[Stage], Any]
    kafka: Any
    konvene: Any = None
    """What konvene answers, where that differs."""


# --- TLS ---

ALERT, PROTOCOL_VERSION = 0x15, 70
OLD_VERSION = "refused because of the version"


def client_hello(version: bytes) -> bytes:
    """Return a ClientHello of an old version of TLS, with one cipher suite."""
    body = version + bytes(32) + b"\0" + b"\0\2\xc0\x13" + b"\1\0"
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16" + version + len(message).to_bytes(2, "big") + message


def raw_tls(data: bytes) -> Callable[[Stage], Any]:
    """Return a conversation that sends bytes to the TLS listener: REFUSED, or the alert about the version."""

    def play(stage: Stage) -> Any:
        with stage.client("TLS") as client:
            client.send(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while part := client.socket.recv(4_096):
                    received += part
        is_alert = received[:1] == bytes([ALERT])
        assert is_alert or not received, received[:40]
        return OLD_VERSION if received[6:] == bytes([PROTOCOL_VERSION]) else REFUSED

    return play


def tls_to_plaintext(stage: Stage) -> Any:
    """A TLS client at a plaintext listener: its first bytes are the length of a very long request."""
    with stage.client() as client:
        client.send(client_hello(b"\3\3"))
        return CLOSED if client.is_closed() else "open"


def with_certificate(issue: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    """Return a conversation with the listener that requires certificates: `served` or `refused`."""

    def play(stage: Stage) -> str:
        context = stage.client_context()
        material = issue(stage)
        if material is not None:
            context.load_cert_chain(material.write(stage.folder, "client")[2])
        try:
            with (
                socket.create_connection((HOST, stage.ports["MUTUAL"]), timeout=WITHIN_S) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as secured,
            ):
                secured.sendall(request_frame(ApiVersionsRequest(), 0))
                return "served" if secured.recv(4) else REFUSED
        except (ssl.SSLError, ConnectionError):
            return REFUSED

    return play


TLS = [
    Conversation("plaintext on a TLS port", raw_tls(request_frame(METADATA, 1)), REFUSED),
    Conversation("HTTP on a TLS port", raw_tls(b"GET / HTTP/1.1\r\n\r\n"), REFUSED),
    Conversation("a record that is too long", raw_tls(b"\x16\3\3\xff\xff" + bytes(70_000)), REFUSED),
    Conversation("an unknown type of record", raw_tls(b"\x63\3\3\0\4oops"), REFUSED),
    Conversation("data before the handshake", raw_tls(b"\x17\3\3\0\4oops"), REFUSED),
    Conversation("a malformed hello", raw_tls(b"\x16\3\3\0\7\1\0\0\3\3\3\0"), REFUSED),
    Conversation("SSL 3.0", raw_tls(client_hello(b"\3\0")), OLD_VERSION, REFUSED),
    Conversation("TLS 1.0", raw_tls(client_hello(b"\3\1")), OLD_VERSION),
    Conversation("TLS 1.1", raw_tls(client_hello(b"\3\2")), OLD_VERSION),
    Conversation("TLS on a plaintext port", tls_to_plaintext, CLOSED),
    Conversation("a client certificate", with_certificate(lambda s: s.authority.client("CN=a")), "served"),
    Conversation("no client certificate", with_certificate(lambda _: None), REFUSED),
    Conversation(
        "an expired client certificate",
        with_certificate(lambda s: s.authority.client("CN=a", is_expired=True)),
        REFUSED,
    ),
    Conversation(
        "a client certificate of another authority",
        with_certificate(lambda s: type(s.authority)().client("CN=a")),
        REFUSED,
    ),
]


# --- SASL ---


def sasl(
    message: bytes, mechanism: str = "PLAIN", handshake_version: int = 1, listener: str = "SASL"
) -> Callable[[Stage], Outcome]:
    """Return a conversation of one message."""

    def play(stage: Stage) -> Outcome:
        with stage.client(listener) as client:
            assert not handshake(client, mechanism, handshake_version).error_code
            if handshake_version == 0:
                client.send(frame(message))
                return CLOSED if client.frame() is None else Outcome(0, closes(client))
            return outcome(client, authenticate(client, message))

    return play


def unauthenticated(*frames: bytes) -> Callable[[Stage], Outcome]:
    """Return a conversation that sends these bytes first."""

    def play(stage: Stage) -> Outcome:
        with stage.client("SASL") as client:
            client.send_if_open(b"".join(frames))
            return CLOSED if client.is_closed() else Outcome(None, is_closed=False)

    return play


def then(request: Struct, version: int) -> Callable[[Stage], Outcome]:
    """Return a conversation that sends another request after SaslHandshake."""

    def play(stage: Stage) -> Outcome:
        with stage.client("SASL") as client:
            assert not handshake(client).error_code
            return outcome(client, client.ask(request, version))

    return play


def malformed(data: bytes) -> Callable[[Stage], Outcome]:
    """Return a conversation that sends these bytes after SaslHandshake."""

    def play(stage: Stage) -> Outcome:
        with stage.client("SASL") as client:
            assert not handshake(client).error_code
            client.send_if_open(data)
            return CLOSED if client.is_closed() else Outcome(None, is_closed=False)

    return play


def unknown_mechanism(stage: Stage) -> Outcome:
    with stage.client("SASL") as client:
        return outcome(client, handshake(client, "GSSAPI"))


def scram(
    change: Callable[[str], str] = str, user: str = "alice", first: str = "n,,n={user},r=nonce"
) -> Callable[[Stage], Outcome]:
    """Return a SCRAM conversation whose last message is changed."""

    def play(stage: Stage) -> Outcome:
        with stage.client("SASL") as client:
            assert not handshake(client, "SCRAM-SHA-256").error_code
            challenge = authenticate(client, first.format(user=user).encode())
            if challenge.error_code:
                return outcome(client, challenge)
            machine = ScramClient("SCRAM-SHA-256", user, "alice-secret", "nonce")
            machine.start()
            last = (machine.step(challenge.auth_bytes) or b"").decode()
            answer = authenticate(client, change(last).encode())
            return outcome(client, answer)

    return play


def failed(message: str) -> Outcome:
    return Outcome(SASL_AUTHENTICATION_FAILED, True, message)


BAD_PASSWORD = failed("Authentication failed: Invalid username or password")
BAD_SCRAM = failed(
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
)
NOT_THE_OWN = failed(
    "Authentication failed: Client requested an authorization id that is different from username"
)


def parts(count: int) -> Outcome:
    return failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")


def changed(old: str, new: str) -> Callable[[Stage], Outcome]:
    return scram(lambda last: last.replace(old, new))


def _own_nonce(last: str) -> str:
    binding, _, proof = last.split(",")
    return f"{binding},r=nonce,{proof}"


def _other_proof(last: str) -> str:
    head, mark, proof = last.partition(",p=")
    return f"{head}{mark}{'B' if proof.startswith('A') else 'A'}{proof[1:]}"


AUTHENTICATED = Outcome(0, False, "")
TOO_LONG = (MAX_RECEIVE_BYTES + 1).to_bytes(4, "big")

SASL = [
    Conversation("a password", sasl(plain_message()), AUTHENTICATED),
    Conversation("a wrong password", sasl(plain_message(password="wrong")), BAD_PASSWORD),
    Conversation("an unknown user", sasl(plain_message("nobody", "alice-secret")), BAD_PASSWORD),
    Conversation("another user's name for authorization", sasl(plain_message(authzid="bob")), NOT_THE_OWN),
    Conversation("the own name for authorization", sasl(plain_message(authzid="alice")), AUTHENTICATED),
    Conversation("no user", sasl(b"\0\0secret"), failed("Authentication failed: username not specified")),
    Conversation("no password", sasl(b"\0alice\0"), failed("Authentication failed: password not specified")),
    Conversation("too few parts", sasl(b"alice\0alice-secret"), parts(2)),
    Conversation("too many parts", sasl(b"\0alice\0alice-secret\0"), parts(4)),
    Conversation("an empty message", sasl(b""), parts(1)),
    Conversation("not UTF-8", sasl(b"\0\xff\0\xff"), BAD_PASSWORD),
    Conversation("a bare message", sasl(plain_message(), handshake_version=0), Outcome(0, False)),
    Conversation("a wrong bare message", sasl(plain_message(password="x"), handshake_version=0), CLOSED),
    Conversation("an unknown mechanism", unknown_mechanism, Outcome(UNSUPPORTED_SASL_MECHANISM, True)),
    Conversation("SCRAM", scram(), AUTHENTICATED),
    Conversation("SCRAM of an unknown user", scram(user="nobody"), BAD_SCRAM),
    Conversation("a changed proof", scram(_other_proof), BAD_SCRAM),
    Conversation("a changed nonce", changed("r=nonce", "r=other"), BAD_SCRAM),
    Conversation("a longer nonce", changed(",p=", "x,p="), BAD_SCRAM),
    Conversation("a nonce without the broker's part", scram(_own_nonce), BAD_SCRAM),
    Conversation("another channel binding", changed("biws", "eSws"), BAD_SCRAM),
    Conversation("SCRAM without a proof", scram(lambda last: last.partition(",p=")[0]), BAD_SCRAM),
    Conversation("SCRAM for another user", scram(first="n,a=bob,n={user},r=nonce"), NOT_THE_OWN),
    Conversation("SCRAM with a channel", scram(first="p=tls-unique,,n={user},r=nonce"), BAD_SCRAM),
    Conversation("SCRAM with garbage", scram(first="\0\1\2"), BAD_SCRAM),
    Conversation("a request before authentication", unauthenticated(request_frame(METADATA, 1)), CLOSED),
    Conversation("a frame over the limit", unauthenticated(TOO_LONG), CLOSED),
    Conversation("a negative length", unauthenticated(b"\xff\xff\xff\xfe"), CLOSED),
    Conversation("an empty frame", unauthenticated(bytes(4)), CLOSED),
    Conversation("a Kerberos token", unauthenticated(frame(b"\x60\x82\2\1\6\t" + bytes(500))), CLOSED),
    Conversation(
        "authentication without a handshake",
        unauthenticated(request_frame(SaslAuthenticateRequest(auth_bytes=plain_message()), 2)),
        CLOSED,
    ),
    Conversation(
        "a second handshake",
        then(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        Outcome(ILLEGAL_SASL_STATE, True),
        CLOSED,
    ),
    Conversation(
        "ApiVersions during authentication",
        then(ApiVersionsRequest(), 0),
        Outcome(ILLEGAL_SASL_STATE, True),
        CLOSED,
    ),
    Conversation("a long message", malformed(TOO_LONG), CLOSED),
    Conversation("a short message", malformed(frame(header(36, 1) + b"\0\0\xff\xff" + bytes(10))), CLOSED),
]


# --- re-authentication ---


class _Authenticated:
    """A connection of alice to a listener."""

    def __init__(self, stage: Stage, listener: str) -> None:
        self.client = stage.client(listener)
        assert not handshake(self.client).error_code
        assert not authenticate(self.client, plain_message()).error_code


def renewed(message: bytes, mechanism: str = "PLAIN", listener: str = "RENEWED") -> Callable[[Stage], Any]:
    """Return a conversation that authenticates again with this message; a Metadata request follows."""

    def play(stage: Stage) -> Any:
        with _Authenticated(stage, listener).client as client:
            answer = handshake(client, mechanism)
            if answer is None or answer.error_code:
                return "handshake", outcome(client, answer)
            answer = authenticate(client, message)
            if answer is None or answer.error_code:
                return "authentication", outcome(client, answer)
            return "served" if client.ask(METADATA, 1) else "closed"

    return play


def pipelined(
    *requests: tuple[Struct, int], expected: int, listener: str = "RENEWED"
) -> Callable[[Stage], Any]:
    """Return a conversation that sends requests at once: error codes of the responses, None for others, and
    whether the connection is closed after them."""

    def play(stage: Stage) -> Any:
        with _Authenticated(stage, listener).client as client:
            client.send(b"".join(request_frame(request, version) for request, version in requests))
            answers: list[Any] = []
            for request, version in requests[:expected]:
                answer = read(client, type(request), version)
                answers.append("closed" if answer is None else int(answer.error_code))
            return answers, closes(client)

    return play


HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN"), 1
ALICE = SaslAuthenticateRequest(auth_bytes=plain_message()), 2
UNACKNOWLEDGED = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1_000, topic_data=()), 9


def unacknowledged(stage: Stage) -> Any:
    """A Produce without response is sent just before the renewal."""
    with _Authenticated(stage, "RENEWED").client as client:
        client.send(b"".join(request_frame(*pair) for pair in (UNACKNOWLEDGED, HANDSHAKE, ALICE)))
        first = read(client, SaslHandshakeRequest, 1)
        second = read(client, SaslAuthenticateRequest, 2)
        return first.error_code, second.error_code, client.ask(METADATA, 1) is not None


def after_the_end(request: Struct, version: int) -> Callable[[Stage], Any]:
    """Return a conversation that sends requests until the session has ended: the outcome of the last one."""

    def play(stage: Stage) -> Any:
        with _Authenticated(stage, "BRIEF").client as client:
            for _ in range(1_000):
                answer = client.ask(request, version)
                if answer is None:
                    return CLOSED
            return "never closed"

    return play


def renewal_after_the_end(stage: Stage) -> Any:
    """The session has ended; only SaslHandshake is accepted, and begins another one."""
    with _Authenticated(stage, "BRIEF").client as client:
        stage.ask(
            METADATA, 1
        )  # Another connection: a session of a millisecond has ended when it is answered.
        return handshake(client).error_code, authenticate(client, plain_message()).error_code


CHANGED_USER = failed("Cannot change principals during re-authentication from User.alice: User.bob")

RENEWAL = [
    Conversation("a renewal", renewed(plain_message()), "served"),
    Conversation(
        "a renewal as another user", renewed(plain_message("bob")), ("authentication", CHANGED_USER)
    ),
    Conversation(
        "a renewal with a wrong password",
        renewed(plain_message(password="x")),
        ("authentication", BAD_PASSWORD),
    ),
    Conversation(
        "a renewal with another mechanism",
        renewed(b"n,,n=alice,r=x", "SCRAM-SHA-256"),
        ("authentication", CLOSED),
    ),
    Conversation("a renewal with an unknown mechanism", renewed(b"", "GSSAPI"), ("handshake", CLOSED)),
    Conversation(
        "a renewal where none is needed",
        renewed(plain_message(), listener="SASL"),
        ("handshake", Outcome(ILLEGAL_SASL_STATE, False)),
    ),
    Conversation(
        "requests before and after a renewal",
        pipelined((METADATA, 1), HANDSHAKE, ALICE, (METADATA, 1), expected=4),
        ([0, 0, 0, 0], False),
    ),
    Conversation(
        "a request in the middle of a renewal",
        pipelined(HANDSHAKE, (ApiVersionsRequest(), 0), ALICE, expected=2),
        ([0, ILLEGAL_SASL_STATE], True),
        ([0, "closed"], True),
    ),
    Conversation("a Produce without response before a renewal", unacknowledged, (0, 0, True)),
    Conversation(
        "two renewals at once",
        pipelined(HANDSHAKE, ALICE, HANDSHAKE, ALICE, expected=4),
        ([0, 0, ILLEGAL_SASL_STATE, ILLEGAL_SASL_STATE], False),
    ),
    Conversation(
        "authentication without a renewal", pipelined(ALICE, expected=1), ([ILLEGAL_SASL_STATE], False)
    ),
    Conversation("a request after the end of the session", after_the_end(METADATA, 1), CLOSED),
    Conversation("a renewal after the end of the session", renewal_after_the_end, (0, 0)),
    Conversation(
        "SASL on a plaintext listener",
        lambda stage: stage.ask(HANDSHAKE[0], 1).error_code,
        ILLEGAL_SASL_STATE,
    ),
    Conversation(
        "authentication on a plaintext listener",
        lambda stage: stage.ask(ALICE[0], 2).error_code,
        ILLEGAL_SASL_STATE,
    ),
]


CONVERSATIONS = [*TLS, *SASL, *RENEWAL]
