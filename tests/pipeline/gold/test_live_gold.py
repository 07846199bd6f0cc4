"""Gold that is built while a cluster is followed equals gold of its files at the end, row for row."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.testing.readers import Reader, reader

from konvene.pipeline.engine import Local
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.sources.live import LiveReader
from konvene.pipeline.warehouse.read import table
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.testing import Konvene

COMPARED = ("rebalance", "rebalance_member", "ownership", "unavailability", "audit_event", "offset_commit")


def ingest_and_build(warehouse: Warehouse, logs: Path) -> Warehouse:
    ingest(warehouse, [logs], Local())
    build(warehouse, Local())
    return warehouse


def wait_for_records(consumer: Reader, records: int) -> None:
    deadline = time.monotonic() + 30
    while len(consumer.records) < records:
        assert time.monotonic() < deadline, consumer
        time.sleep(0.01)


@pytest.mark.konvene(topics={"orders": 4}, folder=True)
def test_steps_over_a_live_cluster_build_the_same_rows_as_its_files(konvene: Konvene, tmp_path: Path) -> None:
    """Each join, commit and leave is fetched, ingested and built before the next one."""
    followed, spool = Warehouse(tmp_path / "followed"), tmp_path / "spool"
    steps = []
    with LiveReader(konvene.bootstrap, spool) as live:

        def step() -> None:
            live.catch_up()
            steps.append(table(ingest_and_build(followed, spool), "rebalance").num_rows)

        with reader(konvene, "confluent-kafka", "ann") as ann:
            konvene.wait_stable("readers", members=1)
            step()
            with reader(konvene, "confluent-kafka", "bob"):
                konvene.wait_stable("readers", members=2)
                step()
            konvene.wait_stable("readers", members=1)
            konvene.produce("orders", [b"one", b"two", b"three"], partition=0)
            wait_for_records(ann, 3)
            ann.commit()
            step()
        konvene.wait_group("readers", lambda group: not group.members)
        step()
    konvene.stop()
    at_once = ingest_and_build(Warehouse(tmp_path / "at-once"), tmp_path / "konvene")
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    for name in COMPARED:
        assert table(followed, name).to_pylist() == table(at_once, name).to_pylist(), name
    assert table(followed, "audit_event").num_rows >= 3
