"""The messages between a broker and its cleaner process are encoded and decoded without loss."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from konvene.log.cleaner.contract import (
    CleanedSegment,
    CleanerProgress,
    CleanerStats,
    CleaningTask,
    LastProducerRecord,
    SourceSegment,
)
from konvene.log.cleaner.worker import BACKLOG_BYTES, CommandReader, ResultWriter
from konvene.log.cleaner.worker_protocol import (
    CleanerResult,
    Failed,
    MalformedLine,
    Pause,
    decode_command,
    decode_result,
    encode_line,
)
from konvene.log.errors import DamagedLog
from konvene.log.producers import AbortedTransaction

TASK = CleaningTask(
    directory="/d/täglich-0",
    sources=(
        SourceSegment(0, 7, "/d/täglich-0/0.log", 99, 8, 12, 1_700),
        SourceSegment(7, 9, "/d/1.log", 1, 0, 0, 1_800),
    ),
    first_dirty_offset=3,
    first_uncleanable_offset=9,
    high_watermark=11,
    aborted=(AbortedTransaction(4, 1, 5, 6),),
    last_records={4: LastProducerRecord(8, 2), 5: LastProducerRecord(None, 0)},
    now_ms=2**41,
    segment_bytes=1,
    segment_index_bytes=2,
    index_interval_bytes=3,
    max_message_bytes=4,
    delete_retention_ms=2**63 - 1,
    map_bytes=6,
)


@pytest.mark.parametrize("message", [TASK, Pause(17.25)])
def test_commands_round_trip(message: CleaningTask | Pause) -> None:
    """On one line, and equal on the other side."""
    line = encode_line(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_command(line) == message


@pytest.mark.parametrize(
    "message",
    [
        CleanerProgress(1, 2),
        CleanedSegment(0, 9, (0, 7), 33, 1_800),
        CleanerStats(end_offset=9, buffer_utilization=0.5, index_s=0.25),
    ],
)
def test_results_round_trip(message: CleanerResult) -> None:
    decoded = decode_result(encode_line(message))
    assert (decoded, type(decoded)) == (message, type(message))


def test_cleaned_segments_are_reported_once() -> None:
    """A `CleanerStats` has them as well, and they may be many."""
    assert (
        decode_result(encode_line(CleanerStats(segments=[CleanedSegment(0, 9, (0,), 1, 1)])))
        == CleanerStats()
    )


def test_failures_are_raised_on_the_receiving_side() -> None:
    """With all that decides what becomes of them."""
    with pytest.raises(DamagedLog, match="/x is damaged at byte 7: a batch of 3 bytes") as damaged:
        decode_result(encode_line(DamagedLog("/x", 7, "a batch of 3 bytes")))
    assert (damaged.value.path, damaged.value.position) == ("/x", 7)
    with pytest.raises(OSError, match="No space left") as full:
        decode_result(encode_line(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x.cleaned")))
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "/x.cleaned")
    with pytest.raises(Failed, match="ValueError: so it is"):
        decode_result(encode_line(ValueError("so it is")))


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b'["clean"]', b'["pause", 1, 2]', b'["who", 1]', b"\xff"]
)
def test_invalid_lines_are_refused(line: bytes) -> None:
    for read in (decode_command, decode_result):
        with pytest.raises(MalformedLine):
            read(line)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_orders_come_in_pieces(pipe: tuple[int, int]) -> None:
    """And the end of the input is the end of the work."""
    orders = CommandReader(pipe[0])
    assert orders.poll() is None
    line = encode_line(TASK)
    os.write(pipe[1], line[:10])
    assert orders.poll() is None
    os.write(pipe[1], line[10:] + encode_line(Pause(1.0)) + encode_line(Pause(2.0)))
    assert [orders.next(), orders.poll(), orders.next(), orders.poll()] == [
        TASK,
        Pause(1.0),
        Pause(2.0),
        None,
    ]
    assert not orders.ended
    os.close(pipe[1])
    assert orders.next() is None
    assert orders.ended


def test_small_progress_is_reported_with_later_progress(pipe: tuple[int, int]) -> None:
    """No progress is lost, and progress before a cleaned segment or the end is reported before it."""
    writer = ResultWriter(pipe[1])
    writer.send(CleanerProgress(BACKLOG_BYTES // 2, 0))
    writer.send(CleanerProgress(1, BACKLOG_BYTES // 2 - 2))
    writer.send(CleanerProgress(0, 1))
    writer.send(CleanerProgress(5, 6))
    writer.send(CleanedSegment(0, 1, (0,), 1, 1))
    writer.send(CleanerStats(end_offset=1))
    results = [decode_result(line) for line in os.read(pipe[0], 1 << 16).splitlines()]
    half = BACKLOG_BYTES // 2
    assert results == [
        CleanerProgress(half + 1, half - 1),
        CleanerProgress(5, 6),
        CleanedSegment(0, 1, (0,), 1, 1),
        CleanerStats(end_offset=1),
    ]


def test_a_failure_drops_unreported_progress(pipe: tuple[int, int]) -> None:
    """The next task begins with nothing done."""
    writer = ResultWriter(pipe[1])
    writer.send(CleanerProgress(5, 6))
    writer.send(ValueError("no"))
    writer.send(CleanerStats())
    first, second = os.read(pipe[0], 1 << 16).splitlines()
    with pytest.raises(Failed):
        decode_result(first)
    assert decode_result(second) == CleanerStats()
