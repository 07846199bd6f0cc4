"""Real clients as readers of a group, each polling in a thread of its own until the test is over."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from konvene.testing import Konvene

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
POLL_MS = 1_000
"""kafka-python 3.0 can stand still for good where a poll ends while it looks up its position."""
SESSION_MS = 10_000
SHORT_SESSION_MS = 3_000
"""Where the end of a session is waited for: less than a broker allows by itself."""
HEARTBEAT_MS = 100


class Reader:
    """A consumer of the topic `orders`: `records` are the values that it got, `errors` what it raised."""

    def __init__(self, poll: Callable[[Reader], None]) -> None:
        self.records: list[bytes] = []
        self.errors: list[str] = []
        self.over = threading.Event()
        self.commit_now = threading.Event()
        self.committed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(poll,), daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<reader: {len(self.records)} records, {len(self.errors)} errors>"

    def _run(self, poll: Callable[[Reader], None]) -> None:
        try:
            poll(self)
        except Exception as error:
            self.errors.append(repr(error))

    def commit(self, timeout: float = 20.0) -> None:
        """Commit the current positions and wait until the library confirms it."""
        self.committed.clear()
        self.commit_now.set()
        assert self.committed.wait(timeout), f"no commit; errors: {self.errors}"

    def stop(self) -> None:
        self.over.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def reader(
    konvene: Konvene,
    library: str,
    client: str,
    instance: str | None = None,
    group: str = "readers",
    session_ms: int = SESSION_MS,
) -> Iterator[Reader]:
    """A running reader, closed at the end."""
    made = Reader(lambda self: LIBRARY[library](self, konvene.bootstrap, client, instance, group, session_ms))
    try:
        yield made
    finally:
        made.stop()


def _confluent(
    self: Reader, bootstrap: str, client: str, instance: str | None, group: str, session_ms: int
) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "client.id": client, "group.id": group,
        "session.timeout.ms": session_ms, "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "reconnect.backoff.max.ms": 100,
    }  # fmt: skip
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings, logger=_quiet())
    consumer.subscribe(["orders"])
    while not self.over.is_set():
        message = consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.records.append(message.value())
        if self.commit_now.is_set():
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                self.errors.append(str(error))
                continue
            self.commit_now.clear()
            self.committed.set()
    consumer.close()


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("tests.testing.readers")
    logger.setLevel(logging.CRITICAL)
    return logger


def _kafka_python(
    self: Reader, bootstrap: str, client: str, instance: str | None, group: str, session_ms: int
) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap, client_id=client, group_id=group, group_instance_id=instance,
        session_timeout_ms=session_ms, heartbeat_interval_ms=HEARTBEAT_MS, auto_offset_reset="earliest",
        enable_auto_commit=False, retry_backoff_ms=50, reconnect_backoff_ms=50, reconnect_backoff_max_ms=100,
    )  # fmt: skip
    while not self.over.is_set():
        for batch in consumer.poll(timeout_ms=POLL_MS).values():
            self.records += [record.value for record in batch]
        if self.commit_now.is_set():
            try:
                consumer.commit()
            except KafkaError as error:
                self.errors.append(repr(error))
                continue
            self.commit_now.clear()
            self.committed.set()
    consumer.close()


def _aiokafka(
    self: Reader, bootstrap: str, client: str, instance: str | None, group: str, session_ms: int
) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, client_id=client, group_id=group,
            group_instance_id=instance, session_timeout_ms=session_ms, heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest", enable_auto_commit=False, retry_backoff_ms=50,
        )  # fmt: skip
        await consumer.start()
        try:
            while not self.over.is_set():
                for batch in (await consumer.getmany(timeout_ms=20)).values():
                    self.records += [record.value for record in batch]
                if self.commit_now.is_set():
                    try:
                        await consumer.commit()
                    except KafkaError as error:
                        self.errors.append(repr(error))
                        continue
                    self.commit_now.clear()
                    self.committed.set()
        finally:
            await consumer.stop()

    asyncio.run(main())


LIBRARY: dict[str, Callable[[Reader, str, str, str | None, str, int], None]] = {
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}
