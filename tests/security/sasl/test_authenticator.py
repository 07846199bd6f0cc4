"""The broker's SASL machine, with the cases of Kafka's `SaslAuthenticatorTest` that concern its decisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.compile import decode_from, encode
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import API_KEYS
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.header import RequestHeader
from konvene.messages.metadata import MetadataRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from konvene.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from konvene.security.principal import KafkaPrincipal
from konvene.security.sasl.authenticator import SaslListener, SaslServerAuthenticator, Step
from konvene.security.sasl.errors import RetriableFailure
from konvene.security.sasl.mechanisms import Authenticated
from konvene.security.sasl.plain import PlainServer
from konvene.security.session import SecurityProtocol, Session

NOW_MS = 1_000_000
PASSWORD = b"\0alice\0secret"


class Expiring:
    """A mechanism whose credential ends at a given time; the message is the user."""

    def __init__(self, expires_ms: int | None, is_token: bool = False) -> None:
        self.expires_ms, self.is_token = expires_ms, is_token

    def step(self, message: bytes) -> tuple[bytes, Authenticated | None]:
        return b"", Authenticated(message.decode(), self.expires_ms, self.is_token)


def listener(max_reauth_ms: int = 0, **mechanisms: Any) -> SaslListener:
    return SaslListener(
        name="CLIENTS",
        security_protocol=SecurityProtocol.SASL_SSL,
        mechanisms={"PLAIN": lambda: PlainServer({"alice": "secret", "bob": "secret"})} | mechanisms,
        max_reauth_ms=dict.fromkeys(("PLAIN", *mechanisms), max_reauth_ms),
    )


def frame(request: Struct, key: int, version: int) -> bytes:
    flexible = key != 17 and version >= API_KEYS[key].first_flexible
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="c")
    body = encode(header, 2 if flexible else 1) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), 17, version)


def authenticate(message: bytes = PASSWORD, version: int = 2) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=message), 36, version)


API_VERSIONS = frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 18, 3)


def machine(
    of: SaslListener | None = None, previous: Session | None = None, accepts: bool = True
) -> SaslServerAuthenticator:
    return SaslServerAuthenticator(of or listener(), lambda _: (b"versions", accepts), previous)


def handshake_response(step: Step) -> SaslHandshakeResponse:
    assert step.response is not None
    assert step.response[4:8] == (7).to_bytes(4, "big")
    return decode_from(SaslHandshakeResponse, 1, step.response, 8)[0]


def response(step: Step, version: int = 2) -> SaslAuthenticateResponse:
    assert step.response is not None
    assert len(step.response) == 4 + int.from_bytes(step.response[:4], "big")
    return decode_from(SaslAuthenticateResponse, version, step.response, 9 if version >= 2 else 8)[0]


def reason(step: Step) -> str:
    assert step.failure is not None
    assert step.session is None
    return step.failure.reason


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("with_versions", [True, False])
def test_an_exchange_ends_with_a_session(version: int, with_versions: bool) -> None:
    ours = machine()
    if with_versions:
        assert ours.receive(API_VERSIONS, NOW_MS) == Step(b"versions")
    answer = handshake_response(ours.receive(handshake(), NOW_MS))
    assert (answer.error_code, answer.mechanisms) == (Errors.NONE, ("PLAIN",))
    step = ours.receive(authenticate(version=version), NOW_MS)
    assert response(step, version).error_code == Errors.NONE
    assert step.session == Session(
        KafkaPrincipal("User", "alice"), "CLIENTS", SecurityProtocol.SASL_SSL, mechanism="PLAIN"
    )


def test_bare_messages_after_the_first_version_of_the_handshake() -> None:
    ours = machine()
    ours.receive(handshake(version=0), NOW_MS)
    step = ours.receive(len(PASSWORD).to_bytes(4, "big") + PASSWORD, NOW_MS)
    assert step.response == b"\0\0\0\0"
    assert step.session is not None


def test_a_bare_message_that_fails_gets_no_response() -> None:
    ours = machine()
    ours.receive(handshake(version=0), NOW_MS)
    step = ours.receive(b"\0\0\0\x08\0alice\0x", NOW_MS)
    assert step.response is None
    assert "Invalid username" in reason(step)


class WithoutLastMessage:
    """A mechanism like GSSAPI: nothing is sent at its end, and another try may succeed after a failure."""

    def step(self, message: bytes) -> tuple[bytes | None, Authenticated | None]:
        if message == b"early":
            raise RetriableFailure("Ticket not yet valid")
        return None, Authenticated("alice")


def test_a_mechanism_without_a_last_message() -> None:
    """A SaslAuthenticate request has a response nevertheless; a bare message has none."""
    for version, expected in ((1, b""), (0, None)):
        ours = machine(listener(X=WithoutLastMessage))
        ours.receive(handshake("X", version), NOW_MS)
        step = ours.receive(authenticate(b"ticket") if version else b"\0\0\0\6ticket", NOW_MS)
        assert step.session is not None
        assert (response(step).auth_bytes if step.response else None) == expected


@pytest.mark.parametrize("version", [0, 1])
def test_a_failure_that_may_succeed_later_has_no_response(version: int) -> None:
    """The client connects again, as after a lost connection."""
    ours = machine(listener(X=WithoutLastMessage))
    ours.receive(handshake("X", version), NOW_MS)
    step = ours.receive(authenticate(b"early") if version else b"\0\0\0\5early", NOW_MS)
    assert (step.response, reason(step)) == (None, "Ticket not yet valid")


def test_an_unknown_mechanism_gets_the_enabled_ones() -> None:
    step = machine().receive(handshake("SCRAM-SHA-256"), NOW_MS)
    answer = handshake_response(step)
    assert (answer.error_code, answer.mechanisms) == (Errors.UNSUPPORTED_SASL_MECHANISM, ("PLAIN",))
    assert reason(step) == "Unsupported SASL mechanism SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0carol\0secret", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_failure_is_answered_later(message: bytes, text: str) -> None:
    ours = machine()
    ours.receive(handshake(), NOW_MS)
    step = ours.receive(authenticate(message), NOW_MS)
    answer = response(step)
    assert (answer.error_code, answer.error_message) == (Errors.SASL_AUTHENTICATION_FAILED, text)
    assert step.failure is not None
    assert step.failure.delays_response


@pytest.mark.parametrize("version", [0, 1, 3, 12])
def test_other_requests_before_the_handshake_close_the_connection(version: int) -> None:
    step = machine().receive(frame(MetadataRequest(), 3, version), NOW_MS)
    assert step.response is None
    assert reason(step) == "Received unexpected Kafka request of type Metadata during SASL handshake."


def test_other_requests_during_the_exchange_close_the_connection() -> None:
    ours = machine()
    ours.receive(handshake(), NOW_MS)
    step = ours.receive(frame(MetadataRequest(), 3, 12), NOW_MS)
    assert reason(step) == "Unexpected Kafka request of type Metadata during SASL authentication."


def test_authenticate_without_a_handshake_closes_the_connection() -> None:
    assert "SaslAuthenticate" in reason(machine().receive(authenticate(), NOW_MS))


def test_a_second_api_versions_closes_the_connection() -> None:
    ours = machine()
    ours.receive(API_VERSIONS, NOW_MS)
    assert "Unexpected ApiVersions" in reason(ours.receive(API_VERSIONS, NOW_MS))


def test_an_api_versions_of_an_unknown_version_may_be_repeated() -> None:
    ours = machine(accepts=False)
    for _ in range(2):
        assert ours.receive(API_VERSIONS, NOW_MS) == Step(b"versions")


def test_unknown_versions_of_the_sasl_requests_close_the_connection() -> None:
    assert "malformed" in reason(machine().receive(handshake()[:6] + b"\0\x09" + handshake()[8:], NOW_MS))
    ours = machine()
    ours.receive(handshake(), NOW_MS)
    assert "malformed" in reason(ours.receive(authenticate()[:6] + b"\0\x09" + authenticate()[8:], NOW_MS))


# --- sessions that end (KIP-368) ---


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms", "ends_ms"),
    [
        (0, None, 0, None),
        (5_000, None, 5_000, NOW_MS + 5_000),
        (0, NOW_MS + 3_000, 3_000, NOW_MS + 3_000),
        (5_000, NOW_MS + 3_000, 3_000, NOW_MS + 3_000),
        (2_000, NOW_MS + 3_000, 2_000, NOW_MS + 2_000),
        (0, NOW_MS - 1, 0, NOW_MS),
    ],
)
def test_a_session_ends_with_the_credential_or_by_setting(
    max_reauth_ms: int, expires_ms: int | None, lifetime_ms: int, ends_ms: int | None
) -> None:
    ours = machine(listener(max_reauth_ms, X=lambda: Expiring(expires_ms)))
    ours.receive(handshake("X"), NOW_MS)
    step = ours.receive(authenticate(b"alice"), NOW_MS)
    assert response(step).session_lifetime_ms == lifetime_ms
    assert step.session is not None
    assert step.session.expires_at_ms == ends_ms


ALICE = Session(
    KafkaPrincipal("User", "alice"),
    "CLIENTS",
    SecurityProtocol.SASL_SSL,
    mechanism="PLAIN",
    expires_at_ms=NOW_MS,
)


def test_a_re_authentication_begins_with_the_handshake() -> None:
    ours = machine(listener(5_000), ALICE)
    assert handshake_response(ours.receive(handshake(), NOW_MS)).error_code == Errors.NONE
    step = ours.receive(authenticate(), NOW_MS)
    assert step.session is not None
    assert step.session == ALICE._replace(expires_at_ms=NOW_MS + 5_000)


def test_a_re_authentication_keeps_its_principal() -> None:
    ours = machine(listener(), ALICE)
    ours.receive(handshake(), NOW_MS)
    step = ours.receive(authenticate(b"\0bob\0secret"), NOW_MS)
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert response(step).error_message == text
    assert reason(step) == text


def test_a_re_authentication_keeps_its_mechanism() -> None:
    """The handshake is answered; the next frame closes the connection, as in Kafka."""
    ours = machine(listener(X=lambda: Expiring(None)), ALICE)
    assert handshake_response(ours.receive(handshake("X"), NOW_MS)).error_code == Errors.NONE
    step = ours.receive(authenticate(b"alice"), NOW_MS)
    assert step.response is None
    assert "'X' requested by client is not supported for re-authentication of mechanism 'PLAIN'" in reason(
        step
    )


def test_a_delegation_token_belongs_to_its_owner() -> None:
    ours = machine(listener(X=lambda: Expiring(None, is_token=True)))
    ours.receive(handshake("X"), NOW_MS)
    session = ours.receive(authenticate(b"User:owner"), NOW_MS).session
    assert session is not None
    assert (session.principal, session.is_token_authenticated) == (KafkaPrincipal("User", "owner"), True)


@given(
    st.lists(
        st.binary(min_size=0, max_size=60) | st.sampled_from([handshake(), API_VERSIONS, authenticate(b"x")])
    )
)
def test_no_bytes_raise(frames: list[bytes]) -> None:
    """Each frame is answered, or is the end."""
    ours = machine()
    for data in frames:
        step = ours.receive(data if data[:2] == b"\0\0" else len(data).to_bytes(4, "big") + data, NOW_MS)
        if step.failure is not None:
            return
        assert step.response is not None
