"""The reducer's rows of a fresh log equal what the independent reader finds in Kafka's own dump of it."""

from pathlib import Path

import pytest
from tests.pipeline.independent.comparing import differences
from tests.pipeline.independent.dumped import records_of
from tests.pipeline.independent.reader import Reader
from tests.pipeline.reduce.reading import Rows, named

from konvene.codec import batches
from konvene.pipeline.reduce import PartitionReducer

from ..brokers import Broker
from ..tools import tools, why_no_tools
from .group import CONFLUENT, Group


def rows_of(segment: Path) -> Rows:
    reducer = PartitionReducer("c", 0)
    for header, batch in batches.batches(segment.read_bytes()):
        reducer.batch(header.base_offset, header.last_offset, header.record_count)
        for record in batches.records(batch, header):
            key, value = (None, None) if header.is_control else (record.key, record.value)
            reducer.take(record.offset, record.timestamp, key, value)
    reducer.finish()
    return named(reducer.drain())


@pytest.mark.java
def test_only_reader_of_a_topic_is_away(group: Group, broker: Broker, tmp_path: Path) -> None:
    """One member reads one topic, another one the other: it leaves and comes back. Its partitions had no
    owner meanwhile, although the group was stable."""
    missing = why_no_tools()
    if missing:
        pytest.skip(missing)
    other = f"{group.topic}-other"
    group.has(4)
    group.has(2, other)
    bea = group.join(CONFLUENT, "bea", topics=[other])
    bea.until("the other topic", lambda: len(bea.holds()) == 2, 30)
    ann = group.join(CONFLUENT, "ann", topics=[group.topic])
    ann.until("its topic", lambda: len(ann.holds()) == 4, 30)
    ann.close()
    group.settled(1)
    again = group.join(CONFLUENT, "ann-again", topics=[group.topic])
    again.until("its topic", lambda: len(again.holds()) == 4, 30)
    group.settled(2)
    left_open = 0
    with tools(tmp_path / "tools.log") as kafka_tools:
        for segment in sorted((broker.directory / "data").glob("__consumer_offsets-*/*.log")):
            options = "--offsets-decoder --deep-iteration --print-data-log"
            dump = kafka_tools.run(broker, f"kafka-dump-log {options} --files {segment}").out
            rows = rows_of(segment)
            assert differences(rows, Reader().read(records_of(dump))) == []
            gaps = [gap for gap in rows["unavailability"] if gap["group_id"] == group.name]
            left_open += sum(gap["left_open_by"] is not None for gap in gaps)
    assert left_open == 4
