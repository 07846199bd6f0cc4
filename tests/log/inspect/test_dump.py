"""Reading the files of a log as they are: what is found, walked and listed; and that nothing is changed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from konvene.codec.batches import build_simple, records
from konvene.log.config import LogConfig
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk
from konvene.log.disk.read_only import ReadOnlyDisk
from konvene.log.inspect.dump import Batch, Damage, Folder, NotALog, find, first_position, listing, walk
from konvene.log.opening import open_log
from konvene.log.segment import CHUNK_BYTES

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
NOW = 1_760_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
PLACE = "/d/t-0"
FIRST = f"{PLACE}/00000000000000000000.log"


def written(*values: bytes, config: LogConfig = CONFIG) -> MemoryDisk:
    """A log that was closed properly, with a batch for each value."""
    disk = MemoryDisk()
    log, _ = open_log(disk, PLACE, config, clean=True, now_ms=NOW)
    for at, value in enumerate(values):
        log.append_built([(b"k", value)], 0, NOW + at)
    log.sync()
    log.close()
    return disk


def replaced(disk: MemoryDisk, data: bytes, path: str = FIRST) -> MemoryDisk:
    twin = disk.copy()
    file = twin.open(path, create=True)
    file.truncate(0)
    file.append(data)
    return twin


def parts(disk: MemoryDisk, base_offset: int = 0, position: int = 0) -> list[Batch | Damage]:
    """What a walk finds, each batch without its view."""
    file = disk.open(FIRST)
    return [
        part._replace(view=memoryview(b"")) if isinstance(part, Batch) else part
        for part in walk(file, file.size(), base_offset, position)
    ]


# finding ------------------------------------------------------------------------------------------


def test_a_path_is_a_segment_a_partition_or_a_directory_of_partitions() -> None:
    disk = written(*[b"x" * 100] * 8)
    logs = tuple(name for name in disk.listdir(PLACE) if name.endswith(".log"))
    assert len(logs) > 1
    whole = Folder("t", 0, PLACE, logs)
    assert find(disk, FIRST) == [whole._replace(logs=logs[:1])]
    assert find(disk, PLACE) == find(disk, PLACE + "/") == find(disk, "/d") == [whole]
    assert str(whole) == "t-0"


def test_a_folder_that_is_going_away_still_names_its_topic() -> None:
    disk = written(b"a")
    disk.rename(PLACE, "/d/t-0.0123456789abcdef-delete")
    (folder,) = find(disk, "/d/t-0.0123456789abcdef-delete")
    assert (folder.topic, folder.partition) == ("t", 0)
    with pytest.raises(NotALog, match="neither a partition's folder"):
        find(disk, "/d")


def test_what_is_no_log_is_refused_in_words() -> None:
    disk = written(b"a")
    replaced(disk, b"", "/d/notes.txt")
    with pytest.raises(NotALog, match="20 digits"):
        find(replaced(disk, b"", "/d/notes.txt"), "/d/notes.txt")
    with pytest.raises(FileNotFoundError):
        find(disk, "/nowhere")


# walking ------------------------------------------------------------------------------------------


def test_every_batch_is_found_at_its_place() -> None:
    disk = written(b"one", b"two")
    first, second = parts(disk)
    assert isinstance(first, Batch) and isinstance(second, Batch)
    assert (first.header.base_offset, first.position) == (0, 0)
    assert (second.header.base_offset, second.position) == (1, first.header.size)
    assert parts(disk, position=second.position) == [second]


def test_a_batch_larger_than_what_is_read_at_once() -> None:
    disk = MemoryDisk()
    disk.mkdir(PLACE)
    large = build_simple([(None, b"x" * (CHUNK_BYTES + 10))], NOW, base_offset=1)
    small = [build_simple([(None, b"s")], NOW, base_offset=offset) for offset in (0, 2)]
    disk = replaced(disk, small[0] + large + small[1])
    file = disk.open(FIRST)
    values = [
        record.value
        for part in walk(file, file.size(), 0)
        if isinstance(part, Batch)
        for record in records(part.view, part.header)
    ]
    assert [len(value or b"") for value in values] == [1, CHUNK_BYTES + 10, 1]


def test_damage_is_reported_and_skipped() -> None:
    """The middle of three batches is flipped: the dump reports that and continues with the third."""
    disk = written(b"one", b"two", b"three")
    starts = [part.position for part in parts(disk)]
    data = bytearray(disk.read(FIRST))
    data[starts[1] + 65] ^= 1
    first, damage, third = parts(replaced(disk, bytes(data)))
    assert isinstance(first, Batch) and isinstance(third, Batch)
    assert damage == Damage(starts[1], 1, "the checksum of the batch at offset 1 does not hold", starts[2])
    assert (third.header.base_offset, third.position) == (2, starts[2])


@pytest.mark.parametrize(
    "tail, why",
    [
        (b"\1" * 10, "10 bytes are fewer than the 61 of a batch header"),
        (bytes(300), "nothing but zeros in the last 300 bytes"),
        (build_simple([(None, b"cut")], NOW, base_offset=1)[:-1], "a batch of"),
        (b"\0" * 16 + b"\1" + b"\0" * 60 + b"x", "magic 1"),
    ],
)
def test_a_tail_that_is_no_batch(tail: bytes, why: str) -> None:
    disk = written(b"one")
    end = len(disk.read(FIRST))
    _, damage = parts(replaced(disk, disk.read(FIRST) + tail))
    assert isinstance(damage, Damage)
    assert damage._replace(why="") == Damage(end, 1, "", None)
    assert why in damage.why


def test_reading_begins_near_an_offset_by_a_good_index_only() -> None:
    disk = written(*[b"x" * 60] * 20, config=LogConfig(index_interval_bytes=200))
    size = disk.size(FIRST)
    starts = [part.position for part in parts(disk)]
    found = first_position(disk, FIRST, 0, size, 15)
    assert 0 < found <= starts[15] and found in starts
    index = FIRST.replace(".log", ".index")
    wrong = bytearray(disk.read(index))
    wrong[7] ^= 3
    assert first_position(replaced(disk, bytes(wrong), index), FIRST, 0, size, 2**31) in (0, *starts)
    disk.remove(index)
    assert first_position(disk, FIRST, 0, size, 15) == 0


# listing ------------------------------------------------------------------------------------------


def test_kafkas_index_files_as_rows() -> None:
    folder = LOGS / "classic" / "__consumer_offsets-1"
    stem = f"{folder}/{0:020d}"
    index = listing(RealDisk(), stem + ".index")
    times = listing(RealDisk(), stem + ".timeindex")
    epochs = listing(RealDisk(), f"{folder}/leader-epoch-checkpoint")
    assert index is not None and times is not None and epochs is not None
    assert (index.columns, index.fault) == (("offset", "position"), None)
    assert times.rows[-1] == (1795227521539, 119)
    assert epochs == (("leader_epoch", "start_offset"), [(0, 0)], None)
    assert listing(RealDisk(), stem + ".log") is None


def test_a_preallocated_index_ends_where_its_zeros_begin() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    path = "/d/00000000000000000100.index"
    disk = replaced(disk, bytes.fromhex("0000000500000010") + bytes(80), path)
    assert listing(disk, path) == (("offset", "position"), [(105, 16)], None)
    assert listing(replaced(disk, bytes(80), path), path) == (("offset", "position"), [], None)


@pytest.mark.parametrize(
    "name, data",
    [
        (".index", b"123"),
        (".timeindex", b"\0" * 7 + b"\1" + b"\xff" * 4),
        (".txnindex", b"123"),
        (".snapshot", b"123"),
        ("leader-epoch-checkpoint", b"9\n"),
    ],
)
def test_a_damaged_small_file_is_reported(name: str, data: bytes) -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    path = f"/d/{0:020d}{name}" if name.startswith(".") else f"/d/{name}"
    rows = listing(replaced(disk, data, path), path)
    assert rows is not None and rows.fault


# only looking -------------------------------------------------------------------------------------


def test_a_read_only_disk_reads_and_refuses_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    path.chmod(0o444)
    disk = ReadOnlyDisk()
    file = disk.open(str(path))
    assert (file.pread(4, 3), file.pread(20, 8), file.size()) == (b"3456", b"89", 10)
    refused = (
        lambda: disk.open(str(path), create=True),
        lambda: disk.mkdir("a"),
        lambda: disk.rmdir("a"),
        lambda: disk.rename("a", "b"),
        lambda: disk.remove(str(path)),
        lambda: disk.sync_directory("a"),
        lambda: disk.lock("a"),
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        file.sync,
    )
    for attempt in refused:
        with pytest.raises(OSError) as error:
            attempt()
        assert error.value.errno == errno.EROFS
    file.close()
    assert repr(file).endswith("file closed, read-only>")
    assert path.read_bytes() == b"0123456789"
