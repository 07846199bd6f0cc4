"""Where a query begins and ends in each partition, as Spark's Kafka options state it.

`startingOffsets` and `endingOffsets` are `earliest`, `latest` or JSON with offsets, such as
`{"orders":{"0":23,"1":-2}}`, where -2 means earliest and -1 latest. `startingOffsetsByTimestamp` has
timestamps in their place, and `startingTimestamp` one timestamp for all partitions. Of several options a
timestamp for all prevails, then timestamps, then offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from konvene.client.consumer.fetch import EARLIEST, LATEST
from konvene.client.net.cluster import TopicPartition

__all__ = [
    "EARLIEST", "LATEST", "Offsets", "Positions", "as_json", "assigned_of", "offsets_of", "positions_of",
]  # fmt: skip

EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
Offsets = Mapping[TopicPartition, int]


class Positions(NamedTuple):
    """Positions in partitions: one for all, or one for each."""

    everywhere: int = LATEST
    """`EARLIEST` or `LATEST`; what the other fields give prevails."""
    offsets: Offsets | None = None
    timestamps: Offsets | None = None
    """Timestamps in ms: the position is the first record at or after it."""
    timestamp_ms: int | None = None
    """The timestamp for all partitions."""

    def times(self, partitions: Iterable[TopicPartition], option: str) -> dict[TopicPartition, int] | None:
        """Return a timestamp for each partition; None if these positions are no timestamps.

        Raises ValueError if some of the partitions have none."""
        if self.timestamp_ms is not None:
            return dict.fromkeys(partitions, self.timestamp_ms)
        if self.timestamps is None:
            return None
        return {tp: self.timestamps[tp] for tp in _all_of(self.timestamps, partitions, option)}

    def offsets_for(self, partitions: Iterable[TopicPartition], option: str) -> dict[TopicPartition, int]:
        """Return an offset for each partition, which may be `EARLIEST` or `LATEST`.

        Raises ValueError if offsets are given and some of the partitions have none, or others have one."""
        if self.offsets is None:
            return dict.fromkeys(partitions, self.everywhere)
        return {tp: self.offsets[tp] for tp in _all_of(self.offsets, partitions, option)}


def _all_of(given: Offsets, partitions: Iterable[TopicPartition], option: str) -> list[TopicPartition]:
    wanted = sorted(partitions)
    if set(wanted) != set(given):
        raise ValueError(
            f"{option} must name all partitions (-1 for latest, -2 for earliest). It names "
            f"{_names(given)}; the query reads {_names(wanted)}"
        )
    return wanted


def _names(partitions: Iterable[TopicPartition]) -> str:
    named = sorted(map(str, partitions))
    more = f" and {len(named) - 20} more" if len(named) > 20 else ""
    return (", ".join(named[:20]) or "none") + more


def positions_of(options: Mapping[str, str], side: str, default: int) -> Positions:
    """Return the positions that options state; `side` is `starting` or `ending`.

    Raises ValueError for what is not one."""
    at = options.get(f"{side}Timestamp")
    if at is not None:
        return Positions(default, timestamp_ms=_number(f"{side}Timestamp", at))
    times = options.get(f"{side}OffsetsByTimestamp")
    if times is not None:
        return Positions(default, timestamps=offsets_of(f"{side}OffsetsByTimestamp", times))
    text = options.get(f"{side}Offsets")
    if text is None:
        return Positions(default)
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return Positions(named)
    offsets = offsets_of(f"{side}Offsets", text)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise ValueError(f"{side}Offsets has an offset below -2, which means earliest; -1 means latest")
    return Positions(default, offsets=offsets)


def _number(option: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{option} is a timestamp in milliseconds, not {text!r}")
    return int(text)


def offsets_of(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the number for each partition in JSON such as `{"orders":{"0":23}}`. Raises ValueError."""
    try:
        return from_json(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{option} is JSON such as {EXAMPLE}, not {text!r}") from None


def assigned_of(text: str) -> list[TopicPartition]:
    """Return the partitions in the JSON of the option `assign`. Raises ValueError."""
    try:
        found = {TopicPartition(t, _int(p)) for t, numbers in json.loads(text).items() for p in numbers}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'assign is JSON such as {{"topicA":[0,1],"topicB":[2,4]}}, not {text!r}') from None
    if not found:
        raise ValueError("assign names no partition")
    return sorted(found)


def from_json(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets of a parsed `{"orders":{"0":23}}`. Raises ValueError, TypeError, AttributeError."""
    return {
        TopicPartition(topic, int(partition)): _int(offset)
        for topic, offsets in value.items()
        for partition, offset in offsets.items()
    }


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as Spark's connector writes them into a checkpoint: by topic, then by partition."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return found
