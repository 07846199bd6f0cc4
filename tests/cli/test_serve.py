"""The whole way: `konvene serve` in a process of its own, and every command against it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Said, call


class Served:
    """A running broker; `address` is where it listens."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "konvene", "serve", "--host", "127.0.0.1", "--port", "0", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"listens on (\S+?:\d+)", line)
            if found:
                self.address = found[1]
                return
        pytest.fail("the broker did not start:\n" + "".join(said))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    served = Served("--ephemeral", "--set", "group.initial.rebalance.delay.ms=0")
    yield served
    assert served.stop() == 0


def konvene(broker: Any, *words: str, stdin: str | None = None) -> Said:
    said = call(broker, *words, stdin=stdin)
    assert said.code == 0, said
    return said


def test_records_go_in_and_come_out_again(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "orders", "--partitions", "3")
    lines = "".join(f"k{i}\tv{i}\n" for i in range(50))
    made = konvene(
        broker, "produce", "--topic", "orders", "--property", "parse.key=true", "--json", stdin=lines
    )
    assert sum(p["records"] for p in made.json["partitions"]) == 50
    got = konvene(
        broker, "consume", "--topic", "orders", "--from-beginning", "--max-messages", "50", "--json"
    )
    assert sorted(r["value"] for r in got.json) == sorted(f"v{i}" for i in range(50))


def test_a_group_reads_commits_and_its_past_is_told(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "payments", "--partitions", "2")
    konvene(broker, "produce", "--topic", "payments", stdin="one\ntwo\nthree\n")
    reading = (
        "consume",
        "--topic",
        "payments",
        "--group",
        "billing",
        "--from-beginning",
        "--client-id",
        "ann",
    )
    assert konvene(broker, *reading, "--max-messages", "2").out == "one\ntwo\n"
    assert konvene(broker, *reading, "--max-messages", "1").out == "three\n"
    (group,) = konvene(broker, "groups", "describe", "--group", "billing", "--json").json
    assert (group["type"], group["state"], group["members"]) == ("classic", "Empty", [])
    assert sum(row["lag"] or 0 for row in group["offsets"]) == 0
    told = konvene(broker, "groups", "history", "--group", "billing", "--json").json
    assert [(r["generation"], r["state"], r["inferred"]) for r in told] == [
        (1, "Stable", False), (2, "Empty", False), (3, "Stable", False), (4, "Empty", False),
    ]  # fmt: skip
    kinds = [(c["kind"], c["client_id"]) for r in told for c in r["causes"]]
    assert kinds == [("member-joined", "ann"), ("member-left", "ann")] * 2
    assert told[1]["causes"][0]["reason"] == "konvene consume was ended"
    text = konvene(broker, "groups", "history", "--group", "billing", "--limit", "1").out
    assert "reason: konvene consume was ended" in text


def test_what_is_not_there_is_told_as_kafka_would(broker: Any) -> None:
    assert call(broker, "groups", "describe", "--group", "nobody").code == 1
    assert call(broker, "topics", "describe", "--topic", "nothing").code == 1
    konvene(broker, "topics", "create", "--topic", "twice")
    assert "TOPIC_ALREADY_EXISTS" in call(broker, "topics", "create", "--topic", "twice").err
    konvene(broker, "topics", "delete", "--topic", "twice")
    assert ["twice"] not in konvene(broker, "topics", "list").lines


def test_an_interrupted_consumer_leaves_its_group(broker: Any) -> None:
    konvene(broker, "topics", "create", "--topic", "endless")
    words = ["--topic", "endless", "--group", "waiting", "--bootstrap-server", broker.address]
    process = subprocess.Popen(
        [sys.executable, "-m", "konvene", "consume", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        said = call(broker, "groups", "describe", "--group", "waiting", "--state", "--json")
        if said.code == 0 and said.json[0]["state"] == "Stable":
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"Processed a total of 0 messages\n")
    (group,) = konvene(broker, "groups", "describe", "--group", "waiting", "--state", "--json").json
    assert group["state"] == "Empty"


def test_an_assignor_is_offered_besides_those_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module may lie where the broker is started; a client may ask what is on offer."""
    (tmp_path / "near_by.py").write_text("def assign(spec):\n    return {}\n")
    monkeypatch.chdir(tmp_path)
    served = Served("--ephemeral", "--set", "group.consumer.assignors=range", "--assignor", "near_by:assign")
    try:
        said = konvene(served, "configs", "describe", "--entity-type", "brokers", "--all", "--json")
    finally:
        assert served.stop() == 0
    assert "range,near_by:assign" in said.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--assignor", "nowhere:assign"), "module nowhere cannot be imported: ModuleNotFoundError"),
        (
            ("--set", "group.consumer.assignors=best"),
            "no such assignor; there are uniform, range",
        ),
        (("--assignor", "range"), "another assignor is called range already."),
    ],
)
def test_an_assignor_that_cannot_be_offered_is_told_before_anything_is_done(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    """In one line, and no data directory is made."""
    data = ["--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-m", "konvene", "serve", "--port", "0", *data, *words],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("konvene: Invalid value ")
    assert why in line
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_told_in_plain_words(broker: Any) -> None:
    port = broker.address.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "konvene", "serve", "--host", "127.0.0.1", "--port", port, "--ephemeral"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
