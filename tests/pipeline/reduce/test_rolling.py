"""Tables of a group of Kafka Streams that goes over to the streams protocol and back while it runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.groups.history.rolling import Roll
from tests.pipeline.reduce.reading import Rows, reduced
from tests.pipeline.reduce.test_replay import same_groups


def there_and_back() -> Rows:
    """Two threads with two tasks each; a third one that is new takes a task of the second, and leaves."""
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


def test_what_members_keep_is_kept_under_another_name() -> None:
    """Partitions that a leader gave out are the tasks of the streams group, and the other way round."""
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


def test_nobody_is_without_a_unit_because_it_has_another_name() -> None:
    """But for what the last one had that spoke the new protocol: until the next generation nobody runs it."""
    rows = there_and_back()
    gaps = [(row["topic"], row["from_member_id"], row["cause"]) for row in rows["unavailability"]]
    assert [gap for gap in gaps if gap[0] != "0"] == [("orders", "w3-1", "downgraded")]
    partitions = [row for row in rows["ownership"] if row["role"] == "active" and row["partition"] == 0]
    spans = sorted((row["from_ms"], row["to_ms"], row["topic"], row["member_id"]) for row in partitions)
    assert [topic for _, _, topic, _ in spans] == ["orders", "0", "orders"]
    assert [begin for begin, *_ in spans[1:]] == [end for _, end, *_ in spans[:-1]]
    assert {who for *_, who in spans} == {"i1-1"}


@pytest.mark.parametrize("seed", range(20))
def test_every_epoch_has_its_row(seed: int) -> None:
    """One behind the other, whichever protocol the group spoke; what left no record is told to be missing."""
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
        told = before["to_epoch"] + sum(row["to_epoch"] - row["from_epoch"] for row in missing)
        assert after["from_epoch"] == told or before["state"] == "Empty", (before, after)


@pytest.mark.parametrize("seed", range(5))
def test_the_reducers_groups_are_a_brokers(seed: int) -> None:
    roll = Roll(seed)
    roll.roll(40)
    assert same_groups(roll.log)
