"""`python -m bench.security [--kafka]`: figures of TLS, SASL and the authorizer, beside Apache Kafka's.

Prints a Markdown table. Heartbeats are those of ten stable classic groups of a hundred members, on 64
connections with one request in flight each. A short connection is a full handshake without resumption,
ApiVersions, and its end. CPU is that of the broker's process, user and system. The windows of figures that
are compared alternate. With `--base DIRECTORY` start and memory of a plaintext broker are compared with those
of another checkout, whose code is in DIRECTORY.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.against.brokers import Unavailable

from bench import report
from bench.drive import Caller, Driving, Repeated, Window, Windows, run, without_garbage
from bench.figures import MIB_PER_CPU_S, Figure, less, rates
from bench.handshakes import ShortConnections, idle_connections
from bench.members import make_group
from bench.records import PARTITIONS, SAME_IN_PRODUCE, SHAPES, Fetching, batch_of, fill, produce_of, produced
from bench.secured import P256, PLAINTEXT, RSA, SASL, Secured, secured
from bench.systems import Lab, Running, raise_descriptor_limit, report_progress
from bench.topics import make_topic, prove, wait_for_coordinator
from bench.wire import frame_of
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.produce import ProduceResponse

SECONDS, RUNS = 0.8, 5
IDLE, OTHER_DESCRIPTORS = 10_000, 500
SETTLE_S = 1.0
WARM_S = {"konvene": 1.0, "kafka": 6.0}
"""Seconds of heartbeats before the first window, and twice those of other requests."""
STARTS = 5
SESSION_TIMEOUT_MS = 600_000
"""The members of one load wait while the others run."""

Load = Callable[[float], tuple[int, int]]
"""Sends requests for some seconds; returns their number and the bytes of their records."""


class Target(NamedTuple):
    """A figure, what it is compared with, and what it should be at least (or at most, if `less`)."""

    what: str
    value: float | None = None
    of: str = ""
    """The figure that it is divided by; empty for the figure itself."""


HEARTBEATS = "heartbeats per CPU s: "
SHORT = "short connections per CPU s: "
PLAIN, TLS, SASL_SSL, ACLS = "plaintext", "TLS 1.3", "SASL_SSL", "plaintext with ACLs"
IDLE_RSS, PER_IDLE = "RSS with idle TLS connections, MiB", "KiB per idle TLS connection"
FIXTURE = "broker in a test ready, ms: "
START, RSS = "plaintext start, ms", "plaintext RSS, MiB"
BASE = " of the base"

TARGETS = (
    Target(HEARTBEATS + PLAIN),
    Target(HEARTBEATS + TLS, 50_000),
    Target(HEARTBEATS + SASL_SSL),
    Target(HEARTBEATS + ACLS),
    Target(HEARTBEATS + TLS, of=HEARTBEATS + PLAIN),
    Target(HEARTBEATS + SASL_SSL, of=HEARTBEATS + TLS),
    Target(HEARTBEATS + ACLS, 0.9, of=HEARTBEATS + PLAIN),
    Target(SHORT + PLAIN),
    Target(SHORT + "RSA-2048", 1_000),
    Target(SHORT + "P-256", 1_800),
    Target("MiB produced per CPU s: TLS 1.3"),
    Target("MiB fetched per CPU s: TLS 1.3"),
    Target(IDLE_RSS, 400),
    Target(PER_IDLE),
    Target(FIXTURE + "PLAINTEXT"),
    Target(FIXTURE + "SASL_SSL", 500),
    Target(FIXTURE + "SASL_SSL, import of cryptography"),
    Target(FIXTURE + "SASL_SSL, certificates"),
    Target(FIXTURE + "SASL_SSL, second broker"),
    Target(START, None),
    Target(START, 1.05, of=START + BASE),
    Target(RSS, None),
    Target(RSS, 1.05, of=RSS + BASE),
)
"""The lines of the table."""


@dataclass(frozen=True)
class Plan:
    """Windows and sizes of a run; `shrink` divides numbers of clients, for tests."""

    seconds: float = SECONDS
    runs: int = RUNS
    warm_s: Mapping[str, float] | None = None
    shrink: int = 1

    def windows(self, system: str) -> Windows:
        return Windows(self.seconds, self.runs, (self.warm_s or WARM_S)[system])

    def later_windows(self, system: str) -> Windows:
        """Return the windows of a load whose code has been warmed by others."""
        return self.windows(system)._replace(warm_s=self.windows(system).warm_s / 2)

    def of(self, count: int) -> int:
        return max(2, count // self.shrink)


class Measured(NamedTuple):
    """A load, and the broker that serves it."""

    load: Load
    running: Running


def alternate(loads: Mapping[str, Measured], windows: Windows) -> dict[str, list[Window]]:
    """Run each load in turn, a window at a time, so that a busy machine disturbs all of them alike."""
    seen: dict[str, list[Window]] = {name: [] for name in loads}
    for load, _ in loads.values():
        load(windows.warm_s)
    for _ in range(windows.runs):
        for name, (load, running) in loads.items():
            cpu_s, began = running.cpu_s(), time.perf_counter()
            requests, size = load(windows.seconds)
            wall_s = time.perf_counter() - began
            seen[name].append(Window(requests, size, wall_s, running.cpu_s() - cpu_s))
    return seen


def driven(stack: contextlib.ExitStack, broker: Secured, listener: str, callers: Sequence[Caller],
           depth: int = 1) -> Measured:  # fmt: skip
    """Return a load of requests on open connections to a listener."""
    driving = stack.enter_context(contextlib.closing(Driving(broker.endpoints[listener].connect, callers)))
    tally, has_begun = driving.tally, False

    def load(seconds: float) -> tuple[int, int]:
        nonlocal has_begun
        if not has_begun:
            driving.begin(depth)
            has_begun = True
        requests, size = tally.requests, tally.size
        driving.go_on(seconds)
        return tally.requests - requests, tally.size - size

    return Measured(load, broker.running)


# --- measurements ---


def heartbeats(system: str, plan: Plan, plain: Secured, acls: Secured) -> Iterator[Figure]:
    """Measure heartbeats on each listener, and with an authorizer."""
    listeners = {PLAIN: (plain, PLAINTEXT), ACLS: (acls, PLAINTEXT), TLS: (plain, P256)}
    listeners[SASL_SSL] = plain, SASL
    with contextlib.ExitStack() as stack:
        groups = {broker: members(broker, plan) for broker in (plain, acls)}
        loads = {}
        for name, (broker, listener) in listeners.items():
            loads[name] = driven(stack, broker, listener, groups[broker]())
        for name, windows in alternate(loads, plan.windows(system)).items():
            yield rates(windows)[0]._replace(what=HEARTBEATS + name)


def members(broker: Secured, plan: Plan) -> Callable[[], list[Caller]]:
    """Create groups, and return a function that returns callers for the heartbeats of all members."""
    running = broker.running
    topic = make_topic(running, plan.of(100))
    wait_for_coordinator(running, "bench-heartbeat")
    beats: list[HeartbeatRequest] = []
    for _ in range(plan.of(10)):
        beats += run(make_group(running.port, topic, plan.of(100), SESSION_TIMEOUT_MS))
    proven = prove(running, beats[0], HeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(plan.of(64), len(frames))
    return lambda: [Repeated(frames[i::connections], proven) for i in range(connections)]


def short_connections(system: str, plan: Plan, broker: Secured) -> Iterator[Figure]:
    """Measure connections that are closed after one request."""
    with contextlib.ExitStack() as stack:
        loads = {}
        for name, listener in ((PLAIN, PLAINTEXT), ("RSA-2048", RSA), ("P-256", P256)):
            clients = ShortConnections(broker.endpoints[listener])
            stack.enter_context(contextlib.closing(clients))
            loads[name] = Measured(clients.go_on, broker.running)
        for name, windows in alternate(loads, plan.later_windows(system)).items():
            yield rates(windows)[0]._replace(what=SHORT + name)


def records(system: str, plan: Plan, broker: Secured) -> Iterator[Figure]:
    """Measure Produce and Fetch of batches of a thousand records of 1 KiB over TLS."""
    shape, running = SHAPES[1000], broker.running
    batch = batch_of(shape)
    limits = {"segment_bytes": "104857600", "retention_bytes": "209715200"}
    written, read = make_topic(running, PARTITIONS, **limits), make_topic(running, PARTITIONS)
    fill(running, read, batch, plan.of(10))
    with contextlib.ExitStack() as stack:
        producers: list[Caller] = []
        for i in range(shape.connections):
            request = produce_of(written, i, batch)
            proven = prove(running, request, ProduceResponse, produced)
            size = shape.records * shape.size
            producers.append(Repeated([frame_of(request)], proven, SAME_IN_PRODUCE, carries=size))
        consumers: list[Caller] = [Fetching(read, i, shape, len(batch)) for i in range(PARTITIONS)]
        loads = {
            "produced": driven(stack, broker, P256, producers, shape.depth),
            "fetched": driven(stack, broker, P256, consumers),
        }
        for name, windows in alternate(loads, plan.later_windows(system)).items():
            found = next(figure for figure in rates(windows) if figure.what == MIB_PER_CPU_S)
            yield found._replace(what=f"MiB {name} per CPU s: {TLS}")


def idle(plan: Plan, broker: Secured) -> Iterator[Figure]:
    """Measure the memory of a broker with many idle connections over TLS."""
    count, running = plan.of(IDLE), broker.running
    if count + OTHER_DESCRIPTORS > (limit := raise_descriptor_limit()):
        raise Unavailable(f"{count} connections need more than {limit} descriptors (ulimit -n)")
    with idle_connections(broker.endpoints[P256], plan.of(20)):
        pass
    before = running.rss_mib()
    with idle_connections(broker.endpoints[P256], count):
        time.sleep(SETTLE_S / plan.shrink)
        rss = running.rss_mib()
    yield less(IDLE_RSS, [rss])
    yield less(PER_IDLE, [1024 * (rss - before) / count])


IN_A_TEST = """\
import json, sys, time
import pytest
began = time.perf_counter()
seen = {}
from konvene.testing.konvene import Konvene
seen["import"] = time.perf_counter() - began
security = {"security": "SASL_SSL", "users": {"alice": "secret"}} if sys.argv[1] == "SASL_SSL" else {}
if security:
    at = time.perf_counter()
    import konvene.testing.certificates
    seen["import of cryptography"] = time.perf_counter() - at
at = time.perf_counter()
broker = Konvene(**security)
seen["certificates"] = time.perf_counter() - at
broker.start()
seen[""] = time.perf_counter() - began
at = time.perf_counter()
with Konvene(**security):
    seen["second broker"] = time.perf_counter() - at
broker.close()
print(json.dumps(seen))
"""


def in_a_test(plan: Plan) -> Iterator[Figure]:
    """Measure the start of a broker in a process of pytest, with its imports, in turn without security."""
    seen: dict[str, list[float]] = {}
    for _ in range(min(STARTS, plan.runs)):
        for protocol in ("PLAINTEXT", "SASL_SSL"):
            done = subprocess.run(
                [sys.executable, "-c", IN_A_TEST, protocol], stdout=subprocess.PIPE, check=True, timeout=60
            )
            for part, took_s in json.loads(done.stdout).items():
                seen.setdefault(f"{protocol}, {part}" if part else protocol, []).append(1000 * took_s)
    for what, values in seen.items():
        yield less(FIXTURE + what, values)


def start(plan: Plan, base: str | None) -> Iterator[Figure]:
    """Measure start and memory of a plaintext broker, in turn with that of the code in `base`."""
    codes = {"": None} if base is None else {"": None, BASE: base}
    seen: dict[str, list[float]] = {}
    with Lab("konvene", plan.windows("konvene")) as lab:
        for _ in range(min(STARTS, plan.runs)):
            for suffix, code in codes.items():
                with code_from(code), lab.fresh() as running:
                    running.start()
                    time.sleep(SETTLE_S / plan.shrink)
                    seen.setdefault(START + suffix, []).append(1000 * running.ready_s)
                    seen.setdefault(RSS + suffix, []).append(running.rss_mib())
    for what, values in seen.items():
        yield less(what, values)


@contextlib.contextmanager
def code_from(directory: str | None) -> Iterator[None]:
    """Let processes that start in the block import konvene from this directory, if one is given."""
    before = os.environ.get("PYTHONPATH")
    if directory is not None:
        os.environ["PYTHONPATH"] = directory
    yield
    if before is not None:
        os.environ["PYTHONPATH"] = before
    else:
        os.environ.pop("PYTHONPATH", None)


# --- the run ---


def figures(system: str, plan: Plan, base: str | None = None) -> Iterator[Figure]:
    """Measure a system, one figure after the other."""
    report_progress(f"{system}: start")
    raise_descriptor_limit()
    with secured(system) as plain, secured(system, has_acls=True) as acls, without_garbage():
        report_progress(f"{system}: heartbeats")
        yield from heartbeats(system, plan, plain, acls)
        report_progress(f"{system}: short connections")
        yield from short_connections(system, plan, plain)
        report_progress(f"{system}: records")
        yield from records(system, plan, plain)
    if system == "konvene":
        report_progress(f"{system}: idle connections")
        with secured(system) as fresh:
            yield from idle(plan, fresh)
        report_progress(f"{system}: starts")
        yield from in_a_test(plan)
        yield from start(plan, base)


def table(measured: Mapping[str, Mapping[str, Figure]]) -> str:
    """Return a Markdown table of the figures by system and name."""
    has_kafka = "kafka" in measured
    lines = ["| Figure | konvene | Kafka | ratio | target |", "| --- | ---: | ---: | ---: | ---: |"]
    for target in TARGETS:
        ours, theirs = (_shown(target, measured.get(system, {})) for system in ("konvene", "kafka"))
        if ours is None:
            continue
        ratio = f"{ours[0] / theirs[0]:.2f}" if theirs is not None and theirs[0] else ""
        name = f"{target.what} / {target.of.rpartition(': ')[2]}" if target.of else target.what
        wanted = _wanted(target, ours[0], is_less=measured["konvene"][target.what].less)
        cells = [name, ours[1], theirs[1] if theirs else "", ratio, wanted]
        if not has_kafka:
            del cells[2:4]
        lines.append(f"| {' | '.join(cells)} |")
    if not has_kafka:
        lines[:2] = ["| Figure | konvene | target |", "| --- | ---: | ---: |"]
    return "\n".join(lines)


def _shown(target: Target, found: Mapping[str, Figure]) -> tuple[float, str] | None:
    """Return the value of a line, and its text with the range of its windows."""
    figure = found.get(target.what)
    if figure is None:
        return None
    values = figure.values
    if target.of:
        other = found.get(target.of)
        if other is None:
            return None
        values = tuple(ours / theirs for ours, theirs in zip(values, other.values, strict=True))
    median = statistics.median(values)
    spread = f" ({_number(min(values))}–{_number(max(values))})" if len(values) > 1 else ""
    return median, _number(median) + spread


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _wanted(target: Target, value: float, *, is_less: bool) -> str:
    if target.value is None:
        return ""
    is_met = value <= target.value if is_less else value >= target.value
    return f"{'≤' if is_less else '≥'} {_number(target.value)} {'met' if is_met else '**missed**'}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description="Measure security.")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka as well")
    parser.add_argument("--json", action="store_true", help="print one JSON document and no table")
    parser.add_argument("--base", metavar="DIRECTORY", help="code of another checkout, to compare its start")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a window [%(default)g]")
    parser.add_argument("--runs", type=int, default=RUNS, help="windows of each figure [%(default)d]")
    options = parser.parse_args(words)
    began, loads = report.now(), [report.load_average()]
    plan = Plan(options.seconds, options.runs)
    measured: dict[str, dict[str, Figure]] = {}
    try:
        for system in ["kafka", "konvene"] if options.kafka else ["konvene"]:
            measured[system] = {figure.what: figure for figure in figures(system, plan, options.base)}
    except Unavailable as error:
        raise SystemExit(str(error)) from None
    loads.append(report.load_average())
    if options.json:
        print(json.dumps({"began_at": began, "loadavg": loads} | {
            system: {figure.what: figure.values for figure in found.values()}
            for system, found in measured.items()
        }, indent=1))  # fmt: skip
    else:
        print(f"{began}, {os.cpu_count()} CPUs, load average {loads[0]}, at the end {loads[1]}\n")
        print(table(measured))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no broker is left behind
    sys.exit(main())
