"""Groups that are moved from one protocol to the other while they run: members of all kinds in one group.

A client keeps its name; each time that it starts it may speak the other protocol, as in a rolling upgrade, or
a rolling downgrade. One with an instance id keeps that too, and takes its own place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.sim.members import Kind
from konvene.sim.members.classic import ClassicMember
from konvene.sim.members.consumer import ConsumerMember
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.members.hostile.consumer import HostileConsumer
from konvene.sim.members.member import Member
from konvene.sim.world.process import Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World


def _somebody(world: World, name: str, group: str) -> Member:
    """Who has an instance id has it in every life: each third one."""
    static = int(name.removeprefix("c")) % 3 == 0
    kind = ConsumerMember if world.random.random() < world.options["upgraded"] else ClassicMember
    return kind(world, name, group, static=static)


def _hostile(world: World, name: str, group: str) -> Process:
    kind = HostileConsumer if world.random.random() < 0.7 else HostileClassic
    return kind(world, name, group)


KINDS = (Kind("migration", _somebody, _hostile, assigned=True, changes=True),)
