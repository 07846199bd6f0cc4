"""Hypothesis strategies for batches of all kinds, and the plain decoder's result for them."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from konvene.codec.batches import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    TimestampType,
    build,
    check,
    read_header,
    records,
)
from konvene.codec.compression import Compression
from konvene.codec.errors import CodecError
from konvene.pipeline.codec.bronze import Decoded, blocks

Row = tuple[int, int, bytes | None, bytes | None]

_SIZES = st.sampled_from([0, 1, 5, 30, 63, 64, 65, 127, 128, 200, 8191, 8192, 9000])
DATA = (
    st.none() | st.binary(max_size=80) | st.builds(lambda n, b: bytes([b]) * n, _SIZES, st.integers(0, 255))
)
HEADERS = st.just(()) | st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), st.none() | st.binary(max_size=9)),
    max_size=3,
).map(tuple)
GAPS = st.sampled_from([1, 1, 1, 1, 2, 63, 64, 65, 8000, 1_000_000])
PAUSES = st.sampled_from([0, 0, 1, -1, 63, 64, -64, -65, 10_000, 1 << 40, -(1 << 40)])
FEW = st.integers(1, 6) | st.sampled_from([40, 130])


@st.composite
def batch(draw: st.DrawFn, base: int) -> bytes:
    """Draw one batch whose first offset is about `base`."""
    offset, time = (
        base + draw(st.sampled_from([0, 0, 0, 3])),
        draw(st.sampled_from([0, 1_700_000_000_000, -1])),
    )
    entries = []
    shape = draw(st.lists(st.tuples(DATA, DATA, HEADERS, GAPS, PAUSES), min_size=1, max_size=4))
    for i in range(draw(FEW)):
        key, value, headers, gap, pause = shape[i % len(shape)]
        entries.append(Record(offset, time, key, value, headers))
        offset, time = offset + gap, time + pause
    stamped = draw(st.booleans())
    options: dict[str, Any] = (
        {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5} if draw(st.booleans()) else {}
    )
    return build(
        entries,
        base_offset=draw(st.sampled_from([base, None])),
        last_offset=draw(st.sampled_from([entries[-1].offset, entries[-1].offset + 9])),
        leader_epoch=draw(st.sampled_from([-1, 0, 77])),
        compression=draw(st.sampled_from(list(Compression))),
        timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
        log_append_time_ms=1_750_000_000_000,
        transactional=bool(options) and draw(st.booleans()),
        delete_horizon=draw(st.sampled_from([None, None, 1_800_000_000_000])),
        **options,
    )


@st.composite
def log(draw: st.DrawFn, least: int = 1) -> list[bytes]:
    """Draw consecutive batches, some of them emptied by the cleaner."""
    out: list[bytes] = []
    base = draw(st.sampled_from([0, 5, 1 << 40]))
    for _ in range(draw(st.integers(least, 8))):
        made = draw(batch(base))
        out.append(emptied(made) if draw(st.integers(0, 9)) == 0 else made)
        base = read_header(made).next_offset
    return out


def emptied(made: bytes) -> bytes:
    """Return a batch without records, as the cleaner keeps it for its producer's state."""
    return sealed(made[:57] + bytes(4))


def sealed(made: bytes) -> bytes:
    """Return the bytes as a batch with the right length and checksum."""
    front = made[:8] + struct.pack(">i", len(made) - 12) + made[12:17]
    return front + struct.pack(">I", crc32c(made[21:])) + made[21:]


def plain(made: bytes) -> tuple[BatchHeader, list[Record]] | str:
    """Return the plain decoder's header and records, or its error message."""
    try:
        header = read_header(made)
        check(made, header)
        return header, records(made, header)
    except CodecError as error:
        return str(error)


def rows(found: list[Decoded]) -> list[Row]:
    out: list[Row] = []
    for each in found:
        each.records.validate(full=True)
        names = ("offset", "timestamp_ms", "key", "value")
        out += zip(*(each.records.column(name).to_pylist() for name in names), strict=True)
    return out


def read(data: bytes, **options: Any) -> list[Decoded]:
    return list(blocks(data, segment_base=0, **options))


__all__ = ["DATA", "HEADER_SIZE", "Row", "batch", "emptied", "log", "plain", "read", "rows", "sealed"]
