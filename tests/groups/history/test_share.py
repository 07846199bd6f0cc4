"""Inferred rebalances of share groups: from Apache Kafka's own log, and from constructed records."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from tests.groups.history.logs import LOGS, Batch, Entry, compacted, contradictions, golden, infer_rebalances
from tests.groups.history.share_walking import ShareWalk
from tests.groups.history.walking import comparable

from konvene.codec.uuid import Uuid
from konvene.groups.share import log as share
from konvene.groups.share.current_assignment import CurrentAssignment
from konvene.groups.share.group import Member
from konvene.groups.share.state_topics import ListedPartitions, StateTopics
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import Record

JOBS, MAILS = Uuid(b"j" * 16), Uuid(b"m" * 16)
Causes = set[tuple[str, str | None]]


def rows() -> list[tuple[str, RebalanceValue]]:
    return [row for partition, log in golden("share").items() for row in infer_rebalances(log, partition)]


def reported_causes() -> tuple[dict[tuple[str, int], Causes], dict[tuple[str, int], int]]:
    """Return the cause of each epoch and the computed targets that Kafka's broker reported.

    For a departure it reports the member and not the epoch. If the hash is unchanged and no member joined or
    left, share partitions were initialized.
    """
    raised: dict[tuple[str, int], Causes] = {}
    targets: dict[tuple[str, int], int] = {}
    epochs: dict[str, int] = {}
    hashes: dict[str, int] = {}
    pending_causes: dict[str, Causes] = {}
    for line in (LOGS / "share" / "causes.jsonl").read_text().splitlines():
        event = json.loads(line)
        group, causes = event["group"], pending_causes.setdefault(event["group"], set())
        if event["event"] == "member-joins":
            causes.add(("member-joined", event["member"]))
        elif event["event"] in ("member-left", "session-expired"):
            epochs[group] += 1
            raised[group, epochs[group]] = {("member-gone", event["member"])}
        elif event["event"] == "epoch-bumped":
            same = hashes.get(group) == event["hash"]
            kind = "share-partitions-initialized" if same else "topic-metadata-changed"
            epochs[group], hashes[group] = event["epoch"], event["hash"]
            raised[group, epochs[group]] = set(causes) or {(kind, None)}
            causes.clear()
        elif event["event"] == "target-computed":
            targets[group, event["epoch"]] = event["ms"]
    return raised, targets


def test_each_epoch_has_the_causes_that_kafka_reported() -> None:
    """Every epoch bump, and no other row."""
    raised, _ = reported_causes()
    found = [
        ((group, row.epoch), {(c.kind, c.member_id) for c in row.causes})
        for group, row in rows()
        if row.state != "Stable"
    ]
    assert dict(found) == raised
    assert len(found) == len(raised) == 26
    assert all(row.group_type == "share" for _, row in rows())


def test_a_stable_row_has_all_causes_since_the_last_one() -> None:
    """Once for each target that all members converged to, with the causes of all epochs since."""
    _, targets = reported_causes()
    stable = {(group, row.epoch): row for group, row in rows() if row.state == "Stable"}
    superseded = {("workers", 8), ("workers", 10), ("alive", 4)}
    assert stable.keys() == targets.keys() - superseded
    row = stable["workers", 9]
    assert [(c.kind, c.client_id) for c in row.causes] == [
        ("member-joined", "cyd"),
        ("share-partitions-initialized", None),
    ]
    assert (row.ended_ms - row.started_ms, row.ended_ms - row.joined_ms) == (1575, 535)
    assert [(m.client_id, row.ended_ms - m.joined_ms) for m in row.members] == [("cyd", 535), ("ann", 0)]


@pytest.mark.parametrize("tombstones", [True, False])
def test_compacted_kafka_logs_do_not_contradict_the_whole_log(tombstones: bool) -> None:
    """Each prefix compacted; the rebalances after the compacted part are explained."""
    explained = 0
    for partition, log in golden("share").items():
        full = infer_rebalances(log, partition)
        for end in range(len(log) + 1):
            fewer = infer_rebalances(compacted(log, 0, end, tombstones), partition)
            assert contradictions(fewer, full) == [], (partition, end)
            explained += len(fewer)
    assert explained > 500


# --- our own coordinator ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_inferred_rebalances_are_the_reported_ones(seed: int) -> None:
    """Each row, in order: causes, times and members."""
    walk = ShareWalk(seed)
    walk.walk(60)
    assert comparable(infer_rebalances(walk.log)) == comparable(walk.reported)


@pytest.mark.parametrize("seed", range(10))
def test_compacted_logs_do_not_contradict_the_whole_log(seed: int) -> None:
    """Prefixes with and without their tombstones, and windows in the middle."""
    walk, random = ShareWalk(seed), Random(seed)
    walk.walk(60)
    log, full = walk.log, infer_rebalances(walk.log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(infer_rebalances(compacted(log, 0, end)), full) == []
        assert contradictions(infer_rebalances(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(infer_rebalances(compacted(log, begin, end)), full) == []


# --- constructed records ---------------------------------------------------------------------------


def member(name: str, *topics: str) -> Member:
    return Member(name, client_id=f"client {name}", topics=frozenset(topics))


def join_records(name: str, epoch: int, *topics: str, hash: int = 7) -> list[Record]:
    return [
        share.member_record("g", member(name, *topics)),
        share.group_record("g", epoch, hash),
        share.target_record("g", name, {}),
        share.assignment_record("g", epoch, 1),
        share.current_record("g", name, CurrentAssignment(epoch, 0)),
    ]


def initialized(*partitions: int, topic: Uuid = JOBS, name: str = "jobs") -> Record:
    return share.state_record("g", StateTopics(initialized={topic: ListedPartitions(name, partitions)}))


def causes_by_epoch(*batches: list[Record]) -> list[tuple[int, list[tuple[str, str | None]]]]:
    """Return each epoch with its causes."""
    log, offset = [], 0
    for number, batch in enumerate(batches):
        entries = tuple(Entry(offset + i, 1000 * number, repr(r.key), r) for i, r in enumerate(batch))
        log.append(Batch(offset, offset + len(batch) - 1, entries))
        offset += len(batch)
    return [
        (row.epoch, [(c.kind, c.member_id) for c in row.causes])
        for _, row in infer_rebalances(log)
        if row.state != "Stable"
    ]


def last_causes(*batches: list[Record]) -> list[tuple[str, str | None]]:
    return causes_by_epoch(join_records("a", 2, "jobs"), *batches)[-1][1]


def test_a_changed_subscription_is_a_cause() -> None:
    changed = [share.member_record("g", member("a", "jobs", "mails")), share.group_record("g", 3, 8)]
    assert last_causes(changed) == [("subscription-changed", "a")]


def test_other_member_metadata_bumps_no_epoch() -> None:
    """The record may be in the batch of another epoch."""
    moved: Any = share.member_record("g", Member("a", "rack 1", "other", "/10.0.0.1", frozenset({"jobs"})))
    assert last_causes([moved, share.group_record("g", 3, 8)]) == [("topic-metadata-changed", None)]


def test_initialized_share_partitions_precede_other_causes() -> None:
    assert last_causes([initialized(0, 1)], [share.group_record("g", 3, 8)]) == [
        ("share-partitions-initialized", None)
    ]


def test_share_partitions_without_subscribers_are_no_cause() -> None:
    mails = initialized(0, topic=MAILS, name="mails")
    assert last_causes([mails], [share.group_record("g", 3, 7)]) == [("unknown", None)]


def test_share_partitions_that_are_targets_are_no_cause() -> None:
    target = [share.target_record("g", "a", {JOBS: (0, 1)}), share.assignment_record("g", 2, 5)]
    assert last_causes([initialized(0, 1)], target, [share.group_record("g", 3, 7)]) == [("unknown", None)]


def test_an_epoch_bump_of_an_empty_group_is_caused_by_altered_offsets() -> None:
    """Also if the group exists only for that."""
    departure = [*share.member_tombstones("g", "a"), share.group_record("g", 3, 0)]
    assert last_causes(departure, [share.group_record("g", 4, 0)]) == [("offsets-altered", None)]
    assert causes_by_epoch([share.group_record("g", 2, 0)]) == [(2, [("offsets-altered", None)])]


def test_a_deleted_group_starts_from_scratch() -> None:
    departure = [*share.member_tombstones("g", "a"), share.group_record("g", 3, 0)]
    deletion = [Record(share.group_record("g", 0, 0).key, None)]
    found = causes_by_epoch(join_records("a", 2, "jobs"), departure, deletion, join_records("a", 2, "jobs"))
    assert found == [
        (2, [("member-joined", "a")]),
        (3, [("member-gone", "a")]),
        (2, [("member-joined", "a")]),
    ]
