"""The current assignment of a member of a streams group, and its next step towards the target.

    state              meaning
    STABLE             the member has the target of its epoch
    UNREVOKED_TASKS    it has to revoke tasks and has not acknowledged that; it stays at its epoch
    UNRELEASED_TASKS   it is at the target's epoch, and waits for tasks that others still own
    UNKNOWN            any other value, written by a newer coordinator: the member must rejoin without tasks

A member acknowledges a revocation by a heartbeat that lists its owned tasks in all three roles without the
revoked ones. Each active task has the epoch in which it was assigned (KIP-1251).

Formulas, as in Kafka's CurrentAssignmentBuilder, where a unit is a role and a task:

    kept     = assigned ∩ target
    revoked  = assigned - kept
    granted  = target - kept, if it is free

    a task     is free for a member unless
    active     any member has it as active task, or another member of its process as standby or warm-up
    standby    its process has it as standby, or another member of its process as active task or warm-up
    warm-up    its process has it as active task or warm-up, or another member of its process as standby

If a task only changes its role on a member, the client keeps its state, and waits for no other member:

    active → standby           the standby is granted at once; the active task has yet to be revoked
    standby ↔ warm-up          changed at once, without an acknowledgement
    standby, warm-up → active  the copy is not revoked, but kept until the active task is granted
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
    """The role in which a member has a task."""

    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


_ACTIVE, _STANDBY, _WARMUP = Role

Unit = tuple[Role, str, int]
"""A role, a subtopology's id, a partition."""

Epochs = Mapping[str, Mapping[int, int]]
"""Active tasks by subtopology id, each with the epoch in which it was assigned."""


class MemberState(IntEnum):
    """The state of a member; the number is its value in the log, and differs from that of consumer groups."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """The tasks of a member by role; each active one with the epoch in which it was assigned."""

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
        """Return the tasks without epochs."""
        active = {subtopology: tuple(sorted(epochs)) for subtopology, epochs in self.active.items()}
        return MemberAssignment(active, self.standby, self.warmup)

    def units(self) -> set[Unit]:
        return units(self.active, self.standby, self.warmup)


NO_OWNED_TASKS = OwnedTasks()


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The tasks that a member owns, those that it has yet to revoke, its state and its epochs."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: OwnedTasks = NO_OWNED_TASKS
    pending_revocation: OwnedTasks = NO_OWNED_TASKS

    def is_at(self, epoch: int) -> bool:
        """Return whether the member has reached its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


Processes = Callable[[Role, str, int], Set[str]]
"""Return the processes whose members own a task in a role, or have yet to revoke it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, with its epoch, the member's process, and the index of owners."""

    epoch: int
    tasks: MemberAssignment
    process_id: str
    processes: Processes


def next_assignment(
    current: CurrentAssignment, target: Target, owned: MemberAssignment | None
) -> CurrentAssignment:
    """Return the current assignment after the next step towards the target; `current` if there is none.

    `owned`: tasks that the heartbeat lists as owned, None if it has no list. Raises FENCED_MEMBER_EPOCH for a
    member in state UNKNOWN unless its list is empty.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target.epoch:
                return current
            return _reconciled(current, target, owned, current.epoch)
        case MemberState.UNREVOKED_TASKS:
            if _owns_any(owned, current.pending_revocation):
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
    """Return the assignment after the next step: revoke tasks that are not in the target, or grant free ones.

    `epoch`: the epoch of the member as long as it has to revoke tasks.
    """
    if current.assigned.tasks == target.tasks:
        return CurrentAssignment(MemberState.STABLE, target.epoch, current.epoch, current.assigned)
    wanted = units(target.tasks.active, target.tasks.standby, target.tasks.warmup)
    assigned = current.assigned
    parts = reconcile(assigned.units(), wanted, lambda unit: _is_free(unit, assigned, target))
    kept, revoked, granted = set(parts.kept), set(parts.revoked), set(parts.granted)
    _change_roles(assigned, kept, revoked, granted)
    promoted = _promoted(assigned, wanted)
    revoked.difference_update(promoted)
    must_revoke = bool(revoked) and _owns_any(owned, _owned_tasks(revoked, assigned.active, 0))
    for role, subtopology, partition in promoted:
        if must_revoke or (Role.ACTIVE, subtopology, partition) not in granted:
            kept.add((role, subtopology, partition))
    if must_revoke:
        keeping = _owned_tasks(kept, assigned.active, target.epoch)
        revoking = _owned_tasks(revoked, assigned.active, target.epoch)
        return CurrentAssignment(MemberState.UNREVOKED_TASKS, epoch, current.epoch, keeping, revoking)
    state = MemberState.UNRELEASED_TASKS if parts.waits else MemberState.STABLE
    return CurrentAssignment(
        state, target.epoch, current.epoch, _owned_tasks(kept | granted, assigned.active, target.epoch)
    )


def _is_free(unit: Unit, assigned: OwnedTasks, target: Target) -> bool:
    role, subtopology, partition = unit

    def others_have(other: Role) -> bool:
        """Return whether another member of this process has the task in that role."""
        process_has = target.process_id in target.processes(other, subtopology, partition)
        return process_has and not assigned.has(other, subtopology, partition)

    def process_has(other: Role) -> bool:
        return target.process_id in target.processes(other, subtopology, partition)

    match role:
        case Role.ACTIVE:
            has_owner = bool(target.processes(Role.ACTIVE, subtopology, partition))
            return not (has_owner or others_have(Role.STANDBY) or others_have(Role.WARMUP))
        case Role.STANDBY:
            return not (others_have(Role.ACTIVE) or process_has(Role.STANDBY) or others_have(Role.WARMUP))
        case Role.WARMUP:
            return not (process_has(Role.ACTIVE) or others_have(Role.STANDBY) or process_has(Role.WARMUP))


def _change_roles(assigned: OwnedTasks, kept: set[Unit], revoked: set[Unit], granted: set[Unit]) -> None:
    """Add the granted tasks to `kept` for which the member already has the state in another role.

    These are standbys that replace its active task, and standbys and warm-ups that replace each other. In the
    latter case the old role needs no revocation and is removed from `revoked`.
    """
    for role, subtopology, partition in sorted(granted):
        unit = (role, subtopology, partition)
        if role is Role.STANDBY and assigned.has(Role.ACTIVE, subtopology, partition):
            kept.add(unit)
        for old_role, new_role in ((Role.STANDBY, Role.WARMUP), (Role.WARMUP, Role.STANDBY)):
            if role is new_role and assigned.has(old_role, subtopology, partition):
                kept.add(unit)
                revoked.discard((old_role, subtopology, partition))


def _promoted(assigned: OwnedTasks, wanted: set[Unit]) -> list[Unit]:
    """Return the member's standbys and warm-ups that are active tasks of its target."""
    return [
        (role, subtopology, partition)
        for role in (Role.STANDBY, Role.WARMUP)
        for subtopology, partitions in assigned.of(role).items()
        for partition in partitions
        if (Role.ACTIVE, subtopology, partition) in wanted
    ]


def _owns_any(owned: MemberAssignment | None, revoking: OwnedTasks) -> bool:
    """Return whether the member may still own a task that it has to revoke; if `owned` is None, it may."""
    if owned is None:
        return True
    return any(
        revoking.has(role, subtopology, partition)
        for role, tasks in zip(Role, (owned.active, owned.standby, owned.warmup), strict=True)
        for subtopology, partitions in tasks.items()
        for partition in partitions
    )


def units(active: Epochs | Tasks, standby: Tasks, warmup: Tasks) -> set[Unit]:
    """Return these tasks as a set of units."""
    found: set[Unit] = {
        (_ACTIVE, name, partition) for name, partitions in active.items() for partition in partitions
    }
    if standby:  # Most members have none; this is called often.
        found.update(
            (_STANDBY, name, partition) for name, partitions in standby.items() for partition in partitions
        )
    if warmup:
        found.update(
            (_WARMUP, name, partition) for name, partitions in warmup.items() for partition in partitions
        )
    return found


def _owned_tasks(units: Iterable[Unit], since: Epochs, epoch: int) -> OwnedTasks:
    """Return units as tasks. Active tasks that are in `since` keep their epoch; new ones get `epoch`."""
    active: dict[str, dict[int, int]] = {}
    copies: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for role, subtopology, partition in sorted(units):
        if role is Role.ACTIVE:
            epochs = active.setdefault(subtopology, {})
            epochs[partition] = since.get(subtopology, {}).get(partition, epoch)
        else:
            copies[role - 1].setdefault(subtopology, []).append(partition)
    standby, warmup = ({name: tuple(partitions) for name, partitions in role.items()} for role in copies)
    return OwnedTasks(active, standby, warmup)
