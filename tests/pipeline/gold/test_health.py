"""Health of a group by minute follows from its rebalances and gaps; each value is checked by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from konvene.pipeline.gold.health import health_rows
from konvene.pipeline.tables import TABLES

MINUTE = 60_000


def rebalance(start: int | None, end: int | None, **changes: Any) -> dict[str, Any]:
    row = {
        "cluster": "c", "group_id": "g", "group_type": "consumer", "from_epoch": 1, "to_epoch": 2,
        "state": "Stable", "cause": "member-joined", "causes": [], "causes_left_out": 0,
        "evidence": "observed", "start_ms": start, "target_ms": start, "end_ms": end,
        "duration_ms": None if end is None or start is None else end - start, "converged": end is not None,
        "members": 3, "joined": 0, "gone": 0, "units": 10, "kept": 0, "moved": 0, "revoked": 0, "added": 0,
        "standby_moved": 0, "warmup_moved": 0, "least_moves": 0, "log_partition": 0,
        "base_offset": start or 0, "last_offset": 0,
    }  # fmt: skip
    return row | changes


def gap(start: int, end: int | None, **changes: Any) -> dict[str, Any]:
    row = {
        "cluster": "c", "group_id": "g", "group_type": "consumer", "topic": "t", "partition": 0,
        "role": "active", "from_ms": start, "to_ms": end, "gap_ms": None if end is None else end - start,
        "epoch": 2, "log_partition": 0, "base_offset": 0, "cause": "member-left", "evidence": "inferred",
    }  # fmt: skip
    return row | changes


def member(
    base_offset: int, member_id: str, took: int | None, waited_for: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "cluster": "c", "group_id": "g", "group_type": "consumer", "to_epoch": 2, "log_partition": 0,
        "base_offset": base_offset, "member_id": member_id, "part": "stayed", "acknowledged_ms": took,
        "states": [], "waited_for": list(waited_for), "units_before": 0, "units_after": 0, "revoked": 0,
        "added": 0, "evidence": "observed",
    }  # fmt: skip


def health(
    rebalances: Sequence[dict[str, Any]],
    gaps: Sequence[dict[str, Any]] = (),
    members: Sequence[dict[str, Any]] = (),
    until_ms: int | None = None,
) -> list[dict[str, Any]]:
    names = ("rebalance", "unavailability", "rebalance_member")
    tables = [
        pa.Table.from_pylist(list(rows), schema=TABLES[name].schema)
        for name, rows in zip(names, (rebalances, gaps, members), strict=True)
    ]
    return [row for batch in health_rows(*tables, until_ms=until_ms) for row in batch.to_pylist()]


def column(rows: Sequence[dict[str, Any]], *names: str) -> list[Any]:
    return [tuple(row[name] for name in names) if len(names) > 1 else row[names[0]] for row in rows]


def test_rebalance_without_gaps_costs_nothing() -> None:
    """The complete row, and no row for minutes without a change."""
    assert health([rebalance(5 * MINUTE + 10, 5 * MINUTE + 60)]) == [
        {
            "cluster": "c", "group_id": "g", "group_type": "consumer", "minute_ms": 5 * MINUTE,
            "state": "Stable", "members": 3, "rebalances": 1, "rebalances_last_hour": 1,
            "p99_rebalance_ms": 50, "unavailable_pct": 0.0, "stuck_member_id": None, "storm": False,
            "score": 100,
        }
    ]  # fmt: skip


def test_a_group_is_busy_until_its_rebalance_is_over() -> None:
    rows = health([rebalance(MINUTE - 10, 2 * MINUTE + 5, target_ms=MINUTE + 1)])
    assert column(rows, "minute_ms", "state") == [
        (0, "Assigning"), (MINUTE, "Reconciling"), (2 * MINUTE, "Stable"),
    ]  # fmt: skip
    assert column(rows, "p99_rebalance_ms") == [None, None, MINUTE + 15]


def test_classic_group_counts_former_members_until_the_rebalance_is_complete() -> None:
    before = rebalance(0, 10, group_type="classic", members=2)
    now = rebalance(MINUTE, 3 * MINUTE, group_type="classic", target_ms=2 * MINUTE, members=7)
    assert column(health([before, now]), "state", "members") == [
        ("Stable", 2), ("PreparingRebalance", 2), ("CompletingRebalance", 7), ("Stable", 7),
    ]  # fmt: skip


def test_converted_group_has_its_type_of_each_minute() -> None:
    runs = [rebalance(0, 10, group_type="classic"), rebalance(MINUTE, MINUTE + 10, group_type="consumer")]
    assert column(health(runs), "group_type") == ["classic", "consumer"]


def test_unavailable_pct_is_relative_to_all_units() -> None:
    """Half a minute of one of ten partitions is a twentieth; it takes two points, rounded up."""
    rows = health([rebalance(0, 10)], [gap(30_000, 90_000)])
    assert column(rows, "unavailable_pct", "score") == [(5.0, 98), (5.0, 98)]
    rows = health([rebalance(0, 10)], [gap(0, MINUTE, partition=p) for p in range(10)])
    assert column(rows, "minute_ms", "unavailable_pct", "score") == [(0, 100.0, 60), (MINUTE, 0.0, 100)]


def test_gaps_count_in_their_minute() -> None:
    rows = health([rebalance(0, 10)], [gap(70_000, 76_000, partition=0), gap(0, 6_000, partition=1)])
    assert column(rows, "minute_ms", "unavailable_pct") == [(0, 1.0), (MINUTE, 1.0)]


def test_gap_without_rebalance_is_reported() -> None:
    """If the log lost the rebalance, only the gap is known; the next row is its end."""
    (row,) = health([], [gap(0, None)], until_ms=30_000)
    assert (row["state"], row["members"], row["unavailable_pct"]) == ("Unknown", 0, 50.0)
    assert row["score"] == 80


def test_unassigned_standby_tasks_are_not_unavailable() -> None:
    assert health([], [gap(0, 10, role="standby")]) == []


@pytest.mark.parametrize(("last", "storm"), [(599_999, True), (600_000, False)])
def test_five_rebalances_within_ten_minutes_are_a_storm(last: int, storm: bool) -> None:
    starts = (0, 60_000, 120_000, 180_000, last)
    rows = health([rebalance(start, start) for start in starts])
    assert column(rows, "storm")[:4] == [False] * 4
    assert rows[-1]["storm"] is storm
    assert rows[-1]["score"] == (60 if storm else 90)


def test_warmups_that_catch_up_make_no_storm() -> None:
    """Each warm-up that catches up is a rebalance, but only one member joined."""
    rows = health(
        [
            rebalance(0, 0),
            *(rebalance(ms, ms, cause="warmup-caught-up") for ms in range(60_000, 600_000, 60_000)),
        ]
    )
    assert [row["storm"] for row in rows] == [False] * 10
    assert (rows[-1]["rebalances_last_hour"], rows[-1]["score"]) == (10, 100)


def test_storm_counts_any_ten_minutes() -> None:
    starts = (30_000, 90_000, 150_000, 210_000, 620_000)
    assert column(health([rebalance(start, start + 1) for start in starts]), "storm")[-1] is True


def test_member_that_others_wait_for_is_stuck() -> None:
    members = [member(0, "a", 10), member(0, "b", None, ["c"]), member(0, "c", 150_000)]
    rows = health([rebalance(0, 150_000, last_member_id=None)], members=members)
    assert column(rows, "stuck_member_id", "score") == [("c", 80), ("c", 80), (None, 100)]


def test_last_member_is_stuck_without_member_rows() -> None:
    rows = health([rebalance(0, 61_000, last_member_id="x")])
    assert column(rows, "stuck_member_id") == ["x", None]


def test_stuck_member_spans_superseded_rebalances() -> None:
    """Each epoch supersedes the former; only `b` converged in none of them."""
    runs = [rebalance(0, 20_000, converged=False), rebalance(20_000, 100_000)]
    members = [
        member(0, "a", None),
        member(0, "b", None),
        member(20_000, "a", 10),
        member(20_000, "b", 80_000),
    ]
    assert column(health(runs, members=members), "stuck_member_id") == ["b", None]


def test_pause_between_rebalances_counts_as_stable() -> None:
    runs = [rebalance(0, 20_000, last_member_id="b"), rebalance(20_001, 100_000, last_member_id="b")]
    assert column(health(runs), "stuck_member_id") == [None, None]


def test_open_rebalance_has_rows_for_its_first_day() -> None:
    rows = health([rebalance(0, None, last_member_id="x")], until_ms=2 * MINUTE)
    assert column(rows, "state", "stuck_member_id") == [
        ("Reconciling", "x"), ("Reconciling", "x"), ("Reconciling", None),
    ]  # fmt: skip
    assert len(health([rebalance(0, None)], until_ms=10**12)) == 24 * 60 + 1


def test_the_hour_is_the_one_that_ends_with_the_minute() -> None:
    runs = [rebalance(start, start + took) for start, took in ((0, 500), (59 * MINUTE, 7), (60 * MINUTE, 9))]
    assert column(health(runs), "rebalances_last_hour", "p99_rebalance_ms", "score") == [
        (1, 500, 100), (2, 500, 90), (2, 9, 90),
    ]  # fmt: skip


def test_unknown_duration_is_null() -> None:
    """For classic groups Kafka's log has the end of a rebalance but not its start."""
    (row,) = health([rebalance(None, 900, target_ms=400)])
    assert (row["rebalances"], row["p99_rebalance_ms"]) == (1, None)


def test_negative_duration_is_ignored() -> None:
    """The clock was set back, or another coordinator with another clock took over."""
    (row,) = health([rebalance(900, 400)])
    assert (row["rebalances"], row["p99_rebalance_ms"], row["state"]) == (1, None, "Stable")


def test_rebalances_without_time_make_no_rows() -> None:
    assert health([rebalance(None, None, target_ms=None)]) == []


def test_rows_are_sorted_and_do_not_depend_on_the_order_of_the_input() -> None:
    runs = [rebalance(start, start + 5, group_id=group) for group in ("b", "a") for start in (130_000, 10)]
    rows = health(runs)
    assert column(rows, "group_id", "minute_ms") == [("a", 0), ("a", 120_000), ("b", 0), ("b", 120_000)]
    assert health(runs[::-1]) == rows


@pytest.mark.parametrize("seed", range(25))
def test_figures_match_a_naive_count(seed: int) -> None:
    """Every minute of random groups, with each formula written out over all rebalances and gaps."""
    rng = random.Random(seed)
    at, runs, gaps = 0, [], []
    for number in range(rng.randrange(1, 25)):
        at += rng.choice((1_000, 50_000, 130_000, 900_000))
        end = at + rng.choice((0, 400, 70_000))
        runs.append(rebalance(at, end, units=rng.randrange(1, 6), members=number, base_offset=number))
        at = end
    for partition in rng.sample(range(6), rng.randrange(6)):
        begin = rng.randrange(at + 1)
        gaps.append(gap(begin, rng.choice((None, begin + rng.randrange(200_000))), partition=partition))
    until = at + 300_000
    rows = health(runs, gaps, until_ms=until)
    assert [row["minute_ms"] for row in rows] == sorted({row["minute_ms"] for row in rows})
    for row in rows:
        counted = plain_count(runs, gaps, until, row["minute_ms"])
        assert {name: row[name] for name in counted} == counted


def plain_count(
    runs: Sequence[dict[str, Any]], gaps: Sequence[dict[str, Any]], until: int, minute: int
) -> dict[str, Any]:
    behind = minute + MINUTE
    starts = [run["start_ms"] for run in runs]
    over = [run for run in runs if run["end_ms"] < behind]
    lengths = {}
    for one in gaps:
        end = until if one["to_ms"] is None else one["to_ms"]
        length = min(end, behind) - max(one["from_ms"], minute)
        if length > 0:
            lengths[one["partition"]] = length
    units = max(over[-1]["units"] if over else 0, len(lengths))
    took = sorted(run["duration_ms"] for run in over if run["end_ms"] >= behind - 3_600_000)
    within = [sum(ms - 600_000 < start <= ms for start in starts) for ms in range(minute, behind, 100)]
    return {
        "rebalances": sum(minute <= start < behind for start in starts),
        "rebalances_last_hour": sum(behind - 3_600_000 <= start < behind for start in starts),
        "p99_rebalance_ms": took[-1] if took else None,
        "unavailable_pct": pytest.approx(100 * sum(lengths.values()) / (units * MINUTE)) if units else None,
        "storm": max(within) >= 5,
    }


def test_shared_partition_is_unavailable_without_any_holder() -> None:
    run = rebalance(0, 10, group_type="share", units=2)
    rows = health([run], [gap(0, MINUTE, role="shared", group_type="share")])
    assert column(rows, "group_type", "unavailable_pct") == [("share", 50.0), ("share", 0.0)]
