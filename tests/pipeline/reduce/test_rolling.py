"""Tables of a Kafka Streams group that changes to the streams protocol and back by rolling restarts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.groups.history.rolling import Roll
from tests.pipeline.reduce.reading import Rows, reduced
from tests.pipeline.reduce.test_replay import same_groups


def there_and_back() -> Rows:
    """Upgrade and downgrade a group: two threads with two tasks each, and a third thread that takes a task
    and leaves."""
    roll = Roll(5)
    for name in ("i1", "i2"):
        roll.life.advance(100)
        roll.add_classic(name)
        roll.act_repeatedly()
    roll.add_streams("i3")
    roll.act_repeatedly()
    roll._heartbeat_with(roll.walkers[0], -1)
    roll.walkers.clear()
    roll.act_repeatedly()
    return reduced(roll.log)


def test_partitions_and_tasks_count_as_kept_across_the_protocol_change() -> None:
    """Partitions that the classic leader assigned are the tasks of the streams group, and vice versa."""
    rows = [
        {key: row[key] for key in ("group_type", "from_epoch", "to_epoch", "cause", "state", "kept", "moved")}
        for row in there_and_back()["rebalance"]
    ]
    assert [tuple(row.values()) for row in rows] == [
        ("classic", 0, 1, "member-joined", "Stable", 0, 0),
        ("classic", 1, 2, "member-joined", "Stable", 2, 2),
        ("streams", 2, 3, "upgraded", "Stable", 3, 1),
        ("classic", 3, 4, "downgraded", "Stable", 3, 1),
    ]


def test_protocol_change_causes_no_gap_for_kept_units() -> None:
    """The only gap is that of the last streams member's task, until the next classic generation."""
    rows = there_and_back()
    gaps = [(row["topic"], row["from_member_id"], row["cause"]) for row in rows["unavailability"]]
    assert [gap for gap in gaps if gap[0] != "0"] == [("orders", "w3-1", "downgraded")]
    partitions = [row for row in rows["ownership"] if row["role"] == "active" and row["partition"] == 0]
    spans = sorted((row["from_ms"], row["to_ms"], row["topic"], row["member_id"]) for row in partitions)
    assert [topic for _, _, topic, _ in spans] == ["orders", "0", "orders"]
    assert [begin for begin, *_ in spans[1:]] == [end for _, end, *_ in spans[:-1]]
    assert {member_id for *_, member_id in spans} == {"i1-1"}


@pytest.mark.parametrize("seed", range(20))
def test_every_epoch_has_its_row(seed: int) -> None:
    """Epochs are consecutive across protocols; those that left no record are reported as missing."""
    roll = Roll(seed)
    roll.roll(60)
    rows: list[dict[str, Any]] = reduced(roll.log)["rebalance"]
    rows.sort(key=lambda row: row["base_offset"])
    begun = [row for row in rows if row["state"] != "Unknown"]
    assert len(begun) > 3
    for before, after in pairwise(begun):
        assert after["to_epoch"] == after["from_epoch"] + 1
        between = range(before["base_offset"] + 1, after["base_offset"] + 1)
        missing = [row for row in rows if row["state"] == "Unknown" and row["base_offset"] in between]
        last_epoch = before["to_epoch"] + sum(row["to_epoch"] - row["from_epoch"] for row in missing)
        assert after["from_epoch"] == last_epoch or before["state"] == "Empty", (before, after)


@pytest.mark.parametrize("seed", range(5))
def test_reducer_state_matches_the_shard(seed: int) -> None:
    roll = Roll(seed)
    roll.roll(40)
    assert same_groups(roll.log)
