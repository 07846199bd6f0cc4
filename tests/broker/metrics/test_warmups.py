"""Metrics of warm-up tasks, and of members with an older topology."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.metrics.scraping import scrape, value
from tests.broker.metrics.test_whole import running_with_topic
from tests.broker.net.raw_connections import Line

from konvene.broker.metrics.group_gauges import GroupGauges
from konvene.broker.metrics.group_types import Moved, moved
from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.meter import Meter
from konvene.broker.metrics.warmups import Warming, stale_members, warming
from konvene.groups.assignors.tasks.contract import MemberAssignment
from konvene.groups.streams.current_assignment import CurrentAssignment, OwnedTasks
from konvene.groups.streams.group import Member, Reported, StreamsGroup
from konvene.groups.streams.log import target_record
from konvene.groups.streams.topology.topology import Topology
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskOffset
from konvene.sim.transcript.streams_commands import topology_of

AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
    "konvene.streams.mode": "kip", "group.streams.assignors": "highly_available",
}  # fmt: skip


def group(*, meant: bool = True) -> StreamsGroup:
    """Return a group where ann runs 0_0 and 0_1 and bob warms up both; only the lag of 0_0 is known."""
    both = MemberAssignment(warmup={"0": (0, 1)})
    found = StreamsGroup("s", targets={"bob": both} if meant else {})
    found.topology = Topology.from_request(topology_of("0:orders!sums", 1))
    found.put(Member("ann", process_id="p", topology_epoch=0))
    found.put(
        Member(
            "bob",
            process_id="q",
            topology_epoch=1,
            current=CurrentAssignment(assigned=OwnedTasks(warmup=both.warmup)),
        )
    )
    found.reported["ann"] = Reported(end_offsets={"0": {0: 900, 1: 800}})
    found.reported["bob"] = Reported({"0": {0: 200}}, reports=True)
    return found


def test_lag_is_the_largest_known_one() -> None:
    assert warming(group()) == Warming(2, 700)
    assert warming(group(meant=False)) == Warming()
    silent = group()
    del silent.reported["bob"]
    assert warming(silent) == Warming(2, None)
    assert stale_members(group()) == 1


def test_groups_with_the_same_label_are_added_up() -> None:
    census = GroupGauges(Meter(0))
    for _ in range(2):
        census.add(group())
    assert (census.warmups, census.stale, census.warmup_lags) == ({OTHER: 4}, {OTHER: 2}, {OTHER: 700})


def test_warm_up_completes_when_its_member_becomes_active() -> None:
    groups = {"s": group()}
    active = MemberAssignment({"0": (0, 5)}, warmup={"0": (1,)})
    assert moved(groups, target_record("s", "bob", active)) == Moved("s", "streams", 2, 1)
    assert moved(groups, target_record("s", "ann", active)) == Moved("s", "streams", 3, 0)
    meter = Meter(1)
    for times in (1, 2):
        meter.moved(Moved("s", "streams", 2, 1))
        assert meter.warmed_up == {"s": times}
    meter.forget("s")
    assert meter.warmed_up == {}


def test_warm_up_of_a_running_broker_is_reported(tmp_path: Path) -> None:
    """Ann has all four tasks and bob warms up two; then bob joins with another topology."""

    async def main() -> None:
        async with running_with_topic(tmp_path, AT_ONCE) as (broker, port, _):
            line = await Line.to(broker)

            async def beat(member: str, epoch: int, **more: Any) -> Any:
                fields = {"group_id": "s", "member_id": member, "member_epoch": epoch} | more
                response = await line.ask(88, 1, StreamsGroupHeartbeatRequest(**fields))
                assert response.error_code == 0, response
                return response

            async def join(member: str, text: str = "0:orders!sums", epoch: int = 0) -> Any:
                return await beat(
                    member, 0, topology=topology_of(text, epoch), rebalance_timeout_ms=10_000,
                    process_id=member, client_tags=(), active_tasks=(), standby_tasks=(), warmup_tasks=(),
                    task_offsets=(),
                )  # fmt: skip

            ann = await join("ann")
            while not ann.active_tasks:
                await asyncio.sleep(0.01)
                ann = await join("ann")
            bob = await join("bob")
            ann = await beat("ann", ann.member_epoch)
            (warms_up,) = bob.warmup_tasks
            tasks = [(warms_up.subtopology_id, p) for p in warms_up.partitions]
            assert len(tasks) == 2

            async def report(at: int) -> Any:
                return await beat(
                    "bob", bob.member_epoch, active_tasks=(), standby_tasks=(), warmup_tasks=(warms_up,),
                    task_offsets=tuple(_offset(t, at) for t in tasks),
                    task_end_offsets=tuple(_offset(t, 50_000) for t in tasks),
                )  # fmt: skip

            await report(20_000)
            found = await scrape(port)
            assert value(found, "konvene_streams_warmup_tasks", group="s") == 2
            assert value(found, "konvene_streams_warmup_lag_records", group="s") == 30_000
            assert value(found, "konvene_streams_warmups_completed_total", group="s") == 0
            assert value(found, "konvene_streams_stale_members", group="s") == 0
            bob = await report(45_000)
            found = await scrape(port)
            assert value(found, "konvene_streams_warmup_tasks", group="s") == 0
            assert value(found, "konvene_streams_warmups_completed_total", group="s") == 2
            caught_up = {"protocol": "streams", "cause": "warmup-caught-up"}
            assert value(found, "konvene_rebalance_causes_total", **caught_up) == 1
            await join("bob", "0:orders", 1)
            found = await scrape(port)
            assert value(found, "konvene_streams_stale_members", group="s") == 1

    asyncio.run(main())


def _offset(task: tuple[str, int], at: int) -> TaskOffset:
    return TaskOffset(subtopology_id=task[0], partition=task[1], offset=at)
