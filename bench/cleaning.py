"""Throughput of the cleaner per CPU second: both passes over a log and all writes, without a broker.

Two logs are cleaned: values of 1 KB, a hundred per batch, half of them the last of their key; and commits as
a group coordinator writes them, three partitions of a group per batch, each committed again about thirty
times. Only the time of the cleaning process counts.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from bench.systems import Lab
from konvene.codec.batches import build_simple
from konvene.log.cleaner.cleaning import clean
from konvene.log.cleaner.contract import CleaningTask, SourceSegment
from konvene.log.disk.files import RealDisk

NOW_MS = 1_700_000_000_000
MAP_BYTES = 128 << 20
VALUES_BYTES = 64 << 20
COMMITS_BYTES = 32 << 20
PER_BATCH = 100
COMMITTED = 3
GROUPS = 1000


def values(lab: Lab) -> list[Figure]:
    """Clean values of 1 KB, each key about twice."""
    size = VALUES_BYTES // lab.shrink
    keys = max(1, size // 1024 // 2)
    chance = random.Random(1)
    value = bytes(chance.randbytes(1000))
    log, offset = bytearray(), 0
    while len(log) < size:
        pairs = [(b"key-%08d" % chance.randrange(keys), value) for _ in range(PER_BATCH)]
        log += build_simple(pairs, NOW_MS, base_offset=offset, leader_epoch=0)
        offset += PER_BATCH
    return _figures(bytes(log), offset, lab.windows.runs)


def commits(lab: Lab) -> list[Figure]:
    """Clean offset commits of many groups."""
    size = COMMITS_BYTES // lab.shrink
    chance = random.Random(2)
    log, offset = bytearray(), 0
    while len(log) < size:
        group = b"group-%06d" % chance.randrange(GROUPS)
        first = chance.randrange(4)
        pairs = [
            (
                b"\0\1\0%c%b\0\6orders\0\0\0%c" % (len(group), group, first + at),
                b"\0\3%b\xff\xff\xff\xff\0\0%b" % (offset.to_bytes(8, "big"), NOW_MS.to_bytes(8, "big")),
            )
            for at in range(COMMITTED)
        ]
        log += build_simple(pairs, NOW_MS, base_offset=offset, leader_epoch=0)
        offset += COMMITTED
    return _figures(bytes(log), offset, lab.windows.runs)


def _figures(log: bytes, count: int, rounds: int) -> list[Figure]:
    spent = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{0:020d}.log"
        path.write_bytes(log)
        source = SourceSegment(0, count, str(path), len(log), 0, 0, NOW_MS)
        task = CleaningTask(
            directory, (source,), 0, count, -1, (), {}, NOW_MS,
            1 << 30, 10 << 20, 4096, 1 << 20, 86_400_000, MAP_BYTES,
        )  # fmt: skip
        for _ in range(rounds):
            began = time.process_time()
            for _ in clean(RealDisk(), task):
                pass
            spent.append(time.process_time() - began)
    return [
        Figure("MB per CPU s", tuple(len(log) / 1e6 / each for each in spent)),
        Figure("records per CPU s", tuple(count / each for each in spent)),
    ]
