"""Logs of coordinators to be read by the pipeline's tests, and what a warehouse came to.

A log is a list of batches, a batch a list of records with their offsets. It can be written in segments as a
broker leaves them, and cleaned as a broker's cleaner does: of each key only the last record stays."""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from konvene.codec.batches import Record, build
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import GROUP_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated
from konvene.records.offsets import OffsetCommitKey, OffsetCommitValue

LOGS = Path(__file__).parents[1] / "vectors" / "logs"
OFFSETS = "__consumer_offsets"
START_MS = 1_767_225_600_000

Log = list[list[Record]]


def commit(group: str, topic: str, partition: int, offset: int | None) -> Coordinated:
    value = None if offset is None else OffsetCommitValue(offset=offset, commit_timestamp=START_MS)
    return Coordinated(OffsetCommitKey(group=group, topic=topic, partition=partition), value)


def generation(group: str, number: int, members: Sequence[str]) -> Coordinated:
    """A classic group that has come to a generation."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=number,
        protocol="range" if members else None,
        leader=members[0] if members else None,
        current_state_timestamp=START_MS + number,
        members=tuple(
            MemberMetadata(
                member_id=m, client_id="app", client_host="/10.0.0.1", rebalance_timeout=30_000,
                session_timeout=10_000, subscription=b"\0\0\0\0\0\0\0\0\0\0", assignment=b"",
            )
            for m in members
        ),
    )  # fmt: skip
    return Coordinated(GroupMetadataKey(group=group), value)


def log(seed: int, batches: int, *, groups: int = 5, first: int = 0) -> Log:
    """Groups that come to generations and commit, at random."""
    chance = random.Random(seed)
    generations = dict.fromkeys(range(groups), 0)
    made, offset = [], first
    for n in range(batches):
        batch = []
        for _ in range(chance.randint(1, 8)):
            group = chance.randrange(groups)
            if chance.random() < 0.2:
                generations[group] += 1
                members = [f"m-{group}-{i}" for i in range(chance.randint(0, 3))]
                record = generation(f"g-{group}", generations[group], members)
            else:
                record = commit(f"g-{group}", "orders", chance.randrange(3), chance.choice([None, offset]))
            key, value = encode_record(record, GROUP_RECORDS)
            batch.append(Record(offset, START_MS + 1000 * n, key, value))
            offset += 1
        made.append(batch)
    return made


def cleaned(batches: Log, before: int) -> Log:
    """Return the log as compaction below the offset `before` leaves it."""
    last = {r.key: r.offset for batch in batches for r in batch if r.offset < before}
    return [[r for r in batch if r.offset >= before or last[r.key] == r.offset] for batch in batches]


def encoded(batch: Sequence[Record], whole: Sequence[Record]) -> bytes:
    """Encode the remaining records of a batch with the offsets of the whole batch."""
    return build(batch, base_offset=whole[0].offset, last_offset=whole[-1].offset, leader_epoch=3)


def write(
    home: Path,
    batches: Log,
    *,
    topic: str = OFFSETS,
    partition: int = 0,
    cuts: Iterable[int] = (),
    index: bool = True,
    whole: Log | None = None,
) -> list[Path]:
    """Write a log to `home/<topic>-<partition>`; segments begin at its start and at the batches `cuts`.

    `whole` is the log before compaction; it gives the first and last offsets of the batches."""
    folder = home / f"{topic}-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    origin = whole or batches
    bounds = [0, *cuts, len(batches)]
    paths = []
    for begin, end in itertools.pairwise(bounds):
        base = origin[begin][0].offset
        parts = [
            encoded(left, was)
            for left, was in zip(batches[begin:end], origin[begin:end], strict=True)
            if left
        ]
        path = folder / f"{base:020}.log"
        path.write_bytes(b"".join(parts))
        if index:
            path.with_suffix(".index").write_bytes(_index(base, parts))
        paths.append(path)
    return paths


def _index(base: int, parts: list[bytes]) -> bytes:
    entries, position = [], 0
    for n, part in enumerate(parts):
        if n and n % 3 == 0:
            last = struct.unpack_from(">q", part)[0] + struct.unpack_from(">i", part, 23)[0]
            entries.append(struct.pack(">iI", last - base, position))
        position += len(part)
    return b"".join(entries)


def records_of(warehouse: Warehouse) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all bronze records, ordered by log and offset."""
    found = []
    files = warehouse.files("coordinator_record")
    for of in sorted({f.of for f in files}):
        here = [f for f in files if f.of == of]
        for batch in read.of_files(warehouse.path, here, ["offset", "key", "value"]):
            found += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


def expected(batches: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for batch in batches for r in batch]


def rows_of(warehouse: Warehouse) -> dict[str, list[Any]]:
    """Return the sorted rows of every table but `pipeline_run`, without the positions in files."""
    tables = {}
    for name in set(warehouse.tables()) - {"pipeline_run"}:
        rows = read.table(warehouse, name).to_pylist()
        for row in rows:
            for column in ("segment_base_offset", "file_position"):
                row.pop(column, None)
        tables[name] = sorted(map(repr, rows))
    return tables


def sums_of(warehouse: Warehouse) -> dict[str, str]:
    """Return path and checksum of every file of the snapshot but those of `pipeline_run`, computed from its
    bytes."""
    sums = {}
    for file in warehouse.snapshot.files.values():
        if file.table == "pipeline_run":
            continue
        data = Path(warehouse.where(file)).read_bytes()
        assert (hashlib.sha256(data).hexdigest()[:12], len(data)) == (file.sha256, file.bytes), file.path
        sums[file.path] = file.sha256
    return sums


def all_files(warehouse: Warehouse) -> set[str]:
    """Return every file in the folders of tables except logs, listed or not."""
    found = (p.relative_to(warehouse.path).as_posix() for p in warehouse.path.rglob("*") if p.is_file())
    return {path for path in found if path[0] not in "._" and "/_delta_log/" not in path}
