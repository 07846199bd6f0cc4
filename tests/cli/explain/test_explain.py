"""`konvene explain`: real logs of Apache Kafka, told to people and to programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.commands import Said, call
from tests.pipeline.answers.sample import Client, Model, together

from konvene.cli.explain.command import explain
from konvene.cli.explain.warehouse import brokers_and_paths, engine_of

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
CONSUMER, CLASSIC, SHARE = (str(LOGS / name) for name in ("consumer", "classic", "share"))


def run(*words: str) -> Said:
    return call(None, "explain", *words)


def lines(said: Said) -> list[Any]:
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the scenario `consumer`."""
    path = str(tmp_path_factory.mktemp("warehouse"))
    assert run("tables", CONSUMER, "--warehouse", path).code == 0
    return path


# the list -------------------------------------------------------------------------------------


def test_rebalances_are_told_newest_first_each_in_a_sentence_then_what_they_come_to() -> None:
    said = run(CONSUMER, "--limit", "2")
    assert said.code == 0
    first, _, rest = said.out.partition("\n2026-11-21 02:19:00.376  ")
    assert first.splitlines() == [
        "2026-11-21 02:19:03.031  alive-mixed (consumer), epoch 1 → 2",
        "    qKcI… (client oda at /127.0.0.1) speaks the new protocol, and the group with it "
        "from now on, and "
        "joined: 1.1 s until all 2 members were done with it; 1 of 3 partitions moved, 2 stayed; 1 "
        "partition stood "
        "still meanwhile: 0.7 partition-seconds.",
        "    Inferred from the records of the log.",
    ]
    told, _, summary = rest.partition("\n\n")
    assert told.startswith(
        "alive-mixed (classic), generation 0 → 1\n    nan-b263… (client nan at /127.0.0.1) joined"
    )
    assert said.err == "35 older ones are not shown; --limit 37 shows all.\n"
    assert summary.startswith("37 rebalances of 7 groups within 2 min 2 s.\n\nGROUP")
    assert "\nSTORM IN  BEGAN (UTC)" in summary and "\nCLIENT  GROUP" in summary
    assert "37 of 37 are inferred from the records." in summary


def test_programs_get_an_object_for_each_on_a_line_of_its_own() -> None:
    told = lines(run(CONSUMER, "--json"))
    assert len(told) == 37
    bob = next(each for each in told if each["group"] == "basic" and each["to_epoch"] == 3)
    expected = {
        "type": "consumer", "from_epoch": 2, "start_ms": 1795227424755, "end_ms": 1795227425840,
        "cause": "member-joined", "member": "VRRqdoqdSdu3rsKz409vZQ", "client_id": "bob", "instance_id": None,
        "evidence": "inferred", "members": 2, "moved": 2, "added": 0, "state": "Stable", "converged": True,
    }  # fmt: skip
    assert {name: bob[name] for name in expected} == expected
    assert told == sorted(told, key=lambda each: -(each["start_ms"] or each["target_ms"] or each["end_ms"]))
    assert {each["cause"] for each in told if "|" in each["cause"]} == {"member-left|session-expired"}


def test_what_is_asked_for_is_told_alone(warehouse: str) -> None:
    def epochs(*words: str) -> list[int]:
        return [each["to_epoch"] for each in lines(run("--warehouse", warehouse, "--json", *words))]

    assert epochs("--group", "static-app") == [5, 4, 3, 2]
    assert epochs("--group", "static-app", "--group", "doom", "--limit", "3") == [4, 5, 4]
    assert epochs("--group", "static-app", "--until", "2026-11-21T02:17:30") == [3, 2]
    assert epochs("--group", "static-app", "--since", "1795227450000") == [5, 4]
    assert epochs("--group", "static-app", "--since", "2026-11-21T04:17:30+02:00") == [5, 4]
    assert epochs("--type", "classic") == epochs("--type", "classic", "--since", "2020-01-01")
    assert epochs("--since", "1h") == []


def test_a_second_run_reads_nothing_again(warehouse: str) -> None:
    manifests = sorted(Path(warehouse).glob("_manifest/*"))
    again = lines(run(CONSUMER, "--warehouse", warehouse, "--json"))
    assert again == lines(run(CONSUMER, "--json")), "a warehouse changes no answer"
    assert sorted(Path(warehouse).glob("_manifest/*")) == manifests


def test_without_a_warehouse_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(CONSUMER, "--limit", "1").code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_single_segment_is_enough() -> None:
    segment = Path(CONSUMER, "__consumer_offsets-0", "00000000000000000000.log")
    some = lines(run(str(segment), "--json"))
    assert 0 < len(some) < 37
    assert {each["log_partition"] for each in some} == {0}


def test_groups_of_several_clusters_are_told_apart(tmp_path: Path) -> None:
    """Each directory says of which cluster it is; one does not, and is named."""
    for name in ("a", "b"):
        shutil.copytree(CLASSIC, tmp_path / name)
    (tmp_path / "a" / "meta.properties").write_text("version=1\ncluster.id=ours\nnode.id=1\n")
    said = run(str(tmp_path), "--cluster", "theirs", "--group", "billing", "--limit", "12")
    heads = [line for line in said.out.splitlines() if "generation" in line]
    assert {line.rpartition(", ")[2] for line in heads} == {"cluster ours", "cluster theirs"}
    _, _, summary = said.out.partition("CLUSTER  GROUP")
    rows = [line.split()[:2] for line in summary.splitlines()[1:3]]
    assert sorted(rows) == [["ours", "billing"], ["theirs", "billing"]]


# a story --------------------------------------------------------------------------------------


def test_one_rebalance_is_told_step_by_step(warehouse: str) -> None:
    said = run("--warehouse", warehouse, "--group", "basic", "--why", "3")
    assert said.code == 0
    head, steps, lanes, members = said.out.split("\n\n")
    assert head.splitlines()[0] == "2026-11-21 02:17:04.755  basic (consumer), epoch 2 → 3"
    assert steps.splitlines() == [
        "    +0 ms  VRRq… (client bob at /127.0.0.1) joined",
        "    +0 ms  the coordinator had made the new target",
        "  +670 ms  ann (p5Ef…) gave up orders:2-3",
        "  +670 ms  ann (p5Ef…) had what it was to have",
        "   +1.1 s  bob (VRRq…) got orders:2-3",
        "   +1.1 s  bob (VRRq…) had what it was to have, after it had waited for ann (p5Ef…)",
        "   +1.1 s  every partition that was without one had an owner again: 2 partitions, 0.8 "
        "partition-seconds, "
        "orders:2 the longest with 415 ms",
        "   +1.1 s  done: the group is Stable, 2 members",
    ]
    _, bob, ann, legend = lanes.splitlines()
    assert bob.split()[:5] == ["bob", "(VRRq…)", "0", "→", "2"] and "+" in bob and "✓" in bob
    assert ann.split()[:5] == ["ann", "(p5Ef…)", "4", "→", "2"] and "▒" in ann
    assert ann.index("✓") < bob.index("✓") and legend.split()[0] == "━"
    assert members.splitlines()[1].split()[:6] == ["bob", "(VRRq…)", "joined", "0", "2", "0"]


def test_a_story_for_programs_has_steps_and_members(warehouse: str) -> None:
    told = run("--warehouse", warehouse, "--group", "basic", "--why", "3", "--json").json
    assert told["to_epoch"] == 3 and told["cause"] == "member-joined"
    assert [step["text"] for step in told["steps"]][2] == "ann (p5Ef…) gave up orders:2-3"
    bob, ann = told["member_stories"]
    assert (bob["before"], bob["after"], bob["waited_for"]) == (0, 2, ["ann (p5Ef…)"])
    assert (ann["revoked"], ann["states"]) == (2, ["UNREVOKED_PARTITIONS", "STABLE"])


def test_what_the_log_does_not_tell_is_said(tmp_path: Path) -> None:
    said = run(CLASSIC, "--group", "coop", "--why", "11")
    assert said.code == 0
    assert "left, or its session expired, or it did not rejoin in time" in said.out
    assert said.err.startswith("The log does not tell when it began, or when its causes were, or how long")


# tables, report -------------------------------------------------------------------------------


def test_tables_are_exported_where_that_is_asked_for(warehouse: str, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    said = run("tables", "--warehouse", warehouse, "--delta", str(tmp_path / "lake"))
    assert said.code == 0
    assert f"tables in {tmp_path / 'lake'}; " in said.err
    rows = {each["table"]: each["rows"] for each in run("tables", "--warehouse", warehouse, "--json").json}
    there = deltalake.DeltaTable(str(tmp_path / "lake" / "rebalance"))
    assert there.to_pyarrow_table().num_rows == rows["rebalance"]
    again = run("tables", "--warehouse", warehouse, "--delta", str(tmp_path / "lake"))
    assert "0 files came, 0 went" in again.err


def test_tables_are_listed_with_their_paths(warehouse: str) -> None:
    told = {each["table"]: each for each in run("tables", "--warehouse", warehouse, "--json").json}
    assert told["rebalance"]["rows"] == 37 and told["rebalance"]["layer"] == "gold"
    assert told["rebalance"]["path"] == f"{warehouse}/gold/rebalance"
    assert all(Path(file["path"]).stat().st_size == file["bytes"] for file in told["rebalance"]["files"])
    shown = run("tables", "--warehouse", warehouse, "--files").out
    assert shown.splitlines()[0].split() == ["TABLE", "LAYER", "ROWS", "#FILES", "BYTES", "PATH"]
    assert told["rebalance"]["files"][0]["path"] in shown
    order = [each["layer"] for each in run("tables", "--warehouse", warehouse, "--json").json]
    assert order == sorted(order, key=["bronze", "silver", "gold"].index)


def test_a_report_is_one_file(tmp_path: Path, warehouse: str) -> None:
    target = tmp_path / "report.html"
    said = run("report", CONSUMER, "--out", str(target), "--title", "A <b>day</b>")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{target}: 7 groups, {target.stat().st_size:,} bytes\n"
    assert "<title>A &lt;b&gt;day&lt;/b&gt;</title>" in target.read_text("utf-8")
    said = run("report", "--warehouse", warehouse, "--group", "basic", "--out", str(target))
    assert said.out.startswith(f"{target}: 1 groups")
    assert "wordcount" not in target.read_text("utf-8")


def test_the_audit_can_be_left_out(tmp_path: Path) -> None:
    kept = str(tmp_path / "w")
    assert run(CONSUMER, "--warehouse", kept, "--no-audit", "--limit", "1").code == 0
    said = run(CONSUMER, "--warehouse", kept)
    assert (said.code, said.err) == (
        1, "konvene: this warehouse was begun without __konvene_audit\n  Choose another --warehouse.\n",
    )  # fmt: skip


# errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/nowhere/at/all"], "konvene: there is no /nowhere/at/all\n"),
        ([str(LOGS.parent / "history")], "konvene: no log: "),
        ([CONSUMER, "--group", "basc"], "konvene: nothing is known of a group basc\n  Is it basic?\n"),
        ([CONSUMER, "--group", "zzzz"],
         "konvene: nothing is known of a group zzzz\n  Groups there are: alive, alive-mixed, basic, "
         "doom, pattern, …."),
        ([CONSUMER, "--group", "basic", "--why", "99"],
         "konvene: basic came to no epoch or generation 99, as far as these logs tell\n  Those that "
         "are known: 2, 3,"),
        ([CONSUMER, "--since", "1h"], "konvene: no group rebalanced, as far as these logs tell\n  "
                                      "Leave out --since"),
        ([f"{SHARE}/__share_group_state-0"],
         "konvene: no group rebalanced, as far as these logs tell\n  They tell of commits, or of"),
        (["localhost:1"], "konvene: cannot connect to localhost:1: connection refused\n  Name "
                          "host:port of a Kafka"),
        (["--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n  Name logs too"),
        (["tables", "--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n"),
        (["report", "--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n"),
        (["report", CONSUMER, "--group", "basc", "--out", "/tmp/x"], "konvene: nothing is known of "
                                                                     "a group basc\n"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_told_in_a_line_and_what_to_do_in_another(words: list[str], told: str) -> None:
    said = run(*words)
    assert said.code == 1 and said.out == ""
    assert said.err.startswith(told), said.err
    assert len(said.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([CONSUMER, "--why", "3"], "--why needs one --group."),
        ([CONSUMER, "--since", "yesterday"], "write 2026-11-22T10:00 (UTC), or 2h for two hours ago."),
        ([CONSUMER, "--engine", "local", "--master", "spark://h:1"], "--master is for Spark"),
        (["--json"], "name logs to read, or a --warehouse that has read some."),
        (["tables", CONSUMER], "say with --warehouse DIR where the tables are to be."),
        (["follow", CONSUMER], "say with --warehouse DIR where to keep what is read."),
    ],
)
def test_misuse_is_exit_code_two(words: list[str], told: str) -> None:
    said = run(*words)
    assert said.code == 2 and told in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    copied = tmp_path / "__consumer_offsets-0"
    shutil.copytree(Path(CONSUMER, "__consumer_offsets-0"), copied)
    (copied / "00000000000000000000.log").chmod(0)
    said = run(str(tmp_path))
    assert said.code == 1 and said.err.startswith(f"konvene: no permission to read {copied}")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m konvene explain {CONSUMER} --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["group"] == "alive-mixed" and done.stderr == ""


def test_a_worker_that_was_killed_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("konvene.pipeline.gold.build.build", killed)
    said = run(CONSUMER)
    assert said.code == 1
    assert said.err.startswith("konvene: a worker process was ended from outside\n  Is there memory enough?")


def test_a_machine_without_pyarrow_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = run(CONSUMER)
    assert (said.code, said.err) == (
        1, "konvene: explaining logs needs pyarrow, which is not installed\n  pip install 'konvene[spark]'\n",
    )  # fmt: skip


def test_a_machine_without_spark_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konvene.cli.explain.warehouse._has_spark", lambda: False)
    said = run(CONSUMER, "--engine", "spark")
    assert said.code == 1
    assert said.err == (
        "konvene: Spark is not installed\n  pip install 'konvene[spark]', and Java 17 or newer; or "
        "--engine local.\n"
    )
    assert run(CONSUMER, "--engine", "auto", "--limit", "1").code == 0


def test_large_logs_go_to_all_cores_and_larger_ones_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    from konvene.cli.explain import warehouse as explain_steps
    from konvene.cli.explain.warehouse import Work

    asked: list[str] = []

    def engine(engine: str, mebibytes: int) -> str:
        monkeypatch.setattr(explain_steps, "_weight", lambda paths: mebibytes << 20)
        monkeypatch.setattr("konvene.pipeline.spark.session.build", lambda master: asked.append(master))
        return engine_of(Work(None, engine, None, "", True), [CONSUMER]).name

    assert [engine("auto", size) for size in (1, 100, 600)] == ["local", "processes", "spark"]
    assert [engine("local", size) for size in (1, 600)] == ["local", "processes"]
    assert engine("spark", 1) == "spark" and asked == ["local[*]", "local[*]"]


# words ----------------------------------------------------------------------------------------


def test_a_first_word_that_is_no_command_is_a_log(tmp_path: Path) -> None:
    """Options may stand before it; help is help."""
    assert lines(run("--json", "--limit", "1", CONSUMER)) == lines(run(CONSUMER, "--json", "--limit", "1"))
    assert lines(run("logs", CONSUMER, "--json", "--limit", "1")) == lines(
        run(CONSUMER, "--json", "--limit", "1")
    )
    told = run("--help").out
    assert all(name in told for name in ("follow", "logs", "report", "tables"))
    assert isinstance(explain.get_command(click.Context(explain), "/var/kafka"), click.Command)


def test_brokers_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data:9092").mkdir()
    given = ["localhost:9092", "a.b-c:1,d:2", "[::1]:9092", "data:9092", "/var/kafka", "kafka"]
    assert brokers_and_paths(given) == (given[:3], given[3:])


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("konvene.pipeline.ingest.ingest.ingest", interrupted)
    assert run(CONSUMER).code == 130


def test_sigterm_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("konvene.pipeline.gold.build.build", terminated)
    assert run(CONSUMER).code == 130
    assert list(tmp_path.iterdir()) == []


def test_names_with_control_characters_cannot_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    from konvene.cli.explain.show import print_rebalance, print_story, print_summary
    from konvene.pipeline.answers import Selection, summarise, tell

    model = Model("bad\x1b[2J", "consumer", {"t\x07": 2})
    model.join(Client("c\x1b[31m", "/h\r"), took_ms=1_000)
    model.wait(60_000)
    model.join(Client("d\x1b[31m", "/h\r"), took_ms=1_000)
    tables = together(model)
    said: list[str] = []
    monkeypatch.setattr("click.echo", lambda text="", **_: said.append(str(text)))
    for each in tables.rebalances:
        print_rebalance(each, None)
        print_story(tell(tables, each))
    print_summary(summarise(tables, Selection()), tables.rebalances)
    plain = [click.unstyle(text) for text in said]
    assert len(plain) > 20 and all(text.isprintable() for text in plain), [
        t for t in plain if not t.isprintable()
    ]


def test_help_does_not_wait_for_the_pipeline() -> None:
    """`konvene --help` and `konvene explain --help` import nothing of pyarrow, numpy or Spark."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom konvene.cli.app import konvene\n"
        "for words in (['--help'], ['explain', '--help'], ['explain', 'report', '--help']):\n"
        "    assert CliRunner().invoke(konvene, words).exit_code == 0\n"
        "print(sorted({'pyarrow', 'numpy', 'pyspark', 'konvene.pipeline'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
