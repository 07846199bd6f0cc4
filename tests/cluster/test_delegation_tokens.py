"""Delegation tokens in the catalogue, with the cases of Kafka's `DelegationTokenControlManager`."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.cluster.catalogue import Catalogue
from konvene.cluster.delegation_tokens import EXPIRE_TOKENS
from konvene.errors import Errors
from konvene.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from konvene.messages.expire_delegation_token import ExpireDelegationTokenRequest
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest
from konvene.security.principal import KafkaPrincipal
from konvene.security.tokens import token_hmac
from konvene.shard.contract import Arm, Context

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))

CONFIG: dict[str, Any] = {
    "delegation.token.secret.key": "key",
    "delegation.token.max.lifetime.ms": 10_000,
    "delegation.token.expiry.time.ms": 4_000,
    "delegation.token.expiry.check.interval.ms": 3_600,
}


class Tokens:
    """A catalogue to which requests are sent at given times."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.catalogue = Catalogue()
        self.config = CONFIG | (config or {})

    def send(
        self, request: Any, principal: KafkaPrincipal = ALICE, now_ms: int = 1_000, token_id: str = "t1"
    ) -> Any:
        """Decide a request, replay its records and return the response."""
        context = Context(now_ms, self.config, api_version=3, fresh_ids=(token_id,), principal=principal)
        outcome = self.catalogue.handle(request, context)
        for record in outcome.records:
            self.catalogue.replay(record)
        return outcome.replies[0].response

    @property
    def expiries(self) -> dict[str, int]:
        return {token.id: token.expires_ms for token in self.catalogue.state.tokens.values()}


def create(max_lifetime_ms: int = -1, owner: str = "", *renewers: str) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner or None,
        renewers=tuple(CreatableRenewers(principal_type="User", principal_name=name) for name in renewers),
        max_lifetime_ms=max_lifetime_ms,
    )


HMAC = token_hmac("key", "t1")


def test_a_token_belongs_to_the_principal_that_requests_it() -> None:
    tokens = Tokens()
    response = tokens.send(create())
    assert (response.error_code, response.token_id, response.hmac) == (0, "t1", HMAC)
    assert (response.principal_name, response.token_requester_principal_name) == ("alice", "alice")
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (
        1_000, 5_000, 11_000,
    )  # fmt: skip
    assert tokens.catalogue.state.tokens["t1"].owner == ALICE


def test_a_token_may_belong_to_another_owner() -> None:
    tokens = Tokens()
    response = tokens.send(create(-1, "bob"))
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    token = tokens.catalogue.state.tokens["t1"]
    assert (token.owner, token.requester) == (BOB, ALICE)


@pytest.mark.parametrize(
    ("max_lifetime_ms", "expected"),
    [(-1, (5_000, 11_000)), (2_000, (3_000, 3_000)), (99_000, (5_000, 11_000))],
)
def test_the_lifetime_is_bounded_by_the_brokers(max_lifetime_ms: int, expected: tuple[int, int]) -> None:
    response = Tokens().send(create(max_lifetime_ms))
    assert (response.expiry_timestamp_ms, response.max_timestamp_ms) == expected


def test_renewers_are_users() -> None:
    request = CreateDelegationTokenRequest(
        renewers=(CreatableRenewers(principal_type="Group", principal_name="g"),), max_lifetime_ms=-1
    )
    tokens = Tokens()
    assert tokens.send(request).error_code == Errors.INVALID_PRINCIPAL_TYPE
    assert not tokens.expiries


def test_without_a_secret_key_tokens_are_disabled() -> None:
    tokens = Tokens({"delegation.token.secret.key": None})
    for request in (
        create(),
        RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=-1),
        ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=-1),
    ):
        assert tokens.send(request).error_code == Errors.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expires_ms"),
    [(-1, 2_000, 6_000), (1_000, 2_000, 3_000), (99_000, 2_000, 6_000), (0, 4_500, 8_500)],
)
def test_a_renewed_token_expires_later(period_ms: int, now_ms: int, expires_ms: int) -> None:
    tokens = Tokens()
    tokens.send(create())
    response = tokens.send(RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=period_ms), now_ms=now_ms)
    assert (response.error_code, response.expiry_timestamp_ms) == (0, expires_ms)
    assert tokens.expiries == {"t1": expires_ms}


def test_a_token_is_not_renewed_beyond_its_longest_lifetime() -> None:
    tokens = Tokens()
    tokens.send(create(6_000))
    for now_ms in (4_000, 6_000):
        response = tokens.send(RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=-1), now_ms=now_ms)
        assert response.expiry_timestamp_ms == 7_000
    response = tokens.send(RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=-1), now_ms=7_001)
    assert response.error_code == Errors.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize(
    ("principal", "error"),
    [
        (ALICE, Errors.NONE),
        (BOB, Errors.NONE),
        (CAROL, Errors.DELEGATION_TOKEN_OWNER_MISMATCH),
    ],
)
def test_owners_and_renewers_may_renew_and_expire(principal: KafkaPrincipal, error: Errors) -> None:
    for request in (
        RenewDelegationTokenRequest(hmac=HMAC, renew_period_ms=-1),
        ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=500),
    ):
        tokens = Tokens()
        tokens.send(create(-1, "", "bob"))
        assert tokens.send(request, principal).error_code == error


def test_an_unknown_hmac_is_not_found() -> None:
    tokens = Tokens()
    tokens.send(create())
    for hmac in (b"", b"x" * 64, HMAC[:-1]):
        for request in (
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1),
        ):
            assert tokens.send(request).error_code == Errors.DELEGATION_TOKEN_NOT_FOUND


def test_a_negative_period_removes_the_token() -> None:
    tokens = Tokens()
    tokens.send(create())
    response = tokens.send(ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=-1))
    assert (response.error_code, response.expiry_timestamp_ms) == (0, -1)
    assert tokens.expiries == {}


def test_the_expiry_can_be_set() -> None:
    tokens = Tokens()
    tokens.send(create())
    tokens.send(ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=100))
    assert tokens.expiries == {"t1": 1_100}


def test_a_timer_removes_expired_tokens() -> None:
    """It runs from the start, and again after each sweep; not at all without a secret key."""
    tokens = Tokens()
    tokens.send(create(), token_id="t1")
    tokens.send(create(1_000), token_id="t2")
    context = Context(3_000, tokens.config)
    again = (Arm(EXPIRE_TOKENS, 3_600),)
    assert tokens.catalogue.load(context).timers == again
    outcome = tokens.catalogue.expire(EXPIRE_TOKENS, context)
    for record in outcome.records:
        tokens.catalogue.replay(record)
    assert tokens.expiries == {"t1": 5_000}
    assert outcome.timers == again
    off = Context(3_000, tokens.config | {"delegation.token.secret.key": None})
    assert tokens.catalogue.load(off).timers == ()
