"""Groups that migrate between the classic and the consumer protocol: they have members of both.

A client keeps its name; each time that it starts it may use the other protocol, as in a rolling upgrade or
downgrade. A static member keeps its instance id, and so replaces itself.
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


def _honest(world: World, name: str, group: str) -> Member:
    """Make a member of a random protocol; every third client is static, whatever its protocol."""
    static = int(name.removeprefix("c")) % 3 == 0
    kind = ConsumerMember if world.random.random() < world.options["upgraded"] else ClassicMember
    return kind(world, name, group, static=static)


def _hostile(world: World, name: str, group: str) -> Process:
    kind = HostileConsumer if world.random.random() < 0.7 else HostileClassic
    return kind(world, name, group)


KINDS = (Kind("migration", _honest, _hostile, assigned=True, replaced_on_restart=True),)
