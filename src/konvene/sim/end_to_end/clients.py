"""Clients of an end-to-end run: hosts that run konvene.client, crash, pause and restart.

Each is a process with one job: a producer, an idempotent producer, a consumer, a share consumer, or an
administrator. After a `ClientError` that its library raises it starts over, as under a supervisor. Any other
exception ends the run.

`konvene.client` has no producer that is idempotent but not transactional, so the one here sends its own
requests: one batch at a time, sent again with the same sequence until it is acknowledged. After a fatal error
it drops the batch and requests a new producer id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from konvene.client.admin.admin import TOPIC, Admin
from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.consumer import Consumed, Consumer
from konvene.client.errors import ClientError, KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Produced, Producer
from konvene.client.share.consumer import ShareConsumer, ShareRecord
from konvene.codec.batches import Record, build
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.sim.end_to_end.acl_churn import ACL_ADMIN, Secured, administer_acls
from konvene.sim.end_to_end.broker import BROKER, PORT
from konvene.sim.end_to_end.history import History, Sent, recording_connector
from konvene.sim.end_to_end.secured_clients import SECURED_JOBS, run_secured
from konvene.sim.end_to_end.share_clients import SHARES, Habits, share
from konvene.sim.end_to_end.transactional_clients import TRANSACTS, transact

__all__ = ["Client", "ClientSpec", "Timeouts", "World"]

CHURNED = "churned"
"""A topic that is created and deleted again and again."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts that all clients of a run have."""

    session_ms: int = 6_000
    rebalance_ms: int = 12_000
    heartbeat_ms: int = 1_500
    request_ms: int = 8_000
    api_ms: int = 20_000
    metadata_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """The job and the settings of one client."""

    name: str
    job: str
    group: str = ""
    instance_id: str | None = None
    assignors: tuple[str, ...] = ("range",)
    topics: tuple[str, ...] = ()
    auto_commit: bool = False
    max_poll_records: int | None = None
    gap_s: float = 1.0
    acks: int = -1
    transaction_version: int = 2
    habits: Habits = field(default_factory=Habits)
    user: str = ""
    """The user that the client authenticates as."""


class World(Protocol):
    """The part of a run that its clients use: history, timeouts, topics, and callbacks for received
    records."""

    history: History
    timeouts: Timeouts
    topics: Mapping[str, int]
    faults_disabled: bool
    heartbeats: dict[str, Struct]
    """The last heartbeat of each member with a user."""

    @property
    def topic_ids(self) -> Mapping[str, Uuid]: ...

    @property
    def secured(self) -> Secured: ...

    def wall_ms(self) -> int: ...

    def read(self, client: Client, record: Consumed) -> None: ...

    def shared(self, client: Client, record: ShareRecord) -> None: ...

    def acknowledged(self, client: Client, place: TopicPartition, offsets: tuple[int, ...]) -> None: ...


class Client:
    """A simulated client process with one job, which may die and start again; `life` counts its starts."""

    def __init__(self, world: World, spec: ClientSpec, seed: int) -> None:
        self.world = world
        self.spec = spec
        self.seed = seed
        self.life = 0
        self.number = 0
        self.consumer: Consumer | None = None
        self.sharer: ShareConsumer | None = None
        self.leaving = False
        self.read_to: dict[TopicPartition, int] = {}
        self.chance = Random(0)

    def __repr__(self) -> str:
        return f"<{self.spec.job} {self.spec.name}, life {self.life}>"

    @property
    def client_id(self) -> str:
        return f"{self.spec.name}.{self.life}"

    async def live(self) -> None:
        """Begin a new life of the client and do its job until `leaving` is set; start the job over after a
        `ClientError`."""
        self.life += 1
        self.leaving = False
        self.consumer = self.sharer = None
        self.number = 0
        self.chance = Random(f"{self.seed} {self.client_id}")
        jobs: dict[str, Callable[[Cluster], Awaitable[None]]] = {
            "produce": self._produce, "once": self._produce_once, "consume": self._consume,
            "admin": self._administer, TRANSACTS: partial(transact, self), SHARES: partial(share, self),
            ACL_ADMIN: partial(administer_acls, self),
        }  # fmt: skip
        secured = SECURED_JOBS.get(self.spec.job)
        while not self.leaving:
            try:
                if secured is not None:
                    await run_secured(self, secured)
                    continue
                async with self._cluster() as cluster:
                    await jobs[self.spec.job](cluster)
            except ClientError:
                await asyncio.sleep(self.chance.uniform(0.1, 2.0))

    def _cluster(self) -> Cluster:
        t = self.world.timeouts
        settings = ClientSettings(
            client_id=self.spec.name, request_timeout_ms=t.request_ms, default_api_timeout_ms=t.api_ms,
            connect_timeout_ms=t.request_ms,
        )  # fmt: skip
        connect = recording_connector(self.world.history, self.client_id, settings)
        return Cluster([(BROKER, PORT)], settings, connect=connect)

    # --- producing ---

    def _value(self, topic: str, partition: int, *, idempotent: bool) -> bytes:
        self.number += 1
        number = self.number
        value = f"{self.client_id} {number} of {topic}-{partition}".encode()
        value += b"." * self.chance.choice((0, 0, 10, 300))
        if self.chance.random() < 0.01:
            value += b"+" * 70_000
        sent = Sent(self.client_id, number, TopicPartition(topic, partition), idempotent)
        self.world.history.sent[value] = sent
        return value

    @property
    def _should_stop(self) -> bool:
        return self.leaving or self.world.faults_disabled

    async def _produce(self, cluster: Cluster) -> None:
        t = self.world.timeouts
        producer = Producer(
            cluster, acks=self.spec.acks, request_timeout_ms=t.request_ms, delivery_timeout_ms=2 * t.api_ms,
            clock_ms=self.world.wall_ms,
        )  # fmt: skip
        while not self._should_stop:
            sending = []
            for _ in range(self.chance.randint(1, 8)):
                topic = self.chance.choice(self.spec.topics)
                partition = self.chance.randrange(self.world.topics[topic])
                value = self._value(topic, partition, idempotent=False)
                future = await producer.send(topic, value, partition=partition)
                future.add_done_callback(partial(self._send_completed, value))
                sending.append(future)
            if self.chance.random() < 0.8:
                await producer.flush()
            await asyncio.sleep(self.chance.expovariate(1.0) * self.spec.gap_s)
        await producer.flush()
        self.leaving = True

    def _send_completed(self, value: bytes, done: asyncio.Future[Produced]) -> None:
        if not done.cancelled() and done.exception() is None and done.result().offset >= 0:
            self.world.history.acknowledge(value, done.result().offset)

    async def _produce_once(self, cluster: Cluster) -> None:
        for topic in self.spec.topics:
            await cluster.topic(topic)
        answer = await cluster.ask(InitProducerIdRequest(transactional_id=None))
        if answer.error_code:
            raise KafkaError(answer.error_code, about="a producer id")
        producer = answer.producer_id, answer.producer_epoch
        sequences: dict[TopicPartition, int] = {}
        while not self._should_stop:
            topic = self.chance.choice(self.spec.topics)
            partitions = (await cluster.topic(topic)).partitions
            place = TopicPartition(topic, self.chance.randrange(len(partitions)))
            values = []
            for _ in range(self.chance.randint(1, 5)):
                values.append(self._value(*place, idempotent=True))
            await self._send_once(cluster, place, values, producer, sequences)
            await asyncio.sleep(self.chance.expovariate(1.0) * self.spec.gap_s)
        self.leaving = True

    async def _send_once(
        self, cluster: Cluster, place: TopicPartition, values: list[bytes], producer: tuple[int, int],
        sequences: dict[TopicPartition, int],
    ) -> None:  # fmt: skip
        """Send one batch of `values` to `place` as the idempotent `producer` (id, epoch), until the broker
        has it.

        `sequences` has the next sequence of each partition. The batch is sent again after a retriable error;
        any other error is raised."""
        timestamp_ms = self.world.wall_ms()
        data = build(
            [Record(i, timestamp_ms, None, value, ()) for i, value in enumerate(values)],
            producer_id=producer[0],
            producer_epoch=producer[1], base_sequence=sequences.get(place, 0),
        )  # fmt: skip
        row = PartitionProduceData(index=place.partition, records=data)
        topic_id = cluster.metadata.topics[place.topic].topic_id
        request = ProduceRequest(
            acks=-1, timeout_ms=self.world.timeouts.request_ms,
            topic_data=(TopicProduceData(name=place.topic, topic_id=topic_id, partition_data=(row,)),),
        )  # fmt: skip
        while True:
            try:
                answer = (await cluster.ask(request, node_id=1)).responses[0].partition_responses[0]
            except ClientError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.2)
                continue
            if answer.error_code in (0, Errors.DUPLICATE_SEQUENCE_NUMBER):
                break
            error_ = KafkaError(answer.error_code, about=f"writing to {place}")
            if not error_.retriable:
                raise error_
            await asyncio.sleep(0.2)
        sequences[place] = sequences.get(place, 0) + len(values)
        if answer.base_offset >= 0:
            for i, value in enumerate(values):
                self.world.history.acknowledge(value, answer.base_offset + i)

    # --- consuming ---

    async def _consume(self, cluster: Cluster) -> None:
        t, spec = self.world.timeouts, self.spec
        member = MemberSettings(
            session_timeout_ms=t.session_ms, rebalance_timeout_ms=t.rebalance_ms,
            heartbeat_interval_ms=t.heartbeat_ms, metadata_max_age_ms=t.metadata_ms,
            group_instance_id=spec.instance_id,
        )  # fmt: skip
        consumer = Consumer(
            cluster, spec.group, auto_offset_reset="earliest", auto_commit=spec.auto_commit,
            auto_commit_interval_ms=2_000, max_poll_records=spec.max_poll_records, assignors=spec.assignors,
            member=member,
        )  # fmt: skip
        self.read_to = {}
        consumer.subscribe(spec.topics, on_assigned=self.assigned)
        self.consumer = consumer
        try:
            while not self.leaving:
                records = await consumer.poll(timeout_ms=1_000)
                for record in records:
                    self.world.read(self, record)
                if records and not spec.auto_commit and self.chance.random() < 0.7:
                    await self._commit(consumer)
        finally:
            with contextlib.suppress(ClientError):
                await consumer.close()
            self.consumer = None

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for place in partitions:
            self.read_to.pop(place, None)

    async def _commit(self, consumer: Consumer) -> None:
        try:
            await consumer.commit()
        except KafkaError as error:
            outdated = (
                Errors.REBALANCE_IN_PROGRESS, Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION,
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
            )  # fmt: skip
            if error.code not in outdated and not error.retriable:
                raise

    # --- administering ---

    async def _administer(self, cluster: Cluster) -> None:
        admin = Admin(cluster)
        actions = [
            self._churn, self._churn, self._grow, self._configure, self._describe, self._offsets,
            self._remove,
        ]  # fmt: skip
        while not self._should_stop:
            await asyncio.sleep(self.chance.expovariate(1.0) * self.spec.gap_s)
            if not self._should_stop:
                await self.chance.choice(actions)(admin)
        self.leaving = True

    async def _churn(self, admin: Admin) -> None:
        try:
            if self.chance.random() < 0.5:
                await admin.create_topic(CHURNED, partitions=self.chance.randint(1, 3))
            else:
                await admin.delete_topics([CHURNED])
        except KafkaError as error:
            if error.code not in (Errors.TOPIC_ALREADY_EXISTS, Errors.UNKNOWN_TOPIC_OR_PARTITION):
                raise

    async def _grow(self, admin: Admin) -> None:
        topic = self.chance.choice(sorted(self.world.topics))
        count = len((await admin.describe_topics([topic]))[0].partitions)
        if count < 8:
            try:
                await admin.create_partitions(topic, count + 1)
            except KafkaError as error:
                if error.code != Errors.INVALID_PARTITIONS:
                    raise

    async def _configure(self, admin: Admin) -> None:
        topic = self.chance.choice(sorted(self.world.topics))
        name, value = self.chance.choice(
            (("segment.ms", "5000"), ("segment.ms", None), ("flush.messages", "1"), ("flush.messages", None),
             ("index.interval.bytes", "64"), ("max.message.bytes", "200000"))
        )  # fmt: skip
        await admin.alter_configs(TOPIC, topic, {name: value})

    async def _describe(self, admin: Admin) -> None:
        for group in (await admin.list_groups())[:3]:
            try:
                await admin.describe_group(group.group_id)
            except KafkaError as error:
                if error.code != Errors.GROUP_ID_NOT_FOUND:
                    raise

    async def _remove(self, admin: Admin) -> None:
        """Choose each group of the broker with probability 1/2, and remove a random member from it, as
        `konvene groups remove-members` does."""
        for group in await admin.list_groups():
            if self.chance.random() < 0.5:
                continue
            try:
                members = (await admin.describe_group(group.group_id)).members
                chosen = self.chance.choice(members) if members else None
                if chosen is not None and chosen.instance_id:
                    await admin.remove_members(group.group_id, instance_ids=[chosen.instance_id])
                elif chosen is not None:
                    await admin.remove_members(group.group_id, member_ids=[chosen.member_id])
            except KafkaError as error:
                if error.code not in (Errors.GROUP_ID_NOT_FOUND, Errors.UNKNOWN_MEMBER_ID):
                    raise

    async def _offsets(self, admin: Admin) -> None:
        for group in (await admin.list_groups())[:2]:
            await admin.committed_offsets(group.group_id, require_stable=True)
