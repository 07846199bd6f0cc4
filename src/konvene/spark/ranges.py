"""Ranges of offsets: how many of them a micro-batch takes, and how they are divided among tasks.

The rules are those of Spark's Kafka connector: a limit is divided among partitions in proportion to what they
have, and a range is cut into equal parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from konvene.client.net.cluster import TopicPartition

__all__ = ["OffsetRange", "divided", "is_too_early", "limited", "ranges"]


class OffsetRange(NamedTuple):
    """The offsets `[start, end)` of a partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} of {self.partition}"


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the ranges between two sets of offsets that are not empty; `start` has all partitions of
    `end`."""
    every = (OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end))
    return [each for each in every if each.size]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Return the offsets to read up to if a micro-batch has about `most` records.

    Each partition gets a share in proportion to its size, at least one record."""
    total = sum(each.size for each in ranges(start, end))
    if total <= most:
        return dict(end)
    reached = {}
    for tp, until in end.items():
        size = max(until - start[tp], 0)
        share = most * size / total
        reached[tp] = min(start[tp] + (math.ceil(share) if share < 1 else math.floor(share)), until)
    return {tp: max(offset, start[tp]) for tp, offset in reached.items()}


def is_too_early(available: int, least: int, waited_ms: int, most_ms: int) -> bool:
    """Return whether a micro-batch waits for more records: it has fewer than `least`, and the last one was
    less than `most_ms` ago."""
    return available < least and waited_ms < most_ms


def divided(
    found: Iterable[OffsetRange], least_parts: int | None = None, most_records: int | None = None
) -> list[OffsetRange]:
    """Return the ranges in parts: at most `most_records` offsets each, and about `least_parts` in total.

    More parts than ranges are given to the larger ones, in proportion to their sizes."""
    whole = [each for each in found if each.size]
    parts = [math.ceil(each.size / most_records) if most_records else 1 for each in whole]
    if least_parts and sum(parts) < least_parts:
        total = sum(each.size for each in whole)
        wanted = (round(each.size / total * least_parts) for each in whole)
        parts = [max(few, many) for few, many in zip(parts, wanted, strict=True)]
    return [
        part for each, count in zip(whole, parts, strict=True) for part in _cut(each, min(count, each.size))
    ]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * n // count for n in range(count + 1)]
    return [OffsetRange(whole.partition, *pair) for pair in pairwise(bounds)]
