"""A broker that cleans and shortens its logs, and keeps beforehand what goes; also when it cannot."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.broker.handlers.broker_client import BrokerClient
from tests.broker.storage.compacted import PROCESS, cleaned, fill, latest, run, the_partition, until

from konvene.broker.broker import Broker
from konvene.broker.storage.archive import FinishedSegment
from konvene.broker.storage.partitions import Partition
from konvene.codec.batches import batches
from konvene.log.checkpoints import TopicPartition
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.pipeline.sources.files import find

ARCHIVED = {"konvene.log.archive.topics": "t"}
T = TopicPartition("t", 0)


def kept(path: Path) -> list[int]:
    """The offsets of all records in an archive, as they stand there."""
    return [
        offset
        for file in sorted((path / "t-0").glob("*.log"))
        for header, _ in batches(file.read_bytes())
        if header.record_count == header.last_offset_delta + 1
        for offset in range(header.base_offset, header.next_offset)
    ]


async def another(broker: Broker) -> Partition:
    """A compacted topic that nobody archives."""
    wanted = {"cleanup.policy": "compact", "segment.ms": "40", "min.cleanable.dirty.ratio": "0.01"}
    told = tuple(CreatableTopicConfig(name=name, value=value) for name, value in wanted.items())
    topic = CreatableTopic(name="other", num_partitions=1, replication_factor=1, configs=told)
    answer = await BrokerClient(broker).send(CreateTopicsRequest(topics=(topic,)))
    assert answer.topics[0].error_code == 0
    partition = broker.partitions.get("other", 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("way", [{}, PROCESS], ids=["slices", "process"])
def test_what_is_cleaned_is_kept_before(tmp_path: Path, way: dict[str, str]) -> None:
    """All of it, each record once, over many cleanings and a restart."""
    archive = tmp_path / "kept"
    settings = ARCHIVED | way | {"konvene.log.archive.dir": str(archive)}

    async def scenario(broker: Broker, partition: Partition) -> None:
        for _ in range(3):
            await fill(broker, partition)
            await cleaned(broker, partition)
        of = partition.log
        assert kept(archive) == list(range(of.active_segment.base_offset))
        assert len(latest(of)) == 50

    run(tmp_path / "data", scenario, settings)
    run(tmp_path / "data", scenario, settings)
    found = find([tmp_path / "data", archive])
    assert {copy.of.cluster for copy in found.copies if copy.of.topic == "t"} == {found.copies[0].of.cluster}
    assert [copy.kept for copy in found.copies if copy.of.topic == "t"] == [True, False]


def test_what_retention_takes_is_kept_before(tmp_path: Path) -> None:
    """Also the last segment, which is finished for it."""
    archive = tmp_path / "kept"
    settings = ARCHIVED | {"konvene.log.archive.dir": str(archive), "log.retention.check.interval.ms": "20"}

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        of = partition.log
        await until(lambda: of.start_offset == of.end_offset)
        assert kept(archive) == list(range(of.end_offset))

    run(tmp_path / "data", scenario, settings, cleanup_policy="delete", retention_ms="100")


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_an_archive_that_cannot_be_written_stops_no_broker(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the topic only grows, which is told once; others are cleaned; when it can, all is kept."""
    blocked = tmp_path / "disk"
    blocked.write_text("not mounted")
    settings = ARCHIVED | {
        "konvene.log.archive.dir": str(blocked / "kept"),
        "log.retention.check.interval.ms": "20",
    }

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        of, before = partition.log, partition.log.size
        await until(lambda: T in broker.archive.failing)
        other = await another(broker)
        await fill(broker, other)
        await cleaned(broker, other)
        assert (of.start_offset, of.size) == (0, before)
        blocked.unlink()
        if policy == "compact":
            await cleaned(broker, partition)
        else:
            await until(lambda: of.start_offset == of.end_offset)
        assert not broker.archive.failing
        assert kept(blocked / "kept") == list(range(of.active_segment.base_offset))

    with caplog.at_level(logging.INFO, "konvene.archive"):
        run(tmp_path / "data", scenario, settings, cleanup_policy=policy, retention_ms="100")
    said = [each for each in caplog.records if each.name == "konvene.archive"]
    assert [each.levelname for each in said] == ["ERROR", "ERROR", "INFO"]
    assert "until then their logs are neither cleaned nor shortened" in said[0].message


def test_who_takes_segments_in_python(tmp_path: Path) -> None:
    """As `docs/cleaner.md` has it: a callable, called before a segment is replaced."""
    taken: list[FinishedSegment] = []

    async def scenario(broker: Broker, partition: Partition) -> None:
        def take(segment: FinishedSegment) -> None:
            assert Path(segment.path).stat().st_size
            taken.append(segment)

        broker.archive.takers.append(take)
        await fill(broker, partition)
        await cleaned(broker, partition)
        assert taken[0].base_offset == 0
        assert taken[-1].next_offset == partition.log.active_segment.base_offset
        assert [a.next_offset for a in taken[:-1]] == [b.base_offset for b in taken[1:]]
        assert the_partition(broker) is partition

    run(tmp_path, scenario, ARCHIVED)
