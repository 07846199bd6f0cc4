"""Who waits for whom in a streams group, from what StreamsGroupDescribe tells of its members.

A member has a target and what it has. A task that it wants as active waits for whoever else has it as active,
and for any other member of its process that has it in another role; a standby or a warm-up waits for other
members of its process alone. A member that others wait for is what a rebalance is stuck on, if it is stuck:
it is told first.

Kafka does not show what a member was told to give up and has not confirmed. A broker of ours does
(`messages.streams_notes`); of another all that can be said is who is behind, and may have it still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from konvene.cli.groups.progress import is_stale
from konvene.client.streams.tasks import Assignment, Role, Task, by_subtopology

if TYPE_CHECKING:
    from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription

__all__ = [
    "Standing", "Unit", "as_kafka", "of_itself", "sentences", "spelled", "standings", "stuck", "who",
]  # fmt: skip

AWAY = -2
"""The epoch of a static member that has left and said that it will be back."""

Unit = tuple[Role, Task]


class Standing(NamedTuple):
    """How far a member has come; each task in its role with the members that it concerns."""

    member: StreamsMemberDescription
    releases: Mapping[Unit, tuple[StreamsMemberDescription, ...]]
    """What it has still to release, and who waits for it."""
    waits: Mapping[Unit, tuple[StreamsMemberDescription, ...]]
    """What it waits for, and who has it."""
    behind: bool
    """Whether it has not come to the epoch of the assignment yet."""

    @property
    def is_awaited(self) -> bool:
        return any(self.releases.values())

    @property
    def is_away(self) -> bool:
        return self.member.epoch == AWAY

    @property
    def state(self) -> str:
        """Kafka's names for members' states, which no description tells: they follow from the rest."""
        if self.is_away:
            return "AWAY"
        if self.releases:
            return "UNREVOKED_TASKS"
        return "UNRELEASED_TASKS" if self.waits and not self.behind else "STABLE"


def standings(group: StreamsGroupDescription) -> list[Standing]:
    """All members: first those that others wait for, then those that have something to release."""
    has = {m.member_id: frozenset((*m.assignment.units(), *_owed(m).units())) for m in group.members}
    waits = {
        m.member_id: {unit: _holders(group, m, unit, has) for unit in (m.target - m.assignment).units()}
        for m in group.members
    }
    found = []
    for m in group.members:
        wanted = frozenset(m.target.units())
        releases = {
            unit: tuple(
                other
                for other in group.members
                if any(unit[1] == task and m in by for (_, task), by in waits[other.member_id].items())
            )
            for unit in _ordered(has[m.member_id] - wanted)
            if not _changes_role(unit, wanted)
        }
        behind = m.epoch < group.assignment_epoch
        found.append(Standing(m, releases, waits[m.member_id], behind))
    return sorted(found, key=lambda s: (not s.is_awaited, not s.releases, not s.waits))


def _changes_role(unit: Unit, wanted: frozenset[Unit]) -> bool:
    """Whether it becomes active, or a standby becomes a warm-up or the reverse: nothing is released then."""
    role, task = unit
    return role is not Role.ACTIVE and any((each, task) in wanted for each in Role)


def _owed(member: StreamsMemberDescription) -> Assignment:
    return member.owes if member.owes is not None else Assignment()


def _holders(
    group: StreamsGroupDescription,
    member: StreamsMemberDescription,
    unit: Unit,
    has: Mapping[str, frozenset[Unit]],
) -> tuple[StreamsMemberDescription, ...]:
    """The others that have to let go of a task before the member can have it in this role."""
    role, task = unit
    return tuple(
        other
        for other in group.members
        if other.member_id != member.member_id
        and (
            (role is Role.ACTIVE and (Role.ACTIVE, task) in has[other.member_id])
            or (
                other.process_id == member.process_id
                and any((each, task) in has[other.member_id] for each in Role)
            )
        )
    )


# in words -------------------------------------------------------------------------------------


def stuck(group: StreamsGroupDescription) -> list[str]:
    """A sentence for each member that others wait for: what it has not released, and for whom.

    Where nobody is seen to have what is waited for, and the broker does not tell what members owe, those
    are named that may."""
    found = standings(group)
    told = [
        f"{who(s.member)} has not released {_with_whom(s.releases, 'for which', 'waits', 'wait')}"
        for s in found
        if s.is_awaited
    ]
    unseen = [
        unit
        for s in found
        if s.member.owes is None and not s.is_away
        for unit, others in s.waits.items()
        if not others
    ]
    if unseen:
        told += [
            f"{who(s.member)} is at epoch {s.member.epoch}, and may have yet to release what others wait "
            f"for: {spelled(unseen)}"
            for s in found
            if s.behind and not s.is_away and not s.is_awaited
        ]
    return told


def sentences(standing: Standing, group: StreamsGroupDescription) -> list[str]:
    """What there is to say of one member that is not where it should be."""
    told = []
    if standing.is_away:
        told.append("has left for a while; what it has is kept for it until its session is over")
    if standing.releases:
        told.append(f"has not released {_with_whom(standing.releases, 'for which', 'waits', 'wait')}")
    held = {unit: others for unit, others in standing.waits.items() if others}
    free = [unit for unit in standing.waits if unit not in held]
    if held:
        told.append(f"waits for {_with_whom(held, 'which', 'has', 'have')}")
    if free and not standing.is_away:
        told.append(_of_free(free, standing, group))
    if standing.behind and not standing.is_away and not standing.releases:
        told.append(f"has not come to epoch {group.assignment_epoch} yet: it is at {standing.member.epoch}")
    return told + of_itself(standing.member, group)


def of_itself(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[str]:
    """What a member speaks and runs, where that is not what the group does."""
    told = ["speaks the classic protocol"] if member.is_classic else []
    return told + _of_topology(member, group)


def _of_topology(member: StreamsMemberDescription, group: StreamsGroupDescription) -> list[str]:
    """Whether the member runs another topology than the group's; stale is who runs an older one."""
    if group.topology is None or member.topology_epoch == group.topology.epoch:
        return []
    runs = f"runs topology {member.topology_epoch}, and the group's is {group.topology.epoch}"
    return [f"is stale: it {runs}" if is_stale(member, group) else runs]


def _of_free(free: list[Unit], standing: Standing, group: StreamsGroupDescription) -> str:
    """What nobody is seen to have."""
    tasks = spelled(free)
    others = [m for m in group.members if m.epoch < group.assignment_epoch and m is not standing.member]
    if standing.member.owes is None and others:
        names = ", ".join(_name(each) for each in others)
        return f"waits for {tasks}, which who is behind may have to release yet: {names}"
    return f"is given {tasks} with its next heartbeat: nobody is in the way"


def who(member: StreamsMemberDescription) -> str:
    """A member as it is named in a sentence."""
    return f"{member.instance_id or member.member_id} (client {member.client_id} at {member.client_host})"


def _name(member: StreamsMemberDescription) -> str:
    return member.instance_id or f"{member.member_id} ({member.client_id})"


def _with_whom(
    units: Mapping[Unit, tuple[StreamsMemberDescription, ...]], link: str, verb: str, verbs: str
) -> str:
    """`active 0_1,1_1, for which bob waits; standby 1_0`: tasks, grouped by whom they concern."""
    grouped: dict[str, list[Unit]] = {}
    words: dict[str, str] = {"": ""}
    for unit, others in units.items():
        names = " and ".join(sorted(_name(each) for each in others))
        words[names] = f", {link} {names} {verb if len(others) == 1 else verbs}" if names else ""
        grouped.setdefault(names, []).append(unit)
    order = sorted(grouped, key=lambda name: (not name, name))
    return "; ".join(spelled(grouped[name]) + words[name] for name in order)


def _ordered(units: Iterable[Unit]) -> list[Unit]:
    places = {role: i for i, role in enumerate(Role)}
    return sorted(units, key=lambda unit: (places[unit[0]], unit[1].sort_key))


def spelled(units: Iterable[Unit]) -> str:
    """`active 0_0,1_0 and standby 1_1`."""
    found: dict[Role, list[str]] = {}
    for role, task in _ordered(units):
        found.setdefault(role, []).append(str(task))
    return " and ".join(f"{role.value} {','.join(tasks)}" for role, tasks in found.items())


def as_kafka(assignment: Assignment, prefix: str = "") -> str:
    """As Kafka's tool spells it: `ACTIVE: 0:[0,1]; 1:[0,1]; STANDBY: 1:[2]; `."""
    parts = []
    for role in Role:
        tasks = by_subtopology(assignment.of(role))
        rows = [f"{name}:[{','.join(map(str, partitions))}];" for name, partitions in tasks.items()]
        if rows:
            parts.append(f"{prefix}{role.name}: {' '.join(rows)}")
    return " ".join(parts)
