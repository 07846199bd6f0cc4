"""A log directory: one owner at a time, Kafka's files, partitions that come and go whole."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition, read_checkpoint
from konvene.log.disk.files import RealDisk
from konvene.log.disk.memory import MemoryDisk, PowerCut
from konvene.log.errors import DamagedLog, DirectoryLocked, LogDeleted, LogOffline, WrongDirectory

NOW = 1_760_000_000_000
ME = Identity("clusterA", 1, "dirA")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def config_of(_partition: TopicPartition) -> LogConfig:
    return LogConfig()


def test_its_files_are_kafkas(tmp_path):
    """meta.properties, both checkpoints, the clean mark and the folders have Kafka's names and words."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    first, second = directory.create([T0, T1], LogConfig(), NOW, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    first.append_built([(b"k", b"v")] * 3, 0, NOW)
    second.append_built([(b"k", b"v")], 0, NOW)
    first.delete_records_before(2)
    first.sync()
    directory.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 3\nt 1 0\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    assert (tmp_path / "meta.properties").read_text() == (
        "version=1\ncluster.id=clusterA\nnode.id=1\ndirectory.id=dirA\n"
    )
    assert (tmp_path / "t-0" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )
    assert directory.topic_id(T0) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert repr(directory) == f"LogDirectory({tmp_path}: online, 2 logs, 0 damaged)"


def test_a_clean_close_is_remembered_once(tmp_path):
    """After a close the next start reads nothing again; after a crash it does."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert not directory.clean
    (log,) = directory.create([T0], LogConfig(), NOW)
    log.append_built([(b"k", b"v")] * 3, 0, NOW)
    directory.close()
    again = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert again.clean
    assert again.load_all(config_of, NOW)[T0].end_offset == 3
    assert str(again.recovered[T0]) == "clean"
    again.close(clean=False)
    third = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert not third.clean
    assert third.load(T0, LogConfig(), NOW).end_offset == 3
    third.close()


def test_the_start_of_a_log_survives(tmp_path):
    """Records deleted before a checkpoint stay deleted."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    (log,) = directory.create([T0], LogConfig(), NOW)
    log.append_built([(b"k", b"v")] * 9, 0, NOW)
    log.delete_records_before(4)
    directory.close()
    again = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    assert again.load(T0, LogConfig(), NOW).start_offset == 4
    again.close()


def test_a_second_process_is_refused(tmp_path):
    """Two brokers never share a directory; when the first has stopped, another may use it."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    script = textwrap.dedent(
        f"""
        from konvene.log.directory import Identity, LogDirectory
        from konvene.log.errors import DirectoryLocked
        from konvene.log.disk.files import RealDisk
        try:
            LogDirectory.open(RealDisk(), {str(tmp_path)!r}, Identity("clusterA", 1, "dirA"))
        except DirectoryLocked as refusal:
            raise SystemExit(str(refusal))
        """
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "another process" in run.stderr
    if sys.platform == "linux":
        assert f"another process, {os.getpid()} (" in run.stderr
    with pytest.raises(DirectoryLocked):
        LogDirectory.open(RealDisk(), str(tmp_path), ME)
    directory.close()
    LogDirectory.open(RealDisk(), str(tmp_path), ME).close()


def test_kafkas_kind_of_lock_is_respected(tmp_path):
    """Java locks the file by fcntl, which a flock does not see: a broker of Kafka's keeps us out as well."""
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); input()"
    command = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(DirectoryLocked):
            LogDirectory.open(RealDisk(), str(tmp_path), ME)
        holder.communicate(b"\n")
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    try_java = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    run = subprocess.run([sys.executable, "-c", try_java, str(tmp_path / ".lock")], capture_output=True)
    assert run.returncode == 1
    directory.close()


def test_another_clusters_directory_is_refused(tmp_path):
    """Neither cluster nor node may differ; an empty wish takes what is there."""
    LogDirectory.open(RealDisk(), str(tmp_path), ME).close()
    for other in (Identity("clusterB", 1, ""), Identity("clusterA", 2, "")):
        with pytest.raises(WrongDirectory):
            LogDirectory.open(RealDisk(), str(tmp_path), other)
    directory = LogDirectory.open(RealDisk(), str(tmp_path), Identity("", 1, ""))
    assert directory.identity == ME
    directory.close()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "x" * 250, "ä", "a\n"])
def test_only_legal_names_become_paths(tmp_path, name: str):
    """No topic name leads out of the directory."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    with pytest.raises(ValueError, match="no name"):
        directory.create([TopicPartition(name, 0)], LogConfig(), NOW)
    directory.close()


def test_many_partitions_are_made_at_a_time(tmp_path):
    """Each has its folder and the topic's id; a failure of one fails the request, and is reported."""
    wanted = [TopicPartition("t", number) for number in range(100)]
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    made = directory.create(wanted, LogConfig(), NOW, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    assert [log.directory for log in made] == [str(tmp_path / str(each)) for each in wanted]
    assert {directory.topic_id(each) for each in wanted} == {"AAAAAAAAAAAAAAAAAAAAAQ"}
    more = [TopicPartition("u", number) for number in range(100)]
    (tmp_path / "u-63").write_bytes(b"in the way")
    with pytest.raises(LogOffline):
        directory.create(more, LogConfig(), NOW, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    directory.close()


def test_a_deleted_partition_can_be_created_again():
    """Deleting at any point of a crash leaves the partition complete or deleted; a new one starts at 0."""
    for at in range(1, 60):
        disk = MemoryDisk()
        directory = LogDirectory.open(disk, "/d", ME)
        (log,) = directory.create([T0], LogConfig(), NOW)
        log.append_built([(b"k", b"v")] * 3, 0, NOW)
        log.sync()
        directory.checkpoint()
        disk.cut_power_at = disk.calls + at
        deleted = False
        try:
            directory.delete(T0, "0123abc")
            deleted = True
            (log,) = directory.create([T0], LogConfig(), NOW)
            assert log.end_offset == 0
            disk.cut_power_at = None
        except PowerCut:
            pass
        again = LogDirectory.open(disk.crash(), "/d", ME)
        logs = again.load_all(config_of, NOW)
        assert again.damaged == {}
        if T0 in logs:
            assert logs[T0].end_offset in ((0,) if deleted else (0, 3))
        assert all("delete" not in name for name in again.disk.listdir("/d"))


def test_a_holder_of_a_deleted_log_gets_an_error(tmp_path):
    """Appends, reads and syncs of a deleted partition fail for it alone: the directory stays in use."""
    directory = LogDirectory.open(RealDisk(), str(tmp_path), ME)
    first, second = directory.create([T0, T1], LogConfig(), NOW)
    first.append_built([(b"k", b"v")], 0, NOW)
    directory.delete(T0, "abc")
    for use in (
        lambda: first.append_built([(b"k", b"v")], 0, NOW),
        lambda: first.read(0, 100),
        first.sync,
        lambda: list(first.batches_from()),
    ):
        with pytest.raises(LogDeleted):
            use()
    second.append_built([(b"k", b"v")], 0, NOW)
    assert second.sync() == 1
    assert directory.partitions() == [T1]
    directory.close()


def test_a_damaged_partition_is_offline_alone():
    """The others work, the damage is named, and the mark of a clean close is not set over it."""
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "/d", ME)
    for log in directory.create([T0, T1], LogConfig(), NOW):
        log.append_built([(b"k", b"v")], 0, NOW)
        log.append_built([(b"k", b"v")], 0, NOW)
        log.sync()
    after = disk.crash()
    file = after.open("/d/t-0/00000000000000000000.log")
    data = bytearray(file.pread(1000, 0))
    data[65] ^= 1
    file.truncate(0)
    file.append(data)
    again = LogDirectory.open(after, "/d", ME)
    assert list(again.load_all(config_of, NOW)) == [T1]
    assert isinstance(again.damaged[T0], DamagedLog)
    assert "00000000000000000000.log is damaged at byte 0" in str(again.damaged[T0])
    again.close()
    assert not after.exists("/d/.kafka_cleanshutdown")


def test_a_failed_sync_takes_the_whole_directory_offline():
    """After one failure no log of the directory acknowledges anything, and no clean close is claimed."""
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "/d", ME)
    first, second = directory.create([T0, T1], LogConfig(), NOW)
    first.append_built([(b"k", b"v")], 0, NOW)
    disk.fail[disk.calls + 1] = 5
    with pytest.raises(LogOffline):
        first.sync()
    with pytest.raises(LogOffline):
        second.append_built([(b"k", b"v")], 0, NOW)
    with pytest.raises(LogOffline):
        directory.checkpoint()
    directory.close()
    assert not disk.exists("/d/.kafka_cleanshutdown")


def test_a_truncation_lowers_the_recovery_point_first():
    """A crash right after (or in) a truncation is not mistaken for a loss."""
    for at in range(1, 40):
        disk = MemoryDisk()
        directory = LogDirectory.open(disk, "/d", ME)
        (log,) = directory.create([T0], LogConfig(segment_bytes=300), NOW)
        for _ in range(8):
            log.append_built([(b"k", bytes(60))] * 2, 0, NOW)
        log.sync()
        directory.checkpoint()
        disk.cut_power_at = disk.calls + at
        try:
            directory.truncate(T0, 5)
            assert log.end_offset == 4
        except PowerCut:
            pass
        again = LogDirectory.open(disk.crash(), "/d", ME)
        assert 4 <= again.load(T0, LogConfig(segment_bytes=300), NOW).end_offset <= 16


def test_an_empty_checkpoint_has_no_entries(tmp_path):
    """So Kafka makes it, before it has something to write: its directory opens all the same."""
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"")
        assert read_checkpoint(RealDisk(), str(tmp_path / name)) == {}
    directory = LogDirectory.open(RealDisk(), str(tmp_path), Identity("c", 1, "d"))
    assert directory.partitions() == []
    directory.close()
