"""No cell of the reducer differs from what the independent reader finds, in real and simulated logs."""

from __future__ import annotations

import pytest
from tests.groups.history.logs import golden
from tests.pipeline.independent.comparing import differences, printed
from tests.pipeline.independent.reader import Reader
from tests.pipeline.reduce.playing import Played
from tests.pipeline.reduce.reading import LOGS_OF_GROUPS, names_of, read_json_lines, reduced

from konvene.records.coordinator import GROUP_RECORDS, Record, decode_record


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_golden_logs(name: str) -> None:
    """Logs of Apache Kafka, in the text of Kafka's own decoder."""
    for partition, log in golden(name).items():
        records = [
            record for record in read_json_lines(name, "expected.jsonl")
            if (record["topic"], record["partition"]) == ("__consumer_offsets", partition)
        ]  # fmt: skip
        found = Reader(names_of(name)).read(records)
        assert found.rebalances or not records
        assert differences(reduced(log, partition, (), names_of(name)), found) == []


@pytest.mark.parametrize(
    "kind", ["classic", "static", "consumer", "consumer-static", "streams", "share", "migration"]
)
@pytest.mark.parametrize("seed", range(2))
def test_simulated_logs(kind: str, seed: int) -> None:
    """Members join, leave, fall silent and come back; groups are converted."""
    played = Played(kind, seed)
    records = []
    for batch, base in zip(played.batches, played.first, strict=False):
        for offset, (key, value) in enumerate(batch.pairs, base):
            record = decode_record(key, value, GROUP_RECORDS)
            if isinstance(record, Record):
                records.append(printed(offset, base, batch.timestamp_ms, record, value))
    found = Reader().read(records)
    assert found.rebalances
    assert differences(played.rows(audit=False), found) == []
