"""Discovery of logs below paths of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.segments import LOGS, log, write

from konvene.pipeline.sources.files import NotALog, Partition, find

OF = Partition("", "__consumer_offsets", 0)


def test_logs_are_found_at_any_directory_level(tmp_path: Path) -> None:
    """A partition's folder, a data directory and its parents give the same segments."""
    data = tmp_path / "cluster" / "broker-1" / "data"
    (path,) = write(data, log(1, 3))
    for given in (path, path.parent, data, tmp_path / "cluster", tmp_path):
        (copy,) = find([given]).copies
        assert (copy.of, [s.path for s in copy.segments]) == (OF, [str(path)])


def test_file_given_twice_counts_once(tmp_path: Path) -> None:
    first, second = write(tmp_path, log(1, 6), cuts=[3])
    (copy,) = find([first, tmp_path, second.parent, second]).copies
    assert [s.path for s in copy.segments] == [str(first), str(second)]


def test_a_segment_alone_is_a_part_of_its_partition(tmp_path: Path) -> None:
    first, second = write(tmp_path, log(1, 6), cuts=[3])
    (copy,) = find([second]).copies
    assert [s.path for s in copy.segments] == [str(second)]
    assert copy.segments[0].base_offset == int(second.stem) > int(first.stem)


def test_replicas_are_copies_of_one_partition(tmp_path: Path) -> None:
    for broker in ("b", "a"):
        write(tmp_path / broker, log(1, 3))
    ((of, copies),) = find([tmp_path / "b", tmp_path / "a"]).partitions().items()
    assert of == OF
    assert [Path(c.path).parent.name for c in copies] == ["a", "b"]


def test_cluster_id_is_that_of_meta_properties_or_the_given_one(tmp_path: Path) -> None:
    for broker in ("known", "unknown"):
        write(tmp_path / broker, log(1, 3))
    (tmp_path / "known" / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    found = find([tmp_path], cluster="mine")
    assert [c.of.cluster for c in found.copies] == ["abc", "mine"]


def test_the_id_of_a_topic_is_read_from_its_folder(tmp_path: Path) -> None:
    (path,) = write(tmp_path, log(1, 3), topic="orders", partition=7)
    (path.parent / "partition.metadata").write_text("version: 0\ntopic_id: 5GTbdBEaSaG9FQnwcLqyzw")
    (copy,) = find([tmp_path]).copies
    assert (copy.of, copy.topic_id) == (Partition("", "orders", 7), "5GTbdBEaSaG9FQnwcLqyzw")


def test_deleted_and_future_partitions_are_skipped(tmp_path: Path) -> None:
    (path,) = write(tmp_path, log(1, 3))
    for name in ("orders-0.0a1b-delete", "orders-1.0a1b-future", "orders-2.0a1b-stray"):
        (tmp_path / name).mkdir()
        (tmp_path / name / path.name).write_bytes(path.read_bytes())
    assert [c.of for c in find([tmp_path]).copies] == [OF]


def test_kafkas_own_directories_are_found() -> None:
    found = find([LOGS / "share"])
    topics = [str(of) for of in found.partitions()]
    assert topics == [
        "__consumer_offsets-0", "__consumer_offsets-1", "__share_group_state-0", "__share_group_state-1",
        "__share_group_state-2", "__share_group_state-3",
    ]  # fmt: skip


def test_path_without_logs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no log")
    (tmp_path / "unnamed").mkdir()
    (tmp_path / "unnamed" / f"{0:020}.log").write_bytes(b"")
    with pytest.raises(NotALog, match="no partition's folder"):
        find([tmp_path / "empty"])
    with pytest.raises(NotALog, match="no segment of a log"):
        find([tmp_path / "notes.txt"])
    for path in (tmp_path / "unnamed", tmp_path / "unnamed" / f"{0:020}.log"):
        with pytest.raises(NotALog, match="is not that of a partition"):
            find([path])
    with pytest.raises(FileNotFoundError):
        find([tmp_path / "nowhere"])
