"""PLAIN: one message, and every way to write it wrongly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.sasl.errors import AuthenticationFailed
from konvene.security.sasl.plain import PlainClient, PlainServer

SERVER = PlainServer({"alice": "secret", "empty": ""})


@pytest.mark.parametrize(
    "message", [b"\0alice\0secret", b"alice\0alice\0secret", PlainClient("alice", "secret").start()]
)
def test_a_password_authenticates(message: bytes) -> None:
    assert SERVER.step(message) == (b"", ("alice", None, False))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0empty\0", "password not specified"),
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0bob\0secret", "Invalid username or password"),
        (b"bob\0alice\0secret", "authorization id that is different"),
        (b"\0alice\0\xff", "Invalid username or password"),
        (b"\xff", "expected 3 tokens, got 1"),
    ],
)
def test_other_messages_fail(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason) as raised:
        SERVER.step(message)
    assert "secret" not in str(raised.value)


@given(st.binary(max_size=50))
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        SERVER.step(message)


def test_a_client_cannot_send_nul() -> None:
    for user, password in (("a\0b", "c"), ("a", "b\0c")):
        with pytest.raises(AuthenticationFailed):
            PlainClient(user, password)
