"""Rows of members in a rebalance, ownership intervals, gaps, and possible departure causes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.history.logs import Batch, Entry
from tests.pipeline.reduce.reading import golden_rows, reduced

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import Member
from konvene.groups.consumer.log import (
    assignment_record,
    current_record,
    group_record,
    member_record,
    member_tombstones,
    target_record,
)
from konvene.pipeline.reduce.diagnosis import possible_departure_causes
from konvene.records.coordinator import Record

LEFT, EXPIRED, LATE, NO_SYNC = "member-left", "session-expired", "rebalance-timeout", "sync-timeout"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"may_time_out": False, "may_miss_sync": False}, [LEFT, EXPIRED]),
        ({"seen_ms": 0, "session_timeout_ms": 101}, [LEFT]),
        ({"seen_ms": 0, "session_timeout_ms": 100}, [LEFT, EXPIRED]),
        ({"session_timeout_ms": 101}, [LEFT, EXPIRED]),
        ({"seen_ms": 0, "rebalance_timeout_ms": 101, "may_time_out": True}, [LEFT, EXPIRED]),
        ({"seen_ms": 0, "rebalance_timeout_ms": 100, "may_time_out": True}, [LEFT, EXPIRED, LATE]),
        ({"seen_ms": 0, "rebalance_timeout_ms": 100, "may_miss_sync": True}, [LEFT, EXPIRED, NO_SYNC]),
        ({"rebalance_timeout_ms": 9_999, "may_time_out": True}, [LEFT, EXPIRED, LATE]),
    ],
)
def test_departure_causes_are_narrowed_by_timeouts(options: dict[str, Any], expected: list[str]) -> None:
    """A timeout that equals the elapsed time to the millisecond is possible."""
    arguments = {"absent_ms": 100, "may_time_out": False, "may_miss_sync": False} | options
    assert possible_departure_causes(**arguments).split("|") == expected


def row_of(rows: list[dict[str, Any]], group: str, epoch: int, client: str) -> dict[str, Any]:
    (row,) = [
        r for r in rows if (r["group_id"], r["to_epoch"], r["client_id"]) == (group, epoch, client)
    ]  # fmt: skip
    return row


def test_member_rows_of_kafkas_log_name_the_awaited_member() -> None:
    """A second member joins: the first revokes half of its partitions, and the second waits for them."""
    rows = golden_rows("consumer")["rebalance_member"]
    ann, bob = row_of(rows, "basic", 3, "ann"), row_of(rows, "basic", 3, "bob")
    assert (ann["part"], ann["states"]) == ("stayed", ["UNREVOKED_PARTITIONS", "STABLE"])
    assert (bob["part"], bob["states"]) == ("joined", ["UNRELEASED_PARTITIONS", "STABLE"])
    assert (bob["waited_for"], ann["waited_for"]) == ([ann["member_id"]], [])
    assert (ann["units_before"], ann["revoked"], ann["units_after"]) == (4, 2, 2)
    assert (bob["units_before"], bob["added"], bob["units_after"]) == (0, 2, 2)
    assert ann["acknowledged_ms"] < bob["acknowledged_ms"] == 1085


def test_tasks_have_roles_in_a_log_of_kafka() -> None:
    """Standby tasks are owned as well, but cause no gaps."""
    rows = golden_rows("streams")
    assert {row["role"] for row in rows["ownership"]} == {"active", "standby"}
    assert {row["role"] for row in rows["unavailability"]} == {"active"}
    states = {state for row in rows["rebalance_member"] for state in row["states"]}
    assert {"STABLE", "UNREVOKED_TASKS", "UNRELEASED_TASKS"} >= states >= {"STABLE", "UNREVOKED_TASKS"}


T = Uuid(b"t" * 16)
UNREVOKED, UNRELEASED = MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def log(*batches: tuple[int, list[Record]]) -> list[Batch]:
    """Return batches of the given records at the given times."""
    found, start = [], 0
    for ms, records in batches:
        entries = tuple(Entry(start + i, ms, r.key, r) for i, r in enumerate(records))
        found.append(Batch(start, start + len(records) - 1, entries))
        start += len(records)
    return found


def joined(name: str, epoch: int, instance: str | None = None) -> list[Record]:
    return [member_record("g", Member(name, instance, client_id=f"c-{name}")), group_record("g", epoch, 5)]


def current(
    name: str, epoch: int, *partitions: int, owes: tuple[int, ...] = (), state: Any = MemberState.STABLE
) -> Record:
    given, pending = ({T: dict.fromkeys(some, 1)} if some else {} for some in (partitions, owes))
    return current_record("g", name, CurrentAssignment(state, epoch, epoch - 1, given, pending))


def assigns(epoch: int, **wanted: tuple[int, ...]) -> list[Record]:
    targets = [target_record("g", name, {T: some} if some else {}) for name, some in wanted.items()]
    return [*targets, assignment_record("g", epoch, 0)]


FIRST = (10, [*joined("a", 2), *assigns(2, a=(0, 1)), current("a", 2, 0, 1)])
SECOND = (20, [*joined("b", 3), *assigns(3, a=(0,), b=(1,)), current("b", 3, state=UNRELEASED)])


def test_handover_has_a_gap_between_revocation_and_assignment() -> None:
    """A partition pending revocation is owned until its member acknowledges the revocation."""
    rows = reduced(
        log(
            FIRST, SECOND, (30, [current("a", 2, 0, owes=(1,), state=UNREVOKED)]), (45, [current("a", 3, 0)]),
            (60, [current("b", 3, 1)]),
        ), names={str(T): "t"},
    )  # fmt: skip
    intervals = [
        (r["partition"], r["member_id"], r["from_ms"], r["to_ms"], r["from_epoch"], r["to_epoch"])
        for r in rows["ownership"]
    ]
    assert intervals == [(1, "a", 10, 45, 2, 3), (0, "a", 10, None, 2, None), (1, "b", 60, None, 3, None)]
    (gap,) = rows["unavailability"]
    assert (gap["topic"], gap["partition"], gap["from_ms"], gap["to_ms"], gap["gap_ms"]) == (
        "t",
        1,
        45,
        60,
        15,
    )
    assert (gap["from_member_id"], gap["to_member_id"], gap["epoch"]) == ("a", "b", 3)
    assert (gap["base_offset"], gap["cause"], gap["evidence"]) == (5, "member-joined", "observed")
    last = rows["rebalance"][-1]
    assert (last["start_ms"], last["target_ms"], last["end_ms"], last["duration_ms"]) == (20, 20, 60, 40)
    assert (last["unavailable_ms"], last["churn_ratio"], last["last_member_id"]) == (15, 0.5, "b")


def test_partition_without_target_is_not_unavailable() -> None:
    """The group becomes stable without the partition."""
    rows = reduced(log(FIRST, (20, [group_record("g", 3, 6), *assigns(3, a=(0,)), current("a", 3, 0)])))
    assert rows["unavailability"] == []
    assert (rows["rebalance"][-1]["revoked"], rows["rebalance"][-1]["unavailable_ms"]) == (1, 0)


def test_gap_of_a_departed_members_partitions_has_its_departure_as_cause() -> None:
    """The gap counts for the rebalance of the departure, not for the superseded one."""
    departure = [*member_tombstones("g", "a"), group_record("g", 4, 5)]
    rows = reduced(log(FIRST, SECOND, (30, departure), (50, [*assigns(4, b=(0, 1)), current("b", 4, 0, 1)])))
    second, third = rows["rebalance"][1:]
    assert (second["superseded_by"], second["members"], second["units"], second["revoked"]) == (4, 2, 2, 0)
    assert (third["gone"], third["moved"], third["revoked"], third["least_moves"]) == (1, 2, 2, 2)
    assert (third["unavailable_ms"], third["cause"]) == (40, f"{LEFT}|{EXPIRED}")
    assert {(gap["epoch"], gap["from_ms"], gap["to_ms"]) for gap in rows["unavailability"]} == {(4, 30, 50)}


def test_static_member_keeps_its_partitions_under_a_new_member_id() -> None:
    """Under its new member id nothing has moved, although there are two intervals."""
    swap = [
        *member_tombstones("g", "a"), member_record("g", Member("z", "i", client_id="c-z")),
        group_record("g", 3, 6), *assigns(3, z=(0,)), current("z", 3, 0),
    ]  # fmt: skip
    rows = reduced(log((10, [*joined("a", 2, "i"), *assigns(2, a=(0,)), current("a", 2, 0)]), (20, swap)))
    last = rows["rebalance"][-1]
    assert (last["joined"], last["gone"], last["kept"], last["moved"], last["members"]) == (0, 0, 1, 0, 1)
    assert [(r["member_id"], r["from_ms"], r["to_ms"]) for r in rows["ownership"]] == [
        ("a", 10, 20), ("z", 20, None),
    ]  # fmt: skip
    assert rows["unavailability"] == []
    assert [(r["member_id"], r["part"]) for r in rows["rebalance_member"]][-1] == ("z", "stayed")


def test_rebalance_timeout_is_possible_once_it_has_elapsed() -> None:
    """A departure before the rebalance timeout has elapsed cannot be caused by it."""
    member = member_record("g", Member("a", client_id="c-a", rebalance_timeout_ms=100))
    for departed_ms, late in ((129, False), (130, True)):
        rows = reduced(
            log(
                (10, [member, group_record("g", 2, 5), *assigns(2, a=(0, 1)), current("a", 2, 0, 1)]), SECOND,
                (30, [current("a", 2, 0, owes=(1,), state=UNREVOKED)]),
                (departed_ms, [*member_tombstones("g", "a"), group_record("g", 4, 5)]),
            )
        )  # fmt: skip
        assert (LATE in rows["rebalance"][-1]["cause"]) is late


def test_rows_grow_linearly_with_the_group() -> None:
    """Members acknowledge one after another; rows grow linearly with them."""
    sizes = {}
    for count in (50, 500):
        names = [f"m{i}" for i in range(count)]
        start = [r for name in names for r in joined(name, 2)[:1]] + [group_record("g", 2, 5)]
        wanted = {name: (i,) for i, name in enumerate(names)}
        batches = [(10, [*start, *assigns(2, **wanted)])]
        batches += [(20 + i, [current(name, 2, i)]) for i, name in enumerate(names)]
        rows = reduced(log(*batches))
        (row,) = rows["rebalance"]
        assert (row["members"], row["added"], row["converged"]) == (count, count, True)
        sizes[count] = sum(len(some) for some in rows.values())
    assert sizes[500] - 1 == 10 * (sizes[50] - 1)


@pytest.mark.parametrize("again", [False, True])
def test_topic_that_is_deleted_and_created_again_is_another_topic(again: bool) -> None:
    """Its partitions are revoked and added, although the name and the numbers are the same."""
    new = Uuid(b"n" * 16) if again else T
    given = {new: dict.fromkeys((0, 1), 1)}
    recreated = [
        group_record("g", 3, 6), target_record("g", "a", {new: (0, 1)}), assignment_record("g", 3, 0),
        current_record("g", "a", CurrentAssignment(MemberState.STABLE, 3, 2, given, {})),
    ]  # fmt: skip
    rows = reduced(log(FIRST, (30, recreated)), names={str(T): "t", str(new): "t"})
    last = rows["rebalance"][-1]
    expected = (2, 0, 2, 2, 0) if again else (2, 2, 0, 0, 0)
    assert (last["units"], last["kept"], last["revoked"], last["added"], last["moved"]) == expected
    assert {row["topic"] for row in rows["ownership"]} == {"t"}
    assert len(rows["ownership"]) == (4 if again else 2)
    assert rows["unavailability"] == []
