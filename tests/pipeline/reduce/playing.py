"""The real coordinator, with members who come, go and are silent: its log, and what it said to the audit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from random import Random
from typing import Any

from tests.pipeline.reduce.reading import Rows, named

from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.sweeps.simulated_log import audit_rows
from konvene.runtime.ports import ExplainedRebalance
from konvene.sim.world.faults import Options
from konvene.sim.world.world import MembershipListener, World

CALM = ("compaction", "append.fails", "too.large", "sync.fails")
"""What would lose records, or what was said of them."""
NO_FAULTS = ("failover", "deposed", "clock")


class Ear(MembershipListener):
    def __init__(self) -> None:
        self.told: list[ExplainedRebalance] = []

    def explained(self, explained: ExplainedRebalance) -> None:
        self.told.append(explained)


class Played:
    """One run of the simulator's first level."""

    def __init__(self, kind: str, seed: int, steps: int = 1_500) -> None:
        classic = kind in ("classic", "static")
        options = Options.drawn(
            Random(f"options {seed}"), consumers=not classic, streams=kind.startswith("streams"),
            streams_migration=kind == "streams-migration",
        )  # fmt: skip
        off = [f"fault.{name}" for name in options.faults if any(word in name for word in NO_FAULTS)]
        options = options.with_set([(name, "0") for name in (*CALM, *off)])
        ear = Ear()
        world = World(Random(f"world {seed}"), options, kinds=(kind,), measure=ear)
        world.begin()
        world.chaos(steps)
        self.batches = world.log.batches
        self.first = [0, *accumulate(batch.size for batch in self.batches)]
        self.told = ear.told
        self.audit: list[dict[str, Any]] = audit_rows("c", ear.told, self.first)

    def rows(self, *, audit: bool, names: Mapping[str, str] | None = None) -> Rows:
        reducer = PartitionReducer("c", 0, self.audit if audit else (), names)
        for batch, base in zip(self.batches, self.first, strict=False):
            reducer.batch(base, base + batch.size - 1, len(batch.pairs))
            for offset, (key, value) in enumerate(batch.pairs, base):
                reducer.take(offset, batch.timestamp_ms, key, value)
        reducer.finish()
        self.left = repr(reducer._audit._rows)
        return named(reducer.drain())
