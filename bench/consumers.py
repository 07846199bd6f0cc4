"""Consumer groups (KIP-848): keep-alive heartbeats, simultaneous joins, and one change in a stable group.

`bench/settling.py` defines `policy`, "owned" and "stable".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import NamedTuple

from bench.crowd import Crowd
from bench.drive import Caller, Repeated, drive, run
from bench.figures import RSS, Figure, less, rates
from bench.probe import Probe, probing
from bench.settling import (
    BETWEEN_S,
    GRACE,
    INTERVAL_S,
    Took,
    all_at_once,
    broker,
    changes,
    costs,
    gathered,
    kills,
    measured,
    software,
    stable,
)
from bench.systems import Lab, Running, report_progress
from bench.topics import Topic, make_topic, prove
from bench.wire import Peer, frame_of
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

#: A heartbeat's answer up to its error code; the same for all members, but for their ids and epochs.
SAME = 11


def _broker(lab: Lab, policy: str, extra: dict[str, str] | None = None) -> Running:
    return broker(lab, "consumer", policy, extra)


def _crowd(running: Running, topic: Topic, policy: str) -> Crowd:
    return Crowd(running.port, topic, software(policy))


# --- keep-alive ------------------------------------------------------------------------------------

CONNECTIONS = 64
GROUPS = 10
A_GROUP = 100
PARTITIONS = 100


def heartbeat(lab: Lab) -> list[Figure]:
    """Measure keep-alive heartbeats of ten stable groups of a hundred members; one connection sends for many
    members."""
    running = _broker(lab, "kafka")
    topic = make_topic(running, lab.of(PARTITIONS))
    beats: list[ConsumerGroupHeartbeatRequest] = []
    for _ in range(lab.of(GROUPS)):
        beats += run(_made(running, topic, lab.of(A_GROUP)))
    proven = prove(running, beats[0], ConsumerGroupHeartbeatResponse, lambda answer: answer.error_code == 0)
    frames = [frame_of(beat) for beat in beats]
    connections = min(CONNECTIONS, len(frames))
    callers: list[Caller] = [Repeated(frames[i::connections], proven, SAME) for i in range(connections)]
    windows = lab.warmed(running, "consumer-heartbeat")
    return rates(drive(running.port, callers, 1, windows, running.cpu_s))


async def _made(running: Running, topic: Topic, size: int) -> list[ConsumerGroupHeartbeatRequest]:
    """Create stable groups and return the keep-alive heartbeats of their members."""
    crowd = await gathered(Crowd(running.port, topic, fast_setup=True), size)
    return [
        ConsumerGroupHeartbeatRequest(group_id=crowd.group, member_id=m.member_id, member_epoch=m.epoch)
        for m in crowd.members
    ]


# --- all at once -----------------------------------------------------------------------------------


def storm(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure the time from the first heartbeat until all members have reached their target; two partitions
    per member."""
    running, members = _broker(lab, policy), lab.of(size)
    topic = make_topic(running, 2 * members)
    if lab.warmed(running, "consumer-join").warm_s >= 1:
        small = make_topic(running, 2 * lab.of(100))
        run(all_at_once(running, _crowd(running, small, policy), lab.of(100)))
    found = []
    for _ in range(lab.windows.runs):
        found.append(run(all_at_once(running, _crowd(running, topic, policy), members)))
        report_progress(f"  owned {found[-1].owned_ms:.0f} ms, stable {found[-1].stable_ms:.0f} ms")
    return costs(found)


# --- one of a hundred ------------------------------------------------------------------------------


def change(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure the time until the group is stable again after one member joins and after one leaves."""
    running = _broker(lab, policy)
    topic = make_topic(running, 2 * lab.of(size))
    joins, leaves = run(_changes(lab, running, topic, policy))
    return costs(joins, "one joins: ") + costs(leaves, "one leaves: ")


async def _changes(lab: Lab, running: Running, topic: Topic, policy: str) -> tuple[list[Took], list[Took]]:
    return await changes(lab, running, await _stable(lab, running, topic, policy))


async def _stable(lab: Lab, running: Running, topic: Topic, policy: str) -> Crowd:
    """Return a stable group with two partitions per member and heartbeats spread over the interval."""
    return await stable(lab, _crowd(running, topic, policy), topic.partitions // 2)


def kill(lab: Lab, size: int) -> list[Figure]:
    """Measure the time until the other members own the partitions of a member whose connection was lost for
    good."""
    running = _broker(lab, "held", GRACE)
    topic = make_topic(running, 2 * lab.of(size))
    size = topic.partitions // 2
    return costs(run(kills(lab, running, lambda: _crowd(running, topic, "held"), size)))


# --- a quiet day -----------------------------------------------------------------------------------

MEMBERS = 1_000


def quiet_day(lab: Lab, policy: str) -> list[Figure]:
    """Measure the CPU of members that only send keep-alive heartbeats, in groups of a hundred."""
    running = _broker(lab, policy)
    topic = make_topic(running, 2 * lab.of(A_GROUP))
    shares = run(_quiet_day(lab, running, topic, policy))
    return [less("CPU, % of a core", shares), less(RSS, [running.rss_mib()])]


async def _quiet_day(lab: Lab, running: Running, topic: Topic, policy: str) -> list[float]:
    groups = max(lab.of(MEMBERS) // A_GROUP, 1)
    crowds = await asyncio.gather(*(_stable(lab, running, topic, policy) for _ in range(groups)))
    seconds = max(lab.windows.seconds, INTERVAL_S / lab.shrink)
    await asyncio.sleep(seconds)
    shares = []
    for _ in range(lab.windows.runs):
        cpu, began = running.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        shares.append(100 * (running.cpu_s() - cpu) / (time.monotonic() - began))
    for crowd in crowds:
        await crowd.end()
    return shares


# --- ten thousand ----------------------------------------------------------------------------------

#: Ten thousand targets are one batch of the offsets topic.
BATCH_BYTES = 16 << 20
TOPIC_RESOURCE, SET = 2, 0


def large(lab: Lab, size: int, policy: str) -> list[Figure]:
    """Measure a group of ten thousand members and partitions: all join, then one more, and the latency of
    other groups.

    The loop's CPU is that of the thread that makes all decisions; the disk is synced on other threads. The
    cost of one more member is measured above that of the idle group. The other group has one member, which
    heartbeats all the time from a process of its own. Two members share a connection: with one connection per
    member and a file per partition, a broker would need more descriptors than most systems allow."""
    members = lab.of(size)
    running = _broker(lab, policy)
    _allow_batches(running, BATCH_BYTES)
    topic = make_topic(running, members)
    with probing(running.port) as probe:
        return run(_large(lab, running, topic, policy, probe))


def _allow_batches(running: Running, size: int) -> None:
    setting = AlterableConfig(name="max.message.bytes", config_operation=SET, value=str(size))
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="__consumer_offsets", configs=(setting,)
    )
    with Peer(running.port) as peer:
        peer.ask(IncrementalAlterConfigsRequest(resources=(resource,)), IncrementalAlterConfigsResponse)


class Spell(NamedTuple):
    """A period of time and the resources that the broker used in it."""

    began: float
    ended: float
    cpu_s: float
    loop_s: float
    waited_s: float
    """Seconds in which the loop's thread was runnable without a CPU."""
    longest_ms: float
    """Longest response time of a member of the group, as it observed it."""
    taken_ms: float
    """Longest response time until the response arrived at the socket."""


async def _large(lab: Lab, running: Running, topic: Topic, policy: str, probe: Probe) -> list[Figure]:
    crowd = _crowd(running, topic, policy)
    members = await crowd.connect_all(topic.partitions, each=2)

    def all_join() -> None:
        for member in members:
            crowd.add(member)

    made = await measured(running, crowd, all_join)
    report_progress(f"  {topic.partitions} joined: {made.stable_ms:.0f} ms, CPU {made.cpu_ms:.0f} ms")
    quiet_s = max(2 * INTERVAL_S / lab.shrink, 0.2)
    await asyncio.sleep(quiet_s)
    quiet = await _spell(running, crowd, asyncio.sleep(quiet_s))
    joins: list[Took] = []
    spells: list[Spell] = []
    for _ in range(lab.windows.runs):
        (newcomer,) = await crowd.connect()
        joining = measured(running, crowd, lambda member=newcomer: crowd.add(member))  # type: ignore[misc]
        spells.append(await _spell(running, crowd, _kept(joining, joins)))
        report_progress(f"  one joins: {joins[-1].stable_ms:.0f} ms, CPU {joins[-1].cpu_ms:.0f} ms")
        await asyncio.sleep(BETWEEN_S / lab.shrink)
    rss = running.rss_mib()
    probe.end()
    for member in list(crowd.members):
        crowd.drop(member)
        member.close()
    rate, loop = (spent / (quiet.ended - quiet.began) for spent in (quiet.cpu_s, quiet.loop_s))
    above = [1000 * max(0.0, s.loop_s - loop * (s.ended - s.began)) for s in spells]
    return [
        *costs([made], "all join: "),
        less("quiet: CPU, % of a core", [100 * rate]),
        less("quiet: longest wait of others, ms", [probe.longest_ms(quiet.began, quiet.ended)]),
        less("quiet: longest wait of members, ms", [quiet.longest_ms]),
        less("quiet: longest that the broker took, ms", [quiet.taken_ms]),
        less("one joins: stable, ms", [took.stable_ms for took in joins]),
        less("one joins: CPU ms", [took.cpu_ms for took in joins]),
        less("one joins: loop's CPU ms", [1000 * s.loop_s for s in spells]),
        less("one joins: loop's CPU ms above quiet", above),
        less("one joins: loop without a CPU, ms", [1000 * s.waited_s for s in spells]),
        less("one joins: longest wait of others, ms", [probe.longest_ms(s.began, s.ended) for s in spells]),
        less("one joins: longest wait of members, ms", [s.longest_ms for s in spells]),
        less("one joins: longest that the broker took, ms", [s.taken_ms for s in spells]),
        less(RSS, [rss]),
    ]


async def _kept(taking: Awaitable[Took], found: list[Took]) -> None:
    found.append(await taking)


async def _spell(running: Running, crowd: Crowd, waits: Awaitable[None]) -> Spell:
    crowd.longest_s = crowd.longest_received_s = 0.0
    cpu, loop, waited, began = running.cpu_s(), running.loop_s(), running.loop_waited_s(), time.monotonic()
    await waits
    ended = time.monotonic()
    return Spell(
        began, ended, running.cpu_s() - cpu, running.loop_s() - loop, running.loop_waited_s() - waited,
        1000 * crowd.longest_s, 1000 * crowd.longest_received_s,
    )  # fmt: skip
