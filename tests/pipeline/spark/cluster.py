"""A standalone Spark cluster on the loopback, started with the scripts of the pyspark wheel.

    with cluster(tmp_path) as master:        # spark://127.0.0.1:37777
        ...

Starts a master and two small workers of one core each, which register while the caller continues.
Each has a process group of its own, which is killed at the end, so that no process is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
PATIENCE_S = 120
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for a quick start and few resources, at the price of peak speed."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a master and its workers; yield the master's URL."""
    port = free_port()
    master = f"spark://{HOST}:{port}"
    package = "org.apache.spark.deploy"
    with contextlib.ExitStack() as started:
        words = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        log = _start(started, folder, "master", f"{package}.master.Master", words)
        _wait(log, "Starting Spark master")
        for number in range(workers):
            words = ["--host", HOST, "--cores", "1", "--memory", "700m", "--webui-port", "0"]
            words += ["--work-dir", str(folder / f"work-{number}"), master]
            _start(started, folder, f"worker-{number}", f"{package}.worker.Worker", words)
        yield master


def _start(started: contextlib.ExitStack, folder: Path, name: str, main: str, words: list[str]) -> Path:
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", main, *words],
            stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    started.callback(_end, process)
    return log


def _end(process: subprocess.Popen[bytes]) -> None:
    """The script, the JVM that took its place, and the executors that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(log: Path, words: str) -> None:
    """Wait until the log contains the given text."""
    deadline = time.monotonic() + PATIENCE_S
    while words not in (text := log.read_text(errors="replace")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log} did not say {words!r}:\n{text[-2000:]}")
        time.sleep(0.1)
