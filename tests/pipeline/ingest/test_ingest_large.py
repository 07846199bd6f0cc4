"""Size: what a task holds does not grow with the log; many groups and large ones are groups like others."""

from __future__ import annotations

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
    """Bytes that are held at most while work is done, Python's and Arrow's."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some hundred records, row groups of as many, parts of an eighth of a megabyte."""
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
def test_what_is_held_does_not_grow_with_the_log(tmp_path: Path, little_room: None) -> None:
    """Eight times the log, of the same groups: each step needs about as much, for its lists of files a bit
    more."""
    held: dict[str, list[int]] = {"ingest": [], "build": []}
    sizes = []
    for n, records in enumerate((2_000, 16_000)):
        logs = tmp_path / f"logs-{n}"
        sizes.append(
            write_stories(logs, partition=0, groups=10, records=records, rebalances=records // 200).size
        )
        warehouse = Warehouse(tmp_path / f"w-{n}")
        held["ingest"].append(peak(lambda: ingest(warehouse, [logs], Local(), task_bytes=1 << 17)))  # noqa: B023
        held["build"].append(peak(lambda: build(warehouse, Local())))  # noqa: B023
    assert sizes[1] > 7 * sizes[0]
    for step, (less, more) in held.items():
        assert more < 1.7 * less + (1 << 20), (step, held[step])


def test_ten_thousand_groups(tmp_path: Path) -> None:
    """Each is told of, and none for another."""
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
    """Its record is more than a megabyte; three of them are three rebalances."""
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
    """All join in one epoch and each gets its partition; then one leaves."""

    def held(partition: int) -> tuple[consumer.TopicPartitions, ...]:
        return (consumer.TopicPartitions(partitions=(partition,)),)

    def current(n: int, epoch: int) -> Coordinated:
        value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch - 1, assigned_partitions=held(n)
        )
        key = consumer.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=f"m-{n:05}")
        return Coordinated(key, value)

    epoch = consumer.ConsumerGroupMetadataKey(group_id="g")
    made = consumer.ConsumerGroupTargetAssignmentMetadataKey(group_id="g")

    def raised(number: int) -> Coordinated:
        return Coordinated(epoch, consumer.ConsumerGroupMetadataValue(epoch=number))

    def target_made(number: int) -> Coordinated:
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
    gone = [Coordinated(each.key, None) for each in (current(0, 1), targets[0], joined[0])]
    decisions = [[*joined, raised(1)], [*targets, target_made(1)], *([current(n, 1)] for n in range(MANY))]
    decisions += [[*gone, raised(2)], [target_made(2)], *([current(n, 2)] for n in range(1, MANY))]
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
