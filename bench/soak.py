"""Soak test of the cleaner: an hour of commits, checking that the directory stays within bounds.

    python -m bench.soak [--minutes 60] [--commits-per-second 2000]

A thousand groups commit twenty partitions at a time, repeatedly; only some megabytes of the written records
remain after compaction. Each minute a line reports the bytes written, the size of `__consumer_offsets-0`, the
slowest commit and the broker's memory. The last line reports whether the directory stayed within three
segments plus the live data. At the end the broker is killed and started again on the log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.against.brokers import Konvene

from bench.systems import Running, report_progress
from bench.topics import make_topic, wait_for_coordinator
from bench.wire import Peer
from konvene.codec.uuid import Uuid
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

SEGMENT = 4 << 20
GROUPS, PARTITIONS = 1_000, 20
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(SEGMENT),
    "log.cleaner.delete.retention.ms": "60000",
    "log.segment.delete.delay.ms": "5000",
}
COUNTS = 8 << 20
"""Upper bound of the live data in bytes: 20,000 commits."""


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--commits-per-second", type=int, default=2000)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        running = Running(Konvene(Path(place), SETTINGS))
        running.start()
        try:
            sys.exit(soak(running, arguments.minutes, arguments.commits_per_second))
        finally:
            running.kill()


def soak(running: Running, minutes: float, per_second: int) -> int:
    """Run the test; return 0 if the directory stayed within its bound all the time."""
    topic = make_topic(running, PARTITIONS)
    wait_for_coordinator(running, "group-0")
    peer = Peer(running.port)
    log = running.broker.directory / "data" / "__consumer_offsets-0"
    began = minute = time.monotonic()
    sent, largest, slowest = 0, 0, 0.0
    while time.monotonic() - began < 60 * minutes:
        for _ in range(max(1, per_second // PARTITIONS // 10)):
            slowest = max(slowest, commit(peer, topic.topic_id, sent))
            sent += 1
        if time.monotonic() - minute >= min(60, 6 * minutes):
            minute += min(60, 6 * minutes)
            size = sum(file.stat().st_size for file in log.iterdir())
            largest = max(largest, size)
            report_progress(
                f"{(minute - began) / 60:5.1f} min  {sent * PARTITIONS:>11,} commits  {size / 1e6:6.1f} MB"
                f"  slowest {1000 * slowest:.0f} ms  RSS {running.rss_mib():.0f} MiB"
            )
            slowest = 0.0
        time.sleep(max(0.0, began + sent * PARTITIONS / per_second - time.monotonic()))
    running.kill()
    running.start()
    wait_for_coordinator(running, "group-0")
    bound = 5 * SEGMENT + COUNTS
    report_progress(
        f"{sent * PARTITIONS:,} commits; at most {largest / 1e6:.1f} MB, bound {bound / 1e6:.1f} MB"
    )
    return 0 if largest <= bound else 1


def commit(peer: Peer, topic: Uuid, number: int) -> float:
    """Commit as one group and return the seconds that it took."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=number) for p in range(PARTITIONS)
    )
    request = OffsetCommitRequest(
        group_id=f"group-{number % GROUPS}",
        topics=(OffsetCommitRequestTopic(topic_id=topic, partitions=partitions),),
    )
    began = time.perf_counter()
    answer = peer.ask(request, OffsetCommitResponse)
    assert all(p.error_code == 0 for p in answer.topics[0].partitions), answer
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
