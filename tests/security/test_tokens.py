"""Delegation tokens: HMAC, who may use the APIs, who sees which token."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.security.session import SecurityProtocol, Session
from konvene.security.tokens import DelegationToken, may_describe, may_use_tokens, token_hmac

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
TOKEN = DelegationToken("id", ALICE, CAROL, (BOB,), issued_ms=1_000, max_ms=9_000, expires_ms=5_000)


def test_the_hmac_is_sha_512_of_the_id() -> None:
    assert token_hmac("key", "id") == hmac.new(b"key", b"id", hashlib.sha512).digest()


def test_a_token_is_its_record() -> None:
    assert DelegationToken.of(TOKEN.record) == TOKEN
    assert TOKEN.record.owner == "User:alice"
    assert TOKEN.record.renewers == ("User:bob",)


@pytest.mark.parametrize(
    ("now_ms", "expired"), [(0, False), (5_000, False), (5_001, True), (9_000, True), (9_001, True)]
)
def test_a_token_expires_after_its_time(now_ms: int, expired: bool) -> None:
    assert TOKEN.is_expired(now_ms) is expired


def test_a_token_expires_at_its_longest_lifetime() -> None:
    assert TOKEN._replace(expires_ms=20_000).is_expired(9_001)


@pytest.mark.parametrize(
    ("session", "allowed"),
    [
        (Session(), False),
        (Session(ALICE), False),
        (Session(ANONYMOUS, security_protocol=SecurityProtocol.SSL), False),
        (Session(ALICE, security_protocol=SecurityProtocol.SSL), True),
        (Session(ALICE, security_protocol=SecurityProtocol.SASL_PLAINTEXT), True),
        (Session(ALICE, security_protocol=SecurityProtocol.SASL_SSL), True),
        (Session(ALICE, security_protocol=SecurityProtocol.SASL_SSL, is_token_authenticated=True), False),
    ],
)
def test_token_requests_need_an_authenticated_client(session: Session, allowed: bool) -> None:
    assert may_use_tokens(session) is allowed


@pytest.mark.parametrize(
    ("principal", "owners", "token_ids", "token_owners", "visible"),
    [
        (ALICE, None, (), (), True),
        (BOB, None, (), (), True),
        (CAROL, None, (), (), False),
        (CAROL, None, ("id",), (), True),
        (CAROL, None, (), (ALICE,), True),
        (CAROL, None, ("other",), (BOB,), False),
        (ALICE, {ALICE}, (), (), True),
        (ALICE, {BOB}, (), (), True),
        (ALICE, {CAROL}, ("id",), (ALICE,), False),
    ],
)
def test_a_token_is_visible_to_its_owner_its_renewers_and_by_acl(
    principal: KafkaPrincipal,
    owners: set[KafkaPrincipal] | None,
    token_ids: tuple[str, ...],
    token_owners: tuple[KafkaPrincipal, ...],
    visible: bool,
) -> None:
    found = may_describe(TOKEN, principal, owners, token_ids.__contains__, token_owners.__contains__)
    assert found is visible
