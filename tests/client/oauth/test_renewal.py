"""When an access token is renewed: Kafka's rule, and what a failed renewal means."""

from __future__ import annotations

import pytest

from konvene.client.errors import AuthenticationFailed
from konvene.client.oauth.renewal import RETRY_MS, FetchedToken, RenewalRule, RenewedToken

NOW_MS = 1_000_000_000


@pytest.mark.parametrize(
    ("lifetime_s", "issued_s", "chance", "expected_s"),
    [
        (3_600, 0, 0.0, 2_880.0),  # 80 % of its lifetime.
        (3_600, 0, 1.0, 3_060.0),  # With the jitter 85 %.
        (3_600, None, 0.0, 2_880.0),  # Without an issue time it begins now.
        (3_600, -36_000, 0.0, 60.0),  # Issued long ago: after the minimum period.
        (1_000, 0, 0.0, 700.0),  # Not later than the buffer before its end.
        (300, 0, 0.0, 240.0),  # Shorter than minimum period and buffer: 80 %.
    ],
)
def test_renewal_time(lifetime_s: int, issued_s: int | None, chance: float, expected_s: float) -> None:
    issued_ms = None if issued_s is None else NOW_MS + 1000 * issued_s
    token = FetchedToken("t", issued_ms, NOW_MS + 1000 * lifetime_s)
    assert RenewalRule().renewal_ms(token, NOW_MS, chance) - NOW_MS == pytest.approx(1000 * expected_s, abs=1)


class Issuer:
    """Tokens that are valid for an hour; an exception is raised instead."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.count = 0
        self.failure: Exception | None = None

    def fetch(self) -> FetchedToken:
        if self.failure is not None:
            raise self.failure
        self.count += 1
        return FetchedToken(f"token-{self.count}", self.now_ms, self.now_ms + 3_600_000)

    def provider(self) -> RenewedToken:
        return RenewedToken(self.fetch, now_ms=lambda: self.now_ms, chance=lambda: 0.0)


def test_a_token_is_used_until_its_renewal_time() -> None:
    issuer = Issuer()
    provider = issuer.provider()
    assert [provider(), provider()] == ["token-1", "token-1"]
    issuer.now_ms += 2_879_999
    assert provider() == "token-1"
    issuer.now_ms += 1
    assert provider() == "token-2"


def test_a_failed_renewal_keeps_a_valid_token() -> None:
    """And is tried again a little later; once the token has expired, the failure is raised."""
    issuer = Issuer()
    provider = issuer.provider()
    provider()
    issuer.failure = AuthenticationFailed("down")
    issuer.now_ms += 2_880_000
    assert provider() == "token-1"
    issuer.failure = None
    assert provider() == "token-1"
    issuer.now_ms += RETRY_MS
    assert provider() == "token-2"
    issuer.failure = AuthenticationFailed("down")
    issuer.now_ms += 3_600_000
    with pytest.raises(AuthenticationFailed):
        provider()


def test_nothing_shows_the_token() -> None:
    provider = Issuer().provider()
    provider()
    assert "token-1" not in repr(provider)
    assert "expires at" in repr(provider)
