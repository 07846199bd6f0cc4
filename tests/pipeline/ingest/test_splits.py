"""Split positions of segments, and the end up to which they can be read."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from tests.pipeline.segments import log, write

from konvene.codec.batches import HEADER_SIZE, read_header
from konvene.pipeline.ingest import splits
from konvene.pipeline.ingest.splits import cut, extent
from konvene.pipeline.sources.files import find


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow splits at small distances instead of a megabyte."""
    monkeypatch.setattr(splits, "_AHEAD", 2000)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_parts_begin_with_batches_and_together_are_the_segment(
    tmp_path: Path, seed: int, index: bool
) -> None:
    """With Kafka's index and without one, for any requested range."""
    batches = log(seed, 200, first=100)
    (path,) = write(tmp_path, batches, index=index)
    data = path.read_bytes()
    (segment,) = find([path]).copies[0].segments
    found = extent(segment)
    assert found is not None
    assert (found.first, found.next, found.end) == (100, batches[-1][-1].offset + 1, len(data))
    chance = random.Random(seed)
    first = chance.randint(100, found.next - 1)
    last = chance.randint(first, found.next - 1)
    for wanted in ((100, found.next - 1), (first, last), (first, first)):
        parts = list(cut(segment, found, *wanted, 3000))
        assert parts[0].first == wanted[0] and parts[-1].last == wanted[1]
        for part, behind in itertools.pairwise(parts):
            assert (part.end, part.last + 1) == (behind.position, behind.first)
        for part in parts:
            assert read_header(data, part.position).base_offset <= part.first
            if part.end < len(data):
                assert read_header(data, part.end).base_offset > part.last
        assert wanted != (100, found.next - 1) or len(parts) > 2


@pytest.mark.parametrize("index", [True, False])
def test_incomplete_batch_at_the_end_is_left(tmp_path: Path, index: bool) -> None:
    """For a log that ends at any byte, exactly its complete batches can be read."""
    batches = log(3, 8)
    (path,) = write(tmp_path, batches, index=index)
    data = path.read_bytes()
    ends, at = [0], 0
    while at < len(data):
        at += read_header(data, at).size
        ends.append(at)
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        found = extent(find([path]).copies[0].segments[0])
        whole = max(end for end in ends if end <= size)
        assert (found.end if found is not None else 0) == whole


def test_preallocated_zeros_are_not_read(tmp_path: Path) -> None:
    (path,) = write(tmp_path, log(3, 8))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(100_000))
    path.with_suffix(".index").write_bytes(path.with_suffix(".index").read_bytes() + bytes(8000))
    for behind in (None, 10_000):
        found = extent(find([path]).copies[0].segments[0], behind)
        assert found is not None and found.end == size


@pytest.mark.parametrize("index", [True, False])
def test_damage_before_other_batches_stays_in_its_part(tmp_path: Path, index: bool) -> None:
    (path,) = write(tmp_path, log(3, 60), index=index)
    data = bytearray(path.read_bytes())
    position = sum(read_header(data, 0).size for _ in range(1))
    data[position + 16] = 9
    path.write_bytes(data)
    found = extent(find([path]).copies[0].segments[0])
    assert found is not None and found.end == len(data)


def test_damage_at_the_end_of_a_closed_segment_is_read(tmp_path: Path) -> None:
    (path,) = write(tmp_path, log(3, 8))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"no batch")
    segment = find([path]).copies[0].segments[0]
    last, sealed = extent(segment), extent(segment, 10_000)
    assert last is not None and last.end == size
    assert sealed is not None and sealed.end == size + len(b"no batch") and sealed.next == last.next


def test_invalid_index_is_ignored(tmp_path: Path) -> None:
    """Entries point into batches or belong to another file: the segment is scanned instead."""
    batches = log(3, 200)
    (path,) = write(tmp_path, batches)
    true = extent(find([path]).copies[0].segments[0])
    index = path.with_suffix(".index")
    for data in (bytes([0, 0, 0, 5, 0, 0, 16, 7]), b"\xff" * 64, b"odd"):
        index.write_bytes(data)
        found = extent(find([path]).copies[0].segments[0])
        assert true is not None and found is not None
        assert found[:4] == true[:4]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("field", [slice(0, 8), slice(23, 27)], ids=["base offset", "last offset delta"])
def test_a_batch_with_a_wrong_offset_hides_none_behind_it(tmp_path: Path, index: bool, field: slice) -> None:
    """Its header names offsets that the batches after it have, too."""
    batches = log(3, 60)
    (path,) = write(tmp_path, batches, index=index)
    true = extent(find([path]).copies[0].segments[0])
    data = bytearray(path.read_bytes())
    positions, at = [], 0
    while at < len(data):
        positions.append(at)
        at += read_header(data, at).size
    for number in (1, 20, 40):
        data[positions[number] + field.stop - 3] ^= 1
    path.write_bytes(data)
    found = extent(find([path]).copies[0].segments[0])
    assert true is not None and found is not None
    assert found[:4] == true[:4]
    offsets = [each.offset for each in found.cuts]
    assert offsets == sorted(set(offsets)) and offsets[-1] < found.next


def test_an_unreadable_last_batch_with_a_wrong_last_offset_is_left(tmp_path: Path) -> None:
    """What is appended is read: its offsets do not count as read before. In a closed segment the next segment
    begins where the batch ends."""
    batches = log(3, 9)
    (path,) = write(tmp_path, batches)
    data = bytearray(path.read_bytes())
    at = 0
    for _ in batches[:-1]:
        at += read_header(data, at).size
    data[at + 24] ^= 1
    path.write_bytes(data)
    segment, due = find([path]).copies[0].segments[0], batches[-1][-1].offset + 1
    last, closed = extent(segment), extent(segment, due)
    assert last is not None and (last.end, last.next) == (at, batches[-1][0].offset)
    assert closed is not None and (closed.end, closed.next) == (len(data), due)


def test_headers_without_records_are_read_if_only_headers_are_needed(tmp_path: Path) -> None:
    """A follower keeps the headers of user topics, each followed by a hole."""
    (path,) = write(tmp_path, log(3, 8), index=False)
    data, at = path.read_bytes(), 0
    with path.open("r+b") as file:
        while at < len(data):
            header = read_header(data, at)
            file.seek(at + HEADER_SIZE)
            file.write(bytes(header.size - HEADER_SIZE))
            at += header.size
    segment = find([path]).copies[0].segments[0]
    found = extent(segment, has_records=False)
    assert extent(segment) is None
    assert found is not None and (found.first, found.next, found.end) == (0, header.next_offset, len(data))
