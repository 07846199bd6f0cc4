"""Run the real coordinator in the simulator, with members that join, leave and fall silent; keep its log
and audit."""

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

LOSSLESS = ("compaction", "append.fails", "too.large", "sync.fails")
"""Faults that lose records of the log or of the audit."""
NO_FAULTS = ("failover", "deposed", "clock")


class RebalanceRecorder(MembershipListener):
    def __init__(self) -> None:
        self.rebalances: list[ExplainedRebalance] = []

    def explained(self, explained: ExplainedRebalance) -> None:
        self.rebalances.append(explained)


class Played:
    """One run of the simulator's coordinator: its log, and the rebalances that it explained to the audit."""

    def __init__(self, kind: str, seed: int, steps: int = 1_500) -> None:
        classic = kind in ("classic", "static")
        options = Options.drawn(
            Random(f"options {seed}"), consumers=not classic, streams=kind.startswith("streams"),
            streams_migration=kind == "streams-migration",
        )  # fmt: skip
        off = [f"fault.{name}" for name in options.faults if any(word in name for word in NO_FAULTS)]
        options = options.with_set([(name, "0") for name in (*LOSSLESS, *off)])
        recorder = RebalanceRecorder()
        world = World(Random(f"world {seed}"), options, kinds=(kind,), measure=recorder)
        world.begin()
        world.chaos(steps)
        self.batches = world.log.batches
        self.first = [0, *accumulate(batch.size for batch in self.batches)]
        self.rebalances = recorder.rebalances
        self.audit: list[dict[str, Any]] = audit_rows("c", recorder.rebalances, self.first)

    def rows(self, *, audit: bool, names: Mapping[str, str] | None = None) -> Rows:
        reducer = PartitionReducer("c", 0, self.audit if audit else (), names)
        for batch, base in zip(self.batches, self.first, strict=False):
            reducer.batch(base, base + batch.size - 1, len(batch.pairs))
            for offset, (key, value) in enumerate(batch.pairs, base):
                reducer.take(offset, batch.timestamp_ms, key, value)
        reducer.finish()
        self.left = repr(reducer._audit._rows)
        return named(reducer.drain())
