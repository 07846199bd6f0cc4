"""Rows of the views, from descriptions and from rows of the pipeline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.console.logs import golden_history

from konvene.client.admin.heartbeats import Heartbeats
from konvene.console.views.group import GroupView
from konvene.console.views.groups import HOUR_MS, hourly
from konvene.console.views.lanes import MAX_LANES, lanes
from konvene.console.views.members import heartbeat_times, names_of


def member(
    member_id: str, client_id: str = "app", instance_id: str | None = None, age_ms: int | None = None
) -> Any:
    heartbeats = None if age_ms is None else Heartbeats(5_000, False, age_ms)
    return SimpleNamespace(
        member_id=member_id, client_id=client_id, instance_id=instance_id, heartbeats=heartbeats
    )


def test_members_are_named_by_instance_then_by_client_and_distinguished_by_id() -> None:
    members = [member("m1", "app", "blue"), member("m2", "app"), member("m3", "other"), member("m4", "")]
    assert names_of(members) == {"m1": "blue", "m2": "app (m2)", "m3": "other", "m4": "m4"}


def test_a_heartbeat_time_changes_with_the_heartbeat_alone() -> None:
    """The age in a description varies with the time that the description takes."""
    first = heartbeat_times([member("m", age_ms=1_000), member("n")], 10_000, {})
    assert first == {"m": 9_000}
    assert heartbeat_times([member("m", age_ms=1_480)], 10_500, first) == {"m": 9_000}
    assert heartbeat_times([member("m", age_ms=20)], 12_000, first) == {"m": 11_980}


def test_rebalances_are_counted_by_hour() -> None:
    now_ms = 100 * HOUR_MS
    times = [
        now_ms,
        now_ms - 1,
        now_ms - HOUR_MS,
        now_ms - 23 * HOUR_MS,
        now_ms - 24 * HOUR_MS - 1,
        -1,
        now_ms + 1,
    ]
    hours = hourly(times, now_ms)
    assert (hours[-1], hours[-2], hours[0], sum(hours)) == (2, 1, 1, 4)


def interval(
    partition: int, from_ms: int, to_ms: int | None, owner: str, role: str = "active"
) -> dict[str, Any]:
    return {
        "topic": "t", "partition": partition, "role": role, "from_ms": from_ms, "to_ms": to_ms,
        "instance_id": None, "client_id": owner, "member_id": owner, "group_type": "consumer",
    }  # fmt: skip


def test_a_lane_has_the_owners_of_a_partition_since_a_time() -> None:
    owned = [interval(0, 5, 20, "a"), interval(0, 25, None, "b"), interval(0, 0, 4, "old")]
    gaps = [{**interval(0, 20, 25, "a")}, {**interval(1, 30, None, "a")}, {**interval(0, 1, 2, "old")}]
    found, _ = lanes(owned, gaps, since_ms=10)
    assert found["t:0"]["spans"] == [[5, 20, "a"], [25, None, "b"]]
    assert found["t:0"]["gaps"] == [[20, 25]]
    assert found["t:1"] == {"name": "t:1", "role": "active", "order": 1, "spans": [], "gaps": [[30, None]]}


def test_lanes_with_most_owners_are_drawn_in_their_order() -> None:
    owned = [interval(partition, 0, None, "a") for partition in range(MAX_LANES + 5)]
    owned += [interval(MAX_LANES + 3, -9, -1, "b"), interval(0, -9, -1, "b")]
    found, left_out = lanes(owned, [], since_ms=-10)
    assert list(found) == [*(f"t:{p}" for p in range(MAX_LANES - 1)), f"t:{MAX_LANES + 3}"]
    assert left_out == 5
    assert [row["order"] for row in found.values()] == list(range(MAX_LANES))


def test_owners_with_the_same_client_id_have_names_of_their_own() -> None:
    """Java's clients have the same client id in each process; one that restarts stays the same owner."""
    ids = [
        "consumer-g-1-5b2c0d4e-0000-4000-8000-000000000001",
        "consumer-g-1-9f1a2b3c-0000-4000-8000-000000000002",
    ]
    rows = [{**interval(n, 0, None, "consumer-g-1"), "member_id": ids[n]} for n in (0, 1)]
    found, _ = lanes(rows, [], since_ms=0)
    assert [row["spans"][0][2] for row in found.values()] == ["consumer-g-1-5b2c…", "consumer-g-1-9f1a…"]
    rows[0]["to_ms"], rows[1]["from_ms"] = 10, 10
    found, _ = lanes(rows, [], since_ms=0)
    assert [row["spans"][0][2] for row in found.values()] == ["consumer-g-1", "consumer-g-1"]


@pytest.mark.parametrize("role", ["shared", "standby"])
def test_owners_of_the_same_time_have_lanes_of_their_own(role: str) -> None:
    found, _ = lanes([interval(0, 0, None, "a", role), interval(0, 1, None, "b", role)], [], since_ms=0)
    assert [row["spans"] for row in found.values()] == [[[0, None, "a"]], [[1, None, "b"]]]
    assert len(found) == 2


def test_what_the_logs_contain_is_computed_again_only_after_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    history, _ = golden_history("consumer")
    group_id = next(group for group in history.group_ids if history.rebalances_of(group))
    watch: Any = SimpleNamespace(tail=SimpleNamespace(history=history))
    view = GroupView(watch, {"group": group_id})
    monkeypatch.setattr("konvene.console.views.group.wall_clock_ms", lambda: 0)
    first = view._history_sections()
    again = view._history_sections()
    assert first["rebalances"] and first["rebalances"] is again["rebalances"]
    other, _ = golden_history("consumer")  # as after a reset: the same versions in another history
    watch.tail.history = other
    assert view._history_sections()["rebalances"] is not first["rebalances"]
