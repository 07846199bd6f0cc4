"""Accuracy of causes with polled descriptions: random group histories with known causes, which are polled.

As `bench.truth`, without the audit: from Kafka's records alone, with descriptions as Apache Kafka returns
them, and with konvene's, which have the ages of heartbeats. Run `python -m bench.observed --seeds 20`.
"""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bench.truth import KINDS, SETS, Score, life, score, truth, without_lost
from konvene.groups.classic.decision import session_key
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.group_type import group_type_of
from konvene.pipeline.answers.evidence import Generation, GenerationMember
from konvene.pipeline.answers.observations.evidence import Observations
from konvene.pipeline.answers.observations.observation import NOT_KNOWN, Observation, ObservedMember
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import Record
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.journal import Batch
from konvene.sim.runs.run import Run
from konvene.sim.world.event import Event, Invariant

CLUSTER = "sim"


class Polls(Invariant):
    """Describes all groups of the coordinator at intervals, as a follower does; never fails.

    With `ages` members have the ages of their heartbeats."""

    def __init__(self, every_ms: int, *, ages: bool) -> None:
        self.observations = Observations([])
        self.count = 0
        self._every_ms, self._ages = every_ms, ages
        self._due_ms = self._loads = 0

    def after(self, event: Event) -> None:
        runtime = event.runtime
        now_ms = runtime.event_queue.now_ms
        self._loads += event.kind == "loaded"
        # A response waits until everything before it is durable: then the state is that of the log.
        if now_ms < self._due_ms or runtime.log.durable < len(runtime.log.batches):
            return
        self._due_ms = now_ms + self._every_ms
        end = sum(batch.size for batch in runtime.log.batches)
        for name, group in runtime.core.groups.items():
            kind, is_classic = group_type_of(group).name, isinstance(group, ClassicGroup)
            members = {key: self._member(runtime, name, key, m, kind) for key, m in group.members.items()}
            state = str(group.state) if is_classic else ""
            self.count += 1
            self.observations.add(
                Observation(CLUSTER, name, kind, state, 0, now_ms, now_ms, 0, end, end, self._loads, members)
            )

    def _member(
        self, runtime: GroupRuntime, group_id: str, key: str, member: Any, kind: str
    ) -> ObservedMember:
        is_native = kind != "classic" and member.classic is None
        timeout_ms = NOT_KNOWN
        if is_native:
            timeout_ms = runtime.group_configs.of(group_id)[f"{kind}.session.timeout.ms"]
        actual_ms = timeout_ms
        if not is_native:
            actual_ms = (member if kind == "classic" else member.classic).session_timeout_ms
        left_ms = runtime.due_ms(session_key(group_id, key))
        has_age = self._ages and left_ms is not None and left_ms <= actual_ms
        age_ms = actual_ms - max(left_ms or 0, 0) if has_age else NOT_KNOWN
        epoch = NOT_KNOWN if kind == "classic" else member.current.epoch
        return ObservedMember(epoch, timeout_ms, age_ms, member.instance_id)


class LoggedGenerations:
    """The generations of classic groups that a simulated log has."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._of: dict[str, list[Generation]] = defaultdict(list)
        offset = 0
        for batch in batches:
            for at, record in enumerate(batch.records, offset):
                if not isinstance(record, Record) or not isinstance(record.key, GroupMetadataKey):
                    continue
                if isinstance(record.value, GroupMetadataValue):
                    self._of[record.key.group].append(_generation(record.value, at))
            offset += batch.size

    def previous_generation(self, rebalance: Rebalance) -> Generation | None:
        known = [g for g in self._of[rebalance.group_id] if g.offset < rebalance.base_offset]
        return known[-1] if known and known[-1].number == rebalance.from_epoch else None


def _generation(value: GroupMetadataValue, offset: int) -> Generation:
    members = {
        m.member_id: GenerationMember(m.session_timeout, m.rebalance_timeout, m.group_instance_id)
        for m in value.members
    }
    return Generation(value.generation, offset, members)


def measure(run: Run, every_ms: int, *, ages: bool) -> tuple[Score, Score]:
    """Score one history without its audit: from the records alone, and with descriptions."""
    polls = Polls(every_ms, ages=ages)
    world, listens, audits = life(run, polls)
    known = without_lost(truth(world, listens, audits))
    table = tables_of(CLUSTER, world.log.batches, ()).get("rebalance")
    rows = table.to_pylist() if table is not None else []
    generations = LoggedGenerations(world.log.batches)
    settled = [polls.observations.settled(Rebalance.from_row(row), generations) for row in rows]
    observed = [
        row | {"causes": [cause._asdict() for cause in each.causes]}
        for row, each in zip(rows, settled, strict=True)
    ]
    return score(known, rows), score(known, observed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.observed", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--interval", type=int, default=1_000, help="time between two polls in ms")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # The simulated disks fail on purpose.
    print(
        "groups           rebalances  descriptions  one cause: records  described  one, wrong: records"
        "  described"
    )
    for kinds in KINDS:
        for ages in (False, True):
            alone, described = Score(), Score()
            for seed in range(arguments.seeds):
                scores = measure(Run(seed, kinds, arguments.steps, SETS), arguments.interval, ages=ages)
                alone += scores[0]
                described += scores[1]
            total = max(alone.named.total(), 1)
            print(
                f"{'+'.join(kinds):15}  {alone.rebalances:10,}  {'konvene' if ages else 'Kafka':>12}  "
                f"{alone.named[1] / total:18.1%}  {described.named[1] / total:9.1%}  "
                f"{alone.alone_wrong.total():19}  {described.alone_wrong.total():9}"
            )


if __name__ == "__main__":
    main()
