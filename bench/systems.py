"""Measured brokers: konvene from this checkout, Apache Kafka from Maven's jars.

The tests with real clients have the code that starts each broker; this module has the settings of benchmarks
and reads process figures from /proc, so it needs Linux.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.against import brokers

from bench.drive import Windows

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
START_WITHIN_S = 180
STOP_WITHIN_S = 180

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
NO_DELAY = {"group.streams.initial.rebalance.delay.ms": "0"}
CLEANER_MIB = 1024
"""Default size in MiB of the log to compact."""
NO_SYNC = {"konvene.log.fsync.internal": "false"}


class Kafka(brokers.Kafka):
    """Apache Kafka with the heap of a small server and its default collector."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, {"log.cleaner.enable": "true"} | (settings or {}))

    def java(self) -> list[str]:
        return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{self.jars}/*"]


SYSTEMS: dict[str, type[brokers.Broker]] = {"konvene": brokers.Konvene, "kafka": Kafka}


class Running:
    """A broker process that can be stopped, killed and started again on its data."""

    def __init__(self, broker: brokers.Broker) -> None:
        self.broker = broker
        self.ready_s = 0.0
        self.process: subprocess.Popen[bytes]

    def __repr__(self) -> str:
        return repr(self.broker)

    @property
    def port(self) -> int:
        return self.broker.port

    def start(self) -> None:
        """Start and wait until ApiVersions is answered; `ready_s` is the time that took."""
        broker = self.broker
        if broker.process is None:
            broker.directory.mkdir(parents=True, exist_ok=True)
            broker.prepare()
        environment = os.environ | {"KONVENE_LOG": "WARNING"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package has its bytecode.
        with broker.log.open("ab") as log:
            self.began = time.perf_counter()
            self.process = subprocess.Popen(
                broker.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        broker.process = self.process
        while not brokers.answers(self.port):
            if self.process.poll() is not None or self.age_s() > START_WITHIN_S:
                self.kill()
                raise RuntimeError(f"{broker.name} does not start:\n{broker.tail()}")
            time.sleep(0.002)
        self.ready_s = self.age_s()

    def age_s(self) -> float:
        """Seconds since the process was started."""
        return time.perf_counter() - self.began

    def stop(self) -> float:
        """Stop the broker gracefully and return the seconds that took."""
        began = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return time.perf_counter() - began

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def cpu_s(self) -> float:
        """CPU seconds that the process and its threads have used."""
        return spent_s(f"/proc/{self.process.pid}/stat")

    def loop_s(self) -> float:
        """Return the CPU seconds of the main thread, on which konvene's event loop runs."""
        return spent_s(f"/proc/{self.process.pid}/task/{self.process.pid}/stat")

    def loop_waited_s(self) -> float:
        """Return the seconds in which the main thread was runnable without a CPU."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat")
        return int(path.read_text().split()[1]) / 1e9

    def rss_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def spent_s(path: str) -> float:
    """Return the CPU seconds in a `stat` file below /proc."""
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def raise_descriptor_limit() -> int:
    """Raise the limit of descriptors of this process and its brokers to the hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return sys.maxsize
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Lab:
    """Environment of one measured system: its brokers, the measurement windows, and the reduction of sizes.

    Rows that only send requests share a broker, which is warm after the first of them. A row that measures a
    start or memory has a broker of its own, and no other broker runs meanwhile."""

    def __init__(
        self, system: str, windows: Windows, shrink: int = 1, cleaner_mib: int = CLEANER_MIB
    ) -> None:
        self.system = system
        self.cleaner_mib = cleaner_mib
        self.windows = windows
        self.shrink = shrink
        self._shared: dict[str, Running] = {}
        self._warm: set[tuple[str, str]] = set()
        self._directories = contextlib.ExitStack()
        raise_descriptor_limit()

    def __repr__(self) -> str:
        return f"<lab of {self.system} with {len(self._shared)} brokers>"

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_shared()

    def of(self, count: int) -> int:
        """Return `count`, or fewer with reduced sizes."""
        return max(2, count // self.shrink)

    def shared(self, settings: dict[str, str] | None = None) -> Running:
        """Return the shared broker with these settings."""
        name = repr(settings)
        if name not in self._shared:
            running = self._make(self._directories, settings)
            running.start()
            self._shared[name] = running
        return self._shared[name]

    def warmed(self, running: Running, family: str) -> Windows:
        """Return the windows, with the full warm-up if this broker has not served such requests yet."""
        known = (str(running.broker.directory), family)
        first = known not in self._warm
        self._warm.add(known)
        return self.windows if first else self.windows._replace(warm_s=min(5.0, self.windows.warm_s))

    @contextlib.contextmanager
    def fresh(self, settings: dict[str, str] | None = None) -> Iterator[Running]:
        """Return a broker for one row, not started yet."""
        self.stop_shared()
        with contextlib.ExitStack() as directories:
            running = self._make(directories, settings)
            try:
                yield running
            finally:
                if running.broker.process is not None:
                    running.kill()

    def stop_shared(self) -> None:
        for running in self._shared.values():
            running.kill()
        self._shared.clear()
        self._directories.close()

    def _make(self, directories: contextlib.ExitStack, settings: dict[str, str] | None) -> Running:
        directory = directories.enter_context(tempfile.TemporaryDirectory(prefix="konvene-bench-"))
        return Running(SYSTEMS[self.system](Path(directory), SETTINGS | (settings or {})))


def report_progress(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
