"""A directory that is filled from a live broker is what the broker's own directory is, byte for byte."""

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
    """Each group commits, as who has no members may."""

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
    """The bytes of the logs that are read whole, of all their segments; those with none are left out."""
    found = {
        folder.name: b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        for folder in sorted(directory.glob("__*-*"))
        if not folder.name.startswith("__cluster_metadata")
    }
    return {name: data for name, data in found.items() if data}


GROUPS = [f"group-{n}" for n in range(20)]


@pytest.mark.konvene(topics={"orders": 2}, folder=True)
def test_what_was_fetched_is_what_the_broker_wrote(konvene: Konvene, tmp_path: Path) -> None:
    """All coordinator logs are there, in Kafka's names, and nothing else is; twice changes nothing."""
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
def test_reading_goes_on_where_it_ended(konvene: Konvene, tmp_path: Path) -> None:
    """Also in another process, with a torn tail, and over many segments; each has its index."""
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
def test_of_users_logs_only_headers_are_kept(konvene: Konvene, tmp_path: Path) -> None:
    """How far they had grown can be read, and when; what they say cannot."""
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
def test_a_users_topic_that_was_made_anew_begins_anew(konvene: Konvene, tmp_path: Path) -> None:
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
def test_another_clusters_directory_is_refused(konvene: Konvene, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\n")
    with (
        LiveReader(konvene.bootstrap, tmp_path) as reader,
        pytest.raises(WrongCluster, match="has logs of cluster other"),
    ):
        reader.catch_up()


@pytest.mark.konvene(topics={"orders": 1})
def test_a_log_that_went_back_is_refused(konvene: Konvene, tmp_path: Path) -> None:
    """What was told from records that are no more cannot be untold."""
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


def test_a_coordinators_topic_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.name_topic("__consumer_offsets", Uuid(range(16)))
    with Spool(tmp_path) as spool:
        spool.name_topic("__consumer_offsets", Uuid(range(16)))
        with pytest.raises(LogWentBack, match="__consumer_offsets was made anew"):
            spool.name_topic("__consumer_offsets", Uuid(range(1, 17)))


def test_one_process_at_a_time_has_the_directory(tmp_path: Path) -> None:
    with Spool(tmp_path), pytest.raises(DirectoryLocked):
        Spool(tmp_path)
    Spool(tmp_path).close()


def test_a_damaged_tail_is_fetched_again(tmp_path: Path) -> None:
    """A batch whose checksum does not hold was not written to its end; a file of nothing is removed."""
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


def test_who_is_not_there_is_named(tmp_path: Path) -> None:
    with LiveReader("127.0.0.1:1", tmp_path) as reader, pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1"):
        reader.catch_up()


@pytest.mark.konvene(topics={"orders": 1}, folder=True)
def test_a_range_is_read_with_no_directory(konvene: Konvene, tmp_path: Path) -> None:
    """Batches that have an offset of the range, each once."""
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
def test_what_was_removed_before_it_was_read_leaves_a_hole(
    konvene: Konvene, tmp_path: Path, restarted: bool
) -> None:
    """A segment begins behind it, whether the reader ran on or began again."""
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
