"""Invariants of static members of classic groups (KIP-345)."""

from __future__ import annotations

from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, Protocols, State
from konvene.messages.join_group import JoinGroupRequest
from konvene.sim.invariants.classic.state import SETTLED, classic_groups
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

KINDS = ("static", "migration", "streams-migration")


class InstanceIdsAreUnique(Invariant):
    """ST1: at most one member of a group has a given instance id. A static member that returns without a
    member id gets a new member id, which replaces the old one."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        for name, group in classic_groups(event):
            if event.kind == "request" and group is event.before.groups.get(name):
                continue
            expected = {
                m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
            }
            assert group.instances == expected, f"{group!r}: instances {group.instances}, members {expected}"
            count = sum(m.instance_id is not None for m in group.members.values())
            assert count == len(expected), f"{group!r}: two members have one instance id: {expected}"
        if event.is_classic_request("JoinGroup") and event.request.group_instance_id is not None:
            self._check_return(event)

    def _check_return(self, event: Event) -> None:
        request, before, after = event.request, event.group_before, event.group_after
        instance = request.group_instance_id
        old = before.instances.get(instance)
        if old is None or request.member_id or event.error not in (None, Errors.NONE):
            return
        new = after.instances[instance]
        assert new != old, f"{instance} returned without a member id and kept {old}"
        assert old not in after.members, f"{instance} is {new} now, but {old} is still a member"
        assert len(after.members) == len(before.members), f"{instance} returned: {before!r}, now {after!r}"
        assert (after.leader == new) == (before.leader == old), (
            f"{instance} returned: the leader was {before.leader}, now {after.leader}"
        )


class OldMemberIdsAreFenced(Invariant):
    """ST2: a request is answered with FENCED_INSTANCE_ID if a member has its instance id under another member
    id, and only then.

    ST8: a member that uses its latest member id is therefore never fenced."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        request = event.request
        if request.group_instance_id is None:
            assert event.error is not Errors.FENCED_INSTANCE_ID, (
                f"{request.member_id} has no instance id, but is fenced"
            )
            return
        group = event.group_before
        current = group.instances.get(request.group_instance_id)
        sender = f"{request.member_id!r} as {request.group_instance_id}, which is {current}"
        if event.error is Errors.FENCED_INSTANCE_ID:
            assert current is not None, f"{sender}: fenced, though the instance id is free"
            assert current != request.member_id, f"{sender}: fenced, though it is the current member id"
        elif current is not None and request.member_id and request.member_id != current:
            # Settings are validated first, and the size and protocols of a JoinGroup as well.
            if request.member_id in group.pending_joins and event.error is Errors.UNKNOWN_SERVER_ERROR:
                return  # An id that was handed out to a member without an instance id.
            assert event.error in ERRORS_BEFORE_FENCING.get(event.api, ()), (
                f"{sender}: {event.error!r}, not fenced"
            )


ERRORS_BEFORE_FENCING = {
    "JoinGroup": (
        Errors.INVALID_SESSION_TIMEOUT, Errors.GROUP_MAX_SIZE_REACHED, Errors.INCONSISTENT_GROUP_PROTOCOL,
    ),
}  # fmt: skip


class StaticMembersKeepAssignments(Invariant):
    """ST3: a static member that returns within its session has the same assignment, and no rebalance starts
    unless the group would choose another protocol. ST6: its new settings take effect."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.request.member_id:
            return
        request, before, group = event.request, event.group_before, event.group_after
        old_id = before.instances.get(request.group_instance_id)
        if old_id is None or event.error not in (None, Errors.NONE):
            return
        old, new = before.members[old_id], group.members[group.instances[request.group_instance_id]]
        protocols = protocols_of(request)
        assert new.protocols == protocols, f"{new.member_id} sent {protocols}, stored is {new.protocols}"
        sent = (request.session_timeout_ms, rebalance_timeout_ms(request))
        stored = (new.session_timeout_ms, new.rebalance_timeout_ms)
        assert stored == sent, f"{new.member_id} sent the timeouts {sent}, stored is {stored}"
        due_ms = event.runtime.due_ms(("session", group.group_id, new.member_id))
        assert due_ms is not None, f"{new.member_id} has no session timer"
        same_generation = event.answer is not None and group.generation == before.generation
        if before.state is State.STABLE and (old.protocols == protocols or same_generation):
            response: Any = event.answer
            assert group.state is State.STABLE, f"{new.member_id} returned unchanged: {group!r}"
            generations = (response.generation_id, before.generation, group.generation)
            assert len(set(generations)) == 1, f"{new.member_id} returned: generations {generations}"
            assert new.assignment == old.assignment, (
                f"{new.member_id} had {old.assignment!r}, now {new.assignment!r}"
            )
            assert event.batch is not None, f"the new member id {new.member_id} is not in the log"
            leads = group.leader == new.member_id and event.version >= 9
            assert response.skip_assignment == leads, f"{new.member_id} leads and would assign again"
            listed = [m.member_id for m in response.members]
            assert listed == (list(group.members) if leads else []), f"{new.member_id} gets {listed}"


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return the protocols of a JoinGroup request, by name."""
    return tuple((p.name, p.metadata) for p in request.protocols)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout of a JoinGroup request; version 0 uses its session timeout."""
    timeout_ms = request.rebalance_timeout_ms
    return timeout_ms if timeout_ms != -1 else request.session_timeout_ms


class StaticMembersStay(Invariant):
    """ST4: a static member is removed when its session expires, by LeaveGroup, when the group exceeds its
    maximum size, or when it joined and never sent SyncGroup; never because it rejoined late."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.kind == "loaded") or event.lost:
            return
        for name, group in event.before.groups.items():
            after = event.after.groups.get(name, group)
            if not (isinstance(group, ClassicGroup) and isinstance(after, ClassicGroup)):
                continue
            removed = group.instances.keys() - event.after.group(name).instances.keys()
            for instance in sorted(removed):
                self._check_removal(event, name, group.instances[instance], instance)

    def _check_removal(self, event: Event, name: str, member_id: str, instance: str) -> None:
        group, key = event.before.group(name), event.key
        if event.kind == "timer":
            expired = key == ("session", name, member_id)
            never_synced = key == ("sync", name) and member_id in group.pending_syncs
            assert expired or never_synced, f"the timer {key} removed {instance}"
        elif event.kind == "loaded":
            assert group.state not in SETTLED, f"loading {group!r} removed {instance}"
        else:
            full = event.api == "JoinGroup" and event.error is Errors.GROUP_MAX_SIZE_REACHED
            left = event.api == "LeaveGroup" and event.error is Errors.NONE
            assert full or left, f"{event.api} removed {instance}"


class StaticMembersSurviveRestarts(Invariant):
    """ST5: after a restart a stable group has its static members, under their latest member ids."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            if group.state is State.STABLE and group.instances:
                loaded = event.after.group(name).instances
                assert loaded == group.instances, f"{group!r} had {group.instances}, loaded {loaded}"


class RemovalsCauseOneRebalance(Invariant):
    """ST7: one request causes at most one rebalance, however many members it removes."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("LeaveGroup"):
            return
        before, after = event.group_before, event.group_after
        increase = after.generation - before.generation
        assert increase in (0, 1), f"one request changed {before!r} to {after!r}"
        response: Any = event.answer
        if event.version >= 3 and event.error is Errors.NONE:
            reported = sum(not m.error_code for m in response.members)
            removed = len(before.members) + len(before.pending_joins)
            removed -= len(after.members) + len(after.pending_joins)
            # Members that had not rejoined may be removed with a generation that became complete.
            assert reported <= removed, f"{reported} members are reported as removed, {removed} were"
