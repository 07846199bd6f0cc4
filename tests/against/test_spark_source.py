"""Tasks of the Spark source read what a consumer reads: codecs, headers, transactions, deleted records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from konvene.client.consumer.fetch import READ_COMMITTED, READ_UNCOMMITTED
from konvene.client.net import cluster
from konvene.pipeline.sources.client_config import NO_CONFIG
from konvene.spark.ranges import OffsetRange
from konvene.spark.rows import HEADER_COLUMN, SCHEMA, DataLoss, ReadTask, read

from .brokers import Broker
from .tries import own_name

COLUMNS = [*SCHEMA.names, HEADER_COLUMN.name]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a topic with one partition."""
    name = own_name(request)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    return name


def rows(
    broker: Broker, topic: str, start: int, end: int, *, committed: bool = False, fails_on_loss: bool = True,
    fetch_bytes: int = 4096, names: list[str] = COLUMNS,
) -> list[dict[str, Any]]:  # fmt: skip
    task = ReadTask(
        OffsetRange(cluster.TopicPartition(topic, 0), start, end), broker.bootstrap, NO_CONFIG,
        READ_COMMITTED if committed else READ_UNCOMMITTED, fetch_bytes, fails_on_loss,
    )  # fmt: skip
    return [row for batch in read(task, names) for row in batch.to_pylist()]


def consumed(broker: Broker, topic: str, isolation: str = "read_uncommitted") -> Iterator[dict[str, Any]]:
    """Yield the records of the topic's partition as a consumer has them, up to the end."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": topic, "isolation.level": isolation,
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            got = consumer.poll(30)
            assert got is not None, "no record and no end of the partition"
            if got.error() is not None:
                assert got.error().code() == KafkaError._PARTITION_EOF, got.error()
                return
            kind, ms = got.timestamp()
            yield {
                "key": got.key(), "value": got.value(), "topic": topic, "partition": 0,
                "offset": got.offset(),
                "timestamp": datetime.fromtimestamp(ms / 1000, UTC), "timestampType": kind - 1,
                "headers": [{"key": k, "value": v} for k, v in got.headers() or ()] or None,
            }  # fmt: skip
    finally:
        consumer.close()


def send(broker: Broker, topic: str, count: int, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 7, **settings})
    for n in range(count):
        headers = [("n", str(n).encode()), ("none", None)] if n % 3 == 0 else None
        value = None if n % 10 == 9 else b"value of %d" % n * 5
        producer.produce(topic, value, None if n % 5 == 0 else b"key-%d" % n, headers=headers)
    assert producer.flush(30) == 0


def test_rows_are_the_records_that_a_consumer_reads(broker: Broker, topic: str) -> None:
    """With every codec, and over many fetches."""
    for codec in CODECS:
        send(broker, topic, 60, **{"compression.type": codec})
    expected = list(consumed(broker, topic))
    assert len(expected) == 300
    assert rows(broker, topic, 0, 300) == expected


def test_a_range_within_batches_has_its_offsets_only(broker: Broker, topic: str) -> None:
    send(broker, topic, 50)
    found = rows(broker, topic, 3, 45, names=["offset", "value"])
    assert [row["offset"] for row in found] == list(range(3, 45))
    assert list(found[0]) == ["offset", "value"]
    assert rows(broker, topic, 10, 10) == []


def send_transactions(broker: Broker, topic: str, partitions: int = 1) -> None:
    """Write six transactions of three records, and abort every second one."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (n, part), partition=part % partitions)
        assert producer.flush(30) == 0  # Those that were not sent would not be in the log.
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def test_aborted_transactions_are_read_only_uncommitted(broker: Broker, topic: str) -> None:
    send_transactions(broker, topic)
    end = 6 * 4  # With the markers.
    for isolation in ("read_uncommitted", "read_committed"):
        expected = list(consumed(broker, topic, isolation))
        found = rows(broker, topic, 0, end, committed=isolation == "read_committed")
        assert found == expected
        assert len(found) == (18 if isolation == "read_uncommitted" else 9)


def test_deleted_records_fail_a_task_or_are_passed_over(broker: Broker, topic: str) -> None:
    send(broker, topic, 50)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        deleted.result(30)
    with pytest.raises(DataLoss, match=f"offsets 5 to 39 of {topic}-0 are not in the log any more"):
        rows(broker, topic, 5, 40)
    found = rows(broker, topic, 5, 40, fails_on_loss=False)
    assert [row["offset"] for row in found] == list(range(20, 40))
    assert rows(broker, topic, 5, 15, fails_on_loss=False) == []
