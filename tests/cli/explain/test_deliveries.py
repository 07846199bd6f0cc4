"""`konvene explain deliveries`, on Kafka's own log of share groups: told to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import Said, call

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
SHARE, CONSUMER = str(LOGS / "share"), str(LOGS / "consumer")


def run(*words: str) -> Said:
    return call(None, "explain", "deliveries", *words)


def lines(said: Said) -> list[str]:
    return [" ".join(line.split()) for line in said.out.splitlines()]


def test_share_partitions_are_told_then_the_worst_minutes_then_what_went_wrong() -> None:
    said = run(SHARE, "--group", "picky", "--group", "workers", "--limit", "2")
    assert said.code == 0
    assert lines(said) == [
        "GROUP TOPIC PARTITION START DELIVERED AGAIN ACCEPTED RELEASED ARCHIVED IN-FLIGHT UNTOLD STOOD-FOR",
        "picky mails 0 - 158 23 121 23 14 0 0 -",
        "workers extra 0 - 3 0 3 0 0 0 0 -",
        "",
        "MINUTE (UTC) GROUP TOPIC PARTITION DELIVERED AGAIN ARCHIVED START",
        "2026-11-21 02:20 picky mails 0 57 17 10 69",
        "2026-11-21 02:19 picky mails 0 36 6 4 21",
        "",
        "picky, mails:0: 23 of 158 deliveries were not the first of their record; one was delivered 5 times.",
        "picky, mails:0: 14 records were given up: rejected, delivered too often, or not there.",
    ]
    assert said.err == "5 more are not shown; --limit 7 shows all.\n"


def test_programs_get_an_object_for_each() -> None:
    said = run(SHARE, "--group", "alive", "--json")
    told = {f"{row['topic']}-{row['partition']}": row for row in map(json.loads, said.out.splitlines())}
    assert told.keys() == {"jobs-0", "jobs-1", "jobs-2", "extra-0", "extra-1", "extra-2"}
    jobs = told["jobs-1"]
    assert (jobs["start_offset"], jobs["complete_count"], jobs["stuck"]) == (46, 5, False)
    assert len(jobs["trouble"]) == 2
    assert told["extra-2"]["trouble"] == []


def test_of_rebalances_it_is_said_that_there_is_more_to_tell() -> None:
    said = call(None, "explain", SHARE, "--group", "alive", "--limit", "1")
    assert said.err.splitlines()[-1] == (
        "Of the deliveries of share groups 27 were repeated, 20 records given up: konvene explain deliveries "
        "tells of each."
    )
    assert "deliveries" not in call(None, "explain", SHARE, "--group", "workers").err
    assert "deliveries" not in call(None, "explain", CONSUMER, "--limit", "1").err


def test_without_the_log_of_groups_topics_have_their_ids() -> None:
    said = run(f"{SHARE}/__share_group_state-0", "--json", "--limit", "1")
    assert len(json.loads(said.out)["topic"]) == 22


def test_where_there_is_none_it_is_said_so() -> None:
    said = run(CONSUMER)
    assert said.code == 1
    assert said.err.startswith("konvene: no share group delivered records, as far as these logs tell\n")
    assert "Is it picky?" in run(SHARE, "--group", "pick").err
