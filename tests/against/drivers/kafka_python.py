"""The kafka-python driver; see driver.py for what it speaks."""

import logging
from collections.abc import Callable
from typing import Any

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
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, MemberToRemove, OffsetSpec
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import BrokerResponseError, CommitFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
CODECS = {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}


def errors(error: BaseException) -> Refused | None:
    if isinstance(error, BrokerResponseError) and error.errno is not None:
        return Refused(error.errno, error.message or type(error).__name__, str(error))
    if isinstance(error, CommitFailedError):
        return Refused(None, "CommitFailedError", str(error))
    return None


def raise_if(answers: Row) -> None:
    """Some answers are `{name: error class}`, some `{name: "OK"}`: raise the first that is an error."""
    for error in answers.values():
        if isinstance(error, type) and error.errno != 0:
            raise error
        if isinstance(error, str) and error != "OK":
            raise _named(error)


def _named(name: str) -> Exception:
    """`[Error 68] NonEmptyGroupError: ...` or `NonEmptyGroupError`, as an exception again."""
    import kafka.errors

    for kind in vars(kafka.errors).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, BrokerResponseError)
            and kind.__name__ in name.split(":")[0]
        ):
            if kind is BrokerResponseError:
                continue
            return kind(name)
    return RuntimeError(name)


class Token(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
    """An access token that does not change."""

    def __init__(self, value: str) -> None:
        self.value = value

    def token(self) -> str:
        return self.value


def own_options(command: Row) -> Row:
    """Return the library's own options of a command."""
    options = dict(command.get("options", {}))
    if "token" in options:
        options["sasl_oauth_token_provider"] = Token(options.pop("token"))
    return options


class KafkaPythonConsumer(ConsumerRebalanceListener):
    def __init__(self, command: Row) -> None:
        settings: Row = {
            "bootstrap_servers": command["bootstrap"],
            "client_id": command.get("client_id", "kafka-python"),
            "group_id": command.get("group"),
            "auto_offset_reset": command.get("offset_reset", "earliest"),
            "enable_auto_commit": command.get("commit") == "auto",
            "auto_commit_interval_ms": command.get("auto_commit_interval_ms", 500),
            "max_poll_records": command.get("max_poll_records", 500),
            "max_poll_interval_ms": command.get("max_poll_interval_ms", 300_000),
            "isolation_level": command.get("isolation_level", "read_uncommitted"),
            "metadata_max_age_ms": command.get("metadata_max_age_ms", 300_000),
            "group_instance_id": command.get("instance_id"),
            "reconnect_backoff_max_ms": 1000,
        }
        if command.get("protocol", "classic") != "classic":
            raise Unsupported("the consumer protocol")
        if command.get("group"):
            settings["partition_assignment_strategy"] = [
                ASSIGNORS[name] for name in command.get("assignor", "range").split(",")
            ]
            settings["session_timeout_ms"] = command.get("session_timeout_ms", 6000)
            settings["heartbeat_interval_ms"] = command.get("heartbeat_interval_ms", 500)
        self.consumer = KafkaConsumer(**settings | own_options(command))
        if command.get("assign"):
            self.consumer.assign(parts(command["assign"]))
        elif command.get("topics"):
            self.consumer.subscribe(command["topics"], listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        emit("assigned", partitions=pairs(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        emit("revoked", partitions=pairs(revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        emit("lost", partitions=pairs(lost))

    def poll(self) -> list[Row]:
        """Poll, and keep a rebalance alive that outlasts the poll.

        A leader that rejoins since its metadata changed remembers that in the difference between two metadata
        snapshots, which its assignment makes equal. If a poll times out between assignment and SyncGroup
        response, kafka-python 3.0.12 forgets the response, and the member never owns a partition."""
        found = self.consumer.poll(timeout_ms=100)
        coordinator = self.consumer._coordinator
        if coordinator.rejoining:
            coordinator.request_rejoin()
        return [record(message) for messages in found.values() for message in messages]

    def commit(self, offsets: dict[Partition, tuple[int, str]]) -> None:
        self.consumer.commit(
            {
                TopicPartition(*p): OffsetAndMetadata(offset, meta, -1)
                for p, (offset, meta) in offsets.items()
            },
            timeout_ms=20_000,
        )

    def committed(self, partitions: list[Partition]) -> dict[Partition, tuple[int, str | None]]:
        found = {p: self.consumer.committed(TopicPartition(*p), metadata=True) for p in partitions}
        return {p: (-1, None) if row is None else (row.offset, row.metadata) for p, row in found.items()}

    def position(self, partition: Partition) -> int:
        return int(self.consumer.position(TopicPartition(*partition)))

    def seek(self, partition: Partition, offset: int) -> None:
        self.consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partitions: list[Partition]) -> None:
        self.consumer.pause(*parts(partitions))

    def resume(self, partitions: list[Partition]) -> None:
        self.consumer.resume(*parts(partitions))

    def offsets_for_times(self, times: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        found = self.consumer.offsets_for_times({TopicPartition(*p): at for p, at in times.items()})
        return {
            tuple(p): (-1, -1) if row is None else (row.offset, row.timestamp) for p, row in found.items()
        }

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        part = TopicPartition(*partition)
        return self.consumer.beginning_offsets([part])[part], self.consumer.end_offsets([part])[part]

    def member(self) -> Row:
        metadata = self.consumer.group_metadata()
        return {"member_id": metadata.member_id, "generation": metadata.generation_id}

    def close(self) -> None:
        self.consumer.close(autocommit=False)


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


class KafkaPythonProducer:
    def __init__(self, command: Row) -> None:
        compression = command.get("compression", "none")
        if compression in CODECS and not CODECS[compression]():
            raise Unsupported(f"{compression}: kafka-python's optional codec library is not installed")
        self.producer = KafkaProducer(
            **{"bootstrap_servers": command["bootstrap"], **own_options(command)},
            client_id=command.get("client_id", "kafka-python"),
            acks="all",
            enable_idempotence=bool(command.get("idempotence") or command.get("transactional_id")),
            compression_type=None if compression == "none" else compression,
            linger_ms=command.get("linger_ms", 5),
            metadata_max_age_ms=command.get("metadata_max_age_ms", 300_000),
            reconnect_backoff_max_ms=1000,
            transactional_id=command.get("transactional_id"),
            transaction_timeout_ms=command.get("transaction_timeout_ms", 60_000),
        )

    def send(self, record: Row, on_result: Callable[[list[Any] | None, Exception | None], None]) -> None:
        future = self.producer.send(
            record["topic"],
            key=octets(record.get("key")),
            value=octets(record.get("value")),
            headers=[(name, octets(value)) for name, value in record.get("headers", ())],
            partition=record.get("partition"),
            timestamp_ms=record.get("timestamp"),
        )
        future.add_callback(
            lambda done: on_result([done.topic, done.partition, done.offset, done.timestamp], None)
        )
        future.add_errback(lambda error: on_result(None, error))

    def turn(self) -> None:
        pass

    def flush(self) -> None:
        self.producer.flush()

    def init(self) -> None:
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send_offsets(self, offsets: dict[Partition, tuple[int, str]], group: Row) -> None:
        rows = {
            TopicPartition(t, p): OffsetAndMetadata(at, meta, -1) for (t, p), (at, meta) in offsets.items()
        }
        self.producer.send_offsets_to_transaction(rows, group["group"])

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close()


class KafkaPythonAdmin:
    def __init__(self, command: Row) -> None:
        settings = {"bootstrap_servers": command["bootstrap"], "request_timeout_ms": 20_000}
        self.admin = KafkaAdminClient(**settings | own_options(command))
        self.close = self.admin.close
        self.list_topics = self.admin.list_topics

    def create_topics(self, topics: list[Row]) -> None:
        self.admin.create_topics(
            {
                t["name"]: {
                    "num_partitions": t["partitions"],
                    "replication_factor": 1,
                    "configs": t.get("configs", {}),
                }
                for t in topics
            }
        )

    def delete_topics(self, topics: list[str]) -> None:
        self.admin.delete_topics(topics)

    def describe_topics(self, topics: list[str]) -> Row:
        found = self.admin.describe_topics(topics)
        for topic in found:
            if topic["error_code"]:
                import kafka.errors

                raise kafka.errors.for_code(topic["error_code"])(topic["name"])
        return {topic["name"]: {"partitions": len(topic["partitions"])} for topic in found}

    def create_partitions(self, topic: str, count: int) -> None:
        self.admin.create_partitions({topic: count})

    def describe_configs(self, topic: str) -> Row:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource], config_filter="all")
        return {name: row["value"] for name, row in found["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        changes = {name: (AlterConfigOp.SET, value) for name, value in configs.items()}
        done = self.admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, changes)], incremental=True
        )
        raise_if(done["topic"])

    def list_groups(self) -> list[Row]:
        return [
            {
                "group": group["group_id"],
                "protocol_type": group["protocol_type"],
                "state": group.get("group_state"),
                "type": group.get("group_type"),
            }
            for group in self.admin.list_groups()
        ]

    def describe_groups(self, groups: list[str]) -> Row:
        found = self.admin.describe_groups(groups)
        for group in found.values():
            if group["error"]:
                raise _named(group["error"].split("] ")[-1])
        return {
            name: {
                "state": group["group_state"],
                "assignor": group["protocol_data"],
                "members": [
                    {
                        "member_id": member["member_id"],
                        "client_id": member["client_id"],
                        "instance_id": member["group_instance_id"],
                        "host": member["client_host"],
                        "partitions": [
                            [assigned["topic"], partition]
                            for assigned in (member["member_assignment"] or {}).get("assigned_partitions", ())
                            for partition in assigned["partitions"]
                        ],
                    }
                    for member in group["members"]
                ],
            }
            for name, group in found.items()
        }

    def group_offsets(self, group: str) -> list[list[Any]]:
        found = self.admin.list_group_offsets(group)[group]
        return sorted([*partition, row.offset, row.metadata] for partition, row in found.items())

    def alter_group_offsets(self, group: str, offsets: list[list[Any]]) -> None:
        rows = {
            TopicPartition(t, p): OffsetAndMetadata(offset, (more or [""])[0], -1)
            for t, p, offset, *more in offsets
        }
        raise_if(self.admin.alter_group_offsets(group, rows))

    def delete_group_offsets(self, group: str, partitions: list[Partition]) -> None:
        raise_if(self.admin.delete_group_offsets(group, parts(partitions)))

    def delete_groups(self, groups: list[str]) -> None:
        raise_if(self.admin.delete_groups(groups))

    def remove_members(self, group: str, instance_ids: list[str], reason: str | None = None) -> None:
        members = [MemberToRemove(group_instance_id=id, reason=reason, member_id="") for id in instance_ids]
        raise_if(self.admin.remove_group_members(group, members))

    def list_offsets(self, partitions: list[Partition], at: str | int) -> list[list[Any]]:
        spec = at if isinstance(at, int) else OffsetSpec[at.upper()]
        found = self.admin.list_partition_offsets({TopicPartition(*p): spec for p in partitions})
        return sorted([*partition, row.offset, row.timestamp] for partition, row in found.items())

    def delete_records(self, offsets: list[list[Any]]) -> list[list[Any]]:
        found = self.admin.delete_records({TopicPartition(t, p): offset for t, p, offset, *_ in offsets})
        return sorted([*partition, row["low_watermark"]] for partition, row in found.items())

    def describe_cluster(self) -> Row:
        cluster = self.admin.describe_cluster()
        return {
            "cluster_id": cluster["cluster_id"],
            "brokers": [[b["broker_id"], b["host"], b["port"]] for b in cluster["brokers"]],
        }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    serve(
        "kafka-python",
        {
            "consumer": lambda command: ConsumerRole(KafkaPythonConsumer(command), command, errors),
            "producer": lambda command: ProducerRole(KafkaPythonProducer(command), errors),
            "admin": lambda command: AdminRole(KafkaPythonAdmin(command)),
        },
        errors,
    )
