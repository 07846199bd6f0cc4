"""Access tokens: what is accepted, and every way to forge one that is known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from tests.security.oauth.tokens import NOW_MS, ec_key, encoded, key_set, rsa_key, token

from konvene.security.oauth.jwt import (
    InvalidToken,
    JwtSettings,
    JwtValidator,
    UnsecuredJwtValidator,
    unverified_key_id,
)
from konvene.security.oauth.keys import JsonWebKeySet

SETTINGS = JwtSettings("https://issuer", frozenset({"kafka", "other"}))
KEYS = JsonWebKeySet.parse(key_set())


def validate(text: str, settings: JwtSettings = SETTINGS, keys: JsonWebKeySet = KEYS) -> Any:
    return JwtValidator(settings, lambda: keys).validate(text, NOW_MS)


def test_a_valid_token_names_its_principal() -> None:
    found = validate(token({"scope": ["read", "write"]}))
    assert found == ("alice", NOW_MS + 60_000, {"read", "write"})


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS512"])
def test_rsa_signatures(algorithm: str) -> None:
    assert validate(token(algorithm=algorithm)).principal_name == "alice"


def test_an_elliptic_curve_signature() -> None:
    assert validate(token(algorithm="ES256", key=ec_key(), header={"kid": "k2"})).principal_name == "alice"


def test_a_token_without_a_key_id_is_verified_with_each_key() -> None:
    assert validate(token(header={"kid": None})).principal_name == "alice"


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": None}, "exp is missing"),
        ({"iat": None}, "iat is missing"),
        ({"sub": None}, "sub is missing"),
        ({"sub": "  "}, "sub is missing"),
        ({"sub": 7}, "sub is missing"),
        ({"exp": NOW_MS // 1000 - 30}, "expired"),
        ({"exp": "soon"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": -1}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"nbf": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"iat": NOW_MS // 1000 + 31}, "in the future"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://other"}, "issuer"),
        ({"aud": None}, "audience"),
        ({"aud": "elsewhere"}, "audience"),
        ({"aud": ["elsewhere"]}, "audience"),
        ({"aud": 7}, "aud is not text"),
        ({"scope": 7}, "scope is not text"),
    ],
)
def test_claims_are_checked(claims: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidToken, match=message):
        validate(token(claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_MS // 1000 - 29},
        {"nbf": NOW_MS // 1000 + 30},
        {"iat": NOW_MS // 1000 + 30},
        {"aud": ["elsewhere", "other"]},
    ],
)
def test_the_clock_skew_and_any_expected_audience_are_accepted(claims: dict[str, Any]) -> None:
    assert validate(token(claims)).principal_name == "alice"


def test_other_claims_may_hold_subject_and_scope() -> None:
    settings = SETTINGS._replace(sub_claim_name="client_id", scope_claim_name="scp")
    found = validate(token({"client_id": "app", "scp": "a"}), settings)
    assert (found.principal_name, found.scopes) == ("app", {"a"})


def test_an_audience_that_nothing_expects_is_rejected() -> None:
    """Unless the broker may accept unverified audiences."""
    settings = JwtSettings("https://issuer")
    with pytest.raises(InvalidToken, match="none is expected"):
        validate(token(), settings)
    assert validate(token(), settings._replace(checks_audience=False)).principal_name == "alice"


# --- forged tokens ---


def test_unsigned_tokens_are_rejected() -> None:
    for algorithm in ("none", "None", "NONE"):
        text = token(algorithm="none", header={"alg": algorithm})
        with pytest.raises(InvalidToken, match="not signed"):
            validate(text)


def test_a_public_key_is_no_secret_of_an_hmac() -> None:
    """HS256 with the RSA key's public bytes as the secret: the classic algorithm confusion."""
    import hashlib
    import hmac

    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = token(algorithm="none", header={"alg": "HS256"}).rstrip(".")
    forged = f"{signed}.{encoded(hmac.digest(public, signed.encode(), hashlib.sha256))}"
    with pytest.raises(InvalidToken, match="no key"):
        validate(forged)


def test_a_symmetric_key_in_the_set_is_left_out() -> None:
    keys = JsonWebKeySet.parse(key_set({"kty": "oct", "kid": "s", "k": encoded(b"x" * 32)}))
    assert [key.id for key in keys.keys] == ["k1", "k2"]


def test_another_key_does_not_sign() -> None:
    with pytest.raises(InvalidToken, match="does not match"):
        validate(token(key=rsa.generate_private_key(65_537, 2_048)))


def test_a_key_within_the_token_is_ignored() -> None:
    from jwt.algorithms import RSAAlgorithm

    other = rsa.generate_private_key(65_537, 2_048)
    jwk = RSAAlgorithm.to_jwk(other.public_key(), as_dict=True)
    with pytest.raises(InvalidToken, match="does not match"):
        validate(token(key=other, header={"jwk": jwk, "jku": "https://evil/jwks"}))


def test_a_changed_claim_breaks_the_signature() -> None:
    head, _, signature = token().split(".")
    other = token({"sub": "admin"}).split(".")[1]
    with pytest.raises(InvalidToken, match="does not match"):
        validate(f"{head}.{other}.{signature}")


def test_an_elliptic_curve_key_verifies_no_rsa_algorithm() -> None:
    with pytest.raises(InvalidToken, match="no key"):
        validate(token(header={"kid": "k2"}))


def test_critical_headers_are_rejected() -> None:
    with pytest.raises(InvalidToken, match="critical"):
        validate(token(header={"crit": ["b64"]}))


@pytest.mark.parametrize(
    "text",
    ["", "a", "a.b", "a.b.c.d", "!.!.!", "e30.e30", f"{encoded([])}.{encoded({})}.", "é.é.é", "." * 2,
     "x" * 70_000, f"{encoded(b'[' * 50_000)}.e30."],
)  # fmt: skip
def test_malformed_tokens_are_rejected(text: str) -> None:
    with pytest.raises(InvalidToken):
        validate(text)
    assert unverified_key_id(text) is None


@given(
    st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True)
)
def test_no_text_raises_anything_else(text: str) -> None:
    for check in (validate, lambda t: UnsecuredJwtValidator().validate(t, NOW_MS)):
        with pytest.raises(InvalidToken):
            check(text)


def test_a_message_never_contains_the_token() -> None:
    text = token({"exp": 1})
    with pytest.raises(InvalidToken) as raised:
        validate(text)
    assert not any(part in str(raised.value) for part in text.split("."))


# --- settings ---


def settings(**changed: Any) -> dict[str, Any]:
    defaults = {
        "expected.issuer": "https://issuer", "expected.audience": ("kafka",), "scope.claim.name": "scope",
        "sub.claim.name": "sub", "clock.skew.seconds": 30, "allow.unverified.issuer": False,
        "allow.unverified.audience": False,
    }  # fmt: skip
    named = {name.replace("_", "."): value for name, value in changed.items()}
    return {f"sasl.oauthbearer.{name}": value for name, value in (defaults | named).items()}


@pytest.mark.parametrize("name", ["issuer", "audience"])
def test_issuer_and_audience_are_required(name: str) -> None:
    """As in Kafka 4.4: without them a token for another service would be accepted."""
    for missing in (None, (), ""):
        with pytest.raises(ValueError, match=f"expected.{name} is required"):
            JwtSettings.of(settings(**{f"expected_{name}": missing}))
    permitted = {f"expected_{name}": None, f"allow_unverified_{name}": True}
    assert JwtSettings.of(settings(**permitted)).checks_audience is (name == "issuer")


# --- unsecured tokens ---


def test_unsecured_tokens_need_their_own_validator() -> None:
    unsecured = UnsecuredJwtValidator()
    assert unsecured.validate(token(algorithm="none"), NOW_MS).principal_name == "alice"
    assert unsecured.validate(token({"iat": None}, "none"), NOW_MS).principal_name == "alice"
    for text in (token(), token(algorithm="none") + "AA", token({"exp": None}, "none")):
        with pytest.raises(InvalidToken):
            unsecured.validate(text, NOW_MS)


def test_the_key_id_of_a_token() -> None:
    assert unverified_key_id(token()) == "k1"
    assert unverified_key_id(token(header={"kid": 7})) is None
    assert json.loads(key_set())["keys"][0]["kid"] == "k1"
