"""A group's shard and its log as bytes, with producers that commit offsets in transactions.

Decisions are appended as a broker appends them: a transaction's records as a batch of its producer, its end
as a marker. `restart` reads the bytes as a broker does; `compacted` returns what Kafka's cleaner leaves.
"""

from __future__ import annotations

from typing import Any

from tests.groups.asking import commit_request, fetch_request

from konvene.broker.groups.record_serde import read
from konvene.codec import batches as rb
from konvene.codec.compile import decode, encode
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.groups.shard import GroupShard
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.records.commits import encode_group_record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Context, Ending, Outcome
from konvene.shard.errors import Refusal
from konvene.shard.image import Topic, Topics

ORDERS = Uuid(b"orders".ljust(16, b"-"))
TOPICS = Topics([Topic("orders", ORDERS, 6), Topic("audit", Uuid(b"audit".ljust(16, b"-")), 2)])

Batches = list[tuple[rb.BatchHeader, memoryview]]

UNSTABLE = "unstable"


def txn_commit_request(
    offset: int = 7,
    producer: int = 1,
    *,
    epoch: int = 0,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    partitions: tuple[int, ...] = (0,),
    group_id: str = "g",
    metadata: str = "",
    topic: str = "orders",
    topic_id: Uuid = ORDERS,
) -> TxnOffsetCommitRequest:
    rows = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=p, committed_offset=offset, committed_metadata=metadata
        )
        for p in partitions
    )
    return TxnOffsetCommitRequest(
        transactional_id=f"producer-{producer}",
        group_id=group_id,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=rows),),
    )


def compacted(log: Batches) -> Batches:
    """Return what Kafka's cleaner leaves: up to the first open transaction, the last committed record of each
    key, and no aborted records. Batches and markers keep their offsets."""
    ends: dict[int, list[tuple[int, bool]]] = {}
    for header, batch in log:
        for marker in map(rb.read_end_marker, rb.records(batch, header) if header.is_control else ()):
            if marker is not None:
                ends.setdefault(header.producer_id, []).append((header.base_offset, marker.committed))

    def end_of(header: rb.BatchHeader) -> bool | None:
        behind = [c for at, c in ends.get(header.producer_id, ()) if at > header.base_offset]
        return behind[0] if behind else None

    stable = next((at for at, (h, _) in enumerate(log) if _in_transaction(h) and end_of(h) is None), len(log))
    cleaned = [(h, b) for h, b in log[:stable] if not h.is_control and (not h.is_transactional or end_of(h))]
    last = {record.key: record.offset for header, batch in cleaned for record in rb.records(batch, header)}
    out: Batches = []
    for header, batch in log[:stable]:
        if header.is_control:
            out.append((header, batch))
            continue
        if header.is_transactional and not end_of(header):
            continue
        kept = [record for record in rb.records(batch, header) if last[record.key] == record.offset]
        if kept:
            data = rb.build(
                kept, base_offset=header.base_offset, last_offset=header.last_offset,
                producer_id=header.producer_id, producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
            )  # fmt: skip
            out.append((rb.read_header(data), memoryview(data)))
    return out + log[stable:]


def _in_transaction(header: rb.BatchHeader) -> bool:
    return header.is_transactional and not header.is_control


def shard_of(log: Batches) -> GroupShard:
    """Return the shard that a coordinator has after it has read a log."""
    shard = GroupShard()
    for header, batch in log:
        for _, _, record in read(batch, header):
            shard.replay(record)
    return shard


class TransactionalHarness:
    """A `GroupShard` with a transactional log, a clock and topics."""

    def __init__(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.config, _ = BrokerConfig.load(overrides=list(named.items()))
        self.shard = GroupShard()
        self.log: Batches = []
        self.end_offset = 0
        self.now_ms = 1_000_000
        self.topics = TOPICS
        self.last = Outcome()

    def context(self, version: int = 0) -> Context:
        return Context(
            self.now_ms, self.config, 1, version, "someone", "/127.0.0.1", ("fresh",), self.topics,
            GroupConfigs(self.config), OFFERED,
        )  # fmt: skip

    # --- requests ---

    def ask(self, request: Any, version: int = 0) -> Any:
        """Return the response, or the error of a refusal; requests are encoded and decoded."""
        if not isinstance(request, Ending):
            request = decode(type(request), version, encode(request, version))
        try:
            outcome = self.shard.handle(request, self.context(version))
        except Refusal as refused:
            return refused.error
        self.apply(outcome)
        return outcome.replies[0].response

    def apply(self, outcome: Outcome) -> None:
        self.last = outcome
        producer, ending = outcome.producer, outcome.ending
        if outcome.records:
            self._append(
                rb.build_simple(
                    [encode_group_record(record) for record in outcome.records],
                    self.now_ms,
                    base_offset=self.end_offset,
                    producer_id=-1 if producer is None else producer.producer_id,
                    producer_epoch=-1 if producer is None else producer.epoch,
                    transactional=producer is not None,
                )
            )
        for record in outcome.records:
            self.shard.replay(record if producer is None else InTransaction(producer.producer_id, record))
        if ending is not None:
            self._append(
                rb.end_marker(
                    ending.committed,
                    producer_id=ending.producer_id,
                    producer_epoch=ending.producer_epoch,
                    coordinator_epoch=ending.coordinator_epoch,
                    timestamp_ms=self.now_ms,
                    base_offset=self.end_offset,
                )
            )
            self.shard.replay(TransactionEnded(ending.producer_id, ending.committed))
        for record in outcome.soft_records:
            self.shard.replay(record)

    def _append(self, data: bytes) -> None:
        header = rb.read_header(data)
        self.log.append((header, memoryview(data)))
        self.end_offset = header.next_offset

    def commit(self, offset: int, producer: int | None = None, version: int = 5, **more: Any) -> Errors:
        """Commit an offset for group g, in a transaction if a producer is given; return the error."""
        if producer is None:
            response = self.ask(commit_request(offset, **more), 8)
        else:
            response = self.ask(txn_commit_request(offset, producer, **more), version)
        if isinstance(response, Errors):
            return response
        return Errors(response.topics[-1].partitions[-1].error_code)

    def end_transaction(self, producer: int, committed: bool = True) -> None:
        self.ask(Ending(producer, 0, 0, committed))

    def fetch_offset(self, partition: int = 0, *, stable: bool = False, group_id: str = "g") -> int | str:
        """Return the committed offset, or `UNSTABLE`."""
        response = self.ask(fetch_request((partition,), group_id, stable=stable), 9)
        row = response.groups[0].topics[0].partitions[0]
        assert row.error_code in (Errors.NONE, Errors.UNSTABLE_OFFSET_COMMIT)
        return UNSTABLE if row.error_code else int(row.committed_offset)

    def delete_offsets(self, *partitions: int, topic: str = "orders") -> list[int]:
        """Send an OffsetDelete for group g; return its errors."""
        rows = tuple(OffsetDeleteRequestPartition(partition_index=p) for p in partitions)
        topics = (OffsetDeleteRequestTopic(name=topic, partitions=rows),)
        response = self.ask(OffsetDeleteRequest(group_id="g", topics=topics))
        return [p.error_code for t in response.topics for p in t.partitions]

    def delete_group(self, group_id: str = "g") -> Errors:
        response = self.ask(DeleteGroupsRequest(groups_names=(group_id,)), 2)
        return Errors(response.results[0].error_code)

    def delete_topic(self, name: str, topic_id: Uuid = ZERO_UUID) -> None:
        """Delete a topic, and notify the group coordinator."""
        deletion = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=topic_id),))
        self.apply(self.shard.handle(deletion, self.context()))

    def expire_offsets(self) -> None:
        """Fire the timer that expires old offsets."""
        self.apply(self.shard.expire(RETENTION, self.context()))

    # --- its log ---

    def state(self) -> Any:
        return self.shard.groups, self.shard.offsets, self.shard.pending.by_group

    def restart(self) -> None:
        """Restart the process from the log; its state must be unchanged."""
        before = self.state()
        self.shard = shard_of(self.log)
        assert self.state() == before
        self.shard.load(self.context())
