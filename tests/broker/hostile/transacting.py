"""Requests of transactional producers for the hostile tests, and the error codes of their responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.broker.hostile.wire import WITHIN_S, Target

from konvene.codec.batches import build_simple
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC = "hostile-transactions"
OFFSETS = "__consumer_offsets"
FIRST, SECOND = 1, 2
"""Generations of clients: those that add partitions before they write, and those of KIP-890 (version 2)."""
PRODUCE = {FIRST: 11, SECOND: 12}
COMMIT = {FIRST: 4, SECOND: 5}
END = {FIRST: 4, SECOND: 5}
NOT_YET = (
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.NOT_COORDINATOR,
    Errors.CONCURRENT_TRANSACTIONS,
)


class Producer(NamedTuple):
    """The identity that a producer claims in its requests."""

    transactional_id: str
    producer_id: int
    epoch: int


def codes(response: Any) -> set[Errors]:
    """Return all error codes of a response, at any depth; without NONE, unless there is no other."""
    assert response is not None, "the connection was closed"
    found = {Errors(code) for code in _codes(response)}
    return (found - {Errors.NONE}) or {Errors.NONE}


def _codes(part: Any) -> Iterator[int]:
    if isinstance(part, tuple):
        for each in part:
            yield from _codes(each)
    elif isinstance(part, Struct):
        for field in part.__fields__:
            value = getattr(part, field.name)
            if field.name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from _codes(value)


def ask_until_settled(target: Target, request: Struct, version: int | None = None) -> Any:
    """Return the response, retrying while the coordinator loads or the transaction is being completed."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        response = target.ask(request, version)
        if response is None or not codes(response) & set(NOT_YET):
            return response
        assert time.monotonic() < deadline, response
        time.sleep(0.02)


def code(target: Target, request: Struct, version: int | None = None) -> str:
    """Return the name of the single error code of the response."""
    (found,) = codes(ask_until_settled(target, request, version))
    return found.name


def find(target: Target, transactional_id: str) -> None:
    """Wait until the transactional id has a coordinator."""
    ask_until_settled(target, FindCoordinatorRequest(key_type=1, coordinator_keys=(transactional_id,)))


def init(transactional_id: str | None, timeout_ms: int = 60_000, **more: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms,
        producer_id=more.get("producer_id", -1), producer_epoch=more.get("epoch", -1),
    )  # fmt: skip


def init_producer(target: Target, transactional_id: str) -> Producer:
    """Initialize a producer; return its id and epoch."""
    find(target, transactional_id)
    response = ask_until_settled(target, init(transactional_id), 5)
    assert response.error_code == 0, Errors(response.error_code)
    return Producer(transactional_id, response.producer_id, response.producer_epoch)


def add(producer: Producer, topic: str = TOPIC, partitions: tuple[int, ...] = (0,)) -> Any:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions),),
    )


def broker_addition(producer: Producer, verify_only: bool, partitions: tuple[int, ...] = (0,)) -> Any:
    """One transaction of an AddPartitionsToTxn request in the form that brokers send (KIP-890)."""
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=(AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions),),
    )


def add_offsets(producer: Producer, group_id: str = "hostile") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )


def commit(producer: Producer, group_id: str = "hostile", topic: str = TOPIC, **more: Any) -> Any:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=more.get("partition", 0),
        committed_offset=more.get("offset", 1),
        committed_metadata=more.get("metadata", ""),
    )
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id_or_member_epoch=more.get("generation", -1),
        member_id=more.get("member_id", ""),
        group_instance_id=more.get("instance_id"),
        topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )


def end(producer: Producer, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


def batch(producer: Producer, sequence: int = 0, transactional: bool = True) -> bytes:
    return build_simple(
        [(None, b"v")], int(time.time() * 1000), producer_id=producer.producer_id,
        producer_epoch=producer.epoch, base_sequence=sequence, transactional=transactional,
    )  # fmt: skip


def write(records: bytes, transactional_id: str | None, topic: str = TOPIC, partition: int = 0) -> Any:
    data = (PartitionProduceData(index=partition, records=records),)
    return ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=5000,
        topic_data=(TopicProduceData(name=topic, partition_data=data),),
    )  # fmt: skip


def marker(
    producer: Producer, topic: str = TOPIC, partitions: tuple[int, ...] = (0,), **more: Any
) -> WriteTxnMarkersRequest:
    transaction_marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=more.get("committed", True),
        coordinator_epoch=more.get("coordinator_epoch", 0),
        transaction_version=more.get("transaction_version", 0),
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=partitions),),
    )
    return WriteTxnMarkersRequest(markers=(transaction_marker,))


def end_of(target: Target, partition: int = 0, committed: bool = False) -> int:
    """Return the end offset of a partition; its last stable offset if `committed`."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed),
        topics=(ListOffsetsTopic(name=TOPIC, partitions=(wanted,)),),
    )  # fmt: skip
    return int(target.ask(request).topics[0].partitions[0].offset)
