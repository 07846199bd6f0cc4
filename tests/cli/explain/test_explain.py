"""`konvene explain`: real logs of Apache Kafka, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from tests.cli.commands import CommandResult, call
from tests.pipeline.answers.sample import Client, Model, together

from konvene.cli.app import konvene
from konvene.cli.explain.command import explain
from konvene.cli.explain.warehouse import brokers_and_paths, engine_of

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
CONSUMER, CLASSIC, SHARE = (str(LOGS / name) for name in ("consumer", "classic", "share"))


def run(*args: str) -> CommandResult:
    return call(None, "explain", *args)


def lines(output: CommandResult) -> list[Any]:
    assert output.code == 0, output.err
    return [json.loads(line) for line in output.out.splitlines()]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the scenario `consumer`."""
    path = str(tmp_path_factory.mktemp("warehouse"))
    assert run("tables", CONSUMER, "--warehouse", path).code == 0
    return path


# the list -------------------------------------------------------------------------------------


def test_rebalances_newest_first_each_in_a_sentence_then_the_summary() -> None:
    output = run(CONSUMER, "--limit", "2")
    assert output.code == 0
    first, _, rest = output.out.partition("\n2026-11-21 02:19:00.376  ")
    assert first.splitlines() == [
        "2026-11-21 02:19:03.031  alive-mixed (consumer), epoch 1 → 2",
        "    qKcI… (client oda at /127.0.0.1) upgraded the group to the consumer protocol, "
        "and joined: both members converged in 1.1 s; 1 of 3 partitions moved, 2 stayed; 1 "
        "partition was without an owner: 0.7 partition-seconds.",
        "    Inferred from the records of the log.",
    ]
    second, _, summary = rest.partition("\n\n")
    assert second.startswith(
        "alive-mixed (classic), generation 0 → 1\n    nan-b263… (client nan at /127.0.0.1) joined"
    )
    assert output.err == "Not shown: 35 older rebalances; --limit 37 shows all.\n"
    assert summary.startswith("37 rebalances of 7 groups within 2 min 2 s.\n\nGROUP")
    assert "\nSTORM IN  BEGAN (UTC)" in summary and "\nCLIENT  GROUP" in summary
    assert "37 of 37 are inferred from Kafka's records." in summary
    assert "5 or more rebalances in 10 min" in summary and "partitions × seconds without an owner" in summary
    assert summary.count("does not distinguish leaving from session expiry;") == 1


def test_programs_get_an_object_for_each_on_a_line_of_its_own() -> None:
    printed = lines(run(CONSUMER, "--json"))
    assert len(printed) == 37
    bob = next(each for each in printed if each["group"] == "basic" and each["to_epoch"] == 3)
    expected = {
        "type": "consumer", "from_epoch": 2, "start_ms": 1795227424755, "end_ms": 1795227425840,
        "cause": "member-joined", "member": "VRRqdoqdSdu3rsKz409vZQ", "client_id": "bob", "instance_id": None,
        "evidence": "inferred", "members": 2, "moved": 2, "added": 0, "state": "Stable", "converged": True,
    }  # fmt: skip
    assert {name: bob[name] for name in expected} == expected
    assert printed == sorted(
        printed, key=lambda each: -(each["start_ms"] or each["target_ms"] or each["end_ms"])
    )
    assert {each["cause"] for each in printed if "|" in each["cause"]} == {"member-left|session-expired"}


def test_options_select_rebalances(warehouse: str) -> None:
    def epochs(*args: str) -> list[int]:
        return [each["to_epoch"] for each in lines(run("--warehouse", warehouse, "--json", *args))]

    assert epochs("--group", "static-app") == [5, 4, 3, 2]
    assert epochs("--group", "static-app", "--group", "doom", "--limit", "3") == [4, 5, 4]
    assert epochs("--group", "static-app", "--until", "2026-11-21T02:17:30") == [3, 2]
    assert epochs("--group", "static-app", "--since", "1795227450000") == [5, 4]
    assert epochs("--group", "static-app", "--since", "2026-11-21T04:17:30+02:00") == [5, 4]
    assert epochs("--type", "classic") == epochs("--type", "classic", "--since", "2020-01-01")
    assert epochs("--since", "1h") == []


def test_a_second_run_reads_nothing_again(warehouse: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(warehouse).rglob("*") if path.is_file()}
    again = lines(run(CONSUMER, "--warehouse", warehouse, "--json"))
    assert again == lines(run(CONSUMER, "--json")), "a warehouse changes no answer"
    assert {path: path.stat().st_mtime_ns for path in Path(warehouse).rglob("*") if path.is_file()} == before


def test_without_a_warehouse_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(CONSUMER, "--limit", "1").code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_single_segment_is_enough() -> None:
    segment = Path(CONSUMER, "__consumer_offsets-0", "00000000000000000000.log")
    some = lines(run(str(segment), "--json"))
    assert 0 < len(some) < 37
    assert {each["log_partition"] for each in some} == {0}


# a trace --------------------------------------------------------------------------------------


def test_the_steps_of_one_rebalance(warehouse: str) -> None:
    output = run("--warehouse", warehouse, "--group", "basic", "--why", "3")
    assert output.code == 0
    head, steps, lanes, members = output.out.split("\n\n")
    assert head.splitlines()[0] == "2026-11-21 02:17:04.755  basic (consumer), epoch 2 → 3"
    assert steps.splitlines() == [
        "    +0 ms  VRRq… (client bob at /127.0.0.1) joined",
        "    +0 ms  the coordinator computed the target assignment",
        "  +670 ms  ann (p5Ef…) revoked orders:2-3",
        "  +670 ms  ann (p5Ef…) reached its target assignment",
        "   +1.1 s  bob (VRRq…) was assigned orders:2-3",
        "   +1.1 s  bob (VRRq…) reached its target assignment, after waiting for ann (p5Ef…)",
        "   +1.1 s  all partitions have an owner again: 2 partitions had none for 0.8 partition-seconds in "
        "total; longest: orders:2, 415 ms",
        "   +1.1 s  completed: the group is Stable, 2 members",
    ]
    _, bob, ann, legend = lanes.splitlines()
    assert bob.split()[:5] == ["bob", "(VRRq…)", "0", "→", "2"] and "+" in bob and "✓" in bob
    assert ann.split()[:5] == ["ann", "(p5Ef…)", "4", "→", "2"] and "▒" in ann
    assert ann.index("✓") < bob.index("✓") and legend.split()[0] == "━"
    assert members.splitlines()[1].split()[:6] == ["bob", "(VRRq…)", "joined", "0", "2", "0"]


def test_a_trace_as_json_has_steps_and_members(warehouse: str) -> None:
    printed = run("--warehouse", warehouse, "--group", "basic", "--why", "3", "--json").json
    assert printed["to_epoch"] == 3 and printed["cause"] == "member-joined"
    assert [step["text"] for step in printed["steps"]][2] == "ann (p5Ef…) revoked orders:2-3"
    bob, ann = printed["member_stories"]
    assert (bob["before"], bob["after"], bob["waited_for"]) == (0, 2, ["ann (p5Ef…)"])
    assert (ann["revoked"], ann["states"]) == (2, ["UNREVOKED_PARTITIONS", "STABLE"])


def test_what_the_log_does_not_record_is_listed(tmp_path: Path) -> None:
    output = run(CLASSIC, "--group", "coop", "--why", "11")
    assert output.code == 0
    assert "left, or its session expired, or its rebalance timeout expired" in output.out
    assert output.err.startswith(
        "The log does not record when the rebalance began, when its causes occurred, how long"
    )


# tables, report -------------------------------------------------------------------------------


def test_tables_are_exported_on_request(warehouse: str, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    output = run("tables", "--warehouse", warehouse, "--iceberg", str(tmp_path / "lake"))
    assert output.code == 0
    assert f"tables in {tmp_path / 'lake'}; " in output.err
    again = run("tables", "--warehouse", warehouse, "--iceberg", str(tmp_path / "lake"))
    assert "0 files added, 0 removed" in again.err


def test_tables_are_listed_with_their_paths(warehouse: str) -> None:
    printed = {each["table"]: each for each in run("tables", "--warehouse", warehouse, "--json").json}
    assert printed["rebalance"]["rows"] == 37 and printed["rebalance"]["layer"] == "gold"
    assert printed["rebalance"]["path"] == f"{warehouse}/rebalance"
    assert all(Path(file["path"]).stat().st_size == file["bytes"] for file in printed["rebalance"]["files"])
    shown = run("tables", "--warehouse", warehouse, "--files").out
    assert shown.splitlines()[0].split() == ["TABLE", "LAYER", "ROWS", "#FILES", "BYTES", "PATH"]
    assert printed["rebalance"]["files"][0]["path"] in shown
    order = [each["layer"] for each in run("tables", "--warehouse", warehouse, "--json").json]
    assert order == sorted(order, key=["bronze", "silver", "gold"].index)


def test_a_report_is_one_file(tmp_path: Path, warehouse: str) -> None:
    target = tmp_path / "report.html"
    output = run("report", CONSUMER, "--out", str(target), "--title", "A <b>day</b>")
    assert (output.code, output.err) == (0, "")
    assert output.out == f"{target}: 7 groups, {target.stat().st_size:,} bytes\n"
    assert "<title>A &lt;b&gt;day&lt;/b&gt;</title>" in target.read_text("utf-8")
    output = run("report", "--warehouse", warehouse, "--group", "basic", "--out", str(target))
    assert output.out.startswith(f"{target}: 1 group")
    assert "wordcount" not in target.read_text("utf-8")


def test_the_audit_can_be_left_out(tmp_path: Path) -> None:
    kept = str(tmp_path / "w")
    assert run(CONSUMER, "--warehouse", kept, "--no-audit", "--limit", "1").code == 0
    output = run(CONSUMER, "--warehouse", kept)
    assert (output.code, output.err) == (
        1, "konvene: this warehouse was created without __konvene_audit\n  Choose another --warehouse.\n",
    )  # fmt: skip


# errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["/nowhere/at/all"], "konvene: there is no /nowhere/at/all\n"),
        ([str(LOGS.parent / "history")], "konvene: no log: "),
        ([CONSUMER, "--group", "basc"], "konvene: group basc not found in the logs\n  Did you mean basic?\n"),
        ([CONSUMER, "--group", "zzzz"],
         "konvene: group zzzz not found in the logs\n  Groups in the logs: alive, alive-mixed, basic, "
         "doom, pattern, …."),
        ([CONSUMER, "--group", "basic", "--why", "99"],
         "konvene: basic has no rebalance to epoch or generation 99 in the logs\n  Known ones: 2, 3,"),
        ([CONSUMER, "--since", "1h"], "konvene: no rebalance found in the logs\n  "
                                      "Leave out --since"),
        ([f"{SHARE}/__share_group_state-0"],
         "konvene: no rebalance found in the logs\n  The logs contain only commits, or"),
        (["localhost:1"], "konvene: cannot connect to localhost:1: connection refused\n  Name "
                          "host:port of a Kafka"),
        (["--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n  Name logs to build"),
        (["tables", "--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n"),
        (["report", "--warehouse", "/nowhere"], "konvene: there is no warehouse /nowhere\n"),
        (["report", CONSUMER, "--group", "basc", "--out", "/tmp/x"], "konvene: group basc "
                                                                     "not found in the logs\n"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_a_hint(args: list[str], expected: str) -> None:
    output = run(*args)
    assert output.code == 1 and output.out == ""
    assert output.err.startswith(expected), output.err
    assert len(output.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([CONSUMER, "--why", "3"], "--why needs one --group."),
        ([CONSUMER, "--since", "yesterday"], "write 2026-11-22T10:00 (UTC), or 2h for two hours ago."),
        ([CONSUMER, "--engine", "local", "--master", "spark://h:1"], "--master requires Spark"),
        (["--json"], "name logs to read, or an existing --warehouse."),
        (["tables", CONSUMER], "--warehouse DIR is required: it is where the tables are kept."),
    ],
)
def test_misuse_is_exit_code_two(args: list[str], expected: str) -> None:
    output = run(*args)
    assert output.code == 2 and expected in output.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    copied = tmp_path / "__consumer_offsets-0"
    shutil.copytree(Path(CONSUMER, "__consumer_offsets-0"), copied)
    (copied / "00000000000000000000.log").chmod(0)
    output = run(str(tmp_path))
    assert output.code == 1 and output.err.startswith(f"konvene: no permission to read {copied}")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m konvene explain {CONSUMER} --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["group"] == "alive-mixed" and done.stderr == ""


def test_a_killed_worker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("konvene.pipeline.gold.build.build", killed)
    output = run(CONSUMER)
    assert output.code == 1
    assert output.err.startswith("konvene: a worker process was killed\n  Is there enough memory?")


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_without_pyarrow_the_hint_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    output = run(CONSUMER)
    assert (output.code, output.err) == (
        1, f"konvene: explaining logs needs {package}, which is not installed\n"
        "  pip install 'konvene[explain]'\n",
    )  # fmt: skip


def test_without_a_warehouse_neither_delta_nor_spark_is_imported() -> None:
    code = (
        "import sys\n"
        "from konvene.cli.app import konvene\n"
        f"konvene(['explain', {CONSUMER!r}, '--json'], standalone_mode=False)\n"
        "print(sorted({'deltalake', 'pyspark', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['pyarrow']"


def test_keeping_tables_without_deltalake_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    output = run(CONSUMER, "--warehouse", str(tmp_path))
    assert (output.code, output.err) == (
        1, "konvene: keeping tables needs deltalake, which is not installed\n"
        "  pip install 'konvene[delta]'\n",
    )  # fmt: skip


def test_tables_in_the_format_of_an_older_konvene_are_refused(tmp_path: Path) -> None:
    (tmp_path / "_manifest").mkdir()
    output = run(CONSUMER, "--warehouse", str(tmp_path))
    assert output.code == 1
    assert output.err == (
        f"konvene: {tmp_path} has tables in the format of an older konvene\n"
        "  Build it again from the logs in another directory.\n"
    )


def test_explain_runs_without_spark(tmp_path: Path) -> None:
    """The extra `explain` has no pyspark: all commands work, and the engine is the local one."""
    code = (
        "import sys\nsys.modules['pyspark'] = None\nfrom konvene.cli import main\n"
        "sys.argv = ['konvene', 'explain', *sys.argv[1:]]\nmain()"
    )
    for words in (
        ["logs", str(CONSUMER), "--group", "basic", "--why", "3", "--warehouse", str(tmp_path / "tables")],
        ["report", "--warehouse", str(tmp_path / "tables"), "--out", str(tmp_path / "report.html")],
        ["tables", "--warehouse", str(tmp_path / "tables")],
    ):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any("pyspark" in each for each in extras["explain"])
    assert "konvene[delta]" in extras["spark"] and "konvene[explain]" in extras["delta"]


def test_without_spark_the_hint_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konvene.cli.explain.warehouse._has_spark", lambda: False)
    output = run(CONSUMER, "--engine", "spark")
    assert output.code == 1
    assert output.err == (
        "konvene: Spark is not installed\n  pip install 'konvene[spark]', and Java 17 or newer; or "
        "--engine local.\n"
    )
    assert run(CONSUMER, "--engine", "auto", "--limit", "1").code == 0


def test_large_logs_go_to_all_cores_and_to_spark_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from konvene.cli.explain import warehouse as explain_steps
    from konvene.cli.explain.warehouse import Work

    masters: list[str] = []

    def engine(engine: str, mebibytes: int) -> str:
        monkeypatch.setattr(explain_steps, "_total_bytes", lambda paths: mebibytes << 20)
        monkeypatch.setattr("konvene.pipeline.spark.session.build", lambda master: masters.append(master))
        return engine_of(Work(None, engine, None, "", True), [CONSUMER]).name

    assert [engine("auto", size) for size in (1, 100, 600)] == ["local", "processes", "processes"]
    assert [engine("local", size) for size in (1, 600)] == ["local", "processes"]
    assert engine("spark", 1) == "spark" and masters == ["local[*]"]


# arguments ------------------------------------------------------------------------------------


def test_a_first_word_that_is_no_command_is_a_log(tmp_path: Path) -> None:
    """Options may stand before it; help is help."""
    assert lines(run("--json", "--limit", "1", CONSUMER)) == lines(run(CONSUMER, "--json", "--limit", "1"))
    assert lines(run("logs", CONSUMER, "--json", "--limit", "1")) == lines(
        run(CONSUMER, "--json", "--limit", "1")
    )
    printed = run("--help").out
    assert all(name in printed for name in ("follow", "logs", "report", "tables"))
    assert isinstance(explain.get_command(click.Context(explain), "/var/kafka"), click.Command)


def test_brokers_are_distinguished_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    from konvene.cli.explain.show import print_rebalance, print_summary, print_trace
    from konvene.pipeline.answers import Selection, summarise, trace

    model = Model("bad\x1b[2J", "consumer", {"t\x07": 2})
    model.join(Client("c\x1b[31m", "/h\r"), took_ms=1_000)
    model.wait(60_000)
    model.join(Client("d\x1b[31m", "/h\r"), took_ms=1_000)
    tables = together(model)
    echoed: list[str] = []
    monkeypatch.setattr("click.echo", lambda text="", **_: echoed.append(str(text)))
    for each in tables.rebalances:
        print_rebalance(each, None)
        print_trace(trace(tables, each))
    print_summary(summarise(tables, Selection()), tables.rebalances)
    plain = [click.unstyle(text) for text in echoed]
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


# help -----------------------------------------------------------------------------------------------


def test_help_has_one_usage_and_the_options_of_a_call_with_logs() -> None:
    """`konvene explain LOGS` is a call of `konvene explain logs`, so its options are shown as well."""
    shown = run("--help").out
    assert re.findall(r"(?m)^Usage: .*", shown) == ["Usage: konvene explain [OPTIONS] LOGS... | COMMAND"]
    logs = explain.commands["logs"]
    for option in (each for each in logs.params if isinstance(each, click.Option)):
        assert f"  {option.opts[0]}" in shown
    assert shown.count("--help") == 1
    for command in explain.commands:
        assert re.search(rf"(?m)^  {command} ", shown)


def test_options_of_a_call_with_logs_are_completed() -> None:
    shell = ShellComplete(konvene, {}, "konvene", "_KONVENE_COMPLETE")
    assert [item.value for item in shell.get_completions(["explain"], "--wa")] == ["--warehouse"]
    assert [item.value for item in shell.get_completions(["explain", "data"], "--wa")] == ["--warehouse"]
    assert "follow" in [item.value for item in shell.get_completions(["explain"], "fo")]
