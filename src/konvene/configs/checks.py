"""Conditions that several broker settings have to meet together, as Kafka checks them when a broker starts.

`ORDERS` lists pairs of settings of which one must not exceed the other. `NEEDS` lists the other conditions,
each as an error message and a predicate over all values.

Three conditions are konvene's own: the range of classic session timeouts must not be empty and the codecs of
internal topics must exist, whereas Kafka starts and fails later; and the assignor of share groups must be a
built-in one, whereas Kafka loads any class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from konvene.configs.setting import Settings

__all__ = ["CLEANERS", "NEEDS", "ORDERS", "Need", "Order", "conflicts", "wrong_cleaners"]

# A condition between values and the error message if it does not hold.
Need: TypeAlias = tuple[str, Callable[[Settings], bool]]


class Order(NamedTuple):
    """The condition that the setting `small` is at most the setting `large`, or less if `strictly`."""

    small: str
    large: str
    strictly: bool = False


def _between(prefix: str, setting: str) -> tuple[Order, ...]:
    """Return the conditions min <= value <= max of a setting such as `<prefix>.heartbeat.interval.ms`."""
    low, value, high = f"{prefix}.min.{setting}", f"{prefix}.{setting}", f"{prefix}.max.{setting}"
    return Order(low, high), Order(low, value), Order(value, high)


ORDERS: Final[tuple[Order, ...]] = (
    Order("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *(
        order
        for kind in ("consumer", "share", "streams")
        for order in (
            *_between(f"group.{kind}", "heartbeat.interval.ms"),
            *_between(f"group.{kind}", "session.timeout.ms"),
            Order(f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", strictly=True),
            *_between(f"group.{kind}", "assignment.interval.ms"),
        )
    ),
    *_between("group.share", "delivery.count.limit"),
    *_between("group.share", "partition.max.record.locks"),
    *_between("group.share", "record.lock.duration.ms"),
    Order("group.share.max.size", "group.share.max.share.sessions"),
    Order("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    Order("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
    Order("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    Order("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    Order("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    Order("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
)

CODECS: Final = range(5)
MIB: Final = 1_048_576
RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

SHARE_ASSIGNORS: Final = frozenset(
    {
        "simple", "spread", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor",
        "org.apache.kafka.coordinator.group.share.SimpleAssignor",
    }
)  # fmt: skip
"""konvene's own names, and the class names of `simple` in Kafka and in KIP-932."""

NEEDS: Final[tuple[Need, ...]] = (
    (
        "node.id and broker.id must be set to the same value",
        lambda values: values["broker.id"] in (-1, values["node.id"]),
    ),
    (
        "group.coordinator.rebalance.protocols must contain classic",
        lambda values: "classic" in values["group.coordinator.rebalance.protocols"],
    ),
    (
        "group.share.assignors must contain exactly one assignor",
        lambda values: len(values["group.share.assignors"]) == 1,
    ),
    (
        "group.share.assignors must be simple or spread",
        lambda values: SHARE_ASSIGNORS.issuperset(values["group.share.assignors"]),
    ),
    (
        "log.retention must be unlimited (-1) or at least 1 ms",
        lambda values: _first_set(values, *RETENTION) != 0,
    ),
    (
        "log.roll must be at least 1 ms",
        lambda values: _first_set(values, "log.roll.ms", "log.roll.hours") >= 1,
    ),
    (
        "log.roll.jitter must be at least 0 ms",
        lambda values: _first_set(values, "log.roll.jitter.ms", "log.roll.jitter.hours") >= 0,
    ),
    (
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        lambda values: (
            values["log.cleaner.dedupe.buffer.size"] // max(values["log.cleaner.threads"], 1) > MIB
        ),
    ),
    (
        "queued.max.request.bytes must be at least socket.request.max.bytes, or not above 0",
        lambda values: (
            values["queued.max.request.bytes"] <= 0
            or values["queued.max.request.bytes"] >= values["socket.request.max.bytes"]
        ),
    ),
    (
        "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides is set",
        lambda values: bool(values["max.connections.per.ip"] or values["max.connections.per.ip.overrides"]),
    ),
    (
        "connection.failed.authentication.delay.ms must be less than connections.max.idle.ms",
        lambda values: (
            values["connections.max.idle.ms"] < 0
            or values["connection.failed.authentication.delay.ms"] < values["connections.max.idle.ms"]
        ),
    ),
    *(
        (
            f"{name} must be 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd",
            lambda values, name=name: values[name] in CODECS,
        )
        for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec")
    ),
)


CLEANERS: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "message.max.bytes",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
)
"""Configurations that Kafka's cleaner reloads while it runs; changing one revalidates all of them."""


def wrong_cleaners(before: Settings, after: Settings) -> str | None:
    """Return Kafka's error message if a running log cleaner cannot adopt the new settings, else None."""
    if not before["log.cleaner.enable"] or all(before[name] == after[name] for name in CLEANERS):
        return None
    now, wanted = before["log.cleaner.threads"], after["log.cleaner.threads"]
    if wanted < 1:
        return "Log cleaner threads should be at least 1"
    if wanted < now // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {now}"
    if wanted > now * 2:
        return f"Log cleaner threads cannot be increased to more than double the current value {now}"
    return None


def conflicts(values: Settings) -> Iterator[str]:
    """Yield an error message for each condition that these values of all broker settings violate."""
    for small, large, strictly in ORDERS:
        low, high = values[small], values[large]
        if low > high or (strictly and low == high):
            relation = "less than" if strictly else "less than or equal to"
            yield f"{small} ({low}) must be {relation} {large} ({high})"
    for words, holds in NEEDS:
        if not holds(values):
            yield words


def _first_set(values: Settings, *names: str) -> int:
    """Return the value of the first of these settings that is set; the last one always is."""
    return next(int(values[name]) for name in names if values[name] is not None)
