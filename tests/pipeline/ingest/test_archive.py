"""Gold from an archive and the cleaned log equals gold from the log that was never cleaned."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from tests.pipeline.reduce.playing import Played
from tests.pipeline.segments import LOGS, records_of
from tests.pipeline.streaming import WANTED, built_at_once, built_in_steps, steps, sums, write_simulated_logs

from konvene.broker.storage.archive import Archive, SegmentStore
from konvene.broker.storage.offline_cleaner import CleaningResult, OfflineCleaner
from konvene.codec.batches import batches
from konvene.configs import BrokerConfig
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, LogDirectory, TopicPartition
from konvene.log.disk.files import RealDisk
from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources import files
from konvene.pipeline.sources.plan import Files
from konvene.pipeline.spark.stream import step
from konvene.pipeline.warehouse.warehouse import Warehouse

ME = Identity("clusterA", 1, "dirA")
KINDS = [("classic", 2), ("consumer", 2), ("streams", 3), ("static", 4)]
BIG = LogConfig(cleanup_policy=frozenset({"compact"}))


def recut(home: Path, segment_bytes: int = 1_200) -> Path:
    """Rewrite logs in small segments, in a data directory, so that the cleaner has something to clean."""
    for path in sorted(home.glob("*/*.log")):
        data, parts, size = path.read_bytes(), [], segment_bytes
        for header, view in batches(data):
            if size >= segment_bytes:
                parts.append((header.base_offset, bytearray()))
                size = 0
            parts[-1][1].extend(view)
            size += header.size
        for stale in path.parent.glob(f"{path.stem}.*index"):
            stale.unlink()
        path.unlink()
        for base, part in parts:
            (path.parent / f"{base:020d}.log").write_bytes(part)
    LogDirectory.open(RealDisk(), str(home), ME).close(clean=False)
    return home


def clean(data: Path, archive: Path | None) -> list[CleaningResult]:
    """Clean all compacted topics of a data directory; with an archive, hand its segments over first."""
    overrides = [("konvene.log.archive.dir", str(archive))] if archive else []
    with OfflineCleaner(str(data), BrokerConfig.load(overrides=overrides)[0], dry_run=False) as cleaning:
        results = [cleaning.clean(*each, lambda _count, _of: None) for each in cleaning.select([])]
    assert not [each for each in results if each.unfinished or each.damage]
    return results


def removed(results: list[CleaningResult]) -> int:
    return sum(row.messages_read - row.messages_written for each in results for row in each.stats)


played = cache(Played)


def logs_of(home: Path, kind: str, seed: int, *, audit: bool = True, steps: int = 1_500) -> Path:
    """Write the log and the audit of a simulated run to a data directory."""
    write_simulated_logs(home, played(kind, seed, steps=steps))
    if not audit:
        shutil.rmtree(home / "__konvene_audit-0")
    return recut(home)


@pytest.mark.parametrize(("audit", "name"), [(True, "a-kept"), (False, "z-kept")], ids=["audit", "no-audit"])
@pytest.mark.parametrize(("kind", "seed"), KINDS)
def test_cleaned_log_and_archive_build_the_same_gold(
    tmp_path: Path, kind: str, seed: int, audit: bool, name: str
) -> None:
    """Byte for byte, at once and in steps, whichever of the two directories is found first."""
    whole = logs_of(tmp_path / "whole", kind, seed, audit=audit)
    shutil.copytree(whole, tmp_path / "both" / "data")
    assert removed(clean(tmp_path / "both" / "data", tmp_path / "both" / name)) > 50
    expected = built_at_once(tmp_path / "w0", whole)
    found = built_at_once(tmp_path / "w1", tmp_path / "both")
    assert sums(found) == sums(expected)
    assert records_of(found) == records_of(expected)
    assert sums(built_in_steps(tmp_path / "w2", tmp_path / "both", 70)) == sums(expected)
    assert any(sums(expected)[table] for table in ("rebalance", "ownership"))


@pytest.mark.parametrize("story", ["classic", "consumer", "streams", "transactions"])
def test_cleaned_golden_logs_and_archive_build_the_same_gold(tmp_path: Path, story: str) -> None:
    shutil.copytree(LOGS / story, tmp_path / "whole")
    whole = recut(tmp_path / "whole", 1_000)
    shutil.copytree(whole, tmp_path / "both" / "data")
    assert removed(clean(tmp_path / "both" / "data", tmp_path / "both" / "kept")) > 10
    expected = built_at_once(tmp_path / "w0", whole)
    assert sums(built_at_once(tmp_path / "w1", tmp_path / "both")) == sums(expected)
    assert sums(built_in_steps(tmp_path / "w2", tmp_path / "both", 40)) == sums(expected)


def test_without_an_archive_history_is_lost(tmp_path: Path) -> None:
    """Without it the tests above would fail."""
    whole = logs_of(tmp_path / "whole", "classic", 2)
    shutil.copytree(whole, tmp_path / "data")
    clean(tmp_path / "data", None)
    assert len(records_of(built_at_once(tmp_path / "w1", tmp_path / "data"))) < len(
        records_of(built_at_once(tmp_path / "w0", whole))
    )


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_repeated_cleaning_during_ingest(tmp_path: Path, kind: str) -> None:
    """The log grows, is cleaned and is read in turns: each record is stored once, and gold is the same."""
    whole = logs_of(tmp_path / "whole", kind, 2)
    data, kept = tmp_path / "both" / "data", tmp_path / "both" / "kept"
    reached: dict[files.Partition, int] = {}
    in_steps, by_ingest = Warehouse(tmp_path / "w1"), Warehouse(tmp_path / "w2")
    segments = sorted((whole / "__consumer_offsets-0").glob("*.log"))
    count, removed_records = 0, 0
    for some in chunks(segments, 4):
        folder = data / "__consumer_offsets-0"
        folder.mkdir(parents=True, exist_ok=True)
        for path in some:
            shutil.copy(path, folder)
        shutil.copytree(whole / "__konvene_audit-0", data / "__konvene_audit-0", dirs_exist_ok=True)
        if not (data / "meta.properties").exists():
            shutil.copy(whole / "meta.properties", data)
        count += 1
        for number, parts in enumerate(steps(tmp_path / "both", 60, reached)):
            step(in_steps, parts, Local(), [str(tmp_path / "both")])
            if number == 1:
                removed_records += removed(clean(data, kept))
        removed_records += removed(clean(data, kept))
        ingest(by_ingest, [data, kept], Local())
    assert count > 2
    assert removed_records > 100
    build(by_ingest, Local())
    expected = built_at_once(tmp_path / "w0", whole)
    assert records_of(in_steps) == records_of(expected)
    assert records_of(by_ingest) == records_of(expected)
    assert sums(in_steps) == sums(expected)
    assert sums(by_ingest) == sums(expected)


def chunks(paths: list[Path], size: int) -> list[list[Path]]:
    return [paths[at : at + size] for at in range(0, len(paths), size)]


def test_segments_archived_and_cleaned_during_discovery_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is listed after the data directory, so it has the records that the cleaner removed
    meanwhile."""
    whole = logs_of(tmp_path / "whole", "classic", 2)
    data, kept = tmp_path / "both" / "data", tmp_path / "both" / "a-kept"
    shutil.copytree(whole, data)
    directory = LogDirectory.open(RealDisk(), str(data), ME)
    log = directory.load(TopicPartition("__consumer_offsets", 0), BIG, 0)
    store = SegmentStore(RealDisk(), str(kept), ME.cluster_id)
    assert Archive(directory, {"__consumer_offsets"}, store).hand_over(log, log.segments[:2])
    directory.close(clean=False)
    listed: list[str] = []
    copy = files._copy

    def copied(folder: str, *more: object, **others: object) -> files.Copy:
        if not listed:
            clean(data, kept)
        listed.append(folder)
        return copy(folder, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_copy", copied)
    source = Files((str(tmp_path / "both"),))
    of = files.Partition(ME.cluster_id, "__consumer_offsets", 0)
    parts = [p for p in source.slices(WANTED, {}, {of: 1 << 40}) if p.of == of]
    monkeypatch.undo()
    step(Warehouse(tmp_path / "w1"), parts, Local(), [str(tmp_path / "both")])
    expected = records_of(built_at_once(tmp_path / "w0", whole))
    found = records_of(Warehouse(tmp_path / "w1"))
    assert found == [row for row in expected if row in found]
    assert len(found) == sum(1 for _ in _records(whole / "__consumer_offsets-0"))
    assert listed[-1] == str(kept / "__consumer_offsets-0")


def _records(folder: Path) -> list[int]:
    return [
        offset
        for path in sorted(folder.glob("*.log"))
        for header, _ in batches(path.read_bytes())
        for offset in range(header.base_offset, header.next_offset)
    ]


def test_empty_archive_is_accepted(tmp_path: Path) -> None:
    """A pipeline may read both directories before the first segment is archived."""
    whole = logs_of(tmp_path / "whole", "classic", 2)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "meta.properties").write_text("version=1\ncluster.id=clusterA\nnode.id=-1\n")
    found = files.find([whole, tmp_path / "kept"])
    assert {copy.of.topic for copy in found.copies} == {"__consumer_offsets", "__konvene_audit"}
