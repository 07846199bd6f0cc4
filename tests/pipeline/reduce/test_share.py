"""Share groups in the reducer: Kafka's golden log, logs of the real coordinator, and shared partitions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.history.logs import Batch, Entry, compacted, golden
from tests.groups.history.share_walking import ShareWalk
from tests.pipeline.reduce.reading import Rows, feed, final, named, names_of, reduced

from konvene.codec.uuid import Uuid
from konvene.groups.share import log as share
from konvene.groups.share.current_assignment import CurrentAssignment
from konvene.groups.share.group import Member, ShareGroup
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.sweeps.simulated_log import audit_rows
from konvene.records.coordinator import Record

INFERRED_DEPARTURES = {
    "member-left": "member-left|session-expired",
    "session-expired": "member-left|session-expired",
}


# --- Kafka's log ----------------------------------------------------------------------------------


def test_reducer_state_matches_kafkas_final_description() -> None:
    """Groups, epochs, members and assignments match Kafka's final description; there are no other groups."""
    names = names_of("share")
    found: dict[str, Any] = {}
    for partition, log in golden("share").items():
        reducer = PartitionReducer("c", partition)
        feed(reducer, log)
        groups = {e.record.key.group_id for batch in log for e in batch.entries if e.record is not None}
        for group_id in sorted(groups):
            group = reducer.group(group_id)
            if group is not None:
                found[group_id] = description(group, names)
    expected = final("share")["groups"]
    assert found == {name: {k: group[k] for k in found[name]} for name, group in expected.items()}
    assert found.keys() == {"alive", "picky", "workers"}


def description(group: ShareGroup, names: dict[str, str]) -> dict[str, Any]:
    return {
        "state": str(group.state),
        "groupEpoch": group.epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "members": [
            {
                "memberId": member.member_id,
                "clientId": member.client_id,
                "memberEpoch": member.current.epoch,
                "assignment": sorted(
                    f"{names[str(topic)]}-{p}"
                    for topic, some in member.current.assigned.items()
                    for p in some
                ),
            }
            for member in sorted(group.members.values(), key=lambda m: m.client_id)
        ],
    }


# --- our own coordinator --------------------------------------------------------------------------


def walked(seed: int, steps: int = 80) -> tuple[Rows, Rows, str]:
    """Return rows of a random log with its audit and without it, and the audit rows that were not used."""
    walk = ShareWalk(seed)
    walk.walk(steps)
    audit = audit_rows("c", walk.explained, walk.first)
    rows, left = [], ""
    for audit_input in (audit, ()):
        reducer = PartitionReducer("c", 0, audit_input)
        feed(reducer, walk.log)
        reducer.finish()
        left = left or repr(reducer._audit._rows)
        rows.append(named(reducer.drain()))
    return rows[0], rows[1], left


@pytest.mark.parametrize("seed", range(20))
def test_audit_changes_causes_and_evidence_only(seed: int) -> None:
    """All audit rows are used; apart from the evidence, rows with and without the audit have the same
    causes and members."""
    observed, inferred, left = walked(seed)
    assert {row["evidence"] for row in observed["rebalance"]} == {"observed"}
    assert {row["evidence"] for row in inferred["rebalance"]} == {"inferred"}
    assert left == "{}"
    assert len(observed["rebalance"]) == len(inferred["rebalance"])
    for one, other in zip(observed["rebalance"], inferred["rebalance"], strict=True):
        assert [(INFERRED_DEPARTURES.get(c["kind"], c["kind"]), c["member_id"]) for c in one["causes"]] == [
            (c["kind"], c["member_id"]) for c in other["causes"]
        ]
        apart = {"evidence", "cause", "causes", "reason", "cause_topic", "audit_offset"}
        apart |= {"silent_units", "silent_ms", "session_timeout_ms"}
        assert {k: v for k, v in one.items() if k not in apart} == {
            k: v for k, v in other.items() if k not in apart
        }
    assert observed["ownership"] == inferred["ownership"]
    assert observed["rebalance_member"] == inferred["rebalance_member"]


@pytest.mark.parametrize("seed", range(20))
def test_counts_add_up(seed: int) -> None:
    """Unit counts of each rebalance match the sums over its members."""
    rows, _, _ = walked(seed)
    members: dict[Any, list[dict[str, Any]]] = {}
    for m in rows["rebalance_member"]:
        members.setdefault((m["group_id"], m["base_offset"], m["to_epoch"]), []).append(m)
        assert m["units_before"] + m["added"] - m["revoked"] == m["units_after"]
        assert m["units_before"] >= 0
        assert m["waited_for"] == []
    for row in rows["rebalance"]:
        member_rows = members.get((row["group_id"], row["base_offset"], row["to_epoch"]), [])
        assert row["kept"] + row["moved"] + row["added"] == row["units"]
        assert min(row["kept"], row["moved"], row["added"]) >= 0
        assert row["least_moves"] <= row["moved"]
        assert row["revoked"] == sum(m["revoked"] for m in member_rows)
        assert row["gone"] == sum(m["part"] == "gone" for m in member_rows)


@pytest.mark.parametrize("seed", range(20))
def test_ownership_matches_the_records_at_each_offset(seed: int) -> None:
    """Ownership intervals match the assignments in the records after every batch."""
    walk = ShareWalk(seed)
    walk.walk(60)
    rows = reduced(walk.log)
    assigned: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for batch in walk.log:
        for entry in batch.entries:
            apply_assignment(assigned, entry.record)
        at = batch.last_offset
        owned: dict[tuple[str, str], set[tuple[str, int]]] = {}
        for row in rows["ownership"]:
            if row["from_offset"] <= at and (row["to_offset"] is None or row["to_offset"] > at):
                owned.setdefault((row["group_id"], row["member_id"]), set()).add(
                    (row["topic"], row["partition"])
                )
        assert owned == {member_key: units for member_key, units in assigned.items() if units}
    assert {row["role"] for row in rows["ownership"]} <= {"shared"}


def apply_assignment(assignments: dict[tuple[str, str], set[tuple[str, int]]], record: Record) -> None:
    key: Any = record.key
    if type(key).__name__ != "ShareGroupCurrentMemberAssignmentKey":
        return
    value: Any = record.value
    topics = () if value is None else value.assigned_partitions
    assignments[key.group_id, key.member_id] = {(str(t.topic_id), p) for t in topics for p in t.partitions}


@pytest.mark.parametrize("seed", range(6))
def test_compaction_yields_missing_evidence_but_no_wrong_cause(seed: int) -> None:
    """All rows with evidence other than missing have the cause that the full log gives."""
    walk = ShareWalk(seed)
    walk.walk(60)
    whole = {(r["group_id"], r["to_epoch"], r["base_offset"]): r for r in reduced(walk.log)["rebalance"]}
    for end in range(1, len(walk.log), 5):
        for row in reduced(compacted(walk.log, 0, end))["rebalance"]:
            if row["evidence"] != "missing":
                true = whole[row["group_id"], row["to_epoch"], row["base_offset"]]
                assert (row["cause"], row["member_id"]) == (true["cause"], true["member_id"])


# --- partitions shared by several members ---------------------------------------------------------

JOBS = Uuid(b"j" * 16)


def member(name: str) -> Record:
    return share.member_record("g", Member(name, client_id=name, topics=frozenset({"jobs"})))


def epoch(number: int) -> Record:
    return share.group_record("g", number, 7)


def target(number: int) -> Record:
    return share.assignment_record("g", number, 1)


def has(name: str, number: int, *partitions: int) -> Record:
    assigned = {JOBS: partitions} if partitions else {}
    return share.current_record("g", name, CurrentAssignment(number, number - 1, assigned))


def rows_of(*batches: list[Record]) -> Rows:
    """Reduce batches written one second apart."""
    log, offset = [], 0
    for number, batch in enumerate(batches):
        entries = tuple(Entry(offset + i, 1000 * number, r.key, r) for i, r in enumerate(batch))
        log.append(Batch(offset, offset + len(batch) - 1, entries))
        offset += len(batch)
    return reduced(log, names={str(JOBS): "jobs"})


ALONE = [member("a"), epoch(2), target(2), has("a", 2, 0, 1)]
COUNTED = ("units", "kept", "moved", "revoked", "added", "least_moves", "churn_ratio", "unavailable_ms")


def counts(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in COUNTED if row[name]}


def test_shared_partition_counts_once_per_member() -> None:
    """A second reader of a partition that its first reader keeps is not a move."""
    rows = rows_of(ALONE, [member("b"), epoch(3), target(3), has("b", 3, 0, 1)], [has("a", 3, 0, 1)])
    assert counts(rows["rebalance"][-1]) == {"units": 4, "kept": 2, "added": 2}
    assert rows["unavailability"] == []
    assert [(r["member_id"], r["partition"], r["to_ms"]) for r in rows["ownership"]] == [
        ("a", 0, None), ("b", 0, None), ("a", 1, None), ("b", 1, None),
    ]  # fmt: skip


def test_partition_revoked_by_one_member_and_added_to_another_is_moved() -> None:
    rows = rows_of(ALONE, [member("b"), epoch(3), target(3), has("b", 3, 1)], [has("a", 3, 0)])
    assert counts(rows["rebalance"][-1]) == {
        "units": 2, "kept": 1, "moved": 1, "revoked": 1, "least_moves": 1, "churn_ratio": 0.5,
    }  # fmt: skip


def test_partition_is_available_while_one_reader_remains() -> None:
    """One of two readers leaves; then the other leaves, and a third joins."""
    both = [member("b"), epoch(3), target(3), has("b", 3, 0)]
    rows = rows_of(
        ALONE, both, [has("a", 3, 0, 1)],
        [*share.member_tombstones("g", "a"), epoch(4)], [target(4), has("b", 4, 0, 1)],
        [*share.member_tombstones("g", "b"), epoch(5), target(5)],
        [member("c"), epoch(6), target(6), has("c", 6, 0, 1)],
    )  # fmt: skip
    gaps = [(r["partition"], r["from_ms"], r["to_ms"], r["epoch"]) for r in rows["unavailability"]]
    assert gaps == [(1, 3000, 4000, 4), (0, 5000, 6000, 5), (1, 5000, 6000, 5)]
    left = rows["rebalance"][2]
    assert (left["to_epoch"], left["state"], left["unavailable_ms"]) == (4, "Stable", 1000)
    assert counts(left) == {
        "units": 2, "kept": 1, "moved": 1, "revoked": 2, "least_moves": 1, "churn_ratio": 1 / 3,
        "unavailable_ms": 1000,
    }  # fmt: skip


def test_partition_returned_to_its_previous_reader_is_kept() -> None:
    """No other member had the partition in between, so it is not added either."""
    rows = rows_of(
        ALONE, [member("b"), epoch(3), target(3)], [has("a", 3, 0), epoch(4)],
        [target(4), has("a", 4, 0, 1)], [has("b", 4)],
    )  # fmt: skip
    last = rows["rebalance"][-1]
    assert (last["to_epoch"], last["converged"]) == (4, True)
    assert counts(last) == {"units": 2, "kept": 2, "unavailable_ms": 1000}
