"""`konvene explain deliveries`, on Kafka's own log of share groups: as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import CommandResult, call

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
SHARE, CONSUMER = str(LOGS / "share"), str(LOGS / "consumer")


def run(*args: str) -> CommandResult:
    return call(None, "explain", "deliveries", *args)


def lines(output: CommandResult) -> list[str]:
    return [" ".join(line.split()) for line in output.out.splitlines()]


def test_share_partitions_then_the_worst_minutes_then_the_problems() -> None:
    output = run(SHARE, "--group", "picky", "--group", "workers", "--limit", "2")
    assert output.code == 0
    assert lines(output) == [
        "GROUP TOPIC PARTITION START DELIVERED REDELIVERED ACCEPTED RELEASED ARCHIVED IN-FLIGHT UNKNOWN "
        "BLOCKED-FOR",
        "picky mails 0 - 158 23 121 23 14 0 0 -",
        "workers extra 0 - 3 0 3 0 0 0 0 -",
        "",
        "MINUTE (UTC) GROUP TOPIC PARTITION DELIVERED REDELIVERED ARCHIVED START",
        "2026-11-21 02:20 picky mails 0 57 17 10 69",
        "2026-11-21 02:19 picky mails 0 36 6 4 21",
        "",
        "picky, mails:0: 23 of 158 deliveries were redeliveries; one record was delivered 5 times.",
        "picky, mails:0: 14 records were archived: rejected, delivered too often, or no longer in the log.",
    ]
    assert output.err == "Not shown: 5 share partitions; --limit 7 shows all.\n"


def test_json_has_an_object_per_row() -> None:
    output = run(SHARE, "--group", "alive", "--json")
    partitions = {
        f"{row['topic']}-{row['partition']}": row for row in map(json.loads, output.out.splitlines())
    }
    assert partitions.keys() == {"jobs-0", "jobs-1", "jobs-2", "extra-0", "extra-1", "extra-2"}
    jobs = partitions["jobs-1"]
    assert (jobs["start_offset"], jobs["complete_count"], jobs["stuck"]) == (46, 5, False)
    assert len(jobs["trouble"]) == 2
    assert partitions["extra-2"]["trouble"] == []


def test_rebalances_end_with_a_hint_at_deliveries() -> None:
    output = call(None, "explain", SHARE, "--group", "alive", "--limit", "1")
    assert output.err.splitlines()[-1] == (
        "Share groups: 27 redeliveries, 20 archived records; see konvene explain deliveries."
    )
    assert "deliveries" not in call(None, "explain", SHARE, "--group", "workers").err
    assert "deliveries" not in call(None, "explain", CONSUMER, "--limit", "1").err


def test_without_the_log_of_groups_topics_have_their_ids() -> None:
    output = run(f"{SHARE}/__share_group_state-0", "--json", "--limit", "1")
    assert len(json.loads(output.out)["topic"]) == 22


def test_logs_without_deliveries_are_an_error() -> None:
    output = run(CONSUMER)
    assert output.code == 1
    assert output.err.startswith("konvene: no deliveries of share groups found in the logs\n")
    assert "Did you mean picky?" in run(SHARE, "--group", "pick").err
