"""Rows 14 to 20 of the hostile inputs: forged batches and decompression bombs in Produce requests.

`forged_cases` has the cases and their expected errors; `KONVENE_AGAINST=kafka` checks them against Kafka.
"""

from __future__ import annotations

import pytest
from tests.broker.hostile.forged import batch, bomb, sound
from tests.broker.hostile.forged_cases import CASES, CORRUPT, INVALID, NONE, Case
from tests.broker.hostile.wire import Target, frame, header

from konvene.codec.compile import encode
from konvene.codec.compression import Compression
from konvene.errors import Errors
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "hostile-produce"
MIB = 1 << 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"row {case.row}: {case.name}")
def test_rows_14_to_20_a_forged_batch(case: Case, target: Target) -> None:
    """A rejected batch is not appended to the log."""
    target.topic(TOPIC)
    before = end_of(target)
    answered = produced(target, case.records, case.version)
    assert answered is (case.kafka if target.is_kafka else case.ours)
    assert (end_of(target) > before) == (answered is NONE)


def test_row_18_no_records_at_all(target: Target) -> None:
    """A partition whose records are null is rejected. (Kafka never answers such a request.)"""
    if target.is_kafka:
        pytest.skip("Kafka leaves it unanswered")
    target.topic(TOPIC)
    assert produced(target, None) is INVALID


def test_row_14_an_invalid_batch_does_not_affect_other_partitions(target: Target) -> None:
    """Each partition of a request receives its own error."""
    target.topic(TOPIC + "-2", 2)
    produce = request(batch(crc=1), TOPIC + "-2")
    (topic,) = produce.topic_data
    good = PartitionProduceData(index=1, records=sound())
    produce = produce.replace(topic_data=(topic.replace(partition_data=(*topic.partition_data, good)),))
    (answer,) = target.ask(produce, 12).responses
    assert {p.index: p.error_code for p in answer.partition_responses} == {0: CORRUPT, 1: NONE}


def test_row_14_an_invalid_batch_without_acks_closes_the_connection(target: Target) -> None:
    """With acks=0 there is no response to carry the error; a valid batch before it stays in the log."""
    target.topic(TOPIC)
    before = end_of(target)
    with target.client() as client:
        for data in (sound(), batch(crc=1)):
            client.send(frame(header(0, 12) + encode(request(data, acks=0), 12)))
        assert client.is_closed()
    assert end_of(target) == before + 1


BOMBS = {
    Compression.GZIP: 256 * MIB,
    Compression.LZ4: 200 * MIB,
    Compression.ZSTD: 256 * MIB,
    Compression.SNAPPY: 20 * MIB,
}
"""Uncompressed sizes that compress to less than max.message.bytes; snappy compresses less."""


@pytest.mark.parametrize("kind", BOMBS, ids=lambda kind: kind.label)
def test_row_19_a_bomb(kind: Compression, target: Target) -> None:
    """A batch of more than 64 MiB uncompressed is rejected, with a peak of little more than twice that.

    Kafka decompresses such a record as a stream and accepts it.
    """
    target.topic(TOPIC)
    unpacked = BOMBS[kind]
    data = bomb(kind, unpacked)
    assert unpacked > (15 if kind is Compression.SNAPPY else 150) * len(data)
    before = target.rss_mib
    target.forget_the_peak()
    answered = produced(target, data)
    if target.is_kafka:
        assert answered is NONE
        return
    assert answered is (INVALID if unpacked > 64 * MIB else NONE)
    assert target.peak_rss_mib - before < 160
    assert target.rss_mib - before < 30


def produced(target: Target, data: bytes | None, version: int = 12) -> Errors:
    answer = target.ask(request(data), version)
    (partition,) = answer.responses[0].partition_responses
    return Errors(partition.error_code)


def request(data: bytes | None, topic: str = TOPIC, acks: int = 1) -> ProduceRequest:
    wanted = (PartitionProduceData(index=0, records=data),)
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=wanted),)
    )


def end_of(target: Target, topic: str = TOPIC) -> int:
    wanted = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
    answer = target.ask(ListOffsetsRequest(replica_id=-1, topics=(wanted,)))
    return int(answer.topics[0].partitions[0].offset)
