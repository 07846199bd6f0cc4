"""PySpark's daemon, without traces of workers whose connection Spark has closed.

PySpark's daemon forks a worker for each connection of the JVM. When a job is cancelled, or the session ends,
the JVM closes the connections of running workers. A worker that then writes its result prints a trace of the
BrokenPipeError, which the JVM copies to the user's terminal. The JVM has discarded that result, so the trace
reports nothing that went wrong. Errors of tasks never take this path: they are sent to the JVM.

Sessions on this machine start this module as `spark.python.daemon.module`. Executors of a cluster have logs
of their own, and keep PySpark's.
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["run"]


class _Traces:
    """Replaces the module `traceback` in PySpark's daemon."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the current exception, unless it is a connection that the JVM has closed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


def run() -> None:
    """Run PySpark's daemon until the JVM ends it."""
    from pyspark import daemon

    # Else a worker that cannot flush its output prints a trace by itself.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"
    daemon.traceback = _Traces  # type: ignore[assignment, attr-defined]
    daemon.manager()


if __name__ == "__main__":
    run()
