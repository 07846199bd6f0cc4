"""Streams groups (KIP-1071): keep-alive heartbeats, simultaneous joins, one change in a stable group, and
loading a large one.

`bench/settling.py` defines `policy`, "owned" and "stable". The first assignment of a group is not delayed
(`group.streams.initial.rebalance.delay.ms=0`).
"""

from __future__ import annotations

from bench.drive import Caller, Repeated, drive, run
from bench.figures import RSS, Figure, less, rates
from bench.instances import Instances
from bench.settling import (
    GRACE,
    POLICIES,
    all_at_once,
    broker,
    changes,
    costs,
    gathered,
    kills,
    software,
    stable,
)
from bench.systems import NO_DELAY, Lab, Running, report_progress
from bench.topics import Topic, make_topic, prove, wait_for_coordinator
from bench.wire import BadAnswer, frame_of
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

#: A heartbeat's answer up to its error code; the same for all members, but for their ids and epochs.
SAME = 11


def _broker(lab: Lab, policy: str, extra: dict[str, str] | None = None) -> Running:
    return broker(lab, "streams", policy, NO_DELAY | (extra or {}))


def _crowd(running: Running, topic: Topic, policy: str) -> Instances:
    return Instances(running.port, topic, software(policy))


# --- keep-alive ------------------------------------------------------------------------------------

CONNECTIONS = 64
GROUPS = 10
A_GROUP = 100


def heartbeat(lab: Lab) -> list[Figure]:
    """Measure keep-alive heartbeats of ten stable groups of a hundred members; one connection sends for many
    members."""
    running = _broker(lab, "kafka")
    topic = make_topic(running, lab.of(A_GROUP))
    beats: list[StreamsGroupHeartbeatRequest] = []
    for _ in range(lab.of(GROUPS)):
        beats += run(_made(running, topic, lab.of(A_GROUP)))
    proven = prove(running, beats[0], StreamsGroupHeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(CONNECTIONS, len(frames))
    callers: list[Caller] = [Repeated(frames[i::connections], proven, SAME) for i in range(connections)]
    windows = lab.warmed(running, "streams-heartbeat")
    return rates(drive(running.port, callers, 1, windows, running.cpu_s))


async def _made(running: Running, topic: Topic, size: int) -> list[StreamsGroupHeartbeatRequest]:
    """Create stable groups and return the keep-alive heartbeats of their members."""
    crowd = await gathered(Instances(running.port, topic, fast_setup=True), size)
    return [
        StreamsGroupHeartbeatRequest(group_id=crowd.group, member_id=m.member_id, member_epoch=m.epoch)
        for m in crowd.members
    ]


# --- all at once, one of a hundred -----------------------------------------------------------------


def storm(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure the time from the first heartbeat until all tasks have reached their target; two tasks per
    member."""
    running, members = _broker(lab, policy), lab.of(size)
    topic = make_topic(running, 2 * members)
    if lab.warmed(running, "streams-join").warm_s >= 1:
        small = make_topic(running, 2 * lab.of(100))
        run(all_at_once(running, _crowd(running, small, policy), lab.of(100)))
    found = []
    for _ in range(lab.windows.runs):
        found.append(run(all_at_once(running, _crowd(running, topic, policy), members)))
        report_progress(f"  owned {found[-1].owned_ms:.0f} ms, stable {found[-1].stable_ms:.0f} ms")
    return costs(found)


def change(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure the time until the group is stable again after one member joins and after one leaves."""
    running, members = _broker(lab, policy), lab.of(size)
    topic = make_topic(running, 2 * members)

    async def measure() -> list[Figure]:
        crowd = await stable(lab, _crowd(running, topic, policy), members)
        joins, leaves = await changes(lab, running, crowd)
        return costs(joins, "one joins: ") + costs(leaves, "one leaves: ")

    return run(measure())


def kill(lab: Lab, size: int) -> list[Figure]:
    """Measure the time until the other members own the tasks of a member whose connection was lost for
    good."""
    running, members = _broker(lab, "held", GRACE), lab.of(size)
    topic = make_topic(running, 2 * members)
    return costs(run(kills(lab, running, lambda: _crowd(running, topic, "held"), members)))


# --- a load ----------------------------------------------------------------------------------------

SUBTOPOLOGIES = 100
PARTITIONS = 100


def load(lab: Lab, size: int) -> list[Figure]:
    """Measure a restart after kill -9 with a group of ten thousand tasks, until all tasks are assigned
    again."""
    members = lab.of(size)
    starts, assigned, cpu = [], [], []
    with lab.fresh() as running:
        running.broker.settings |= NO_DELAY | POLICIES["responsive"]
        running.start()
        wait_for_coordinator(running, "streams")
        topic = make_topic(running, lab.of(PARTITIONS))
        group = run(_full(lab, running, topic, members))
        for _ in range(lab.windows.runs):
            running.kill()
            running.start()
            starts.append(1000 * running.ready_s)
            _wait_for_group(running, group, members, lab.of(SUBTOPOLOGIES) * topic.partitions)
            assigned.append(1000 * running.age_s())
            cpu.append(1000 * running.cpu_s())
            report_progress(
                f"  start {starts[-1]:.0f} ms, all assigned {assigned[-1]:.0f} ms, CPU {cpu[-1]:.0f} ms"
            )
        rss = running.rss_mib()
    return [
        less("start, ms", starts),
        less("all tasks assigned, ms", assigned),
        less("assigned after start, ms", [assigned[i] - starts[i] for i in range(len(assigned))]),
        less("CPU ms", cpu),
        less(RSS, [rss]),
    ]


async def _full(lab: Lab, running: Running, topic: Topic, members: int) -> str:
    crowd = Instances(running.port, topic, subtopologies=lab.of(SUBTOPOLOGIES))
    return (await gathered(crowd, members)).group


def _wait_for_group(running: Running, group: str, members: int, tasks: int) -> None:
    def right(answer: StreamsGroupDescribeResponse) -> bool:
        found = answer.groups[0]
        if found.error_code:
            return False
        there = sum(len(t.partitions) for m in found.members for t in m.assignment.active_tasks)
        if (len(found.members), there) != (members, tasks):
            raise BadAnswer(f"{group} has {len(found.members)} members with {there} tasks")
        return True

    prove(running, StreamsGroupDescribeRequest(group_ids=(group,)), StreamsGroupDescribeResponse, right)
