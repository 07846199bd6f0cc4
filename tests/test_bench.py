"""Each benchmark runs, with small parameters, and returns plausible figures. No test asserts their size."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from bench import kafka, pipeline_spark, security
from bench.__main__ import arguments, main, measured
from bench.drive import Repeated, Windows, drive
from bench.figures import Figure
from bench.report import Result, document, table
from bench.rows import ROWS, Row, Unknown, chosen
from bench.systems import Lab
from bench.wire import BadAnswer

TINY = Windows(seconds=0.15, runs=1, warm_s=0.02)
#: Figures that may be zero or negative in such short windows with so few clients.
MAY_BE_ZERO = {
    "idle CPU, %",
    "KiB per connection",
    "CPU ms",
    "loop's CPU ms",
    "loop without a CPU, ms",
    "CPU, % of a core",
    "a share group's records per CPU s, of these",  # It alternates with others.
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("konvene", TINY, shrink=500) as lab:
        yield lab


ROWS_WITH_SPARK = {"spark"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.external] if row.name in ROWS_WITH_SPARK else [])
        for row in ROWS
    ],
)
def test_row_returns_figures(lab: Lab, row: Row) -> None:
    """Every figure has at least one value, and every published figure of Kafka has its counterpart."""
    figures = row.measure(lab)
    assert figures
    for figure in figures:
        assert len(figure.values) >= 1
        what = figure.what.rpartition(": ")[2].removesuffix(" above quiet")
        assert what in MAY_BE_ZERO or min(figure.values) > 0, figure
    assert kafka.PUBLISHED.get(row.kafka, {}).keys() <= {figure.what for figure in figures}


def test_cpu_seconds_are_positive_below_the_clock_resolution() -> None:
    """Short work may take less CPU time than the kernel's clock resolves; it must not divide by zero."""
    assert pipeline_spark.seconds_of(lambda: None)[1] > 0


def test_published_figures_belong_to_existing_rows() -> None:
    """Every published figure of Kafka names a row of the benchmarks."""
    assert kafka.PUBLISHED.keys() <= {row.name for row in ROWS}


def test_arguments_select_rows_by_name_or_prefix() -> None:
    """A full name selects this row only; a first word selects all rows that start with it."""
    assert [row.name for row in chosen(["commit-1"])] == ["commit-1"]
    assert [row.name for row in chosen(["fetch", "idle"])] == ["idle", "fetch-1", "fetch-100", "fetch-1000"]
    assert chosen([]) == list(ROWS)
    with pytest.raises(Unknown, match="no benchmark is called comm; there are: codec, start, "):
        chosen(["comm"])


def test_table_and_document() -> None:
    """A line has the median with its range, Kafka's published and measured figure, and the ratio to Kafka."""
    row = next(row for row in ROWS if row.name == "commit-1")
    result = Result(row, {"konvene": [Figure("requests per CPU s", (13_038.0, 10_000.0, 20_000.0))]})
    assert table(result, here=False).splitlines()[1].split() == (
        ["requests", "per", "CPU", "s", "↑", "13,040", "(10,000–20,000)", "26,076", "0.50"]
    )
    result.figures["kafka"] = [Figure("requests per CPU s", (39_114.0,))]
    assert table(result, here=True).splitlines()[1].split() == (
        ["requests", "per", "CPU", "s", "↑", "13,040", "(10,000–20,000)", "26,076", "39,110", "0.33"]
    )
    (row,) = document([result], "2026-01-01T00:00:00Z", ["0.1"])["rows"]
    assert row["figures"] == [
        {
            "what": "requests per CPU s",
            "kafka_published": 26_076,
            "less_is_better": False,
            "konvene": {"median": 13040.0, "min": 1e4, "max": 2e4, "windows": [13040.0, 1e4, 2e4]},
            "kafka": {"median": 39110.0, "min": 39110.0, "max": 39110.0, "windows": [39110.0]},
            "ratio": 0.3334,
        }
    ]


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json` stdout is one JSON document; progress goes to stderr."""
    assert main(["start", "--json", "--runs", "1"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert row["row"] == "start" and row["figures"][0]["konvene"]["median"] > 0
    assert err.startswith("konvene start (load average ")


def test_kafka_is_chosen_by_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KONVENE_BENCH_KAFKA", raising=False)
    assert not arguments([]).kafka
    assert arguments(["--kafka"]).kafka
    monkeypatch.setenv("KONVENE_BENCH_KAFKA", "0")
    assert not arguments([]).kafka
    monkeypatch.setenv("KONVENE_BENCH_KAFKA", "1")
    assert arguments(["start"]).kafka


class SevenByteServer(threading.Thread):
    """A server for one connection that responds `right` to each request, in segments of seven bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.correlation_ids: list[int] = []
        self.bodies: set[bytes] = set()

    def run(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.listener, connection, connection.makefile("rb") as requests, suppress(OSError):
            while size := requests.read(4):
                body = requests.read(int.from_bytes(size, "big"))
                if len(body) < int.from_bytes(size, "big"):
                    break  # the window ended in the middle of a request
                self.correlation_ids.append(int.from_bytes(body[4:8], "big"))
                self.bodies.add(body[8:])
                answer = b"\0\0\0\x09" + body[4:8] + b"right"
                for at in range(0, len(answer), 7):
                    connection.sendall(answer[at : at + 7])


@pytest.mark.parametrize("size", [10, 5_000_000])
def test_load_sends_complete_requests_in_order(size: int) -> None:
    """Requests have consecutive correlation ids, also when a socket accepts only a part of one.

    Segmented responses are reassembled. With two requests in flight, at most two have no response when a
    window ends.
    """
    server = SevenByteServer()
    server.start()
    body = bytes(range(10)) * (size // 10)
    frame = (8 + size).to_bytes(4, "big") + bytes(8) + body
    windows = Windows(seconds=0.2, runs=2, warm_s=0)
    caller = Repeated([frame], proven=bytes(4) + b"right", carries=size)
    seen = drive(server.port, [caller], 2, windows, cpu_s=lambda: 0.0)
    server.join(5)
    answered = sum(window.requests for window in seen)
    assert len(seen) == 2 and answered > 0
    assert sum(window.size for window in seen) == answered * size
    assert server.correlation_ids == list(range(1, len(server.correlation_ids) + 1))
    assert answered <= len(server.correlation_ids) <= answered + 2
    assert server.bodies == {body}


def test_kafka_is_measured_once_for_rows_that_differ_only_for_konvene(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row with `beside` does not run on Kafka; it shows Kafka's figures of the other row."""

    def named(lab: Lab) -> list[Figure]:
        runs.append(lab.system)
        return [Figure("things", (float(len(runs)),))]

    runs: list[str] = []
    rows = [Row("plain", "", named), Row("special", "", named, beside="plain")]
    plain, special = measured(rows, ["konvene", "kafka"], arguments([]))
    assert runs == ["kafka", "konvene", "konvene"]
    assert plain.line("things")["kafka"] == special.line("things")["kafka"]
    assert special.line("things")["ratio"] == 3


def test_wrong_response_fails_the_benchmark() -> None:
    """A response must equal the proven one in length and in its first `same` bytes, else BadAnswer."""
    caller = Repeated([b"frame"], proven=b"\0\0\0\1right, at 17", same=9)
    assert caller.answered(memoryview(b"\0\0\0\2right, at 18")) == 0
    for wrong in (b"\0\0\0\2wrong, at 18", b"\0\0\0\2right, at 181"):
        with pytest.raises(BadAnswer):
            caller.answered(memoryview(wrong))


def test_failed_row_is_reported_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other rows are still measured."""

    def fails(lab: Lab) -> list[Figure]:
        raise BadAnswer("no")

    rows = (Row("bad", "fails", fails), Row("good", "does not", lambda lab: [Figure("things", (1.0,))]))
    monkeypatch.setattr("bench.rows.ROWS", rows)
    assert main([]) == 1
    out = capsys.readouterr().out
    assert "konvene failed: BadAnswer: no" in out and "things ↑" in out


def test_security_measures_every_figure() -> None:
    """A broker with TLS and SASL, one with an authorizer, idle connections and starts; sizes are small."""
    plan = security.Plan(seconds=0.15, runs=1, warm_s={"konvene": 0.02}, shrink=500)
    measured = {figure.what: figure for figure in security.figures("konvene", plan)}
    assert measured.keys() >= {target.what for target in security.TARGETS}
    assert all(min(f.values) > 0 for f in measured.values() if f.what != security.PER_IDLE), measured


def test_security_table_compares_with_kafka_and_the_target() -> None:
    """A line has the median with its range, Kafka's, and the target. Quotients pair the windows."""
    plain, acls = (security.HEARTBEATS + name for name in (security.PLAIN, security.ACLS))
    ours = {plain: Figure(plain, (100.0, 200.0, 400.0)), acls: Figure(acls, (80.0, 190.0, 200.0))}
    theirs = {plain: Figure(plain, (50.0,))}
    assert security.table({"konvene": ours, "kafka": theirs}).splitlines()[2:] == [
        f"| {plain} | 200 (100–400) | 50 | 4.00 |  |",
        f"| {acls} | 190 (80–200) |  |  |  |",
        f"| {acls} / plaintext | 0.8 (0.5–0.95) |  |  | ≥ 0.9 **missed** |",
    ]
    idle = {security.IDLE_RSS: Figure(security.IDLE_RSS, (355.0,), less=True)}
    assert security.table({"konvene": idle}).splitlines()[2:] == [
        f"| {security.IDLE_RSS} | 355 | ≤ 400 met |"
    ]
