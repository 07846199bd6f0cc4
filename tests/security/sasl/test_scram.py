"""SCRAM: both sides against each other, against scramp, against RFC 7677, and against hostile messages."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from konvene.security.sasl.errors import AuthenticationFailed, InvalidCredentials
from konvene.security.sasl.mechanisms import Authenticated
from konvene.security.sasl.scram import (
    MECHANISMS,
    ScramClient,
    ScramCredential,
    ScramServer,
    ScramUser,
    credential_of,
)

SALT = b"salt-of-the-test"
CREDENTIALS = {mechanism: credential_of(mechanism, "secret", SALT) for mechanism in MECHANISMS}
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def server(mechanism: str = "SCRAM-SHA-256", **users: ScramCredential) -> ScramServer:
    """Return a server with these users; the default is alice with the password `secret`."""
    known = users or {"alice": CREDENTIALS[mechanism]}

    def find_user(name: str, is_token: bool) -> ScramUser | None:
        return ScramUser(known[name], name) if name in known and not is_token else None

    return ScramServer(mechanism, find_user, "servernonce", b"server secret")


def run(client: ScramClient, server: ScramServer) -> Authenticated | None:
    """Run an exchange to its end and return the server's result."""
    first, nothing = server.step(client.start())
    assert nothing is None
    final = client.step(first)
    assert final is not None
    verifier, result = server.step(final)
    assert client.step(verifier) is None
    assert client.is_complete
    return result


@each_mechanism
def test_both_sides_agree(mechanism: str) -> None:
    assert run(ScramClient(mechanism, "alice", "secret", "nonce"), server(mechanism)) == (
        "alice",
        None,
        False,
    )


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    credential = credential_of("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    found = ScramServer("SCRAM-SHA-256", lambda *_: ScramUser(credential, "user"), nonce, b"")
    first, _ = found.step(client.start())
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.step(first)
    assert final is not None
    assert final.endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert found.step(final)[0] == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@each_mechanism
def test_scramp_as_client_and_as_server(mechanism: str) -> None:
    theirs = scramp.ScramClient([mechanism], "alice", "secret")
    ours = server(mechanism)
    theirs.set_server_first(ours.step(theirs.get_client_first().encode())[0].decode())
    verifier, result = ours.step(theirs.get_client_final().encode())
    theirs.set_server_final(verifier.decode())
    assert result is not None

    library = scramp.ScramMechanism(mechanism)
    information = library.make_auth_info("secret", iteration_count=4096)
    their_server = library.make_server(lambda _user: information)
    client = ScramClient(mechanism, "alice", "secret", "nonce")
    their_server.set_client_first(client.start().decode())
    final = client.step(their_server.get_server_first().encode())
    assert final is not None
    their_server.set_client_final(final.decode())
    client.step(their_server.get_server_final().encode())
    assert client.is_complete


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "=", "ü", "a b", "=3D,=2C"])
def test_names_are_escaped(name: str) -> None:
    found = run(
        ScramClient("SCRAM-SHA-256", name, "secret", "n"), server(**{name: CREDENTIALS["SCRAM-SHA-256"]})
    )
    assert found is not None
    assert found.user == name


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("alice", ""), ("bob", "secret")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(name: str, password: str) -> None:
    ours = server()
    client = ScramClient("SCRAM-SHA-256", name, password, "nonce")
    final = client.step(ours.step(client.start())[0])
    assert final is not None
    with pytest.raises(InvalidCredentials, match="Invalid client credentials"):
        ours.step(final)


def test_an_unknown_user_always_has_the_same_salt() -> None:
    """Otherwise a second attempt would reveal that the user does not exist."""
    first = b"n,,n=bob,r=abc"
    assert server().step(first) == server().step(first)
    other, _ = server().step(b"n,,n=eve,r=abc")
    assert other != server().step(first)[0]


def test_a_delegation_token_is_named_by_an_extension() -> None:
    seen = []

    def find_user(name: str, is_token: bool) -> ScramUser | None:
        seen.append((name, is_token))
        return ScramUser(CREDENTIALS["SCRAM-SHA-256"], "User:owner", expires_ms=7)

    ours = ScramServer("SCRAM-SHA-256", find_user, "s", b"")
    found = run(ScramClient("SCRAM-SHA-256", "token-id", "secret", "nonce", is_token=True), ours)
    assert seen == [("token-id", True)]
    assert found == ("User:owner", 7, True)


# --- hostile messages ---


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=a",
        b"n,,n=a",
        b"n,,r=a",
        b"y,,n=a,r=b",
        b"p=tls-unique,,n=a,r=b",
        b"n,,n=a=b,r=c",
        b"n,,n=a,r=",
        b"n,,n=a,r=b\0",
        b"\xff",
        b"n,,n=a,r=b,c",
        b"n,a=,n=a,r=b",
        b"n,,n=a,r=" + b"x" * 10 + b"\n",
    ],
)
def test_malformed_first_messages(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        server().step(message)


def test_another_authorization_id_is_rejected() -> None:
    with pytest.raises(AuthenticationFailed, match="different from username"):
        server().step(b"n,a=bob,n=alice,r=abc")
    assert server().step(b"n,a=alice,n=alice,r=abc")[1] is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"r=nonce", b"r=other"),
        (b"servernonce", b"servernoncf"),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=!!"),
        (b",p=", b",p=A"),
        (b",p=", b",p=AAAA"),
        (b",p=", b",x=y,q="),
    ],
)
def test_changed_final_messages(old: bytes, new: bytes) -> None:
    """Another nonce (CVE-2024-56128), another channel binding, another proof."""
    ours = server()
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "nonce")
    final = client.step(ours.step(client.start())[0])
    assert final is not None
    assert old in final
    with pytest.raises(InvalidCredentials):
        ours.step(final.replace(old, new, 1))


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"r=nonceX,s=QUJD,i=4095", "iterations 4095"),
        (b"r=nonceX,s=QUJD,i=16385", "iterations 16385"),
        (b"r=nonceX,s=QUJD,i=99999999999999999999", "iterations"),
        (b"r=other,s=QUJD,i=4096", "nonce"),
        (b"r=nonce,s=QUJD,i=4096", "nonce"),
        (b"s=QUJD,i=4096", "format"),
        (b"", "format"),
    ],
)
def test_a_client_rejects_other_challenges(challenge: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message):
        ScramClient("SCRAM-SHA-256", "alice", "secret", "nonce").step(challenge)


def test_a_client_verifies_the_server() -> None:
    """A server without the credential cannot make the signature."""
    for answer in (b"v=" + b64encode(b"x" * 32), b"e=other-error", b"v=", b"x"):
        client = ScramClient("SCRAM-SHA-256", "alice", "secret", "nonce")
        client.step(server().step(client.start())[0])
        with pytest.raises(AuthenticationFailed):
            client.step(answer)
        assert not client.is_complete


@settings(max_examples=50)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_raise_anything_else(first: bytes, second: bytes) -> None:
    ours = server()
    for message in (first, b"n,,n=alice,r=abc", second):
        try:
            assert ours.step(message)[1] is None
        except (InvalidCredentials, AuthenticationFailed):
            continue


def test_secrets_are_not_shown() -> None:
    shown = repr((CREDENTIALS, ScramClient("SCRAM-SHA-256", "alice", "secret", "nonce"), server()))
    assert "secret" not in shown
    assert "salt-of" not in shown
