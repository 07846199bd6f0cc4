"""Causes that a broker's own log settles: lines of Apache Kafka 4.4, and of 3.x, applied to rebalances.

`tests/vectors/broker_log` has the log of a broker in the time zone of Berlin, and its groups' records:
members that joined, left and were killed, of an eager, a cooperative and a consumer group."""

from __future__ import annotations

import gzip
from datetime import UTC, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.answers.sample import filled

from konvene.pipeline.answers import Gold, Selection
from konvene.pipeline.answers.broker_log.evidence import BrokerLog
from konvene.pipeline.answers.broker_log.lines import LogEvent, LogTimes, events
from konvene.pipeline.answers.rebalance import Cause, Rebalance
from konvene.pipeline.answers.sentences import note
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse.memory import InMemory
from konvene.pipeline.warehouse.warehouse import Warehouse

VECTORS = Path(__file__).parents[2] / "vectors" / "broker_log"
BERLIN = timezone(timedelta(hours=1))
AT = "[2026-11-28 20:15:00,123] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=4] "
LOGGER = " (org.apache.kafka.coordinator.group.GroupMetadataManager)"
AT_MS = 1_795_896_900_123


def read(line: str) -> list[LogEvent]:
    return list(events(line, LogTimes(UTC)))


def preparing(reason: str) -> str:
    text = "Preparing to rebalance group g in state PreparingRebalance with old generation 7"
    return f"{AT}{text} (reason: {reason})."


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Adding new member a-1 with group instance id null; client reason: not provided",
         [("member-joined", "a-1", None, None)]),
        ("Adding new member a 1 with group instance id i; client reason: rebalance failed (x)",
         [("member-joined", "a 1", "i", "rebalance failed (x)")]),
        ("Updating metadata for member a-1 during Stable; client reason: not provided",
         [("member-metadata-changed", "a-1", None, None)]),
        ("Updating metadata for member a-1 during Stable; client reason: need to revoke partitions and "
         "re-join", [("cooperative-follow-up", "a-1", None, "need to revoke partitions and re-join")]),
        ("Leader a-1 re-joining group during Stable; client reason: cached metadata has changed",
         [("topic-metadata-changed", "a-1", None, "cached metadata has changed")]),
        ("Leader a-1 re-joining group during Stable; client reason: not provided",
         [("leader-rejoined", "a-1", None, None)]),
        ("Updating metadata for static member a-2 with instance id i; client reason: not provided",
         [("static-member-rejoins", "a-2", "i", None)]),
        ("removing member a-1 on heartbeat expiration.", [("session-expired", "a-1", None, None)]),
        ("removing member a-1 on LeaveGroup", [("member-left", "a-1", None, None)]),
        ("explicit `LeaveGroup` request for (a-1, b-2) members.",
         [("member-left", "a-1", None, None), ("member-left", "b-2", None, None)]),
        ("Removing Set(a-1) on pending sync request expiration", [("sync-timeout", "a-1", None, None)]),
        ("a reason of a later version", []),
    ],
)  # fmt: skip
def test_reasons_of_classic_rebalances(reason: str, expected: list[tuple[str, ...]]) -> None:
    found = read(preparing(reason) + LOGGER)
    assert [(e.kind, e.member_id, e.instance_id, e.reason) for e in found] == expected
    assert all((e.group_id, e.generation, e.at_ms) == ("g", 7, AT_MS) for e in found)


def test_lines_of_kafka_3_name_the_partition_of_the_log() -> None:
    line = (
        "[2026-11-28 20:15:00,123] INFO [GroupCoordinator 0]: Preparing to rebalance group g in state "
        "PreparingRebalance with old generation 7 (__consumer_offsets-12) (reason: Adding new member a-1 "
        "with group instance id Some(i); client reason: not provided) "
        "(kafka.coordinator.group.GroupCoordinator)"
    )
    assert read(line) == [LogEvent(AT_MS, "g", "member-joined", "a-1", "i", None, 7)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[Group g] Member a-1 has left group through explicit `LeaveGroup` request; client reason: the "
         "consumer is being closed", ("member-left", "a-1", "the consumer is being closed")),
        ("[Group g] Member a-1 has left group through explicit `LeaveGroup` request; client reason: member "
         "was removed by an admin: stuck",
         ("removed-by-admin", "a-1", "member was removed by an admin: stuck")),
        ("[GroupId g] Static member a-1 with instance id i has left group through explicit `LeaveGroup` "
         "request; client reason: not provided", ("member-left", "a-1", None)),
        ("[GroupId g] Member a-1 left the consumer group.", ("member-left", "a-1", None)),
        ("[GroupId g][MemberId a-1] Member a-1 left the streams group.", ("member-left", "a-1", None)),
        ("[GroupId g] Static member a-1 with instance id i temporarily left the consumer group.", None),
        ("Member a-1 in group g has failed, removing it from the group.", ("session-expired", "a-1", None)),
        ("Group g removed dynamic members who haven't joined: [a-1]", ("rebalance-timeout", "a-1", None)),
        ("Group g removed members who haven't sent their sync requests: [a-1]",
         ("sync-timeout", "a-1", None)),
        ("[GroupId g] Member a-1 fenced from the group because the member session expired.",
         ("session-expired", "a-1", None)),
        ("[GroupId g] Member a-1 fenced from the group because it failed to transition from epoch 3 within "
         "45000ms.", ("rebalance-timeout", "a-1", None)),
        ("[GroupId g] Streams member a-1 fenced from the group because the member session expired..",
         ("session-expired", "a-1", None)),
        ("[GroupId g] Bumped group epoch to 7 with metadata hash 0.", None),
    ],
)  # fmt: skip
def test_messages_about_departures(message: str, expected: tuple[str, ...] | None) -> None:
    found = read(AT + message + LOGGER)
    assert [(e.kind, e.member_id, e.reason) for e in found] == ([] if expected is None else [expected])
    assert all((e.group_id, e.generation, e.at_ms) == ("g", -1, AT_MS) for e in found)


@given(st.text())
def test_other_lines_state_nothing(text: str) -> None:
    assert read(text) == []
    assert read("java.lang.IllegalStateException: group " + text) == []


@pytest.mark.parametrize(
    "time", ["2026-13-28 20:15:00,123", "2026-11-28 29:15:00,123", "0000-11-28 20:15:00,1"]
)
def test_a_line_with_an_impossible_time_states_nothing(time: str) -> None:
    message = "Member a-1 in group g has failed, removing it from the group."
    assert read(f"[{time}] INFO {message}") == []


# a whole log ------------------------------------------------------------------------------------------


def gold(home: Path, log: BrokerLog | None) -> Gold:
    warehouse = Warehouse(home, InMemory(home))
    ingest(warehouse, [VECTORS / "data"], Local())
    build(warehouse, Local())
    return Gold(warehouse=warehouse, evidence=() if log is None else (log,))


def causes_of(found: Gold, group: str) -> list[tuple[str, str]]:
    """Return cause and evidence of a group's rebalances, oldest first."""
    return [(r.cause, r.evidence) for r in reversed(found.select(Selection((group,))))]


EAGER = [
    "member-joined", "member-joined", "member-joined", "member-left", "session-expired",
    "topic-metadata-changed", "member-joined", "session-expired", "member-left",
]  # fmt: skip
COOPERATIVE = [
    "member-joined", "member-joined", "cooperative-follow-up", "member-joined", "leader-rejoined",
    "member-left", "session-expired", "member-left",
]  # fmt: skip


def test_a_log_settles_all_alternatives(tmp_path: Path) -> None:
    log = BrokerLog([VECTORS], BERLIN)
    found = gold(tmp_path, log)
    assert causes_of(found, "classic-eager") == [(kind, "observed") for kind in EAGER]
    assert causes_of(found, "classic-cooperative") == [(kind, "observed") for kind in COOPERATIVE]
    joined = [("member-joined", "inferred")] * 3
    departed = [("member-left", "observed"), ("session-expired", "observed"), ("member-left", "observed")]
    assert causes_of(found, "modern") == [*joined, *departed]
    assert not log.misfits
    for each in found.rebalances:
        assert (note(each) == "Observed in the broker's log.") == each.by_broker_log
        if each.group_type == "classic":
            assert each.start_ms is not None and each.end_ms is not None
            assert each.duration_ms == each.end_ms - each.start_ms


def test_without_the_log_alternatives_are_left(tmp_path: Path) -> None:
    found = gold(tmp_path, None)
    assert sum("|" in each.cause for each in found.rebalances) == 9
    assert not any(each.by_broker_log for each in found.rebalances)


def test_another_time_zone_settles_nothing_and_is_noticed(tmp_path: Path) -> None:
    log = BrokerLog([VECTORS / "server.log"], UTC)
    found = gold(tmp_path, log)
    assert not any(each.by_broker_log for each in found.rebalances)
    assert log.misfits


# files ------------------------------------------------------------------------------------------------


def test_a_growing_log_is_read_line_by_line(tmp_path: Path) -> None:
    """Also rotated and compressed files; an incomplete line waits for its end."""
    lines = (VECTORS / "server.log").read_bytes().splitlines(keepends=True)
    whole = BrokerLog([VECTORS], BERLIN).events
    with gzip.open(tmp_path / "server.log.1.gz", "wb") as file:
        file.writelines(lines[:10])
    current = tmp_path / "server.log"
    current.write_bytes(b"".join(lines[10:40]) + lines[40][:50])
    log = BrokerLog([tmp_path], BERLIN)
    some = log.events
    with current.open("ab") as file:
        file.write(lines[40][50:] + b"".join(lines[41:]))
    log.refresh()
    log.refresh()
    assert 0 < some < whole == log.events


# single rebalances ------------------------------------------------------------------------------------


def settled(tmp_path: Path, row: Rebalance, *messages: str) -> Rebalance:
    (tmp_path / "server.log").write_text("".join(f"{AT}{message}{LOGGER}\n" for message in messages))
    return BrokerLog([tmp_path], UTC).settled(row, Gold())


def row(*causes: Cause, group_type: str = "classic", before: int = 7, after: int = 8) -> Rebalance:
    first = causes[0]
    columns = {
        "group_id": "g", "group_type": group_type, "from_epoch": before, "to_epoch": after,
        "cause": first.kind, "member_id": first.member_id, "evidence": "inferred", "end_ms": AT_MS + 50,
        "causes": [cause._asdict() for cause in causes],
    }  # fmt: skip
    return Rebalance.from_row(filled("rebalance", columns))


def test_a_trigger_that_no_record_names_comes_first(tmp_path: Path) -> None:
    """A member joined and departed while the generation was formed."""
    known = row(Cause("member-joined", member_id="b-2"))
    reason = "Adding new member a-1 with group instance id null; client reason: not provided"
    found = settled(tmp_path, known, preparing(reason).removeprefix(AT))
    assert [(c.kind, c.member_id) for c in found.causes] == [
        ("member-joined", "a-1"),
        ("member-joined", "b-2"),
    ]
    assert (found.member_id, found.start_ms, found.duration_ms) == ("a-1", AT_MS, 50)


def test_a_cause_without_a_line_keeps_its_alternatives(tmp_path: Path) -> None:
    departed = [Cause("member-left|session-expired", member_id=member) for member in ("a-1", "b-2")]
    known = row(*departed, group_type="consumer")
    found = settled(tmp_path, known, "[GroupId g] Member a-1 left the consumer group.")
    assert [c.kind for c in found.causes] == ["member-left", "member-left|session-expired"]
    assert (found.evidence, found.by_broker_log) == ("inferred", True)
    assert note(found) == "Inferred from the records of the log and lines of the broker's log."


def test_observed_rebalances_and_other_groups_are_unchanged(tmp_path: Path) -> None:
    line = "[GroupId other] Member a-1 left the consumer group."
    known = row(Cause("member-left|session-expired", member_id="a-1"), group_type="consumer")
    assert settled(tmp_path, known, line) is known
