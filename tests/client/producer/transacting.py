"""A scripted transaction coordinator, and a runner for producers against it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.client.producer.test_producer import acknowledge
from tests.client.scripted import ScriptedBroker

from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.transactional import TransactionalProducer
from konvene.codec.batches import BatchHeader, read_header
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from konvene.messages.end_txn import EndTxnResponse
from konvene.messages.init_producer_id import InitProducerIdResponse
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)
TP = TopicPartition("t", 0)

Job = Callable[[TransactionalProducer], Coroutine[Any, Any, Any]]


def added(*codes: int) -> Callable[[Any], AddPartitionsToTxnResponse]:
    """Answer with the first code for every partition, or with the codes given by partition."""

    def answer(request: Any) -> AddPartitionsToTxnResponse:
        given = list(codes or (0,))
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=t.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(
                            partition_index=p,
                            partition_error_code=given.pop(0) if len(given) > 1 else given[0],
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.v3_and_below_topics
            )
        )

    return answer


def committed(**codes: int) -> Callable[[Any], TxnOffsetCommitResponse]:
    """Return a response with these error codes: `p0=14` for partition 0; the others succeed."""

    def answer(request: Any) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=t.name,
                    topic_id=t.topic_id,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=codes.get(f"p{p.partition_index}", 0),
                        )
                        for p in t.partitions
                    ),
                )
                for t in request.topics
            )
        )

    return answer


def ended(code: int = 0, epoch: int = -1) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=7 if epoch >= 0 else -1, producer_epoch=epoch)


def identified(code: int = 0, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)


def coordinator(level: int = 2, **answers: Any) -> ScriptedBroker:
    """Return a broker with this level of `transaction.version`; requests without a given answer succeed."""
    usual = {
        "InitProducerId": identified(), "Produce": acknowledge(), "AddPartitionsToTxn": added(),
        "AddOffsetsToTxn": AddOffsetsToTxnResponse(), "TxnOffsetCommit": committed(),
        "EndTxn": ended(epoch=1) if level > 1 else ended(),
    }  # fmt: skip
    broker = ScriptedBroker(**(usual | answers))
    broker.features = {"transaction.version": level} if level else {}
    return broker


def run_producer(broker: ScriptedBroker, job: Job, settings: ClientSettings = QUICK, **options: Any) -> Any:
    """Run a job with a producer that has been initialized."""
    broker.answers["Metadata"] = [broker.metadata(t=3)]

    async def run() -> Any:
        async with Cluster(broker.address, settings) as cluster:
            producer = TransactionalProducer(cluster, "id", **options)
            await producer.init_transactions()
            return await job(producer)

    return asyncio.run(run())


def request_log(broker: ScriptedBroker) -> list[str]:
    """Return the request log without Metadata and FindCoordinator."""
    return [line for line in broker.request_log if not line.startswith(("Metadata", "FindCoordinator"))]


def sent(broker: ScriptedBroker, api: str) -> list[Any]:
    return [r for name, r in zip(broker.apis, broker.requests, strict=True) if name == api]


def headers(broker: ScriptedBroker) -> list[BatchHeader]:
    return [
        read_header(bytes(p.records))
        for request in sent(broker, "Produce")
        for t in request.topic_data
        for p in t.partition_data
    ]
