"""Rebalances inferred from Apache Kafka's own logs agree with the causes that Kafka reported."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from tests.groups.history.logs import LOGS, compacted, contradictions, golden, infer_rebalances

from konvene.records.audit import RebalanceValue

NEAR_MS = 1_000
"""Events of a group this shortly before an epoch bump are its causes."""

KINDS = {
    "member-joins": "member-joined",
    "static-member-joins": "member-joined",
    "member-left": "member-gone",
    "static-member-left": "member-gone",
    "session-expired": "member-gone",
    "regex-refreshed": "regex-refreshed",
    "classic-to-consumer": "upgraded",
}
"""Kafka's event names and our causes. Whether a member left or expired is not in the log."""


def vector_rows(name: str, file: str) -> list[Any]:
    return [json.loads(line) for line in (LOGS / name / file).read_text().splitlines()]


def reported_causes(name: str) -> dict[tuple[str, int], set[tuple[str, str | None]]]:
    """Return the causes that Kafka's broker reported, by group and epoch, with their members.

    The broker does not report topic changes, but then the hash differs. It does not report subscription
    changes either; those are in the story of the test driver, by client id.
    """
    changed = [row for row in vector_rows(name, "story.jsonl") if row["action"] == "subscription-change"]
    found: dict[tuple[str, int], set[tuple[str, str | None]]] = {}
    before: dict[str, list[Any]] = {}
    hashes: dict[str, int] = {}
    for event in vector_rows(name, "causes.jsonl"):
        group = event["group"]
        events = before.setdefault(group, [])
        if event["event"] != "epoch-bumped":
            events.append(event)
            continue
        causes = {
            (KINDS[e["event"]], e.get("member"))
            for e in events
            if e["event"] in KINDS and e["ms"] >= event["ms"] - NEAR_MS
        }
        if ("upgraded", None) in causes:
            causes = {(kind, member or event_member(events)) for kind, member in causes}
        if not causes:
            near = [r for r in changed if r["group"] == group and 0 <= event["ms"] - r["ms"] < NEAR_MS]
            causes = {("subscription-changed", r["actor"]) for r in near}
        if not causes:
            assert event["hash"] != hashes[group]
            causes = {("topic-metadata-changed", None)}
        found[group, event["epoch"]] = causes
        events.clear()
        hashes[group] = event["hash"]
    return found


def event_member(events: list[Any]) -> str:
    """Return the member that joined last."""
    return str([e for e in events if e["event"] == "member-joins"][-1]["member"])


def rows(name: str) -> list[tuple[str, RebalanceValue]]:
    return [row for partition, log in golden(name).items() for row in infer_rebalances(log, partition)]


@pytest.mark.parametrize("name, count", [("consumer", 33), ("transactions", 2)])
def test_each_epoch_has_the_causes_that_kafka_reported(name: str, count: int) -> None:
    """Every epoch bump, and no other row."""
    expected = reported_causes(name)
    found = {
        (group, row.epoch): {
            (c.kind, c.client_id if c.kind == "subscription-changed" else c.member_id) for c in row.causes
        }
        for group, row in rows(name)
        if row.group_type == "consumer" and row.state != "Stable"
    }
    agreed = [at for at, why in expected.items() if found[at] == why]
    assert found.keys() == expected.keys()
    assert len(agreed) == len(expected) == count, sorted(expected.keys() - set(agreed))


def test_the_next_generation_of_a_downgraded_group_has_that_cause() -> None:
    """The record of the generation that it takes over from its epoch is no rebalance."""
    rebalances = [
        (row.epoch, [(c.kind, c.client_id) for c in row.causes])
        for group, row in rows("consumer")
        if group == "roll" and row.group_type == "classic"
    ]
    assert rebalances == [
        (1, [("member-joined", "udo"), ("member-joined", "una")]),
        (8, [("downgraded", "ned"), ("member-gone", "ned")]),
        (9, [("member-gone", "ola")]),
    ]


def test_a_stable_row_has_all_causes_since_the_last_one() -> None:
    """For each computed target, with its duration and the member that converged last."""
    stable = {
        (group, row.epoch): row
        for group, row in rows("consumer")
        if row.group_type == "consumer" and row.state == "Stable"
    }
    targets = {
        (e["group"], e["epoch"])
        for e in vector_rows("consumer", "causes.jsonl")
        if e["event"] == "target-computed"
    }
    assert stable.keys() == targets
    row = stable["alive", 4]
    assert [(c.kind, c.client_id) for c in row.causes] == [
        ("member-joined", "kim"),
        ("member-joined", "moe"),
        ("regex-refreshed", None),
    ]
    assert (row.ended_ms - row.started_ms, row.ended_ms - row.joined_ms) == (2193, 1059)
    assert [(m.client_id, row.ended_ms - m.joined_ms) for m in row.members] == [
        ("moe", 1023),
        ("lea", 927),
        ("kim", 0),
    ]


# --- streams groups --------------------------------------------------------------------------------


class ReportedStreams(NamedTuple):
    """The events of a streams group that Kafka's broker reported."""

    raised: dict[tuple[str, int], set[tuple[str, str | None]]]
    """Causes by group and epoch, with their members."""
    targeted: dict[tuple[str, int], bool]
    """Epochs with a computed target, and whether the topology's topics existed."""


def reported_streams() -> ReportedStreams:
    """For a departure Kafka reports the member, not the epoch. It reports no changes of topics or settings,
    but then the computed hash differs."""
    found = ReportedStreams({}, {})
    epochs: dict[str, int] = {}
    ready: dict[str, bool] = {}
    pending_causes: dict[str, set[tuple[str, str | None]]] = {}
    hashes: dict[str, list[int]] = {}
    for event in vector_rows("streams", "causes.jsonl"):
        group, kind, member = event["group"], event["event"], event.get("member")
        why = pending_causes.setdefault(group, set())
        if kind in ("member-joins", "topology-initialized"):
            why.add(("member-joined" if kind == "member-joins" else kind, member))
        elif kind == "metadata-hash-computed":
            hashes.setdefault(group, []).append(event["hash"])
        elif kind in ("topology-ready", "internal-topics-missing", "topology-not-possible"):
            is_ready = kind == "topology-ready"
            if is_ready is not ready.get(group, False):
                why.add(("topology-ready" if is_ready else "topology-not-ready", None))
            ready[group] = is_ready
        elif kind in ("member-left", "session-expired"):
            epochs[group] += 1
            found.raised[group, epochs[group]] = {("member-gone", member)}
        elif kind == "epoch-bumped":
            joined = any(kind in ("member-joined", "topology-initialized") for kind, _ in why)
            if len(set(hashes[group][-2:])) == 2 and not joined:
                why.add(("topic-metadata-changed", None))
            epochs[group] = event["epoch"]
            found.raised[group, epochs[group]] = set(why)
            hashes[group] = hashes[group][-1:]
            why.clear()
        elif kind == "target-computed":
            found.targeted[group, event["epoch"]] = ready.get(group, False)
    return found


def streams_rows(*states: str) -> dict[tuple[str, int], RebalanceValue]:
    return {(group, row.epoch): row for group, row in rows("streams") if row.state in states}


def test_each_epoch_of_a_streams_group_has_the_causes_that_kafka_reported() -> None:
    """Every epoch bump, and no other row."""
    expected = reported_streams().raised
    found = {
        at: {(c.kind, c.member_id) for c in row.causes}
        for at, row in streams_rows("Assigning", "Empty").items()
    }
    agreed = [at for at, why in expected.items() if found.get(at) == why]
    assert found.keys() == expected.keys()
    assert len(agreed) == len(expected) == 16, {at: (found[at], expected[at]) for at in expected}


def test_streams_groups_become_stable_or_not_ready() -> None:
    """Once for each computed target."""
    found = {at: row.state for at, row in streams_rows("Stable", "NotReady").items()}
    assert found == {
        at: "Stable" if is_ready else "NotReady" for at, is_ready in reported_streams().targeted.items()
    }


def test_the_last_converged_member_and_the_moved_tasks() -> None:
    """A second instance joins: the first one revokes tasks, and gets standbys instead."""
    row = streams_rows("Stable")["wordcount", 6]
    assert [(c.kind, c.client_id) for c in row.causes] == [("member-joined", "bob-StreamThread-1-consumer")]
    assert (row.ended_ms - row.started_ms, row.ended_ms - row.joined_ms) == (3394, 3394)
    assert [(m.client_id, row.ended_ms - m.joined_ms) for m in row.members] == [
        ("ann-StreamThread-1-consumer", 966),
        ("bob-StreamThread-1-consumer", 0),
    ]
    moved = {at: row.moved for at, row in streams_rows("Stable", "NotReady").items()}
    assert {epoch: moved[name, epoch] for name, epoch in sorted(moved) if name == "wordcount"} == {
        2: (0, 0, 0), 3: (6, 0, 0), 4: (3, 3, 0), 5: (3, 0, 0), 6: (3, 3, 0), 7: (3, 0, 0), 8: (0, 0, 0)
    }  # fmt: skip
    assert {row.moved for row in streams_rows("Assigning", "Empty").values()} == {()}


# --- compaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classic", "consumer", "streams", "transactions"])
@pytest.mark.parametrize("tombstones", [True, False])
def test_compacted_logs_do_not_contradict_the_whole_log(name: str, tombstones: bool) -> None:
    """Each prefix compacted. Most rebalances after the compacted part are explained."""
    explained = 0
    for partition, log in golden(name).items():
        full = infer_rebalances(log, partition)
        for end in range(len(log) + 1):
            fewer = infer_rebalances(compacted(log, 0, end, tombstones), partition)
            assert contradictions(fewer, full) == [], (partition, end)
            explained += sum(c.kind != "unknown" for _, row in fewer for c in row.causes)
        assert infer_rebalances(compacted(log, 0, 0), partition) == full
    assert explained


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_logs_compacted_while_read_do_not_contradict_the_whole_log(name: str) -> None:
    for partition, log in golden(name).items():
        full = infer_rebalances(log, partition)
        for begin in range(0, len(log), 3):
            for end in range(begin + 1, len(log) + 1, 5):
                fewer = infer_rebalances(compacted(log, begin, end), partition)
                assert contradictions(fewer, full) == [], (partition, begin, end)


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_rows_without_batch_boundaries_do_not_contradict_the_whole_log(name: str) -> None:
    """Neighbouring records of the same time are taken for a batch: fewer causes, but no wrong ones."""
    for partition, log in golden(name).items():
        full = infer_rebalances(log, partition)
        assert contradictions(infer_rebalances(log, partition, batches=False), full) == []
