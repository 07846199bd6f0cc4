"""End to end: `konvene serve` in its own process, and the other commands against it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, call
from tests.cli.processes import ServeProcess


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    served = ServeProcess("--ephemeral", "--set", "group.initial.rebalance.delay.ms=0")
    yield served
    assert served.stop() == 0


def konvene(broker: Any, *args: str, stdin: str | None = None) -> CommandResult:
    result = call(broker, *args, stdin=stdin)
    assert result.code == 0, result
    return result


def test_produced_records_are_consumed(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "orders", "--partitions", "3")
    lines = "".join(f"k{i}\tv{i}\n" for i in range(50))
    produced = konvene(
        broker, "produce", "--topic", "orders", "--property", "parse.key=true", "--json", stdin=lines
    )
    assert sum(p["records"] for p in produced.json["partitions"]) == 50
    consumed = konvene(
        broker, "consume", "--topic", "orders", "--from-beginning", "--max-messages", "50", "--json"
    )
    assert sorted(r["value"] for r in consumed.json) == sorted(f"v{i}" for i in range(50))


def test_group_commits_offsets_and_has_a_history(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "payments", "--partitions", "2")
    konvene(broker, "produce", "--topic", "payments", stdin="one\ntwo\nthree\n")
    args = (
        "consume",
        "--topic",
        "payments",
        "--group",
        "billing",
        "--from-beginning",
        "--client-id",
        "ann",
    )
    assert konvene(broker, *args, "--max-messages", "2").out == "one\ntwo\n"
    assert konvene(broker, *args, "--max-messages", "1").out == "three\n"
    (group,) = konvene(broker, "groups", "describe", "--group", "billing", "--json").json
    assert (group["type"], group["state"], group["members"]) == ("classic", "Empty", [])
    assert sum(row["lag"] or 0 for row in group["offsets"]) == 0
    output = konvene(broker, "groups", "history", "--group", "billing", "--json").json
    assert [(r["generation"], r["state"], r["inferred"]) for r in output] == [
        (1, "Stable", False), (2, "Empty", False), (3, "Stable", False), (4, "Empty", False),
    ]  # fmt: skip
    causes = [(c["kind"], c["client_id"]) for r in output for c in r["causes"]]
    assert causes == [("member-joined", "ann"), ("member-left", "ann")] * 2
    assert output[1]["causes"][0]["reason"] == "konvene consume was ended"
    text = konvene(broker, "groups", "history", "--group", "billing", "--limit", "1").out
    assert "reason: konvene consume was ended" in text


def test_missing_and_existing_objects_are_errors_as_in_kafka(broker: Any) -> None:
    assert call(broker, "groups", "describe", "--group", "nobody").code == 1
    assert call(broker, "topics", "describe", "--topic", "nothing").code == 1
    konvene(broker, "topics", "create", "--topic", "twice")
    assert "TOPIC_ALREADY_EXISTS" in call(broker, "topics", "create", "--topic", "twice").err
    konvene(broker, "topics", "delete", "--topic", "twice")
    assert ["twice"] not in konvene(broker, "topics", "list").lines


def test_an_interrupted_consumer_leaves_its_group(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "endless")
    args = ["--topic", "endless", "--group", "waiting", "--bootstrap-server", broker.address]
    process = subprocess.Popen(
        [sys.executable, "-m", "konvene", "consume", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        result = call(broker, "groups", "describe", "--group", "waiting", "--state", "--json")
        if result.code == 0 and result.json[0]["state"] == "Stable":
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (130, b"Processed a total of 0 messages\n")
    (group,) = konvene(broker, "groups", "describe", "--group", "waiting", "--state", "--json").json
    assert group["state"] == "Empty"


def test_assignor_option_adds_to_the_configured_assignors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module may be in the working directory; clients read the available assignors from the broker's
    config.
    """
    (tmp_path / "near_by.py").write_text("def assign(spec):\n    return {}\n")
    monkeypatch.chdir(tmp_path)
    served = ServeProcess(
        "--ephemeral", "--set", "group.consumer.assignors=range", "--assignor", "near_by:assign"
    )
    try:
        result = konvene(served, "configs", "describe", "--entity-type", "brokers", "--all", "--json")
    finally:
        assert served.stop() == 0
    assert "range,near_by:assign" in result.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--assignor", "nowhere:assign"), "module nowhere cannot be imported: ModuleNotFoundError"),
        (
            ("--set", "group.consumer.assignors=best"),
            "no such assignor; there are uniform, range",
        ),
        (("--assignor", "range"), "another assignor has the name range."),
    ],
)
def test_invalid_assignor_is_a_one_line_error(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    """No data directory is created."""
    data = ["--data-dir", str(tmp_path / "data")]
    process = subprocess.run(
        [sys.executable, "-m", "konvene", "serve", "--port", "0", *data, *args],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.startswith("konvene: Invalid value ")
    assert message in line
    assert not (tmp_path / "data").exists()


def test_port_in_use_is_an_error_without_a_traceback(broker: Any) -> None:
    port = broker.address.rpartition(":")[2]
    process = subprocess.run(
        [sys.executable, "-m", "konvene", "serve", "--host", "127.0.0.1", "--port", port, "--ephemeral"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
