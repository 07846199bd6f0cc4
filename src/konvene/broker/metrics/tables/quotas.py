"""Metrics of client quotas: what clients use of them, and for how long they are throttled.

As in Kafka, there are values only while a quota of the type is set, and each sensor has a line: of a user, a
client id, or both. The tag that does not matter is empty. Of clients without a quota, only as many have lines
as `MAX_LINES` permits: client ids are chosen by clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from konvene.broker.metrics.tables.broker import GAUGE, Lines, Metric, Snapshot
from konvene.broker.net.client_quotas import ClientQuotas
from konvene.security.quotas.precedence import sanitized
from konvene.security.quotas.sensors import Sensors

__all__ = ["KAFKAS_OF_QUOTAS", "QUOTA_MBEANS"]

QUOTA_MBEANS: Final = tuple(
    f"kafka.server:type={kind}" for kind in ("Produce", "Fetch", "Request", "ControllerMutation")
)

MAX_LINES: Final = 1_000
"""Largest number of lines of one metric; the sensors that were used last have them."""

LABELS: Final = ("user", "client_id")

Value = Callable[[Any, float | None, int], float | None]
"""Returns a sensor's value, by its quota and the time; None if it has none."""


def _lines(sensors: Callable[[ClientQuotas], Sensors[Any]], value: Value) -> Callable[[Snapshot], Lines]:
    def read(snapshot: Snapshot) -> Lines:
        quotas = snapshot.broker.client_quotas
        found = sensors(quotas)
        return sorted(_values(found, value, quotas.clock_ms())) if found.table else ()

    return read


def _values(sensors: Sensors[Any], value: Value, now_ms: int) -> Iterator[tuple[tuple[str, ...], float]]:
    for tags, sensor in islice(sensors.latest(), MAX_LINES):
        measured = value(sensor, sensors.table.limit(tags), now_ms)
        if measured is not None:
            yield (sanitized(tags.user), tags.client_id), measured


def _rate(sensor: Any, _limit: float | None, now_ms: int) -> float:
    rate: float = sensor.rate.measure(now_ms)
    return rate


def _throttle_time(sensor: Any, _limit: float | None, now_ms: int) -> float | None:
    average: float | None = sensor.throttle_times.average_ms(now_ms)
    return average


def _tokens(sensor: Any, limit: float | None, now_ms: int) -> float | None:
    return None if limit is None else sensor.bucket.tokens(limit, now_ms)


def _kafka(
    kind: str, attribute: str, sentence: str, sensors: Callable[[ClientQuotas], Sensors[Any]], value: Value
) -> Metric:
    name = f"kafka_server_{kind}_{attribute.replace('-', '_')}"
    return Metric(name, GAUGE, sentence, _lines(sensors, value), LABELS, attribute)


def _throttle_time_of(kind: str, sensors: Callable[[ClientQuotas], Sensors[Any]]) -> Metric:
    sentence = "Average throttle time of a user or client id in milliseconds, while it is throttled."
    return _kafka(kind, "throttle-time", sentence, sensors, _throttle_time)


KAFKAS_OF_QUOTAS: Final[tuple[Metric, ...]] = (
    _kafka("Produce", "byte-rate", "Bytes of Produce requests per second.", lambda q: q.produce, _rate),
    _throttle_time_of("Produce", lambda q: q.produce),
    _kafka("Fetch", "byte-rate", "Bytes of fetched records per second.", lambda q: q.fetch, _rate),
    _throttle_time_of("Fetch", lambda q: q.fetch),
    _kafka("Request", "request-time", "Processing time of requests, in percent of the event loop.",
           lambda q: q.request, _rate),
    _throttle_time_of("Request", lambda q: q.request),
    _kafka("ControllerMutation", "mutation-rate", "Partitions created and deleted per second.",
           lambda q: q.mutation, _rate),
    _kafka("ControllerMutation", "tokens", "Partitions that may be created and deleted now.",
           lambda q: q.mutation, _tokens),
    _throttle_time_of("ControllerMutation", lambda q: q.mutation),
)  # fmt: skip
