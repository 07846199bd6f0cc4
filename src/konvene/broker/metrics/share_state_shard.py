"""A share coordinator's shard that tells the meter what is written, and how long it took to load.

It decides what the plain shard decides. Where the broker has no meter, the plain one serves.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from konvene.shard.contract import Context, Outcome
from konvene.share_state.requests import Read, Write
from konvene.share_state.shard import ShareStateShard

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter


class CountedShareStates(ShareStateShard):
    """The share partitions of one partition of the log, counted."""

    __slots__ = ("_began_s", "_meter")

    def __init__(self, meter: Meter, updates_per_snapshot: int) -> None:
        super().__init__(updates_per_snapshot)
        self._meter = meter
        self._began_s = perf_counter()

    def handle(self, request: Any, context: Context) -> Outcome:
        outcome = super().handle(request, context)
        kind = type(request)
        # As Kafka: a write counts whether it is refused or not, a read where a leader is written down.
        if kind is Write or (kind is Read and outcome.records):
            self._meter.share_writes.add(1, self._meter.now_s)
        return outcome

    def load(self, context: Context) -> Outcome:
        """The log was replayed into this shard since it was made."""
        self._meter.share_load_s.add(perf_counter() - self._began_s)
        return super().load(context)
