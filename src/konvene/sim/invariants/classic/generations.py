"""Invariants of the generations of classic groups: their numbers, fencing, assignments, duration and size.

Time is that of the event queue.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.classic.decision import SHORTEST_INITIAL_DELAY_MS
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.join_group import JoinGroupResponse
from konvene.messages.sync_group import SyncGroupResponse
from konvene.runtime.coordinator import TIMER_RETRY_MS
from konvene.sim.invariants.classic.state import SETTLED, classic_groups, identity_of, is_member
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")

COMPLETED_REBALANCE_STATES = (State.COMPLETING_REBALANCE, State.EMPTY)
"""The states that follow PreparingRebalance: with members, and without any."""


class GenerationsIncrease(Invariant):
    """C1: the generation increases by one with each completed rebalance, and has one leader, which is a
    member of the group."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic_groups(event):
            old = event.before.groups.get(name)
            if isinstance(old, ClassicGroup) and old is not group:
                increase = group.generation - old.generation
                assert increase in (0, 1), f"{old!r} became {group!r}"
                completed = group.state in COMPLETED_REBALANCE_STATES and group.state is not old.state
                assert increase or not completed, f"{old!r} became {group!r} in the same generation"
        for _, response in event.answered:
            if (
                type(response) is JoinGroupResponse
                and not response.error_code
                and not event.concerns_modern_group
            ):
                self._check_response(event, response)

    def _check_response(self, event: Event, response: JoinGroupResponse) -> None:
        group = event.group_after if event.request is not None else event.after.group(event.key[1])
        member_id, returned = response.member_id, (response.generation_id, response.protocol_name)
        current = (group.generation, group.protocol)
        assert returned == current, f"{group!r}: {member_id} gets generation and protocol {returned}"
        assert member_id in group.members, f"{group!r}: {member_id} gets a generation, but is no member"
        rejoined_static = event.version < 9 and group.state is State.STABLE
        if not rejoined_static:
            expected = list(group.members) if member_id == group.leader else []
            assert response.leader == group.leader, f"{group!r} is led by {group.leader}: {response.leader}"
            listed = [m.member_id for m in response.members]
            assert listed == expected, f"{group!r}: {member_id} gets the members {listed}"


class OtherGenerationsAreFenced(Invariant):
    """C2: a member's SyncGroup, Heartbeat or OffsetCommit of another generation is answered with
    ILLEGAL_GENERATION. A group that was just converted from a streams group accepts earlier epochs during its
    first rebalance."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        request, group, error = event.request, event.group_before, event.error
        commits = event.api == "OffsetCommit"
        generation = request.generation_id_or_member_epoch if commits else request.generation_id
        if not is_member(group, request.member_id, request.group_instance_id):
            exists = request.group_id in event.before.groups
            assert error is not Errors.ILLEGAL_GENERATION or not exists, (
                f"{request.member_id} is no member of {group!r}: {error!r}"
            )
        elif generation != group.generation and not accepts_earlier_epoch(group, generation):
            assert error is Errors.ILLEGAL_GENERATION, f"{group!r}, generation {generation}: {error!r}"
        else:
            assert error is not Errors.ILLEGAL_GENERATION, f"{group!r}, generation {generation}: {error!r}"


def accepts_earlier_epoch(group: ClassicGroup, generation: int) -> bool:
    """Return True if `generation` is an earlier epoch that the group accepts: it was just converted from a
    streams group and is in its first rebalance."""
    in_first_rebalance = group.accepts_earlier_epochs and group.state is State.PREPARING_REBALANCE
    return in_first_rebalance and 0 < generation < group.generation


class NonMembersAreRejected(Invariant):
    """C2: a SyncGroup or Heartbeat of a non-member is rejected; an accepted Heartbeat reports whether a
    rebalance is in progress."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("SyncGroup", "Heartbeat"):
            return
        request, group = event.request, event.group_before
        if not is_member(group, request.member_id, request.group_instance_id):
            assert event.outcome is None, f"{request.member_id} is no member of {group!r}, but was accepted"
        elif event.api == "Heartbeat" and event.outcome is not None:
            rebalancing = group.state is State.PREPARING_REBALANCE
            expected = Errors.REBALANCE_IN_PROGRESS if rebalancing else Errors.NONE
            assert event.error is expected, f"{group!r}: a heartbeat is answered {event.error!r}"


class AssignmentsComeFromTheLeader(Invariant):
    """C3: a member of a stable group has, and receives, the bytes that the leader assigned to its member
    id."""

    def __init__(self) -> None:
        self.assigned: dict[tuple[str, int], dict[str, bytes]] = {}
        """By group and generation: the assignments of the leader, by identity of the member."""

    def after(self, event: Event) -> None:
        if event.kind == "loaded" and event.before is EMPTY_VIEW:
            for name, group in classic_groups(event):  # The log of another process: accepted as it is.
                self._record_current(name, group)
        if not (event.changed or event.is_complete):
            return
        if event.batch is not None and event.is_classic_request("SyncGroup"):
            self._record_leader_assignments(event)
        for name, group in downgraded_groups(event):
            self._record_current(name, group)
        for name, group in classic_groups(event):
            if group.state is not State.STABLE:
                continue
            if event.kind != "audit" and group is event.before.groups.get(name):
                continue
            assigned = self.assigned.get((name, group.generation))
            assert assigned is not None, f"{group!r} is stable, but no leader sent assignments"
            for member in group.members.values():
                expected, current = assigned.get(identity_of(member)), member.assignment
                assert current == expected, (
                    f"{group!r}: {member.member_id} has {current!r}, was assigned {expected!r}"
                )
        for _, response in event.answered:
            if (
                type(response) is SyncGroupResponse
                and not response.error_code
                and not event.concerns_modern_group
            ):
                self._check_response(event, response)

    def _record_current(self, name: str, group: ClassicGroup) -> None:
        members = group.members.values()
        self.assigned[name, group.generation] = {identity_of(m): m.assignment for m in members}

    def _record_leader_assignments(self, event: Event) -> None:
        request, group = event.request, event.group_before
        assert request.member_id == group.leader, f"{request.member_id} assigned, {group.leader} leads"
        sent = {a.member_id: a.assignment for a in request.assignments}
        self.assigned[group.group_id, group.generation] = {
            identity_of(m): sent.get(m.member_id, b"") for m in group.members.values()
        }

    def _check_response(self, event: Event, response: SyncGroupResponse) -> None:
        group, assignment = event.group_after, response.assignment
        assert group.state is State.STABLE, f"{group!r}: a SyncGroup is answered"
        assigned = self.assigned[group.group_id, group.generation]
        assert assignment in assigned.values(), f"{group!r}: no member was assigned {assignment!r}"
        if response is event.answer:
            member = group.members.get(event.request.member_id)
            current = member.assignment if member is not None else None
            assert assignment == current, f"{event.request.member_id} receives another member's assignment"


class RebalancesEnd(Invariant):
    """C4: PreparingRebalance and CompletingRebalance each end within the longest rebalance timeout of the
    members. The first rebalance of an empty group may take longer by `group.initial.rebalance.delay.ms`.

    If no member has joined when the timeout passes, it begins anew, until the sessions of the static members
    expire."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[State, int, int]] = {}
        """By rebalancing group: its state, when that began, and the longest time that it may last."""

    def after(self, event: Event) -> None:
        now_ms = event.runtime.event_queue.now_ms
        if event.kind == "timer" and event.outcome is None and len(event.key) > 1:
            started = self.started.get(event.key[1])
            if started is not None:  # The decision exceeded a batch: the timer expires again.
                state, _, max_ms = started
                self.started[event.key[1]] = state, now_ms, max_ms + TIMER_RETRY_MS
        if not (event.changed or event.is_complete):
            return
        if event.kind == "loaded":
            self.started.clear()
        for name, group in [*classic_groups(event), *downgraded_groups(event)]:
            if group.state in SETTLED:
                # Members of a stable group may still have to send SyncGroup.
                self.started.pop(name, None)
            else:
                self._check_rebalance(event, name, group)
        for name in event.before.groups:
            if not isinstance(event.after.groups.get(name), ClassicGroup):
                self.started.pop(name, None)

    def _check_rebalance(self, event: Event, name: str, group: ClassicGroup) -> None:
        now_ms, started = event.runtime.event_queue.now_ms, self.started.get(name)
        delay_ms = max(event.runtime.config["group.initial.rebalance.delay.ms"], SHORTEST_INITIAL_DELAY_MS)
        timeout_ms = max(group.rebalance_timeout_ms, 0)
        if group.was_empty and group.state is State.PREPARING_REBALANCE:
            # If the setting changes during the initial delay, one delay follows another.
            timeout_ms = max(timeout_ms, delay_ms) + delay_ms
        before = event.before.group(name)
        restarted = event.key == ("join", name) and not before.waiting  # No member has joined.
        changed = started is None or started[0] is not group.state
        if started is None or changed or group.generation != before.generation or restarted:
            started = group.state, now_ms, 0
        state, since_ms, max_ms = started
        max_ms = max(max_ms, timeout_ms)
        self.started[name] = state, since_ms, max_ms
        timer = "join" if state is State.PREPARING_REBALANCE else "sync"
        due_ms = event.runtime.due_ms((timer, name))
        assert due_ms is not None, f"{group!r} has no {timer} timer"
        duration_ms = now_ms - since_ms + due_ms
        assert duration_ms <= max_ms, f"{group!r} lasts {duration_ms} ms, more than {max_ms}"


class GroupSizeIsLimited(Invariant):
    """C5: a group accepts at most `group.max.size` members. In PreparingRebalance only the members that have
    joined the rebalance count."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup"):
            return
        max_size = event.runtime.config["group.max.size"]
        before, group = event.group_before, event.group_after
        if before.state in (State.COMPLETING_REBALANCE, State.STABLE):
            size = len(group.members)
            assert size <= max(max_size, len(before.members)), f"{group!r} has more than {max_size} members"
        assert group.waiting <= max(max_size, before.waiting), (
            f"{group!r}: {group.waiting} members joined, the maximum is {max_size}"
        )
        if event.error is Errors.GROUP_MAX_SIZE_REACHED:
            full = max(len(before.members), before.waiting) >= max_size
            assert full, f"{before!r} rejects a member, but the maximum is {max_size}"


class EveryGenerationHasATrace(Invariant):
    """Ours: when a generation is complete, its rebalance is recorded as a trace with at least one cause."""

    def __init__(self) -> None:
        self.traced: set[tuple[str, int]] = set()

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        if event.kind == "loaded" and event.before is EMPTY_VIEW:
            self.traced.update((name, group.generation) for name, group in classic_groups(event))
        self.traced.update((name, group.generation) for name, group in downgraded_groups(event))
        for rebalance in event.outcome.why if event.outcome is not None else ():
            trace = rebalance.value
            assert trace.causes, f"{rebalance.group_id} moved to {trace.epoch} without a cause"
            self.traced.add((rebalance.group_id, trace.epoch))
        for name, group in classic_groups(event):
            if group.state in SETTLED and group.generation:
                assert (name, group.generation) in self.traced, f"no trace explains {group!r}"


def downgraded_groups(event: Event) -> list[tuple[str, ClassicGroup]]:
    """Return the id of each group that this event converted to a classic group, and the group after it."""
    return [
        (name, group)
        for name, group in event.after.groups.items()
        if isinstance(group, ClassicGroup) and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES)
    ]
