"""`konvene explain --broker-log`: brokers' own logs as evidence, and the note on a wrong time zone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, call

VECTORS = Path(__file__).parents[2] / "vectors" / "broker_log"


def run(zone: str, log: Path = VECTORS) -> CommandResult:
    return call(
        None, "explain", str(VECTORS / "data"), "--broker-log", str(log), "--broker-log-zone", zone, "--json"
    )


def test_settled_causes_are_observed() -> None:
    output = run("+01:00")
    rows = [json.loads(line) for line in output.out.splitlines()]
    assert sum(row["by_broker_log"] for row in rows) == 20
    assert {row["evidence"] for row in rows if row["by_broker_log"]} == {"observed"}
    assert "other times" not in output.err


def test_a_wrong_time_zone_is_noted() -> None:
    output = run("+00:00")
    assert not any(json.loads(line)["by_broker_log"] for line in output.out.splitlines())
    assert "rebalances have other times than the records, and were ignored: --broker-log-zone" in output.err


def test_a_log_without_coordinators_lines_is_noted(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("[2026-11-28 20:15:00,123] INFO started (kafka.Kafka)\n")
    assert "no line of a group coordinator at level INFO" in run("UTC", tmp_path).err


@pytest.mark.parametrize("zone", ["Mars/Olympus", "25:99", "../etc/passwd"])
def test_an_unknown_time_zone_is_an_error(zone: str) -> None:
    output = run(zone)
    assert output.code == 2
    assert f"{zone}: write UTC, +02:00 or Europe/Berlin." in output.err
