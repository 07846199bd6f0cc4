"""Ctrl-C and worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from konvene.runtime.signals import sigint_blocked, stop_on_signal

ROOT = Path(__file__).parents[2]
SCRIPT = """
import multiprocessing
from konvene.runtime.signals import sigint_blocked
from tests.runtime.test_signals import print_blocked
if __name__ == "__main__":
    with sigint_blocked():
        process = multiprocessing.get_context("spawn").Process(target=print_blocked)
        process.start()
    process.join()
    print_blocked()
"""


def print_blocked() -> None:
    sys.stdout.write(f"{signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])}\n")
    sys.stdout.flush()


def test_processes_do_not_receive_sigint(tmp_path: Path) -> None:
    """Also the first one, with which multiprocessing starts a process of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    output = subprocess.check_output(
        [sys.executable, str(script)], text=True, env={**os.environ, "PYTHONPATH": path}, timeout=60
    )
    assert output == "True\nFalse\n"


def test_blocked_signal_is_received_at_the_end() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), sigint_blocked():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached


def test_first_signal_stops_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = threading.Event()
    with stop_on_signal(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_keep_the_handlers() -> None:
    def work() -> None:
        with stop_on_signal(threading.Event()):
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
