"""Memory of a task does not grow with the log; many groups and very large groups are handled like others."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from bench.pipeline_stories import write_stories
from tests.pipeline.segments import Log, Record, expected, generation, records_of, write

from konvene.pipeline.codec import batches, bronze
from konvene.pipeline.engine import Local
from konvene.pipeline.gold import worker
from konvene.pipeline.gold.build import build
from konvene.pipeline.ingest import splits
from konvene.pipeline.ingest.ingest import ingest
from konvene.pipeline.warehouse import parquet, read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.records import consumer
from konvene.records.coordinator import GROUP_RECORDS, encode_record
from konvene.records.coordinator import Record as Coordinated

MANY = 10_000


def peak(work: Callable[[], object]) -> int:
    """Return the peak of bytes that Python and Arrow allocate while `work` runs.

    Garbage is collected as often as by default, so that the peak contains little of it."""
    before, thresholds = pa.default_memory_pool(), gc.get_threshold()
    gc.collect()
    gc.set_threshold(700, 10, 10)
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)
        pa.set_memory_pool(before)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit blocks and row groups to some hundred records, and parts to an eighth of a megabyte."""
    for module, name, value in (
        (parquet, "GROUP_ROWS", 500),
        (read, "ROWS", 500),
        (worker, "HEALTH_ROWS_AT_A_TIME", 500),
        (splits, "_AHEAD", 1 << 14),
    ):
        monkeypatch.setattr(module, name, value)
    for function in (batches.walk, bronze.blocks):
        monkeypatch.setitem(function.__kwdefaults__, "most_records", 500)


@pytest.mark.deep
def test_memory_does_not_grow_with_the_log(tmp_path: Path, small_limits: None) -> None:
    """For a log eight times as long, each step needs only a little more, for its lists of files."""
    peaks: dict[str, list[int]] = {"ingest": [], "build": []}
    sizes = []
    for n, records in enumerate((2_000, 16_000)):
        logs = tmp_path / f"logs-{n}"
        sizes.append(
            write_stories(logs, partition=0, groups=10, records=records, rebalances=records // 200).size
        )
        warehouse = Warehouse(tmp_path / f"w-{n}")
        peaks["ingest"].append(peak(lambda: ingest(warehouse, [logs], Local(), task_bytes=1 << 17)))  # noqa: B023
        peaks["build"].append(peak(lambda: build(warehouse, Local())))  # noqa: B023
    assert sizes[1] > 7 * sizes[0]
    for step, (less, more) in peaks.items():
        assert more < 1.7 * less + (1 << 20), (step, peaks[step])


def test_ten_thousand_groups(tmp_path: Path) -> None:
    """Each group has its own rebalances."""
    log: Log = []
    for n in range(MANY):
        first = Record(2 * n, 1000 + n, *encode_record(generation(f"g-{n}", 1, [f"m-{n}"]), GROUP_RECORDS))
        second = Record(2 * n + 1, 2000 + n, *encode_record(generation(f"g-{n}", 2, []), GROUP_RECORDS))
        log += [[first], [second]]
    write(tmp_path / "logs", log)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "rebalance", ["group_id", "to_epoch", "members", "member_id"]).to_pylist()
    assert sorted((r["group_id"], r["to_epoch"], r["members"], r["member_id"]) for r in rows) == sorted(
        row for n in range(MANY) for row in ((f"g-{n}", 1, 1, f"m-{n}"), (f"g-{n}", 2, 0, f"m-{n}"))
    )


def test_a_classic_group_of_ten_thousand(tmp_path: Path) -> None:
    """Its record is larger than a megabyte; three of them are three rebalances."""
    members = [f"member-{n:05}" for n in range(MANY)]
    log = [
        [Record(n, 1000 * n, *encode_record(generation("g", n + 1, members[: MANY - n]), GROUP_RECORDS))]
        for n in range(3)
    ]
    assert len(log[0][0].value or b"") > 1 << 19
    write(tmp_path / "logs", log)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    build(warehouse, Local())
    assert records_of(warehouse) == expected(log)
    rows = read.table(warehouse, "rebalance").to_pylist()
    assert [(r["to_epoch"], r["members"], r["joined"], r["gone"]) for r in rows] == [
        (1, MANY, MANY, 0),
        (2, MANY - 1, 0, 1),
        (3, MANY - 2, 0, 1),
    ]
    assert [r["member_id"] for r in rows[1:]] == ["member-09999", "member-09998"]


def test_a_consumer_group_of_ten_thousand(tmp_path: Path) -> None:
    """All members join in one epoch and are assigned a partition each; then one leaves."""

    def peaks(partition: int) -> tuple[consumer.TopicPartitions, ...]:
        return (consumer.TopicPartitions(partitions=(partition,)),)

    def current(n: int, epoch: int) -> Coordinated:
        value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch - 1, assigned_partitions=peaks(n)
        )
        key = consumer.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=f"m-{n:05}")
        return Coordinated(key, value)

    epoch = consumer.ConsumerGroupMetadataKey(group_id="g")
    made = consumer.ConsumerGroupTargetAssignmentMetadataKey(group_id="g")

    def epoch_record(number: int) -> Coordinated:
        return Coordinated(epoch, consumer.ConsumerGroupMetadataValue(epoch=number))

    def target_record(number: int) -> Coordinated:
        return Coordinated(made, consumer.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=number))

    joined, targets = [], []
    for n in range(MANY):
        key = consumer.ConsumerGroupMemberMetadataKey(group_id="g", member_id=f"m-{n:05}")
        value = consumer.ConsumerGroupMemberMetadataValue(
            instance_id=None, rack_id=None, client_id="app", client_host="/10.0.0.1",
            subscribed_topic_names=("t",), subscribed_topic_regex="", server_assignor="uniform",
        )  # fmt: skip
        joined.append(Coordinated(key, value))
        to = consumer.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id=f"m-{n:05}")
        wanted = consumer.TopicPartition(partitions=(n,))
        targets.append(
            Coordinated(to, consumer.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=(wanted,)))
        )
    departure = [Coordinated(each.key, None) for each in (current(0, 1), targets[0], joined[0])]
    decisions = [
        [*joined, epoch_record(1)],
        [*targets, target_record(1)],
        *([current(n, 1)] for n in range(MANY)),
    ]
    decisions += [
        [*departure, epoch_record(2)],
        [target_record(2)],
        *([current(n, 2)] for n in range(1, MANY)),
    ]
    log: Log = []
    offset = 0
    for ms, records in enumerate(decisions):
        pairs = [encode_record(record, GROUP_RECORDS) for record in records]
        log.append([Record(offset + i, ms, key, value) for i, (key, value) in enumerate(pairs)])
        offset += len(pairs)
    write(tmp_path / "logs", log)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, [tmp_path / "logs"], Local())
    build(warehouse, Local())
    rows = read.table(warehouse, "rebalance").to_pylist()
    columns = ("to_epoch", "members", "joined", "gone", "units", "moved", "state")
    assert [tuple(r[name] for name in columns) for r in rows] == [
        (1, MANY, MANY, 0, MANY, 0, "Stable"),
        (2, MANY - 1, 0, 1, MANY - 1, 0, "Stable"),
    ]
    assert read.table(warehouse, "ownership").num_rows == MANY
