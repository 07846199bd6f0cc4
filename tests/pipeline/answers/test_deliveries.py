"""Problems with deliveries are reported, worst first, and stuck share partitions are detected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.answers.sample import filled, table

from konvene.pipeline.answers.deliveries import STUCK_MS, Delivery, deliveries, minutes, problems, summary
from konvene.pipeline.answers.gold import Gold


def row(**columns: Any) -> dict[str, Any]:
    known = {"group_id": "g", "topic": "jobs", "delivered": 40, "last_ms": 100_000, "moved_ms": 100_000}
    return filled("share_delivery", known | columns)


STANDS = {"moved_ms": 100_000 - STUCK_MS, "in_flight": 3, "in_flight_deliveries": 2, "start_offset": 36}


def test_no_problem_is_reported_without_redeliveries() -> None:
    each = Delivery(row(in_flight=2, in_flight_deliveries=1))
    assert problems(each) == []
    assert summary([each]) == ""


def test_problems_are_reported_in_numbers() -> None:
    each = Delivery(row(redelivered=1, max_delivery_count=2, archived=1))
    assert problems(each) == [
        "1 of 40 deliveries was a redelivery; one record was delivered 2 times",
        "1 record was archived: rejected, delivered too often, or no longer in the log",
    ]
    assert summary([each, each]) == "2 redeliveries, 2 archived records"


def test_partition_with_redeliveries_but_no_progress_is_stuck() -> None:
    each = Delivery(row(**STANDS))
    assert problems(each) == ["blocked at offset 36 for 30.0 s: 3 records in flight, delivered up to 2 times"]
    assert summary([each]) == "1 stuck share partition"


@pytest.mark.parametrize(
    "other",
    [
        {"moved_ms": 100_001 - STUCK_MS},
        {"in_flight_deliveries": 1},
        {"in_flight": 0},
        {"deleted_ms": 100_000},
    ],
    ids=["not for long", "delivered once", "nothing in flight", "deleted"],
)
def test_partition_is_not_stuck_otherwise(other: dict[str, Any]) -> None:
    assert not Delivery(row(**(STANDS | other))).stuck


def test_partitions_with_problems_come_first() -> None:
    rows = [
        row(partition=0),
        row(partition=1, redelivered=5),
        row(partition=2, archived=1),
        row(partition=3, **STANDS),
    ]
    gold = Gold({"share_delivery": table("share_delivery", rows)})
    assert [each.row["partition"] for each in deliveries(gold)] == [3, 2, 1, 0]
    assert deliveries(gold, ("other",)) == []


def test_minutes_without_problems_are_left_out() -> None:
    rows = [
        filled(
            "share_progress", {"group_id": "g", "minute_ms": ms, "redelivered": again, "archived": archived}
        )
        for ms, again, archived in ((0, 2, 0), (60_000, 0, 0), (120_000, 1, 3), (180_000, 1, 1))
    ]
    gold = Gold({"share_progress": table("share_progress", rows)})
    assert [each["minute_ms"] for each in minutes(gold)] == [120_000, 180_000, 0]
