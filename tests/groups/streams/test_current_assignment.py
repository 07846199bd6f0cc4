"""The next step of a streams group's member is the one that Kafka takes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.streams.current_assignment import (
    CurrentAssignment,
    Held,
    MemberState,
    Role,
    Target,
    next_assignment,
)
from konvene.shard.errors import GroupError

CASES = Path(__file__).parents[2] / "vectors" / "reconcile" / "streams.jsonl.gz"
NAMES = "active", "standby", "warmup"
PROCESSES = {
    Role.ACTIVE: "currentActiveProcess",
    Role.STANDBY: "currentStandbyProcesses",
    Role.WARMUP: "currentWarmupProcesses",
}


def cases() -> list[dict[str, Any]]:
    """What Kafka 4.4.0 answered, a line each."""
    return [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]


def tasks(told: dict[str, Any] | None) -> MemberAssignment | None:
    if told is None:
        return None
    return MemberAssignment(*({s: tuple(sorted(map(int, p))) for s, p in told[r].items()} for r in NAMES))


def held(told: dict[str, Any]) -> Held:
    plain = tasks(told)
    assert plain is not None
    active = {s: {int(p): epoch for p, epoch in epochs.items()} for s, epochs in told["active"].items()}
    return Held(active, plain.standby, plain.warmup)


def state(told: dict[str, Any]) -> CurrentAssignment:
    return CurrentAssignment(
        MemberState[told["memberState"]],
        told["memberEpoch"],
        told["previousMemberEpoch"],
        held(told["assigned"]),
        held(told["pendingRevocation"]),
    )


def played(case: dict[str, Any]) -> tuple[CurrentAssignment, CurrentAssignment]:
    """The member before and after."""

    def processes(role: Role, subtopology: str, partition: int) -> frozenset[str]:
        there = case[PROCESSES[role]].get(subtopology, {}).get(str(partition), [])
        return frozenset([there] if isinstance(there, str) else there)

    before, wanted = state(case), tasks(case["target"])
    assert wanted is not None
    target = Target(case["targetEpoch"], wanted, case["processId"], processes)
    return before, next_assignment(before, target, tasks(case["owned"]))


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["case"]))
def test_the_next_step_is_kafkas(case: dict[str, Any]) -> None:
    """State, epochs, what is assigned and what has to be given up, with the epoch of each active task."""
    if "error" in case:
        with pytest.raises(GroupError) as refused:
            played(case)
        assert refused.value.error is Errors[case["error"]]
        return
    before, after = played(case)
    assert after == state(case["output"])
    if case["output"]["unchanged"]:
        assert after == before
