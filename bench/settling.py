"""Groups that settle: how long it takes until a group is stable after something happened, and what it costs.

What is measured is the same for every kind of group whose coordinator assigns; the kind is that of the crowd,
which whoever measures makes. `policy` says when members are told to heartbeat:

    kafka   every five seconds, as by Kafka
    told    sooner while there are few, and each heartbeat is answered at once
    held    the same, and the answers to heartbeats with nothing to tell are kept from clients that bear it

Only `held` members say who they are; the broker keeps nothing from clients that it does not know. All else is
as broker and members have it by default. "owned" is when every partition, or task, had an owner for good,
"stable" when all members were at the new epoch and had said so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bench.crowd import JAVA, NAMELESS, Consumer, Crowd, Software
from bench.figures import Figure, less
from bench.systems import Lab, Running, report_progress
from bench.topics import wait_for_coordinator

POLICIES: dict[str, dict[str, str]] = {
    "kafka": {"konvene.heartbeat.policy": "kafka"},
    "told": {"konvene.heartbeat.policy": "responsive", "konvene.heartbeat.hold.enable": "false"},
    "held": {"konvene.heartbeat.policy": "responsive"},
}
INTERVAL_S = 5.0
#: Past the shortest time between two targets.
BETWEEN_S = 1.5
GRACE = {"konvene.session.disconnect.grace.ms": "2000"}


def broker(lab: Lab, kind: str, policy: str, extra: dict[str, str] | None = None) -> Running:
    """A broker of this policy; where everything is made small, so is the time of groups of this kind."""
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
    """What members say that they are."""
    return JAVA if policy == "held" else NAMELESS


async def grown(crowd: Crowd, size: int, over_s: float = 0.0) -> None:
    """Let so many join, over so long: then their heartbeats are spread as those of a fleet."""
    members = await crowd.connect_all(size)
    for member in members:
        crowd.add(member)
        if over_s:
            await asyncio.sleep(over_s / size)


async def gathered(crowd: Crowd, size: int) -> Crowd:
    """A stable group whose members have no connections any more, soon: nobody waits for an interval."""
    await grown(crowd, size)
    await crowd.settle(0)
    for member in crowd.members:
        member.close()
    return crowd


async def stable(lab: Lab, crowd: Crowd, size: int) -> Crowd:
    """A stable group whose heartbeats are spread."""
    await grown(crowd, size, INTERVAL_S / lab.shrink)
    await crowd.settle(0)
    await asyncio.sleep(BETWEEN_S / lab.shrink)
    return crowd


class Took(NamedTuple):
    """What something cost."""

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
    """From now, when something happens, until the group is stable in a later epoch."""
    beyond = max(crowd.at, default=0)
    cpu, began = running.cpu_s(), time.monotonic()
    happens()
    settled = await crowd.settle(beyond)
    spent = running.cpu_s() - cpu
    return Took(1000 * (settled.owned_at - began), 1000 * (settled.stable_at - began), 1000 * spent)


async def all_at_once(running: Running, crowd: Crowd, size: int) -> Took:
    """From the first heartbeat until all have what they are meant to have."""
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
    """One more joins, one leaves, again and again, in a group that is stable before."""
    joins, farewells = [], []
    for _ in range(lab.windows.runs):
        (newcomer,) = await crowd.connect()
        joins.append(await measured(running, crowd, lambda member=newcomer: crowd.add(member)))  # type: ignore[misc]
        await asyncio.sleep(BETWEEN_S / lab.shrink)
        one = crowd.members[len(crowd.members) // 2]
        farewells.append(await measured(running, crowd, lambda member=one: leaves(crowd, member)))  # type: ignore[misc]
        one.close()
        await asyncio.sleep(BETWEEN_S / lab.shrink)
        report_progress(
            f"  one joins {joins[-1].stable_ms:.0f} ms, one leaves {farewells[-1].stable_ms:.0f} ms"
        )
    await crowd.end()
    return joins, farewells


async def kills(lab: Lab, running: Running, make: Callable[[], Crowd], size: int) -> list[Took]:
    """In one group after another: the connection of one is lost, and it never comes back."""
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
