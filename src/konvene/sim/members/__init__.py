"""Simulated group members. Each kind of group has a module here, which `kinds` discovers.

Such a module lists its kinds in `KINDS`: the name, the function that makes an honest member, and the one that
makes a hostile client.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from konvene.sim.members.member import Member
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World


class Kind(NamedTuple):
    """A kind of simulated group: how its members are made, and what they can do."""

    name: str
    honest: Callable[[World, str, str], Member]
    """Makes a member from its world, name and group."""
    hostile: Callable[[World, str, str], Process]
    assigned: bool = False
    """Whether the coordinator computes the assignment of at least some of the members."""
    replaced_on_restart: bool = False
    """Whether a restarted member may be another object, with the other protocol."""
    transacts: bool = False
    """Whether members consume and commit in transactions."""
    applications: bool = False
    """Whether members are Kafka Streams applications, at least some with the streams protocol."""
    shares: bool = False
    """Whether members share partitions and acknowledge single records."""


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds of all modules in this package, by name."""
    found: dict[str, Kind] = {}
    for module in sorted(m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.")):
        kinds_of_module = getattr(import_module(module), "KINDS", ())
        found |= {kind.name: kind for kind in kinds_of_module}
    return found


def transacts(names: Sequence[str]) -> bool:
    """Return True if members of any of these kinds commit in transactions."""
    all_kinds = kinds()
    return any(name in all_kinds and all_kinds[name].transacts for name in names)


def shares(names: Sequence[str]) -> bool:
    """Return True if members of any of these kinds are in share groups."""
    all_kinds = kinds()
    return any(name in all_kinds and all_kinds[name].shares for name in names)


def runs_applications(names: Sequence[str]) -> bool:
    """Return True if members of any of these kinds are Kafka Streams applications."""
    all_kinds = kinds()
    return any(name in all_kinds and all_kinds[name].applications for name in names)


def assigns(names: Sequence[str]) -> bool:
    """Return True if the coordinator assigns the partitions or tasks of members of any of these kinds."""
    all_kinds = kinds()
    return any(name in all_kinds and all_kinds[name].assigned for name in names)
