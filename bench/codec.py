"""CPU time to encode and decode the messages that a coordinator handles most, compared with limits.

Run with `python -m bench.codec`. Each figure is the best of twenty rounds, in microseconds. A figure over its
limit makes the exit code 1; among the other benchmarks these figures have no limit.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Callable
from typing import NamedTuple

from bench.figures import Figure, less
from bench.systems import Lab
from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC_ID = Uuid(range(16))
MEMBER_ID = "consumer-orders-1-0b5d1c1e-6f0f-4a52-8d0d-0f6f2a3c4b5d"
HELD = (TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(range(10))),)

FULL_HEARTBEAT = ConsumerGroupHeartbeatRequest(
    group_id="orders",
    member_id=MEMBER_ID,
    member_epoch=7,
    rebalance_timeout_ms=300_000,
    subscribed_topic_names=("orders", "payments"),
    server_assignor="uniform",
    topic_partitions=HELD,
)
ASSIGNED = ConsumerGroupHeartbeatResponse(
    member_id=MEMBER_ID,
    member_epoch=7,
    heartbeat_interval_ms=5000,
    assignment=Assignment(topic_partitions=HELD),
)
COMMIT_OF_100 = OffsetCommitRequest(
    group_id="orders",
    generation_id_or_member_epoch=7,
    member_id=MEMBER_ID,
    topics=(
        OffsetCommitRequestTopic(
            name="orders",
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=p,
                    committed_offset=p * 1000,
                    committed_leader_epoch=3,
                    committed_metadata="",
                )
                for p in range(100)
            ),
        ),
    ),
)
HEARTBEAT = HeartbeatRequest(group_id="orders", generation_id=7, member_id=MEMBER_ID)


class Row(NamedTuple):
    """One figure: the operation, its message, and the limit in microseconds."""

    name: str
    do: Callable[[Struct, int], Callable[[], object]]
    value: Struct
    version: int
    bar_us: float | None


def reading(value: Struct, version: int) -> Callable[[], object]:
    data, cls = encode(value, version), type(value)
    return lambda: decode(cls, version, data)


def writing(value: Struct, version: int) -> Callable[[], object]:
    return lambda: encode(value, version)


ROWS = (
    Row("ConsumerGroupHeartbeat request, read", reading, FULL_HEARTBEAT, 1, 12),
    Row("ConsumerGroupHeartbeat response, written", writing, ASSIGNED, 1, 10),
    Row("OffsetCommit of 100 partitions, read", reading, COMMIT_OF_100, 9, 150),
    Row("Heartbeat request, read", reading, HEARTBEAT, 4, None),
    Row("Heartbeat response, written", writing, HeartbeatResponse(), 4, None),
)


ROUNDS = 20


def measure_us(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the microseconds of CPU time of one call of `work`: the best of `rounds` rounds of 10 ms."""
    timer = timeit.Timer(work, timer=time.process_time)
    once = max(timer.timeit(50) / 50, 1e-7)
    number = max(int(0.01 / once), 20)
    return min(timer.repeat(rounds, number)) / number * 1e6


def figures(lab: Lab) -> list[Figure]:
    """Return the figures for the table of all benchmarks; no broker is needed."""
    rounds = lab.of(ROUNDS)
    return [less(f"{row.name}, µs", [measure_us(row.do(row.value, row.version), rounds)]) for row in ROWS]


def main() -> int:
    over = 0
    print(f"{'':<42} {'µs':>8} {'bar':>6}")
    for row in ROWS:
        took_us = measure_us(row.do(row.value, row.version))
        missed = row.bar_us is not None and took_us > row.bar_us
        over += missed
        bar = "" if row.bar_us is None else f"{row.bar_us:g}"
        print(f"{row.name:<42} {took_us:>8.2f} {bar:>6}{'  over' if missed else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
