"""Rows of Apache Kafka's own logs, against what that Kafka said while it wrote them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.groups.history.logs import golden, infer_rebalances
from tests.pipeline.reduce.reading import golden_rows
from tests.pipeline.reduce.truth import disagreement, truth_of

COUNTS = {"classic": 23, "consumer": 37, "share": 26, "streams": 16, "transactions": 4}


@pytest.mark.parametrize("name", COUNTS)
def test_each_generation_and_epoch_is_one_row_with_the_cause_that_kafka_gave(name: str) -> None:
    """None is left out, none is told twice, and none other is told: cause, member, and times."""
    expected = truth_of(name)
    rows = golden_rows(name)["rebalance"]
    keys = Counter((row["group_id"], row["to_epoch"]) for row in rows)
    assert keys == Counter(expected.keys())
    wrong = [disagreement(row, expected[row["group_id"], row["to_epoch"]]) for row in rows]
    assert [each for each in wrong if each] == []
    assert len(rows) == COUNTS[name]
    assert {row["evidence"] for row in rows} == {"inferred"}


@pytest.mark.parametrize("name", COUNTS)
def test_rows_follow_one_another_without_a_hole(name: str) -> None:
    """Each begins where the one before it ended, of one group and one life of it."""
    last: dict[str, Any] = {}
    for row in golden_rows(name)["rebalance"]:
        before = last.get(row["group_id"])
        assert row["from_epoch"] == (before["to_epoch"] if before else row["to_epoch"] - 1)
        if before is not None and before["superseded_by"] is not None:
            assert before["superseded_by"] == row["to_epoch"]
            assert before["end_ms"] == row["start_ms"]
        last[row["group_id"]] = row


@pytest.mark.parametrize("name", ["consumer", "share", "streams"])
def test_a_rebalance_has_converged_where_the_history_says_stable(name: str) -> None:
    """And at that time; others were superseded, or the group was empty at once."""
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
def test_how_members_went_is_left_open_where_the_log_does_not_tell(name: str) -> None:
    """A session cannot have expired that was not old enough: what Kafka said is among what is left."""
    for row in golden_rows(name)["rebalance"]:
        for cause in row["causes"]:
            kinds = cause["kind"].split("|")
            assert kinds == sorted(kinds, key=ORDER.index)
            assert "member-gone" not in kinds


ORDER = [
    "member-left", "session-expired", "rebalance-timeout", "sync-timeout", "member-joined",
    "cooperative-follow-up", "topic-metadata-changed", "subscription-changed", "regex-refreshed",
    "upgraded", "downgraded", "topology-initialized", "topology-ready", "topology-not-ready",
    "share-partitions-initialized",
]  # fmt: skip
