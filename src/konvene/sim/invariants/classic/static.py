"""Invariants of members that have an instance id (KIP-345)."""

from __future__ import annotations

from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.sim.invariants.classic.state import SETTLED, classic
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

KINDS = ("static", "migration", "streams-migration")


class InstanceIdsAreUnique(Invariant):
    """ST1: an instance id is one member's. One that comes back without a member id gets a new one."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        for name, group in classic(event):
            if event.kind == "request" and group is event.before.groups.get(name):
                continue
            named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
            assert group.instances == named, f"{group!r}: instances {group.instances}, members {named}"
            static = sum(m.instance_id is not None for m in group.members.values())
            assert static == len(named), f"{group!r}: two members of one instance id: {named}"
        if event.is_classic_request("JoinGroup") and event.request.group_instance_id is not None:
            self._came_back(event)

    def _came_back(self, event: Event) -> None:
        said, before, after = event.request, event.group_before, event.group_after
        instance = said.group_instance_id
        old = before.instances.get(instance)
        if old is None or said.member_id or event.error not in (None, Errors.NONE):
            return
        new = after.instances[instance]
        assert new != old, f"{instance} came back without an id and is {old} still"
        assert old not in after.members, f"{instance} is {new} now, and {old} is still a member"
        assert len(after.members) == len(before.members), f"{instance} came back: {before!r}, now {after!r}"
        assert (after.leader == new) == (before.leader == old), f"{old} led: {before.leader}, {after.leader}"


class OldMemberIdsAreFenced(Invariant):
    """ST2: another member id than the instance's own is answered FENCED_INSTANCE_ID, and nobody else is.

    ST8: so that a member that uses the id it was told last is never fenced."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        said = event.request
        if said.group_instance_id is None:
            assert event.error is not Errors.FENCED_INSTANCE_ID, (
                f"{said.member_id} has no instance id: fenced"
            )
            return
        group = event.group_before
        holder = group.instances.get(said.group_instance_id)
        who = f"{said.member_id!r} as {said.group_instance_id}, which is {holder}"
        if event.error is Errors.FENCED_INSTANCE_ID:
            assert holder is not None, f"{who}: fenced, and nobody has its place"
            assert holder != said.member_id, f"{who}: fenced, and is who it says"
        elif holder is not None and said.member_id and said.member_id != holder:
            # Settings are looked at first, and a JoinGroup's room and protocols as well.
            if said.member_id in group.pending_joins and event.error is Errors.UNKNOWN_SERVER_ERROR:
                return  # An id that was handed out to a member without an instance id.
            assert event.error in BEFORE_FENCING.get(event.api, ()), f"{who}: {event.error!r}, not fenced"


BEFORE_FENCING = {
    "JoinGroup": (
        Errors.INVALID_SESSION_TIMEOUT, Errors.GROUP_MAX_SIZE_REACHED, Errors.INCONSISTENT_GROUP_PROTOCOL,
    ),
}  # fmt: skip


class StaticMembersKeepAssignments(Invariant):
    """ST3: back within its session, a static member has the same assignment, and no rebalance starts unless
    another protocol would be chosen. ST6: what it says of itself anew takes effect."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.request.member_id:
            return
        said, before, group = event.request, event.group_before, event.group_after
        holder = before.instances.get(said.group_instance_id)
        if holder is None or event.error not in (None, Errors.NONE):
            return
        old, new = before.members[holder], group.members[group.instances[said.group_instance_id]]
        protocols = tuple((p.name, p.metadata) for p in said.protocols)
        assert new.protocols == protocols, f"{new.member_id} has {new.protocols}, said {protocols}"
        times = (new.session_timeout_ms, new.rebalance_timeout_ms)
        assert times == (said.session_timeout_ms, rebalance_timeout_ms(said)), f"{new.member_id} has {times}"
        armed = event.runtime.due_ms(("session", group.group_id, new.member_id))
        assert armed is not None, f"{new.member_id} has no session"
        kept = event.answer is not None and group.generation == before.generation
        if before.state is State.STABLE and (old.protocols == protocols or kept):
            answer: Any = event.answer
            assert group.state is State.STABLE, f"{new.member_id} came back as it was: {group!r}"
            generations = (answer.generation_id, before.generation, group.generation)
            assert len(set(generations)) == 1, f"{new.member_id} came back: generations {generations}"
            assert new.assignment == old.assignment, f"{new.member_id} had {old.assignment!r}, has another"
            assert event.batch is not None, "the new id is not written down"
            leads = group.leader == new.member_id and event.version >= 9
            assert answer.skip_assignment == leads, f"{new.member_id} leads and is told to assign again"
            told_of = [m.member_id for m in answer.members]
            assert told_of == (list(group.members) if leads else []), f"{new.member_id} hears of {told_of}"


def rebalance_timeout_ms(request: Any) -> int:
    """Version 0 has none of its own: the session's stands for it."""
    told: int = request.rebalance_timeout_ms
    return told if told != -1 else int(request.session_timeout_ms)


class StaticMembersStay(Invariant):
    """ST4: a static member goes when its session ends, when it is taken out by LeaveGroup or finds no room;
    or when it joined and never asked for its assignment. Never because it was late to rejoin."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.kind == "loaded") or event.lost:
            return
        for name, group in event.before.groups.items():
            held = getattr(group, "instances", None)
            left = event.after.groups.get(name, group)
            if not held or not (isinstance(group, ClassicGroup) and isinstance(left, ClassicGroup)):
                continue
            gone = held.keys() - event.after.group(name).instances.keys()
            for instance in sorted(gone):
                self._gone(event, name, held[instance], instance)

    def _gone(self, event: Event, name: str, member_id: str, instance: str) -> None:
        group, key = event.before.group(name), event.key
        if event.kind == "timer":
            expired = key == ("session", name, member_id)
            never_asked = key == ("sync", name) and member_id in group.pending_syncs
            assert expired or never_asked, f"{instance} is gone by the timer {key}"
        elif event.kind == "loaded":
            assert group.state not in SETTLED, f"{instance} is lost by loading {group!r}"
        else:
            full = event.api == "JoinGroup" and event.error is Errors.GROUP_MAX_SIZE_REACHED
            left = event.api == "LeaveGroup" and event.error is Errors.NONE
            assert full or left, f"{instance} is gone by {event.api}"


class StaticMembersSurviveRestarts(Invariant):
    """ST5: after a restart a stable group has its static members, under the ids that they were told last."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            if group.state is State.STABLE and group.instances:
                loaded = event.after.group(name).instances
                assert loaded == group.instances, f"{group!r} had {group.instances}, loaded {loaded}"


class RemovalsCauseOneRebalance(Invariant):
    """ST7: however many members one request takes out, one rebalance follows at most."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("LeaveGroup"):
            return
        before, after = event.group_before, event.group_after
        step = after.generation - before.generation
        assert step in (0, 1), f"one request took {before!r} to {after!r}"
        answer: Any = event.answer
        if event.version >= 3 and event.error is Errors.NONE:
            left = sum(not m.error_code for m in answer.members)
            gone = len(before.members) + len(before.pending_joins)
            gone -= len(after.members) + len(after.pending_joins)
            # Members that had not rejoined may go with a generation that became complete.
            assert left <= gone, f"{left} are told that they left, {gone} are gone"
