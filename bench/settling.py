"""Convergence of groups: time and CPU until a group is stable after a change.

The measurement is the same for consumer, share and streams groups; the caller's `Crowd` has the group type.
`policy` is the broker's heartbeat policy:

    kafka        every five seconds, as in Kafka
    responsive   sooner in small groups, and each heartbeat is answered at once
    held         as responsive, and responses without news are held for clients that tolerate it

Only members under `held` send their client name; the broker holds no responses of unknown clients. Everything
else has its default. "owned" is when every partition or task had its final owner, "stable" when all members
had acknowledged the new epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bench.crowd import JAVA, UNNAMED, Consumer, Crowd, Software
from bench.figures import Figure, less
from bench.systems import Lab, Running, report_progress
from bench.topics import wait_for_coordinator

POLICIES: dict[str, dict[str, str]] = {
    "kafka": {"konvene.heartbeat.policy": "kafka"},
    "responsive": {"konvene.heartbeat.policy": "responsive", "konvene.heartbeat.hold.enable": "false"},
    "held": {"konvene.heartbeat.policy": "responsive"},
}
INTERVAL_S = 5.0
#: Longer than the minimum time between two target assignments.
BETWEEN_S = 1.5
GRACE = {"konvene.session.disconnect.grace.ms": "2000"}


def broker(lab: Lab, kind: str, policy: str, extra: dict[str, str] | None = None) -> Running:
    """Return a broker with this policy; with reduced sizes also with shorter intervals for groups of this
    type."""
    settings = POLICIES[policy] | (extra or {})
    if lab.shrink > 1:
        settings |= {
            f"group.{kind}.heartbeat.interval.ms": "50",
            f"group.{kind}.min.heartbeat.interval.ms": "50",
            f"group.{kind}.assignment.interval.ms": "20",
        }
    running = lab.shared(settings)
    wait_for_coordinator(running, "consumers")
    return running


def software(policy: str) -> Software | None:
    """Return the client name that members send."""
    return JAVA if policy == "held" else UNNAMED


async def grown(crowd: Crowd, size: int, over_s: float = 0.0) -> None:
    """Let `size` members join over `over_s` seconds, which spreads their heartbeats."""
    members = await crowd.connect_all(size)
    for member in members:
        crowd.add(member)
        if over_s:
            await asyncio.sleep(over_s / size)


async def gathered(crowd: Crowd, size: int) -> Crowd:
    """Quickly create a stable group whose members have closed connections."""
    await grown(crowd, size)
    await crowd.settle(0)
    for member in crowd.members:
        member.close()
    return crowd


async def stable(lab: Lab, crowd: Crowd, size: int) -> Crowd:
    """Create a stable group with heartbeats spread over the interval."""
    await grown(crowd, size, INTERVAL_S / lab.shrink)
    await crowd.settle(0)
    await asyncio.sleep(BETWEEN_S / lab.shrink)
    return crowd


class Took(NamedTuple):
    """Time and CPU of a change."""

    owned_ms: float
    stable_ms: float
    cpu_ms: float


def costs(found: Iterable[Took], what: str = "") -> list[Figure]:
    owned, settled, cpu = zip(*found, strict=True)
    return [
        less(f"{what}owned, ms", owned),
        less(f"{what}stable, ms", settled),
        less(f"{what}CPU ms", cpu),
    ]


async def measured(running: Running, crowd: Crowd, happens: Callable[[], None]) -> Took:
    """Trigger a change and measure until the group is stable at a later epoch."""
    beyond = max(crowd.at, default=0)
    cpu, began = running.cpu_s(), time.monotonic()
    happens()
    settled = await crowd.settle(beyond)
    spent = running.cpu_s() - cpu
    return Took(1000 * (settled.owned_at - began), 1000 * (settled.stable_at - began), 1000 * spent)


async def all_at_once(running: Running, crowd: Crowd, size: int) -> Took:
    """Measure simultaneous joins, from the first heartbeat until all members have reached their target."""
    members = await crowd.connect_all(size)

    def all_join() -> None:
        for member in members:
            crowd.add(member)

    took = await measured(running, crowd, all_join)
    await crowd.end()
    return took


def leaves(crowd: Crowd, member: Consumer) -> None:
    crowd.drop(member)
    member.leave()


async def changes(lab: Lab, running: Running, crowd: Crowd) -> tuple[list[Took], list[Took]]:
    """Measure repeated joins and leaves of one member in a stable group."""
    joins, leaves_ = [], []
    for _ in range(lab.windows.runs):
        (newcomer,) = await crowd.connect()
        joins.append(await measured(running, crowd, lambda member=newcomer: crowd.add(member)))  # type: ignore[misc]
        await asyncio.sleep(BETWEEN_S / lab.shrink)
        one = crowd.members[len(crowd.members) // 2]
        leaves_.append(await measured(running, crowd, lambda member=one: leaves(crowd, member)))  # type: ignore[misc]
        one.close()
        await asyncio.sleep(BETWEEN_S / lab.shrink)
        report_progress(
            f"  one joins {joins[-1].stable_ms:.0f} ms, one leaves {leaves_[-1].stable_ms:.0f} ms"
        )
    await crowd.end()
    return joins, leaves_


async def kills(lab: Lab, running: Running, make: Callable[[], Crowd], size: int) -> list[Took]:
    """Measure the loss of one member's connection, in one group after another."""
    found = []
    for _ in range(lab.windows.runs):
        crowd = await stable(lab, make(), size)
        one = crowd.members[len(crowd.members) // 2]

        def lost(crowd: Crowd = crowd, member: Consumer = one) -> None:
            crowd.drop(member)
            member.close()

        found.append(await measured(running, crowd, lost))
        report_progress(f"  {found[-1].stable_ms:.0f} ms")
        await crowd.end()
    return found
