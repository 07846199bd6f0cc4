"""Gaps that a group leaves open when it completes a rebalance."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.reduce.reading import reduced
from tests.pipeline.reduce.test_members import T, assigns, current, joined, log

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.log import group_record, member_tombstones
from konvene.pipeline.answers.cost import Ends, costs, gap_part
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.sentences import sentence

U = Uuid(b"u" * 16)
NAMES = {str(T): "t"}
ANN = (10, [*joined("ann", 2), *assigns(2, ann=(0, 1)), current("ann", 2, 0, 1)])
BEA = (20, [*joined("bea", 3), *assigns(3, ann=(0, 1)), current("bea", 3), current("ann", 3, 0, 1)])
ANN_LEAVES = (30, [*member_tombstones("g", "ann"), group_record("g", 4, 5), *assigns(4)])
BEA_STAYS = (35, [current("bea", 4)])
ANN_IS_BACK = (100, [*joined("ann2", 5), *assigns(5, ann2=(0, 1))])
ANN_READS = (110, [current("ann2", 5, 0, 1), current("bea", 5)])


def rebalances_of(rows: dict[str, list[dict[str, Any]]]) -> dict[int, Rebalance]:
    return {row["to_epoch"]: Rebalance.from_row(row) for row in rows["rebalance"]}


def test_gap_outlasts_a_stable_group_and_counts_for_the_departure() -> None:
    """Bea does not read the topic, so the group is stable without an owner of its partitions."""
    rows = reduced(log(ANN, BEA, ANN_LEAVES, BEA_STAYS, ANN_IS_BACK, ANN_READS), names=NAMES)
    gaps = [(g["partition"], g["from_ms"], g["to_ms"], g["gap_ms"]) for g in rows["unavailability"]]
    assert gaps == [(0, 30, 110, 80), (1, 30, 110, 80)]
    assert {(g["epoch"], g["left_open_by"], g["evidence"]) for g in rows["unavailability"]} == {
        (4, 4, "observed")
    }
    by_epoch = rebalances_of(rows)
    assert {epoch: r.unavailable_ms for epoch, r in by_epoch.items()} == {2: 0, 3: 0, 4: 160, 5: 0}
    assert (by_epoch[5].added, by_epoch[5].moved) == (2, 0)
    parts = [p for g in rows["unavailability"] for r in by_epoch.values() if (p := gap_part(g, r))]
    assert [part.ms for part in parts] == [80, 80]
    cost = costs(by_epoch.values(), rows["unavailability"], Ends(()))
    assert {key[-1]: each.stopped for key, each in cost.items()} == {4: 2}
    assert "2 partitions were without an owner: 0.2 partition-seconds" in sentence(
        by_epoch[4], cost[by_epoch[4].key]
    )


def test_row_waits_for_the_end_of_its_gaps_and_the_end_of_the_log_shows_what_is_known() -> None:
    """Until a member reads the partitions again, they are unassigned, not unavailable."""
    rows = reduced(log(ANN, BEA, ANN_LEAVES, BEA_STAYS), names=NAMES)
    assert rows["unavailability"] == []
    departure = rebalances_of(rows)[4]
    assert (departure.converged, departure.unavailable_ms) == (True, 0)
    assert "2 partitions unassigned now" in sentence(departure)
    assert "without an owner" not in sentence(departure)


def test_partition_that_its_owner_gave_up_is_not_unavailable() -> None:
    """Ann stays in the group and unsubscribes for a while."""
    rows = reduced(
        log(
            ANN, (30, [group_record("g", 3, 6), *assigns(3), current("ann", 3)]),
            (90, [group_record("g", 4, 5), *assigns(4, ann=(0, 1)), current("ann", 4, 0, 1)]),
        ), names=NAMES,
    )  # fmt: skip
    assert rows["unavailability"] == []
    assert {r.unavailable_ms for r in rebalances_of(rows).values()} == {0}


def test_time_of_an_empty_group_counts_for_no_rebalance() -> None:
    """The table has it; a group without members may have been stopped on purpose."""
    rows = reduced(
        log(ANN, (30, [*member_tombstones("g", "ann"), group_record("g", 3, 5)]),
            (90, [*joined("bob", 4), *assigns(4, bob=(0, 1))]), (95, [current("bob", 4, 0, 1)])),
        names=NAMES,
    )  # fmt: skip
    assert [(g["gap_ms"], g["epoch"], g["left_open_by"]) for g in rows["unavailability"]] == [
        (65, 3, None)
    ] * 2
    assert {epoch: r.unavailable_ms for epoch, r in rebalances_of(rows).items()} == {2: 0, 3: 0, 4: 10}


@pytest.mark.parametrize("between", [0, 1, 3])
def test_rebalances_in_between_do_not_count_the_gap_again(between: int) -> None:
    """Other rebalances of the group, completed and interrupted ones, leave it to the first one."""
    others: list[Any] = []
    for i in range(between):
        epoch = 5 + i
        others.append((40 + 10 * i, [group_record("g", epoch, 7 + i), *assigns(epoch)]))
        if i % 2:
            others.append((45 + 10 * i, [current("bea", epoch)]))
    last = 5 + between
    back = (100, [*joined("ann2", last), *assigns(last, ann2=(0, 1))])
    reads = (110, [current("ann2", last, 0, 1), current("bea", last)])
    rows = reduced(log(ANN, BEA, ANN_LEAVES, BEA_STAYS, *others, back, reads), names=NAMES)
    assert {epoch: r.unavailable_ms for epoch, r in rebalances_of(rows).items() if r.unavailable_ms} == {
        4: 160
    }
    cost = costs(rebalances_of(rows).values(), rows["unavailability"], Ends(()))
    assert [key[-1] for key in cost] == [4]
