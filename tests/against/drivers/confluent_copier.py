"""A copier of confluent-kafka (librdkafka); its Java twin is CopierRole.java.

It reads, writes what it read to the partition of the same number of another topic, and commits both in one
transaction. What goes wrong is aborted; where that cannot be, a new producer takes the transactional id over;
then it reads on from what is committed.

librdkafka may wait for ever for a group's coordinator whose connection was lost, whatever its time limit: no
request of it is open then. Whose transaction takes that long ends as if it were killed, for its supervisor to
replace it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_options import own_options
from driver import Refused, Row, Unsupported, emit, pairs, text

TIMEOUT_S = 30
STUCK_S = 8
"""For how long a transaction may be under way."""

STUCK = 70
"""The status with which a copier ends that waits for nothing."""


class ConfluentCopier:
    def __init__(self, command: Row, errors: Callable[[BaseException], Refused | None]) -> None:
        self.given = command
        self.errors = errors
        self.producer: Producer | None = None
        self.astray = False
        self.consumer = Consumer(reading(command))
        self.consumer.subscribe(
            [command["from"]],
            on_assign=self._moved("assigned"),
            on_revoke=self._moved("revoked"),
            on_lost=self._moved("lost"),
        )

    def _moved(self, event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        """Return a callback that emits the event and makes the copier seek to the committed offsets."""

        def emit_event(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.astray = True
            emit(event, partitions=pairs(partitions))

        return emit_event

    def run(self, verb: str, command: Row) -> Any:
        raise Unsupported(verb)

    def step(self) -> bool:
        try:
            if self.producer is None:
                self.producer = Producer(writing(self.given))
                self.producer.init_transactions(TIMEOUT_S)
            if self.astray:
                self._go_back()
            messages = self._read()
            if messages and not self.astray:
                self._copy(self.producer, messages)
        except KafkaException as error:
            refused = self.errors(error)
            emit("failed", error={"name": refused.name if refused else "", "message": str(error)})
            self.astray = True
            if not self._aborted(error.args[0]):
                self.producer = None
        return True

    def _read(self) -> list[Message]:
        messages: list[Message] = []
        message = self.consumer.poll(0.1)
        while message is not None:
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                emit("error", error={"code": error.code(), "name": error.name(), "message": str(error)})
            more = len(messages) < self.given.get("most", 20) and not self.astray
            message = self.consumer.poll(0) if more else None
        return messages

    def _copy(self, producer: Producer, messages: list[Message]) -> None:
        watch = threading.Timer(STUCK_S, os._exit, (STUCK,))
        watch.start()
        try:
            self._copy_in_time(producer, messages)
        finally:
            watch.cancel()

    def _copy_in_time(self, producer: Producer, messages: list[Message]) -> None:
        producer.begin_transaction()
        next_offsets: dict[tuple[str, int], int] = {}
        for message in messages:
            partition = int(message.partition() or 0)
            producer.produce(self.given["to"], message.value(), message.key(), partition)
            next_offsets[str(message.topic()), partition] = int(message.offset() or 0) + 1
        rows = [TopicPartition(*at, offset) for at, offset in next_offsets.items()]
        producer.send_offsets_to_transaction(rows, self.consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        emit("copied", values=[text(message.value()) for message in messages])

    def _aborted(self, error: Any) -> bool:
        if self.producer is None or not isinstance(error, KafkaError) or not error.txn_requires_abort():
            return False
        try:
            self.producer.abort_transaction(TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def _go_back(self) -> None:
        held = self.consumer.assignment()
        for row in self.consumer.committed(held, timeout=TIMEOUT_S) if held else ():
            at = TopicPartition(row.topic, row.partition, row.offset if row.offset >= 0 else OFFSET_BEGINNING)
            deadline = time.monotonic() + 10
            while not self._sought(at) and time.monotonic() < deadline:
                time.sleep(0.05)
        self.astray = False

    def _sought(self, at: TopicPartition) -> bool:
        """librdkafka can seek once it has begun to read a partition, a moment after it was assigned."""
        with contextlib.suppress(KafkaException):
            self.consumer.seek(at)
            return True
        return False

    def close(self) -> None:
        self.producer = None
        self.consumer.close()


def reading(command: Row) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": command["bootstrap"],
        "client.id": command["client_id"],
        "group.id": command["group"],
        "group.protocol": command.get("protocol", "classic"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "log_level": 5,
    }
    if command.get("instance_id"):
        settings["group.instance.id"] = command["instance_id"]
    if settings["group.protocol"] == "classic":
        settings["partition.assignment.strategy"] = "roundrobin"
        settings["session.timeout.ms"] = command.get("session_timeout_ms", 6000)
        settings["heartbeat.interval.ms"] = 300
    return settings | own_options(command)


def writing(command: Row) -> dict[str, Any]:
    return {
        "bootstrap.servers": command["bootstrap"],
        "client.id": command["client_id"],
        "transactional.id": command["transactional_id"],
        "transaction.timeout.ms": command.get("transaction_timeout_ms", 10_000),
        "reconnect.backoff.max.ms": 500,
        "log_level": 5,
        **own_options(command),
    }
