"""Clients of an end-to-end run that consume, transform and produce in transactions, and their invariants.

A client writes one output record per record that it reads, and commits its offsets in the same transaction of
`konvene.client`. After an aborted transaction it seeks back to where the transaction began. It keeps its
transactional id over all its lives, so that a restarted client fences its predecessor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from konvene.broker.broker import Broker
from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.consumer import Consumed, Consumer
from konvene.client.errors import ClientError, TransactionFailed
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.producer.transaction_state import State
from konvene.client.producer.transactional import TransactionalProducer
from konvene.codec.batches import read_end_marker, records
from konvene.sim.end_to_end.broker import DATA
from konvene.sim.end_to_end.invariant import Invariant
from konvene.sim.end_to_end.mirror import LogReader
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import AT_REST

if TYPE_CHECKING:
    from konvene.sim.end_to_end.clients import Client

__all__ = ["OUTPUT", "PARTITIONS", "TRANSACTS", "CompletedTransactionsAreClosed", "ExactlyOnce", "transact"]

OUTPUT = "output"
TRANSACTS = "transact"
"""The job of a client that consumes, transforms and produces in transactions."""
PARTITIONS = 2


async def transact(client: Client, cluster: Cluster) -> None:
    """Consume, transform and produce in transactions until the client is to leave."""
    t, spec = client.world.timeouts, client.spec
    member = MemberSettings(
        session_timeout_ms=t.session_ms, rebalance_timeout_ms=t.rebalance_ms,
        heartbeat_interval_ms=t.heartbeat_ms, metadata_max_age_ms=t.metadata_ms,
        group_instance_id=spec.instance_id,
    )  # fmt: skip
    consumer = Consumer(
        cluster, spec.group, auto_offset_reset="earliest", auto_commit=False,
        max_poll_records=spec.max_poll_records, assignors=spec.assignors, member=member,
    )  # fmt: skip
    producer = TransactionalProducer(
        cluster, f"x-{spec.name}", transaction_timeout_ms=2 * t.session_ms,
        transaction_version=spec.transaction_version, request_timeout_ms=t.request_ms,
        delivery_timeout_ms=2 * t.api_ms, clock_ms=client.world.wall_ms,
    )  # fmt: skip
    await producer.init_transactions()
    client.read_to = {}
    consumer.subscribe(spec.topics, on_assigned=client.assigned)
    client.consumer = consumer
    try:
        while not client.leaving:
            found = await consumer.poll(timeout_ms=1_000)
            for record in found:
                client.world.read(client, record)
            if found and not await _transaction(client, consumer, producer, found):
                _seek_back(client, consumer, found)
    finally:
        with contextlib.suppress(ClientError):
            await consumer.close()
        client.consumer = None
    with contextlib.suppress(ClientError):
        await producer.close()


async def _transaction(
    client: Client, consumer: Consumer, producer: TransactionalProducer, found: Sequence[Consumed]
) -> bool:
    """Write an output record for each record of `found`, and commit the offsets of `found`, in one
    transaction.

    Return True if the transaction was committed, False if it was aborted, which also happens at random.
    Raises `ClientError` if the producer is unusable or the result is unknown."""
    offsets = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in found}
    producer.begin_transaction()
    try:
        for record in found:
            value = f"{client.spec.group} {record.topic} {record.partition} {record.offset}".encode()
            await producer.send(OUTPUT, value, partition=record.partition % PARTITIONS)
        await producer.flush()
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if client.chance.random() > 0.1:
            await producer.commit_transaction()
            return True
    except TransactionFailed:
        pass
    except ClientError:
        if producer.state is not State.ABORTABLE_ERROR:
            raise
    await producer.abort_transaction()
    return False


def _seek_back(client: Client, consumer: Consumer, found: Sequence[Consumed]) -> None:
    first: dict[TopicPartition, int] = {}
    for record in found:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for place, offset in first.items():
        if place in consumer.positions:
            consumer.seek(place, offset)
            client.read_to.pop(place, None)


class ExactlyOnce(Invariant):
    """For each record that was read in transactions there is one committed record in the output."""

    def _committed(self) -> dict[bytes, int]:
        """Return how often each value occurs in committed transactions of the output topic."""
        counts: dict[bytes, int] = {}
        for index in range(PARTITIONS):
            open_values: dict[int, list[bytes]] = {}
            for header, batch in LogReader(self.run.host.disk, f"{DATA}/{OUTPUT}-{index}").new_batches():
                if not header.is_control:
                    values = [record.value or b"" for record in records(batch, header)]
                    open_values.setdefault(header.producer_id, []).extend(values)
                    continue
                marker = next(map(read_end_marker, records(batch, header)), None)
                values = open_values.pop(header.producer_id, [])
                for value in values if marker is not None and marker.committed else ():
                    counts[value] = counts.get(value, 0) + 1
        return counts

    def settled(self) -> None:
        """Check, at every 40th check of the run, that no value occurs twice in committed transactions of the
        output topic."""
        if self.run.parameters.transactors and self.run.checks % 40 == 0 and not self.run.host.disk.dead:
            self._at_most_once()

    def _at_most_once(self) -> dict[bytes, int]:
        counts = self._committed()
        for value, count in counts.items():
            if count > 1 and not self.run.may_lose_records:
                self.broken(f"{value!r} occurs {count} times in the output")
        return counts

    def liveness(self) -> None:
        if not self.run.parameters.transactors or self.run.may_lose_records:
            return
        counts = self._at_most_once()
        groups = {c.group: c.topics for c in self.run.parameters.clients if c.job == TRANSACTS}
        for group, topics in sorted(groups.items()):
            for place in self.run.places(topics):
                for offset in range(self.run.mirror.end(place)):
                    value = f"{group} {place.topic} {place.partition} {offset}".encode()
                    if value not in counts:
                        self.broken(f"{group} read {place} offset {offset}, which is missing in the output")


class CompletedTransactionsAreClosed(Invariant):
    """After all clients left and transactions timed out, no transaction is open in a coordinator or
    partition, and no offset is pending."""

    def ended(self) -> None:
        broker = self.run.host.broker
        if not self.run.parameters.transactors or broker is None:
            return
        remaining = [f"{t!r}" for shard in _shards(broker) for t in shard.transactions.values()
                if t.state not in AT_REST]  # fmt: skip
        remaining += [
            f"producer {producer_id} in {partition}"
            for partition in broker.partitions
            for producer_id, state in partition.log.producers.by_id.items()
            if state.transaction_start is not None
        ]
        remaining += [f"{p} in __consumer_offsets-{i}" for i, shard in self.run.shards()
                 for p in shard.pending.by_producer]  # fmt: skip
        if remaining:
            self.broken("; ".join(remaining[:5]))


def _shards(broker: Broker) -> list[TransactionShard]:
    return [c.core for c in broker.transactions.all() if isinstance(c.core, TransactionShard)]
