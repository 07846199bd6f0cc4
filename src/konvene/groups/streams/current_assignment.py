"""The current assignment of a member of a streams group, and its next step towards the target.

    state              what the member knows and owes
    STABLE             it is at its epoch's target, or nothing stands in the way of the next one
    UNREVOKED_TASKS    it was told to give something up and has not confirmed that; it stays at its epoch
    UNRELEASED_TASKS   it is at the target's epoch, and waits for what others have not given up yet
    UNKNOWN            a newer coordinator wrote something else: it must come back with nothing

A member confirms by a heartbeat that says what it owns in all three roles, without what it was to give up.
Each active task carries the epoch in which it was assigned (KIP-1251).

Formulas, as in Kafka's CurrentAssignmentBuilder, where a unit is a role and a task:

    kept     = assigned ∩ target
    revoked  = assigned - kept
    granted  = target - kept, if it is free

    a wanted   is free unless
    active     anybody is active; or another member of this process has it as standby or warm-up
    standby    this process has it as standby; or another member of it is active or warms up
    warm-up    this process is active or warms up; or another member of it has it as standby

A task changes its role in place where nobody else has a say, and the client keeps its state:

    active → standby           the standby is granted at once; the active stays to be revoked
    standby ↔ warm-up          at once, with nothing to confirm
    standby, warm-up → active  never revoked: kept until the active is granted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import IntEnum

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import NO_TASKS, NOTHING, MemberAssignment, Tasks
from konvene.groups.modern.reconcile import reconcile
from konvene.shard.errors import GroupError


class Role(IntEnum):
    """What a member does with a task."""

    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


_ACTIVE, _STANDBY, _WARMUP = Role

Unit = tuple[Role, str, int]
"""A role, a subtopology's id, a partition."""

Epochs = Mapping[str, Mapping[int, int]]
"""Active tasks by subtopology id, each with the epoch in which it was assigned."""


class MemberState(IntEnum):
    """As the log has them: not the numbers of consumer groups."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class Held:
    """Tasks that somebody has, in three roles."""

    active: Epochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    warmup: Tasks = field(default_factory=lambda: NO_TASKS)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def has(self, role: Role, subtopology: str, partition: int) -> bool:
        return partition in self.of(role).get(subtopology, ())

    def of(self, role: Role) -> Epochs | Tasks:
        return (self.active, self.standby, self.warmup)[role]

    @property
    def tasks(self) -> MemberAssignment:
        """The same without epochs."""
        active = {subtopology: tuple(sorted(epochs)) for subtopology, epochs in self.active.items()}
        return MemberAssignment(active, self.standby, self.warmup)

    def units(self) -> set[Unit]:
        return units(self.active, self.standby, self.warmup)


NONE_HELD = Held()


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member owns or has yet to revoke, and its epochs."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Held = NONE_HELD
    pending_revocation: Held = NONE_HELD

    def is_at(self, epoch: int) -> bool:
        """Whether it is the whole target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


Processes = Callable[[Role, str, int], Set[str]]
"""Return the processes whose members own a task in a role, or have yet to revoke it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, and what its reconciliation depends on."""

    epoch: int
    tasks: MemberAssignment
    process_id: str
    processes: Processes


def next_assignment(
    current: CurrentAssignment, target: Target, owned: MemberAssignment | None
) -> CurrentAssignment:
    """Return the current assignment after the next step; the same object if there is none.

    `owned`: what the member says it has, None where it does not say. Raises FENCED_MEMBER_EPOCH for a member
    in an unknown state that does not say that it has nothing."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target.epoch:
                return current
            return _reconciled(current, target, owned, current.epoch)
        case MemberState.UNREVOKED_TASKS:
            if _still_has(owned, current.pending_revocation):
                return current
            return _reconciled(current, target, owned, current.epoch + 1)
        case MemberState.UNRELEASED_TASKS:
            return _reconciled(current, target, owned, current.epoch)
        case MemberState.UNKNOWN:
            if owned is None or owned != NOTHING:
                raise GroupError(
                    Errors.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. "
                    "The member must abandon all its tasks and rejoin.",
                )
            return _reconciled(current, target, owned, target.epoch)


def _reconciled(
    current: CurrentAssignment, target: Target, owned: MemberAssignment | None, epoch: int
) -> CurrentAssignment:
    """Reconcile with the target. The member is at `epoch` while it owes a revocation."""
    if current.assigned.tasks == target.tasks:
        return CurrentAssignment(MemberState.STABLE, target.epoch, current.epoch, current.assigned)
    wanted = units(target.tasks.active, target.tasks.standby, target.tasks.warmup)
    assigned = current.assigned
    parts = reconcile(assigned.units(), wanted, lambda unit: _is_free(unit, assigned, target))
    kept, revoked, granted = set(parts.kept), set(parts.revoked), set(parts.granted)
    _change_roles(assigned, kept, revoked, granted)
    promoted = _promoted(assigned, wanted)
    revoked.difference_update(promoted)
    owes = bool(revoked) and _still_has(owned, _held(revoked, assigned.active, 0))
    for role, subtopology, partition in promoted:
        if owes or (Role.ACTIVE, subtopology, partition) not in granted:
            kept.add((role, subtopology, partition))
    if owes:
        has = _held(kept, assigned.active, target.epoch)
        gives_up = _held(revoked, assigned.active, target.epoch)
        return CurrentAssignment(MemberState.UNREVOKED_TASKS, epoch, current.epoch, has, gives_up)
    state = MemberState.UNRELEASED_TASKS if parts.waits else MemberState.STABLE
    return CurrentAssignment(
        state, target.epoch, current.epoch, _held(kept | granted, assigned.active, target.epoch)
    )


def _is_free(unit: Unit, assigned: Held, target: Target) -> bool:
    role, subtopology, partition = unit

    def others_here(other: Role) -> bool:
        """Whether another member of this process has the task in that role."""
        here = target.process_id in target.processes(other, subtopology, partition)
        return here and not assigned.has(other, subtopology, partition)

    def here(other: Role) -> bool:
        return target.process_id in target.processes(other, subtopology, partition)

    match role:
        case Role.ACTIVE:
            taken = bool(target.processes(Role.ACTIVE, subtopology, partition))
            return not (taken or others_here(Role.STANDBY) or others_here(Role.WARMUP))
        case Role.STANDBY:
            return not (others_here(Role.ACTIVE) or here(Role.STANDBY) or others_here(Role.WARMUP))
        case Role.WARMUP:
            return not (here(Role.ACTIVE) or others_here(Role.STANDBY) or here(Role.WARMUP))


def _change_roles(assigned: Held, kept: set[Unit], revoked: set[Unit], granted: set[Unit]) -> None:
    """Grant at once what only the member itself has a say in."""
    for role, subtopology, partition in sorted(granted):
        unit = (role, subtopology, partition)
        if role is Role.STANDBY and assigned.has(Role.ACTIVE, subtopology, partition):
            kept.add(unit)
        for one, other in ((Role.STANDBY, Role.WARMUP), (Role.WARMUP, Role.STANDBY)):
            if role is other and assigned.has(one, subtopology, partition):
                kept.add(unit)
                revoked.discard((one, subtopology, partition))


def _promoted(assigned: Held, wanted: set[Unit]) -> list[Unit]:
    """What the member has as standby or warm-up and is meant to have as active."""
    return [
        (role, subtopology, partition)
        for role in (Role.STANDBY, Role.WARMUP)
        for subtopology, partitions in assigned.of(role).items()
        for partition in partitions
        if (Role.ACTIVE, subtopology, partition) in wanted
    ]


def _still_has(owned: MemberAssignment | None, gives_up: Held) -> bool:
    """Whether the member has one of these still, as far as it says."""
    if owned is None:
        return True
    return any(
        gives_up.has(role, subtopology, partition)
        for role, tasks in zip(Role, (owned.active, owned.standby, owned.warmup), strict=True)
        for subtopology, partitions in tasks.items()
        for partition in partitions
    )


def units(active: Epochs | Tasks, standby: Tasks, warmup: Tasks) -> set[Unit]:
    """Tasks in three roles, one by one."""
    found: set[Unit] = {(_ACTIVE, name, partition) for name, some in active.items() for partition in some}
    if standby:  # Most members have none, and this is asked of each of them again and again.
        found.update((_STANDBY, name, partition) for name, some in standby.items() for partition in some)
    if warmup:
        found.update((_WARMUP, name, partition) for name, some in warmup.items() for partition in some)
    return found


def _held(units: Iterable[Unit], since: Epochs, epoch: int) -> Held:
    """These units; who is active in one already has been so since then."""
    active: dict[str, dict[int, int]] = {}
    copies: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for role, subtopology, partition in sorted(units):
        if role is Role.ACTIVE:
            epochs = active.setdefault(subtopology, {})
            epochs[partition] = since.get(subtopology, {}).get(partition, epoch)
        else:
            copies[role - 1].setdefault(subtopology, []).append(partition)
    standby, warmup = ({name: tuple(some) for name, some in role.items()} for role in copies)
    return Held(active, standby, warmup)
