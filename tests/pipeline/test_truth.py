"""Inferred causes of random simulated runs with known causes; `python -m bench.truth` measures many more."""

from __future__ import annotations

import pytest
from bench.truth import KINDS, SETS, Score, measure

from konvene.sim.runs.run import Run

SEEDS = range(3)
PRECISION = 0.95
RECALL = {"classic": 0.85, "static": 0.8}
"""Least recall, without the audit, among the causes that records can show; 0.95 for the other types."""


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
    assert audit.recall >= 0.99
    assert bare.rows_too_many == 0
    assert bare.rows_missing <= 0.02 * bare.rebalances
    assert bare.precision >= PRECISION
    assert bare.recorded_recall >= RECALL.get(kinds[0], 0.95)
    assert not +bare.alone_wrong, "a cause without an alternative is never wrong"


def test_score_counts_missed_and_invented_causes() -> None:
    """A wrong cause counts as missed and as invented; an ambiguous one that includes the truth is right."""
    from bench.truth import KnownRebalance, score

    from konvene.records.audit import Cause

    known = [KnownRebalance("g", 1, 5, (Cause(kind="session-expired", member_id="m"),))]
    row = {
        "group_id": "g", "group_type": "classic", "from_epoch": 0, "to_epoch": 1, "base_offset": 5,
        "last_offset": 5, "end_ms": 9, "state": "Stable", "evidence": "inferred",
    }  # fmt: skip

    def score_of(kind: str, **more: int) -> Score:
        cause = {"kind": kind, "member_id": "m", "instance_id": None}
        return score(known, [row | {"causes": [cause]} | more])

    found = score_of("member-left|session-expired")
    assert (found.right, found.ambiguous, found.named) == (1, 1, {2: 1})
    wrong = score_of("member-left")
    assert (wrong.right, wrong.missed.total(), wrong.invented.total()) == (0, 1, 1)
    assert wrong.alone_wrong.total() == 1
    assert score_of("session-expired", to_epoch=3).right == 1, "a row may cover several generations"
    assert score(known, []).rows_missing == 1
    assert score([], [row | {"causes": []}]).rows_too_many == 1


def test_causes_that_no_record_shows_are_counted() -> None:
    from bench.truth import KnownRebalance, score

    from konvene.records.audit import Cause

    known = [KnownRebalance("g", 1, 5, tuple(Cause(kind="member-joined", member_id=m) for m in "ab"))]
    found = score(known, [], {b"a"})
    assert (found.missed.total(), found.unrecorded) == (2, 1)


def test_generations_that_a_crash_undid_do_not_count() -> None:
    """The group forms the same generation again; without a crash its number rises."""
    from bench.truth import KnownRebalance, without_lost

    def known(epoch: int, offset: int, ended_ms: int) -> KnownRebalance:
        return KnownRebalance("g", epoch, offset, (), ended_ms)

    undone, superseded, stored = known(2, -1, 10), known(2, -1, 30), known(3, 7, 40)
    assert without_lost([stored, known(3, -1, 20), undone, superseded]) == [superseded, stored]


def test_rows_are_compared_in_the_order_of_their_log() -> None:
    """Their table may have another order: rows of groups are spread over files."""
    from bench.truth import KnownRebalance, score

    from konvene.records.audit import Cause

    cause = {"kind": "member-joined", "member_id": "m", "instance_id": None}
    rows = [
        {
            "group_id": "g", "group_type": "classic", "from_epoch": epoch - 2, "to_epoch": epoch,
            "base_offset": epoch, "last_offset": epoch, "end_ms": epoch, "state": "Stable",
            "evidence": "inferred", "causes": [cause],
        }
        for epoch in (9, 6)
    ]  # fmt: skip
    joined = (Cause(kind="member-joined", member_id="m"),)
    superseded = [KnownRebalance("g", epoch - 1, -1, joined, epoch - 1) for epoch in (6, 9)]
    found = score([KnownRebalance("g", epoch, epoch, (), epoch) for epoch in (6, 9)] + superseded, rows)
    assert (found.right, found.rows_missing, found.invented.total()) == (2, 0, 0)
