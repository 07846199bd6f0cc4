"""Hostile conversations with access tokens, each with the outcome that Apache Kafka has."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.security.oauth.tokens import CLAIMS, ec_key, encoded, rsa_key, token
from tests.security_cases.conversations import Conversation, failed, sasl
from tests.security_cases.stage import CLOSED, Outcome, Stage, authenticate, handshake, outcome

EXPIRES_S = 600


def bearer(make: Callable[[dict[str, Any]], str], authzid: str = "") -> Callable[[Stage], Any]:
    """Return a conversation with a token, which is made of the claims of a fresh one: `accepted`, or the
    outcome."""

    def play(stage: Stage) -> Any:
        now_s = int(time.time())
        access_token = make({"iat": now_s, "exp": now_s + EXPIRES_S})
        with stage.client("OAUTH") as client:
            assert not handshake(client, "OAUTHBEARER").error_code
            message = f"n,{authzid},\1auth=Bearer {access_token}\1\1".encode()
            answer = authenticate(client, message)
            if not answer.error_code and answer.auth_bytes:
                answer = authenticate(client, b"\1")
            elif not answer.error_code:
                assert 0 < answer.session_lifetime_ms <= 1_000 * EXPIRES_S
                return ACCEPTED
            return outcome(client, answer)

    return play


def oauth_message(message: bytes) -> Callable[[Stage], Outcome]:
    return sasl(message, "OAUTHBEARER", listener="OAUTH")


def signed_with_the_public_key(fresh: dict[str, Any]) -> str:
    """Return a token with an HMAC whose secret is the public key of the issuer."""
    key = rsa_key().public_key()
    secret = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': 'HS256', 'kid': 'k1'})}.{encoded(CLAIMS | fresh)}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


ACCEPTED = "accepted"
INVALID_TOKEN = failed('{"status":"invalid_token"}')
OTHER_PRINCIPAL = failed(
    "Authentication failed: Client requested an authorization id (bob) that is different from the token's"
    " principal name (alice)"
)
BAD_OAUTH = failed(
    "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
)

OAUTH_CONVERSATIONS = [
    Conversation("a token", bearer(token), ACCEPTED),
    Conversation(
        "an elliptic curve",
        bearer(lambda fresh: token(fresh, "ES256", ec_key(), {"kid": "k2"})),
        ACCEPTED,
    ),
    Conversation("a large token", bearer(lambda fresh: token(fresh | {"x": "y" * 20_000})), ACCEPTED),
    Conversation("no signature", bearer(lambda fresh: token(fresh, "none")), INVALID_TOKEN),
    Conversation("HMAC with the public key", bearer(signed_with_the_public_key), INVALID_TOKEN),
    Conversation(
        "the key of another algorithm",
        bearer(lambda fresh: token(fresh, "ES256", ec_key(), {"kid": "k1"})),
        INVALID_TOKEN,
    ),
    Conversation("a changed signature", bearer(lambda fresh: token(fresh)[:-10] + "A" * 10), INVALID_TOKEN),
    Conversation("an unknown key", bearer(lambda fresh: token(fresh, header={"kid": "k9"})), INVALID_TOKEN),
    Conversation(
        "a long key id", bearer(lambda fresh: token(fresh, header={"kid": "k" * 2_000})), INVALID_TOKEN
    ),
    Conversation(
        "a key of its own",
        bearer(lambda fresh: token(fresh, header={"kid": "k9", "jwk": {"kty": "RSA"}})),
        INVALID_TOKEN,
    ),
    Conversation(
        "a critical header", bearer(lambda fresh: token(fresh, header={"crit": ["x"]})), INVALID_TOKEN
    ),
    *(
        Conversation(
            f"a token with {claims}",
            bearer(lambda fresh, claims=claims: token(fresh | claims)),  # type: ignore[misc]
            INVALID_TOKEN,
        )
        for claims in (
            {"exp": 1},
            {"exp": None},
            {"exp": "tomorrow"},
            {"exp": -1},
            {"iat": None},
            {"nbf": 1 << 40},
            {"aud": "other"},
            {"aud": None},
            {"iss": "other"},
            {"iss": None},
            {"sub": None},
            {"sub": " "},
            {"sub": ["alice"]},
        )
    ),
    Conversation("a word", bearer(lambda _: "word"), INVALID_TOKEN),
    Conversation("empty parts", bearer(lambda _: "a.b.c"), INVALID_TOKEN),
    Conversation("an encrypted token", bearer(lambda _: "a.b.c.d.e"), INVALID_TOKEN),
    Conversation("the principal for authorization", bearer(token, "a=alice"), ACCEPTED),
    Conversation("another principal for authorization", bearer(token, "a=bob"), OTHER_PRINCIPAL),
    Conversation("OAUTHBEARER with garbage", oauth_message(b"garbage"), BAD_OAUTH),
    Conversation("another scheme", oauth_message(b"n,,\1auth=Basic dTpw\1\1"), CLOSED, BAD_OAUTH),
    Conversation(
        "a token that is issued in the future",
        bearer(lambda fresh: token(fresh | {"iat": fresh["exp"] - 1})),
        ACCEPTED,
        INVALID_TOKEN,
    ),
]
