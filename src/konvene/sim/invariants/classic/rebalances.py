"""Invariants of a rebalance of a classic group: what starts it, which members it waits for, how long, and the
causes that are reported.

Time is that of the event queue. Timeouts of members are computed here independently of the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.decision import SHORTEST_INITIAL_DELAY_MS
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.messages.join_group import JoinGroupResponse
from konvene.records.audit import Cause
from konvene.shard import causes
from konvene.sim.invariants.classic.state import classic_groups, identity_of
from konvene.sim.invariants.classic.static import protocols_of, rebalance_timeout_ms
from konvene.sim.world.event import Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")


class RejoinsStartRebalances(Invariant):
    """L3, L5: in a stable group a JoinGroup of the leader starts a rebalance, and so does one of any member
    with other protocols. A member that joins with unchanged protocols gets the current generation at once."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.error not in (None, Errors.NONE):
            return
        request, before, group = event.request, event.group_before, event.group_after
        member = before.members.get(request.member_id)
        if member is None or before.state not in (State.STABLE, State.COMPLETING_REBALANCE):
            return
        changed = member.protocols != protocols_of(request)
        leads = before.state is State.STABLE and before.leader == member.member_id
        rebalances = group.state is State.PREPARING_REBALANCE or group.generation > before.generation
        join = f"{member.member_id} (leads: {leads}, other protocols: {changed}) joins {before!r}"
        assert rebalances == (changed or leads), f"{join}: {group!r}"
        if not rebalances:
            assert event.answer is not None, f"{join}: there is no response"
            assert group.state is before.state, f"{join}: {group!r}"


class JoinsUpdateMembers(Invariant):
    """ST6: a member that joins a rebalance has the protocols and timeouts of its latest JoinGroup."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.outcome is None:
            return
        request, group = event.request, event.group_after
        member = self._joined_member(event, group)
        if member is None:
            return
        sent = (request.session_timeout_ms, rebalance_timeout_ms(request), request.protocol_type)
        stored = (member.session_timeout_ms, member.rebalance_timeout_ms, member.protocol_type)
        assert stored == sent, f"{member.member_id} sent {sent}, stored is {stored}"
        protocols = protocols_of(request)
        assert member.protocols == protocols, (
            f"{member.member_id} sent {protocols}, stored is {member.protocols}"
        )

    def _joined_member(self, event: Event, group: ClassicGroup) -> Member | None:
        """Return the member that joined, if it waits for the next generation or has just entered it."""
        response: Any = event.answer
        if response is None:
            return next((m for m in group.members.values() if m.join_waiter == event.waiter), None)
        if event.error is Errors.NONE and group.generation > event.group_before.generation:
            return group.members[response.member_id]
        return None


class GenerationsIncludeAllMembers(Invariant):
    """C4: a generation that begins before the join timeout includes all members, and no unused member ids;
    it begins as soon as the last missing member joins or is removed. After the timeout it includes the
    members that joined, and all static members. C1: its leader joined."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic_groups(event):
            old = event.before.group(name)
            if group.generation == old.generation:
                # A rejected member may have been the missing one; the others continue with the next request.
                rejected = event.error is Errors.GROUP_MAX_SIZE_REACHED
                stuck = _has_all_members(group) and not _has_all_members(old) and not rejected
                assert not stuck, f"{group!r} still waits, though all members have joined"
            elif group.members:
                self._check_generation(event, name, group)

    def _check_generation(self, event: Event, name: str, group: ClassicGroup) -> None:
        joined = {
            response.member_id
            for _, response in event.answered
            if type(response) is JoinGroupResponse and not response.error_code
        }
        assert group.leader in joined, f"{group!r}: the leader {group.leader} did not join"
        absent = [m for m in group.members.values() if m.member_id not in joined]
        if event.key == ("join", name):
            dynamic = [m.member_id for m in absent if m.instance_id is None]
            assert not dynamic, f"{group!r} includes {dynamic}, which did not join"
        else:
            assert not absent, f"{group!r} begins before {[m.member_id for m in absent]} joined"
            unused = sorted(group.pending_joins)
            assert not unused, f"{group!r} begins before the new member ids {unused} joined"


def _has_all_members(group: ClassicGroup) -> bool:
    """Return True if the group is in a rebalance that all of its members have joined. The first generation of
    a group never counts as complete: it waits for further members until its delay ends."""
    if group.state is not State.PREPARING_REBALANCE or group.was_empty or group.pending_joins:
        return False
    return all(m.join_waiter is not None for m in group.members.values())


class RebalanceTimeoutsAreTheLongest(Invariant):
    """C4: members have the longest of their rebalance timeouts to join, and the same again for their
    SyncGroup; a member with a short timeout does not shorten it for the others."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic_groups(event):
            old = event.before.group(name)
            if group.state is State.COMPLETING_REBALANCE:
                began, timer = group.generation > old.generation, "sync"
            else:
                began = old.state in (State.STABLE, State.COMPLETING_REBALANCE)
                began, timer = began and group.state is State.PREPARING_REBALANCE, "join"
            if began:
                longest_ms = max((m.rebalance_timeout_ms for m in group.members.values()), default=0)
                due_ms = event.runtime.due_ms((timer, name))
                assert due_ms == longest_ms, f"{group!r}: the {timer} timer ends in {due_ms} ms: {longest_ms}"


@dataclass(slots=True)
class _InitialDelay:
    """The delay during which an empty group waits for the members of its first generation."""

    since_ms: int
    max_ms: int
    delay_ms: int
    constant: bool = True
    """Whether the setting was the same during the whole wait."""
    member_joined: bool = False
    """Whether a new member joined during the current delay."""


class FirstGenerationsAreDelayed(Invariant):
    """C4, L5: the first generation of an empty group begins when no new member has joined for a whole
    `group.initial.rebalance.delay.ms`, or after the rebalance timeout. Members that start together begin
    together, and no group waits without members."""

    def __init__(self) -> None:
        self.delays: dict[str, _InitialDelay] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.delays.clear()
        if not event.changed:
            return
        for name, group in classic_groups(event):
            old = event.before.group(name)
            if old.state is State.EMPTY and group.state is not State.EMPTY:
                self._start(event, name, group)
            elif name in self.delays:
                self._continue(event, name, old, group)
        for name in event.before.groups:
            if not isinstance(event.after.groups.get(name), ClassicGroup):
                self.delays.pop(name, None)

    def _start(self, event: Event, name: str, group: ClassicGroup) -> None:
        delay_ms, due_ms = _initial_delay_ms(event), event.runtime.due_ms(("join", name))
        assert group.state is State.PREPARING_REBALANCE, f"{group!r} begins without its initial delay"
        assert due_ms == delay_ms, f"{group!r}: the initial delay is {due_ms} ms, not {delay_ms}"
        max_ms = max(delay_ms, *(m.rebalance_timeout_ms for m in group.members.values()))
        self.delays[name] = _InitialDelay(event.runtime.event_queue.now_ms, max_ms, delay_ms)

    def _continue(self, event: Event, name: str, old: ClassicGroup, group: ClassicGroup) -> None:
        delay, waits = self.delays[name], group.state is State.PREPARING_REBALANCE
        known = {identity_of(m) for m in old.members.values()}
        if event.key == ("join", name):
            waited_ms = event.runtime.event_queue.now_ms - delay.since_ms
            if waits and old.waiting:
                assert delay.member_joined, f"{group!r} still waits, no member joined for {delay.delay_ms} ms"
                due_ms, delay_ms = event.runtime.due_ms(("join", name)), _initial_delay_ms(event)
                assert due_ms is not None and due_ms <= delay_ms, f"{group!r} waits another {due_ms} ms"
                delay.constant = delay.constant and delay_ms == delay.delay_ms
                delay.delay_ms = delay_ms
            elif not waits and delay.member_joined and delay.constant:
                assert waited_ms >= delay.max_ms, (
                    f"{group!r} begins after {waited_ms} ms, though a member has just joined"
                )
            delay.member_joined = False
        elif not waits and event.kind == "request":
            raise AssertionError(f"{event.api} begins {group!r} before the end of the initial delay")
        if not waits or (event.key == ("join", name) and not old.waiting):
            del self.delays[name]
        elif any(identity_of(m) not in known for m in group.members.values()):
            delay.member_joined = True


def _initial_delay_ms(event: Event) -> int:
    configured_ms: int = event.runtime.config["group.initial.rebalance.delay.ms"]
    return max(configured_ms, SHORTEST_INITIAL_DELAY_MS)


# --- causes ------------------------------------------------------------------------------------------


class CausesAreReportedOnce(Invariant):
    """Ours: each cause of a rebalance is reported for one generation only."""

    def __init__(self) -> None:
        self.reported: dict[str, tuple[Cause, ...]] = {}
        """By group: the causes in its last trace."""

    def after(self, event: Event) -> None:
        for rebalance in event.outcome.why if event.outcome is not None else ():
            trace = rebalance.value
            if trace.group_type != "classic":
                continue  # Modern groups report twice: when the epoch moves, and when all members follow.
            before = self.reported.get(rebalance.group_id, ())
            repeated = [cause for cause in trace.causes if any(cause is old for old in before)]
            assert not repeated, f"{rebalance.group_id} moved to {trace.epoch}, reported again: {repeated}"
            self.reported[rebalance.group_id] = trace.causes


DEPARTURE_CAUSES = {
    "session": (causes.SESSION_EXPIRED,),
    "sync": (causes.SYNC_TIMEOUT,),
    "join": (causes.REBALANCE_TIMEOUT,),
    "LeaveGroup": (causes.MEMBER_LEFT, causes.REMOVED_BY_ADMIN),
}
"""The causes that may explain a removed member, by the timer or request that removed it."""


class MembershipChangesHaveACause(Invariant):
    """Ours: the causes of the next generation name each member that joined or was removed, with the reason of
    its removal.

    A member that exceeds the maximum size is exempt: the other members may continue unchanged."""

    def after(self, event: Event) -> None:
        outcome = event.outcome
        if not event.changed or outcome is None or event.error is Errors.GROUP_MAX_SIZE_REACHED:
            return
        for name, group in classic_groups(event):
            before = event.before.group(name).members
            if before.keys() == group.members.keys():
                continue
            pending = group.trace.causes if group.trace is not None else ()
            reported = {
                (cause.member_id, cause.kind)
                for rebalance in outcome.why
                if rebalance.group_id == name
                for cause in rebalance.value.causes
            }
            reported.update((cause.member_id, cause.kind) for cause in pending)
            old, new = _ids_by_identity(before.values()), _ids_by_identity(group.members.values())
            trigger = event.api if event.kind == "request" else event.key[0]
            for identity in old.keys() - new.keys():
                expected = {(old[identity], kind) for kind in DEPARTURE_CAUSES.get(trigger, ())}
                assert expected & reported, (
                    f"{trigger} removed {old[identity]} from {group!r}; reported is {sorted(reported)}"
                )
            for identity in new.keys() - old.keys():
                joined = (new[identity], causes.MEMBER_JOINED)
                assert joined in reported, f"{new[identity]} joined {group!r}; reported is {sorted(reported)}"


def _ids_by_identity(members: Iterable[Member]) -> dict[str, str]:
    return {identity_of(m): m.member_id for m in members}
