"""GSSAPI of both sides, over a security context without Kerberos."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.kerberos.names import ShortNamer
from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials, RetriableFailure
from konvene.security.sasl.gssapi import GssapiClient, GssapiServer, SecurityContextError
from konvene.security.sasl.mechanisms import Authenticated

SEAL = b"sealed:"


class FakeContext:
    """A context that is established after it has sent `tokens`; an empty token sends nothing."""

    def __init__(self, tokens: Sequence[bytes], initiator_name: str = "alice@R") -> None:
        self._tokens = list(tokens)
        self.initiator_name = initiator_name

    @property
    def is_established(self) -> bool:
        return not self._tokens

    def step(self, token: bytes) -> bytes:
        if token.startswith(b"bad"):
            raise SecurityContextError("Invalid token was supplied")
        if token.startswith(b"replay"):
            raise SecurityContextError("Request is a replay", is_retriable=True)
        return self._tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return SEAL + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(SEAL):
            raise SecurityContextError("A token had an invalid Message Integrity Check")
        return message.removeprefix(SEAL)


NAMES = ShortNamer(["DEFAULT"], "R")


def server(*tokens: bytes, name: str = "alice@R") -> GssapiServer:
    return GssapiServer(FakeContext(tokens, name), NAMES.short_name)


def conversation(client: GssapiClient, server: GssapiServer) -> tuple[list[bytes], Authenticated | None]:
    """Return all messages in order, and the result."""
    messages, result = [], None
    message: bytes | None = client.start()
    while message is not None:
        challenge, result = server.step(message)
        messages += message, challenge or b""
        message = client.step(challenge or b"")
    return messages, result


OFFER, CHOICE = SEAL + b"\x01\x01\0\0", SEAL + b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("of_client", "of_server", "messages"),
    [
        ([b"ticket"], [b""], [b"ticket", OFFER, CHOICE, b""]),
        ([b"ticket", b""], [b"proof"], [b"ticket", b"proof", b"", OFFER, CHOICE, b""]),
        (
            [b"one", b"two", b""],
            [b"more", b"proof"],
            [b"one", b"more", b"two", b"proof", b"", OFFER, CHOICE, b""],
        ),
    ],
    ids=["without mutual authentication", "with mutual authentication", "in two rounds"],
)
def test_a_ticket_authenticates(
    of_client: list[bytes], of_server: list[bytes], messages: list[bytes]
) -> None:
    """The offer is Java's: no security layer, and a buffer of 65,536 bytes."""
    client = GssapiClient(FakeContext(of_client))
    assert conversation(client, server(*of_server)) == (messages, ("alice", None, False))
    assert client.is_complete


def test_the_last_challenge_is_none() -> None:
    """It is sent as an empty SaslAuthenticate response, and not at all after SaslHandshake v0."""
    accepting = server(b"")
    accepting.step(b"ticket")
    assert accepting.step(CHOICE) == (None, ("alice", None, False))
    with pytest.raises(InvalidCredentials, match="already complete"):
        accepting.step(CHOICE)


@pytest.mark.parametrize("authorization_id", [b"", b"alice@R", b"bob@R", b"admin", b"\xff\xfe"])
def test_an_authorization_id_grants_nothing(authorization_id: bytes) -> None:
    accepting = server(b"")
    accepting.step(b"ticket")
    assert accepting.step(CHOICE + authorization_id)[1] == ("alice", None, False)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (SEAL + b"\x02\0\0\0", "Client selected unsupported protection: 2"),
        (SEAL + b"\x04\xff\xff\xff", "Client selected unsupported protection: 4"),
        (SEAL + b"\0\0\0\0", "Client selected unsupported protection: 0"),
        (SEAL + b"\x01\0", "has 2 bytes"),
        (SEAL, "has 0 bytes"),
        (b"", "Message Integrity Check"),
        (b"\x01\0\0\0", "Message Integrity Check"),
    ],
)
def test_a_choice_that_was_not_offered_is_rejected(choice: bytes, message: str) -> None:
    accepting = server(b"")
    accepting.step(b"ticket")
    with pytest.raises(InvalidCredentials, match=message):
        accepting.step(choice)


def test_the_client_answers_the_last_token_with_an_empty_message() -> None:
    accepting = server(b"proof")
    assert accepting.step(b"ticket") == (b"proof", None)
    with pytest.raises(InvalidCredentials, match="expecting no response data"):
        accepting.step(b"data")


def test_rejected_tickets() -> None:
    with pytest.raises(InvalidCredentials, match="Invalid token"):
        server(b"").step(b"bad")
    with pytest.raises(RetriableFailure, match="replay"):
        server(b"").step(b"replay")


@pytest.mark.parametrize("name", ["alice@OTHER", "a/b/c@R", "a@b@R"])
def test_a_name_without_a_rule_does_not_authenticate(name: str) -> None:
    accepting = server(b"", name=name)
    accepting.step(b"ticket")
    with pytest.raises(InvalidCredentials, match=r"No rules apply|Malformed"):
        accepting.step(CHOICE)


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_arbitrary_messages_do_not_authenticate(messages: list[bytes]) -> None:
    accepting = server(b"proof")
    for message in messages:
        try:
            assert accepting.step(message)[1] is None
        except (InvalidCredentials, RetriableFailure):
            return


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        (SEAL + b"\x06\0\xff\xff", "requires a security layer"),
        (SEAL + b"\0\0\0\0", "requires a security layer"),
        (SEAL + b"\x01", "requires a security layer"),
        (b"\x01\x01\0\0", "Message Integrity Check"),
    ],
)
def test_a_client_does_not_accept_any_offer(offer: bytes, message: str) -> None:
    client = GssapiClient(FakeContext([b"ticket"]))
    client.start()
    with pytest.raises(AuthenticationFailed, match=message):
        client.step(offer)
    assert not client.is_complete


def test_a_client_without_a_ticket() -> None:
    class NoTicket(FakeContext):
        def step(self, token: bytes) -> bytes:
            raise SecurityContextError("no ticket")

    with pytest.raises(AuthenticationFailed, match="no ticket"):
        GssapiClient(NoTicket([b""])).start()
    client = GssapiClient(FakeContext([b"ticket", b""]))
    client.start()
    with pytest.raises(AuthenticationFailed, match="Invalid token"):
        client.step(b"bad")
