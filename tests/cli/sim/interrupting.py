"""Interrupt `konvene sim sweep` as Ctrl-C in a terminal does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

DEADLINE_S = 90.0
SWEEP = ("--members", "40", "--minutes", "60", "--kill-rate", "2/min", "--seeds", "0..39")
"""A sweep that takes longer than the deadline of a test."""


class InterruptedProcess(NamedTuple):
    code: int
    output: tuple[str, str]
    """Standard output and standard error."""
    runs: int
    """Number of completed runs in the folder."""


def interrupted_sweep(folder: Path, *args: str) -> InterruptedProcess:
    """Start a sweep, send SIGINT to its process group after its first completed run, and wait until all its
    processes have ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "konvene", "sim", "sweep", *SWEEP, "--out", str(folder), *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not _runs(folder):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=DEADLINE_S)
        while _is_running(process.pid):
            assert time.monotonic() < deadline, "processes are left"
            time.sleep(0.05)
    finally:
        if _is_running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return InterruptedProcess(process.returncode, output, _runs(folder))


def _runs(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("sim_run/*/*.parquet"))


def _is_running(session: int) -> bool:
    """Return True if a process of this session runs, also in another process group; zombies do not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            return True
    return False
