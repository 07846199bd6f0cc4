"""Consumer offsets in a transaction: requests and responses of AddOffsetsToTxn and TxnOffsetCommit.

In the first generation of the protocol the producer adds the group to the transaction (AddOffsetsToTxn), then
sends the offsets to the group coordinator (TxnOffsetCommit). In the second, the group coordinator adds the
group. The generation follows from the TxnOffsetCommit version, as in Kafka's client: up to 4, or above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from konvene.client.admin.groups import CommittedOffset
from konvene.client.errors import is_retriable
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.connection import Connection
from konvene.client.producer.transaction_state import TransactionState
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID
from konvene.messages import BY_NAME
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

__all__ = ["ConsumerGroupMetadata", "add_offsets", "answered", "commit_offsets", "first_error"]

_NEWEST_OF_FIRST, _NEWEST_BY_NAME = 4, 5

Offsets = Mapping[TopicPartition, int | CommittedOffset]


class ConsumerGroupMetadata(NamedTuple):
    """Identity of the consumer whose offsets are committed, so that a removed member is rejected.

    `Consumer.group_metadata()` returns it. `generation_id` is the member epoch in a consumer group."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def add_offsets(transaction: TransactionState, group_id: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        group_id=group_id,
    )


def commit_offsets(
    cluster: Cluster, transaction: TransactionState, group: ConsumerGroupMetadata, offsets: Offsets
) -> Callable[[Connection], tuple[Struct, int]]:
    """Return a function that builds the TxnOffsetCommit request for a connection.

    Topics are given by id if all ids are known, else by name."""
    known = cluster.metadata.topics
    ids = {tp.topic: known[tp.topic].topic_id if tp.topic in known else ZERO_UUID for tp in offsets}
    request = TxnOffsetCommitRequest(
        transactional_id=transaction.transactional_id,
        group_id=group.group_id,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=tuple(_row(tp, offsets[tp]) for tp in sorted(offsets) if tp.topic == topic),
            )
            for topic, topic_id in sorted(ids.items())
        ),
    )

    def speak(connection: Connection) -> tuple[Struct, int]:
        version = connection.version_of(BY_NAME["TxnOffsetCommit"].key)
        if transaction.adds_partitions:
            version = min(version, _NEWEST_OF_FIRST)
        elif ZERO_UUID in ids.values():
            version = min(version, _NEWEST_BY_NAME)
        return request, version

    return speak


def answered(names: Mapping[bytes, str], response: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """Return the error code of each partition. `names` are topic names by id when the request was sent."""
    return {
        TopicPartition(t.name or names.get(bytes(t.topic_id), ""), p.partition_index): p.error_code
        for t in response.topics
        for p in t.partitions
    }


def first_error(response: TxnOffsetCommitResponse) -> int:
    """Return the first error code that no retry can resolve, else the first retriable one, else 0."""
    codes = [p.error_code for t in response.topics for p in t.partitions if p.error_code]
    return next((code for code in codes if not is_retriable(code)), codes[0] if codes else 0)


def _row(tp: TopicPartition, at: int | CommittedOffset) -> TxnOffsetCommitRequestPartition:
    committed = at if isinstance(at, CommittedOffset) else CommittedOffset(at, -1, "")
    return TxnOffsetCommitRequestPartition(
        partition_index=tp.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )
