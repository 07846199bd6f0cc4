"""A member of a share group of confluent-kafka (librdkafka); its Java twin is SharerRole.java.

It polls and acknowledges on command, or runs on its own: then it acknowledges each record with the configured
type and reports the results.
"""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer, TopicPartition
from confluent_options import own_options
from driver import Refused, Row, Unsupported, emit, text

COMMIT_S = 20.0


class ConfluentSharer:
    def __init__(self, command: Row, errors: Callable[[BaseException], Refused | None]) -> None:
        self.errors = errors
        self.explicit = command.get("mode") == "explicit"
        self.type = command.get("type", "accept")
        self.linger_s = command.get("linger_ms", 0) / 1000
        self.going = bool(command.get("go"))
        self.left = False
        if command.get("acquire"):
            raise Unsupported("a way to acquire")
        settings = {
            "bootstrap.servers": command["bootstrap"],
            "client.id": command["client_id"],
            "group.id": command["group"],
            "share.acknowledgement.mode": command.get("mode", "implicit"),
            "max.poll.records": command.get("max_poll_records", 500),
            "fetch.wait.max.ms": 200,
            "topic.metadata.refresh.interval.ms": command.get("metadata_max_age_ms", 300_000),
            "reconnect.backoff.max.ms": 500,
            "log_level": 5,
            **own_options(command),
        }
        self.consumer = ShareConsumer(settings)
        self.consumer.set_acknowledgement_commit_callback(self._on_acknowledged)
        self.consumer.subscribe(command["topics"])

    def _on_acknowledged(
        self, offsets: dict[TopicPartition, set[int]], failed: KafkaException | None
    ) -> None:
        rows = [[at.topic, at.partition, sorted(some)] for at, some in offsets.items()]
        if failed is None:
            emit("acknowledged", offsets=rows)
        else:
            emit(
                "acknowledge_failed", offsets=rows, error={"name": self._name(failed), "message": str(failed)}
            )

    def _name(self, failed: BaseException) -> str:
        refused = self.errors(failed)
        return refused.name if refused else type(failed).__name__

    def run(self, verb: str, command: Row) -> Any:
        match verb:
            case "poll":
                return self._poll(command.get("within_ms", 10_000) / 1000)
            case "acknowledge":
                kind = self._type(command["type"])
                for topic, partition, offset in command["offsets"]:
                    self.consumer.acknowledge_offset(topic, partition, offset, kind)
                return None
            case "commit":
                record_row = self.consumer.commit_sync(COMMIT_S)
                return sorted(
                    [at.topic, at.partition, self._name(failed) if failed else None]
                    for at, failed in record_row.items()
                )
            case "commit_async":
                return self.consumer.commit_async()
            case "subscribe":
                return self.consumer.subscribe(command["topics"])
            case "unsubscribe":
                return self.consumer.unsubscribe()
            case "go" | "hold":
                self.going = verb == "go"
                return None
            case "leave":
                return self.close()
        raise Unsupported(verb)

    @staticmethod
    def _type(name: str) -> AcknowledgeType:
        if name.upper() not in AcknowledgeType.__members__:
            raise Unsupported(name)
        return AcknowledgeType[name.upper()]

    def _poll(self, within_s: float) -> list[Row]:
        """One poll that brings something, or nothing within the time."""
        deadline = time.monotonic() + within_s
        rows: list[Row] = []
        while not rows and time.monotonic() < deadline:
            rows = [row for row in map(record_row, self.consumer.poll(0.1)) if row is not None]
        return rows

    def step(self) -> bool:
        if not self.going:
            return False
        messages = [message for message in self.consumer.poll(0.1) if record_row(message) is not None]
        if not messages:
            return True
        emit("records", records=[record_row(message) for message in messages])
        time.sleep(self.linger_s)
        if self.explicit:
            for message in messages:
                self.consumer.acknowledge(message, self._type(self.type))
        self.consumer.commit_async()
        return True

    def close(self) -> None:
        self.going = False
        if not self.left:
            self.left = True
            self.consumer.close()


def record_row(message: Message) -> Row | None:
    error = message.error()
    if error is not None:
        emit("error", error={"code": error.code(), "name": error.name(), "message": str(error)})
        return None
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "value": text(message.value()),
        "delivery_count": message.delivery_count(),
    }
