"""`konvene explain` on brokers that run, and `konvene explain follow` on logs that grow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import serving
from tests.cli.explain.test_explain import CONSUMER, lines, run
from tests.pipeline.answers.sample import Client, Model, gold, together

from konvene.cli.explain.follow import _Live, _Printer
from konvene.client.errors import CannotConnect

# live ------------------------------------------------------------------------------------------


def test_logs_and_audit_are_fetched_from_a_live_broker(tmp_path: Path) -> None:
    quick = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with serving(tmp_path / "broker", quick) as broker:
        broker.create("orders", 0, 0)
        broker.join("readers", ["orders"], None)
        printed = lines(run(broker.address, "--json"))
        unsure = lines(run(broker.address, "--json", "--no-audit"))
        kept = run("tables", broker.address, "--warehouse", str(tmp_path / "w"), "--json").json
    assert [(each["group"], each["to_epoch"], each["cause"]) for each in printed] == [
        ("readers", 1, "member-joined")
    ]
    assert printed[0]["evidence"] == "observed" and printed[0]["start_ms"] is not None
    assert unsure[0]["evidence"] == "inferred" and unsure[0]["start_ms"] is None
    assert "audit_event" in [each["table"] for each in kept]


def test_a_broker_that_never_had_a_group_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "broker") as broker:
        output = run(broker.address)
    assert (output.code, output.err) == (
        1,
        f"{broker.address} has no group logs: it has never had a group.\n",
    )


class Flaky:
    """A live reader whose broker is away when its row says so."""

    def __init__(self, *away: bool) -> None:
        self.away = list(away)

    def catch_up(self) -> None:
        if self.away.pop(0):
            raise CannotConnect("cannot connect to b:1: connection refused")


def test_a_follower_waits_for_an_unreachable_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are reported once; a broker that was never reachable is an error."""
    live = _Live(Flaky(False, True, True, False, False), "b:1", tmp_path)  # type: ignore[arg-type]
    for _ in range(5):
        live.catch_up()
    assert capsys.readouterr().err == (
        "cannot connect to b:1: connection refused; retrying.\nb:1 is reachable again.\n"
    )
    with pytest.raises(CannotConnect):
        _Live(Flaky(True), "b:1", tmp_path).catch_up()  # type: ignore[arg-type]


# following ------------------------------------------------------------------------------------


def test_a_follower_prints_rebalances_that_end_and_exits_cleanly(tmp_path: Path) -> None:
    """A log that grows by its second half while it is followed; SIGTERM ends it with exit code 0."""
    grown = Path(CONSUMER, "__consumer_offsets-0", "00000000000000000000.log").read_bytes()
    log = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(grown[: len(grown) // 2])
    words = [
        "follow",
        str(tmp_path / "data"),
        "--interval",
        "0.1",
        "--warehouse",
        str(tmp_path / "w"),
        "--json",
    ]
    command = [sys.executable, "-m", "konvene", "explain", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        before = int(follower.stderr.readline().split()[1])
        log.write_bytes(grown)
        all_of_it = lines(run(str(tmp_path / "data"), "--json"))
        over = [
            each
            for each in all_of_it
            if each["converged"] or each["superseded_by"] or each["state"] == "Empty"
        ]
        printed = [json.loads(follower.stdout.readline()) for _ in range(len(over) - before)]
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(30) == 0
        assert follower.stdout.read() == ""
    assert printed and {(each["group"], each["to_epoch"]) for each in printed} <= {
        (each["group"], each["to_epoch"]) for each in over
    }
    assert printed == sorted(
        printed, key=lambda each: each["start_ms"] or each["target_ms"] or each["end_ms"]
    )


class Stored:
    """A warehouse with these tables."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def files(self, name: str) -> list[str]:
        return [name] * (name in self.names)


@pytest.mark.parametrize(("names", "polls"), [((), 1), (("audit_event",), 2)])
def test_a_rebalance_that_the_audit_may_explain_is_printed_a_poll_later(
    names: tuple[str, ...], polls: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, and not before the next poll could have brought the audit row."""
    model = Model("app", "consumer", {"orders": 2}, evidence="inferred")
    model.join(Client("ann", "/a"))
    before = together(model)
    model.wait(60_000)
    model.join(Client("bob", "/b"))
    after = gold(**model.rows)
    now = [before]
    monkeypatch.setattr("konvene.pipeline.answers.Gold", lambda warehouse: now[0])
    printer = _Printer(Stored(*names), (), as_json=True)  # type: ignore[arg-type]
    printer.poll()
    assert capsys.readouterr() == ("", "Following; 1 rebalances ended before.\n")
    now[0] = after
    for poll in range(1, 4):
        printer.poll()
        printed = [json.loads(line)["to_epoch"] for line in capsys.readouterr().out.splitlines()]
        assert printed == ([2] if poll == polls else [])
