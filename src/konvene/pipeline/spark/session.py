"""Builds Spark sessions for the pipeline, from a table of settings with the reason for each.

Nothing of Spark is imported before `build` is called. A process has one session: if it exists already,
`build` returns it, with those settings applied that can still be changed. With a session of your own, call
only `register`: the data source and the engine work without these settings.

The driver's heap is small on purpose: only file names and rows about files pass through the driver, however
long the logs are.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONF", "TASK_FAILURES", "Conf", "abort", "build", "cores", "settings"]

ARROW_BATCH = 20_000
JIT = " ".join(
    (
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
    )
)
"""JIT option of the driver's JVM: raises the threshold of the optimising compiler tenfold, except for loops.
Planning of small batches calls much code and loops little; compiling it all took a fifth of a core in the
first minutes of a stream."""
TASK_FAILURES = 4
"""Number of attempts per task; Spark's local mode makes only one by default."""


DAEMON = "konvene.pipeline.spark.daemon"
"""Module that starts the Python workers of a session on this machine."""
JVM_EXIT_S = 10
"""Time after which a JVM that does not exit is killed."""


class Conf(NamedTuple):
    """A Spark setting with the reason for it."""

    key: str
    value: str
    reason: str


CONF = (
    Conf("spark.ui.enabled", "false", "No web server for a command that ends."),
    Conf("spark.ui.showConsoleProgress", "false", "The caller reports progress."),
    Conf("spark.sql.session.timeZone", "UTC", "Times are shown in UTC."),
    Conf("spark.python.unix.domain.socket.enabled", "true",
         "Calls from a task to Python take a third of the time of TCP."),
    Conf("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH),
         "Smaller batches cost more per row, larger ones more memory."),
    Conf("spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL", "system",
         "Arrow's own allocator keeps up to 80 MB that a Python worker has freed."),
    Conf("spark.driver.memory", "512m", "Little data passes the driver, whatever the input."),
    Conf("spark.sql.catalogImplementation", "in-memory", "No metastore and no files of one."),
    Conf("spark.hadoop.fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs",
         "A stream's checkpoint on a local disk without a file of checksums beside each file of it; without "
         "Hadoop's native library each would start a process of its own."),
)  # fmt: skip


def build(master: str | None = None, *, app_name: str = "konvene", **conf: str) -> SparkSession:
    """Return a Spark session on this machine, or on the cluster that `master` names.

    The default is the master that was given to `spark-submit`, or else all cores of this machine. `conf` has
    further settings, with underscores for dots, or verbatim with `**{"spark.x": ...}`. Raises RuntimeError if
    Java is missing, with a message that names what to install."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RuntimeError("Spark is not installed: pip install 'konvene[spark]'") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = "local[*]"
    for key, value in settings(master, **conf).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise RuntimeError(f"Spark did not start: {error}. It needs Java 17 or newer (JAVA_HOME)") from error


def abort() -> None:
    """End the session of this process with its JVM, without log lines about interrupted work.

    Does nothing if there is none."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc  # `launch_gateway` adds it.
    if context is None or getattr(context, "_jsc", None) is None:
        process.kill()  # It is starting, and would log that it cannot.
    with contextlib.suppress(Exception):  # The JVM may be busy, or dead already.
        if context is not None:
            context.setLogLevel("OFF")
            context.stop()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # The JVM exits when its standard input ends.
    try:
        process.wait(JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def settings(master: str | None = "local[*]", **conf: str) -> dict[str, str]:
    """Return all settings of a session; those in `conf` override `CONF`.

    Without a master they are those of a job of `spark-submit`, which has decided how the driver runs."""
    found = {row.key: row.value for row in CONF}
    if master is None:
        del found["spark.driver.memory"]
    else:
        found["spark.master"] = master = retrying(master)
        found["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_quiet().as_uri()} {JIT}"
        if master.startswith("local["):
            found["spark.sql.shuffle.partitions"] = str(cores(master))
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
            found["spark.python.daemon.module"] = DAEMON
    for key, value in conf.items():
        found[key if "." in key else key.replace("_", ".")] = str(value)
    return found


def retrying(master: str) -> str:
    """Return a local master that retries tasks: `local[2]` becomes `local[2,4]`; others are unchanged."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    if match is None:
        return master
    wanted = cores("local[*]") if match[1] == "*" else int(match[1] or 1)
    return f"local[{wanted},{TASK_FAILURES}]"


def cores(master: str) -> int:
    """Return the number of slots of a local master; 1 for a cluster, whose number is not known here."""
    match = re.match(r"local\[(\*|\d+)", master)
    if match is None:
        return 1
    if match[1] == "*":
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    return int(match[1])


def _quiet() -> Path:
    return Path(__file__).with_name("log4j2.properties")
