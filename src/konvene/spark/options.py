"""Options of `format("konvene")`: the names and defaults of Spark's Kafka connector where they mean the same.

An option that this source does not have is refused, with the nearest name or the reason: a misspelt one would
otherwise be ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple

from konvene.client.consumer.fetch import READ_COMMITTED, READ_UNCOMMITTED
from konvene.client.net.cluster import TopicPartition
from konvene.pipeline.sources.client_config import CONFIG_OPTION, PREFIX, ClientConfig, client_config
from konvene.spark.positions import EARLIEST, LATEST, Positions, assigned_of, positions_of

__all__ = ["OPTIONS", "SourceOptions", "Subscription", "has_headers", "source_options"]

SERVERS = f"{PREFIX}bootstrap.servers"
ISOLATION = f"{PREFIX}isolation.level"
FETCH_BYTES = f"{PREFIX}max.partition.fetch.bytes"
OPTIONS = {
    SERVERS: "Brokers, such as `localhost:9092`; required.",
    "subscribe": "Topics, separated by commas. One of `subscribe`, `subscribePattern` and `assign` is "
    "required.",
    "subscribePattern": "A regular expression of Python that matches whole topic names; a stream finds new "
    "topics.",
    "assign": 'Partitions, such as `{"orders":[0,1]}`.',
    "startingOffsets": "`earliest` [batch], `latest` [stream; not in batch], or JSON such as "
    '`{"orders":{"0":23,"1":-2}}` with -2 for earliest and -1 for latest. A stream uses it at its first '
    "start; partitions that it finds later are read from their start.",
    "startingOffsetsByTimestamp": "JSON as above with timestamps in ms: the first record at or after it.",
    "startingTimestamp": "One timestamp in ms for all partitions.",
    "startingOffsetsByTimestampStrategy": "What if no record is that new: `error` [error] or `latest`.",
    "endingOffsets": "For batch: `latest` [latest], or JSON with -1 for latest.",
    "endingOffsetsByTimestamp": "For batch: JSON with timestamps in ms; a partition without a record that "
    "new is read to its end.",
    "endingTimestamp": "For batch: one timestamp in ms for all partitions.",
    "maxOffsetsPerTrigger": "For streams: about how many offsets a micro-batch has.",
    "minOffsetsPerTrigger": "For streams: a micro-batch waits for so many offsets, at most "
    "`maxTriggerDelay`.",
    "maxTriggerDelay": "For streams: such as `15m` [15m], `30s` or `500ms`.",
    "minPartitions": "About how many tasks at least; partitions with many records are divided [one task per "
    "partition].",
    "maxRecordsPerPartition": "Offsets of a task at most.",
    "failOnDataLoss": "Whether a query fails if records that it should read are gone [true].",
    "includeHeaders": "Whether there is a column `headers` [false].",
    ISOLATION: "`read_uncommitted` [read_uncommitted] or `read_committed`.",
    FETCH_BYTES: "Bytes that a task fetches at a time [4194304].",
    CONFIG_OPTION: "A properties file with client settings, on each machine or added with `addFile` "
    "[`KONVENE_COMMAND_CONFIG`]; secrets are accepted in it only.",
    "kafka.*": "Client settings that are no secrets, such as `kafka.security.protocol`.",
}
"""The options and what they mean, with their defaults in brackets."""

_OF_BATCH = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NOT_SENT = "positions are kept in the query's checkpoint, and no group is joined"
REFUSED = {
    "kafka.group.id": _NOT_SENT,
    "groupIdPrefix": _NOT_SENT,
    "kafka.auto.offset.reset": "startingOffsets states where to begin",
    "kafka.enable.auto.commit": "this source commits no offsets",
    "kafka.key.deserializer": "keys are bytes; convert the column",
    "kafka.value.deserializer": "values are bytes; convert the column",
    "kafka.interceptor.classes": "there are no Java classes here",
    "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms limits a request",
    "fetchOffset.numRetries": "requests are repeated until kafka.default.api.timeout.ms",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms is the time between retries",
    "path": "load() takes no path: topics are named by subscribe",
}
"""Options of Spark's connector that this source does not have, with the reason."""
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_FETCH_BYTES = 4 * 1024 * 1024


class Subscription(NamedTuple):
    """Which partitions are read: those of named topics, of topics that match, or the assigned ones."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: tuple[TopicPartition, ...] = ()


class SourceOptions(NamedTuple):
    """The options of a query."""

    servers: str
    client: ClientConfig
    subscription: Subscription
    starting: Positions
    ending: Positions
    or_latest: bool = False
    """Whether a partition without a record at a starting timestamp is read from its end."""
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records: int | None = None
    fails_on_loss: bool = True
    isolation_level: int = READ_UNCOMMITTED
    fetch_bytes: int = _FETCH_BYTES


def has_headers(options: Mapping[str, str]) -> bool:
    """Return whether the source has the column `headers`. Raises ValueError for unknown options."""
    return _choice(_named(options), "includeHeaders", ("false", "true")) == "true"


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Return the options of a batch or streaming query, from their text. Raises ValueError."""
    given = _named(options)
    unfit = [name for name in (_OF_BATCH if streaming else _OF_STREAMS) if name in given]
    if unfit:
        raise ValueError(f"{unfit[0]} is an option of {'batch' if streaming else 'streaming'} queries")
    if not given.get(SERVERS):
        raise ValueError(f"{SERVERS} is required, such as localhost:9092")
    starting = positions_of(given, "starting", LATEST if streaming else EARLIEST)
    ending = positions_of(given, "ending", LATEST)
    if not streaming:
        _check_bounds(starting, ending)
    fewest, most = _count(given, "minOffsetsPerTrigger"), _count(given, "maxOffsetsPerTrigger")
    if fewest is not None and most is not None and fewest > most:
        raise ValueError(f"minOffsetsPerTrigger ({fewest}) is more than maxOffsetsPerTrigger ({most})")
    own = {name: value for name, value in given.items() if name not in (ISOLATION, FETCH_BYTES)}
    return SourceOptions(
        servers=given[SERVERS],
        client=client_config(own, source="konvene"),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        or_latest=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        max_offsets=most,
        min_offsets=fewest,
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=_count(given, "minPartitions"),
        max_records=_count(given, "maxRecordsPerPartition"),
        fails_on_loss=_choice(given, "failOnDataLoss", ("true", "false")) == "true",
        isolation_level=READ_COMMITTED
        if _choice(given, ISOLATION, ("read_uncommitted", "read_committed")) == "read_committed"
        else READ_UNCOMMITTED,
        fetch_bytes=_count(given, FETCH_BYTES) or _FETCH_BYTES,
    )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their own spelling; Spark ignores case. Raises ValueError for others."""
    names = {name.lower(): name for name in OPTIONS}
    refused = {name.lower(): (name, why) for name, why in REFUSED.items()}
    given = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in refused:
            known, why = refused[lower]
            raise ValueError(f"konvene does not have the option {known}: {why}")
        if lower not in names and not lower.startswith(PREFIX):
            near = difflib.get_close_matches(lower, names, 1)
            hint = f"did you mean {names[near[0]]}?" if near else f"it has {', '.join(OPTIONS)}"
            raise ValueError(f"konvene has no option {name}: {hint}")
        given[names.get(lower, name)] = value
    return given


def _subscription(given: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        many = f"it is given {' and '.join(ways)}" if ways else "none is given"
        raise ValueError(f"konvene needs one of subscribe, subscribePattern and assign: {many}")
    text = given[ways[0]]
    if ways == ["assign"]:
        return Subscription(assigned=tuple(assigned_of(text)))
    if ways == ["subscribePattern"]:
        try:
            return Subscription(pattern=re.compile(text))
        except re.error as error:
            raise ValueError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    topics = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
    if not topics:
        raise ValueError("subscribe names no topic")
    return Subscription(topics)


def _check_bounds(starting: Positions, ending: Positions) -> None:
    """Raise ValueError for a batch that begins at the end or ends at the start."""
    begins = {starting.everywhere, *(starting.offsets or {}).values()}
    if LATEST in begins and starting.timestamps is None and starting.timestamp_ms is None:
        raise ValueError("startingOffsets of a batch cannot be latest (-1): it would read nothing")
    if EARLIEST in {ending.everywhere, *(ending.offsets or {}).values()}:
        raise ValueError("endingOffsets cannot be earliest (-2): the batch would read nothing")


def _choice(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """Return the value of an option; the first one by default."""
    value = given.get(name, values[0]).strip().lower()
    if value not in values:
        raise ValueError(f"{name} is {' or '.join(values)}, not {given[name]!r}")
    return value


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise ValueError(f"{name} is a number above 0, not {text!r}")
    return int(text)


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default)
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(f"{name} is a duration such as 15m, 30s or 500ms, not {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]
