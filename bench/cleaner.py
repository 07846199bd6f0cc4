"""Latency of heartbeats while a large log is compacted, in a process beside the broker or in the broker.

The benchmark writes a compacted topic whose cleaning is disabled, then enables cleaning, and heartbeats every
few milliseconds until the file of cleaned offsets shows that the log was cleaned. The records are small, keys
repeat, and about 1 % of the records remain.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from bench.drive import run
from bench.figures import Figure, at_rank, less
from bench.probe import probing
from bench.records import produce_of, produced
from bench.systems import Lab, Running, report_progress
from bench.topics import Topic, delete_topic, make_topic, prove, wait_for_coordinator
from bench.wire import BadAnswer, Peer, asking, frame_of, read
from konvene.codec.batches import build_simple
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from konvene.messages.produce import ProduceResponse

CHECKPOINT = "cleaner-offset-checkpoint"
SETTINGS = {"log.cleaner.backoff.ms": "1000", "log.flush.offset.checkpoint.interval.ms": "1000"}
IN_SLICES = {"konvene.log.cleaner.process.min.bytes": str(2**63 - 1)}
SEGMENT_BYTES = 100 << 20
RECORDS, SIZE, BATCHES = 4000, 200, 12
QUIET_S = 10.0
LONGEST_S = 900.0
LOOKS_EVERY_S = 0.01
MUCH = 2 << 20
TOPIC = 2


def p99(lab: Lab, slices: bool = False) -> list[Figure]:
    """Measure the 99th percentile of heartbeat latency, idle and while a log is cleaned."""
    settings = SETTINGS | (IN_SLICES if slices and lab.system == "konvene" else {})
    running = lab.shared(settings)
    quiet, busy, longest, speed = [], [], [], []
    wait_for_coordinator(running, "probe")
    for _ in range(lab.windows.runs):
        topic = make_topic(
            running, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="1",
            segment_bytes=str(SEGMENT_BYTES if lab.shrink == 1 else 1 << 20),
        )  # fmt: skip
        size = _fill(running, topic, max(3 << 20, (lab.cleaner_mib << 20) // lab.shrink))
        with probing(running.port) as probe:
            began = time.monotonic()
            time.sleep(QUIET_S / lab.shrink)
            allowed = time.monotonic()
            _allow(running, topic)
            first, last = _wait(running, topic)
            probe.end()
            quiet.append(1000 * at_rank(probe.waited_s(began, allowed), 0.99))
            waited = probe.waited_s(first, last)
            busy.append(1000 * at_rank(waited, 0.99))
            longest.append(1000 * max(waited))
        speed.append(size / (1 << 20) / (last - first))
        report_progress(
            f"  p99 {quiet[-1]:.1f} ms, {busy[-1]:.1f} ms while {speed[-1]:.0f} MiB/s were cleaned"
        )
        delete_topic(running, topic)
    return [
        less("p99 quiet, ms", quiet),
        less("p99 while cleaning, ms", busy),
        less("longest while cleaning, ms", longest),
        Figure("MiB per s", tuple(speed)),
    ]


def _fill(running: Running, topic: Topic, size: int) -> int:
    """Write `size` bytes of records with repeating keys."""
    noise = random.Random(0)
    frames, sizes = [], []
    for batch in range(BATCHES):
        pairs = [(b"key-%d-%d" % (batch, i), noise.randbytes(SIZE)) for i in range(RECORDS)]
        data = build_simple(pairs, int(time.time() * 1000))
        if not batch:
            prove(running, produce_of(topic, 0, data), ProduceResponse, produced)
        frames.append(frame_of(produce_of(topic, 0, data)))
        sizes.append(len(data))

    async def write() -> int:
        line, written = await asking(running.port), 0
        while written < size:
            for frame, length in zip(frames, sizes, strict=True):
                if not produced(read(ProduceResponse, await line.exchange(frame))):
                    raise BadAnswer("a batch was refused")
                written += length
        line.transport.close()
        return written

    return run(write())


def _allow(running: Running, topic: Topic) -> None:
    """Enable cleaning of the topic."""
    row = AlterableConfig(name="min.cleanable.dirty.ratio", config_operation=0, value="0.01")
    change = AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=(row,))
    with Peer(running.port) as peer:
        peer.ask(IncrementalAlterConfigsRequest(resources=(change,)), IncrementalAlterConfigsResponse)


def _wait(running: Running, topic: Topic) -> tuple[float, float]:
    """Return when the cleaner started to read the log and when the cleaning was over."""
    folder = next(running.broker.directory.rglob(f"{topic.name}-0"))
    checkpoint, until, first = folder.parent / CHECKPOINT, time.monotonic() + LONGEST_S, 0.0
    idle = _bytes_read(running.process.pid)
    while (now := time.monotonic()) < until:
        if not first and _bytes_read(running.process.pid) - idle > MUCH:
            first = now
        if _is_cleaned(checkpoint, topic):
            return first or now - LOOKS_EVERY_S, now
        time.sleep(LOOKS_EVERY_S)
    raise TimeoutError(f"{topic.name} was not cleaned in {LONGEST_S:.0f} s")


def _bytes_read(pid: int) -> int:
    """Return the bytes read by a process and its children, including the page cache."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split())]
    count = 0
    for each in pids:
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            rows = Path(f"/proc/{each}/io").read_text("ascii").splitlines()
            count += next(int(row.split()[1]) for row in rows if row.startswith("rchar"))
    return count


def _is_cleaned(checkpoint: Path, topic: Topic) -> bool:
    """Return True if the topic has been cleaned."""
    if not checkpoint.exists():
        return False
    rows = [row.split(" ") for row in checkpoint.read_text("ascii").splitlines()[2:]]
    return any(name == topic.name and int(offset) > 0 for name, _, offset in rows)
