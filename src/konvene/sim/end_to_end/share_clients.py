"""Share consumers (KIP-932) of an end-to-end run: how they are drawn, and what they do.

A client is `konvene.client`'s `ShareConsumer`, with implicit or explicit acknowledgement. It accepts,
releases, rejects or renews records, sleeps past its locks, and leaves with undecided records; some poison
records it always releases, until they are archived. In the liveness phase it accepts all others.

Its invariants are in `share_invariants`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from konvene.client.errors import ClientError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.share.consumer import AcknowledgeType, FetchTerms, ShareConsumer, ShareRecord
from konvene.codec.uuid import Uuid
from konvene.sim.end_to_end.transactional_clients import OUTPUT

if TYPE_CHECKING:
    from konvene.sim.end_to_end.clients import Client

__all__ = ["DEAD_LETTERS", "SHARES", "Habits", "Shared", "draw_shared", "share"]

SHARES = "share"
"""The job of a client that is a share consumer."""
DEAD_LETTERS = "dlq.lost"
POISON_REMAINDER, POISON_MODULUS = 5, 11
"""Poison records: those with this remainder of the offset are always released explicitly."""

KINDS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)


@dataclass(frozen=True, slots=True)
class Habits:
    """The drawn habits of a share consumer: how it processes and acknowledges records."""

    explicit: bool = False
    terms: FetchTerms = field(default_factory=FetchTerms)
    weights: tuple[int, ...] = (12, 2, 1, 1)
    """Relative frequency of each of `KINDS`."""
    work_s: float = 0.1
    """Mean time to process the records of a poll, if it takes any."""
    stalls: float = 0.0
    """Probability that it sleeps past its locks after a poll."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The share groups of a run: their settings, topics and members, as drawn from the seed."""

    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings by group."""
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topics by group."""
    habits: Mapping[str, Habits] = field(default_factory=dict)
    """Habits by client."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker."""
    members: Mapping[str, str] = field(default_factory=dict)
    """Group by client."""


# --- what is drawn -------------------------------------------------------------------------------


def draw_shared(
    chance: Random, topics: tuple[str, ...], session_ms: int, *, transactions: bool = False
) -> Shared:
    """Draw the share groups of a run.

    If the run has transactional clients, some groups read their output."""
    groups: dict[str, dict[str, str]] = {}
    reads: dict[str, tuple[str, ...]] = {}
    habits: dict[str, Habits] = {}
    members: dict[str, str] = {}
    for g in range(chance.randint(1, 2)):
        group = f"sharers-{g + 1}"
        groups[group] = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": chance.choice(("read_committed", "read_uncommitted")),
        }
        if chance.random() < 0.3:
            groups[group]["errors.deadletterqueue.topic.name"] = DEAD_LETTERS
        group_topics = topics if chance.random() < 0.7 else topics[:1]
        reads[group] = (*group_topics, OUTPUT) if transactions and chance.random() < 0.7 else group_topics
        for m in range(chance.randint(1, 3)):
            name = f"sharer-{g + 1}-{m + 1}"
            habits[name], members[name] = _habits(chance), group
    return Shared(groups, reads, habits, _settings(chance, session_ms), members)


def _habits(chance: Random) -> Habits:
    max_wait_ms = chance.choice((100, 500, 500, 5_000))
    max_records = chance.choice((1, 5, 500))
    may_wait = max_records > 5 and max_wait_ms <= 500  # Others would get too few records.
    return Habits(
        explicit=chance.random() < 0.7,
        terms=FetchTerms(
            max_wait_ms=max_wait_ms, min_bytes=chance.choice((1, 2_000)) if may_wait else 1,
            max_records=max_records, record_limit=chance.random() < 0.4,
        ),
        weights=chance.choice(((12, 2, 1, 1), (4, 4, 1, 1), (20, 1, 1, 6))),
        work_s=chance.choice((0.0, 0.1, 1.0)),
        stalls=chance.choice((0.0, 0.05, 0.2)),
    )  # fmt: skip


def _settings(chance: Random, session_ms: int) -> dict[str, str]:
    """Draw the broker configs for share groups.

    The lower limits of session timeout, heartbeat interval and lock duration are below Kafka's defaults."""
    settings = {
        "group.share.min.session.timeout.ms": 1_000,
        "group.share.session.timeout.ms": session_ms,
        "group.share.min.heartbeat.interval.ms": 500,
        "group.share.heartbeat.interval.ms": session_ms // 4,
        "group.share.assignment.interval.ms": chance.choice((0, 1_000)),
        "group.share.assignors": chance.choice(("simple", "spread")),
        "group.share.initialize.retry.interval.ms": chance.choice((2_000, 30_000)),
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": chance.choice((1_000, 3_000, 10_000)),
        "group.share.delivery.count.limit": chance.choice((2, 3, 5, 10)),
        "group.share.partition.max.record.locks": chance.choice((100, 2_000)),
        "share.coordinator.state.topic.num.partitions": chance.randint(1, 3),
        "share.coordinator.state.topic.prune.interval.ms": chance.choice((3_000, 300_000)),
        "share.coordinator.cold.partition.snapshot.interval.ms": chance.choice((3_000, 300_000)),
        "share.coordinator.snapshot.update.records.per.snapshot": chance.choice((0, 3, 500)),
        "share.coordinator.write.timeout.ms": chance.choice((1_000, 5_000)),
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    return {name: str(value) for name, value in settings.items()}


# --- what they do --------------------------------------------------------------------------------


async def share(client: Client, cluster: Cluster) -> None:
    """Read and acknowledge records as a share consumer until the client is to leave."""
    spec = client.spec

    async def acknowledged(
        place: TopicPartition, offsets: tuple[int, ...], error: ClientError | None
    ) -> None:
        if error is None:
            client.world.acknowledged(client, place, offsets)

    consumer = ShareConsumer(
        cluster, spec.group, explicit=spec.habits.explicit, terms=spec.habits.terms,
        member_id=str(Uuid(client.chance.randbytes(16))), on_acknowledged=acknowledged,
    )  # fmt: skip
    consumer.subscribe(spec.topics)
    client.sharer = consumer
    try:
        while not client.leaving:
            found = await consumer.poll(timeout_ms=1_000)
            for record in found:
                client.world.shared(client, record)
            if found:
                await _work(client, consumer, found)
    finally:
        with contextlib.suppress(ClientError):
            await consumer.close()
        client.sharer = None


async def _work(client: Client, consumer: ShareConsumer, found: Sequence[ShareRecord]) -> None:
    """Process the records of one poll, which takes a drawn time, then acknowledge them; a client that is
    about to leave may end without acknowledging them."""
    habits, chance, faults_disabled = client.spec.habits, client.chance, client.world.faults_disabled
    if not faults_disabled:
        if habits.work_s and chance.random() < 0.5:
            await asyncio.sleep(chance.expovariate(1.0) * habits.work_s)
        if chance.random() < habits.stalls:
            await asyncio.sleep(chance.uniform(0.9, 1.5) * (consumer.lock_ms or 1_000) / 1000)
        if client.leaving and chance.random() < 0.5:
            return
    if habits.explicit:
        for record in found:
            consumer.acknowledge(record, _decide(client, record))
    choice = chance.random()
    if choice < 0.4:
        await consumer.commit()
    elif choice < 0.6:
        consumer.commit_soon()


def _decide(client: Client, record: ShareRecord) -> AcknowledgeType:
    if record.offset % POISON_MODULUS == POISON_REMAINDER:
        return AcknowledgeType.RELEASE
    if client.world.faults_disabled:
        return AcknowledgeType.ACCEPT
    return client.chance.choices(KINDS, client.spec.habits.weights)[0]
