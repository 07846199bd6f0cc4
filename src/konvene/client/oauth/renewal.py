"""Keeps an access token until shortly before it expires, with the rule of Kafka's login refresh.

A token is renewed when a connection needs one, not by a timer: a session on a broker ends with its token, and
a client authenticates again in the last part of the session's lifetime (KIP-368), which is after the renewal
time of the token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import random
from typing import Final, NamedTuple

from konvene.client.errors import ClientError

__all__ = ["FetchedToken", "RenewalRule", "RenewedToken"]

RETRY_MS: Final = 10_000
"""Time until the next attempt after a failed renewal, while the current token is valid."""


class FetchedToken(NamedTuple):
    """A serialized token and its times in milliseconds; its value is a secret."""

    text: str
    issued_ms: int | None
    expires_ms: int

    def __repr__(self) -> str:
        return f"<access token [hidden], expires at {self.expires_ms} ms>"


class RenewalRule(NamedTuple):
    """The `sasl.login.refresh.…` settings."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def renewal_ms(self, token: FetchedToken, now_ms: int, chance: float) -> int:
        """Return the time from which a token is renewed; `chance` is a random number from 0 to 1.

        As Kafka's `ExpiringCredentialRefreshingLogin`: minimum period and buffer do not apply to a token
        that is shorter than both."""
        part = self.window_factor + self.window_jitter * chance
        if now_ms + 1000 * (self.min_period_s + self.buffer_s) > token.expires_ms:
            return now_ms + int((token.expires_ms - now_ms) * part)
        start_ms = now_ms if token.issued_ms is None else token.issued_ms
        proposed_ms = start_ms + int((token.expires_ms - start_ms) * part)
        latest_ms = token.expires_ms - 1000 * self.buffer_s
        earliest_ms = now_ms + 1000 * self.min_period_s
        return latest_ms if proposed_ms > latest_ms else max(proposed_ms, earliest_ms)


class RenewedToken:
    """A token provider that fetches a token when there is none, or when the current one is to be renewed.

    Connections share it; it may be called from several threads."""

    def __init__(
        self,
        fetch: Callable[[], FetchedToken],
        rule: RenewalRule | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        chance: Callable[[], float] = random,
    ) -> None:
        self._fetch = fetch
        self._rule = rule or RenewalRule()
        self._now_ms = now_ms
        self._chance = chance
        self._lock = threading.Lock()
        self._token: FetchedToken | None = None
        self._renewal_ms = 0

    def __repr__(self) -> str:
        return f"<RenewedToken {self._token!r}>" if self._token else "<RenewedToken, none yet>"

    def __call__(self) -> str:
        """Return a token that is valid. Raises `ClientError`; a failed renewal keeps a valid token."""
        with self._lock:
            if self._token is not None and self._now_ms() < self._renewal_ms:
                return self._token.text
            try:
                token = self._fetch()
            except ClientError:
                now_ms = self._now_ms()
                if self._token is None or now_ms >= self._token.expires_ms:
                    raise
                self._renewal_ms = min(now_ms + RETRY_MS, self._token.expires_ms)
                return self._token.text
            self._token = token
            self._renewal_ms = self._rule.renewal_ms(token, self._now_ms(), self._chance())
            return token.text
