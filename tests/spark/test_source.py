"""The stream's reader decides what a micro-batch has; it travels between processes as a value."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'konvene[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pyspark_konvene
from konvene.spark.rows import DataLoss
from konvene.spark.source import Konvene as Source
from konvene.spark.source import StreamReader
from konvene.spark.topics import NotFound
from konvene.testing import Konvene

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def broker() -> Iterator[Konvene]:
    with Konvene() as konvene:
        yield konvene


@pytest.fixture
def topic(broker: Konvene, request: pytest.FixtureRequest) -> str:
    """The name of a topic with two partitions, which have ten records each."""
    name = request.node.name.replace("_", "-")
    broker.create_topic(name, partitions=2)
    for partition in range(2):
        broker.produce(name, [f"value {n}" for n in range(10)], partition=partition)
    return name


@pytest.fixture
def reader(broker: Konvene, topic: str) -> Callable[..., StreamReader]:
    def make(**more: str) -> StreamReader:
        base = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        given = {name: value for name, value in (base | more).items() if value}
        source = Source(given)
        made: Any = source.streamReader(source.schema())
        return pickle.loads(pickle.dumps(made))

    return make


def test_spark_finds_the_source_by_its_package() -> None:
    assert pyspark_konvene.DefaultSource is Source
    assert Source.name() == "konvene"


def test_a_query_begins_where_its_options_say(reader: Callable[..., StreamReader], topic: str) -> None:
    assert reader().initialOffset() == {topic: {"0": 0, "1": 0}}
    assert reader(startingOffsets="latest").initialOffset() == {topic: {"0": 10, "1": 10}}
    offsets = f'{{"{topic}":{{"0":3,"1":-1}}}}'
    assert reader(startingOffsets=offsets).initialOffset() == {topic: {"0": 3, "1": 10}}
    assert reader(startingTimestamp="0").initialOffset() == {topic: {"0": 0, "1": 0}}


def test_a_timestamp_after_the_last_record_is_an_error_or_the_end(
    reader: Callable[..., StreamReader], topic: str
) -> None:
    late = str(1 << 60)
    with pytest.raises(NotFound, match="has no record at or after its starting timestamp"):
        reader(startingTimestamp=late).initialOffset()
    at_end = reader(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert at_end.initialOffset() == {topic: {"0": 10, "1": 10}}


def test_a_batch_takes_everything_or_up_to_the_limit(reader: Callable[..., StreamReader], topic: str) -> None:
    made = reader()
    start = made.initialOffset()
    assert made.latestOffset(start, ALL) == {topic: {"0": 10, "1": 10}}
    assert made.latestOffset(start, ReadMaxRows(4)) == {topic: {"0": 2, "1": 2}}
    assert made.reportLatestOffset() == {topic: {"0": 10, "1": 10}}
    tasks = [partition.value.range for partition in made.partitions(start, {topic: {"0": 2, "1": 0}})]
    assert [(each.partition.partition, each.start, each.end) for each in tasks] == [(0, 0, 2)]


def test_a_batch_waits_for_enough_records(
    reader: Callable[..., StreamReader], topic: str, broker: Konvene
) -> None:
    made = reader(minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    begun = {topic: {"0": 0, "1": 0}}
    end = made.latestOffset(begun, ALL)
    assert end == {topic: {"0": 10, "1": 10}}
    broker.produce(topic, ["a", "b"], partition=0)
    assert made.latestOffset(end, ALL) == end
    broker.produce(topic, ["c", "d", "e"], partition=1)
    assert made.latestOffset(end, ALL) == {topic: {"0": 12, "1": 13}}


def test_partitions_that_appear_later_are_read_from_their_start(
    reader: Callable[..., StreamReader], broker: Konvene, topic: str
) -> None:
    made = reader(subscribe="", subscribePattern=f"{topic}.*", startingOffsets="latest")
    start = made.initialOffset()
    broker.create_topic(f"{topic}-later", partitions=1)
    broker.produce(f"{topic}-later", ["a", "b"])
    end = made.latestOffset(start, ALL)
    assert end == start | {f"{topic}-later": {"0": 2}}
    assert [str(partition.value.range) for partition in made.partitions(start, end)] == [
        f"offsets 0 to 1 of {topic}-later-0"
    ]


def test_available_now_ends_at_what_was_there(
    reader: Callable[..., StreamReader], broker: Konvene, topic: str
) -> None:
    made = reader(minOffsetsPerTrigger="1000")
    made.prepareForTriggerAvailableNow()
    broker.produce(topic, ["later"], partition=0)
    end = made.latestOffset({topic: {"0": 0, "1": 0}}, ALL)
    assert end == {topic: {"0": 10, "1": 10}}
    assert made.latestOffset(end, ALL) == end


def test_lost_partitions_are_an_error_or_passed_over(
    reader: Callable[..., StreamReader], broker: Konvene, topic: str
) -> None:
    start = {topic: {"0": 4, "1": 99}, "old": {"0": 1}}
    with pytest.raises(
        DataLoss, match=f"old-0 does not exist any more; {topic}-1 ends at offset 10, and was read up to 99"
    ):
        reader().latestOffset(start, ALL)
    made = reader(failOnDataLoss="false")
    end = made.latestOffset(start, ALL)
    assert end == {topic: {"0": 10, "1": 10}, "old": {"0": 1}}
    found = [str(each.value.range) for each in made.partitions(start, end)]
    assert found == [f"offsets 4 to 9 of {topic}-0", f"offsets 0 to 9 of {topic}-1"]


def test_a_missing_topic_or_partition_is_named(reader: Callable[..., StreamReader], topic: str) -> None:
    with pytest.raises(NotFound, match=r"topic nothing-here cannot be read: .*UNKNOWN_TOPIC"):
        reader(subscribe="nothing-here").initialOffset()
    with pytest.raises(NotFound, match=f"{topic}-7 does not exist"):
        reader(subscribe="", assign=f'{{"{topic}":[0,7]}}').initialOffset()
