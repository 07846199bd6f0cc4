"""Each benchmark runs, with small parameters, and returns plausible figures. No test asserts their size."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from bench import kafka, pipeline_spark
from bench.__main__ import arguments, main, measured
from bench.drive import Repeated, Windows, drive
from bench.figures import Figure
from bench.report import Result, document, table
from bench.rows import ROWS, Row, Unknown, chosen
from bench.systems import Lab
from bench.wire import BadAnswer

TINY = Windows(seconds=0.15, runs=1, warm_s=0.02)
#: What may be nothing, or less, in so short a time and with so few.
MAY_BE_ANYTHING = {
    "idle CPU, %",
    "KiB per connection",
    "CPU ms",
    "loop's CPU ms",
    "loop without a CPU, ms",
    "CPU, % of a core",
    "a share group's records per CPU s, of these",  # It takes turns, and its turn may be too short here.
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("konvene", TINY, shrink=500) as lab:
        yield lab


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_gives_figures(lab: Lab, row: Row) -> None:
    """Every figure has a value for each window, and each published figure of Kafka is among ours."""
    figures = row.measure(lab)
    assert figures
    for figure in figures:
        assert len(figure.values) >= 1
        what = figure.what.rpartition(": ")[2].removesuffix(" above quiet")
        assert what in MAY_BE_ANYTHING or min(figure.values) > 0, figure
    assert kafka.PUBLISHED.get(row.kafka, {}).keys() <= {figure.what for figure in figures}


def test_what_took_no_tick_of_cpu_is_no_division_by_nothing() -> None:
    """A few thousand records are read faster than the kernel counts."""
    assert pipeline_spark._seconds(lambda: None)[1] > 0


def test_published_figures_belong_to_existing_rows() -> None:
    """No constant of Kafka's is left without its row."""
    assert kafka.PUBLISHED.keys() <= {row.name for row in ROWS}


def test_names_choose_rows_and_families() -> None:
    """A whole name is one row, even where others begin so; a first word is all rows that begin with it."""
    assert [row.name for row in chosen(["commit-1"])] == ["commit-1"]
    assert [row.name for row in chosen(["fetch", "idle"])] == ["idle", "fetch-1", "fetch-100", "fetch-1000"]
    assert chosen([]) == list(ROWS)
    with pytest.raises(Unknown, match="no benchmark is called comm; there are: codec, start, "):
        chosen(["comm"])


def test_table_and_document() -> None:
    """The median with its spread, Kafka's published figure, and the ratio to what it reached here, if it
    ran."""
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
    """`--json` prints nothing else; progress goes to stderr."""
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


class Crumbs(threading.Thread):
    """A server for one connection that answers each request with `right`, seven bytes at a time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.numbers: list[int] = []
        self.bodies: set[bytes] = set()

    def run(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.listener, connection, connection.makefile("rb") as requests, suppress(OSError):
            while size := requests.read(4):
                body = requests.read(int.from_bytes(size, "big"))
                if len(body) < int.from_bytes(size, "big"):
                    break  # the load is over, in the middle of a request
                self.numbers.append(int.from_bytes(body[4:8], "big"))
                self.bodies.add(body[8:])
                answer = b"\0\0\0\x09" + body[4:8] + b"right"
                for at in range(0, len(answer), 7):
                    connection.sendall(answer[at : at + 7])


@pytest.mark.parametrize("size", [10, 5_000_000])
def test_load_is_whole_requests_in_order(size: int) -> None:
    """Each request has the next number, also where a socket does not take it at once, and answers that come
    in crumbs are put together. With two in flight, no more than two are unanswered when a window ends."""
    server = Crumbs()
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
    assert server.numbers == list(range(1, len(server.numbers) + 1))
    assert answered <= len(server.numbers) <= answered + 2
    assert server.bodies == {body}


def test_kafka_is_measured_once_for_rows_that_differ_for_us_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row beside another is not run on Kafka; what the other one gave there stands beside both."""

    def named(lab: Lab) -> list[Figure]:
        runs.append(lab.system)
        return [Figure("things", (float(len(runs)),))]

    runs: list[str] = []
    rows = [Row("plain", "", named), Row("special", "", named, beside="plain")]
    plain, special = measured(rows, ["konvene", "kafka"], arguments([]))
    assert runs == ["kafka", "konvene", "konvene"]
    assert plain.line("things")["kafka"] == special.line("things")["kafka"]
    assert special.line("things")["ratio"] == 3


def test_wrong_answer_is_no_figure() -> None:
    """An answer that is not the one that was proven right ends the benchmark; only what may differ may."""
    caller = Repeated([b"frame"], proven=b"\0\0\0\1right, at 17", same=9)
    assert caller.answered(memoryview(b"\0\0\0\2right, at 18")) == 0
    for wrong in (b"\0\0\0\2wrong, at 18", b"\0\0\0\2right, at 181"):
        with pytest.raises(BadAnswer):
            caller.answered(memoryview(wrong))


def test_failed_row_is_reported_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are measured all the same."""

    def fails(lab: Lab) -> list[Figure]:
        raise BadAnswer("no")

    rows = (Row("bad", "fails", fails), Row("good", "does not", lambda lab: [Figure("things", (1.0,))]))
    monkeypatch.setattr("bench.rows.ROWS", rows)
    assert main([]) == 1
    out = capsys.readouterr().out
    assert "konvene failed: BadAnswer: no" in out and "things ↑" in out
