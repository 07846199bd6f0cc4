"""Groups of Kafka Connect: connectors and tasks are units.

The vectors were written by Kafka 4.4's own classes: `ConnectProtocol.serializeAssignment` and
`serializeMetadata` for version 0, those of `IncrementalCooperativeConnectProtocol` for 1 and 2, with
`ExtendedAssignment` and `ExtendedWorkerState`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.groups.history.logs import Batch, Entry
from tests.pipeline.reduce.reading import reduced

from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.answers.sentences import sentence
from konvene.pipeline.answers.trace import units
from konvene.pipeline.reduce.connect import worker_units
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record

VECTORS = Path(__file__).parents[2] / "vectors" / "connect" / "protocol.jsonl"
BYTES = {
    (row["kind"], row["label"]): bytes.fromhex(row["hex"])
    for row in map(json.loads, VECTORS.read_text().splitlines())
}
FILES = {("files", -1, "connector"), ("files", 0, "task")}
RUNNING = {
    ("jdbc", -1, "connector"), ("jdbc", 0, "task"), ("jdbc", 1, "task"), ("s3", -1, "connector"),
    ("s3", 0, "task"),
}  # fmt: skip


def worker(name: str, metadata: str, assignment: str) -> MemberMetadata:
    return MemberMetadata(
        member_id=name, client_id=name, client_host="/h", rebalance_timeout=60_000, session_timeout=10_000,
        subscription=BYTES["metadata", metadata] if metadata else b"",
        assignment=BYTES["assignment", assignment] if assignment else b"",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "assignment", "expected"),
    [
        ("v0", "v0", FILES | {("files", 1, "task"), ("jdbc", -1, "connector"), ("jdbc", 0, "task")}),
        ("v0", "v0-empty", set()),
        ("v0", "v0-config-mismatch", set()),
        ("v0", "", set()),
        ("v1", "v1-nothing-new", RUNNING),
        ("v2", "v2-nothing-new", RUNNING),
        ("v1", "v1", {("s3", -1, "connector"), ("s3", 0, "task")} | FILES | {("files", 2, "task")}),
        ("v2", "v2", {("s3", -1, "connector"), ("s3", 0, "task")} | FILES | {("files", 2, "task")}),
        ("v1-new-worker", "v1", FILES | {("files", 2, "task")}),
        ("v2-new-worker", "v2-nothing-new", set()),
    ],
)
def test_worker_runs_what_it_ran_and_was_assigned_without_what_it_has_to_stop(
    metadata: str, assignment: str, expected: set[tuple[str, int, str]]
) -> None:
    """From protocol version 1 on, an assignment has changes only."""
    assert worker_units(worker("w", metadata, assignment)) == expected


def generation(number: int, ms: int, protocol: str, *workers: MemberMetadata) -> Batch:
    value = GroupMetadataValue(
        protocol_type="connect", generation=number, protocol=protocol, leader=workers[0].member_id,
        current_state_timestamp=ms, members=workers,
    )  # fmt: skip
    key = GroupMetadataKey(group="connect-cluster")
    return Batch(number - 1, number - 1, (Entry(number - 1, ms, key, Record(key, value)),))


def test_connectors_and_tasks_are_units_of_rebalances_and_intervals() -> None:
    """A second worker joins and gets what the first one stops."""
    rows = reduced([
        generation(1, 10, "sessioned", worker("a", "v2", "v2-nothing-new")),
        generation(2, 20, "sessioned", worker("a", "v2", "v2"),
                   worker("b", "v2-new-worker", "v2-nothing-new")),
    ])  # fmt: skip
    first, second = map(Rebalance.from_row, rows["rebalance"])
    assert (first.protocol_type, first.units, first.added, first.unit) == ("connect", 5, 5, "task")
    assert (second.units, second.kept, second.revoked, second.added) == (5, 2, 3, 3)
    assert "2 tasks stayed with their owners, 3 newly assigned" in sentence(second)
    open_intervals = [row for row in rows["ownership"] if row["to_ms"] is None]
    assert units(open_intervals) == "connector files, connector s3, files-0,2, s3-0"
    assert {row["role"] for row in rows["ownership"]} == {"connector", "task"}


def test_malformed_assignments_have_no_units() -> None:
    """Groups of other protocol types, and bytes that end early."""
    whole = BYTES["assignment", "v1"]
    for end in range(len(whole)):
        cut = worker("w", "v1", "").replace(assignment=whole[:end])
        assert worker_units(cut) == set()
