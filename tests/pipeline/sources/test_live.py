"""A directory that is fetched from a live broker equals the broker's own directory, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.against.brokers import Broker

from konvene.client.errors import CannotConnect
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.batches import HEADER_SIZE, batches, build_simple, read_header
from konvene.codec.uuid import Uuid
from konvene.log.errors import DirectoryLocked
from konvene.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.pipeline.sources.live import LiveReader, LogWentBack, WrongCluster, in_turn, ranges, read_range
from konvene.pipeline.sources.spool import Spool
from konvene.testing import Konvene

TP = TopicPartition("__consumer_offsets", 0)


def commit(konvene: Konvene | Broker, groups: Sequence[str], offset: int) -> None:
    """Commit for each group without being a member."""

    async def ask() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            for group in groups:
                row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                topic = OffsetCommitRequestTopic(name="orders", partitions=(row,))
                request = OffsetCommitRequest(
                    group_id=group, generation_id_or_member_epoch=-1, topics=(topic,)
                )

                def made(connection):  # type: ignore[no-untyped-def]
                    return request, 9  # noqa: B023

                answer = await cluster.ask_coordinator(group, made, _code)
                assert _code(answer) == 0

    asyncio.run(ask())


def _code(answer: OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def logs(directory: Path) -> dict[str, bytes]:
    """Return the bytes of the completely fetched logs, of all segments; empty ones are left out."""
    found = {
        folder.name: b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        for folder in sorted(directory.glob("__*-*"))
        if not folder.name.startswith("__cluster_metadata")
    }
    return {name: data for name, data in found.items() if data}


GROUPS = [f"group-{n}" for n in range(20)]


@pytest.mark.konvene(topics={"orders": 2}, folder=True)
def test_fetched_logs_equal_the_brokers(konvene: Konvene, tmp_path: Path) -> None:
    """All coordinator logs are fetched under Kafka's file names, and no others; a second fetch adds
    nothing."""
    commit(konvene, GROUPS, 1)
    spool = tmp_path / "spool"
    with LiveReader(konvene.bootstrap, spool) as reader:
        first = reader.catch_up()
        assert reader.catch_up() == []
        assert reader.poll(wait_ms=1) == []
        assert reader.cluster_id
        meta = (spool / "meta.properties").read_text().splitlines()
        assert meta == ["version=1", f"cluster.id={reader.cluster_id}", "node.id=-1"]
    assert logs(spool) == logs(tmp_path / "konvene")
    assert sum(each.bytes for each in first) == sum(map(len, logs(spool).values()))
    assert {str(each.partition) for each in first} == set(logs(spool))
    for name in logs(spool):
        assert [p.name for p in (spool / name).glob("*.log")] == ["00000000000000000000.log"]


@pytest.mark.konvene(topics={"orders": 1}, folder=True)
def test_fetching_resumes_where_it_ended(konvene: Konvene, tmp_path: Path) -> None:
    """Also in another process, after a torn tail, and over many segments, each with its index."""
    spool, theirs = tmp_path / "spool", tmp_path / "konvene"
    for at in range(4):
        commit(konvene, GROUPS, at)
        with LiveReader(konvene.bootstrap, spool, segment_bytes=600) as reader:
            got = reader.poll(wait_ms=500) if at else reader.catch_up()
            assert got
            if at:
                reader.catch_up()
        assert logs(spool) == logs(theirs)
        last = sorted((spool / str(TP)).glob("*.log"))[-1]
        last.write_bytes(last.read_bytes()[:-at] if at else last.read_bytes())
    segments = sorted((spool / str(TP)).glob("*.log"))
    assert len(segments) > 2
    for path in segments:
        assert read_header(path.read_bytes()).base_offset == int(path.stem)
        assert path.stat().st_size <= 600
    assert all(path.with_suffix(".index").exists() for path in segments[:-1])


@pytest.mark.konvene(topics={"orders": 1, "empty": 1})
def test_user_topics_are_fetched_as_batch_headers_only(konvene: Konvene, tmp_path: Path) -> None:
    """The log's growth over time can be read, but not its records."""
    konvene.produce("orders", [b"secret", b"secret"], partition=0)
    konvene.produce("orders", [b"secret"], partition=0)
    with LiveReader(konvene.bootstrap, tmp_path) as reader:
        reader.catch_up()
    data = (tmp_path / "orders-0" / "00000000000000000002.log").read_bytes()
    ((header, batch),) = batches(data)
    assert (header.base_offset, header.next_offset, header.record_count) == (2, 3, 1)
    assert header.max_timestamp > 1_600_000_000_000
    assert bytes(batch[HEADER_SIZE:]) == bytes(header.size - HEADER_SIZE)
    assert list((tmp_path / "empty-0").iterdir()) == [tmp_path / "empty-0" / "partition.metadata"]


@pytest.mark.konvene(topics={"orders": 1})
def test_recreated_user_topic_is_fetched_from_its_start(konvene: Konvene, tmp_path: Path) -> None:
    konvene.produce("orders", [b"a", b"b", b"c"], partition=0)
    with LiveReader(konvene.bootstrap, tmp_path) as reader:
        reader.catch_up()
    before = (tmp_path / "orders-0" / "partition.metadata").read_text()
    konvene.delete_topic("orders")
    konvene.create_topic("orders")
    konvene.produce("orders", [b"a"], partition=0)
    with LiveReader(konvene.bootstrap, tmp_path) as reader:
        reader.catch_up()
    assert [path.name for path in (tmp_path / "orders-0").glob("*.log")] == ["00000000000000000000.log"]
    assert (tmp_path / "orders-0" / "partition.metadata").read_text() != before


@pytest.mark.konvene(topics={"orders": 1})
def test_directory_of_another_cluster_is_rejected(konvene: Konvene, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\n")
    with (
        LiveReader(konvene.bootstrap, tmp_path) as reader,
        pytest.raises(WrongCluster, match="has logs of cluster other"),
    ):
        reader.catch_up()


@pytest.mark.konvene(topics={"orders": 1})
def test_log_with_a_lower_end_offset_is_rejected(konvene: Konvene, tmp_path: Path) -> None:
    """Rows that were built from records which no longer exist could not be taken back."""
    commit(konvene, GROUPS, 1)
    with LiveReader(konvene.bootstrap, tmp_path) as reader:
        reader.catch_up()
    with Spool(tmp_path) as spool:
        at = spool.position(TP) or 0
        batch = memoryview(build_simple([(b"k", b"v")], 5, base_offset=at + 100))
        spool.append(TP, read_header(batch), batch)
    with (
        LiveReader(konvene.bootstrap, tmp_path) as reader,
        pytest.raises(LogWentBack, match=f"__consumer_offsets-0 ends at offset {at}, but .* {at + 101}"),
    ):
        reader.catch_up()


def test_recreated_coordinator_topic_is_rejected(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.name_topic("__consumer_offsets", Uuid(range(16)))
    with Spool(tmp_path) as spool:
        spool.name_topic("__consumer_offsets", Uuid(range(16)))
        with pytest.raises(LogWentBack, match="__consumer_offsets was made anew"):
            spool.name_topic("__consumer_offsets", Uuid(range(1, 17)))


def test_directory_is_locked_by_one_process(tmp_path: Path) -> None:
    with Spool(tmp_path), pytest.raises(DirectoryLocked):
        Spool(tmp_path)
    Spool(tmp_path).close()


def test_a_damaged_tail_is_fetched_again(tmp_path: Path) -> None:
    """A batch with a wrong checksum was not fully written; an empty segment is removed."""
    good = memoryview(build_simple([(b"k", b"v")], 5, base_offset=7))
    bad = bytearray(build_simple([(b"k", b"v")], 5, base_offset=8))
    bad[-1] ^= 1
    with Spool(tmp_path) as spool:
        spool.append(TP, read_header(good), good)
        spool.append(TP, read_header(bad), memoryview(bad))
    with Spool(tmp_path) as spool:
        assert spool.position(TP) == 8
        assert (tmp_path / str(TP) / "00000000000000000007.log").read_bytes() == good
    (tmp_path / str(TP) / "00000000000000000008.log").write_bytes(bad[:30])
    with Spool(tmp_path) as spool:
        assert spool.position(TP) == 8
        assert repr(spool) == f"Spool({str(tmp_path)!r}, 1 partitions)"
    assert [path.name for path in (tmp_path / str(TP)).iterdir()] == ["00000000000000000007.log"]


def test_unreachable_broker_is_named(tmp_path: Path) -> None:
    with LiveReader("127.0.0.1:1", tmp_path) as reader, pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1"):
        reader.catch_up()


@pytest.mark.konvene(topics={"orders": 1}, folder=True)
def test_range_is_fetched_without_a_directory(konvene: Konvene, tmp_path: Path) -> None:
    """Returns each batch that has an offset of the range once."""
    for at in range(3):
        commit(konvene, GROUPS, at)
    with asyncio.Runner() as runner:
        cluster = Cluster(konvene.bootstrap)
        try:
            found = runner.run(ranges(cluster, ["__consumer_offsets", "__not_there"]))
            start, end = found[TP]
            whole = list(in_turn(read_range(cluster, TP, start, end), runner))
            part = list(in_turn(read_range(cluster, TP, start + 2, end - 2), runner))
        finally:
            runner.run(cluster.close())
    data = b"".join(bytes(batch) for some in whole for _, batch in some)
    assert data == logs(tmp_path / "konvene")[str(TP)]
    assert start == 0
    assert [header.base_offset for some in part for header, _ in some] == list(range(2, end - 2))


def delete_records(konvene: Konvene, topic: str, before: int) -> None:
    async def ask() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            row = DeleteRecordsPartition(partition_index=0, offset=before)
            topics = (DeleteRecordsTopic(name=topic, partitions=(row,)),)
            answer = await cluster.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000))
            assert answer.topics[0].partitions[0].error_code == 0

    asyncio.run(ask())


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.konvene(topics={"orders": 1})
def test_records_deleted_before_they_are_fetched_leave_a_gap(
    konvene: Konvene, tmp_path: Path, restarted: bool
) -> None:
    """A new segment begins after the gap, whether the reader kept running or was restarted."""
    with ExitStack() as readers:
        reader = readers.enter_context(LiveReader(konvene.bootstrap, tmp_path, topics=["orders"]))
        konvene.produce("orders", [b"a", b"b"], partition=0)
        reader.catch_up()
        if restarted:
            readers.close()
        konvene.produce("orders", [b"c", b"d"], partition=0)
        konvene.produce("orders", [b"e"], partition=0)
        delete_records(konvene, "orders", 4)
        if restarted:
            reader = readers.enter_context(LiveReader(konvene.bootstrap, tmp_path, topics=["orders"]))
        reader.catch_up()
        assert reader.catch_up() == []
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    assert [path.name for path in segments] == ["00000000000000000000.log", "00000000000000000004.log"]
    ((header, _),) = batches(segments[1].read_bytes())
    assert (header.base_offset, header.next_offset) == (4, 5)
