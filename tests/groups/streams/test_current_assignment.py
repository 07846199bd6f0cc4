"""The next assignment of a streams group's member is the one that Kafka computes."""

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
    MemberState,
    OwnedTasks,
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
    """Return the recorded cases of Kafka 4.4.0, one per line."""
    return [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]


def tasks(by_role: dict[str, Any] | None) -> MemberAssignment | None:
    if by_role is None:
        return None
    return MemberAssignment(*({s: tuple(sorted(map(int, p))) for s, p in by_role[r].items()} for r in NAMES))


def held(by_role: dict[str, Any]) -> OwnedTasks:
    plain = tasks(by_role)
    assert plain is not None
    active = {s: {int(p): epoch for p, epoch in epochs.items()} for s, epochs in by_role["active"].items()}
    return OwnedTasks(active, plain.standby, plain.warmup)


def state(case: dict[str, Any]) -> CurrentAssignment:
    return CurrentAssignment(
        MemberState[case["memberState"]],
        case["memberEpoch"],
        case["previousMemberEpoch"],
        held(case["assigned"]),
        held(case["pendingRevocation"]),
    )


def play(case: dict[str, Any]) -> tuple[CurrentAssignment, CurrentAssignment]:
    """Return the member's assignment before and after a case."""

    def processes(role: Role, subtopology: str, partition: int) -> frozenset[str]:
        found = case[PROCESSES[role]].get(subtopology, {}).get(str(partition), [])
        return frozenset([found] if isinstance(found, str) else found)

    before, tasks_of_target = state(case), tasks(case["target"])
    assert tasks_of_target is not None
    target = Target(case["targetEpoch"], tasks_of_target, case["processId"], processes)
    return before, next_assignment(before, target, tasks(case["owned"]))


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["case"]))
def test_the_next_assignment_is_kafkas(case: dict[str, Any]) -> None:
    """State, epochs, assigned tasks and tasks pending revocation, with the epoch of each active task."""
    if "error" in case:
        with pytest.raises(GroupError) as refused:
            play(case)
        assert refused.value.error is Errors[case["error"]]
        return
    before, after = play(case)
    assert after == state(case["output"])
    if case["output"]["unchanged"]:
        assert after == before
