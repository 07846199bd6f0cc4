"""Figures of Apache Kafka 4.4.0 on two cores: medians of three windows, on a warm JVM.

One KRaft node with a heap of 1 GB (OpenJDK 17, G1), 4 partitions of `__consumer_offsets`,
`group.initial.rebalance.delay.ms=0`, defaults otherwise. Kafka never waits for the disk, so its figures are
compared with konvene's with and without syncs.

The load came from a generator in Go, which uses less CPU than the one in Python, so rates per wall-clock
second are hard to compare. `--kafka` measures both brokers with the generator in Python. It was also used
here for:

- joins and changes of streams groups, measured once, while the machine was busy: their CPU is left out;
- transactions, after a warm-up of 30 seconds;
- share groups, after a warm-up of 90 seconds, on a machine with a load of 4 to 20: their rates per wall-clock
  second are left out. In the first minute Kafka used twice the CPU for records in batches.
"""

from __future__ import annotations

from bench.figures import MIB_PER_CPU_S, MIB_PER_S, PER_CPU_S, PER_S, RSS

VERSION = "4.4.0"


def _rates(per_cpu_s: float, per_s: float) -> dict[str, float]:
    return {PER_CPU_S: per_cpu_s, PER_S: per_s}


def _with_bytes(per_cpu_s: float, per_s: float, mib_per_cpu_s: float, mib_per_s: float) -> dict[str, float]:
    return _rates(per_cpu_s, per_s) | {MIB_PER_CPU_S: mib_per_cpu_s, MIB_PER_S: mib_per_s}


PUBLISHED: dict[str, dict[str, float]] = {
    "start": {"start, ms": 2_630},
    "idle": {RSS: 376, "idle CPU, %": 4.2},
    "api-versions": _rates(20_020, 24_752),
    "heartbeat-64": _rates(38_503, 48_364),
    "heartbeat-1": _rates(9_582, 6_229),
    "commit-1": _rates(26_076, 33_955),
    "commit-10": _rates(21_767, 29_668),
    "commit-100": _rates(4_742, 8_006),
    "offset-fetch": _rates(22_523, 27_681),
    "produce-1": _with_bytes(20_741, 23_839, 1.978, 2.273),
    "produce-100": _with_bytes(13_075, 15_417, 124.7, 147.0),
    "produce-1000": _with_bytes(288, 455, 281.1, 444.8),
    "fetch-1": _with_bytes(5_105, 4_812, 2_587, 2_439),
    "fetch-100": _with_bytes(2_566, 2_349, 2_501, 2_289),
    "fetch-1000": _with_bytes(3_483, 3_410, 3_481, 3_409),
    "latency": {"p50, ms": 0.780, "p99, ms": 1.77},
    "join-100": {"ms": 34.3, "CPU ms": 40},
    "join-1000": {"ms": 136, "CPU ms": 180},
    "consumer-heartbeat": _rates(27_791, 27_233),
    "consumer-join-1000": {"owned, ms": 10_150, "stable, ms": 10_150, "CPU ms": 150},
    "consumer-one": {
        "one joins: owned, ms": 5_021,
        "one joins: stable, ms": 5_022,
        "one joins: CPU ms": 190,
        "one leaves: owned, ms": 4_760,
        "one leaves: stable, ms": 5_001,
        "one leaves: CPU ms": 140,
    },
    "consumer-kill": {"owned, ms": 45_000},
    "consumer-quiet": {"CPU, % of a core": 9},
    "streams-heartbeat": {PER_CPU_S: 20_000},
    "streams-join-1000": {"owned, ms": 10_940, "stable, ms": 10_940},
    "streams-one": {
        "one joins: owned, ms": 5_014,
        "one joins: stable, ms": 5_014,
        "one leaves: owned, ms": 4_955,
        "one leaves: stable, ms": 4_955,
    },
    "streams-kill": {"owned, ms": 45_000},
    "share-batches": {"records per CPU s": 650_000},
    "share-singles": {"records per CPU s": 2_170},
    "share-beside": {"records per CPU s": 2_500_000, "a share group's records per CPU s, of these": 0.30},
    "share-heartbeat": {PER_CPU_S: 21_200},
    "transactions-2": {"transactions per CPU s": 2_390, "transactions per s": 2_920},
    "transactions-1": {"transactions per CPU s": 2_040, "transactions per s": 2_610},
    "transaction-read": {"read, p50, ms": 0.91, "read, p99, ms": 1.78, "EndTxn answered, p50, ms": 0.28},
    "load": {"first right OffsetFetch, ms": 4_467, "all partitions right, ms": 5_371, RSS: 693},
    "assignors": {
        "uniform 10,000x1,000x100, ms": 12.5,
        "uniform 10,000x1,000x100, one joins, ms": 4.56,
        "uniform mixed 1,000x1,000x50, ms": 74.7,
        "uniform mixed 1,000x1,000x50, one joins, ms": 39.9,
        "uniform 100x10x100, ms": 0.037,
        "uniform 100x10x100, one joins, ms": 0.024,
        "range 10,000x1,000x100, ms": 27.9,
        "range 10,000x1,000x100, one joins, ms": 28.2,
        "sticky 1,000x100x100, ms": 12.4,
        "sticky 1,000x100x100, one joins, ms": 13,
    },
}
