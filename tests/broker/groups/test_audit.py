"""Every rebalance has an audit row; a row that was lost in a crash is derived from the records."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.codec import batches
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import Member
from konvene.groups.consumer.log import (
    assignment_record,
    current_record,
    group_record,
    member_record,
    member_tombstones,
)
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from konvene.messages.sync_group import SyncGroupRequest
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, Record, decode_record, encode_record
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Rebalance

V = RequestContext(api_version=5, client_id="ann", client_host="/127.0.0.1", fresh_ids=("1",))


def rows(broker: Broker) -> list[RebalanceValue]:
    """Return the rows of `__konvene_audit`."""
    partition = broker.partitions.get(AUDIT_TOPIC, 0)
    assert partition is not None
    found = []
    for header, batch in partition.batches():
        for row in batches.records(batch, header):
            record = decode_record(row.key or b"", row.value, AUDIT_RECORDS)
            assert record is not None
            assert isinstance(record.value, RebalanceValue)
            found.append(record.value)
    return found


async def join_and_leave(broker: Broker) -> None:
    """Let a member join, lead and leave a group: two rebalances."""
    await broker.groups.make_ready()
    await asyncio.sleep(0.05)
    coordinator = broker.groups.of("g")
    assert coordinator is not None
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    rejection = await coordinator.submit(join, V)
    assert isinstance(rejection, JoinGroupResponse)
    joined = await coordinator.submit(join.replace(member_id=rejection.member_id), V)
    assert isinstance(joined, JoinGroupResponse)
    sync = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=rejection.member_id)
    await coordinator.submit(sync, V)
    leaving = MemberIdentity(member_id=rejection.member_id, reason="done")
    await coordinator.submit(LeaveGroupRequest(group_id="g", members=(leaving,)), V)


def summaries(broker: Broker) -> list[tuple[int, str, bool, list[str]]]:
    return [(r.epoch, r.state, r.inferred, [c.kind for c in r.causes]) for r in rows(broker)]


AS_IT_HAPPENED = [(1, "Stable", False, ["member-joined"]), (2, "Empty", False, ["member-left"])]


def test_each_rebalance_has_a_row_with_its_offsets(tmp_path: Path) -> None:
    """A row has the cause, the member, the client's reason, and the offsets of the records."""

    async def main() -> None:
        async with running(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
            await join_and_leave(broker)
            assert summaries(broker) == AS_IT_HAPPENED
            stable, empty = rows(broker)
            assert (stable.partition, stable.base_offset, stable.last_offset) == (0, 1, 1)
            assert (empty.partition, empty.base_offset, empty.last_offset) == (0, 2, 2)
            assert (empty.causes[0].client_id, empty.causes[0].reason) == ("ann", "done")
            assert stable.started_ms <= stable.joined_ms <= stable.ended_ms

    asyncio.run(main())


def test_a_restart_adds_no_rows(tmp_path: Path) -> None:
    """Existing rows are not derived again, after a clean shutdown or a crash."""

    async def main(crash: bool) -> None:
        async with running(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
            if not crash:
                await join_and_leave(broker)
        if crash:
            (tmp_path / ".kafka_cleanshutdown").unlink()
        async with running(tmp_path) as broker:
            await asyncio.sleep(0.1)
            assert summaries(broker) == AS_IT_HAPPENED

    asyncio.run(main(crash=False))
    asyncio.run(main(crash=True))


def test_rows_lost_in_a_crash_are_derived_and_marked(tmp_path: Path) -> None:
    """Inferred rows contain what the records prove."""

    async def main() -> None:
        async with running(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
            await join_and_leave(broker)
        lose_rows(tmp_path)
        async with running(tmp_path) as broker:
            await asyncio.sleep(0.1)
            assert summaries(broker) == [
                (1, "Stable", True, ["member-joined"]),
                (2, "Empty", True, ["member-gone"]),
            ]
            assert [(r.base_offset, r.last_offset) for r in rows(broker)] == [(1, 1), (2, 2)]

    asyncio.run(main())


def crash(directory: Path) -> None:
    """Make the next start treat the last shutdown as a crash."""
    (directory / ".kafka_cleanshutdown").unlink()


def lose_rows(directory: Path) -> None:
    """Delete the audit rows, as if the broker had crashed before writing any."""
    crash(directory)
    shutil.rmtree(directory / f"{AUDIT_TOPIC}-0")
    points = directory / "recovery-point-offset-checkpoint"
    kept = [line for line in points.read_text().splitlines()[2:] if AUDIT_TOPIC not in line]
    points.write_text("\n".join(["0", str(len(kept)), *kept, ""]))


def append(broker: Broker, *records: Record) -> None:
    """Append a batch to the only partition of `__consumer_offsets`."""
    partition = broker.partitions.get(OFFSETS_TOPIC, 0)
    assert partition is not None
    partition.append([encode_record(r, GROUP_RECORDS) for r in records], broker.environment.wall_clock_ms())


JOINS = (
    member_record("c", Member("m", client_id="ann", topics=frozenset("t"))),
    group_record("c", 2, 5),
    assignment_record("c", 2, 0),
    current_record("c", "m", CurrentAssignment(MemberState.STABLE, 2, 0)),
)
LEAVES = (*member_tombstones("c", "m"), group_record("c", 3, 0), assignment_record("c", 3, 0))


def test_lost_rows_of_consumer_groups_are_derived_once(tmp_path: Path) -> None:
    """Only rows after the last one are derived, though that needs the earlier records too."""

    async def main() -> None:
        async with running(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
            await broker.groups.make_ready()
            await asyncio.sleep(0.05)
            append(broker, *JOINS)
        crash(tmp_path)
        derived = [(2, "Assigning", True, ["member-joined"]), (2, "Stable", True, ["member-joined"])]
        async with running(tmp_path) as broker:
            await asyncio.sleep(0.1)
            assert summaries(broker) == derived
            append(broker, *LEAVES)
        crash(tmp_path)
        derived.append((3, "Empty", True, ["member-gone"]))
        for _ in range(2):
            async with running(tmp_path) as broker:
                await asyncio.sleep(0.1)
                assert summaries(broker) == derived
                assert [(r.base_offset, r.last_offset) for r in rows(broker)] == [(0, 1), (3, 3), (4, 7)]
                assert rows(broker)[-1].causes[0].client_id == "ann"
            crash(tmp_path)

    asyncio.run(main())


RUNS = Topology(
    epoch=0,
    subtopologies=(
        Subtopology(subtopology_id="0", source_topics=("lines",), repartition_sink_topics=("words",)),
        Subtopology(subtopology_id="1", repartition_source_topics=(TopicInfo(name="words", partitions=2),)),
    ),
)
"""A topology of four tasks, once the broker has created its internal topic."""


async def run_and_leave(broker: Broker) -> None:
    """Run two members of a streams group: one joins before the topics exist, the other leaves."""
    await broker.groups.make_ready()
    await asyncio.sleep(0.05)
    coordinator = broker.groups.of("app")
    assert coordinator is not None
    owned: dict[str, tuple[TaskIds, ...]] = {}
    epochs = dict.fromkeys(("m", "n"), 0)

    async def beat(member: str, epoch: int | None = None) -> None:
        joins = not epochs[member]
        own = owned.get(member, ())
        owned_tasks = {"active_tasks": own, "standby_tasks": (), "warmup_tasks": ()}
        initial: dict[str, object] = {"topology": RUNS, "process_id": member, "rebalance_timeout_ms": 10_000}
        request = StreamsGroupHeartbeatRequest(
            group_id="app", member_id=member, member_epoch=epochs[member] if epoch is None else epoch,
            **owned_tasks | (initial if joins else {}),
        )  # fmt: skip
        call = RequestContext(
            api_version=1, client_id=f"c-{member}", client_host="/127.0.0.1", fresh_ids=("1",)
        )
        answer = await coordinator.submit(request, call)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        epochs[member] = answer.member_epoch
        if answer.active_tasks is not None:
            owned[member] = answer.active_tasks

    async def settle(*members: str) -> None:
        for _ in range(100):
            for member in members:
                await beat(member)
            if (
                summaries(broker)[-1][1] == "Stable"
                and rows(broker)[-1].members
                and len(owned) == len(members)
            ):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(summaries(broker))

    await beat("m")
    await beat("m")
    assert summaries(broker)[-1][1] == "NotReady"
    await broker.topic_creator.create_missing(["lines"])
    await settle("m")
    await settle("m", "n")
    await beat("n", -1)


AT_ONCE = {
    "offsets.topic.num.partitions": "1", "num.partitions": "2",
    "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
}  # fmt: skip


def test_lost_rows_of_streams_groups_are_derived_completely(tmp_path: Path) -> None:
    """Derived rows have the same epochs, states, members and moved tasks, and are derived once.

    The cause of a departure cannot be derived."""

    def comparable_rows(broker: Broker) -> list[RebalanceValue]:
        """Return the rows without the fields that a log does not contain."""
        return [
            row.replace(
                inferred=True, protocol=None, base_offset=-1, last_offset=-1,
                causes=tuple(
                    c.replace(kind="member-gone" if c.kind == "member-left" else c.kind, at_ms=-1)
                    for c in row.causes
                ),
                members=tuple(sorted((m.replace(joined_ms=-1) for m in row.members), key=repr)),
                started_ms=-1, joined_ms=-1, ended_ms=-1,
            )
            for row in rows(broker)
        ]  # fmt: skip

    async def main() -> None:
        async with running(tmp_path, AT_ONCE) as broker:
            await run_and_leave(broker)
            live, names = comparable_rows(broker), summaries(broker)
        assert [(state, causes) for _, state, _, causes in names] == [
            ("Assigning", ["member-joined", "topology-initialized"]),
            ("NotReady", ["member-joined", "topology-initialized"]),
            ("Assigning", ["topic-metadata-changed"]),
            ("NotReady", ["topic-metadata-changed"]),
            ("Assigning", ["topic-metadata-changed", "topology-ready"]),
            ("Stable", ["topic-metadata-changed", "topology-ready"]),
            ("Assigning", ["member-joined"]),
            ("Stable", ["member-joined"]),
            ("Assigning", ["member-left"]),
        ]
        lose_rows(tmp_path)
        for _ in range(2):
            async with running(tmp_path, AT_ONCE) as broker:
                await asyncio.sleep(0.1)
                assert comparable_rows(broker) == live
                assert {inferred for _, _, inferred, _ in summaries(broker)} == {True}
            crash(tmp_path)

    asyncio.run(main())


def test_a_directory_without_audit_gets_one_at_the_first_start(tmp_path: Path) -> None:
    """Rebalances before it are derived once, later ones are recorded; directories of Kafka are such."""

    async def main() -> None:
        off = {"konvene.audit.enable": "false"}
        async with running(tmp_path, {"offsets.topic.num.partitions": "1"} | off) as broker:
            await join_and_leave(broker)
            assert broker.partitions.get(AUDIT_TOPIC, 0) is None
        derived = [(1, "Stable", True, ["member-joined"]), (2, "Empty", True, ["member-gone"])]
        for _ in range(2):
            async with running(tmp_path) as broker:
                await broker.groups.loaded()
                assert summaries(broker) == derived
        async with running(tmp_path) as broker:
            await join_and_leave(broker)
            assert summaries(broker) == [
                *derived, (3, "Stable", False, ["member-joined"]), (4, "Empty", False, ["member-left"]),
            ]  # fmt: skip

    asyncio.run(main())


def test_log_lines_have_generations_or_epochs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Classic groups have generations, the others epochs."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            for kind in ("classic", "consumer"):
                row = RebalanceValue(group_type=kind, epoch=4, state="Empty", started_ms=7, ended_ms=9)
                broker.audit.record(0, ExplainedRebalance(Rebalance("g", row), 1, 2))

    with caplog.at_level("INFO", "konvene.rebalance"):
        asyncio.run(main())
    classic, consumer = (json.loads(r.getMessage()) for r in caplog.records if r.name == "konvene.rebalance")
    assert classic == {
        "event": "rebalance", "group": "g", "type": "classic", "generation": 4, "state": "Empty",
        "duration_ms": 2, "members": 0, "inferred": False, "causes": [],
    }  # fmt: skip
    assert {key: consumer.get(key) for key in ("type", "epoch", "generation")} == {
        "type": "consumer", "epoch": 4, "generation": None,
    }  # fmt: skip


def test_an_audit_row_that_is_too_large_is_shortened(tmp_path: Path) -> None:
    """Long texts are cut first, then lists are halved repeatedly; a small row is unchanged."""

    def rebalance(members: int, text: str) -> RebalanceValue:
        return RebalanceValue(
            group_type="classic",
            epoch=members,
            causes=tuple(
                Cause(kind="member-joined", member_id=f"m-{i}", client_id=text, reason=text)
                for i in range(members)
            ),
            members=tuple(RebalancedMember(member_id=f"m-{i}", client_id=text) for i in range(members)),
        )

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.make_ready()
            for row in (rebalance(2, "x" * 300), rebalance(20, "x" * 32_000), rebalance(9000, "x" * 300)):
                broker.audit.record(0, ExplainedRebalance(Rebalance("g", row), 1, 2))
            small, long_texts, large = rows(broker)
            assert small.causes[0].reason == "x" * 300
            assert (len(long_texts.members), long_texts.members_left_out) == (20, 0)
            assert long_texts.causes[0].reason == long_texts.members[0].client_id == "x" * 256
            assert 0 < len(large.members) < 9000
            assert len(large.members) + large.members_left_out == 9000
            assert len(large.causes) + large.causes_left_out == 9000
            assert large.members[0].member_id == "m-0"

    asyncio.run(main())
