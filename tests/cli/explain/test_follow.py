"""`konvene explain` against live brokers, and `konvene explain follow` on growing logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import running_broker
from tests.cli.explain.test_explain import CONSUMER, lines, run
from tests.pipeline.answers.sample import Client, Model, gold, together

from konvene.cli.explain.follow import _Live, _Printer
from konvene.cli.explain.warehouse import evidence_of, spool_of
from konvene.client.errors import CannotConnect
from konvene.pipeline.answers import Gold, Selection
from konvene.pipeline.answers.observations.evidence import OBSERVATIONS_NAME
from konvene.pipeline.answers.observations.observation import Observation, encode
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.group_polls import GroupPoller
from konvene.pipeline.warehouse.memory import InMemory
from konvene.pipeline.warehouse.warehouse import Warehouse

# live ------------------------------------------------------------------------------------------


def test_logs_and_audit_are_fetched_from_a_live_broker(tmp_path: Path) -> None:
    quick = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with running_broker(tmp_path / "broker", quick) as broker:
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


def test_live_broker_without_groups_is_an_error(tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker") as broker:
        output = run(broker.address)
    assert (output.code, output.err) == (
        1,
        f"{broker.address} has no group logs: it has never had a group.\n",
    )


class FlakyReader:
    """A live reader whose broker is unreachable in the calls given as True."""

    def __init__(self, *unreachable: bool) -> None:
        self.unreachable = list(unreachable)

    def catch_up(self) -> None:
        if self.unreachable.pop(0):
            raise CannotConnect("cannot connect to b:1: connection refused")


def test_a_follower_waits_for_an_unreachable_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loss and return of the connection are reported once each; a broker that was never reachable is an
    error.
    """
    live = _Live(FlakyReader(False, True, True, False, False), "b:1", tmp_path)  # type: ignore[arg-type]
    for _ in range(5):
        live.catch_up()
    assert capsys.readouterr().err == (
        "cannot connect to b:1: connection refused; retrying.\nb:1 is reachable again.\n"
    )
    with pytest.raises(CannotConnect):
        _Live(FlakyReader(True), "b:1", tmp_path).catch_up()  # type: ignore[arg-type]


class DescribedReader(FlakyReader):
    """A live reader whose groups cannot be described."""

    def describe_groups(self, poller: object) -> list[str]:
        return ["Groups cannot be described."]


def test_groups_of_a_reachable_broker_are_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poller = GroupPoller(tmp_path / OBSERVATIONS_NAME)
    live = _Live(DescribedReader(False, True), "b:1", tmp_path, poller)  # type: ignore[arg-type]
    assert (live.catch_up(), live.catch_up()) == (True, False)
    assert capsys.readouterr().err == (
        "Groups cannot be described.\ncannot connect to b:1: connection refused; retrying.\n"
    )


def test_descriptions_of_followers_are_evidence_for_later_commands(tmp_path: Path) -> None:
    """Those in the warehouse, and those beside logs that are read."""
    warehouse = Warehouse(tmp_path / "w", InMemory(tmp_path / "w"))
    assert evidence_of(None, warehouse, [str(tmp_path)]) == []
    assert len(evidence_of(None, warehouse, [], [tmp_path / "new"])) == 1
    for directory in (spool_of(warehouse, "b:1"), tmp_path / "logs"):
        directory.mkdir(parents=True)
        (directory / OBSERVATIONS_NAME).write_bytes(
            encode(Observation("", "g", "", "", 1, 2, 3, 4, 5, 6, 7, {}))
        )
    assert repr(evidence_of(None, warehouse, [])) == "[<1 observation of 1 group>]"
    assert repr(evidence_of(None, warehouse, [str(tmp_path / "logs")])) == "[<2 observations of 1 group>]"


# following ------------------------------------------------------------------------------------


def test_follower_prints_ended_rebalances_and_exits_cleanly(tmp_path: Path) -> None:
    """The second half of the log is appended while it is followed; SIGTERM gives exit code 0."""
    data = Path(CONSUMER, "__consumer_offsets-0", "00000000000000000000.log").read_bytes()
    log = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(data[: len(data) // 2])
    args = [
        "follow",
        str(tmp_path / "data"),
        "--interval",
        "0.1",
        "--warehouse",
        str(tmp_path / "w"),
        "--json",
    ]
    command = [sys.executable, "-m", "konvene", "explain", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        before = int(follower.stderr.readline().split()[1])
        log.write_bytes(data)
        all_rows = lines(run(str(tmp_path / "data"), "--json"))
        ended = [
            row for row in all_rows if row["converged"] or row["superseded_by"] or row["state"] == "Empty"
        ]
        printed = [json.loads(follower.stdout.readline()) for _ in range(len(ended) - before)]
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(30) == 0
        assert follower.stdout.read() == ""
    assert printed and {(row["group"], row["to_epoch"]) for row in printed} <= {
        (row["group"], row["to_epoch"]) for row in ended
    }
    assert printed == sorted(printed, key=lambda row: row["start_ms"] or row["target_ms"] or row["end_ms"])


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_follower_without_a_warehouse_leaves_no_files(tmp_path: Path, signals: list[signal.Signals]) -> None:
    """Its temporary directory is deleted, also after a second Ctrl-C, which does not wait for the poll."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with running_broker(tmp_path / "broker", {"offsets.topic.num.partitions": "1"}) as broker:
        command = [sys.executable, "-m", "konvene", "explain", "follow", broker.address]
        environment = os.environ | {"TMPDIR": str(temporary)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as follower:
            assert follower.stderr is not None
            assert follower.stderr.readline() == "Following; 0 rebalances ended before.\n"
            assert list(temporary.iterdir()) != []
            for each in signals:
                follower.send_signal(each)
            code = follower.wait(60)
    assert code == 0 or (len(signals) == 2 and code == 130)
    assert list(temporary.iterdir()) == []


def test_only_files_that_changed_are_read_again(tmp_path: Path) -> None:
    """Two logs, of which one grows; a rebalance that has not ended is returned again."""
    data = Path(CONSUMER, "__consumer_offsets-0", "00000000000000000000.log").read_bytes()
    grows, rests = (
        tmp_path / home / "__consumer_offsets-0" / "00000000000000000000.log" for home in ("grows", "rests")
    )
    for log, size, cluster in ((grows, len(data) // 2, "a"), (rests, len(data), "b")):
        log.parent.mkdir(parents=True)
        log.write_bytes(data[:size])
        meta = f"version=1\ncluster.id={cluster}\nnode.id=1\n"
        (log.parent.parent / "meta.properties").write_text(meta)
    warehouse = Warehouse(tmp_path / "w", InMemory(tmp_path / "w"))
    read: set[str] = set()

    def changed() -> list[Rebalance]:
        ingest(warehouse, [tmp_path / "grows", tmp_path / "rests"], Local())
        build(warehouse, Local())
        return Gold(warehouse=warehouse).select_changed(Selection(), read)

    first = changed()
    assert {each.cluster for each in first} == {"a", "b"}
    assert changed() == []
    grows.write_bytes(data)
    again = changed()
    every = Gold(warehouse=warehouse).select(Selection())
    assert again == [each for each in every if each.cluster == "a"]
    assert len(again) > sum(each.cluster == "a" for each in first)
    assert len(read) == 2


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
    monkeypatch.setattr("konvene.pipeline.answers.Gold", lambda **_: now[0])
    printer = _Printer(Stored(*names), (), as_json=True)  # type: ignore[arg-type]
    printer.poll()
    assert capsys.readouterr() == ("", "Following; 1 rebalance ended before.\n")
    now[0] = after
    for poll in range(1, 4):
        printer.poll()
        printed = [json.loads(line)["to_epoch"] for line in capsys.readouterr().out.splitlines()]
        assert printed == ([2] if poll == polls else [])
