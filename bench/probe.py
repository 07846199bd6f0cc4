"""Latency probe: a separate process with a group of one member that heartbeats all the time.

`python -m bench.probe PORT` prints a line when it has joined, heartbeats every few milliseconds until its
input ends, and then prints the start and duration of each heartbeat as JSON. The clock is shared by all
processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.topics import new_name
from bench.wire import BadAnswer, Peer, frame_of
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

EVERY_S = 0.005


class Probe:
    """The probe process and its results."""

    def __init__(self, port: int) -> None:
        root = Path(__file__).parent.parent
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.probe", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            env=os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        )
        self._seen: list[tuple[float, float]] = []
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __repr__(self) -> str:
        return f"<probe, {len(self._seen)} heartbeats seen>"

    def end(self) -> None:
        out, _ = self._process.communicate(b"", timeout=30)
        self._seen = [(sent, took) for sent, took in json.loads(out)]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def longest_ms(self, began: float, ended: float) -> float:
        """Return the longest response time of requests in flight between these moments."""
        return 1000 * max(self.waited_s(began, ended))

    def waited_s(self, began: float, ended: float) -> list[float]:
        """Return the response times of requests in flight between these moments."""
        return [took for sent, took in self._seen if sent + took >= began and sent <= ended]


@contextlib.contextmanager
def probing(port: int) -> Iterator[Probe]:
    probe = Probe(port)
    try:
        yield probe
    finally:
        probe.kill()


def main(port: int) -> None:
    seen: list[tuple[float, float]] = []
    request = ConsumerGroupHeartbeatRequest(group_id=new_name(f"probe-{os.getpid()}"), member_id="probe")
    joins = request.replace(
        rebalance_timeout_ms=60_000, subscribed_topic_names=("bench-none",), topic_partitions=()
    )
    with Peer(port) as peer:
        response = peer.ask(joins, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            raise BadAnswer(f"the probe was response {response.error_code}: {response.error_message}")
        beat = frame_of(request.replace(member_epoch=response.member_epoch))
        print("joined", flush=True)
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            sent = time.monotonic()
            peer.exchange(beat)
            seen.append((sent, time.monotonic() - sent))
        peer.ask(request.replace(member_epoch=-1), ConsumerGroupHeartbeatResponse)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]))
