"""The reducer replays records as a broker's shard does, in whatever pieces it receives them."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from tests.groups.history.logs import LOGS, golden
from tests.groups.history.walking import Walk
from tests.groups.history.writing import Writer
from tests.pipeline.reduce.reading import LOGS_OF_GROUPS, feed, final, named, names_of, reduced

from konvene.codec import batches as rb
from konvene.groups.classic.log import from_record
from konvene.groups.shard import GroupShard
from konvene.pipeline.reduce import PartitionReducer
from konvene.pipeline.tables import TABLES
from konvene.records.classic import GroupMetadataValue


def as_shard_group(group_id: str, group: Any) -> Any:
    return from_record(group_id, group) if isinstance(group, GroupMetadataValue) else group


def shard_and_reducer(log: list[Any]) -> tuple[GroupShard, PartitionReducer]:
    shard, reducer = GroupShard(), PartitionReducer("c", 0)
    for batch in log:
        feed(reducer, [batch])
        for entry in batch.entries:
            if entry.record is not None:
                shard.replay(entry.record)
    return shard, reducer


def same_groups(log: list[Any]) -> int:
    shard, reducer = shard_and_reducer(log)
    of_log = {
        e.record.key.group_id
        for b in log
        for e in b.entries
        if hasattr(getattr(e.record, "key", None), "group_id")
    }
    of_log |= {
        e.record.key.group for b in log for e in b.entries if hasattr(getattr(e.record, "key", None), "group")
    }
    for group_id in of_log:
        expected = shard.groups.get(group_id)
        assert as_shard_group(group_id, reducer.group(group_id)) == expected, group_id
    return len(shard.groups)


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_groups_match_the_shard_for_golden_logs(name: str) -> None:
    """Compare states, epochs, current and target assignments at the end and after every seventh batch."""
    groups = 0
    for log in golden(name).values():
        for end in range(1, len(log) + 1, 7):
            same_groups(log[:end])
        groups += same_groups(log)
    assert groups


@pytest.mark.parametrize("seed", range(20))
def test_groups_match_the_shard_for_random_logs(seed: int) -> None:
    writer = Writer(seed)
    writer.write(100)
    same_groups(writer.log)
    walk = Walk(seed)
    walk.walk(60)
    same_groups(walk.log)


def owned_units(rows: list[dict[str, Any]], group: str, member: str, role: str) -> list[str]:
    mark = "_" if role in ("standby", "warmup") or any(o["group_type"] == "streams" for o in rows) else "-"
    return sorted(
        f"{o['topic']}{mark}{o['partition']}"
        for o in rows
        if o["group_id"] == group and o["member_id"] == member and o["role"] == role and o["to_ms"] is None
    )


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams"])
def test_open_ownership_matches_kafkas_final_description(name: str) -> None:
    """The last rebalance of each group also has the epoch, type, state and member count that Kafka
    described."""
    compared = 0
    for partition, log in golden(name).items():
        rows = reduced(log, partition, (), names_of(name))
        for group_id, group in final(name)["groups"].items():
            group_rows = [r for r in rows["rebalance"] if r["group_id"] == group_id]
            if not group_rows:
                continue
            last = group_rows[-1]
            assert (last["group_type"], last["state"]) == (group["type"].lower(), group["state"])
            assert last["members"] == len(group["members"])
            if group.get("groupEpoch") is not None:
                assert last["to_epoch"] == group["groupEpoch"]
            for member in group["members"]:
                partitions = "shared" if name == "share" else "active"
                for role, key in ((partitions, "assignment"), ("active", "active"), ("standby", "standby")):
                    if key in member:
                        compared += 1
                        found = owned_units(rows["ownership"], group_id, member["memberId"], role)
                        assert found == sorted(member[key])
    assert compared


def bytes_of(name: str, partition: int) -> list[Any]:
    """Return the batches of a golden log: each header with its undecoded records."""
    found = []
    for file in sorted((LOGS / name / f"__consumer_offsets-{partition}").glob("*.log")):
        found += [
            (header, list(rb.records(batch, header))) for header, batch in rb.batches(file.read_bytes())
        ]
    return found


@pytest.mark.parametrize("name", LOGS_OF_GROUPS)
def test_pickling_between_batches_changes_no_row(name: str) -> None:
    """A batch job and a stream produce the same rows, from bytes as from decoded records; all rows fit
    their schema."""
    for partition, log in golden(name).items():
        whole = reduced(log, partition, (), names_of(name))
        reducer = PartitionReducer("c", partition, (), names_of(name))
        rows: dict[str, list[Any]] = {table: [] for table in whole}
        for number, (header, records) in enumerate(bytes_of(name, partition)):
            if number % 3 == 0:
                reducer = pickle.loads(pickle.dumps(reducer))
            reducer.batch(header.base_offset, header.last_offset, header.record_count)
            for r in records:
                if header.is_control:
                    reducer.take(r.offset, r.timestamp, None, None)
                else:
                    reducer.take(r.offset, r.timestamp, r.key, r.value)
            for table, some in named(reducer.drain()).items():
                rows[table] += some
        reducer.finish()
        for table, some in named(reducer.drain()).items():
            rows[table] += some
        assert rows == whole
        for table, some in rows.items():
            schema = TABLES[table].schema
            made = pa.Table.from_pylist(some, schema)
            made.validate(full=True)
            assert [f.name for f in schema if not f.nullable and made.column(f.name).null_count] == []
            keys = [tuple(row[column] for column in TABLES[table].key) for row in some]
            assert len(set(keys)) == len(keys), table


def test_undecodable_record_is_counted_and_treated_as_a_gap() -> None:
    """Rebalances after an undecodable record are marked as missing evidence."""
    (header, records), *rest = bytes_of("consumer", 0)
    reducer = PartitionReducer("c", 0)
    reducer.batch(header.base_offset, header.last_offset, header.record_count)
    for r in records:
        newer = b"\x00\x63" + r.value[2:] if r.offset == header.base_offset else r.value
        reducer.take(r.offset, r.timestamp, r.key, newer)
    reducer.finish()
    rows = named(reducer.drain())
    assert reducer.unread == 1
    assert {r["evidence"] for r in rows["rebalance"]} == {"missing"}
    assert rest


def test_state_of_deleted_groups_is_dropped() -> None:
    """The reducer holds state for existing groups only."""
    writer = Writer(3, groups=40)
    writer.write(3_000)
    reducer = PartitionReducer("c", 0)
    feed(reducer, writer.log)
    shard, _ = shard_and_reducer(writer.log)
    untyped: Any = reducer
    assert len(untyped._tracks) - len(shard.groups) <= 1  # A group deleted by the very last batch.
    assert len({row["group_id"] for row in named(reducer.drain())["rebalance"]}) == 40


def test_reduction_is_deterministic() -> None:
    """Two reductions of one log return the same rows in the same order."""
    writer = Writer(8)
    writer.write(200)
    assert reduced(writer.log) == reduced(writer.log)
