"""Plans read every offset once, for any copies of logs, slice sizes and step limits."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from bench.coordinator_log import write_log

from konvene.client.net.cluster import TopicPartition
from konvene.codec.batches import Record, batches, build, read_header
from konvene.pipeline.sources.decode import TABLES_OF_LOGS
from konvene.pipeline.sources.files import Partition
from konvene.pipeline.sources.limits import Limit
from konvene.pipeline.sources.plan import Files, Slice, Wanted
from konvene.pipeline.sources.spool import Spool

WANTED = Wanted(re.compile("__consumer_offsets"))
OFFSETS = Partition("", "__consumer_offsets", 0)
SEGMENT = 40_000
RECORDS = 3000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of some segments."""
    assert len(write_log(tmp_path / "a", RECORDS, segment_bytes=SEGMENT)) > 4
    return tmp_path / "a"


def offsets(parts: list[Slice]) -> list[int]:
    """Return the offsets that tasks read from the given slices."""
    found = []
    for part in parts:
        assert part.split is not None
        with open(part.split.path, "rb") as file:
            file.seek(part.split.position)
            data = file.read(part.split.size)
        for header, _ in batches(data):
            found += [
                n for n in range(header.base_offset, header.next_offset) if part.first <= n <= part.last
            ]
    return found


def end_of(source: Files) -> int:
    return source.places(WANTED)[OFFSETS].next


def test_partition_without_segments_is_empty(log: Path) -> None:
    """A spool names a topic in `partition.metadata` before it has any of its records."""
    empty = log / "orders-0"
    empty.mkdir()
    (empty / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    every = Wanted(re.compile(".*"))
    source = Files((str(log),))
    assert set(source.places(every)) == {OFFSETS}
    assert {each.of for each in source.slices(every, {}, {OFFSETS: end_of(source)})} == {OFFSETS}
    with_empty_only = Files((str(empty),))
    assert with_empty_only.places(every) == {} and with_empty_only.slices(every, {}, {}) == []


@pytest.mark.parametrize("task_bytes", [1, 5000, 1 << 30])
def test_each_offset_is_in_one_slice(log: Path, task_bytes: int) -> None:
    source = Files((str(log),), task_bytes=task_bytes)
    end = end_of(source)
    assert end >= RECORDS
    parts = source.slices(WANTED, {}, {OFFSETS: end})
    assert offsets(parts) == list(range(end))
    some = source.slices(WANTED, {OFFSETS: 700}, {OFFSETS: 1700})
    assert offsets(some) == list(range(700, 1700))


def test_offsets_of_several_copies_are_read_once(log: Path, tmp_path: Path) -> None:
    """Copies of different ages; one has a gap that another one fills."""
    second, third = tmp_path / "b", tmp_path / "c"
    shutil.copytree(log, second)
    shutil.copytree(log, third)
    segments = sorted((log / str(OFFSETS)).glob("*.log"))
    segments[1].unlink()
    for path in segments[-2:]:
        path.unlink()
    for path in sorted((second / str(OFFSETS)).glob("*.log"))[2:]:
        path.unlink()
    cut = sorted((third / str(OFFSETS)).glob("*.log"))
    cut[-1].write_bytes(cut[-1].read_bytes()[:-10])
    source = Files((str(log), str(second), str(third)))
    end = end_of(source)
    assert RECORDS - 45 < end < RECORDS + 45
    assert offsets(source.slices(WANTED, {}, {OFFSETS: end})) == list(range(end))


def test_gap_in_all_copies_is_skipped(log: Path) -> None:
    segments = sorted((log / str(OFFSETS)).glob("*.log"))
    segments[1].unlink()
    source = Files((str(log),))
    found = offsets(source.slices(WANTED, {}, source.places(WANTED) and {OFFSETS: end_of(source)}))
    missing = range(int(segments[1].stem), int(segments[2].stem))
    assert sorted({*range(end_of(source))} - set(found)) == list(missing)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("limit", [Limit(records=1), Limit(records=300), Limit(bytes=9000), Limit(files=1)])
def test_limited_steps_reach_all_offsets(log: Path, limit: Limit) -> None:
    """Every step advances, by at most the limit and one batch, and no offset is left out."""
    for partition in (1, 2):
        write_log(log, 500, partition=partition, seed=partition)
    source = Files((str(log),))
    target = {of: place.next for of, place in source.places(WANTED).items()}
    at: dict[Partition, int] = {}
    read: dict[Partition, list[int]] = {of: [] for of in target}
    while at != target:
        after = source.limited(WANTED, at, target, limit)
        parts = source.slices(WANTED, at, after)
        for of in target:
            read[of] += offsets([part for part in parts if part.of == of])
        records = sum(after.values()) - sum(at.values())
        assert records > 0
        if limit.records is not None:
            assert records <= max(limit.records, 40)
        if limit.files is not None:
            assert len({part.split and part.split.path for part in parts}) == 1
        at = after
    assert read == {of: list(range(end)) for of, end in target.items()}


def test_limit_is_shared_between_logs(log: Path) -> None:
    """A short log does not wait for a long one."""
    write_log(log, 500, partition=1)
    source = Files((str(log),))
    target = {of: place.next for of, place in source.places(WANTED).items()}
    after = source.limited(WANTED, {}, target, Limit(records=400))
    assert len(after) == 2
    assert min(after.values()) > 100


def test_growth_of_a_log_is_noticed(log: Path) -> None:
    """Incomplete batches do not count; a segment is scanned again when its size changes."""
    last = sorted((log / str(OFFSETS)).glob("*.log"))[-1]
    whole = last.read_bytes()
    source = Files((str(log),))
    ends = []
    chance = random.Random(1)
    for size in [*sorted(chance.sample(range(len(whole)), 20)), len(whole)]:
        last.write_bytes(whole[:size])
        ends.append(end_of(source))
        fits = [header.next_offset for header, _ in batches(_whole(whole, size))]
        assert ends[-1] == (fits[-1] if fits else int(last.stem))
    assert ends == sorted(ends)


def _whole(data: bytes, size: int) -> bytes:
    at = 0
    for header, _ in batches(data):
        if at + header.size > size:
            break
        at += header.size
    return data[:at]


def test_only_requested_topics_are_scanned(log: Path) -> None:
    write_log(log, 100, partition=1)
    source = Files((str(log),), cluster="east")
    one = Wanted(WANTED.topics, partitions=frozenset({1}))
    assert list(source.places(one)) == [Partition("east", "__consumer_offsets", 1)]
    assert not source.places(Wanted(re.compile("orders")))
    of = Partition("east", "__consumer_offsets", 0)
    few = Wanted(WANTED.topics, least_offset=10, largest_offset=20)
    assert offsets(source.slices(few, {}, {of: 1000})) == list(range(10, 21))


def test_log_ends_of_a_followed_cluster(tmp_path: Path) -> None:
    """Its logs of user topics have headers only, so their batches have no valid checksum."""
    tp = TopicPartition("orders", 0)
    data = build([Record(n, 1000 + n, None, b"x" * 100) for n in range(5)])
    with Spool(tmp_path) as spool:
        spool.adopt("c")
        spool.append(tp, read_header(data), memoryview(data))
    source = Files((str(tmp_path),))
    for table in ("log_end", "log_part"):
        how = TABLES_OF_LOGS[table]
        [(of, place)] = source.places(how.wanted).items()
        assert (of.topic, place) == ("orders", (0, 5))
        [part] = source.slices(how.wanted, {}, {of: place.next})
        rows = [row for batch in how.batches(part) for row in batch.to_pylist()]
        assert [row.get("log_end_offset", 5) for row in rows] == [5]
    assert source.places(TABLES_OF_LOGS["record"].wanted) == {}
