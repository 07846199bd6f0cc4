"""Groups of Kafka Streams that roll to the streams protocol and back: the log tells one story."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, told
from tests.groups.history.rolling import Roll
from tests.groups.history.walking import plain

from konvene.records.audit import RebalanceValue

Rows = list[tuple[str, RebalanceValue]]


def rolled(seed: int) -> Roll:
    roll = Roll(seed)
    roll.roll(60)
    return roll


def of_type(group_type: str, rows: Rows) -> Rows:
    return [(group, row) for group, row in rows if row.group_type == group_type]


def turns(rows: Rows) -> list[tuple[str, int, str]]:
    """Where the group changed its protocol: which way, with which generation or epoch, by whom."""
    return [
        (cause.kind, row.epoch, cause.member_id or "")
        for _, row in rows
        if row.state in ("Assigning", "Empty") or (row.group_type, row.state) == ("classic", "Stable")
        for cause in row.causes
        if cause.kind in ("upgraded", "downgraded")
    ]


def test_the_walks_go_both_ways_and_often() -> None:
    """Dynamic members and static ones who take their own places, in groups with warm-ups."""
    kinds = [kind for seed in range(12) for kind, _, _ in turns(rolled(seed).told)]
    assert kinds.count("upgraded") > 20
    assert kinds.count("downgraded") > 5


@pytest.mark.parametrize("seed", range(40))
def test_the_log_tells_what_was_told_live(seed: int) -> None:
    """Each row of the streams group with its causes, members, times and tasks that moved; and each turn."""
    roll = rolled(seed)
    inferred = told(roll.log)
    assert plain(of_type("streams", inferred)) == plain(of_type("streams", roll.told))
    there = {(row.group_type, row.epoch, row.last_offset) for _, row in inferred}
    assert len(there) == len(inferred)
    assert turns(inferred) == turns(roll.told)


@pytest.mark.parametrize("seed", range(40))
def test_generations_and_epochs_are_one_count(seed: int) -> None:
    """It rises from row to row, whichever protocol the group speaks; one that is empty may begin anew."""
    rows = [row for _, row in told(rolled(seed).log)]
    raised = [row for row in rows if row.group_type == "classic" or row.state in ("Assigning", "Empty")]
    for before, after in pairwise(raised):
        assert after.epoch > before.epoch or before.state == "Empty", (before, after)


@pytest.mark.parametrize("seed", range(10))
def test_no_compaction_makes_it_tell_otherwise(seed: int) -> None:
    """Prefixes with their tombstones and without, and windows in the middle."""
    random = Random(seed)
    log = rolled(seed).log
    full = told(log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(told(compacted(log, 0, end)), full) == []
        assert contradictions(told(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(told(compacted(log, begin, end)), full) == []
