"""What one library produces, every library reads back whole."""

import random
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from .clients import LIBRARIES, Fleet, Refused
from .conftest import Admins, java_is_missing

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""A topic's partition n holds what was produced with the n-th codec."""

AN_HOUR_AGO_MS = (int(time.time()) - 3600) * 1000
"""Timestamps of the records here: recent, since a broker deletes records past their retention."""

EACH = [
    pytest.param(library, marks=pytest.mark.java) if library == "java" else library for library in LIBRARIES
]


def batch(writer: str, topic: str, partition: int) -> list[dict[str, Any]]:
    """Records of every shape a library can give: the last is large enough to fill a fetch's first answer."""
    shapes: list[dict[str, Any]] = [
        {"key": "k", "value": "plain"},
        {"key": None, "value": "no key"},
        {"key": "k", "value": None},
        {"key": "", "value": ""},
        {"key": "ключ", "value": "значение \U0001f9ed"},
        {"key": "h", "value": "headers", "headers": [["a", "1"], ["a", "2"], ["empty", ""], ["ö", "ü"]]},
        {"key": "null header", "value": "v", "headers": [["none", None]]},
        {"key": "large", "value": "0123456789abcdef" * 8192},
    ]
    if writer == "kafka-python":
        shapes = [shape for shape in shapes if shape["key"] != "null header"]  # which it refuses to send
    return [
        {
            "headers": [],
            **shape,
            "topic": topic,
            "partition": partition,
            "timestamp": AN_HOUR_AGO_MS + 1000 * index,
        }
        for index, shape in enumerate(shapes)
    ]


class Shelf:
    """Topics written once, each by one library with every codec it has, and readers that have read them."""

    def __init__(self, fleet: Fleet, admins: Admins) -> None:
        self.fleet = fleet
        self.admin = admins["confluent-kafka"]
        self.missing: dict[tuple[str, str], str] = {}
        self.rows: dict[tuple[str, str], list[list[Any]]] = {}
        self._written: set[str] = set()

    def topic(self, writer: str) -> str:
        """Return the writer's topic, written on first use."""
        name = f"shelf-{writer}"
        if writer not in self._written:
            self._written.add(writer)
            self.admin.call("create_topics", topics=[{"name": name, "partitions": len(CODECS)}])
            producer = self.fleet.launch(writer, f"shelf-{writer}")
            for partition, codec in enumerate(CODECS):
                try:
                    self.fleet.give(producer, "producer", compression=codec, idempotence=partition % 2 == 0)
                except Refused as refused:
                    assert refused.unsupported, refused
                    self.missing[writer, codec] = str(refused)
                    continue
                self.rows[writer, codec] = producer.call("send", records=batch(writer, name, partition))
            producer.close()
        return name


@pytest.fixture(scope="module")
def shelf(shared_fleet: Fleet, admins: Admins) -> Shelf:
    return Shelf(shared_fleet, admins)


class Reading:
    """One reader process for all that a library reads here: it is given one assignment after another."""

    def __init__(self, fleet: Fleet, library: str) -> None:
        self.fleet = fleet
        self.client = fleet.launch(library, f"reader-{library}")

    def of(self, topic: str, partition: int, count: int) -> list[dict[str, Any]]:
        self.fleet.give(self.client, "consumer", assign=[[topic, partition]])

        def mine() -> list[dict[str, Any]]:
            return [r for r in self.client.records() if (r["topic"], r["partition"]) == (topic, partition)]

        self.client.until(f"{count} records of {topic}-{partition}", lambda: len(mine()) >= count, 20)
        return mine()


@pytest.fixture(scope="module")
def readings() -> Iterator["dict[str, Reading]"]:
    readings: dict[str, Reading] = {}
    yield readings
    for reading in readings.values():
        reading.client.kill()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", EACH)
@pytest.mark.parametrize("writer", EACH)
def test_what_is_written_is_read(
    writer: str, reader: str, codec: str, shelf: Shelf, readings: dict[str, Reading]
) -> None:
    """Key, value, headers and timestamp come back unchanged and in order, with every reader."""
    topic = shelf.topic(writer)
    shelf.topic(reader)  # which records the codecs it lacks
    for library in (writer, reader):
        if (library, codec) in shelf.missing:
            pytest.skip(f"{library} has no {codec}: {shelf.missing[library, codec]}")
    if reader not in readings:
        readings[reader] = Reading(shelf.fleet, reader)
    partition = CODECS.index(codec)
    wanted = batch(writer, topic, partition)
    found = readings[reader].of(topic, partition, len(wanted))
    assert [{**record, "offset": offset} for offset, record in enumerate(wanted)] == found


@pytest.mark.parametrize("reader", EACH)
def test_large_records_are_read_whole(
    reader: str, topic: str, shared_fleet: Fleet, readings: dict[str, Reading]
) -> None:
    """Records of 900 KB, which fill a request almost to its limit, one from each library."""
    writers = [name for name in LIBRARIES if name != "java" or not java_is_missing()]
    value = noise(900_000)
    for partition, writer in enumerate(writers):
        producer = shared_fleet.producer(writer, idempotence=partition % 2 == 0)
        record = {"topic": topic, "partition": partition, "key": writer, "value": value}
        assert producer.call("send", records=[record])[0][:3] == [topic, partition, 0]
        producer.kill()
    if reader not in readings:
        readings[reader] = Reading(shared_fleet, reader)
    for partition, writer in enumerate(writers):
        (found,) = readings[reader].of(topic, partition, 1)
        assert (found["key"], found["value"] == value) == (writer, True)


@pytest.mark.parametrize("library", EACH)
def test_acknowledgement_has_partition_and_offset(library: str, shelf: Shelf) -> None:
    """A producer gets topic, partition and consecutive offsets from 0, and the record's timestamp."""
    topic = shelf.topic(library)
    acknowledged = shelf.rows[library, "none"]
    assert [[topic, 0, offset] for offset in range(len(batch(library, topic, 0)))] == [
        row[:3] for row in acknowledged
    ]
    assert acknowledged[0][3] == AN_HOUR_AGO_MS  # aiokafka gives all records the batch's first timestamp


@pytest.mark.parametrize("library", EACH)
def test_an_idempotent_producer_writes_each_value_once_and_in_order(
    library: str, fleet: Fleet, topic: str, admins: Admins
) -> None:
    """Of a stream of small batches, every value is in the log exactly once, in the order of sending."""
    producer = fleet.producer(library, idempotence=True, linger_ms=1)
    producer.call("stream", topic=topic, prefix="v", count=400, rate_per_s=400)
    producer.until("400 acknowledgements", lambda: len(producer.acked()) >= 400)
    totals = producer.call("settle")
    reader = fleet.consumer("aiokafka", assign=[[topic, p] for p in range(4)])
    reader.until("400 records", lambda: len(reader.records()) >= 400)
    assert totals == {"sent": 400, "acked": 400, "failed": 0}
    assert sorted(reader.values()) == sorted(f"v{n}" for n in range(400))
    for partition in range(4):
        numbers = [int(r["value"][1:]) for r in reader.records() if r["partition"] == partition]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("library", EACH)
def test_log_append_time_is_the_brokers_clock(library: str, fleet: Fleet, admins: Admins) -> None:
    """With LogAppendTime the record's own timestamp is replaced, in the acknowledgement and the log."""
    topic = f"append-time-{library}"
    configs = {"message.timestamp.type": "LogAppendTime"}
    admins["confluent-kafka"].call(
        "create_topics", topics=[{"name": topic, "partitions": 1, "configs": configs}]
    )
    producer = fleet.producer(library)
    rows = producer.call(
        "send",
        records=[{"topic": topic, "key": "k", "value": "v", "partition": 0, "timestamp": AN_HOUR_AGO_MS}],
    )
    reader = fleet.consumer("confluent-kafka", assign=[[topic, 0]])
    reader.until("the record", reader.records)
    stamped = reader.records()[0]["timestamp"]
    assert stamped > AN_HOUR_AGO_MS + 1000
    assert rows == [[topic, 0, 0, stamped]]


@pytest.mark.parametrize("library", EACH)
def test_a_batch_that_is_too_large_is_refused(library: str, fleet: Fleet, admins: Admins) -> None:
    """max.message.bytes of the topic holds: MESSAGE_TOO_LARGE (10), and the next record is taken."""
    topic = f"too-large-{library}"
    configs = {"max.message.bytes": "2000"}
    admins["confluent-kafka"].call(
        "create_topics", topics=[{"name": topic, "partitions": 1, "configs": configs}]
    )
    producer = fleet.producer(library)
    with pytest.raises(Refused) as refused:
        producer.call("send", records=[{"topic": topic, "key": "k", "value": noise(5000), "partition": 0}])
    assert refused.value.code == 10
    assert (
        producer.call("send", records=[{"topic": topic, "key": "k", "value": "v", "partition": 0}])[0][2] == 0
    )


def noise(size: int) -> str:
    """Text that compresses badly, the same at each run."""
    source = random.Random(zlib.crc32(b"noise"))
    return "".join(chr(source.randrange(33, 126)) for _ in range(size))
