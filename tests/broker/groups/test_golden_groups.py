"""Kafka's own logs of group coordinators are loaded to the state that Kafka reported for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.groups.offsets.transacting import Batches, compacted

from konvene.broker.groups.record_serde import read
from konvene.client.consumer.protocol import read_assignment
from konvene.codec import batches as rb
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.groups.shard import GroupShard
from konvene.records.commits import Committed, OffsetCommitted, encode_group_record
from konvene.shard.contract import Context

CONFIG, _ = BrokerConfig.load()
LOGS = Path(__file__).parents[2] / "vectors" / "logs"


def loaded(name: str) -> GroupShard:
    """All partitions of `__consumer_offsets` of a golden log, as one shard."""
    whole = GroupShard()
    for folder in sorted((LOGS / name).glob("__consumer_offsets-*")):
        for file in sorted(folder.glob("*.log")):
            for header, batch in rb.batches(file.read_bytes()):
                for _, _, record in read(batch, header):
                    whole.replay(record)
    return whole


def offsets(shard: GroupShard, group: str) -> dict[str, Any]:
    return {
        f"{topic}-{partition}": {
            "offset": commit.offset,
            "leaderEpoch": None if commit.leader_epoch < 0 else commit.leader_epoch,
            "metadata": commit.metadata,
        }
        for topic, partitions in shard.offsets.get(group, {}).items()
        for partition, commit in partitions.items()
    }


def described(shard: GroupShard, group: str) -> dict[str, Any]:
    """Return a classic group in the format of `final.json`."""
    found = shard.groups[group]
    members = [
        {
            "memberId": m.member_id,
            "clientId": m.client_id,
            "instanceId": m.instance_id,
            "assignment": sorted(
                f"{topic}-{index}" for topic, index in read_assignment(m.assignment).partitions
            ),
        }
        for m in found.members.values()
    ]
    return {
        "protocol": found.protocol_type or "",
        "state": found.state.value,
        "assignor": found.protocol or "",
        "members": sorted(members, key=lambda m: str(m["memberId"])),
        "offsets": offsets(shard, group),
    }


@pytest.mark.parametrize("name", ["classic", "transactions"])
def test_a_log_of_kafka_loads_to_its_final_state(name: str) -> None:
    """Classic groups equal their final description, other groups have the same offsets."""
    final = json.loads((LOGS / name / "final.json").read_text())["groups"]
    shard = loaded(name)
    classic = {group for group, expected_group in final.items() if expected_group["type"] == "Classic"}
    assert classic
    for group, expected_group in final.items():
        assert offsets(shard, group) == expected_group["offsets"], group
        if group in classic:
            found = described(shard, group)
            expected = {key: expected_group[key] for key in found}
            expected["members"] = [
                {key: m[key] for key in ("memberId", "clientId", "instanceId", "assignment")}
                for m in sorted(expected_group["members"], key=lambda m: str(m["memberId"]))
            ]
            assert found == expected, group
    undeleted = {group for group in shard.groups if group not in final}
    assert not undeleted, "groups that Kafka had deleted"


def test_transactional_offsets_of_a_log_of_kafka_count_once_committed() -> None:
    """Each group has the expected offset after each commit and each marker."""
    committed: dict[str, list[int]] = {"eos-classic": [], "eos-consumer": []}
    open_: list[int] = []
    (log,) = partitions("transactions")
    shard = GroupShard()
    for header, batch in log:
        for _, _, record in read(batch, header):
            shard.replay(record)
        open_.append(len(shard.pending.by_producer))
        for group, seen in committed.items():
            known = shard.offsets.get(group, {}).get("in", {}).get(0)
            if known is not None and (not seen or seen[-1] != known.offset):
                seen.append(known.offset)
    assert committed == {group: [5, 15, 20, 30, 1, 2] for group in committed}
    assert {*open_} == {0, 1}
    assert open_[-1] == 0
    assert not shard.ignored_records


def commit(offset: int, base: int, producer: int = -1) -> tuple[rb.BatchHeader, memoryview]:
    pair = encode_group_record(OffsetCommitted("g", "t", 0, Committed(offset)))
    data = rb.build_simple(
        [pair], 1, base_offset=base, producer_id=producer, producer_epoch=0, transactional=producer >= 0
    )
    return rb.read_header(data), memoryview(data)


def end(committed: bool, base: int, producer: int) -> tuple[rb.BatchHeader, memoryview]:
    data = rb.end_marker(
        committed,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1,
        base_offset=base,
    )
    return rb.read_header(data), memoryview(data)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([commit(1, 0), commit(5, 1, 7)], 1),
        ([commit(1, 0), commit(5, 1, 7), end(True, 2, 7)], 5),
        ([commit(1, 0), commit(5, 1, 7), end(False, 2, 7)], 1),
        ([commit(5, 0, 7), commit(1, 1), end(True, 2, 7)], 1),
        ([commit(5, 0, 7), commit(6, 1, 8), end(True, 2, 8), end(True, 3, 7)], 6),
        ([commit(5, 0, 7), commit(6, 1, 8), end(True, 2, 7), end(False, 3, 8)], 5),
        ([commit(5, 0, 7), end(False, 1, 7), commit(4, 2, 7), end(True, 3, 7), commit(3, 4)], 3),
    ],
)
def test_commits_of_a_transaction_count_when_it_is_committed(log: list[Any], expected: int) -> None:
    """Of two commits the one later in the log counts, whichever transaction ended first."""
    shard = GroupShard()
    for header, batch in log:
        for _, _, record in read(batch, header):
            shard.replay(record)
    assert shard.offsets["g"]["t"][0].offset == expected


def partitions(name: str) -> list[Batches]:
    return [
        [pair for file in sorted(folder.glob("*.log")) for pair in rb.batches(file.read_bytes())]
        for folder in sorted((LOGS / name).glob("__consumer_offsets-*"))
    ]


def state_of(log: Batches) -> tuple[Any, ...]:
    """Return the state of a shard that has replayed and loaded this log."""
    shard = GroupShard()
    for header, batch in log:
        for _, _, record in read(batch, header):
            shard.replay(record)
    shard.load(Context(0, CONFIG, group_configs=GroupConfigs(CONFIG)))
    return shard.groups, shard.offsets, shard.pending.by_group


@pytest.mark.parametrize("name", ["classic", "transactions"])
def test_whatever_compaction_leaves_of_a_log_loads_to_the_same(name: str) -> None:
    """Each prefix compacted with the rest unchanged, and the whole log; open transactions are kept."""
    for log in partitions(name):
        whole = state_of(log)
        assert whole[0] or whole[1]
        for end in {*range(0, len(log), max(1, len(log) // 60)), len(log)}:
            assert state_of([*compacted(log[:end]), *log[end:]]) == whole


@pytest.mark.parametrize("name", ["classic", "consumer", "share", "streams", "transactions"])
def test_any_window_of_a_log_loads(name: str) -> None:
    """Without the records before and after the window, replaying and loading raise no error."""
    for log in partitions(name):
        step = max(1, len(log) // 16)
        for start in range(0, len(log), step):
            for end in range(start + 1, len(log) + 1, step):
                state_of(log[start:end])
