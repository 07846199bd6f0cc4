"""Invariants of the state of share groups, live and in the log: members, epochs, share partitions.

A group is checked when it changed, and all groups at every audit. SH: share groups; rules of consumer groups
keep their numbers (M). `sim.share` has the invariants of deliveries and share state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.share.group import ShareGroup, SoftState
from konvene.groups.share.work import INITIALIZE_STATE
from konvene.sim.invariants.modern import OrderedEpochs, touched_groups
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

KINDS = ("share",)


def touched(event: Event) -> Iterator[tuple[str, ShareGroup | None, ShareGroup]]:
    """Yield the id of each share group that an event changed, the group before, if any, and after."""
    return touched_groups(event, ShareGroup)


def durable_part(group: ShareGroup) -> ShareGroup:
    """Return a copy of the group without the state that a restart may lose."""
    return replace(group, soft=SoftState(), reached_ms={})


class ShareGroupsAreStored(Invariant):
    """SH14, G1: a share group, with its members, assignments and epochs, is what the log holds; and a restart
    loads the same state, unless the log lost batches."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            stored = event.runtime.shadow.groups.get(name)
            assert isinstance(stored, ShareGroup), f"{group!r} is {stored!r} in the log"
            live, logged = durable_part(group), durable_part(stored)
            assert live == logged, f"{group!r}: live {live}, in the log {logged}"
        if event.kind == "loaded" and event.before is not EMPTY_VIEW and not event.lost:
            for name, old in event.before.groups.items():
                restored = event.after.groups.get(name)
                if isinstance(old, ShareGroup) and isinstance(restored, ShareGroup):
                    before, loaded = durable_part(old), durable_part(restored)
                    assert loaded == before, f"{name} was {before}, but is loaded as {loaded}"


class ShareEpochsAreInOrder(OrderedEpochs[ShareGroup]):
    """M2: in a share group, group epoch >= assignment epoch >= each member epoch, and none of them
    decreases."""

    group_type = ShareGroup
    allows_temporary_leave = False


class OnlyInitializedPartitionsAreAssigned(Invariant):
    """SH11: a target has initialized share partitions only, of topics that its member subscribes to; and no
    topic is both initialized and being deleted."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            state = group.state_topics
            both = state.initialized.keys() & state.deleting.keys()
            assert not both, f"{name}: {sorted(both)} are initialized, but being deleted"
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            for member_id, target in group.targets.items():
                if member_id in group.members and (old is None or old.targets.get(member_id) != target):
                    self._check_target(name, group, member_id)

    def _check_target(self, name: str, group: ShareGroup, member_id: str) -> None:
        subscribed = group.members[member_id].topics
        for topic, partitions in group.targets[member_id].items():
            initialized = group.state_topics.initialized.get(topic)
            target = f"{name}: the target of {member_id}"
            assert initialized is not None, f"{target} has {topic}, which is not initialized"
            unknown = sorted(set(partitions) - set(initialized.partitions))
            assert not unknown, f"{target} has {topic}-{unknown}, which are not initialized"
            assert initialized.name in subscribed, (
                f"{target} has {initialized.name}, but it subscribes to {sorted(subscribed)}"
            )


class ShareMembersHaveTheirTarget(Invariant):
    """SH14: a heartbeat gives a member its whole target: members of share groups revoke nothing and wait for
    no other member."""

    def after(self, event: Event) -> None:
        if not event.is_request("ShareGroupHeartbeat") or event.error is not Errors.NONE:
            return
        member_id = event.request.member_id
        group = event.after.groups.get(event.request.group_id)
        if not isinstance(group, ShareGroup) or member_id not in group.members:
            return
        member = group.members[member_id]
        current = member.current
        if current.epoch == group.assignment_epoch:
            topics = event.runtime.topics.by_id
            assigned, target = (
                {
                    topic: frozenset(partitions)
                    for topic, partitions in assignment.items()
                    if partitions and topic in topics and topics[topic].name in member.topics
                }
                for assignment in (current.assigned, group.targets.get(member_id, {}))
            )
            assert assigned == target, f"{member_id} has {assigned}, but its target is {target}"
        response: Any = event.answer
        epoch = response.member_epoch if response is not None else None
        assert epoch == current.epoch, f"{member_id} gets {epoch}, but is at {current.epoch}"


class StaleHeartbeatsAreFenced(Invariant):
    """M10: a heartbeat whose epoch is neither the current nor the previous one is fenced; an unknown member
    may only join, with epoch 0."""

    def after(self, event: Event) -> None:
        if not event.is_request("ShareGroupHeartbeat") or event.request.member_epoch <= 0:
            return
        group = event.before.groups.get(event.request.group_id)
        member = group.members.get(event.request.member_id) if isinstance(group, ShareGroup) else None
        epochs = () if member is None else (member.current.epoch, member.current.previous_epoch)
        valid = event.request.member_epoch in epochs
        assert event.error is not Errors.NONE or valid, f"{event.request} is accepted from {member}"


class NewPartitionsAreInitialized(Invariant):
    """SH11, SH7: a member that joins or changes its subscription triggers the initialization of missing
    partitions: those of a new topic start by the reset policy, those added to a known topic at 0."""

    def after(self, event: Event) -> None:
        if event.outcome is None or event.kind != "request":
            return
        for effect in event.outcome.effects:
            if effect.verb != INITIALIZE_STATE:
                continue
            group = event.before.groups.get(effect.subject.group_id)
            initialized = group.state_topics.initialized if isinstance(group, ShareGroup) else {}
            after = event.after.groups[effect.subject.group_id]
            for request in effect.subject.requests:
                topic, index = request.key.topic_id, request.key.partition
                known = topic in initialized
                again = known and index in initialized[topic].partitions
                assert not again, f"{request}: the partition is already initialized"
                assert not known or request.start_offset == 0, (
                    f"{request}: the partition was added to {initialized[topic]}"
                )
                recorded = after.state_topics.initializing.get(topic)
                is_recorded = recorded is not None and index in recorded.partitions
                assert is_recorded, f"{request}: the initialization is not in the log"


class ShareSessionsAreTimed(Invariant):
    """M4, G11: exactly the members have a session timer."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete) or event.kind == "append failed":
            return
        timers = event.runtime.timers
        for name, old, group in touched(event):
            for member_id in group.members:
                assert ("session", name, member_id) in timers, f"{name}: {member_id} has no session timer"
            for member_id in (old.members.keys() if old is not None else set()) - group.members.keys():
                assert ("session", name, member_id) not in timers, (
                    f"{name}: {member_id} left, but has a session timer"
                )


class OnlyEmptyGroupsAreAltered(Invariant):
    """SH7: offsets are altered or deleted only in a group without members; altered offsets have the group's
    next epoch, which fences earlier share partition leaders. A rejected request changes nothing."""

    APIS = ("AlterShareGroupOffsets", "DeleteShareGroupOffsets")

    def after(self, event: Event) -> None:
        if not event.is_request(*self.APIS) or event.answer is None or isinstance(event.answer, Errors):
            return
        alteration: Any = event.answer
        group = event.before.groups.get(event.request.group_id)
        has_members = isinstance(group, ShareGroup) and bool(group.members)
        rejected = alteration.response.error_code is Errors.NON_EMPTY_GROUP
        assert rejected == has_members, f"{event.request} is answered {alteration}, for {group!r}"
        assert not rejected or not event.changed, f"{event.request} is rejected, but something changed"
        now = event.after.groups.get(event.request.group_id)
        epoch = group.epoch if isinstance(group, ShareGroup) else 0
        if alteration.requests and event.is_request(self.APIS[0]):
            assert isinstance(now, ShareGroup), f"{event.request} changed the group to {now!r}"
            assert now.epoch > epoch, f"{event.request} is accepted at epoch {epoch}"
            epochs = {request.state_epoch for request in alteration.requests}
            assert epochs == {now.epoch}, f"{event.request} alters state at {epochs}, the group is {now!r}"
