"""What a member of a consumer group has now, and the next step towards what it is meant to have.

    state                   what the member knows and owes
    STABLE                  it is at its epoch's target, or nothing stands in the way of the next one
    UNREVOKED_PARTITIONS    it was told to give something up and has not confirmed that; it stays at its epoch
    UNRELEASED_PARTITIONS   it is at the target's epoch, and waits for what others have not given up yet
    UNKNOWN                 a newer coordinator wrote something else: it must come back with nothing

A member confirms by a heartbeat that says what it owns, without what it was to give up; a heartbeat that does
not say what it owns confirms nothing. Each partition carries the epoch in which it was assigned (KIP-1251).

Formulas, as in Kafka's CurrentAssignmentBuilder:

    kept     = assigned ∩ target              target: without topics that the member does not subscribe to
    revoked  = assigned - kept
    granted  = target - kept, if no other member holds it
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

NOBODY = -1
"""The epoch of the owner of a partition that nobody owns."""


class MemberState(IntEnum):
    """As the log has them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has, at which epoch."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Epochs = field(default_factory=dict)
    pending_revocation: Epochs = field(default_factory=dict)

    def is_at(self, epoch: int) -> bool:
        """Whether it is all that the member was meant to have at this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int) -> CurrentAssignment:
        """The same at this epoch; the one before is remembered, for a member that did not hear of it."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is meant to have, and what stands around it."""

    epoch: int
    partitions: Partitions
    subscribed: Container[Uuid]
    """The topics that the member reads and that exist."""
    owner_epoch: Callable[[Uuid, int], int]
    """The epoch of a partition's owner; `NOBODY` if it is free."""


def next_assignment(
    current: CurrentAssignment, target: Target, owned: Partitions | None, *, subscription_changed: bool
) -> CurrentAssignment:
    """The next step; the very same value where there is none.

    `owned`: what the member says it owns, None where it does not say. Raises FENCED_MEMBER_EPOCH for a member
    in an unknown state that does not say that it owns nothing."""
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
    """The whole step. The member stays at `epoch` while it owes a revocation."""
    if has_it_all(current, target.partitions, target.subscribed):
        return CurrentAssignment(MemberState.STABLE, target.epoch, current.epoch, current.assigned)
    wanted = {
        (topic, p)
        for topic, partitions in target.partitions.items()
        if topic in target.subscribed
        for p in partitions
    }

    def free(unit: Unit) -> bool:
        # What the member itself has yet to give up is its own: only one member holds a partition at a time.
        topic, partition = unit
        its_own = partition in current.pending_revocation.get(topic, ())
        return its_own or target.owner_epoch(topic, partition) == NOBODY

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
    """Seen at a glance: the member has the target and nothing else, as most do at most rebalances."""
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
    """Only what the member does not read any more goes; the target is as it was."""
    gone = {topic: p for topic, p in current.assigned.items() if topic not in target.subscribed}
    if not gone:
        return current
    kept = {topic: p for topic, p in current.assigned.items() if topic not in gone}
    revoked = dict(current.pending_revocation)
    for topic, partitions in gone.items():
        revoked[topic] = {**revoked.get(topic, {}), **partitions}
    if _holds_any(owned, revoked):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(current, state=state, assigned=kept, pending_revocation=revoked).at(current.epoch)
    return replace(current, assigned=kept).at(current.epoch)


def _holds_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """Whether the member still has one of these, as far as it says."""
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
