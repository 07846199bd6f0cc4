"""Applications that are moved between the classic and the streams protocol while they run (KIP-1071).

A client keeps its name, its process and what is on the disk of that; each time that it starts it may speak
the other protocol, by itself or as its application is rolled. One with an instance id takes its own place.
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


def _somebody(world: World, name: str, group: str) -> Member:
    """Who has an instance id has it in every life."""
    every = world.options["instances"]
    static = bool(every) and int(name.removeprefix("c")) % every == 0
    share: float = world.upgraded.get(group, world.options["streams.upgraded"])
    if world.random.random() < share:
        return StreamsMember(world, name, group, static=static)
    return ClassicApplication(world, name, group, static=static)


def _hostile(world: World, name: str, group: str) -> Process:
    kind = HostileStreams if world.random.random() < 0.7 else HostileClassic
    return kind(world, name, group)


KINDS = (
    Kind("streams-migration", _somebody, _hostile, assigned=True, changes=True, applications=True),
)  # fmt: skip
