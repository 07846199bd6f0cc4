"""What many rebalances come to, what one cost, and the story of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pipeline.answers.sample import START_MS, Client, Model, day, gold, together

from konvene.pipeline.answers.cost import Cost, Ends, costs
from konvene.pipeline.answers.rebalance import Selection
from konvene.pipeline.answers.sentences import sentence
from konvene.pipeline.answers.summary import storms, summarise
from konvene.pipeline.answers.timeline import DRAWN, PLAIN, timeline
from konvene.pipeline.answers.why import find, tell, units


def lag(ms: int, end: int | None, partition: int = 0) -> dict[str, object]:
    where = {"cluster": "", "topic": "orders", "partition": partition}
    return {**where, "commit_ms": ms, "log_end_offset": end}


def gap(from_ms: int, to_ms: int | None, partition: int = 0, base_offset: int = 7) -> dict[str, object]:
    return {
        "cluster": "", "group_id": "app", "topic": "orders", "partition": partition, "from_ms": from_ms,
        "to_ms": to_ms, "log_partition": 0, "base_offset": base_offset, "epoch": 3,
    }  # fmt: skip


PLACE = ("", "app", 0, 7, 3)


def test_records_that_arrive_in_a_gap_are_taken_from_the_growth_of_the_log() -> None:
    ends = Ends([lag(0, 100), lag(60_000, 700)])
    assert ends.at("", "orders", 0, 30_000) == 400
    assert costs([gap(30_000, 42_000)], ends) == {PLACE: Cost(1, 120)}


def test_a_gap_that_cannot_be_measured_costs_something_unknown_and_not_nothing() -> None:
    ends = Ends(
        [{**lag(0, 100), "cluster": ""}, {**lag(60_000, 700), "cluster": ""}, {**lag(9, None), "cluster": ""}]
    )
    assert costs([gap(50_000, 61_000)], ends) == {PLACE: Cost(1, None)}
    assert costs([gap(50_000, None)], ends) == {PLACE: Cost(1, None)}
    assert costs([gap(0, 6_000), gap(50_000, 61_000), gap(0, 1_000, partition=1)], ends) == {
        PLACE: Cost(3, 60)
    }
    assert costs([], ends) == {}


def test_groups_are_told_worst_first_and_storms_newest_first() -> None:
    summary = summarise(day(), Selection())
    assert [g.group_id for g in summary.groups] == ["orders-app", "invoices", "wordcount", "payments"]
    worst = summary.groups[0]
    assert (worst.rebalances, worst.storms) == (66, 4)
    assert worst.causes[0] == ("member-joined", 36)
    assert [s.rebalances for s in summary.storms] == [12, 12, 12, 6]
    assert all(a.to_ms >= b.to_ms for a, b in zip(summary.storms, summary.storms[1:], strict=False))
    assert summary.rebalances == len(day().rebalances) == sum(g.rebalances for g in summary.groups)
    assert summary.troubled[0].name == "orders-0" and summary.troubled[0].of == 66


@pytest.mark.parametrize(("pause_ms", "count"), [(100_000, 1), (170_000, 0)])
def test_five_rebalances_in_ten_minutes_are_a_storm(pause_ms: int, count: int) -> None:
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("a", "/a"), took_ms=1_000)
    for i in range(4):
        model.wait(pause_ms)
        model.join(Client(f"b{i}", "/b"), took_ms=1_000)
    told = list(reversed(together(model).rebalances))
    assert len(storms(told)) == count
    assert storms([replace(r, causes=(), cause="warmup-caught-up") for r in told]) == []


def test_what_is_asked_for_is_told_and_nothing_else() -> None:
    found = day()
    at = found.select(Selection(("payments",)))[1].at_ms
    assert [r.to_epoch for r in found.select(Selection(("payments",)))] == [3, 2, 1]
    assert [r.to_epoch for r in found.select(Selection(("payments",), since_ms=at))] == [3, 2]
    assert [r.to_epoch for r in found.select(Selection(("payments",), until_ms=at))] == [2, 1]
    assert {r.group_id for r in found.select(Selection(group_type="streams"))} == {"wordcount"}
    assert found.near("order-app") == ["orders-app"]
    assert found.near("ORDERS") == ["orders-app"]
    assert found.near("zzz") == []


def test_gold_without_any_row_has_nothing_to_tell() -> None:
    summary = summarise(gold(), Selection())
    assert (summary.rebalances, summary.groups, summary.advice, summary.from_ms) == (0, (), (), -1)
    assert gold().groups == []


def test_units_are_told_by_topic_in_ranges() -> None:
    rows = [
        {"group_type": "classic", "topic": "orders", "partition": n, "role": "active"} for n in (4, 0, 2, 3)
    ]
    assert units(rows) == "orders:0,2-4"
    tasks = [("1", 0, "standby"), ("0", 2, "active"), ("0", 1, "active")]
    streams = [{"group_type": "streams", "topic": t, "partition": n, "role": role} for t, n, role in tasks]
    assert units([*streams, streams[0] | {"role": "warmup", "partition": 4}]) == (
        "0_1,0_2, standby 1_0, warm-up 1_4"
    )


# the story of one -----------------------------------------------------------------------------


def two_members() -> Model:
    model = Model("app", "consumer", {"orders": 4})
    model.join(Client("ann", "/a"), took_ms=100)
    model.wait(59_900)
    model.join(Client("bob", "/b"), took_ms=3_000, slow="ann")
    return model


def test_a_story_is_told_step_by_step() -> None:
    found = together(two_members())
    (rebalance,) = find(found, "app", 2)
    story = tell(found, rebalance, Cost(2, 10))
    ann, bob = (next(f.name for f in story.followers if f.name.startswith(n)) for n in ("ann", "bob"))
    assert [(step.ms - START_MS - 60_000, step.text) for step in story.steps] == [
        (0, f"{bob} (client bob at /b) joined"),
        (0, f"{ann} gave up orders:2-3"),
        (1_500, "the coordinator had made the new target"),
        (3_000, f"{bob} got orders:2-3"),
        (3_000, f"{ann} had what it was to have"),
        (3_000, f"{bob} had what it was to have, after it had waited for {ann}"),
        (3_000, "every partition that was without one had an owner again: 2 partitions, 6.0 "
                "partition-seconds, "
                "orders:2 the longest with 3.0 s"),
        (3_000, "done: the group is Stable, 2 members"),
    ]  # fmt: skip
    assert story.sentence == sentence(rebalance, Cost(2, 10)) and story.unknown == ()


def test_who_warmed_a_task_up_goes_on_with_it_in_another_role() -> None:
    """It gives nothing up and gets nothing, but is active from then on."""
    model = Model("app", "streams", {"0": 2, "1": 2})
    model.join(Client("ann", "/a"), took_ms=100)
    model.wait(59_900)
    model.join(Client("bob", "/b"), took_ms=3_000)
    model.warmed_up("bob", 2_000)
    found = together(model)
    (rebalance,) = find(found, "app", 2)
    story = tell(found, rebalance)
    (bob,) = (f.name for f in story.followers if f.name.startswith("bob"))
    told = [(step.ms - START_MS - 60_000, step.text) for step in story.steps if step.text.startswith(bob)]
    assert told[1:3] == [
        (1_000, f"{bob} got warm-up 1_0,1_1"),
        (3_000, f"{bob} has 1_0,1_1 as active, and had them as warm-up"),
    ]


def test_lanes_show_who_gave_up_who_waited_and_who_came() -> None:
    found = together(two_members())
    story = tell(found, find(found, "app", 2)[0])
    ruler, *lanes = timeline(story, 60)
    assert ruler.split() == ["0", "3.0", "s"]
    by_name = {lane[:3]: lane for lane in lanes}
    assert "+" in by_name["bob"] and by_name["bob"].rstrip(DRAWN.settled).endswith("✓")
    assert by_name["ann"].index("✓") == by_name["bob"].index("✓"), "it is drawn to scale"
    assert by_name["ann"].count(DRAWN.settled) > by_name["bob"].count(DRAWN.settled)
    assert all(line.isascii() for line in timeline(story, 60, PLAIN)[1:] if "…" not in line)


def test_who_is_gone_has_a_lane_that_ends() -> None:
    model = two_members()
    model.wait(60_000)
    model.leave("bob", took_ms=2_000)
    found = together(model)
    lanes = timeline(tell(found, find(found, "app", 3)[0]), 60)
    (bob,) = (lane for lane in lanes if lane.startswith("bob"))
    assert bob.endswith("×") and "2 → 0" in bob


def test_a_rebalance_without_a_beginning_is_not_drawn_and_says_what_is_unknown() -> None:
    rows = two_members().rows
    rows["rebalance"][1] |= {"start_ms": None, "duration_ms": None, "unavailable_ms": None}
    for cause in rows["rebalance"][1]["causes"]:
        cause["at_ms"] = -1
    found = gold(**rows)
    story = tell(found, find(found, "app", 2)[0])
    assert timeline(story) == []
    assert story.unknown == ("when it began", "when its causes were", "how long partitions had no owner")


def test_of_many_members_those_who_stood_by_are_counted() -> None:
    model = Model("app", "consumer", {"orders": 30})
    model.join(*[Client(f"c{i:02}", "/x") for i in range(29)])
    model.wait(60_000)
    model.join(Client("late", "/y"))
    found = together(model)
    story = tell(found, find(found, "app", 2)[0])
    assert len(story.followers) == 20 and story.left_out == 10
    assert {f.name.split("-")[0] for f in story.followers if f.added or f.revoked} == {"late", "c00"}
    assert timeline(story)[-1] == "and 10 more, who had little to do with it"
