"""Produce requests and their expected results.

Expected results are those of Apache Kafka 4.4 for the same bytes; `KONVENE_AGAINST=kafka` runs the tests
against Kafka.
"""

from __future__ import annotations

import time
from typing import Any

from tests.broker.hostile.forged import batch, record
from tests.broker.hostile.wire import Target

from konvene.codec import batches as rb
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

VERSION = 12


def topic(target: Target, name: str, partitions: int = 1, **settings: Any) -> str:
    """Create a topic with these configs and return its name."""
    configs = tuple(
        CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in settings.items()
    )
    new_topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    target.ask(CreateTopicsRequest(topics=(new_topic,), timeout_ms=10_000))
    target.topic(name)
    return name


def request(
    name: str | Uuid, *data: tuple[int, bytes | None], acks: int = 1, transaction: str | None = None
) -> ProduceRequest:
    wanted = tuple(PartitionProduceData(index=index, records=found) for index, found in data)
    by = {"topic_id": name} if isinstance(name, Uuid) else {"name": name}
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        transactional_id=transaction,
        topic_data=(TopicProduceData(**by, partition_data=wanted),),
    )


def answer(
    target: Target,
    name: str | Uuid,
    data: bytes | None,
    version: int = VERSION,
    index: int = 0,
    **fields: Any,
) -> PartitionProduceResponse:
    response = target.ask(request(name, (index, data), **fields), version)
    (found,) = response.responses[0].partition_responses
    return found


def accepted(base: int, time_ms: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=0, base_offset=base, log_append_time_ms=time_ms, log_start_offset=0)


def refused(error: Errors, start: int = 0, *faults: tuple[int, str], index: int = 0) -> Any:
    """Return an expected error; `faults` are index and message of each rejected record."""
    message = None
    if faults and error is Errors.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    elif faults:
        shown = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at, why in faults[:3])
        message = (
            f"One or more records have been rejected due to {len(faults)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_start_offset=start,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why) for at, why in faults
        ),
        error_message=message,
    )


def timed(*times: int, key: bytes = b"\x01", **fields: Any) -> bytes:
    """Return a batch of records with these timestamps."""
    body = b"".join(record(delta=delta, time=at - times[0], key=key) for delta, at in enumerate(times))
    return batch(body, len(times), **{"base_timestamp": times[0], "max_timestamp": max(times)} | fields)


def now_ms() -> int:
    return int(time.time() * 1000)


def stored(target: Target, name: str) -> list[tuple[rb.BatchHeader, list[rb.Record]]]:
    """Read all batches of a topic's partition 0, and verify their checksums."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    fetch = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=1 << 24,
        topics=(FetchTopic(topic=name, partitions=(wanted,)),),
    )
    data = target.ask(fetch, 12).responses[0].partitions[0].records or b""
    found = []
    for head, view in rb.batches(data):
        rb.check(view, head)
        found.append((head, rb.records(view, head)))
    return found
