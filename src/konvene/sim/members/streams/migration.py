"""Applications that migrate between the classic and the streams protocol while they run (KIP-1071).

A client keeps its name, its process and the state on its disk. Each time that it starts it may use the other
protocol, by chance or because its application is rolled to it. A static member replaces itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.sim.members import Kind
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.members.hostile.streams import HostileStreams
from konvene.sim.members.member import Member
from konvene.sim.members.streams.classic import ClassicApplication
from konvene.sim.members.streams.member import StreamsMember
from konvene.sim.world.process import Process

if TYPE_CHECKING:
    from konvene.sim.world.world import World


def _honest(world: World, name: str, group: str) -> Member:
    """Make a member of a random protocol; a client is static in every life or in none."""
    static_interval = world.options["instances"]
    static = bool(static_interval) and int(name.removeprefix("c")) % static_interval == 0
    upgraded_fraction: float = world.upgraded.get(group, world.options["streams.upgraded"])
    if world.random.random() < upgraded_fraction:
        return StreamsMember(world, name, group, static=static)
    return ClassicApplication(world, name, group, static=static)


def _hostile(world: World, name: str, group: str) -> Process:
    kind = HostileStreams if world.random.random() < 0.7 else HostileClassic
    return kind(world, name, group)


KINDS = (
    Kind("streams-migration", _honest, _hostile, assigned=True, replaced_on_restart=True, applications=True),
)  # fmt: skip
