"""Random lives whose causes are known, told from their logs. The figures of many: `python -m bench.truth`."""

from __future__ import annotations

import pytest
from bench.truth import KINDS, SETS, Score, measure

from konvene.sim.runs.run import Run

SEEDS = range(3)


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_with_the_audit_nearly_every_cause_is_told_and_none_is_invented(kinds: tuple[str, ...]) -> None:
    """What is not told is what a crash kept from the audit and the log does not hold."""
    audit, bare = Score(), Score()
    for seed in SEEDS:
        one, other = measure(Run(seed, kinds, 2_000, SETS))
        audit += one
        bare += other
    assert audit.rebalances > 20
    assert audit.rows_too_many == 0
    assert audit.precision >= 0.99
    assert audit.recall >= 0.97
    assert bare.rows_too_many == 0
    assert min(bare.precision, bare.recall) > 0.4


def test_the_harness_sees_what_is_wrong() -> None:
    """A row with another cause is a miss and an invention; one that names two is right about either."""
    from bench.truth import KnownRebalance, score

    from konvene.records.audit import Cause

    said = [KnownRebalance("g", 1, 5, (Cause(kind="session-expired", member_id="m"),))]
    row = {"group_id": "g", "to_epoch": 1, "evidence": "inferred"}

    def told(kind: str) -> Score:
        return score(said, [row | {"causes": [{"kind": kind, "member_id": "m"}]}])

    assert (told("member-left|session-expired").right, told("member-left|session-expired").ambiguous) == (
        1,
        1,
    )
    wrong = told("member-left")
    assert (wrong.right, wrong.missed.total(), wrong.invented.total()) == (0, 1, 1)
    assert score(said, []).rows_missing == 1
    assert score([], [row | {"causes": []}]).rows_too_many == 1
