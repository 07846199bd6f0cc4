"""The confluent-kafka driver (librdkafka); see driver.py for what it speaks."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_copier import ConfluentCopier
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_STORED,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from confluent_options import own_options
from confluent_sharer import ConfluentSharer
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

TIMEOUT_S = 20


def errors(error: BaseException) -> Refused | None:
    if not isinstance(error, KafkaException):
        return None
    cause = error.args[0]
    if not isinstance(cause, KafkaError):
        return Refused(None, "KafkaException", str(error))
    # librdkafka's own errors are negative, except -1, which is Kafka's UNKNOWN_SERVER_ERROR.
    return Refused(cause.code() if cause.code() >= -1 else None, cause.name().lstrip("_"), cause.str())


def parts(partitions: list[Partition]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in partitions]


class ConfluentConsumer:
    def __init__(self, command: Row) -> None:
        settings = {
            "bootstrap.servers": command["bootstrap"],
            "client.id": command.get("client_id", "confluent"),
            "group.id": command.get("group", "none"),
            "auto.offset.reset": command.get("offset_reset", "earliest"),
            "enable.auto.commit": command.get("commit") == "auto",
            "auto.commit.interval.ms": command.get("auto_commit_interval_ms", 500),
            "isolation.level": command.get("isolation_level", "read_uncommitted"),
            "topic.metadata.refresh.interval.ms": command.get("metadata_max_age_ms", 300_000),
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 5,
        }
        self.waiting: deque[Callable[[Exception | None], None]] = deque()
        if command.get("commit") == "async":
            settings["on_commit"] = self._committed
        if command.get("instance_id"):
            settings["group.instance.id"] = command["instance_id"]
        settings["group.protocol"] = command.get("protocol", "classic")
        if settings["group.protocol"] == "classic":
            settings["partition.assignment.strategy"] = command.get("assignor", "range")
            settings["session.timeout.ms"] = command.get("session_timeout_ms", 6000)
            settings["heartbeat.interval.ms"] = command.get("heartbeat_interval_ms", 500)
        settings["max.poll.interval.ms"] = max(
            command.get("max_poll_interval_ms", 300_000), command.get("session_timeout_ms", 6000)
        )
        if command.get("remote_assignor"):
            settings["group.remote.assignor"] = command["remote_assignor"]
        settings |= own_options(command)
        self.most = command.get("max_poll_records", 500)
        self.consumer = Consumer(settings)
        if command.get("assign"):
            # In a group it begins at what the group committed, like other libraries; else at the start.
            begin = OFFSET_STORED if command.get("group") else OFFSET_BEGINNING
            self.consumer.assign(
                [TopicPartition(topic, partition, begin) for topic, partition in command["assign"]]
            )
        elif command.get("topics") or command.get("pattern"):
            self.subscribe(command.get("topics") or [command["pattern"]])

    def subscribe(self, topics: list[str]) -> None:
        """A name that begins with ^ is a pattern."""
        self.consumer.subscribe(
            topics,
            on_assign=emit_partitions("assigned"),
            on_revoke=emit_partitions("revoked"),
            on_lost=emit_partitions("lost"),
        )

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def poll(self) -> list[Row]:
        messages = []
        message = self.consumer.poll(0.1)
        while message is not None:
            messages.append(message)
            message = self.consumer.poll(0) if len(messages) < self.most else None
        return [row for row in map(record, messages) if row is not None]

    def commit(self, offsets: dict[Partition, tuple[int, str]]) -> None:
        rows = [TopicPartition(t, p, offset, meta) for (t, p), (offset, meta) in offsets.items()]
        for row in self.consumer.commit(offsets=rows, asynchronous=False):
            raise_if(row.error)

    def commit_async(
        self, offsets: dict[Partition, tuple[int, str]], on_result: Callable[[Exception | None], None]
    ) -> None:
        """Commit asynchronously; librdkafka calls back once for each commit, in the order of the calls."""
        self.waiting.append(on_result)
        rows = [TopicPartition(t, p, offset, meta) for (t, p), (offset, meta) in offsets.items()]
        self.consumer.commit(offsets=rows, asynchronous=True)

    def _committed(self, error: KafkaError | None, rows: list[TopicPartition]) -> None:
        errors = [e for e in (error, *(row.error for row in rows)) if e is not None]
        if self.waiting:  # otherwise the callback belongs to a synchronous commit
            self.waiting.popleft()(KafkaException(errors[0]) if errors else None)

    def committed(self, partitions: list[Partition]) -> dict[Partition, tuple[int, str | None]]:
        rows = self.consumer.committed(parts(partitions), timeout=TIMEOUT_S)
        return {(r.topic, r.partition): (max(r.offset, -1), r.metadata) for r in rows}

    def position(self, partition: Partition) -> int:
        return int(self.consumer.position(parts([partition]))[0].offset)

    def seek(self, partition: Partition, offset: int) -> None:
        self.consumer.seek(TopicPartition(*partition, offset))

    def pause(self, partitions: list[Partition]) -> None:
        self.consumer.pause(parts(partitions))

    def resume(self, partitions: list[Partition]) -> None:
        self.consumer.resume(parts(partitions))

    def offsets_for_times(self, times: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Return offsets only; librdkafka gives the log's end (-1) where no record is that late."""
        rows = [TopicPartition(*partition, at) for partition, at in times.items()]
        found = self.consumer.offsets_for_times(rows, timeout=TIMEOUT_S)
        return {(r.topic, r.partition): (max(r.offset, -1), -1) for r in found}

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        low, high = self.consumer.get_watermark_offsets(TopicPartition(*partition), timeout=TIMEOUT_S)
        return low, high

    def member(self) -> Row:
        return {"member_id": self.consumer.memberid(), "generation": None}

    def close(self) -> None:
        self.consumer.close()


def emit_partitions(event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
    def emit_event(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        emit(event, partitions=pairs(partitions))

    return emit_event


def record(message: Message) -> Row | None:
    if message.error() is not None:
        emit(
            "error",
            error={
                "code": message.error().code(),
                "name": message.error().name(),
                "message": str(message.error()),
            },
        )
        return None
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        "key": text(message.key()),
        "value": text(message.value()),
        "headers": [[name, text(value)] for name, value in message.headers() or ()],
    }


def raise_if(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)


class ConfluentProducer:
    def __init__(self, command: Row) -> None:
        self.anonymous = {"bootstrap.servers": command["bootstrap"], **own_options(command)}
        settings = {
            "bootstrap.servers": command["bootstrap"],
            "client.id": command.get("client_id", "confluent"),
            "acks": "all",
            "enable.idempotence": bool(command.get("idempotence")),
            "compression.type": command.get("compression", "none"),
            "linger.ms": command.get("linger_ms", 5),
            "topic.metadata.refresh.interval.ms": command.get("metadata_max_age_ms", 300_000),
            "reconnect.backoff.max.ms": 1000,
            "log_level": 5,
        }
        if command.get("transactional_id"):
            settings["transactional.id"] = command["transactional_id"]
            settings["transaction.timeout.ms"] = command.get("transaction_timeout_ms", 60_000)
            settings["enable.idempotence"] = True
        settings |= own_options(command)
        self.producer = Producer(settings)

    def send(self, record: Row, on_result: Callable[[list[Any] | None, Exception | None], None]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                on_result(None, KafkaException(error))
            else:
                on_result(
                    [message.topic(), message.partition(), message.offset(), message.timestamp()[1]], None
                )

        optional: Row = {}
        if record.get("partition") is not None:
            optional["partition"] = record["partition"]
        if record.get("timestamp") is not None:
            optional["timestamp"] = record["timestamp"]
        self.producer.produce(
            record["topic"],
            key=octets(record.get("key")),
            value=octets(record.get("value")),
            headers=[(name, octets(value)) for name, value in record.get("headers", ())],
            on_delivery=delivered,
            **optional,
        )

    def turn(self) -> None:
        self.producer.poll(0)

    def flush(self) -> None:
        self.producer.flush()

    def init(self) -> None:
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send_offsets(self, offsets: dict[Partition, tuple[int, str]], group: Row) -> None:
        """Send offsets without a member id and generation, which only the consumer itself knows."""
        if group.get("member_id"):
            raise Unsupported("offsets of a member that is another client")
        rows = [TopicPartition(t, p, offset, meta) for (t, p), (offset, meta) in offsets.items()]
        anonymous = Consumer(self.anonymous | {"group.id": group["group"]})
        try:
            self.producer.send_offsets_to_transaction(rows, anonymous.consumer_group_metadata(), TIMEOUT_S)
        finally:
            anonymous.close()

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self.producer.flush(5)


class ConfluentAdmin:
    def __init__(self, command: Row) -> None:
        settings = {"bootstrap.servers": command["bootstrap"], "log_level": 5}
        self.admin = AdminClient(settings | own_options(command))

    def create_topics(self, topics: list[Row]) -> None:
        new = [
            NewTopic(
                t["name"], num_partitions=t["partitions"], replication_factor=1, config=t.get("configs", {})
            )
            for t in topics
        ]
        wait(self.admin.create_topics(new, request_timeout=TIMEOUT_S))

    def delete_topics(self, topics: list[str]) -> None:
        wait(self.admin.delete_topics(topics, request_timeout=TIMEOUT_S))

    def list_topics(self) -> list[str]:
        return list(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe_topics(self, topics: list[str]) -> Row:
        found = wait(self.admin.describe_topics(TopicCollection(topics), request_timeout=TIMEOUT_S))
        return {name: {"partitions": len(topic.partitions)} for name, topic in found.items()}

    def create_partitions(self, topic: str, count: int) -> None:
        wait(self.admin.create_partitions([NewPartitions(topic, count)], request_timeout=TIMEOUT_S))

    def describe_configs(self, topic: str) -> Row:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = wait(self.admin.describe_configs([resource], request_timeout=TIMEOUT_S))[resource]
        return {name: entry.value for name, entry in entries.items()}

    def alter_configs(
        self, configs: dict[str, str], topic: str | None = None, group: str | None = None
    ) -> None:
        kind = ConfigResource.Type.TOPIC if topic else ConfigResource.Type.GROUP
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(kind, topic or group, incremental_configs=changes)
        wait(self.admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))

    def list_groups(self) -> list[Row]:
        found = self.admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
        if found.errors:
            raise KafkaException(found.errors[0])
        return [
            {
                "group": group.group_id,
                "protocol_type": None,
                "state": camel(group.state.name),
                "type": group.type.name.capitalize(),
            }
            for group in found.valid
        ]

    def describe_groups(self, groups: list[str]) -> Row:
        found = wait(self.admin.describe_consumer_groups(groups, request_timeout=TIMEOUT_S))
        return {
            name: {
                "state": camel(group.state.name),
                "assignor": group.partition_assignor,
                "members": [
                    {
                        "member_id": member.member_id,
                        "client_id": member.client_id,
                        "instance_id": member.group_instance_id,
                        "host": member.host,
                        "partitions": pairs(member.assignment.topic_partitions if member.assignment else ()),
                    }
                    for member in group.members
                ],
            }
            for name, group in found.items()
        }

    def group_offsets(self, group: str) -> list[list[Any]]:
        found = wait(
            self.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S
            )
        )
        rows = found[group].topic_partitions
        for row in rows:
            raise_if(row.error)
        return sorted([r.topic, r.partition, r.offset, r.metadata or ""] for r in rows)

    def alter_group_offsets(self, group: str, offsets: list[list[Any]]) -> None:
        rows = [TopicPartition(t, p, offset, *more) for t, p, offset, *more in offsets]
        wanted = [ConsumerGroupTopicPartitions(group, rows)]
        done = wait(self.admin.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S))
        for row in done[group].topic_partitions:
            raise_if(row.error)

    def delete_groups(self, groups: list[str]) -> None:
        wait(self.admin.delete_consumer_groups(groups, request_timeout=TIMEOUT_S))

    def list_offsets(self, partitions: list[Partition], at: str | int) -> list[list[Any]]:
        spec = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "max_timestamp": OffsetSpec.max_timestamp,
        }.get(str(at), lambda: OffsetSpec.for_timestamp(at))()
        found = wait(
            self.admin.list_offsets(
                {TopicPartition(*p): spec for p in partitions},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=TIMEOUT_S,
            )
        )
        return sorted([p.topic, p.partition, row.offset, row.timestamp] for p, row in found.items())

    def delete_records(self, offsets: list[list[Any]]) -> list[list[Any]]:
        found = wait(
            self.admin.delete_records(
                [TopicPartition(*row[:3]) for row in offsets], request_timeout=TIMEOUT_S
            )
        )
        return sorted([p.topic, p.partition, row.low_watermark] for p, row in found.items())

    def describe_cluster(self) -> Row:
        cluster = self.admin.describe_cluster(request_timeout=TIMEOUT_S).result()
        return {"cluster_id": cluster.cluster_id, "brokers": [[n.id, n.host, n.port] for n in cluster.nodes]}

    def close(self) -> None:
        time.sleep(0)


def wait(futures: dict[Any, Any]) -> dict[Any, Any]:
    return {name: future.result() for name, future in futures.items()}


def camel(name: str) -> str:
    """PREPARING_REBALANCING and the like, as Kafka spells states."""
    spelled = "".join(word.capitalize() for word in name.split("_"))
    return spelled.replace("Rebalancing", "Rebalance")


if __name__ == "__main__":
    serve(
        "confluent-kafka",
        {
            "consumer": lambda command: ConsumerRole(ConfluentConsumer(command), command, errors),
            "producer": lambda command: ProducerRole(ConfluentProducer(command), errors),
            "sharer": lambda command: ConfluentSharer(command, errors),
            "copier": lambda command: ConfluentCopier(command, errors),
            "admin": lambda command: AdminRole(ConfluentAdmin(command)),
        },
        errors,
    )
