"""Producer: partitioning by key, order, and retries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.scripted import ScriptedBroker

from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Produced, Producer
from konvene.codec.batches import records
from konvene.codec.compression import Compression
from konvene.codec.hashes import key_partition
from konvene.errors import Errors
from konvene.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)


def acknowledge(code: int = 0, base: int = 10) -> Any:
    def answer(request: Any) -> ProduceResponse:
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=t.name, topic_id=t.topic_id,
                    partition_responses=tuple(
                        PartitionProduceResponse(index=p.index, error_code=code, base_offset=base)
                        for p in t.partition_data
                    ),
                )
                for t in request.topic_data
            )
        )  # fmt: skip

    return answer


def produce(broker: ScriptedBroker, *lines: tuple[bytes | None, bytes], **options: Any) -> list[Produced]:
    broker.answers["Metadata"] = [broker.metadata(t=3)]

    async def job() -> list[Produced]:
        async with Cluster(broker.address, QUICK) as cluster:
            async with Producer(cluster, clock_ms=lambda: 77, **options) as producer:
                sent = [await producer.send("t", value, key=key) for key, value in lines]
            return [done.result() for done in sent]

    return asyncio.run(job())


def written(broker: ScriptedBroker, at: int = -1) -> dict[int, list[bytes | None]]:
    """Return the values of a Produce request by partition."""
    sent = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "Produce"][at]
    return {
        p.index: [r.value for r in records(bytes(p.records))]
        for t in sent.topic_data
        for p in t.partition_data
    }


@pytest.mark.parametrize("versions", [(3, 13), (3, 12), (3, 7)])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_keys_determine_partitions_and_order_is_kept(
    versions: tuple[int, int], compression: Compression
) -> None:
    lines = [(b"k%d" % (i % 5), b"v%d" % i) for i in range(20)]
    with ScriptedBroker(versions={"Produce": versions}, Produce=acknowledge()) as broker:
        produced = produce(broker, *lines, compression=compression)
    expected: dict[int, list[bytes]] = {}
    for key, value in lines:
        expected.setdefault(key_partition(key, 3), []).append(value)
    assert written(broker) == expected
    assert broker.apis == ["Metadata", "Produce"]
    assert [p.partition for p in produced] == [key_partition(key, 3) for key, _ in lines]
    for partition, values in expected.items():
        offsets = [p.offset for p in produced if p.partition == partition]
        assert offsets == list(range(10, 10 + len(values)))
    assert {p.timestamp for p in produced} == {77}


def test_a_batch_is_retried_after_the_leader_moved() -> None:
    answers = [acknowledge(Errors.NOT_LEADER_OR_FOLLOWER), acknowledge()]
    with ScriptedBroker(Produce=answers) as broker:
        (produced,) = produce(broker, (None, b"v"))
    assert produced.offset == 10
    assert broker.apis == ["Metadata", "Produce", "Metadata", "Produce"]
    assert written(broker, 0) == written(broker, 1)


def test_an_unknown_partition_refreshes_metadata_once() -> None:
    """Its metadata may be older than the partition."""

    async def job(broker: ScriptedBroker) -> Produced:
        async with Cluster(broker.address, QUICK) as cluster, Producer(cluster) as producer:
            await cluster.topic("t")
            return await (await producer.send("t", b"v", partition=2))

    with ScriptedBroker(Produce=acknowledge()) as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2), broker.metadata(t=3)]
        assert asyncio.run(job(broker)).partition == 2
    assert broker.apis == ["Metadata", "Metadata", "Produce"]
    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=2)] * 2
        with pytest.raises(KafkaError, match="has 2 partitions, none is number 2"):
            asyncio.run(job(broker))


def test_a_fatal_error_fails_the_records_without_retry() -> None:
    with (
        ScriptedBroker(Produce=acknowledge(Errors.MESSAGE_TOO_LARGE)) as broker,
        pytest.raises(KafkaError, match="writing to t-0: MESSAGE_TOO_LARGE"),
    ):
        produce(broker, (None, b"v"))
    assert broker.apis == ["Metadata", "Produce"]


def test_acks_0_does_not_wait_for_a_response() -> None:
    with ScriptedBroker(Produce=None) as broker:
        (produced,) = produce(broker, (None, b"v"), acks=0)
    assert produced.offset == -1
