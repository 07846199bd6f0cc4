"""The table `record` has the records of users' topics as the broker's own decoder reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests import depth
from tests.pipeline.codec import made

from konvene.codec.batches import Record, batches, build, end_marker, records
from konvene.codec.compression import Compression
from konvene.pipeline.codec.bronze import blocks
from konvene.pipeline.codec.user_records import user_records, without_control
from konvene.pipeline.sources.decode import reading
from konvene.pipeline.sources.plan import Files
from konvene.pipeline.tables.record import RECORD

Row = dict[str, Any]


def decoded(data: bytes) -> list[Row]:
    """Return the rows of a log's bytes, one record at a time."""
    rows = []
    for header, batch in batches(data):
        for record in () if header.is_control else records(batch, header):
            rows.append(
                {
                    "offset": record.offset, "timestamp_ms": record.timestamp,
                    "timestamp_type": header.timestamp_type.label, "key": record.key,
                    "value": record.value,
                    "headers": [{"key": key, "value": value} for key, value in record.headers],
                    "leader_epoch": header.partition_leader_epoch, "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch, "is_transactional": header.is_transactional,
                }
            )  # fmt: skip
    return rows


def read(*paths: Path, committed: bool = False, task_bytes: int = 1 << 20) -> list[Row]:
    """Return the rows that the tasks of a batch query read."""
    how, source = reading("record", committed=committed), Files(tuple(map(str, paths)), "", task_bytes)
    ends = {of: place.next for of, place in source.places(how.wanted).items()}
    parts = source.slices(how.wanted, {}, ends)
    return [row for part in parts for batch in how.batches(part) for row in batch.to_pylist()]


@settings(max_examples=depth.examples(60), deadline=None)
@given(made.log())
def test_rows_match_the_brokers_decoder(log: list[bytes]) -> None:
    """With headers, gaps, log-append times and every codec."""
    data = b"".join(log)
    rows = []
    for found in blocks(data):
        batch = user_records(without_control(found.rows("c", "orders", 3)))
        batch.validate(full=True)
        assert batch.schema == RECORD.schema
        rows += batch.to_pylist()
    where = {"cluster": "c", "topic": "orders", "partition": 3}
    assert rows == [where | row for row in decoded(data)]


def test_requested_columns_only() -> None:
    (found,) = blocks(build([Record(5, 7, b"k", b"v", (("h", None),))]))
    some = user_records(found.rows("", "orders", 0), ["headers", "offset"])
    assert some.to_pylist() == [{"headers": [{"key": "h", "value": None}], "offset": 5}]


class Log:
    """A log with transactions: `write` appends a batch, `end` a marker, `roll` begins a segment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.next = 0
        folder.mkdir(parents=True)
        self.roll()

    def roll(self) -> None:
        self.path = self.folder / f"{self.next:020}.log"

    def append(self, batch: Callable[[int], bytes]) -> None:
        with self.path.open("ab") as file:
            file.write(batch(self.next))
        self.next += 1

    def write(self, value: bytes, producer: int = -1, **options: Any) -> None:
        self.append(
            lambda at: build(
                [Record(at, 1000 + at, None, value)], producer_id=producer, producer_epoch=min(producer, 0),
                base_sequence=min(producer, 0), transactional=producer >= 0, **options,
            )
        )  # fmt: skip

    def end(self, producer: int, *, committed: bool) -> None:
        self.append(
            lambda at: end_marker(
                committed, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=at,
                base_offset=at,
            )
        )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log of two segments: committed, aborted and unfinished transactions, some of which span them."""
    log = Log(tmp_path / "orders-0")
    log.write(b"plain")
    log.write(b"committed", 7)
    log.write(b"aborted", 8)
    log.end(7, committed=True)
    log.write(b"aborted later", 7, compression=Compression.ZSTD)
    log.end(8, committed=False)
    log.write(b"committed later", 8)
    log.roll()
    log.write(b"more of it", 8)
    log.end(8, committed=True)
    log.end(7, committed=False)
    log.write(b"unfinished", 9)
    log.write(b"plain")
    return log


def values(rows: list[Row]) -> Iterator[bytes]:
    return (row["value"] for row in rows)


@pytest.mark.parametrize("task_bytes", [1, 1 << 20])
def test_read_committed_omits_aborted_and_unfinished_transactions(log: Log, task_bytes: int) -> None:
    """Also if a transaction ends in another task's part, or in another segment."""
    assert list(values(read(log.folder, committed=True, task_bytes=task_bytes))) == [
        b"plain", b"committed", b"committed later", b"more of it", b"plain",
    ]  # fmt: skip


def test_read_uncommitted_omits_control_records_only(log: Log) -> None:
    found = read(log.folder)
    assert [row["offset"] for row in found] == [0, 1, 2, 4, 6, 7, 10, 11]
    assert [row["is_transactional"] for row in found] == [row["value"] != b"plain" for row in found]
    files = sorted(log.folder.glob("*.log"))
    assert [row | {"cluster": "", "topic": "orders", "partition": 0} for row in found] == [
        {"cluster": "", "topic": "orders", "partition": 0} | row
        for path in files
        for row in decoded(path.read_bytes())
    ]


def test_only_the_table_record_can_be_read_committed() -> None:
    with pytest.raises(ValueError, match="read_committed is an isolation level of the table record"):
        reading("offset_commit", committed=True)
