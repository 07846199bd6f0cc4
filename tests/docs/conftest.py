"""A broker for the examples of the pages: `konvene serve --ephemeral` on a free port, as in the README."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield the host and port of a broker that stops after the tests of a module."""
    quick = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.num.partitions=2"]
    command = [sys.executable, "-m", "konvene", "serve", "--port", "0", "--ephemeral", *quick]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            found = re.search(r"listens on (\S+:\d+)", broker.stdout.readline())
            assert found, "the broker did not start"
            yield found[1]
        finally:
            broker.terminate()
