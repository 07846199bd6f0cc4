"""The sensors of one kind of quota: what each client, or user, has used lately, and how long it is throttled.

Sensors are made when a client is measured for the first time. They are removed an hour after they were used
last, and the least recently used ones before that if there are more than `MAX_SENSORS`: client ids are chosen
by clients. Time is an argument, in milliseconds by one monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from konvene.security.quotas.precedence import NO_QUOTAS, QuotaTable, Tags
from konvene.security.quotas.rates import QuotaWindows, Rate, TokenBucket, rate_throttle_ms

__all__ = ["BucketSensor", "BucketSensors", "RateSensor", "RateSensors", "Sensors", "ThrottleTimes"]

EXPIRY_MS = 3_600_000
"""Time without use after which a sensor is removed, as in Kafka."""

MAX_SENSORS = 16_384

THROTTLE_WINDOWS = QuotaWindows(2, 30_000)
"""Kafka's default windows of metrics, over which the average throttle time is taken."""


class ThrottleTimes:
    """The average throttle time of the last 30 to 60 seconds."""

    __slots__ = ("_count", "_total")

    def __init__(self) -> None:
        self._total, self._count = Rate(THROTTLE_WINDOWS), Rate(THROTTLE_WINDOWS)

    def __repr__(self) -> str:
        return f"<throttle times: {self._total!r}>"

    def record(self, throttle_ms: int, now_ms: float) -> None:
        self._total.record(throttle_ms, now_ms)
        self._count.record(1, now_ms)

    def average_ms(self, now_ms: float) -> float | None:
        """Return the average; None if the client was not throttled."""
        count = self._count.measure(now_ms)
        return self._total.measure(now_ms) / count if count else None


class RateSensor:
    """The rate of one client or user."""

    __slots__ = ("rate", "throttle_times", "used_ms")

    def __init__(self, windows: QuotaWindows) -> None:
        self.rate = Rate(windows)
        self.throttle_times = ThrottleTimes()
        self.used_ms = 0.0

    def __repr__(self) -> str:
        return f"<sensor {self.rate!r}>"


class BucketSensor:
    """The token bucket of one client or user, and its rate, which is only a metric."""

    __slots__ = ("bucket", "rate", "throttle_times", "used_ms")

    def __init__(self, windows: QuotaWindows) -> None:
        self.bucket = TokenBucket(windows)
        self.rate = Rate(THROTTLE_WINDOWS)
        self.throttle_times = ThrottleTimes()
        self.used_ms = 0.0

    def __repr__(self) -> str:
        return f"<sensor {self.bucket!r}>"


class Sensor(Protocol):
    """What a client or user has used."""

    used_ms: float
    """When the sensor was used last."""


S = TypeVar("S", bound=Sensor)


class Sensors(Generic[S]):
    """The sensors of one kind of quota by tags, least recently used first, and the table of its quotas."""

    def __init__(
        self, windows: QuotaWindows, make: Callable[[QuotaWindows], S], max_sensors: int = MAX_SENSORS
    ) -> None:
        self.windows = windows
        self.table: QuotaTable = NO_QUOTAS
        """The current quotas; replaced as a whole."""
        self._make = make
        self._max_sensors = max_sensors
        self._sensors: OrderedDict[Tags, S] = OrderedDict()

    def __repr__(self) -> str:
        return f"<{len(self)} sensors, {self.table!r}>"

    def __len__(self) -> int:
        return len(self._sensors)

    def latest(self) -> Iterator[tuple[Tags, S]]:
        """Iterate over all sensors with their tags, the one that was used last first."""
        return reversed(self._sensors.items())

    def of(self, user: str, client_id: str, now_ms: float) -> tuple[S, float | None]:
        """Return the sensor of a client, a new one if it has none, and its quota (None: unlimited)."""
        tags = self.table.tags(user, client_id)
        sensor = self._sensors.get(tags)
        if sensor is not None and now_ms - sensor.used_ms < EXPIRY_MS:
            self._sensors.move_to_end(tags)
        else:
            self.remove_unused(now_ms)
            sensor = self._sensors[tags] = self._make(self.windows)
            if len(self._sensors) > self._max_sensors:
                self._sensors.popitem(last=False)
        sensor.used_ms = now_ms
        return sensor, self.table.limit(tags)

    def remove_unused(self, now_ms: float) -> None:
        """Remove the sensors that were not used for an hour."""
        while self._sensors:
            tags, sensor = next(iter(self._sensors.items()))
            if now_ms - sensor.used_ms < EXPIRY_MS:
                return
            del self._sensors[tags]


class RateSensors(Sensors[RateSensor]):
    """Sensors of quotas on rates: bytes per second, or percent of a thread."""

    def __init__(self, windows: QuotaWindows, *, max_throttle_ms: int | None = None) -> None:
        """`max_throttle_ms`: the longest throttle time; None: as long as it takes."""
        super().__init__(windows, RateSensor)
        self._max_throttle_ms = max_throttle_ms

    def record(self, user: str, client_id: str, value: float, now_ms: float) -> int:
        """Record a value, and return the time in ms for which the client is throttled; 0 if it is not."""
        sensor, limit = self.of(user, client_id, now_ms)
        sensor.rate.record(value, now_ms)
        if limit is None:
            return 0
        throttle_ms = rate_throttle_ms(sensor.rate, limit, now_ms)
        return throttle_ms if self._max_throttle_ms is None else min(throttle_ms, self._max_throttle_ms)

    def record_unthrottled(self, user: str, client_id: str, value: float, now_ms: float) -> None:
        """Record a value, negative to take one back; it counts when the next one is recorded."""
        self.of(user, client_id, now_ms)[0].rate.record(value, now_ms)

    def max_value(self, user: str, client_id: str, now_ms: float) -> float | None:
        """Return the largest value that can be recorded without being throttled for sure; None: any."""
        _, limit = self.of(user, client_id, now_ms)
        return None if limit is None else limit * (self.windows.number - 1) * self.windows.size_ms / 1000


class BucketSensors(Sensors[BucketSensor]):
    """Sensors of the quota on created and deleted partitions."""

    def __init__(self, windows: QuotaWindows) -> None:
        super().__init__(windows, BucketSensor)
