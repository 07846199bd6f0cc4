"""The summary of many rebalances, the cost of one, and the trace of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pipeline.answers.sample import START_MS, Client, Model, day, gold, together

from konvene.pipeline.answers.cost import Cost, Ends, costs, gap_part
from konvene.pipeline.answers.rebalance import Selection
from konvene.pipeline.answers.sentences import sentence
from konvene.pipeline.answers.summary import storms, summarise
from konvene.pipeline.answers.timeline import DRAWN, PLAIN, timeline
from konvene.pipeline.answers.trace import find_rebalances, trace, units


def lag(ms: int, end: int | None, partition: int = 0) -> dict[str, object]:
    where = {"cluster": "", "topic": "orders", "partition": partition}
    return {**where, "commit_ms": ms, "log_end_offset": end}


def gap(from_ms: int, to_ms: int | None, partition: int = 0, base_offset: int = 7) -> dict[str, object]:
    return {
        "cluster": "", "group_id": "app", "topic": "orders", "partition": partition, "from_ms": from_ms,
        "to_ms": to_ms, "log_partition": 0, "base_offset": base_offset, "epoch": 3,
    }  # fmt: skip


REBALANCE = replace(
    day().rebalances[-1], cluster="", group_id="app", log_partition=0, base_offset=7, to_epoch=3, start_ms=0,
    end_ms=61_000, converged=True,
)  # fmt: skip
PLACE = ("", "app", 0, 7, 3)


def test_records_in_a_gap_are_computed_from_log_growth() -> None:
    ends = Ends([lag(0, 100), lag(60_000, 700)])
    assert ends.at("", "orders", 0, 30_000) == 400
    assert costs([REBALANCE], [gap(30_000, 42_000)], ends) == {PLACE: Cost(1, 120)}


def test_gap_of_unknown_length_has_an_unknown_cost() -> None:
    ends = Ends(
        [{**lag(0, 100), "cluster": ""}, {**lag(60_000, 700), "cluster": ""}, {**lag(9, None), "cluster": ""}]
    )
    in_progress = replace(REBALANCE, end_ms=None, converged=False)
    assert costs([REBALANCE], [gap(50_000, 61_000)], ends) == {PLACE: Cost(1, None)}
    assert costs([in_progress], [gap(50_000, None)], ends) == {PLACE: Cost(1, None)}
    gaps = [gap(0, 6_000), gap(50_000, 61_000), gap(0, 1_000, partition=1)]
    assert costs([REBALANCE], gaps, ends) == {PLACE: Cost(2, 60)}, "one partition stopped twice"
    assert costs([REBALANCE], [], ends) == {}


def test_part_of_a_gap_within_a_rebalance_counts() -> None:
    """A gap that an interrupted rebalance leaves open counts in both for the time that it lasts there."""
    first = replace(REBALANCE, start_ms=10_000, end_ms=20_000, converged=False, superseded_by=4)
    second = replace(REBALANCE, start_ms=20_000, end_ms=30_000, to_epoch=4, base_offset=9)
    long = gap(5_000, 24_000)
    assert [part.ms for r in (first, second) if (part := gap_part(long, r))] == [10_000, 4_000]
    growing = Ends([lag(0, 0), lag(60_000, 60)])
    assert costs([second, first], [long], growing) == {PLACE: Cost(1, 10), second.key: Cost(1, 4)}
    assert gap_part(long | {"group_id": "other"}, first) is None
    assert gap_part(gap(22_000, 31_000), second) is None, "it is not assigned when the group is stable"
    assert gap_part(gap(15_000, 16_000), replace(REBALANCE, start_ms=None)) is None


def test_groups_are_listed_by_cost_and_storms_newest_first() -> None:
    summary = summarise(day(), Selection())
    assert [g.group_id for g in summary.groups] == ["orders-app", "invoices", "wordcount", "payments"]
    worst = summary.groups[0]
    assert (worst.rebalances, worst.storms) == (66, 4)
    assert worst.causes[0] == ("member-joined", 36)
    assert [s.rebalances for s in summary.storms] == [12, 12, 12, 6]
    assert all(a.to_ms >= b.to_ms for a, b in zip(summary.storms, summary.storms[1:], strict=False))
    assert summary.rebalances == len(day().rebalances) == sum(g.rebalances for g in summary.groups)
    assert summary.triggering[0].name == "orders-0" and summary.triggering[0].of == 66


@pytest.mark.parametrize(("pause_ms", "count"), [(100_000, 1), (170_000, 0)])
def test_five_rebalances_in_ten_minutes_are_a_storm(pause_ms: int, count: int) -> None:
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("a", "/a"), took_ms=1_000)
    for i in range(4):
        model.wait(pause_ms)
        model.join(Client(f"b{i}", "/b"), took_ms=1_000)
    selected = list(reversed(together(model).rebalances))
    assert len(storms(selected)) == count
    assert storms([replace(r, causes=(), cause="warmup-caught-up") for r in selected]) == []


def test_a_selection_has_the_requested_rebalances_only() -> None:
    found = day()
    at = found.select(Selection(("payments",)))[1].at_ms
    assert [r.to_epoch for r in found.select(Selection(("payments",)))] == [3, 2, 1]
    assert [r.to_epoch for r in found.select(Selection(("payments",), since_ms=at))] == [3, 2]
    assert [r.to_epoch for r in found.select(Selection(("payments",), until_ms=at))] == [2, 1]
    assert {r.group_id for r in found.select(Selection(group_type="streams"))} == {"wordcount"}
    assert found.similar_groups("order-app") == ["orders-app"]
    assert found.similar_groups("ORDERS") == ["orders-app"]
    assert found.similar_groups("zzz") == []


def test_gold_without_any_row_has_an_empty_summary() -> None:
    summary = summarise(gold(), Selection())
    assert (summary.rebalances, summary.groups, summary.advice, summary.from_ms) == (0, (), (), -1)
    assert gold().groups == []


def test_units_are_listed_by_topic_in_ranges() -> None:
    rows = [
        {"group_type": "classic", "topic": "orders", "partition": n, "role": "active"} for n in (4, 0, 2, 3)
    ]
    assert units(rows) == "orders:0,2-4"
    tasks = [("1", 0, "standby"), ("0", 2, "active"), ("0", 1, "active")]
    streams = [{"group_type": "streams", "topic": t, "partition": n, "role": role} for t, n, role in tasks]
    assert units([*streams, streams[0] | {"role": "warmup", "partition": 4}]) == (
        "0_1,0_2, standby 1_0, warm-up 1_4"
    )


# the trace of one -----------------------------------------------------------------------------


def two_members() -> Model:
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("ann", "/a"), took_ms=100)
    model.wait(59_900)
    model.join(Client("bob", "/b"), took_ms=3_000, slow="ann")
    return model


def test_a_trace_lists_the_steps_in_order() -> None:
    found = together(two_members())
    (rebalance,) = find_rebalances(found, "app", 2)
    traced = trace(found, rebalance, Cost(2, 10))
    ann, bob = (next(f.name for f in traced.followers if f.name.startswith(n)) for n in ("ann", "bob"))
    assert [(step.ms - START_MS - 60_000, step.text) for step in traced.steps] == [
        (0, f"{bob} (client bob at /b) joined"),
        (0, f"{ann} revoked orders:2-3"),
        (1_500, "the coordinator computed the target assignment"),
        (3_000, f"{bob} was assigned orders:2-3"),
        (3_000, f"{ann} reached its target assignment"),
        (3_000, f"{bob} reached its target assignment, after waiting for {ann}"),
        (3_000, "all partitions have an owner again: 2 partitions had none for 6.0 "
                "partition-seconds in total; longest: orders:2, 3.0 s"),
        (3_000, "completed: the group is Stable, 2 members"),
    ]  # fmt: skip
    assert traced.sentence == sentence(rebalance, Cost(2, 10)) and traced.unknown == ()


def test_a_trace_begins_with_the_earliest_last_heartbeat() -> None:
    """Or names the time before a session expired as unknown, if the session timeout is."""
    model = two_members()
    model.wait(60_000)
    model.leave("bob", kind="session-expired", took_ms=2_000)
    expiry = model.rows["rebalance"][-1]
    expiry |= {"silent_units": 2, "silent_ms": 90_000, "session_timeout_ms": 45_000}
    found = gold(**model.rows)
    traced = trace(found, find_rebalances(found, "app", 3)[0])
    first = traced.steps[0]
    assert first.ms == expiry["start_ms"] - 45_000 and traced.unknown == ()
    assert first.text.endswith(
        "(client bob at /b) sent its last heartbeat at this time or later: its session timeout is 45.0 s"
    )
    expiry |= {"silent_ms": None, "session_timeout_ms": None}
    found = gold(**model.rows)
    traced = trace(found, find_rebalances(found, "app", 3)[0])
    assert traced.unknown == ("how long 2 partitions had no reader before a session expired",)
    assert "heartbeat at this time" not in traced.steps[0].text


def test_a_member_keeps_a_warmed_up_task_in_another_role() -> None:
    """It revokes nothing and is assigned nothing, but its role changes."""
    model = Model("app", "streams", {"0": 2, "1": 2})
    model.join(Client("ann", "/a"), took_ms=100)
    model.wait(59_900)
    model.join(Client("bob", "/b"), took_ms=3_000)
    model.add_warm_up("bob", 2_000)
    found = together(model)
    (rebalance,) = find_rebalances(found, "app", 2)
    traced = trace(found, rebalance)
    (bob,) = (f.name for f in traced.followers if f.name.startswith("bob"))
    selected = [
        (step.ms - START_MS - 60_000, step.text) for step in traced.steps if step.text.startswith(bob)
    ]
    assert selected[1:3] == [
        (1_000, f"{bob} was assigned warm-up 1_0,1_1"),
        (3_000, f"{bob} changed 1_0,1_1 from warm-up to active"),
    ]


def test_lanes_show_revocations_waits_and_joins() -> None:
    found = together(two_members())
    traced = trace(found, find_rebalances(found, "app", 2)[0])
    ruler, *lanes = timeline(traced, 60)
    assert ruler.split() == ["0", "3.0", "s"]
    by_name = {lane[:3]: lane for lane in lanes}
    assert "+" in by_name["bob"] and by_name["bob"].rstrip(DRAWN.settled).endswith("✓")
    assert by_name["ann"].index("✓") == by_name["bob"].index("✓"), "it is drawn to scale"
    assert by_name["ann"].count(DRAWN.settled) > by_name["bob"].count(DRAWN.settled)
    assert all(line.isascii() for line in timeline(traced, 60, PLAIN)[1:] if "…" not in line)


def test_lane_of_a_departed_member_ends() -> None:
    model = two_members()
    model.wait(60_000)
    model.leave("bob", took_ms=2_000)
    found = together(model)
    lanes = timeline(trace(found, find_rebalances(found, "app", 3)[0]), 60)
    (bob,) = (lane for lane in lanes if lane.startswith("bob"))
    assert bob.endswith("×") and "2 → 0" in bob


def test_rebalance_without_a_start_time_is_listed_as_unknown() -> None:
    rows = two_members().rows
    rows["rebalance"][1] |= {"start_ms": None, "duration_ms": None, "unavailable_ms": None}
    for cause in rows["rebalance"][1]["causes"]:
        cause["at_ms"] = -1
    found = gold(**rows)
    traced = trace(found, find_rebalances(found, "app", 2)[0])
    assert timeline(traced) == []
    assert traced.unknown == (
        "when the rebalance began",
        "when its causes occurred",
        "how long partitions had no owner",
    )


def test_unaffected_members_of_a_large_group_are_counted() -> None:
    model = Model("app", "consumer", {"orders": 30})
    model.join(*[Client(f"c{i:02}", "/x") for i in range(29)])
    model.wait(60_000)
    model.join(Client("late", "/y"))
    found = together(model)
    traced = trace(found, find_rebalances(found, "app", 2)[0])
    assert len(traced.followers) == 20 and traced.left_out == 10
    assert {f.name.split("-")[0] for f in traced.followers if f.added or f.revoked} == {"late", "c00"}
    assert timeline(traced)[-1] == "and 10 more members"
