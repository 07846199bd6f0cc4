"""`konvene log repair`: says what would be lost, cuts only when told to, and keeps what it cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import Said, call

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
ME = Identity("clusterA", 1, "dirA")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
SIZE = len(build_simple([(None, b"value 0")], NOW))


def make(path: Path | str, disk: MemoryDisk | None = None, *, clean: bool = False, count: int = 9) -> None:
    """Two partitions of several segments each, four batches in one."""
    directory = LogDirectory.open(disk or RealDisk(), str(path), ME)
    for log in directory.create([T0, T1], CONFIG, NOW):
        for at in range(count):
            log.append_built([(None, b"value %d" % at)], 0, NOW)
        log.sync()
    if not clean:
        directory.checkpoint()
    directory.close(clean=clean)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def segment(base: int) -> str:
    return f"{base:020d}.log"


def repair(path: Path, *words: str) -> Said:
    return call(None, "log", "repair", str(path), *words)


def values(path: Path | str, disk: MemoryDisk | None = None) -> list[bytes | None]:
    """What a broker finds in t-0 and goes on from."""
    directory = LogDirectory.open(disk or RealDisk(), str(path), ME)
    try:
        log = directory.load(T0, CONFIG, NOW)
    except DamagedLog:
        directory.close(clean=False)
        raise
    found = [entry.value for header, view in log.batches_from() for entry in records(view, header)]
    log.append_built([(None, b"more")], 0, NOW)
    log.sync()
    directory.load(T1, CONFIG, NOW)
    directory.close()
    return found


def test_a_sound_directory_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for words in ((), ("--dry-run",), ("--execute",)):
        said = repair(tmp_path, *words)
        assert (said.code, said.out, said.err) == (0, "", "Nothing to repair.\n")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("clean", [False, True])
def test_what_would_be_lost_is_said_and_only_then_done(tmp_path: Path, clean: bool) -> None:
    """The place, the offsets, what is sound behind it; nothing changes without --execute, no byte is lost."""
    make(tmp_path, clean=clean)
    folder = tmp_path / "t-0"
    flip(folder / segment(0), SIZE + 70)
    whole = b"".join((folder / segment(base)).read_bytes() for base in (0, 4, 8))
    before = sorted(path.name for path in folder.iterdir())
    said = repair(tmp_path, "--json")
    assert said.code == 1
    (told,) = said.json["repairs"]
    assert said.json["executed"] is False
    assert "checksum" in told.pop("why")
    assert told == {
        "topic": "t", "partition": 0, "path": str(folder), "file": segment(0), "position": SIZE,
        "end_offset": 1, "first_lost_offset": 1, "last_lost_offset": 8, "lost_bytes": 8 * SIZE,
        "sound_batches": 7, "sound_records": 7, "later_segments": [segment(4), segment(8)], "kept_in": [],
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == before
    done = repair(folder, "--execute")
    assert done.code == 0
    assert done.lines[1] == ["t-0", "1", "1..8", str(8 * SIZE), "7", "7"]
    kept = [f"{base:020d}.cut" for base in (1, 4, 8)]
    assert f"kept in {', '.join(kept)}" in done.out
    assert (folder / segment(0)).read_bytes() + b"".join((folder / n).read_bytes() for n in kept) == whole
    assert values(tmp_path) == [b"value 0"]
    assert repair(tmp_path).code == 0
    assert call(None, "log", "verify", str(tmp_path)).code == 0


def test_what_was_cut_can_still_be_read(tmp_path: Path) -> None:
    """`log dump` passes over the damage and shows the sound batches behind it."""
    make(tmp_path)
    flip(tmp_path / "t-0" / segment(0), SIZE + 70)
    repair(tmp_path, "--execute")
    said = call(None, "log", "dump", str(tmp_path / "t-0" / f"{1:020d}.cut"))
    assert said.code == 1
    assert "value 1" not in said.out
    assert "value 2" in said.out
    assert "value 3" in said.out


def test_a_log_that_ends_too_early_is_told_to_go_on_there(tmp_path: Path) -> None:
    """Nothing to cut: the recovery point is lowered, and the loss is named."""
    make(tmp_path)
    folder = tmp_path / "t-0"
    (folder / segment(8)).unlink()
    path = folder / segment(4)
    path.write_bytes(path.read_bytes()[: 3 * SIZE])
    with pytest.raises(DamagedLog):
        values(tmp_path)
    said = repair(tmp_path, "--execute", "--json")
    (told,) = said.json["repairs"]
    assert (told["first_lost_offset"], told["last_lost_offset"], told["lost_bytes"]) == (7, 8, 0)
    assert told["why"] == "the log ends at offset 7, but 9 was durable"
    assert values(tmp_path) == [b"value %d" % at for at in range(7)]


def test_a_gap_between_segments(tmp_path: Path) -> None:
    """Where records were durable a gap may be compaction's; behind that it is a loss, and cut."""
    make(tmp_path)
    folder = tmp_path / "t-0"
    (folder / segment(4)).unlink()
    assert repair(tmp_path).code == 0
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 3\nt 1 9\n")
    said = repair(tmp_path, "--execute")
    assert f"{segment(8)} begins where offset 4 was due" in said.out
    assert values(tmp_path) == [b"value %d" % at for at in range(4)]
    assert (folder / f"{8:020d}.cut").exists()


def test_a_second_repair_keeps_what_the_first_one_kept(tmp_path: Path) -> None:
    make(tmp_path, count=3)
    folder = tmp_path / "t-0"
    for name in (f"{1:020d}.cut", f"{1:020d}-1.cut"):
        flip(folder / segment(0), SIZE + 70)
        assert name in repair(tmp_path, "--execute").out
        values(tmp_path)
        values(tmp_path)
    assert len(list(folder.glob("*.cut"))) == 2


def test_a_running_broker_keeps_its_files(tmp_path: Path) -> None:
    """What would be lost is said; to do it the broker has to stop, and the command says who it is."""
    make(tmp_path)
    flip(tmp_path / "t-0" / segment(0), SIZE + 70)
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert repair(tmp_path).code == 1
    for place in (tmp_path, tmp_path / "t-0"):
        said = repair(place, "--execute")
        assert said.code == 1
        assert "is held by another process" in said.err
        assert "Stop the broker" in said.err
    assert (tmp_path / "t-0" / segment(4)).exists()
    directory.close(clean=False)


def test_a_folder_that_stands_alone(tmp_path: Path) -> None:
    """A copy without its data directory is repaired as it is."""
    make(tmp_path / "data")
    alone = tmp_path / "alone"
    alone.mkdir()
    (tmp_path / "data" / "t-0").rename(alone / "t-0")
    flip(alone / "t-0" / segment(4), 70)
    assert repair(alone / "t-0", "--execute").lines[1][:3] == ["t-0", "4", "4..8"]
    assert sorted(path.name for path in alone.iterdir()) == ["t-0"]
    assert call(None, "log", "verify", str(alone)).code == 0


def test_words_that_contradict_each_other(tmp_path: Path) -> None:
    make(tmp_path)
    assert repair(tmp_path, "--execute", "--dry-run").code == 2
    (tmp_path / "empty").mkdir()
    assert repair(tmp_path / "empty").code == 2


def test_a_power_cut_during_a_repair_leaves_what_can_be_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any operation: every byte is in the log or kept, and doing it again gives the same log."""
    monkeypatch.setattr(repairing, "CHUNK_BYTES", 100)
    ended = False
    for at in range(1, 100):
        disk = MemoryDisk()
        make("/d", disk)
        damaged = disk._inode(f"/d/t-0/{segment(0)}")
        damaged.data[SIZE + 70] ^= 1
        damaged.durable[SIZE + 70] ^= 1
        (folder, _) = find(disk, "/d")
        planned = plan(disk, folder, 9)
        disk.cut_power_at = disk.calls + at
        try:
            repairing.repair(disk, planned)
            ended = True
        except PowerCut:
            pass
        for choose in (lambda _count: 0, lambda count: count - 1):
            after = disk.crash(choose)
            everything = b"".join(
                after.read(f"/d/t-0/{name}")
                for name in after.listdir("/d/t-0")
                if name.endswith((".log", ".cut"))
            )
            assert all(everything.count(b"value %d" % number) >= 1 for number in (0, 2, 3, 4, 5, 6, 7, 8))
            (folder, _) = find(after, "/d")
            again = plan(after, folder, 9 if not ended else 1)
            if again.is_needed:
                repairing.repair(after, again)
            assert values("/d", after) == [b"value 0"]
        if ended:
            break
    assert ended
