"""Decoding a part in windows gives what decoding it as a whole gives, also where it is damaged."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.pipeline.codec import made

from konvene.codec.batches import Record, build
from konvene.pipeline.codec.bronze import Decoded, blocks
from konvene.pipeline.ingest import windows
from konvene.pipeline.ingest.splits import Split


@pytest.fixture(autouse=True)
def small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW_BYTES", 1500)
        patch.setattr(windows, "AHEAD_BYTES", 700)
        yield


def rows(found: Iterator[Decoded]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return all records and all rows of the quarantine."""
    records, quarantine = [], []
    for each in found:
        records += each.records.to_pylist()
        quarantine += [] if each.quarantine is None else each.quarantine.to_pylist()
    return records, quarantine


def assert_same(data: bytes, position: int = 0) -> int:
    """Compare both ways to decode a file from a position on; return the number of records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "00000000000000000000.log")
        path.write_bytes(data)
        split = Split(str(path), 0, position, len(data), 0, 1 << 62, path.stat().st_ino)
        found = rows(windows.decoded(split))
    assert found == rows(blocks(data[position:] + bytes(64), segment_base=0, end=split.size, origin=position))
    return len(found[0])


@settings(max_examples=depth.examples(40), deadline=None)
@given(made.log(least=3), st.integers(0, 1 << 30))
def test_damaged_logs(log: list[bytes], seed: int) -> None:
    """Batches that are larger than a window, changed bytes, lost and inserted ones, and a cut-off end."""
    chance = random.Random(seed)
    data = bytearray(b"".join(log))
    assert_same(bytes(data))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        data[at : at + chance.choice([0, 1, 50])] = chance.randbytes(chance.choice([0, 1, 50]))
        data += b"?" if not data else b""
    assert_same(bytes(data[: chance.randint(1, len(data))]))


def batch(offset: int, size: int = 100) -> bytes:
    return build([Record(offset, 7, b"key", bytes(size))])


def test_large_logs() -> None:
    """Many windows, and a part that begins within a segment."""
    log = [batch(offset) for offset in range(100)]
    assert assert_same(b"".join(log)) == 100
    assert assert_same(b"".join(log), len(log[0]) * 30) == 70


def test_batch_out_of_order_at_a_window() -> None:
    """A batch that repeats an offset of an earlier window, and one that jumps ahead at the end of one."""
    log = [batch(offset) for offset in range(60)]
    for place in range(5, 45):
        assert assert_same(b"".join([*log[:place], log[2], *log[place:]])) == 60
        assert assert_same(b"".join([*log[:place], batch(1000), *log[place:]])) == 60
