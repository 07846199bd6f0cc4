"""`konvene explain transactions`, on Kafka's own log of them: as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, call

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
TRANSACTIONS, CONSUMER = str(LOGS / "transactions"), str(LOGS / "consumer")


def run(*args: str) -> CommandResult:
    return call(None, "explain", "transactions", *args)


def test_commits_newest_first_then_the_totals_of_each_producer() -> None:
    output = run(TRANSACTIONS, "--group", "eos-consumer", "--limit", "2")
    assert output.code == 0
    assert [" ".join(line.split()) for line in output.out.splitlines()] == [
        "WRITTEN (UTC) GROUP TOPIC PARTITION OFFSET PRODUCER EPOCH OUTCOME AFTER",
        "2026-11-21 02:15:27.441 eos-consumer in 1 9 tx-consumer 7 aborted 561 ms",
        "2026-11-21 02:15:26.892 eos-consumer in 0 3 tx-consumer 6 overtaken 220 ms",
        "",
        "PRODUCER GROUP #COMMITS #COMMITTED #OVERTAKEN #ABORTED #PENDING LONGEST",
        "tx-consumer eos-consumer 8 4 1 3 0 561 ms",
    ]
    assert output.err == "Not shown: 6 older commits; --limit 8 shows all.\n"


@pytest.mark.parametrize(
    ("outcomes", "offsets"),
    [(("overtaken",), [3]), (("aborted", "overtaken"), [9, 3, 25, 10]), (("pending",), [])],
)
def test_json_has_an_object_per_commit_of_the_outcome(outcomes: tuple[str, ...], offsets: list[int]) -> None:
    args = [arg for outcome in outcomes for arg in ("--outcome", outcome)]
    output = run(TRANSACTIONS, "--group", "eos-classic", "--json", *args)
    assert output.code == 0
    commits = [json.loads(line) for line in output.out.splitlines()]
    assert [each["committed_offset"] for each in commits] == offsets
    assert {each["transactional_id"] for each in commits} <= {"tx-classic"}
    assert {each["outcome"] for each in commits} == set(outcomes if commits else ())


def test_without_the_log_of_transactions_producers_have_their_ids() -> None:
    output = run(f"{TRANSACTIONS}/__consumer_offsets-0", "--group", "eos-classic", "--limit", "1")
    assert output.out.splitlines()[-1].split()[:3] == ["1", "eos-classic", "8"]


def test_open_transaction_is_pending(tmp_path: Path) -> None:
    """The log ends before the marker, so the outcome is unknown."""
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (segment,) = (LOGS / "transactions" / "__consumer_offsets-0").glob("*.log")
    data = segment.read_bytes()
    at, offset = 0, 0
    while offset < 43:
        offset = int.from_bytes(data[at : at + 8], "big")
        at += (12 + int.from_bytes(data[at + 8 : at + 12], "big")) if offset < 43 else 0
    (folder / segment.name).write_bytes(data[:at])
    (commits,) = run(str(tmp_path), "--outcome", "pending", "--json").out.splitlines()
    found = json.loads(commits)
    assert (found["partition"], found["committed_offset"], found["open_ms"]) == (1, 9, None)
    assert found["counted"] is None


def test_logs_without_transactions_are_an_error() -> None:
    output = run(CONSUMER)
    assert output.code == 1
    assert output.err.startswith("konvene: no transactional offset commit found in the logs\n")
    output = run(TRANSACTIONS, "--group", "eos")
    assert output.err.splitlines()[-1].strip() == "Did you mean eos-classic or eos-consumer?"
    assert "Leave out --outcome" in run(CONSUMER, "--outcome", "pending").err
