"""The current assignment of a member of a consumer group, and its next step towards the target.

    state                   what the member knows and owes
    STABLE                  it has the target of its epoch
    UNREVOKED_PARTITIONS    it has to revoke partitions and has not acknowledged that; it stays at its epoch
    UNRELEASED_PARTITIONS   it is at the target's epoch, and waits for partitions that others still own
    UNKNOWN                 a newer coordinator wrote another state: the member must rejoin, owning nothing

A member acknowledges a revocation by a heartbeat that lists its owned partitions without the revoked ones; a
heartbeat without that list acknowledges nothing. Each partition has the epoch in which it was assigned
(KIP-1251).

Formulas, as in Kafka's CurrentAssignmentBuilder:

    kept     = assigned ∩ target              target: without topics that the member does not subscribe to
    revoked  = assigned - kept
    granted  = target - kept, if no other member owns it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.modern.reconcile import reconcile
from konvene.shard.errors import GroupError

Unit = tuple[Uuid, int]
Epochs = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which it was assigned."""
Partitions = Mapping[Uuid, Collection[int]]

NO_OWNER = -1
"""The epoch returned for a partition without an owner."""


class MemberState(IntEnum):
    """The state of a member's assignment, by its number in the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The current assignment of a member: what it owns or has yet to revoke, and its epochs."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Epochs = field(default_factory=dict)
    pending_revocation: Epochs = field(default_factory=dict)

    def is_at(self, epoch: int) -> bool:
        """Return whether the member owns its whole target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int) -> CurrentAssignment:
        """Return the assignment at a new epoch; the present one becomes `previous_epoch`.

        A member that lost the response may then still report the previous epoch."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, and the state of the group that its reconciliation depends on."""

    epoch: int
    partitions: Partitions
    subscribed: Container[Uuid]
    """The ids of existing topics that the member subscribes to."""
    owner_epoch: Callable[[Uuid, int], int]
    """Return the epoch of a partition's owner; `NO_OWNER` if it is free."""


def next_assignment(
    current: CurrentAssignment, target: Target, owned: Partitions | None, *, subscription_changed: bool
) -> CurrentAssignment:
    """Return the current assignment after the next step towards the target; the same object if there is none.

    `owned`: the partitions that the heartbeat lists as owned; None if it has no such list. Raises
    FENCED_MEMBER_EPOCH for a member in state UNKNOWN, unless `owned` is an empty list."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch != target.epoch:
                return _reconciled(current, target, owned, current.epoch)
            return _without_unsubscribed(current, target, owned) if subscription_changed else current
        case MemberState.UNREVOKED_PARTITIONS:
            if _holds_any(owned, current.pending_revocation):
                return _without_unsubscribed(current, target, owned) if subscription_changed else current
            return _reconciled(current, target, owned, current.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _reconciled(current, target, owned, current.epoch)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise GroupError(Errors.FENCED_MEMBER_EPOCH)
            return _reconciled(current, target, owned, target.epoch)


def _reconciled(
    current: CurrentAssignment, target: Target, owned: Partitions | None, epoch: int
) -> CurrentAssignment:
    """Return the assignment reconciled with the target.

    It is at the target's epoch, or at `epoch` while the member has yet to acknowledge a revocation."""
    if has_it_all(current, target.partitions, target.subscribed):
        return CurrentAssignment(MemberState.STABLE, target.epoch, current.epoch, current.assigned)
    wanted = {
        (topic, p)
        for topic, partitions in target.partitions.items()
        if topic in target.subscribed
        for p in partitions
    }

    def free(unit: Unit) -> bool:
        # A partition that the member itself has yet to revoke is free for it: it has no other owner.
        topic, partition = unit
        is_own = partition in current.pending_revocation.get(topic, ())
        return is_own or target.owner_epoch(topic, partition) == NO_OWNER

    parts = reconcile(_units(current.assigned), wanted, free)
    kept = _with_epochs(parts.kept, current.assigned)
    revoked = _with_epochs(parts.revoked, current.assigned)
    if revoked and _holds_any(owned, revoked):
        owes = replace(
            current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
        return owes.at(epoch)
    for topic, partition in sorted(parts.granted):
        kept.setdefault(topic, {})[partition] = target.epoch
    state = MemberState.UNRELEASED_PARTITIONS if parts.waits else MemberState.STABLE
    return CurrentAssignment(state, target.epoch, current.epoch, kept)


def has_it_all(current: CurrentAssignment, wanted: Partitions, subscribed: Container[Uuid]) -> bool:
    """Return whether the member owns exactly its target and has nothing to revoke: a fast check.

    `wanted`: the target; `subscribed`: the ids of the topics that the member subscribes to. The result is
    False if the target has any other topic."""
    assigned = current.assigned
    if current.pending_revocation or len(assigned) != len(wanted):
        return False
    for topic, partitions in wanted.items():
        held = assigned.get(topic)
        if held is None or len(held) != len(partitions) or topic not in subscribed:
            return False
        for partition in partitions:
            if partition not in held:
                return False
    return True


def _without_unsubscribed(
    current: CurrentAssignment, target: Target, owned: Partitions | None
) -> CurrentAssignment:
    """Return the assignment after revoking the partitions of topics that the member no longer subscribes to.

    This happens without waiting for a new target. `owned`: the partitions that the heartbeat lists as owned,
    None if it has no such list; what it does not list needs no acknowledgement."""
    unsubscribed = {topic: p for topic, p in current.assigned.items() if topic not in target.subscribed}
    if not unsubscribed:
        return current
    kept = {topic: p for topic, p in current.assigned.items() if topic not in unsubscribed}
    revoked = dict(current.pending_revocation)
    for topic, partitions in unsubscribed.items():
        revoked[topic] = {**revoked.get(topic, {}), **partitions}
    if _holds_any(owned, revoked):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(current, state=state, assigned=kept, pending_revocation=revoked).at(current.epoch)
    return replace(current, assigned=kept).at(current.epoch)


def _holds_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """Return whether the member may still own one of these partitions: `owned` has one, or is None."""
    if owned is None:
        return True
    return any(p in partitions.get(topic, ()) for topic, held in owned.items() for p in held)


def _units(epochs: Epochs) -> set[Unit]:
    return {(topic, partition) for topic, partitions in epochs.items() for partition in partitions}


def _with_epochs(units: Iterable[Unit], epochs: Epochs) -> dict[Uuid, dict[int, int]]:
    found: dict[Uuid, dict[int, int]] = {}
    for topic, partition in sorted(units):
        found.setdefault(topic, {})[partition] = epochs[topic][partition]
    return found
