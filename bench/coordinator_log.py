"""Synthetic `__consumer_offsets` logs of any size, from a seed: the same arguments give the same bytes.

The mix is that of a busy coordinator: of 100 records 92 are offset commits, 3 are tombstones of commits, and
5 are current assignments of consumer group members. A group commits some partitions at a time, offsets rise,
and time advances. Segments and their offset indexes are as Kafka leaves them. The records of a group are not
a plausible history.

After `lap` records the same batches repeat with later base offsets, which the checksum does not cover. So ten
gigabytes take only as long as the disk needs.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from konvene.codec.compile import encode
from konvene.codec.compression import Compression, compress
from konvene.codec.uuid import Uuid
from konvene.codec.varint import write_varint
from konvene.records.consumer import ConsumerGroupCurrentMemberAssignmentValue, TopicPartitions

TOPIC = "__consumer_offsets"
SEGMENT_BYTES = 104_857_600
INDEX_INTERVAL_BYTES = 4096
START_MS = 1_767_225_600_000  # 2026-01-01
LAP = 2_000_000
"""Number of records of a partition that differ from one another."""
TOPICS = 20
PARTITIONS = 12

_FRONT = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_OFFSET = struct.Struct(">q")
_ENTRY = struct.Struct(">iI")
_COMMIT = {3: struct.Struct(">hqihq"), 1: struct.Struct(">hqhqq"), 0: struct.Struct(">hqhq")}
_ASSIGNMENT = (8).to_bytes(2, "big")
_VARINTS = [write_varint(n) for n in range(4096)]


class Batch(NamedTuple):
    """A batch without its base offset: its number of records, and its bytes from the length field on."""

    records: int
    tail: bytes

    def at(self, offset: int) -> bytes:
        return _OFFSET.pack(offset) + self.tail


def write_log(
    directory: Path,
    records: int,
    *,
    seed: int = 0,
    partition: int = 0,
    per_batch: tuple[int, int] = (1, 40),
    groups: int = 1000,
    compression: Compression = Compression.NONE,
    commit_version: int = 3,
    first_offset: int = 0,
    segment_bytes: int = SEGMENT_BYTES,
    lap: int = LAP,
    hot: float = 0.0,
) -> list[Path]:
    """Write at least `records` records, in full batches, to `directory/__consumer_offsets-<partition>`.

    `hot` is the share of the records that the first group has beyond its own."""
    home = directory / f"{TOPIC}-{partition}"
    home.mkdir(parents=True, exist_ok=True)
    batches = list(
        make_batches(
            min(records, lap), seed=seed, per_batch=per_batch, groups=groups,
            compression=compression, commit_version=commit_version, hot=hot,
        )
    )  # fmt: skip
    paths: list[Path] = []
    parts: list[bytes] = []
    size, base, offset, left = 0, first_offset, first_offset, records
    while left > 0:
        for batch in batches:
            if left <= 0:
                break
            if size + len(batch.tail) + 8 > segment_bytes and parts:
                paths.append(_write_segment(home, base, parts))
                parts, size, base = [], 0, offset
            parts.append(batch.at(offset))
            size += len(batch.tail) + 8
            offset += batch.records
            left -= batch.records
    paths.append(_write_segment(home, base, parts))
    return paths


def segment(records: int, **kinds: object) -> bytes:
    """Return `records` records as the bytes of one segment; `kinds` as in `make_batches`."""
    out, offset = [], 0
    for batch in make_batches(records, **kinds):  # type: ignore[arg-type]
        out.append(batch.at(offset))
        offset += batch.records
    return b"".join(out)


def _write_segment(home: Path, base: int, parts: list[bytes]) -> Path:
    """Write a segment and its offset index: one entry about every 4 KiB, with the last offset of a batch."""
    path = home / f"{base:020}.log"
    path.write_bytes(b"".join(parts))
    entries, position, since = [], 0, 0
    for part in parts:
        if since > INDEX_INTERVAL_BYTES:
            last = _OFFSET.unpack_from(part)[0] + struct.unpack_from(">i", part, 23)[0]
            entries.append(_ENTRY.pack(last - base, position))
            since = 0
        position += len(part)
        since += len(part)
    path.with_suffix(".index").write_bytes(b"".join(entries))
    return path


def make_batches(
    records: int,
    *,
    seed: int = 0,
    per_batch: tuple[int, int] = (1, 40),
    groups: int = 1000,
    compression: Compression = Compression.NONE,
    commit_version: int = 3,
    hot: float = 0.0,
) -> Iterator[Batch]:
    """Return batches with `records` records in total, with rising timestamps."""
    chance = np.random.Generator(np.random.PCG64(seed))
    values = _record_bodies(chance, records, groups, commit_version, hot)
    now_ms, left = START_MS, records
    while left > 0:
        sizes = chance.integers(per_batch[0], per_batch[1] + 1, 4096).tolist()
        for size, pause in zip(sizes, chance.integers(1, 20, 4096).tolist(), strict=True):
            count = min(size, left)
            yield _batch([next(values) for _ in range(count)], now_ms, compression)
            left -= count
            now_ms += pause
            if left <= 0:
                return


def _batch(bodies: list[bytes], now_ms: int, compression: Compression) -> Batch:
    """Build a batch; `bodies` are records after their offset delta, with the batch's timestamp."""
    parts: list[bytes] = []
    for delta, body in enumerate(bodies):
        front = b"\0\0" + _VARINTS[delta]
        parts += (_VARINTS[len(front) + len(body)], front, body)
    data = b"".join(parts)
    if compression is not Compression.NONE:
        data = compress(compression, data)
    count = len(bodies)
    covered = _COVERED.pack(int(compression), count - 1, now_ms, now_ms, -1, -1, -1, count) + data
    return Batch(count, _FRONT.pack(0, len(covered) + 9, 0, 2, crc32c(covered))[8:] + covered)


def _record_bodies(
    chance: np.random.Generator, records: int, groups: int, version: int, hot: float = 0.0
) -> Iterator[bytes]:
    """Yield key, value and header count of records; a group commits some partitions at a time."""
    fronts = [_key_front(g, t) for g in range(groups) for t in range(TOPICS)]
    member_keys = [_member_key(g, m) for g in range(groups) for m in range(4)]
    epochs = dict.fromkeys(range(groups), 1)
    offset, now_ms, left = 1_000_000, START_MS, records
    while left > 0:
        kinds = chance.integers(0, 100, 8192).tolist()
        groups_of = np.repeat(chance.integers(0, groups, 2048), 4).tolist()
        if hot:
            cold = np.repeat(chance.random(2048) >= hot, 4)
            groups_of = np.where(cold, groups_of, 0).tolist()
        topics = np.repeat(chance.integers(0, TOPICS, 2048), 4).tolist()
        partitions = chance.integers(0, PARTITIONS, 8192).tolist()
        for kind, group, topic, partition in zip(kinds, groups_of, topics, partitions, strict=True):
            offset += 7
            now_ms += 1
            if kind < 95:
                key = fronts[group * TOPICS + topic] + partition.to_bytes(4, "big")
                value = b"\1" if kind < 3 else _commit(version, offset, now_ms, topic)
            else:
                epochs[group] += 1
                key = member_keys[group * 4 + partition % 4]
                value = _owned(epochs[group], topic, partition)
            yield _VARINTS[len(key)] + key + value + b"\0"
        left -= 8192


def _commit(version: int, offset: int, now_ms: int, topic: int) -> bytes:
    """Return the value of a commit without metadata, after its length."""
    if version >= 4:
        body = struct.pack(">hqi", version, offset, 5) + b"\1" + struct.pack(">q", now_ms) + b"\1\0\x10"
        body += bytes([topic + 1]) * 16
    elif version >= 3:
        body = _COMMIT[3].pack(3, offset, 5, 0, now_ms)
    elif version == 1:
        body = _COMMIT[1].pack(1, offset, 0, now_ms, now_ms + 86_400_000)
    else:
        body = _COMMIT[0].pack(version, offset, 0, now_ms)
    return _VARINTS[len(body)] + body


def _key_front(group: int, topic: int) -> bytes:
    """Return the key of a commit up to its partition."""
    names = f"group-{group}".encode(), f"orders-{topic}".encode()
    return b"\0\1" + b"".join(len(name).to_bytes(2, "big") + name for name in names)


def _member_key(group: int, member: int) -> bytes:
    names = f"group-{group}".encode(), f"member-{group:08}-{member:08}-4e8d".encode()
    return _ASSIGNMENT + b"".join(len(name).to_bytes(2, "big") + name for name in names)


def _owned(epoch: int, topic: int, partition: int) -> bytes:
    held = TopicPartitions(
        topic_id=Uuid(bytes([topic]) * 16),
        partitions=(partition, partition + 1),
        assignment_epochs=(epoch,) * 2,
    )
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=epoch - 1, assigned_partitions=(held,)
    )
    body = b"\0\0" + encode(value, 0)
    return _VARINTS[len(body)] + body


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.coordinator_log", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partition", type=int, default=0)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit-version", type=int, default=3)
    parser.add_argument("--lap", type=int, default=LAP, help="records before the log repeats itself")
    options = parser.parse_args()
    began = time.perf_counter()
    paths = write_log(
        options.directory,
        options.records,
        seed=options.seed,
        partition=options.partition,
        groups=options.groups,
        commit_version=options.commit_version,
        lap=options.lap,
    )
    size = sum(path.stat().st_size for path in paths)
    print(
        f"{options.records} records, {size} bytes, {len(paths)} segments, {time.perf_counter() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
