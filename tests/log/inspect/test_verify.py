"""The verdict on a log: what a broker's start would do about it, where it is; and nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from konvene.codec import batches as rb
from konvene.log.config import LogConfig
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.errors import DamagedLog
from konvene.log.inspect.dump import find
from konvene.log.inspect.verify import Finding, Verification, verify
from konvene.log.opening import open_log
from konvene.log.producers import AbortedTransaction, write_aborted

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
NOW = 1_760_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
PLACE = "/d/t-0"
FIRST = f"{PLACE}/00000000000000000000.log"


def written(count: int = 3, *, config: LogConfig = LogConfig(), epochs: int = 1) -> MemoryDisk:  # noqa: B008
    disk = MemoryDisk()
    log, _ = open_log(disk, PLACE, config, clean=True, now_ms=NOW)
    for at in range(count):
        log.append_built([(b"k", b"value %d" % at)], at * epochs // count, NOW + at)
    log.sync()
    log.close()
    return disk


def with_file(disk: MemoryDisk, data: bytes, path: str = FIRST) -> MemoryDisk:
    twin = disk.copy()
    file = twin.open(path, create=True)
    file.truncate(0)
    file.append(data)
    return twin


def checked(disk: MemoryDisk, path: str = PLACE, *, durable: int | None = None) -> Verification:
    (folder,) = find(disk, path)
    return verify(disk, folder, durable=durable)


def kinds(disk: MemoryDisk) -> list[str]:
    return [finding.kind for finding in checked(disk).findings]


def starts(disk: MemoryDisk) -> list[int]:
    found, at = [], 0
    for header, view in rb.batches(disk.read(FIRST)):
        assert header.size == len(view)
        found.append(at)
        at += header.size
    return found


# sound --------------------------------------------------------------------------------------------


def test_logs_of_kafka_are_sound() -> None:
    """Every folder that Apache Kafka left, with its own indexes and checkpoints where there are some."""
    disk = RealDisk()
    for folder in [each for story in sorted(LOGS.iterdir()) for each in find(disk, str(story))]:
        verdict = verify(disk, folder)
        assert verdict.findings == (), str(folder)
        assert verdict.is_sound and verdict.records == verdict.next_offset


def test_a_log_of_ours_is_sound_and_counted() -> None:
    bytes_read: list[int] = []
    disk = written(20, config=SMALL, epochs=3)
    (folder,) = find(disk, PLACE)
    verdict = verify(disk, folder, on_read=bytes_read.append)
    assert verdict.findings == ()
    assert (verdict.segments, verdict.batches, verdict.records) == (len(folder.logs), 20, 20)
    assert (verdict.first_offset, verdict.next_offset) == (0, 20)
    assert sum(bytes_read) == verdict.bytes == sum(disk.size(f"{PLACE}/{name}") for name in folder.logs)


def test_an_empty_log_is_sound() -> None:
    assert checked(written(0)).is_sound


# damaged ------------------------------------------------------------------------------------------


def test_what_a_start_would_cut_is_a_torn_tail() -> None:
    """If the file ends within the last batch, the bytes that recovery would cut are reported, not cut."""
    disk = written()
    disk.remove(FIRST.replace(".log", ".timeindex"))
    data, (_, _, last) = disk.read(FIRST), starts(disk)
    for end in range(last + 1, len(data)):
        torn = with_file(disk, data[:end])
        (finding,) = checked(torn).findings
        assert (finding.kind, finding.path, finding.position, finding.offset) == ("torn-tail", FIRST, last, 2)
        assert torn.read(FIRST) == data[:end]
        _, recovered = open_log(torn, PLACE, SMALL, clean=False, now_ms=NOW)
        assert (recovered.cut_bytes, recovered.cut_at_offset) == (end - last, finding.offset)


def test_what_a_start_would_refuse_is_damage() -> None:
    """Each byte before a sound batch is flipped: where recovery refuses, so do we, and name the byte."""
    disk = written()
    data, (_, second, third) = disk.read(FIRST), starts(disk)
    refused = 0
    for at in range(second, third):
        flipped = bytearray(data)
        flipped[at] ^= 0x41
        damaged = with_file(disk, bytes(flipped))
        verdict = checked(damaged)
        try:
            open_log(damaged.copy(), PLACE, SMALL, clean=False, now_ms=NOW)
        except DamagedLog as error:
            refused += 1
            finding = verdict.findings[0]
            assert (finding.path, finding.position) == (error.path, error.position)
            if finding.kind != "order":
                assert (finding.kind, finding.offset) == ("damage", 1)
                assert f"a sound batch follows at byte {third}" in finding.message
        else:
            # Offset and leader epoch, which no checksum covers.
            assert at - second in (*range(8), *range(12, 16))
            assert {each.kind for each in verdict.findings} <= {"order", "epochs", "note"}
    assert refused > 50


def test_a_torn_segment_before_a_sound_one_is_damage() -> None:
    disk = written(20, config=SMALL)
    damaged = with_file(disk, disk.read(FIRST)[:-3])
    (finding, *_) = checked(damaged).findings
    assert finding.kind == "damage"
    assert "sound batches follow in 0000" in finding.message


def test_damage_that_no_checksum_covers() -> None:
    """Base offsets and leader epochs stand outside it: increasing order and the checkpoint reveal damage."""
    disk = written(epochs=1)
    data, (_, second, _) = bytearray(disk.read(FIRST)), starts(disk)
    epoch = data.copy()
    epoch[second + 12 : second + 16] = (7).to_bytes(4, "big")
    verdict = checked(with_file(disk, bytes(epoch)))
    assert [(f.kind, f.position, f.offset) for f in verdict.findings] == [
        ("note", second, 1),  # Newer than the checkpoint, which a crash can leave.
        ("epochs", starts(disk)[2], 2),  # And the next one falls back.
    ]
    offset = data.copy()
    offset[second : second + 8] = (0).to_bytes(8, "big")
    (finding,) = checked(with_file(disk, bytes(offset))).findings
    assert finding == Finding("order", FIRST, second, 1, "offset 0 where at least 1 was due")
    offset[second : second + 8] = (1 << 40).to_bytes(8, "big")
    assert kinds(with_file(disk, bytes(offset))) == ["order", "order"]


def test_a_batch_whose_records_cannot_be_read() -> None:
    """A valid checksum over invalid records is reported, unless only batches are verified."""
    disk = written(1)
    batch = bytearray(disk.read(FIRST))
    batch[61] = 0x7F
    batch[17:21] = rb.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    broken = with_file(disk, bytes(batch))
    assert kinds(broken) == ["records"]
    (folder,) = find(broken, PLACE)
    assert verify(broken, folder, with_records=False).is_sound


def test_a_log_that_ends_before_what_was_durable() -> None:
    assert checked(written(3), durable=3).is_sound
    (finding,) = checked(written(3), durable=4).findings
    assert (finding.kind, finding.offset) == ("order", 3)
    assert finding.message == "the log ends at offset 3, but 4 was durable"


def test_segments_that_overlap_and_segments_with_nothing_between() -> None:
    disk = written(20, config=SMALL)
    second = find(disk, PLACE)[0].logs[1]
    gap = disk.copy()
    gap.remove(f"{PLACE}/{second}")
    assert kinds(gap) == ["note"]
    base = int(second[:20])
    early = disk.copy()
    early.rename(f"{PLACE}/{second}", f"{PLACE}/{base - 1:020d}.log")
    assert "order" in kinds(early)


# the files beside ---------------------------------------------------------------------------------


def test_each_flipped_byte_of_an_offset_index_is_detected_or_harmless() -> None:
    """An entry that still leads to or before what is looked for is as good as the one that was written."""
    disk = written(30, config=LogConfig(index_interval_bytes=200))
    path = FIRST.replace(".log", ".index")
    data, positions = disk.read(path), starts(disk)
    assert len(data) >= 40
    detected = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        verdict = checked(with_file(disk, bytes(flipped), path))
        detected += not verdict.is_sound
        if verdict.is_sound:
            entry = bytes(flipped)[at // 8 * 8 :][:8]
            offset, position = int.from_bytes(entry[:4], "big"), int.from_bytes(entry[4:], "big")
            assert position in positions and offset >= positions.index(position)
        else:
            assert [(f.kind, f.path) for f in verdict.findings] == [("index", path)]
    assert detected > len(data) * 0.9


def test_each_flipped_byte_of_a_time_index_is_detected() -> None:
    disk = written(30, config=LogConfig(index_interval_bytes=200))
    path = FIRST.replace(".log", ".timeindex")
    data = disk.read(path)
    assert len(data) >= 36
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        found = checked(with_file(disk, bytes(flipped), path)).findings
        assert [(f.kind, f.path) for f in found] == [("index", path)], at


def test_an_index_of_another_length_a_snapshot_a_checkpoint() -> None:
    disk = written(3, epochs=2)
    snapshot = f"{PLACE}/00000000000000000003.snapshot"
    for path in (FIRST.replace(".log", ".index"), snapshot):
        assert kinds(with_file(disk, b"123", path)) == ["index"], path
    checkpoint = f"{PLACE}/leader-epoch-checkpoint"
    assert disk.read(checkpoint) == b"0\n2\n0 0\n1 2\n"
    for wrong in (b"0\n9\n0 0\n", b"0\n2\n1 2\n0 0\n", b"0\n2\n0 0\n1 1\n"):
        assert kinds(with_file(disk, wrong, checkpoint)) == ["epochs"], wrong
    assert kinds(with_file(disk, b"0\n1\n0 0\n", checkpoint)) == ["note"]


def test_an_index_that_is_missing_is_worth_a_note_in_an_old_segment_only() -> None:
    disk = written(20, config=SMALL)
    logs = find(disk, PLACE)[0].logs
    for name in logs:
        disk.remove(f"{PLACE}/{name.replace('.log', '.index')}")
    verdict = checked(disk)
    assert verdict.is_sound
    assert [f.path[-26:] for f in verdict.findings] == [name.replace(".log", ".index") for name in logs[:-1]]


def test_files_as_kafka_makes_them_before_it_fills_them() -> None:
    """An index is ten megabytes of zeros, a checkpoint is empty: neither disagrees with anything."""
    for disk in (written(0), written(3)):
        for suffix in (".index", ".timeindex"):
            disk = with_file(disk, bytes(1200), FIRST.replace(".log", suffix))
        disk = with_file(disk, b"", f"{PLACE}/leader-epoch-checkpoint")
        assert checked(disk).findings == ()


def test_what_else_lies_there_is_noted_once_for_each_kind() -> None:
    disk = written(1)
    for name in ("0.log.swap", "0.log.deleted", "0.index.deleted"):
        disk = with_file(disk, b"", f"{PLACE}/{name}")
    verdict = checked(disk)
    assert verdict.is_sound
    assert [(f.kind, f.path) for f in verdict.findings] == [
        ("note", f"{PLACE}/0.index.deleted"), ("note", f"{PLACE}/0.log.swap"),
    ]  # fmt: skip
    assert verdict.findings[0].message.endswith("(and 1 more of this kind)")


def test_an_aborted_transaction_ends_at_its_marker() -> None:
    """Kafka's transactions: an index that names the abort marker is sound, any other is reported."""
    disk = MemoryDisk()
    disk.mkdir(PLACE)
    source = LOGS / "transactions" / "__consumer_offsets-0" / "00000000000000000000.log"
    disk = with_file(disk, source.read_bytes())
    markers = [
        (header.base_offset, header.producer_id)
        for header, view in rb.batches(disk.read(FIRST))
        if header.is_control and rb.control_type(rb.records(view, header)[0]) is rb.ControlType.ABORT
    ]
    assert markers
    offset, producer_id = markers[0]
    path = FIRST.replace(".log", ".txnindex")
    good = AbortedTransaction(producer_id, offset - 1, offset, offset)
    assert kinds(with_file(disk, write_aborted([good]), path)) == []
    for bad in (
        good._replace(producer_id=99),
        good._replace(first_offset=offset + 1),
        good._replace(first_offset=0, last_offset=offset - 1),
        good._replace(last_offset=10_000),
    ):
        assert kinds(with_file(disk, write_aborted([bad]), path)) == ["index"], bad


def test_a_finding_as_a_sentence() -> None:
    found = Finding("damage", "/d/t-0/0.log", 5, 7, "why")
    assert str(found) == "damage: 0.log, byte 5, offset 7: why"
    assert str(Finding("note", "/d/x.swap", None, None, "left over")) == "note: x.swap: left over"
    assert found.is_damage and not found._replace(kind="note").is_damage


@pytest.mark.parametrize("at", range(0, 78, 7))
def test_damage_never_raises(at: int) -> None:
    """Whatever a byte becomes, there is a verdict."""
    disk = written(2)
    data = bytearray(disk.read(FIRST))
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        data[at] = byte
        checked(with_file(disk, bytes(data)))
