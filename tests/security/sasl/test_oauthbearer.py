"""OAUTHBEARER messages of both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.oauth.jwt import AccessToken, InvalidToken
from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials
from konvene.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer


def validate(token: str) -> AccessToken:
    if token != "a.b-c_d":
        raise InvalidToken("unknown")
    return AccessToken("alice", 5_000)


def test_a_valid_token_authenticates() -> None:
    client, server = OAuthBearerClient("a.b-c_d", {"traceId": "7"}), OAuthBearerServer(validate)
    assert client.start() == b"n,,\x01auth=Bearer a.b-c_d\x01traceId=7\x01\x01"
    assert server.step(client.start()) == (b"", ("alice", 5_000, False))
    assert client.step(b"") is None
    assert client.is_complete


def test_an_invalid_token_is_reported_first() -> None:
    """The client acknowledges the JSON error; only then the exchange fails."""
    client, server = OAuthBearerClient("x.y.z"), OAuthBearerServer(validate)
    challenge, result = server.step(client.start())
    assert (challenge, result) == (b'{"status":"invalid_token"}', None)
    answer = client.step(challenge)
    assert answer == b"\x01"
    assert not client.is_complete
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        server.step(answer)


def test_the_authorization_id_is_the_principal() -> None:
    message = b"n,a=%s,\x01auth=Bearer a.b-c_d\x01\x01"
    assert OAuthBearerServer(validate).step(message % b"alice")[1] == ("alice", 5_000, False)
    with pytest.raises(AuthenticationFailed, match="different from the token's"):
        OAuthBearerServer(validate).step(message % b"bob")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"\xff",
        b"n,,\x01host=x\x01\x01",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        OAuthBearerServer(validate).step(message)


@given(st.binary(max_size=80))
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        OAuthBearerServer(validate).step(message)


def test_the_token_is_not_shown() -> None:
    assert "a.b" not in repr(OAuthBearerClient("a.b-c_d"))
