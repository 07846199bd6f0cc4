"""What is inferred from Apache Kafka's own logs agrees with what that Kafka said while it wrote them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from tests.groups.history.logs import LOGS, compacted, contradictions, golden, told

from konvene.records.audit import RebalanceValue

NEAR_MS = 1_000
"""What Kafka said of a group so shortly before it raised the epoch is why."""

KINDS = {
    "member-joins": "member-joined",
    "static-member-joins": "member-joined",
    "member-left": "member-gone",
    "static-member-left": "member-gone",
    "session-expired": "member-gone",
    "regex-refreshed": "regex-refreshed",
    "classic-to-consumer": "upgraded",
}
"""Kafka's words and ours. How a member went the log does not say."""


def said(name: str, file: str) -> list[Any]:
    return [json.loads(line) for line in (LOGS / name / file).read_text().splitlines()]


def stated(name: str) -> dict[tuple[str, int], set[tuple[str, str | None]]]:
    """By group and epoch: why, and the member, as Kafka's broker told it.

    Of topics that change it says nothing, but the hash differs then. Of a subscription that changes it says
    nothing at all: the story of who drove the clients does, by the client's id."""
    changed = [row for row in said(name, "story.jsonl") if row["action"] == "subscription-change"]
    found: dict[tuple[str, int], set[tuple[str, str | None]]] = {}
    before: dict[str, list[Any]] = {}
    hashes: dict[str, int] = {}
    for event in said(name, "causes.jsonl"):
        group = event["group"]
        heard = before.setdefault(group, [])
        if event["event"] != "epoch-bumped":
            heard.append(event)
            continue
        why = {
            (KINDS[e["event"]], e.get("member"))
            for e in heard
            if e["event"] in KINDS and e["ms"] >= event["ms"] - NEAR_MS
        }
        if ("upgraded", None) in why:
            why = {(kind, who or event_member(heard)) for kind, who in why}
        if not why:
            near = [r for r in changed if r["group"] == group and 0 <= event["ms"] - r["ms"] < NEAR_MS]
            why = {("subscription-changed", r["actor"]) for r in near}
        if not why:
            assert event["hash"] != hashes[group]
            why = {("topic-metadata-changed", None)}
        found[group, event["epoch"]] = why
        heard.clear()
        hashes[group] = event["hash"]
    return found


def event_member(heard: list[Any]) -> str:
    """The member that joined last."""
    return str([e for e in heard if e["event"] == "member-joins"][-1]["member"])


def rows(name: str) -> list[tuple[str, RebalanceValue]]:
    return [row for partition, log in golden(name).items() for row in told(log, partition)]


@pytest.mark.parametrize("name, count", [("consumer", 33), ("transactions", 2)])
def test_each_epoch_was_raised_for_the_reason_that_kafka_gave(name: str, count: int) -> None:
    """All of them, none left out, and no row more."""
    expected = stated(name)
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


def test_a_group_that_goes_back_has_its_next_generation_for_that() -> None:
    """And the record of the generation that it takes over is no rebalance."""
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


def test_stable_again_with_all_that_came_in_between() -> None:
    """For each target that was computed, with the time it took and who came last."""
    stable = {
        (group, row.epoch): row
        for group, row in rows("consumer")
        if row.group_type == "consumer" and row.state == "Stable"
    }
    targets = {
        (e["group"], e["epoch"]) for e in said("consumer", "causes.jsonl") if e["event"] == "target-computed"
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


class Said(NamedTuple):
    """What Kafka's broker told of a streams group while it ran, read to its end."""

    raised: dict[tuple[str, int], set[tuple[str, str | None]]]
    """By group and epoch: why, and the member."""
    targeted: dict[tuple[str, int], bool]
    """Epochs for which a target was computed, and whether the topics of the topology were there."""


def said_of_streams() -> Said:
    """Of an epoch for somebody who goes Kafka names the member, not the number. Of topics that change, and of
    settings, it says nothing, but the hash differs then that it computes."""
    found = Said({}, {})
    epochs: dict[str, int] = {}
    ready: dict[str, bool] = {}
    heard: dict[str, set[tuple[str, str | None]]] = {}
    hashes: dict[str, list[int]] = {}
    for event in said("streams", "causes.jsonl"):
        group, what, member = event["group"], event["event"], event.get("member")
        why = heard.setdefault(group, set())
        if what in ("member-joins", "topology-initialized"):
            why.add(("member-joined" if what == "member-joins" else what, member))
        elif what == "metadata-hash-computed":
            hashes.setdefault(group, []).append(event["hash"])
        elif what in ("topology-ready", "internal-topics-missing", "topology-not-possible"):
            is_ready = what == "topology-ready"
            if is_ready is not ready.get(group, False):
                why.add(("topology-ready" if is_ready else "topology-not-ready", None))
            ready[group] = is_ready
        elif what in ("member-left", "session-expired"):
            epochs[group] += 1
            found.raised[group, epochs[group]] = {("member-gone", member)}
        elif what == "epoch-bumped":
            joined = any(kind in ("member-joined", "topology-initialized") for kind, _ in why)
            if len(set(hashes[group][-2:])) == 2 and not joined:
                why.add(("topic-metadata-changed", None))
            epochs[group] = event["epoch"]
            found.raised[group, epochs[group]] = set(why)
            hashes[group] = hashes[group][-1:]
            why.clear()
        elif what == "target-computed":
            found.targeted[group, event["epoch"]] = ready.get(group, False)
    return found


def streams_rows(*states: str) -> dict[tuple[str, int], RebalanceValue]:
    return {(group, row.epoch): row for group, row in rows("streams") if row.state in states}


def test_each_epoch_of_a_streams_group_was_raised_for_the_reason_that_kafka_gave() -> None:
    """All of them, none left out, and no row more."""
    expected = said_of_streams().raised
    found = {
        at: {(c.kind, c.member_id) for c in row.causes}
        for at, row in streams_rows("Assigning", "Empty").items()
    }
    agreed = [at for at, why in expected.items() if found.get(at) == why]
    assert found.keys() == expected.keys()
    assert len(agreed) == len(expected) == 16, {at: (found[at], expected[at]) for at in expected}


def test_streams_groups_come_to_rest_with_tasks_or_for_want_of_topics() -> None:
    """Once for each target that was computed."""
    found = {at: row.state for at, row in streams_rows("Stable", "NotReady").items()}
    assert found == {
        at: "Stable" if is_ready else "NotReady" for at, is_ready in said_of_streams().targeted.items()
    }


def test_who_came_last_to_its_tasks_and_how_many_moved() -> None:
    """A second instance joins: the first one gives up, and has standbys in exchange."""
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
def test_what_compaction_leaves_never_tells_otherwise(name: str, tombstones: bool) -> None:
    """Each prefix compacted. What can be told afterwards is told: most of what comes behind it."""
    explained = 0
    for partition, log in golden(name).items():
        full = told(log, partition)
        for end in range(len(log) + 1):
            fewer = told(compacted(log, 0, end, tombstones), partition)
            assert contradictions(fewer, full) == [], (partition, end)
            explained += sum(c.kind != "unknown" for _, row in fewer for c in row.causes)
        assert told(compacted(log, 0, 0), partition) == full
    assert explained


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_nor_does_a_log_that_is_compacted_while_it_is_read(name: str) -> None:
    for partition, log in golden(name).items():
        full = told(log, partition)
        for begin in range(0, len(log), 3):
            for end in range(begin + 1, len(log) + 1, 5):
                fewer = told(compacted(log, begin, end), partition)
                assert contradictions(fewer, full) == [], (partition, begin, end)


@pytest.mark.parametrize("name", ["classic", "consumer", "streams"])
def test_who_does_not_know_batches_is_told_nothing_else(name: str) -> None:
    """Records of one time, side by side, are taken for a batch: fewer causes, but none other."""
    for partition, log in golden(name).items():
        full = told(log, partition)
        assert contradictions(told(log, partition, batches=False), full) == []
