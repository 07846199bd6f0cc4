"""A share coordinator's shard that reports its writes and load time to the meter.

Its decisions are those of `ShareStateShard`, which brokers without a meter use.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from konvene.shard.contract import Context, Outcome
from konvene.share_state.requests import Read, Write
from konvene.share_state.shard import ShareStateShard

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter


class MeteredShareStateShard(ShareStateShard):
    """A `ShareStateShard` that reports its writes and load time to the meter."""

    __slots__ = ("_began_s", "_meter")

    def __init__(self, meter: Meter, updates_per_snapshot: int) -> None:
        super().__init__(updates_per_snapshot)
        self._meter = meter
        self._began_s = perf_counter()

    def handle(self, request: Any, context: Context) -> Outcome:
        outcome = super().handle(request, context)
        kind = type(request)
        # As in Kafka, a write counts even if it is rejected, and a read if it stores a leader epoch.
        if kind is Write or (kind is Read and outcome.records):
            self._meter.share_writes.add(1, self._meter.now_s)
        return outcome

    def load(self, context: Context) -> Outcome:
        """Load the shard, as `ShareStateShard` does when the log is replayed, and record its load time.

        The load time is the time since the shard was created."""
        self._meter.share_load_s.add(perf_counter() - self._began_s)
        return super().load(context)
