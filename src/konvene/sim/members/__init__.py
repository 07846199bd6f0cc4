"""Kinds of members, each in a file of its own that is found by itself.

A file of this package says `KINDS`: for each kind of group that it has members for, its name and who makes an
honest member, and one that is not honest.
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
    """A kind of group, as far as its members are concerned."""

    name: str
    honest: Callable[[World, str, str], Member]
    """Makes a member: its world, its name, its group."""
    hostile: Callable[[World, str, str], Process]
    assigned: bool = False
    """Whether the coordinator assigns, to some of them at least."""
    changes: bool = False
    """Whether one that comes back may be another than it was."""
    transacts: bool = False
    """Whether what they read and commit is in transactions."""
    applications: bool = False
    """Whether they are applications of Kafka Streams, some of them of the streams protocol at least."""
    shares: bool = False
    """Whether several of them read the same partition, and acknowledge each record."""


@cache
def kinds() -> dict[str, Kind]:
    """All kinds by name."""
    found: dict[str, Kind] = {}
    for module in sorted(m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.")):
        told = getattr(import_module(module), "KINDS", ())
        found |= {kind.name: kind for kind in told}
    return found


def transacts(names: Sequence[str]) -> bool:
    """Whether there are members of these kinds that commit in transactions."""
    known = kinds()
    return any(name in known and known[name].transacts for name in names)


def shares(names: Sequence[str]) -> bool:
    """Whether there are members of these kinds that share partitions."""
    known = kinds()
    return any(name in known and known[name].shares for name in names)


def runs_applications(names: Sequence[str]) -> bool:
    """Whether there are members of these kinds that are applications of Kafka Streams."""
    known = kinds()
    return any(name in known and known[name].applications for name in names)


def assigns(names: Sequence[str]) -> bool:
    """Whether there are members of these kinds to whom the coordinator assigns."""
    known = kinds()
    return any(name in known and known[name].assigned for name in names)
