"""Pipeline on Spark: throughput from logs to rows and files, compared with one plain process.

    python -m bench.pipeline_spark                        all of it, on a log of four million records
    python -m bench.pipeline_spark --only typed,silver --commit-version 3,4
                                                          with both versions of committed offsets
    python -m bench.pipeline_spark --records 168000000 --cores 2 --runs 0 --only typed,silver,jvm_mib
                                                          on one of 10 GB, once, for its memory use

Each session is a process of its own, with as many CPUs as it has slots, for the JVM, its Python workers and
all. So `1 core` is one core for everything. A rate is log records per wall-clock second, the best of some
runs after an uncounted one. The machine should be idle otherwise; its load is printed. The row below, `by
CPU`, is records per CPU second of all processes of the session, which other load disturbs less.

The naive baseline is a Python function over key and value, one record at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench.coordinator_log import LAP, write_log
from bench.figures import Figure
from bench.systems import Lab
from konvene.pipeline.engine import Engine, Local, Spark
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.decode import reading
from konvene.pipeline.sources.plan import Files
from konvene.pipeline.warehouse.warehouse import Warehouse

RECORDS = 4_000_000
PARTITIONS = 2
RUNS = 3
NAIVE_RECORDS = 400_000
BATCH_RECORDS = 1000
BATCHES = 60
"""Number of micro-batches; the first third, while code is being compiled, is left out."""
COMMIT_VERSION = 4
"""Version of the committed offsets: that which Kafka 4.4 writes."""
COLUMNS = "`group` string, topic string, partition int, committed_offset bigint, commit_timestamp bigint"
SILVER = ("offset_commit", "consumer_group_current_member_assignment")


class Amounts(NamedTuple):
    """Amounts of data to read."""

    records: int = RECORDS
    naive: int = NAIVE_RECORDS
    batches: int = BATCHES
    commit_version: int = COMMIT_VERSION
    lap: int = LAP


class Target(NamedTuple):
    """A row of the report: the measurement and the targets for 1 and 2 cores."""

    name: str
    description: str
    promised: tuple[float, ...] = ()


TARGETS = (
    Target("typed", "segment to typed rows (5 columns), M records/s", (0.9, 2.0)),
    Target("typed_all", "segment to typed rows (all 16 columns), M records/s"),
    Target("silver", "segment to silver Parquet, M records/s", (0.9, 1.8)),
    Target("bronze", "segment to bronze and silver Parquet, M records/s"),
    Target("commits", "segment to Parquet of one table by workers, M records/s"),
    Target("commits_frame", "the same by the data source and Spark, M records/s"),
    Target("naive", "naive function over key and value, M records/s"),
    Target("batch_ms", "a micro-batch of 1,000 rows to Parquet, ms", (250, 250)),
    Target("gold_batch_ms", "a micro-batch of 1,000 records up to gold, ms"),
    Target("jvm_mib", "most memory that the driver's JVM had, MiB (heap 512)"),
    Target("worker_mib", "most memory that a Python process of Spark's had, MiB"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_spark", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="of the log [%(default)d]")
    parser.add_argument(
        "--runs",
        type=int,
        default=RUNS,
        help="of which the best counts, behind one that does not; with 0 that one counts [%(default)d]",
    )
    parser.add_argument(
        "--cores", default="0,1,2", help="where to measure, 0 is a plain process [%(default)s]"
    )
    parser.add_argument(
        "--commit-version",
        default=str(COMMIT_VERSION),
        help="versions of committed offsets, separated by commas [%(default)s]",
    )
    parser.add_argument(
        "--lap",
        type=int,
        default=LAP,
        help="records of a partition that differ from one another; after them the log repeats itself, which "
        "saves time for large logs [%(default)d]",
    )
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--logs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--naive", type=int, default=NAIVE_RECORDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = frozenset(filter(None, options.only.split(",")))
    if options.inside is not None:
        amounts = Amounts(options.records, options.naive)
        print(json.dumps(inside(options.inside, options.logs, amounts, options.runs, only)))
        return
    where = tuple(map(int, options.cores.split(",")))
    by_version = {}
    for version in map(int, options.commit_version.split(",")):
        amounts = Amounts(options.records, commit_version=version, lap=options.lap)
        by_version[version] = measured(amounts, options.runs, options.only, where)
        print(f"OffsetCommit version {version}\n{report(by_version[version])}\n", flush=True)
    if len(by_version) > 1:
        print(ratios(by_version))


def figures(lab: Lab) -> list[Figure]:
    """Return figures for the table of all benchmarks: a plain process, Spark on one core, Spark on two.

    With reduced sizes each measurement runs once, in one Spark session, without a warm-up run."""
    amounts = Amounts(lab.of(RECORDS), lab.of(NAIVE_RECORDS), lab.of(BATCHES))
    if amounts == Amounts():
        found = measured(amounts, lab.windows.runs, "")
    else:
        found = measured(amounts, 0, "", (0, 2))
    where = {0: "plain process", 1: "Spark, 1 core", 2: "Spark, 2 cores"}
    made = []
    for row in TARGETS:
        for cores, values in found.items():
            if row.name in values:
                is_rate = row.description.endswith("records/s")
                made.append(
                    Figure(f"{row.description}: {where[cores]}", (values[row.name],), less=not is_rate)
                )
    return made


def measured(
    amounts: Amounts, runs: int, only: str, where: Iterable[int] = (0, 1, 2)
) -> dict[int, dict[str, float]]:
    """Return by number of cores (0: the plain process) each row's rate, and its rate by CPU."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        for partition in range(PARTITIONS):
            write_log(
                logs / "all", amounts.records // PARTITIONS, partition=partition, seed=partition, groups=1000,
                commit_version=amounts.commit_version, lap=amounts.lap,
            )  # fmt: skip
        write_log(logs / "naive", amounts.naive, commit_version=amounts.commit_version)
        write_log(logs / "small", amounts.batches * BATCH_RECORDS, commit_version=amounts.commit_version)
        size = sum(path.stat().st_size for path in (logs / "all").rglob("*.log"))
        distinct = min(amounts.records, amounts.lap * PARTITIONS)
        print(
            f"{amounts.records:,} records, {distinct:,} of them different, {size / 1e6:,.0f} MB; "
            f"load {_load()}",
            file=sys.stderr,
        )
        return {cores: _in_process(cores, logs, amounts, runs, only) for cores in where}


def report(found: dict[int, dict[str, float]]) -> str:
    """Print the rows: one plain process on one core, Spark on one core, Spark on two."""
    lines = [f"{'':<58}{'plain':>9}{'1 core':>9}{'2 cores':>9}{'promised':>14}"]
    for row in TARGETS:
        promised = " / ".join(f"{each:g}" for each in row.promised)
        by_cpu = f"{row.name} by CPU"
        for name, description, promise in (
            (row.name, row.description, promised),
            (by_cpu, f"{'by CPU':>49}", ""),
        ):
            values = [found.get(cores, {}).get(name) for cores in (0, 1, 2)]
            if any(value is not None for value in values):
                lines.append(f"{description:<58}{''.join(map(_shown, values))}{promise:>14}")
    for name in ("typed", "silver"):
        if all(name in found.get(cores, {}) for cores in (1, 2)):
            scaling = found[2][name] / (2 * found[1][name])
            lines.append(f"{f'scaling of {name}, 1 to 2 cores':<58}{scaling:>27.0%}{'95%':>14}")
    return "\n".join([*lines, f"load {_load()}"])


def ratios(by_version: dict[int, dict[int, dict[str, float]]]) -> str:
    """Print how the rates by CPU of the last version compare with those of the first one."""
    first, last = min(by_version), max(by_version)
    lines = [f"version {last} compared with version {first}, by CPU"]
    for cores, before in by_version[first].items():
        after = by_version[last].get(cores, {})
        shared = [name for name in before if name.endswith(" by CPU") and name in after]
        rates = ", ".join(
            f"{name.removesuffix(' by CPU')} {after[name] / before[name]:.0%}" for name in shared
        )
        lines.append(f"{cores or 'plain'}: {rates}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return f"{'-':>9}"
    return f"{value:>9.2f}" if value < 100 else f"{value:>9.0f}"


def _load() -> str:
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


def _in_process(cores: int, logs: Path, amounts: Amounts, runs: int, only: str) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.pipeline_spark", "--inside", str(cores), "--logs", str(logs)]
    words += ["--records", str(amounts.records), "--naive", str(amounts.naive)]
    words += ["--runs", str(runs), "--only", only]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    made: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return made


# in a process of its own --------------------------------------------------------------------------


def inside(cores: int, logs: Path, amounts: Amounts, runs: int, only: Iterable[str]) -> dict[str, float]:
    """Run the measurements in this process; with 0 cores without Spark, on one core."""
    cpus = sorted(os.sched_getaffinity(0))[: max(cores, 1)]
    os.sched_setaffinity(0, cpus)
    options = set(only)
    found: dict[str, float] = {}
    for name, (how, counted) in (_spark(cores, logs) if cores else _plain(logs)).items():
        amount = {"all": amounts.records, "naive": amounts.naive, "": 0}[counted]
        if options and name not in options:
            continue
        if not amount:
            found[name] = how()
            continue
        took = [seconds_of(how) for _ in range(runs + 1)][min(runs, 1) :]
        found[name] = amount / min(wall for wall, _ in took) / 1e6
        found[f"{name} by CPU"] = amount / min(cpu for _, cpu in took) / 1e6
    return found


Way = tuple[Callable[[], Any], str]
"""A measurement: the function that runs it once, and the log that it reads; "" if it returns its figure
itself."""


def _plain(logs: Path) -> dict[str, Way]:
    return {
        "typed": (lambda: _decoded(logs / "all"), "all"),
        "silver": (lambda: _ingested(logs / "all", Local(), SILVER), "all"),
        "bronze": (lambda: _ingested(logs / "all", Local(), None), "all"),
        "commits": (lambda: _ingested(logs / "all", Local(), SILVER[:1]), "all"),
        "naive": (lambda: _naive_loop(logs / "naive"), "naive"),
    }


def _spark(cores: int, logs: Path) -> dict[str, Way]:
    from konvene.pipeline.spark.session import build

    spark = build(f"local[{cores}]", app_name="bench", spark_local_dir=str(logs / "spark"))
    log = spark.read.format("konvene-log").option("table", "offset_commit")

    def typed(schema: str | None) -> None:
        rows = (log.schema(schema) if schema else log).load(str(logs / "all"))
        rows.write.format("noop").mode("overwrite").save()

    def commits_frame() -> None:
        with tempfile.TemporaryDirectory(dir=logs) as folder:
            log.load(str(logs / "all")).write.option("compression", "zstd").parquet(f"{folder}/rows")

    def naive() -> None:
        from pyspark.sql import functions as f

        made = "struct<g:string,t:string,p:int,o:bigint,ms:bigint>"
        decode = f.udf(decode_commit, made, useArrow=False)
        records = spark.read.format("konvene-log").load(str(logs / "naive"))
        records.select(decode("key", "value")).write.format("noop").mode("overwrite").save()

    return {
        "naive": (naive, "naive"),
        "typed_all": (lambda: typed(None), "all"),
        "typed": (lambda: typed(COLUMNS), "all"),
        "silver": (lambda: _ingested(logs / "all", Spark(spark), SILVER), "all"),
        "bronze": (lambda: _ingested(logs / "all", Spark(spark), None), "all"),
        "commits": (lambda: _ingested(logs / "all", Spark(spark), SILVER[:1]), "all"),
        "commits_frame": (commits_frame, "all"),
        "batch_ms": (lambda: _micro_batch_ms(spark, logs), ""),
        "gold_batch_ms": (lambda: _gold_batch_ms(spark, logs), ""),
        "jvm_mib": (lambda: _jvm_mib(spark), ""),
        "worker_mib": (_worker_mib, ""),
    }


def seconds_of(how: Callable[[], object]) -> tuple[float, float]:
    """Return wall seconds, and CPU seconds of this process and its descendants, in whole ticks and at least
    one."""
    began, before = time.perf_counter(), _ticks()
    how()
    wall, after = time.perf_counter() - began, _ticks()
    used = sum(ticks - before.get(pid, 0) for pid, ticks in after.items())
    return wall, max(used, 1) / os.sysconf("SC_CLK_TCK")


def _ticks() -> dict[int, int]:
    """Return the CPU ticks of each process of the session, including its children that have ended.

    A worker that ends between two readings is counted completely, by its parent: the result is an upper
    bound."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(words[1])
        ticks[int(path.parent.name)] = sum(map(int, words[11:15]))
    ours, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours, grown = ours | more, bool(more)
    return {pid: ticks[pid] for pid in ours if pid in ticks}


def _decoded(logs: Path) -> None:
    how, source = reading("offset_commit"), Files((str(logs),))
    ends = {of: place.next for of, place in source.places(how.wanted).items()}
    for part in source.slices(how.wanted, {}, ends):
        for _ in how.batches(part):
            pass


def _ingested(logs: Path, engine: Engine, tables: Iterable[str] | None) -> None:
    folder = tempfile.mkdtemp(dir=logs.parent)
    try:
        ingest(Warehouse(folder), [logs], engine, tables=tables)
    finally:
        shutil.rmtree(folder)


def _naive_loop(logs: Path) -> None:
    how, source = reading("coordinator_record"), Files((str(logs),))
    ends = {of: place.next for of, place in source.places(how.wanted).items()}
    for part in source.slices(how.wanted, {}, ends):
        for batch in how.batches(part):
            for key, value in zip(batch.column("key"), batch.column("value"), strict=True):
                decode_commit(key.as_py(), value.as_py())


def decode_commit(key: bytes, value: bytes | None) -> tuple[str, str, int, int, int] | None:
    """Decode an offset commit in the most direct way; None for all other records."""
    if value is None or key[:2] not in (b"\0\0", b"\0\1"):
        return None
    at = 4 + int.from_bytes(key[2:4], "big")
    group = bytes(key[4:at]).decode()
    end = at + 2 + int.from_bytes(key[at : at + 2], "big")
    topic = bytes(key[at + 2 : end]).decode()
    (partition,) = struct.unpack_from(">i", key, end)
    version, offset, _, length = struct.unpack_from(">hqih", value)
    at = 16 + length
    if version >= 4:  # A compact string: one byte with its length and one.
        at = 14 + value[14]
    (committed_ms,) = struct.unpack_from(">q", value, at)
    return group, topic, partition, offset, committed_ms


def _micro_batch_ms(spark: Any, logs: Path) -> float:
    """Return the median milliseconds of small micro-batches from trigger to checkpoint, without the first
    ones."""
    from konvene.pipeline.spark.stream import save

    reader = spark.readStream.format("konvene-log").option("table", "offset_commit")
    rows = reader.option("maxRecordsPerTrigger", BATCH_RECORDS).load(str(logs / "small"))
    folder = tempfile.mkdtemp(dir=logs)
    return _middle_ms(save(rows, f"{folder}/rows", checkpoint=f"{folder}/checkpoint", once=True))


def _gold_batch_ms(spark: Any, logs: Path) -> float:
    """Return the median milliseconds of micro-batches that keep a warehouse up to date, from bronze to
    gold."""
    from konvene.pipeline.spark.stream import gold

    folder = tempfile.mkdtemp(dir=logs)
    small, home = str(logs / "small"), f"{folder}/warehouse"
    limit: dict[str, Any] = {"maxRecordsPerTrigger": BATCH_RECORDS}
    return _middle_ms(gold(spark, small, home, checkpoint=f"{folder}/checkpoint", once=True, **limit))


def _middle_ms(query: Any) -> float:
    query.awaitTermination()
    durations = [each.batchDuration for each in query.recentProgress if each.numInputRows]
    took = sorted(durations[len(durations) // 3 :])
    return float(took[len(took) // 2])


def _jvm_mib(spark: Any) -> float:
    return _peak_mib(spark._jvm.java.lang.ProcessHandle.current().pid())


def _worker_mib() -> float:
    """Return the memory of the Python workers that still run; an idle one exits after half a minute."""
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in _ticks()}
    return max(_peak_mib(pid) for pid, name in names.items() if name != "java" and pid != os.getpid())


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    peak = status.partition("VmHWM:")[2]  # Missing if the process has just ended.
    return int(peak.split()[0]) / 1024 if peak else 0.0


if __name__ == "__main__":
    main()
