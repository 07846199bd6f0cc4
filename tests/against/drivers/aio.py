"""The aiokafka driver; see driver.py for what it speaks.

aiokafka lives on an event loop, which runs in a thread of its own: the group is kept alive there while the
driver's main thread obeys, exactly as in an application that works on its records.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import BrokerResponseError, for_code
from aiokafka.structs import OffsetAndMetadata
from driver import (
    AdminRole,
    ConsumerRole,
    Partition,
    ProducerRole,
    Refused,
    Row,
    Unsupported,
    emit,
    octets,
    pairs,
    serve,
    text,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}

loop = asyncio.new_event_loop()


def on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def errors(error: BaseException) -> Refused | None:
    if isinstance(error, BrokerResponseError):
        return Refused(error.errno, error.message, str(error))
    return None


def raise_if(code: int, about: str | None) -> None:
    if code:
        raise for_code(code)(about)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """An access token that does not change."""

    def __init__(self, value: str) -> None:
        self.value = value

    async def token(self) -> str:
        return self.value


def own_options(command: Row) -> Row:
    """Return the library's own options of a command; `ssl_cafile` and its like become a context."""
    options = dict(command.get("options", {}))
    ca_file, certificate, key = (
        options.pop(name, None) for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
    )
    if ca_file is not None:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        options["ssl_context"] = context
    if "token" in options:
        options["sasl_oauth_token_provider"] = Token(options.pop("token"))
    return options


class AioConsumer(ConsumerRebalanceListener):
    def __init__(self, command: Row) -> None:
        if command.get("protocol", "classic") != "classic":
            raise Unsupported("the consumer protocol")
        self.most = command.get("max_poll_records", 500)
        self.consumer = on_loop(self._start(command))

    async def _start(self, command: Row) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **{"bootstrap_servers": command["bootstrap"], **own_options(command)},
            client_id=command.get("client_id", "aiokafka"),
            group_id=command.get("group"),
            group_instance_id=command.get("instance_id"),
            auto_offset_reset=command.get("offset_reset", "earliest"),
            enable_auto_commit=command.get("commit") == "auto",
            auto_commit_interval_ms=command.get("auto_commit_interval_ms", 500),
            partition_assignment_strategy=[
                ASSIGNORS[name] for name in command.get("assignor", "range").split(",")
            ],
            session_timeout_ms=command.get("session_timeout_ms", 6000),
            heartbeat_interval_ms=command.get("heartbeat_interval_ms", 500),
            max_poll_interval_ms=command.get("max_poll_interval_ms", 300_000),
            isolation_level=command.get("isolation_level", "read_uncommitted"),
            metadata_max_age_ms=command.get("metadata_max_age_ms", 300_000),
        )
        if command.get("assign"):
            consumer.assign(parts(command["assign"]))
        elif command.get("topics"):
            consumer.subscribe(command["topics"], listener=self)
        await consumer.start()
        return consumer

    def on_partitions_assigned(self, assigned: Any) -> None:
        emit("assigned", partitions=pairs(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        emit("revoked", partitions=pairs(revoked))

    def poll(self) -> list[Row]:
        found = on_loop(self.consumer.getmany(timeout_ms=100, max_records=self.most))
        return [record(message) for messages in found.values() for message in messages]

    def commit(self, offsets: dict[Partition, tuple[int, str]]) -> None:
        on_loop(
            self.consumer.commit(
                {TopicPartition(*p): OffsetAndMetadata(offset, meta) for p, (offset, meta) in offsets.items()}
            )
        )

    def committed(self, partitions: list[Partition]) -> dict[Partition, tuple[int, str | None]]:
        """Return offsets without metadata, which only aiokafka's admin client exposes."""
        found = {p: on_loop(self.consumer.committed(TopicPartition(*p))) for p in partitions}
        return {p: (-1 if offset is None else offset, None) for p, offset in found.items()}

    def position(self, partition: Partition) -> int:
        return int(on_loop(self.consumer.position(TopicPartition(*partition))))

    def seek(self, partition: Partition, offset: int) -> None:
        loop.call_soon_threadsafe(self.consumer.seek, TopicPartition(*partition), offset)

    def pause(self, partitions: list[Partition]) -> None:
        loop.call_soon_threadsafe(self.consumer.pause, *parts(partitions))

    def resume(self, partitions: list[Partition]) -> None:
        loop.call_soon_threadsafe(self.consumer.resume, *parts(partitions))

    def offsets_for_times(self, times: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        found = on_loop(self.consumer.offsets_for_times({TopicPartition(*p): at for p, at in times.items()}))
        return {
            tuple(p): (-1, -1) if row is None else (row.offset, row.timestamp) for p, row in found.items()
        }

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        part = TopicPartition(*partition)
        low = on_loop(self.consumer.beginning_offsets([part]))[part]
        return low, on_loop(self.consumer.end_offsets([part]))[part]

    def member(self) -> Row:
        coordinator = self.consumer._coordinator
        return {"member_id": coordinator.member_id, "generation": coordinator.generation}

    def close(self) -> None:
        on_loop(self.consumer.stop())


def parts(partitions: list[Partition]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in partitions]


def record(message: Any) -> Row:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": text(message.key),
        "value": text(message.value),
        "headers": [[name, text(value)] for name, value in message.headers or ()],
    }


class AioProducer:
    def __init__(self, command: Row) -> None:
        self.pending: set[asyncio.Task[None]] = set()
        self.producer = on_loop(self._start(command))

    async def _start(self, command: Row) -> AIOKafkaProducer:
        compression = command.get("compression", "none")
        producer = AIOKafkaProducer(
            **{"bootstrap_servers": command["bootstrap"], **own_options(command)},
            client_id=command.get("client_id", "aiokafka"),
            acks="all",
            enable_idempotence=bool(command.get("idempotence") or command.get("transactional_id")),
            transactional_id=command.get("transactional_id"),
            transaction_timeout_ms=command.get("transaction_timeout_ms", 60_000),
            compression_type=None if compression == "none" else compression,
            linger_ms=command.get("linger_ms", 5),
            metadata_max_age_ms=command.get("metadata_max_age_ms", 300_000),
        )
        await producer.start()
        return producer

    def send(self, record: Row, on_result: Callable[[list[Any] | None, Exception | None], None]) -> None:
        """Appended to its batch before this returns, so that records keep the order they are sent in."""
        delivery = on_loop(
            self.producer.send(
                record["topic"],
                key=octets(record.get("key")),
                value=octets(record.get("value")),
                headers=[(name, octets(value)) for name, value in record.get("headers", ())],
                partition=record.get("partition"),
                timestamp_ms=record.get("timestamp"),
            )
        )

        async def deliver() -> None:
            try:
                done = await delivery
            except Exception as error:
                on_result(None, error)
            else:
                on_result([done.topic, done.partition, done.offset, done.timestamp], None)

        async def start() -> None:
            task = loop.create_task(deliver())
            self.pending.add(task)
            task.add_done_callback(self.pending.discard)

        on_loop(start())

    def turn(self) -> None:
        pass

    def flush(self) -> None:
        on_loop(self._flush())

    async def _flush(self) -> None:
        await self.producer.flush()
        await asyncio.gather(*self.pending)

    def init(self) -> None:
        """It has done so when it started."""

    def begin(self) -> None:
        on_loop(self.producer.begin_transaction())

    def send_offsets(self, offsets: dict[Partition, tuple[int, str]], group: Row) -> None:
        rows = {TopicPartition(*at): OffsetAndMetadata(*row) for at, row in offsets.items()}
        on_loop(self.producer.send_offsets_to_transaction(rows, group["group"]))

    def commit(self) -> None:
        on_loop(self.producer.commit_transaction())

    def abort(self) -> None:
        on_loop(self.producer.abort_transaction())

    def close(self) -> None:
        on_loop(self.producer.stop())


class AioAdmin:
    def __init__(self, command: Row) -> None:
        self.admin = on_loop(self._start(command))

    async def _start(self, command: Row) -> AIOKafkaAdminClient:
        settings = {"bootstrap_servers": command["bootstrap"], "request_timeout_ms": 20_000}
        admin = AIOKafkaAdminClient(**settings | own_options(command))
        await admin.start()
        return admin

    def create_topics(self, topics: list[Row]) -> None:
        new = [
            NewTopic(
                name=t["name"],
                num_partitions=t["partitions"],
                replication_factor=1,
                topic_configs=t.get("configs", {}),
            )
            for t in topics
        ]
        for name, code, *about in on_loop(self.admin.create_topics(new)).topic_errors:
            raise_if(code, about[0] if about else name)

    def delete_topics(self, topics: list[str]) -> None:
        for name, code, *_ in on_loop(self.admin.delete_topics(topics)).topic_error_codes:
            raise_if(code, name)

    def list_topics(self) -> list[str]:
        return list(on_loop(self.admin.list_topics()))

    def describe_topics(self, topics: list[str]) -> Row:
        found = on_loop(self.admin.describe_topics(topics))
        for topic in found:
            raise_if(topic["error_code"], topic["topic"])
        return {topic["topic"]: {"partitions": len(topic["partitions"])} for topic in found}

    def create_partitions(self, topic: str, count: int) -> None:
        on_loop(self.admin.create_partitions({topic: NewPartitions(count)}))

    def describe_configs(self, topic: str) -> Row:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [response] = on_loop(self.admin.describe_configs([resource]))
        [(code, about, _kind, _name, entries)] = response.resources
        raise_if(code, about)
        return {entry[0]: entry[1] for entry in entries}

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        [response] = on_loop(
            self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        )
        for code, about, *_ in response.resources:
            raise_if(code, about)

    def list_groups(self) -> list[Row]:
        return [
            {"group": group, "protocol_type": kind, "state": None, "type": None}
            for group, kind, *_ in on_loop(self.admin.list_consumer_groups())
        ]

    def describe_groups(self, groups: list[str]) -> Row:
        on_result = {}
        for response in on_loop(self.admin.describe_consumer_groups(groups)):
            for code, group, state, _kind, assignor, members, *_ in response.groups:
                raise_if(code, group)
                on_result[group] = {
                    "state": state,
                    "assignor": assignor,
                    "members": [member(m) for m in members],
                }
        return on_result

    def group_offsets(self, group: str) -> list[list[Any]]:
        found = on_loop(self.admin.list_consumer_group_offsets(group))
        return sorted([*partition, row.offset, row.metadata] for partition, row in found.items())

    def delete_records(self, offsets: list[list[Any]]) -> list[list[Any]]:
        wanted = {TopicPartition(t, p): RecordsToDelete(before_offset=offset) for t, p, offset, *_ in offsets}
        return sorted(
            [*partition, low] for partition, low in on_loop(self.admin.delete_records(wanted)).items()
        )

    def describe_cluster(self) -> Row:
        cluster = on_loop(self.admin.describe_cluster())
        return {
            "cluster_id": cluster.get("cluster_id"),
            "brokers": [[b["node_id"], b["host"], b["port"]] for b in cluster["brokers"]],
        }

    def close(self) -> None:
        on_loop(self.admin.close())


def member(row: tuple[Any, ...]) -> Row:
    member_id, client_id, host, _metadata, assignment, *_ = row
    assigned = ConsumerProtocolMemberAssignment.decode(assignment).partitions() if assignment else ()
    return {
        "member_id": member_id,
        "client_id": client_id,
        "instance_id": None,
        "host": host,
        "partitions": pairs(assigned),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    serve(
        "aiokafka",
        {
            "consumer": lambda command: ConsumerRole(AioConsumer(command), command, errors),
            "producer": lambda command: ProducerRole(AioProducer(command), errors),
            "admin": lambda command: AdminRole(AioAdmin(command)),
        },
        errors,
    )
