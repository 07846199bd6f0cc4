"""`python -m bench [NAME …]`: run all benchmarks or the named ones, and print the figures beside those of
Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from tests.against.brokers import Unavailable

from bench import report
from bench.drive import Windows
from bench.report import Result
from bench.rows import ROWS, Row, Unknown, chosen
from bench.systems import CLEANER_MIB, Lab, report_progress

#: Seconds before the first window: a JVM compiles what it runs often, we only touch our memory.
WARM_S = {"konvene": 2.0, "kafka": 20.0}
SECONDS = 3.0
RUNS = 3


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure konvene, and optionally Apache Kafka. NAME is a benchmark or a family (commit).",
        epilog="benchmarks:\n" + "\n".join(f"  {row.name:<18}{row.description}" for row in ROWS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure [default: everything]")
    parser.add_argument(
        "--kafka",
        action="store_true",
        default=os.environ.get("KONVENE_BENCH_KAFKA", "") not in ("", "0"),
        help="measure Apache Kafka as well, from Maven's jars (or KONVENE_BENCH_KAFKA=1)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and no table")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a window [%(default)g]")
    parser.add_argument("--runs", type=int, default=RUNS, help="windows of each figure [%(default)d]")
    parser.add_argument("--warm", type=float, help="seconds before the first window [2, for Kafka 20]")
    parser.add_argument(
        "--cleaner-mib", type=int, default=CLEANER_MIB, help="what is compacted [%(default)d]"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        rows = chosen(options.names)
    except Unknown as error:
        report_progress(str(error))
        return 2
    began_at, loads = report.now(), [report.load_average()]
    if not options.json:
        print(
            f"{began_at}, {os.cpu_count()} CPUs, load average {loads[0]}\n\n{report.heading(options.kafka)}"
        )
    results = []
    systems = ["konvene", "kafka"] if options.kafka else ["konvene"]
    for result in measured(rows, systems, options):
        results.append(result)
        loads.append(report.load_average())
        if not options.json:
            print(report.table(result, options.kafka), flush=True)
    if options.json:
        print(json.dumps(report.document(results, began_at, loads), indent=1, ensure_ascii=False))
    else:
        print(f"\nload average {loads[-1]}\n{report.LEGEND}")
    return 1 if any(result.failures for result in results) else 0


def measured(rows: Sequence[Row], systems: Sequence[str], options: argparse.Namespace) -> Iterator[Result]:
    """Yield the results row by row; with two systems all rows of Kafka come first, on a JVM that stays
    warm."""
    results = [Result(row) for row in rows]
    by_name = {result.row.name: result for result in results}
    for system in reversed(systems):
        warm_s = WARM_S[system] if options.warm is None else options.warm
        with Lab(
            system, Windows(options.seconds, options.runs, warm_s), cleaner_mib=options.cleaner_mib
        ) as lab:
            for result in results:
                if system == "konvene" or result.row.beside is None:
                    _measure(result, lab)
                elif (twin := by_name.get(result.row.beside)) and system in twin.figures:
                    result.figures[system] = twin.figures[system]
                if system == "konvene":
                    yield result


def _measure(result: Result, lab: Lab) -> None:
    report_progress(f"{lab.system} {result.row.name} (load average {report.load_average()})")
    began = time.monotonic()
    try:
        result.figures[lab.system] = result.row.measure(lab)
    except Unavailable as error:
        raise SystemExit(str(error)) from None
    except Exception as error:
        result.failures[lab.system] = f"{type(error).__name__}: {error}"
        report_progress(f"  failed: {result.failures[lab.system]}")
    report_progress(f"  {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no broker is left behind
    sys.exit(main())
