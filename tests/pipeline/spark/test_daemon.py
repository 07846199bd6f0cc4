"""The daemon of Python workers, driven as the JVM drives it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from konvene.pipeline.spark.session import DAEMON, settings

PATIENCE_S = 60
LATE = """
def main(infile, outfile):
    infile.read()  # Returns when the other side has closed the connection.
    outfile.write(b"the result")
"""
BROKEN = """
def main(infile, outfile):
    infile.read()
    raise RuntimeError("the worker is broken")
"""


@contextlib.contextmanager
def daemon(module: str, folder: Path, worker: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon with a worker module of this source."""
    (folder / "pyspark_made.py").write_text(worker)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = os.environ | {
        "PYTHONPATH": path, "PYTHON_UNIX_DOMAIN_ENABLED": "true",
    }  # fmt: skip
    environment.pop("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", None)
    command = [sys.executable, "-m", module, "pyspark_made"]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory(prefix="konvene-") as sockets,  # A socket's path has at most 107 bytes.
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe,
            env=environment | {"PYTHON_WORKER_FACTORY_SOCK_DIR": sockets},
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def printed_by_a_worker(module: str, folder: Path, worker: str) -> str:
    """Return what is printed by a worker whose connection is closed."""
    with daemon(module, folder, worker) as process:
        assert process.stdout is not None and process.stderr is not None and process.stdin is not None
        address = process.stdout.read(int.from_bytes(process.stdout.read(4), "big"))
        with socket.socket(socket.AF_UNIX) as jvm:
            jvm.connect(address)
            pid = int.from_bytes(jvm.recv(4, socket.MSG_WAITALL), "big")
            ended = os.pidfd_open(pid)
        _wait(ended)
        process.stdin.close()  # The daemon ends.
        return process.stderr.read().decode()


def _wait(ended: int) -> None:
    try:
        assert select.select([ended], [], [], PATIENCE_S)[0], "the worker did not end"
    finally:
        os.close(ended)


def test_worker_whose_connection_was_closed_ends_quietly(tmp_path: Path) -> None:
    assert "BrokenPipeError" in printed_by_a_worker("pyspark.daemon", tmp_path, LATE)
    assert printed_by_a_worker(DAEMON, tmp_path, LATE) == ""


def test_other_errors_of_a_worker_are_printed(tmp_path: Path) -> None:
    assert "RuntimeError: the worker is broken" in printed_by_a_worker(DAEMON, tmp_path, BROKEN)


@pytest.mark.parametrize(("master", "module"), [("local[2]", DAEMON), ("spark://head:7077", None)])
def test_only_sessions_on_this_machine_have_it(master: str, module: str | None) -> None:
    """Executors may start before the archive that has konvene is on their path."""
    assert settings(master).get("spark.python.daemon.module") == module
