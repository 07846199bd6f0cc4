"""Scans of partitions in both directions: gaps, limits of memory, continuation and errors."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.scripted import ScriptedBroker

from konvene.client.consumer import scan
from konvene.client.consumer.fetch import Fetched
from konvene.client.consumer.scan import Bounds, Scan, _Ascending, _Descending, _Part
from konvene.client.errors import CorruptRecord, KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.batches import Record, build
from konvene.errors import Errors
from konvene.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

TP = TopicPartition("t", 0)


class Log:
    """Offsets with records; a fetch returns up to `batch` of them, or moves past a gap."""

    def __init__(self, offsets: list[int], end: int, batch: int) -> None:
        self.offsets = offsets
        self.end = end
        self.batch = batch
        self.fetches = 0

    def fetch(self, at: int) -> Fetched:
        self.fetches += 1
        taken = [offset for offset in self.offsets if offset >= at][: self.batch]
        following = taken[-1] + 1 if taken else self.end
        records = [Record(offset, offset, None, b"0123456789") for offset in taken]
        return Fetched(TP, 0, records, max(following, at), self.end, self.end, 0)

    def read(self, part: _Part, count: int | None = None) -> list[int]:
        """Read `count` records, or all."""
        found: list[int] = []
        while count is None or len(found) < count:
            while part.is_wanted:
                part.accept(self.fetch(part.at))
            if not part.records:
                break
            found.append(part.records.popleft()[0].offset)
        return found


LAYOUTS = st.builds(
    lambda offsets, more, batch: Log(sorted(offsets), max(offsets, default=0) + 1 + more, batch),
    st.sets(st.integers(0, 300), max_size=60), st.integers(0, 50), st.integers(1, 40),
)  # fmt: skip


@given(LAYOUTS, st.integers(0, 60), st.integers(1, 8), st.integers(20, 200))
def test_every_record_is_read_once_in_either_direction(
    log: Log, stop: int, window_records: int, most_bytes: int
) -> None:
    """Also if the scan is continued by another one, and however few records may be in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_WINDOW_RECORDS", window_records)
        patch.setattr(scan, "_FIRST_WINDOW", 4)
        forwards = _Ascending(0, log.end)
        found = log.read(forwards, stop)
        assert found + log.read(_Ascending(forwards.position, log.end)) == log.offsets
        backwards = _Descending(0, log.end, most_bytes)
        found = log.read(backwards, stop)
        assert found + log.read(_Descending(0, backwards.position, most_bytes)) == log.offsets[::-1]


def test_large_gap_is_crossed_with_few_fetches() -> None:
    """Windows grow while they have few records, and shrink before they have too many."""
    log = Log([*range(9_000), 2**40], 2**40 + 1, 1_000)
    part = _Descending(0, log.end, 10**9)
    assert log.read(part, 2) == [2**40, 8_999]
    assert log.fetches < 250
    assert len(part.records) <= 5_001


def test_position_of_an_incomplete_window_is_its_end() -> None:
    log = Log(list(range(100)), 100, 5)
    part = _Descending(0, 100, 10**9)
    part.accept(log.fetch(part.at))
    assert (part.records, part.position) == (deque(), 100)


def test_records_deleted_meanwhile_are_skipped() -> None:
    """OFFSET_OUT_OF_RANGE: the log begins later, or ends earlier after an unclean election."""
    log = Log(list(range(50, 100)), 100, 10)
    forwards = _Ascending(0, 100)
    forwards.skip_to(50)
    assert log.read(forwards) == list(range(50, 100))
    backwards = _Descending(0, 60, 10**9)
    backwards.skip_to(50)
    assert log.read(backwards) == list(range(59, 49, -1))
    emptied = _Descending(0, 60, 10**9)
    emptied.skip_to(70)
    assert not emptied.is_wanted
    cut = _Ascending(80, 100)
    cut.skip_to(0)
    assert not cut.is_wanted


def scripted(*codes: int) -> ScriptedBroker:
    """A broker whose Fetch fails with these codes and then returns two records."""
    pending = list(codes)

    def fetch(request: Any) -> FetchResponse:
        code = pending.pop(0) if pending else 0
        rows = [Record(0, 5, None, b"a"), Record(1, 6, None, b"b")]
        data = PartitionData(error_code=code, records=b"" if code else build(rows), high_watermark=2)
        (topic,) = request.topics
        return FetchResponse(responses=(FetchableTopicResponse(topic_id=topic.topic_id, partitions=(data,)),))

    broker = ScriptedBroker(Fetch=fetch)
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    return broker


def scanned(broker: ScriptedBroker) -> tuple[list[bytes | None], Scan]:
    async def job() -> tuple[list[bytes | None], Scan]:
        async with Cluster(broker.address) as cluster:
            found: list[bytes | None] = []
            made = Scan(cluster, "t", {0: Bounds(0, 2)})
            while (each := await made.read()) is not None:
                found.append(each.record.value)
            made.close()
            return found, made

    return asyncio.run(job())


def test_moved_leader_is_found_again() -> None:
    with scripted(Errors.NOT_LEADER_OR_FOLLOWER, Errors.OFFSET_NOT_AVAILABLE) as broker:
        found, made = scanned(broker)
    assert found == [b"a", b"b"]
    assert isinstance(made.error, KafkaError) and made.error.code == Errors.OFFSET_NOT_AVAILABLE
    assert (made.is_finished, made.positions) == (True, {0: 2})
    assert repr(made) == "<Scan of t, oldest first: 0 of 1 partitions>"


def test_records_before_a_damaged_batch_are_read() -> None:
    """The batch itself is an error, at its own offset."""
    damaged = bytearray(build([Record(1, 6, None, b"b")]))
    damaged[-1] ^= 1
    data = build([Record(0, 5, None, b"a")]) + bytes(damaged)

    def fetch(request: Any) -> FetchResponse:
        (topic,) = request.topics
        at = topic.partitions[0].fetch_offset
        row = PartitionData(records=data if at == 0 else bytes(damaged), high_watermark=2)
        return FetchResponse(responses=(FetchableTopicResponse(topic_id=topic.topic_id, partitions=(row,)),))

    async def job(address: str) -> bytes | None:
        async with Cluster(address) as cluster:
            made = Scan(cluster, "t", {0: Bounds(0, 2)})
            first = await made.read()
            assert first is not None and made.positions == {0: 1}
            with pytest.raises(CorruptRecord, match="reading t-0 at offset 1: CORRUPT_MESSAGE"):
                await made.read()
            return first.record.value

    with scripted() as broker:
        broker.answers["Fetch"] = [fetch]
        assert asyncio.run(job(broker.address)) == b"a"


def test_other_error_is_raised() -> None:
    with scripted(Errors.TOPIC_AUTHORIZATION_FAILED) as broker, pytest.raises(KafkaError) as caught:
        scanned(broker)
    assert str(caught.value) == "reading t-0 at offset 0: TOPIC_AUTHORIZATION_FAILED"
