"""Pipeline throughput: ingest and build of ten million records of ten thousand groups.

    ingest, all tables     bronze, silver and their auxiliary tables
    ingest, commits only   silver's largest table alone
    build                  gold: rebalances, owners, gaps, lag, health

With `--skew` gold alone is measured, of one log partition with all records: of even groups, and with a group
that has nine tenths of the records; each on one core and on two.

Wall time is that of two worker processes on as many cores, including their start; CPU time is the sum of all
processes. The logs are made from a seed (`pipeline_stories`). Run with `python -m bench.pipeline_build`; with
`--spark` Spark's workers run the tasks, and their CPU time is not counted.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from bench.coordinator_log import write_log
from bench.figures import Figure, less
from bench.pipeline_stories import Written, write_stories
from bench.systems import Lab
from konvene.pipeline.engine import Engine, Local, Processes
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import Report, ingest
from konvene.pipeline.warehouse.warehouse import Warehouse

RECORDS, GROUPS, PARTITIONS = 10_000_000, 10_000, 10
HOT = 0.9
"""Share of the records of the one hot group with `--skew`."""


class Took(NamedTuple):
    """Wall and CPU seconds of this process and the child processes that have ended."""

    wall_s: float
    cpu_s: float
    report: Report


def make(home: Path, records: int = RECORDS, groups: int = GROUPS, partitions: int = PARTITIONS) -> Written:
    """Write the logs; the numbers are totals of all partitions."""
    each = [
        write_stories(home, partition=p, groups=max(2, groups // partitions), records=records // partitions)
        for p in range(partitions)
    ]
    return Written(*(sum(column) for column in zip(*each, strict=True)))


def took(step: Callable[[], Report]) -> Took:
    began, used = time.perf_counter(), _cpu_s()
    report = step()
    return Took(time.perf_counter() - began, _cpu_s() - used, report)


def _cpu_s() -> float:
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(s.ru_utime + s.ru_stime for s in spent)


def steps(logs: Path, home: Path, engine: Engine) -> dict[str, Took]:
    """Run each step once, in a new warehouse or after the step that it needs."""
    whole, some = Warehouse(home / "whole"), Warehouse(home / "some")
    return {
        "ingest, all tables": took(lambda: ingest(whole, [logs], engine)),
        "build": took(lambda: build(whole, engine)),
        "ingest, commits only": took(lambda: ingest(some, [logs], engine, tables=["offset_commit"])),
    }


class Skewed(NamedTuple):
    """Gold of one log partition: wall and CPU seconds, and the largest resident size of a worker."""

    wall_s: float
    cpu_s: float
    rss_mb: float


def build_apart(home: Path, cores: int) -> Skewed:
    """Build gold from a copy of a warehouse, in a process whose children are the workers alone."""
    with tempfile.TemporaryDirectory(dir=home.parent) as name:
        shutil.copytree(home, name, dirs_exist_ok=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(_built, name, cores).result()


def _built(home: str, cores: int) -> Skewed:
    warehouse = Warehouse(home)
    built = took(lambda: build(warehouse, Processes(cores)))
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Skewed(built.wall_s, built.cpu_s, workers.ru_maxrss / 1024)


def skew(home: Path, records: int, groups: int) -> None:
    """Print gold's times for even groups and for one group with nine tenths of the records."""
    for name, hot in (("even", 0.0), ("hot group", HOT)):
        logs, tables = home / f"{name}-logs", home / f"{name}-tables"
        if not tables.exists():
            write_log(logs, records, groups=groups, lap=records, hot=hot)
            ingest(Warehouse(tables), [logs], Processes(2))
        one, two = build_apart(tables, 1), build_apart(tables, 2)
        print(
            f"{name:10} one core {one.wall_s:6.1f} s, two {two.wall_s:6.1f} s: "
            f"{one.wall_s / two.wall_s:.2f} times; "
            f"CPU {one.cpu_s:.1f} and {two.cpu_s:.1f} s; workers up to {max(one.rss_mb, two.rss_mb):.0f} MB"
        )


def figures(lab: Lab) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        small = lab.shrink > 1
        written = make(home / "logs", lab.of(RECORDS), lab.of(GROUPS), 2 if small else PARTITIONS)
        found = []
        for what, each in steps(home / "logs", home, Local() if small else Processes(2)).items():
            found += [less(f"{what}: s", [each.wall_s]), less(f"{what}: CPU s", [each.cpu_s])]
            found.append(Figure(f"{what}: records per CPU s", (written.records / each.cpu_s,)))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_build", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--spark", action="store_true", help="Spark's workers, as many")
    parser.add_argument("--logs", type=Path, help="where the logs are kept from run to run")
    parser.add_argument("--skew", action="store_true", help="gold of one hot partition, and of one hot group")
    options = parser.parse_args()
    if options.skew:
        with tempfile.TemporaryDirectory() as name:
            skew(options.logs or Path(name), options.records, options.groups)
        return
    with tempfile.TemporaryDirectory() as name:
        logs = options.logs or Path(name, "logs")
        if not logs.exists():
            print(make(logs, options.records, options.groups, options.partitions))
        for what, each in steps(logs, Path(name), _engine(options.spark, options.processes)).items():
            made = each.report
            cpu = "not counted" if options.spark else f"{each.cpu_s:.1f} s"
            print(
                f"{what:22} {each.wall_s:6.1f} s wall {cpu:>11} CPU {made.tasks:4} tasks "
                f"{made.files:5} files {made.rows:9} rows {made.bytes / 1e6:7.1f} MB"
            )


def _engine(spark: bool, count: int) -> Engine:
    if not spark:
        return Processes(count) if count > 1 else Local()
    from konvene.pipeline.engine import Spark
    from konvene.pipeline.spark import session

    return Spark(session.build(f"local[{count}]"))


if __name__ == "__main__":
    main()
