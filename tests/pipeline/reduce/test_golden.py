"""Rows of Apache Kafka's own logs match the causes that its brokers logged meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.groups.history.logs import golden, infer_rebalances
from tests.pipeline.reduce.reading import golden_rows
from tests.pipeline.reduce.truth import disagreement, truth_of

COUNTS = {"classic": 23, "consumer": 37, "share": 26, "streams": 16, "transactions": 4}


@pytest.mark.parametrize("name", COUNTS)
def test_each_epoch_is_one_row_with_kafkas_cause(name: str) -> None:
    """No row is missing, duplicated or invented; cause, member and times agree."""
    expected = truth_of(name)
    rows = golden_rows(name)["rebalance"]
    keys = Counter((row["group_id"], row["to_epoch"]) for row in rows)
    assert keys == Counter(expected.keys())
    wrong = [disagreement(row, expected[row["group_id"], row["to_epoch"]]) for row in rows]
    assert [each for each in wrong if each] == []
    assert len(rows) == COUNTS[name]
    assert {row["evidence"] for row in rows} == {"inferred"}


@pytest.mark.parametrize("name", COUNTS)
def test_epochs_of_rows_are_consecutive(name: str) -> None:
    """Each row begins at the epoch of the group's previous row."""
    last: dict[str, Any] = {}
    for row in golden_rows(name)["rebalance"]:
        before = last.get(row["group_id"])
        assert row["from_epoch"] == (before["to_epoch"] if before else row["to_epoch"] - 1)
        if before is not None and before["superseded_by"] is not None:
            assert before["superseded_by"] == row["to_epoch"]
            assert before["end_ms"] == row["start_ms"]
        last[row["group_id"]] = row


@pytest.mark.parametrize("name", ["consumer", "share", "streams"])
def test_converged_rebalances_are_those_that_the_history_calls_stable(name: str) -> None:
    """It ends at the same time; all others were superseded or left an empty group."""
    stable = {
        (group, row.epoch): (row.state, row.ended_ms, row.joined_ms)
        for partition, log in golden(name).items()
        for group, row in infer_rebalances(log, partition)
        if row.state in ("Stable", "NotReady") and row.group_type != "classic"
    }
    found = {
        (row["group_id"], row["to_epoch"]): (row["state"], row["end_ms"], row["target_ms"])
        for row in golden_rows(name)["rebalance"]
        if row["converged"] and row["state"] != "Empty" and row["group_type"] != "classic"
    }
    assert found == stable


@pytest.mark.parametrize("name", COUNTS)
def test_ambiguous_departures_list_the_possible_causes(name: str) -> None:
    """Possible departure causes are listed in order of preference, instead of a generic cause."""
    for row in golden_rows(name)["rebalance"]:
        for cause in row["causes"]:
            kinds = cause["kind"].split("|")
            assert kinds == sorted(kinds, key=ORDER.index)
            assert "member-gone" not in kinds


ORDER = [
    "member-left", "session-expired", "rebalance-timeout", "sync-timeout", "member-joined",
    "cooperative-follow-up", "topic-metadata-changed", "subscription-changed", "regex-refreshed",
    "member-metadata-changed", "leader-rejoined", "upgraded", "downgraded", "topology-initialized",
    "topology-ready", "topology-not-ready", "share-partitions-initialized",
]  # fmt: skip
