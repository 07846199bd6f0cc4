"""A broker archives segments before cleaning and retention remove them, also after archive failures."""

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
    """Return the offsets of all records in an archive, in their order."""
    return [
        offset
        for file in sorted((path / "t-0").glob("*.log"))
        for header, _ in batches(file.read_bytes())
        if header.record_count == header.last_offset_delta + 1
        for offset in range(header.base_offset, header.next_offset)
    ]


async def another(broker: Broker) -> Partition:
    """Create a compacted topic that is not archived."""
    wanted = {"cleanup.policy": "compact", "segment.ms": "40", "min.cleanable.dirty.ratio": "0.01"}
    topic_configs = tuple(CreatableTopicConfig(name=name, value=value) for name, value in wanted.items())
    topic = CreatableTopic(name="other", num_partitions=1, replication_factor=1, configs=topic_configs)
    response = await BrokerClient(broker).send(CreateTopicsRequest(topics=(topic,)))
    assert response.topics[0].error_code == 0
    partition = broker.partitions.get("other", 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("executor", [{}, PROCESS], ids=["slices", "process"])
def test_records_are_archived_before_they_are_cleaned(tmp_path: Path, executor: dict[str, str]) -> None:
    """The archive has each record once, over several cleanings and a restart."""
    archive = tmp_path / "kept"
    settings = ARCHIVED | executor | {"konvene.log.archive.dir": str(archive)}

    async def scenario(broker: Broker, partition: Partition) -> None:
        for _ in range(3):
            await fill(broker, partition)
            await cleaned(broker, partition)
        log = partition.log
        assert kept(archive) == list(range(log.active_segment.base_offset))
        assert len(latest(log)) == 50

    run(tmp_path / "data", scenario, settings)
    run(tmp_path / "data", scenario, settings)
    found = find([tmp_path / "data", archive])
    assert {copy.of.cluster for copy in found.copies if copy.of.topic == "t"} == {found.copies[0].of.cluster}
    assert [copy.kept for copy in found.copies if copy.of.topic == "t"] == [True, False]


def test_records_are_archived_before_retention_deletes_them(tmp_path: Path) -> None:
    """Also those of the active segment, which is rolled first."""
    archive = tmp_path / "kept"
    settings = ARCHIVED | {"konvene.log.archive.dir": str(archive), "log.retention.check.interval.ms": "20"}

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        log = partition.log
        await until(lambda: log.start_offset == log.end_offset)
        assert kept(archive) == list(range(log.end_offset))

    run(tmp_path / "data", scenario, settings, cleanup_policy="delete", retention_ms="100")


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_an_unwritable_archive_does_not_stop_the_broker(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The archived log only grows until the archive is writable again; other logs are cleaned meanwhile."""
    blocked = tmp_path / "disk"
    blocked.write_text("not mounted")
    settings = ARCHIVED | {
        "konvene.log.archive.dir": str(blocked / "kept"),
        "log.retention.check.interval.ms": "20",
    }

    async def scenario(broker: Broker, partition: Partition) -> None:
        await fill(broker, partition)
        log, before = partition.log, partition.log.size
        await until(lambda: T in broker.archive.failing)
        other = await another(broker)
        await fill(broker, other)
        await cleaned(broker, other)
        assert (log.start_offset, log.size) == (0, before)
        blocked.unlink()
        if policy == "compact":
            await cleaned(broker, partition)
        else:
            await until(lambda: log.start_offset == log.end_offset)
        assert not broker.archive.failing
        assert kept(blocked / "kept") == list(range(log.active_segment.base_offset))

    with caplog.at_level(logging.INFO, "konvene.archive"):
        run(tmp_path / "data", scenario, settings, cleanup_policy=policy, retention_ms="100")
    logged = [record for record in caplog.records if record.name == "konvene.archive"]
    assert [record.levelname for record in logged] == ["ERROR", "ERROR", "INFO"]
    assert "until then their logs are neither cleaned nor shortened" in logged[0].message


def test_a_taker_in_python(tmp_path: Path) -> None:
    """A callable is called before a segment is replaced, as in the example of `docs/cleaner.md`."""
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
