"""The next assignment of a consumer group's member is the one that Kafka computes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.consumer.current_assignment import (
    NO_OWNER,
    CurrentAssignment,
    MemberState,
    Target,
    next_assignment,
)
from konvene.groups.modern.reconcile import reconcile
from konvene.shard.errors import GroupError

CASES = Path(__file__).parents[2] / "vectors" / "reconcile" / "consumer.jsonl.gz"
S, U, R = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def cases() -> list[dict[str, Any]]:
    """Return the recorded cases of Kafka 4.4.0, one per line."""
    return [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]


def epochs(by_topic: dict[str, dict[str, int]]) -> dict[Uuid, dict[int, int]]:
    return {Uuid.parse(t): {int(p): e for p, e in ps.items()} for t, ps in by_topic.items()}


def partitions(by_topic: dict[str, list[int]] | None) -> dict[Uuid, list[int]] | None:
    return None if by_topic is None else {Uuid.parse(t): ps for t, ps in by_topic.items()}


def play(case: dict[str, Any]) -> tuple[CurrentAssignment, CurrentAssignment]:
    """Return the member's assignment before and after a case."""
    names = {t["name"]: Uuid.parse(t["id"]) for t in case["topics"] if not t.get("deleted")}
    subscribed = {*case["subscribedTopicNames"], *case.get("regexResolvesTo", ())}
    owners = epochs(case["currentPartitionEpochs"])
    before = CurrentAssignment(
        MemberState[case["memberState"]],
        case["memberEpoch"],
        case["previousMemberEpoch"],
        epochs(case["assigned"]),
        epochs(case["pendingRevocation"]),
    )
    target = Target(
        case["targetEpoch"],
        partitions(case["target"]) or {},
        {names[name] for name in subscribed if name in names},
        lambda topic, partition: owners.get(topic, {}).get(partition, NO_OWNER),
    )
    owned = partitions(case["owned"])
    return before, next_assignment(before, target, owned, subscription_changed=case["hasSubscriptionChanged"])


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["case"]))
def test_the_next_assignment_is_kafkas(case: dict[str, Any]) -> None:
    """State, epochs, assigned partitions and partitions pending revocation, with the epoch of each
    partition."""
    if "error" in case:
        with pytest.raises(GroupError) as refused:
            play(case)
        assert refused.value.error is Errors[case["error"]]
        return
    before, after = play(case)
    expected = case["output"]
    assert after == CurrentAssignment(
        MemberState[expected["memberState"]],
        expected["memberEpoch"],
        expected["previousMemberEpoch"],
        epochs(expected["assigned"]),
        epochs(expected["pendingRevocation"]),
    )
    assert (after is before) == expected["unchanged"]


def test_the_cases_cover_every_state() -> None:
    """Some cases enter and some leave each state."""
    without_error = [c for c in cases() if "output" in c]
    assert {c["memberState"] for c in cases()} == {s.name for s in MemberState}
    assert {c["output"]["memberState"] for c in without_error} == {S.name, U.name, R.name}
    assert sum(c["output"]["unchanged"] for c in without_error) > 10
    assert sum("error" in c for c in cases()) > 0


UNITS = st.frozensets(st.integers(0, 9))


@given(UNITS, UNITS, UNITS)
def test_reconciliation_partitions_held_and_target_units(
    held: frozenset[int], target: frozenset[int], taken: frozenset[int]
) -> None:
    """Kept and revoked units are the held ones; kept and granted units belong to the target."""
    parts = reconcile(held, target, lambda unit: unit not in taken)
    assert parts.kept | parts.revoked == held
    assert not parts.kept & parts.revoked
    assert parts.kept | parts.granted <= target
    assert not parts.granted & taken
    assert parts.waits == (parts.kept | parts.granted != target)
