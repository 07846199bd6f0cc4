"""A group shard that reports to the meter: durations of decisions and loads, and counts of offsets and
moved partitions.

Its decisions are those of `GroupShard`, which brokers without a meter use.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from konvene.broker.metrics.group_types import moved
from konvene.codec.schema import Struct
from konvene.groups.shard import GroupShard
from konvene.messages.offset_commit import OffsetCommitRequest
from konvene.messages.offset_delete import OffsetDeleteRequest
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.records.commits import OffsetCommitted, OffsetsCommitted
from konvene.shard.contract import Context, Outcome

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter

RETENTION: Final = "retention"
"""Timer that expires offsets."""

OFFSETS: Final[dict[object, str]] = {
    OffsetCommitRequest: "commits",
    TxnOffsetCommitRequest: "commits",
    OffsetDeleteRequest: "deletions",
    RETENTION: "expired",
}
"""Kafka's sensor for the offsets that a request or timer changes. As in Kafka, offsets that are deleted
with their topic or group are not counted."""


class MeteredGroupShard(GroupShard):
    """A `GroupShard` that reports durations and counts to the meter."""

    __slots__ = ("_began_s", "_meter")

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter
        self._began_s = perf_counter()

    def handle(self, request: Struct, context: Context) -> Outcome:
        began_s = perf_counter()
        try:
            outcome = super().handle(request, context)
        finally:
            kind = type(request)
            self._meter.decided(kind.__name__.removesuffix("Request"), perf_counter() - began_s)
        if outcome.records:
            self._count(kind, outcome)
        return outcome

    def expire(self, key: Any, context: Context) -> Outcome:
        began_s = perf_counter()
        outcome = super().expire(key, context)
        self._meter.decided(f"{key[0]} timer", perf_counter() - began_s)
        if outcome.records:
            self._count(key[0], outcome)
        return outcome

    def load(self, context: Context) -> Outcome:
        """Load the shard, as `GroupShard` does when the log is replayed, and record its load time.

        The load time is the time since the shard was created."""
        self._meter.loaded(perf_counter() - self._began_s)
        return super().load(context)

    def _count(self, kind: object, outcome: Outcome) -> None:
        meter, sensor = self._meter, OFFSETS.get(kind)
        if sensor is not None:
            meter.offsets(sensor, sum(map(_offsets, outcome.records)))
        else:
            for record in outcome.records:
                gained = moved(self.groups, record)
                if gained is not None and gained.units:
                    meter.moved(gained)


def _offsets(record: object) -> int:
    """Return how many committed offsets a record holds: 0 for a record of another type."""
    if isinstance(record, OffsetsCommitted):
        return len(record.committed)
    return 1 if isinstance(record, OffsetCommitted) else 0
