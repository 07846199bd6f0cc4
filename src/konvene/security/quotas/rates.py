"""Measured rates and token buckets, as Kafka's `Rate`, `TokenBucket` and `QuotaUtils`.

A rate is the sum of recorded values over windows of equal length, divided by the time since the oldest of
them began; that time counts as at least all windows but one, so that a first request is no high rate.
A window begins with the first value that is recorded after the last one has ended.

All times are in milliseconds by one monotonic clock.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["QuotaWindows", "Rate", "TokenBucket", "mutation_throttle_ms", "rate_throttle_ms"]

MAX_THROTTLE_MS = 2**31 - 1
"""Largest throttle time that a response can have."""


class QuotaWindows(NamedTuple):
    """Number and length of the windows of a rate (`quota.window.num`, `quota.window.size.seconds`)."""

    number: int = 11
    size_ms: int = 1_000


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """A rate of values per second over the last windows."""

    __slots__ = ("_current", "_windows", "config")

    def __init__(self, config: QuotaWindows) -> None:
        self.config = config
        self._windows: list[_Window] = []
        self._current = 0

    def __repr__(self) -> str:
        return f"<{sum(window.total for window in self._windows):g} in {len(self._windows)} windows>"

    def record(self, value: float, now_ms: float) -> None:
        """Add a value, which may be negative to take one back."""
        if not self._windows:
            self._windows.append(_Window(now_ms))
        window = self._windows[self._current]
        if now_ms - window.start_ms >= self.config.size_ms:
            window = self._next_window(now_ms)
        window.total += value
        window.last_ms = now_ms

    def _next_window(self, now_ms: float) -> _Window:
        # One more window than configured: the oldest one overlaps the measured time in part.
        self._current = (self._current + 1) % (self.config.number + 1)
        if self._current >= len(self._windows):
            self._windows.append(_Window(now_ms))
        else:
            self._windows[self._current].reset(now_ms)
        return self._windows[self._current]

    def _drop_expired(self, now_ms: float) -> None:
        expired_ms = self.config.number * self.config.size_ms
        for window in self._windows:
            if now_ms - window.last_ms >= expired_ms:
                window.reset(now_ms)

    def duration_ms(self, now_ms: float) -> float:
        """Return the time over which values are summed."""
        if not self._windows:
            self._windows.append(_Window(now_ms))
        self._drop_expired(now_ms)
        elapsed_ms = now_ms - min(window.start_ms for window in self._windows)
        missing = self.config.number - 1 - int(elapsed_ms // self.config.size_ms)
        if missing > 0:
            elapsed_ms += missing * self.config.size_ms
        return max(elapsed_ms, 1)

    def measure(self, now_ms: float) -> float:
        """Return the rate per second."""
        duration_ms = self.duration_ms(now_ms)
        return sum(window.total for window in self._windows) * 1000 / duration_ms


def rate_throttle_ms(rate: Rate, limit: float, now_ms: float) -> int:
    """Return the time after which the rate is `limit` if nothing is recorded; 0 if it is not above it.

    If O is the rate over W ms and T the limit, it is X with O · W / (W + X) = T."""
    observed = rate.measure(now_ms)
    if not observed > limit:
        return 0
    if not limit:
        return MAX_THROTTLE_MS
    return min(_rounded((observed - limit) / limit * rate.duration_ms(now_ms)), MAX_THROTTLE_MS)


class TokenBucket:
    """Tokens that are used up and refilled at a rate; a bucket below zero is exhausted.

    It is full in the beginning, and holds as many tokens as are refilled in all windows."""

    __slots__ = ("_config", "_tokens", "_updated_ms")

    def __init__(self, config: QuotaWindows) -> None:
        self._config = config
        self._tokens: float | None = None  # Full.
        self._updated_ms = 0.0

    def __repr__(self) -> str:
        return f"<{'full' if self._tokens is None else f'{self._tokens:g} tokens'}>"

    def tokens(self, limit: float, now_ms: float) -> float:
        """Refill the bucket at `limit` tokens per second, and return the number of tokens."""
        capacity = self._config.number * self._config.size_ms / 1000 * limit
        if self._tokens is None:
            self._tokens = capacity
        else:
            refilled = self._tokens + limit * (now_ms - self._updated_ms) / 1000
            self._tokens = min(capacity, refilled)
        self._updated_ms = now_ms
        return self._tokens

    def fill(self) -> None:
        """Fill the bucket, because nothing limits its client."""
        self._tokens = None

    def take(self, count: float, limit: float, now_ms: float) -> float:
        """Take tokens out, even if there are too few, and return the number that is left."""
        self._tokens = self.tokens(limit, now_ms) - count
        return self._tokens


def mutation_throttle_ms(tokens: float, limit: float) -> int:
    """Return the time until a bucket is no longer below zero; 0 if it is not."""
    return 0 if tokens >= 0 else min(_rounded(-tokens / limit * 1000), MAX_THROTTLE_MS)


def _rounded(value: float) -> int:
    """Return the nearest integer, as Java's `Math.round`; of an infinite value, the largest throttle time."""
    return int(min(value, MAX_THROTTLE_MS) + 0.5)
