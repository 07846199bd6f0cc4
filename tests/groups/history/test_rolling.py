"""Kafka Streams groups that roll to the streams protocol and back: the log and the coordinator agree."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from random import Random

import pytest
from tests.groups.history.logs import compacted, contradictions, infer_rebalances
from tests.groups.history.rolling import Roll
from tests.groups.history.walking import comparable

from konvene.records.audit import RebalanceValue

Rows = list[tuple[str, RebalanceValue]]


@cache
def random_roll(seed: int) -> Roll:
    roll = Roll(seed)
    roll.roll(60)
    return roll


def of_type(group_type: str, rows: Rows) -> Rows:
    return [(group, row) for group, row in rows if row.group_type == group_type]


def protocol_changes(rows: Rows) -> list[tuple[str, int, str]]:
    """Return the protocol changes: the direction, the generation or epoch, and the member."""
    return [
        (cause.kind, row.epoch, cause.member_id or "")
        for _, row in rows
        if row.state in ("Assigning", "Empty") or (row.group_type, row.state) == ("classic", "Stable")
        for cause in row.causes
        if cause.kind in ("upgraded", "downgraded")
    ]


def test_the_walks_upgrade_and_downgrade_often() -> None:
    """Dynamic members and static ones that replace themselves, in groups with warm-ups."""
    kinds = [kind for seed in range(12) for kind, _, _ in protocol_changes(random_roll(seed).reported)]
    assert kinds.count("upgraded") > 20
    assert kinds.count("downgraded") > 5


@pytest.mark.parametrize("seed", range(40))
def test_inferred_rebalances_are_the_reported_ones(seed: int) -> None:
    """Each row of the streams group with its causes, members, times and moved tasks; and each protocol
    change."""
    roll = random_roll(seed)
    inferred = infer_rebalances(roll.log)
    assert comparable(of_type("streams", inferred)) == comparable(of_type("streams", roll.reported))
    positions = {(row.group_type, row.epoch, row.last_offset) for _, row in inferred}
    assert len(positions) == len(inferred)
    assert protocol_changes(inferred) == protocol_changes(roll.reported)


@pytest.mark.parametrize("seed", range(40))
def test_generations_and_epochs_form_one_sequence(seed: int) -> None:
    """It rises from row to row in either protocol; an empty group may start again."""
    rows = [row for _, row in infer_rebalances(random_roll(seed).log)]
    bumps = [row for row in rows if row.group_type == "classic" or row.state in ("Assigning", "Empty")]
    for before, after in pairwise(bumps):
        assert after.epoch > before.epoch or before.state == "Empty", (before, after)


@pytest.mark.parametrize("seed", range(10))
def test_compacted_logs_do_not_contradict_the_whole_log(seed: int) -> None:
    """Prefixes with and without their tombstones, and windows in the middle."""
    random = Random(seed)
    log = random_roll(seed).log
    full = infer_rebalances(log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(infer_rebalances(compacted(log, 0, end)), full) == []
        assert contradictions(infer_rebalances(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(infer_rebalances(compacted(log, begin, end)), full) == []
