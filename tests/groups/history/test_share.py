"""What is inferred of share groups: from Apache Kafka's own log, and from records as they may come."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from tests.groups.history.logs import LOGS, Batch, Entry, compacted, contradictions, golden, told
from tests.groups.history.share_walking import ShareWalk
from tests.groups.history.walking import plain

from konvene.codec.uuid import Uuid
from konvene.groups.share import log as share
from konvene.groups.share.current_assignment import CurrentAssignment
from konvene.groups.share.group import Member
from konvene.groups.share.state_topics import Some, StateTopics
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import Record

JOBS, MAILS = Uuid(b"j" * 16), Uuid(b"m" * 16)
Why = set[tuple[str, str | None]]


def rows() -> list[tuple[str, RebalanceValue]]:
    return [row for partition, log in golden("share").items() for row in told(log, partition)]


def stated() -> tuple[dict[tuple[str, int], Why], dict[tuple[str, int], int]]:
    """What Kafka's broker told while it ran: why each epoch was raised, and when targets were computed.

    Of an epoch for somebody who goes it names the member and not the number; where the hash stays and nobody
    came or went, share partitions had begun."""
    raised: dict[tuple[str, int], Why] = {}
    targets: dict[tuple[str, int], int] = {}
    epochs: dict[str, int] = {}
    hashes: dict[str, int] = {}
    heard: dict[str, Why] = {}
    for line in (LOGS / "share" / "causes.jsonl").read_text().splitlines():
        event = json.loads(line)
        group, why = event["group"], heard.setdefault(event["group"], set())
        if event["event"] == "member-joins":
            why.add(("member-joined", event["member"]))
        elif event["event"] in ("member-left", "session-expired"):
            epochs[group] += 1
            raised[group, epochs[group]] = {("member-gone", event["member"])}
        elif event["event"] == "epoch-bumped":
            same = hashes.get(group) == event["hash"]
            kind = "share-partitions-initialized" if same else "topic-metadata-changed"
            epochs[group], hashes[group] = event["epoch"], event["hash"]
            raised[group, epochs[group]] = set(why) or {(kind, None)}
            why.clear()
        elif event["event"] == "target-computed":
            targets[group, event["epoch"]] = event["ms"]
    return raised, targets


def test_each_epoch_was_raised_for_the_reason_that_kafka_gave() -> None:
    """All of them, none left out, and no row more."""
    raised, _ = stated()
    found = [
        ((group, row.epoch), {(c.kind, c.member_id) for c in row.causes})
        for group, row in rows()
        if row.state != "Stable"
    ]
    assert dict(found) == raised
    assert len(found) == len(raised) == 26
    assert all(row.group_type == "share" for _, row in rows())


def test_stable_again_with_all_that_came_in_between() -> None:
    """Once for each target that all members came to have, with the causes of all epochs since."""
    _, targets = stated()
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
def test_what_compaction_leaves_never_tells_otherwise(tombstones: bool) -> None:
    """Each prefix compacted. What can be told afterwards is told."""
    explained = 0
    for partition, log in golden("share").items():
        full = told(log, partition)
        for end in range(len(log) + 1):
            fewer = told(compacted(log, 0, end, tombstones), partition)
            assert contradictions(fewer, full) == [], (partition, end)
            explained += len(fewer)
    assert explained > 500


# --- our own coordinator ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_log_tells_what_was_told_live(seed: int) -> None:
    """Each row, in order: why, when, and who came when."""
    walk = ShareWalk(seed)
    walk.walk(60)
    assert plain(told(walk.log)) == plain(walk.told)


@pytest.mark.parametrize("seed", range(10))
def test_no_compaction_makes_it_tell_otherwise(seed: int) -> None:
    """Prefixes with their tombstones and without, and windows in the middle."""
    walk, random = ShareWalk(seed), Random(seed)
    walk.walk(60)
    log, full = walk.log, told(walk.log)
    for end in range(1, len(log) + 1, 3):
        assert contradictions(told(compacted(log, 0, end)), full) == []
        assert contradictions(told(compacted(log, 0, end, tombstones=False)), full) == []
        begin = random.randrange(end)
        assert contradictions(told(compacted(log, begin, end)), full) == []


# --- records as they may come ----------------------------------------------------------------------


def member(name: str, *topics: str) -> Member:
    return Member(name, client_id=f"client {name}", topics=frozenset(topics))


def joins(name: str, epoch: int, *topics: str, hash: int = 7) -> list[Record]:
    return [
        share.member_record("g", member(name, *topics)),
        share.group_record("g", epoch, hash),
        share.target_record("g", name, {}),
        share.assignment_record("g", epoch, 1),
        share.current_record("g", name, CurrentAssignment(epoch, 0)),
    ]


def begun(*partitions: int, topic: Uuid = JOBS, name: str = "jobs") -> Record:
    return share.state_record("g", StateTopics(initialized={topic: Some(name, partitions)}))


def whys(*batches: list[Record]) -> list[tuple[int, list[tuple[str, str | None]]]]:
    """Of each epoch."""
    log, offset = [], 0
    for number, batch in enumerate(batches):
        entries = tuple(Entry(offset + i, 1000 * number, repr(r.key), r) for i, r in enumerate(batch))
        log.append(Batch(offset, offset + len(batch) - 1, entries))
        offset += len(batch)
    return [
        (row.epoch, [(c.kind, c.member_id) for c in row.causes])
        for _, row in told(log)
        if row.state != "Stable"
    ]


def last(*batches: list[Record]) -> list[tuple[str, str | None]]:
    return whys(joins("a", 2, "jobs"), *batches)[-1][1]


def test_a_member_that_reads_other_topics() -> None:
    changed = [share.member_record("g", member("a", "jobs", "mails")), share.group_record("g", 3, 8)]
    assert last(changed) == [("subscription-changed", "a")]


def test_what_else_a_member_says_of_itself_raises_no_epoch() -> None:
    """Another epoch's batch may hold it."""
    moved: Any = share.member_record("g", Member("a", "rack 1", "other", "/10.0.0.1", frozenset({"jobs"})))
    assert last([moved, share.group_record("g", 3, 8)]) == [("topic-metadata-changed", None)]


def test_share_partitions_that_have_begun_come_first_of_what_is_the_groups_own() -> None:
    assert last([begun(0, 1)], [share.group_record("g", 3, 8)]) == [("share-partitions-initialized", None)]


def test_share_partitions_that_nobody_reads_are_no_cause() -> None:
    mails = begun(0, topic=MAILS, name="mails")
    assert last([mails], [share.group_record("g", 3, 7)]) == [("unknown", None)]


def test_share_partitions_that_are_targets_are_no_cause() -> None:
    given = [share.target_record("g", "a", {JOBS: (0, 1)}), share.assignment_record("g", 2, 5)]
    assert last([begun(0, 1)], given, [share.group_record("g", 3, 7)]) == [("unknown", None)]


def test_an_epoch_of_an_empty_group_is_for_altered_offsets() -> None:
    """Also where the group is there for that alone."""
    gone = [*share.member_tombstones("g", "a"), share.group_record("g", 3, 0)]
    assert last(gone, [share.group_record("g", 4, 0)]) == [("offsets-altered", None)]
    assert whys([share.group_record("g", 2, 0)]) == [(2, [("offsets-altered", None)])]


def test_a_group_that_is_deleted_begins_again_with_nothing() -> None:
    gone = [*share.member_tombstones("g", "a"), share.group_record("g", 3, 0)]
    group_gone = [Record(share.group_record("g", 0, 0).key, None)]
    found = whys(joins("a", 2, "jobs"), gone, group_gone, joins("a", 2, "jobs"))
    assert found == [
        (2, [("member-joined", "a")]),
        (3, [("member-gone", "a")]),
        (2, [("member-joined", "a")]),
    ]
