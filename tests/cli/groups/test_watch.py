"""`konvene groups describe --watch` and `groups history --follow`: repeated output until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.commands import RunningBroker, call, running_broker
from tests.cli.groups.test_history import JOINED, LEFT, encode_log, partition_answers, rebalance
from tests.cli.terminal import TIMEOUT_S, terminal
from tests.client.scripted import ScriptedBroker

from konvene.cli.options import Failure
from konvene.cli.watch import Outages, Screen
from konvene.records.audit import RebalanceKey
from konvene.records.coordinator import AUDIT_RECORDS

QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path / "broker", QUICK) as running:
        yield running


@contextmanager
def process(broker: Any, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command against the broker, with pipes for its output."""
    command = [sys.executable, "-m", "konvene", *args, "--bootstrap-server", broker.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def wait_for_line(stream: Any, pattern: str) -> None:
    """Read lines until one contains the pattern."""
    assert any(re.search(pattern, line) for line in stream), f"no line with {pattern}"


# describe --watch ---------------------------------------------------------------------------------


def test_watch_prints_the_table_again_outside_a_terminal(broker: RunningBroker) -> None:
    """A change of the group is in a later table; SIGINT ends the command with exit code 0."""
    broker.create("orders", 3)
    broker.commit("readers", "orders", p0=1)
    with process(broker, "groups", "describe", "readers", "--watch", "0.1") as shown:
        wait_for_line(shown.stdout, r"readers +orders +0 +1 +3 +2 ")
        broker.commit("readers", "orders", p0=3)
        wait_for_line(shown.stdout, r"readers +orders +0 +3 +3 +0 ")
        shown.send_signal(signal.SIGINT)
        _, errors = shown.communicate(timeout=TIMEOUT_S)
        assert shown.returncode == 0
    assert "UTC, every 0.1 s, Ctrl-C ends this" in errors and "Traceback" not in errors


def test_watch_redraws_a_terminal_in_place(broker: RunningBroker) -> None:
    """Each frame begins at the upper left corner, with its notes; only the first one clears the screen."""
    broker.create("orders", 3)
    broker.commit("readers", "orders", p0=1)
    args = ("groups", "describe", "--watch", "readers", "--bootstrap-server", broker.address)
    with terminal(*args, stdout=True) as shell:
        for _ in range(2):
            shell.wait_for("\x1b[?7h")
        shell.interrupt()
        assert shell.wait() == 0
    frames = shell.screen.split("\x1b[?7l")[1:]
    assert frames[0].startswith("\x1b[2J\x1b[H") and frames[1].startswith("\x1b[H")
    for frame in frames[:2]:
        assert "every 2 s" in frame
        assert "Consumer group 'readers' has no active members." in frame
        assert re.search(r"readers +orders +0 +1 +3 +2", frame)


def test_watched_group_that_does_not_exist_is_an_error(broker: RunningBroker) -> None:
    assert call(broker, "groups", "describe", "none", "--watch").code == 1


@pytest.mark.parametrize("args", [["--watch", "0", "g"], ["--watch=soon", "g"]])
def test_invalid_interval_is_a_usage_error(args: list[str]) -> None:
    assert call(None, "groups", "describe", *args).code == 2


def test_frame_shows_a_failure_and_the_terminal_is_not_overrun(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen(1)
    screen._is_terminal = True
    screen.show(lambda: click.echo("\n".join("abcdef")))
    frame = capsys.readouterr().out
    assert frame.count("\n") == 4 and "… and 4 more lines" in frame
    screen.show_failure(Failure("cannot connect to b:1", "Is a broker running there?"))
    assert "konvene: cannot connect to b:1\x1b[K\n  Is a broker" in capsys.readouterr().out


# history --follow ---------------------------------------------------------------------------------


def test_follow_prints_each_rebalance_when_it_ends(broker: RunningBroker) -> None:
    """The group does not exist at first; each of its generations is printed once, as a JSON line."""
    broker.create("orders", 0, 0)
    with process(broker, "groups", "history", "readers", "--follow", "--json") as shown:
        assert shown.stderr is not None and shown.stdout is not None
        assert shown.stderr.readline() == "No rebalance of group readers is recorded yet.\n"
        broker.join("readers", ["orders"], "a")
        first = json.loads(shown.stdout.readline())
        broker.join("readers", ["orders"], "b")
        second = json.loads(shown.stdout.readline())
        shown.send_signal(signal.SIGINT)
        rest, errors = shown.communicate(timeout=TIMEOUT_S)
        assert shown.returncode == 0
    assert (first["generation"], first["causes"][0]["kind"]) == (1, "member-joined")
    assert second["generation"] == 2
    assert rest == "" and "Traceback" not in errors


def test_followed_rows_continue_the_table() -> None:
    """Only the last rows of the past are printed, and new ones below them without column heads."""
    records = [(RebalanceKey(group="billing"), rebalance(epoch, JOINED)) for epoch in (1, 2)]
    broker = ScriptedBroker(**partition_answers("__konvene_audit", 0, b"", 0))
    broker.answers["Metadata"] = [broker.metadata(__konvene_audit=1, __consumer_offsets=1)]

    def append(*more: Any) -> None:
        records.extend(more)
        data = encode_log(*records, table=AUDIT_RECORDS)
        for name, answer in partition_answers("__konvene_audit", 0, data, len(records)).items():
            broker.answers[name] = [answer]

    with broker:
        append()
        with process(broker, "groups", "history", "--group", "billing", "--follow", "--limit", "1") as shown:
            assert shown.stdout is not None
            head, row, _ = (shown.stdout.readline() for _ in range(3))
            append((RebalanceKey(group="other"), rebalance(3, LEFT)))
            append((RebalanceKey(group="billing"), rebalance(3, LEFT)))
            new_row, cause = shown.stdout.readline(), shown.stdout.readline()
            shown.send_signal(signal.SIGTERM)
            assert shown.communicate(timeout=TIMEOUT_S) == ("", "")
            assert shown.returncode == 0
    assert head.startswith("GENERATION") and row.startswith("2 ") and new_row.startswith("3 ")
    assert head.index("STATE") == new_row.index("Stable")
    assert cause == "    member-left: bob-1 (client bob at /127.0.0.1) left\n"


def test_outage_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    outages = Outages()
    for _ in range(2):
        outages.show_failure(Failure("cannot connect to b:1"))
    for _ in range(2):
        outages.show(lambda: None)
    assert capsys.readouterr().err == ("cannot connect to b:1; retrying.\nThe cluster is available again.\n")
