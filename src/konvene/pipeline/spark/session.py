"""The one place that makes a session of Spark's: its settings are rows, and each has its reason.

Nothing of Spark is imported before `build` is called. A session belongs to its process: where there is one
already, `build` gives that one, with those of the settings that can still be changed. Whoever has a session
of their own needs `register` alone and none of these settings; the data source and the engine work with any.

The driver's heap is small on purpose. Only names of files and rows about them pass the driver, however long
the logs are.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONF", "TASK_FAILURES", "Conf", "build", "cores", "settings"]

ARROW_BATCH = 20_000
JIT = " ".join(
    (
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
    )
)
"""Of the driver's JVM: only what is called ten times as often as usual is compiled a second time, and better;
what loops over rows still is at once. To plan small batches is to call much and to loop little: compiling all
of that took a fifth of a core in the first minutes of a stream."""
TASK_FAILURES = 4
"""So often a task is tried; Spark's local mode would try it once."""


class Conf(NamedTuple):
    """A setting of Spark's."""

    key: str
    value: str
    reason: str


CONF = (
    Conf("spark.ui.enabled", "false", "No web server for a command that ends."),
    Conf("spark.ui.showConsoleProgress", "false", "Progress is told by who asked."),
    Conf("spark.sql.session.timeZone", "UTC", "Times are told in UTC."),
    Conf("spark.python.unix.domain.socket.enabled", "true",
         "A task's hop to Python takes a third of the time that it takes by TCP."),
    Conf("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH),
         "Fewer rows cost more by the row, more rows more memory."),
    Conf("spark.driver.memory", "512m", "What passes the driver is small, whatever the input."),
    Conf("spark.sql.catalogImplementation", "in-memory", "No metastore, no files of one."),
    Conf("spark.hadoop.fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs",
         "A stream's checkpoint on a local disk without a file of checksums beside each file of it; without "
         "Hadoop's native library each would start a process of its own."),
)  # fmt: skip


def build(master: str = "local[*]", *, app_name: str = "konvene", **conf: str) -> SparkSession:
    """A session on this machine, or on the cluster that `master` names.

    `conf` are further settings, with underscores for dots, or as they are by `**{"spark.x": ...}`. Raises
    RuntimeError if Java is missing, with a message that names what to install."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RuntimeError("Spark is not installed: pip install 'konvene[spark]'") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for key, value in settings(master, **conf).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise RuntimeError(f"Spark did not start: {error}. It needs Java 17 or newer (JAVA_HOME)") from error


def settings(master: str = "local[*]", **conf: str) -> dict[str, str]:
    """All settings of a session. Those that are given win over `CONF`."""
    found = {row.key: row.value for row in CONF}
    found["spark.master"] = master = retrying(master)
    found["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_quiet().as_uri()} {JIT}"
    if master.startswith("local["):
        found["spark.sql.shuffle.partitions"] = str(cores(master))
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
    for key, value in conf.items():
        found[key if "." in key else key.replace("_", ".")] = str(value)
    return found


def retrying(master: str) -> str:
    """A local master as one that tries a task again: `local[2]` as `local[2,4]`; others as they are."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    if match is None:
        return master
    wanted = cores("local[*]") if match[1] == "*" else int(match[1] or 1)
    return f"local[{wanted},{TASK_FAILURES}]"


def cores(master: str) -> int:
    """How many tasks a local master does at a time; of a cluster this is not known here, so 1."""
    match = re.match(r"local\[(\*|\d+)", master)
    if match is None:
        return 1
    if match[1] == "*":
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    return int(match[1])


def _quiet() -> Path:
    return Path(__file__).with_name("log4j2.properties")
