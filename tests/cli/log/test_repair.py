"""`konvene log repair`: reports the loss, truncates only with --execute, and keeps the removed bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, call

from konvene.codec.batches import build_simple, records
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import DamagedLog
from konvene.log.inspect import repair as repairing
from konvene.log.inspect.dump import find
from konvene.log.inspect.repair import plan

NOW = 1_760_000_000_000
IDENTITY = Identity("clusterA", 1, "dirA")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
SIZE = len(build_simple([(None, b"value 0")], NOW))


def make_logs(
    path: Path | str, disk: MemoryDisk | None = None, *, clean: bool = False, count: int = 9
) -> None:
    """Write two partitions of several segments with four batches each."""
    directory = LogDirectory.open(disk or RealDisk(), str(path), IDENTITY)
    for log in directory.create([T0, T1], CONFIG, NOW):
        for number in range(count):
            log.append_built([(None, b"value %d" % number)], 0, NOW)
        log.sync()
    if not clean:
        directory.checkpoint()
    directory.close(clean=clean)


def flip_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def segment(base: int) -> str:
    return f"{base:020d}.log"


def repair(path: Path, *args: str) -> CommandResult:
    return call(None, "log", "repair", str(path), *args)


def recover_values(path: Path | str, disk: MemoryDisk | None = None) -> list[bytes | None]:
    """Open t-0 as a broker does, return its values, and append one more record."""
    directory = LogDirectory.open(disk or RealDisk(), str(path), IDENTITY)
    try:
        log = directory.load(T0, CONFIG, NOW)
    except DamagedLog:
        directory.close(clean=False)
        raise
    recovered = [record.value for header, view in log.batches_from() for record in records(view, header)]
    log.append_built([(None, b"more")], 0, NOW)
    log.sync()
    directory.load(T1, CONFIG, NOW)
    directory.close()
    return recovered


def test_a_sound_directory_is_left_alone(tmp_path: Path) -> None:
    make_logs(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for args in ((), ("--dry-run",), ("--execute",)):
        result = repair(tmp_path, *args)
        assert (result.code, result.out, result.err) == (0, "", "Nothing to repair.\n")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("clean", [False, True])
def test_repair_reports_the_loss_and_truncates_with_execute(tmp_path: Path, clean: bool) -> None:
    """The report has position, offsets and later sound batches. Without --execute nothing changes; with it
    no byte is lost.
    """
    make_logs(tmp_path, clean=clean)
    folder = tmp_path / "t-0"
    flip_bit(folder / segment(0), SIZE + 70)
    original = b"".join((folder / segment(base)).read_bytes() for base in (0, 4, 8))
    before = sorted(path.name for path in folder.iterdir())
    result = repair(tmp_path, "--json")
    assert result.code == 1
    (report,) = result.json["repairs"]
    assert result.json["executed"] is False
    assert "checksum" in report.pop("why")
    assert report == {
        "topic": "t", "partition": 0, "path": str(folder), "file": segment(0), "position": SIZE,
        "end_offset": 1, "first_lost_offset": 1, "last_lost_offset": 8, "lost_bytes": 8 * SIZE,
        "sound_batches": 7, "sound_records": 7, "later_segments": [segment(4), segment(8)], "kept_in": [],
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == before
    executed = repair(folder, "--execute")
    assert executed.code == 0
    assert executed.lines[1] == ["t-0", "1", "1..8", str(8 * SIZE), "7", "7"]
    cut_files = [f"{base:020d}.cut" for base in (1, 4, 8)]
    assert f"kept in {', '.join(cut_files)}" in executed.out
    assert (folder / segment(0)).read_bytes() + b"".join(
        (folder / n).read_bytes() for n in cut_files
    ) == original
    assert recover_values(tmp_path) == [b"value 0"]
    assert repair(tmp_path).code == 0
    assert call(None, "log", "verify", str(tmp_path)).code == 0


def test_removed_batches_can_be_dumped(tmp_path: Path) -> None:
    """`log dump` skips the damaged batch and shows the sound ones after it."""
    make_logs(tmp_path)
    flip_bit(tmp_path / "t-0" / segment(0), SIZE + 70)
    repair(tmp_path, "--execute")
    result = call(None, "log", "dump", str(tmp_path / "t-0" / f"{1:020d}.cut"))
    assert result.code == 1
    assert "value 1" not in result.out
    assert "value 2" in result.out
    assert "value 3" in result.out


def test_recovery_point_beyond_the_log_end_is_lowered(tmp_path: Path) -> None:
    """Nothing is truncated: the recovery point is lowered and the lost offsets are reported."""
    make_logs(tmp_path)
    folder = tmp_path / "t-0"
    (folder / segment(8)).unlink()
    path = folder / segment(4)
    path.write_bytes(path.read_bytes()[: 3 * SIZE])
    with pytest.raises(DamagedLog):
        recover_values(tmp_path)
    result = repair(tmp_path, "--execute", "--json")
    (report,) = result.json["repairs"]
    assert (report["first_lost_offset"], report["last_lost_offset"], report["lost_bytes"]) == (7, 8, 0)
    assert report["why"] == "the log ends at offset 7, but 9 was durable"
    assert recover_values(tmp_path) == [b"value %d" % number for number in range(7)]


def test_gap_after_the_recovery_point_is_truncated(tmp_path: Path) -> None:
    """Below the recovery point a gap can be the result of compaction; after it, it is a loss and is
    truncated.
    """
    make_logs(tmp_path)
    folder = tmp_path / "t-0"
    (folder / segment(4)).unlink()
    assert repair(tmp_path).code == 0
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 3\nt 1 9\n")
    result = repair(tmp_path, "--execute")
    assert f"{segment(8)} begins where offset 4 was due" in result.out
    assert recover_values(tmp_path) == [b"value %d" % number for number in range(4)]
    assert (folder / f"{8:020d}.cut").exists()


def test_second_repair_keeps_earlier_cut_files(tmp_path: Path) -> None:
    make_logs(tmp_path, count=3)
    folder = tmp_path / "t-0"
    for name in (f"{1:020d}.cut", f"{1:020d}-1.cut"):
        flip_bit(folder / segment(0), SIZE + 70)
        assert name in repair(tmp_path, "--execute").out
        recover_values(tmp_path)
        recover_values(tmp_path)
    assert len(list(folder.glob("*.cut"))) == 2


def test_running_broker_prevents_a_repair(tmp_path: Path) -> None:
    """The loss is reported, but --execute is refused until the broker stops."""
    make_logs(tmp_path)
    flip_bit(tmp_path / "t-0" / segment(0), SIZE + 70)
    directory = LogDirectory.open(RealDisk(), str(tmp_path), IDENTITY)
    assert repair(tmp_path).code == 1
    for path in (tmp_path, tmp_path / "t-0"):
        result = repair(path, "--execute")
        assert result.code == 1
        assert "is held by another process" in result.err
        assert "Stop the broker" in result.err
    assert (tmp_path / "t-0" / segment(4)).exists()
    directory.close(clean=False)


def test_partition_folder_without_a_data_directory_is_repaired(tmp_path: Path) -> None:
    """A partition folder outside a data directory is repaired in place."""
    make_logs(tmp_path / "data")
    alone = tmp_path / "alone"
    alone.mkdir()
    (tmp_path / "data" / "t-0").rename(alone / "t-0")
    flip_bit(alone / "t-0" / segment(4), 70)
    assert repair(alone / "t-0", "--execute").lines[1][:3] == ["t-0", "4", "4..8"]
    assert sorted(path.name for path in alone.iterdir()) == ["t-0"]
    assert call(None, "log", "verify", str(alone)).code == 0


def test_contradictory_options_are_usage_errors(tmp_path: Path) -> None:
    make_logs(tmp_path)
    assert repair(tmp_path, "--execute", "--dry-run").code == 2
    (tmp_path / "empty").mkdir()
    assert repair(tmp_path / "empty").code == 2


def test_repair_interrupted_by_a_power_cut_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a power cut at each operation: every byte is in the log or in a cut file, and a second repair
    gives the same log.
    """
    monkeypatch.setattr(repairing, "CHUNK_BYTES", 100)
    finished = False
    for operation in range(1, 100):
        disk = MemoryDisk()
        make_logs("/d", disk)
        damaged = disk._inode(f"/d/t-0/{segment(0)}")
        damaged.data[SIZE + 70] ^= 1
        damaged.durable[SIZE + 70] ^= 1
        (folder, _) = find(disk, "/d")
        repair_plan = plan(disk, folder, 9)
        disk.cut_power_at = disk.calls + operation
        try:
            repairing.repair(disk, repair_plan)
            finished = True
        except PowerCut:
            pass
        for choose in (lambda _count: 0, lambda count: count - 1):
            crashed = disk.crash(choose)
            all_bytes = b"".join(
                crashed.read(f"/d/t-0/{name}")
                for name in crashed.listdir("/d/t-0")
                if name.endswith((".log", ".cut"))
            )
            assert all(all_bytes.count(b"value %d" % number) >= 1 for number in (0, 2, 3, 4, 5, 6, 7, 8))
            (folder, _) = find(crashed, "/d")
            second_plan = plan(crashed, folder, 9 if not finished else 1)
            if second_plan.is_needed:
                repairing.repair(crashed, second_plan)
            assert recover_values("/d", crashed) == [b"value 0"]
        if finished:
            break
    assert finished
