"""Inferred causes of random simulated runs with known causes; `python -m bench.truth` measures many more."""

from __future__ import annotations

import pytest
from bench.truth import KINDS, SETS, Score, measure

from konvene.sim.runs.run import Run

SEEDS = range(3)


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_audit_gives_nearly_every_cause_and_no_false_one(kinds: tuple[str, ...]) -> None:
    """A cause is missed only if a crash kept it from both the audit and the log."""
    audit, bare = Score(), Score()
    for seed in SEEDS:
        with_audit, without_audit = measure(Run(seed, kinds, 2_000, SETS))
        audit += with_audit
        bare += without_audit
    assert audit.rebalances > 20
    assert audit.rows_too_many == 0
    assert audit.precision >= 0.99
    assert audit.recall >= 0.97
    assert bare.rows_too_many == 0
    assert min(bare.precision, bare.recall) > 0.4


def test_score_counts_missed_and_invented_causes() -> None:
    """A wrong cause counts as missed and as invented; an ambiguous one that includes the truth is right."""
    from bench.truth import KnownRebalance, score

    from konvene.records.audit import Cause

    known = [KnownRebalance("g", 1, 5, (Cause(kind="session-expired", member_id="m"),))]
    row = {"group_id": "g", "to_epoch": 1, "evidence": "inferred"}

    def score_of(kind: str) -> Score:
        return score(known, [row | {"causes": [{"kind": kind, "member_id": "m"}]}])

    assert (
        score_of("member-left|session-expired").right,
        score_of("member-left|session-expired").ambiguous,
    ) == (
        1,
        1,
    )
    wrong = score_of("member-left")
    assert (wrong.right, wrong.missed.total(), wrong.invented.total()) == (0, 1, 1)
    assert score(known, []).rows_missing == 1
    assert score([], [row | {"causes": []}]).rows_too_many == 1
