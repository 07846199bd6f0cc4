"""A client that commits a group's offsets in transactions, without being a member.

Other clients commit for the same group without transactions: it races their commits, expiry and deletion. Its
offsets have no meaning; the only requirement is that all or none of a transaction's offsets become visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from konvene.sim.members.simple import OWN_GROUP
from konvene.sim.transactions.producer import Producer
from konvene.sim.world.process import Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World

INTERVAL_MS = 5_000


class Committer(Process):
    """A transactional client that commits arbitrary offsets for a group without members."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.producer: Producer | None = None

    def start(self) -> None:
        super().start()
        self.producer = Producer(self, f"x-{self.name}", self._fenced)
        self.schedule(0, self.producer.play, self.producer.begin())
        self.schedule(INTERVAL_MS, self._tick)

    def _fenced(self, error: Errors) -> None:
        if self.alive:
            self.die()
            self.start()

    def _tick(self) -> None:
        random, producer = self.world.random, self.producer
        self.schedule(random.randint(1, INTERVAL_MS), self._tick)
        topic = random.choice(list(self.world.topics.by_name.values()))
        if producer is None or not producer.is_ready:
            return
        label = f"plain-{producer.label()}"
        partitions = tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=random.randint(0, 1_000), committed_metadata=label
            )
            for index in sorted(random.sample(range(topic.partitions + 1), min(topic.partitions + 1, 2)))
        )
        request = TxnOffsetCommitRequest(
            group_id=OWN_GROUP, topics=(TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions),)
        )
        producer.play(producer.transaction({}, request, self._transaction_ended))

    def _transaction_ended(self, error: Errors | None) -> None:
        """Sometimes send another EndTxn, which requests the opposite of the transaction's result."""
        producer = self.producer
        if producer is not None and self.world.random.random() < 0.2 and not self.world.faults_disabled:
            self.schedule(1, self._send_opposite_end, error is not Errors.NONE)

    def _send_opposite_end(self, committed: bool) -> None:
        producer = self.producer
        if producer is None or not producer.is_ready or not producer.is_old:
            return
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        self.send(request, 4, lambda answer: None)
