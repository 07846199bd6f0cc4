"""Invariants of share groups as they are, live and in the log: members, epochs, share partitions.

A group is checked when it changed, and all groups at every audit. SH: share groups; rules that they share
with consumer groups have those numbers (M). The invariants of records are in `sim.share`.
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


def as_logged(group: ShareGroup) -> ShareGroup:
    """Return the group without what a restart may lose."""
    return replace(group, soft=SoftState(), reached_ms={})


class ShareGroupsAreStored(Invariant):
    """SH14, G1: a share group, with its members, assignments and epochs, is what the log holds; and a restart
    loads the same state, unless the log lost batches."""

    def after(self, event: Event) -> None:
        for name, _, group in touched(event):
            stored = event.runtime.shadow.groups.get(name)
            assert isinstance(stored, ShareGroup), f"{group!r} is {stored!r} in the log"
            live, logged = as_logged(group), as_logged(stored)
            assert live == logged, f"{name}: live {live!r} {live}, in the log {logged!r} {logged}"
        if event.kind == "loaded" and event.before is not EMPTY_VIEW and not event.lost:
            for name, old in event.before.groups.items():
                now = event.after.groups.get(name)
                if isinstance(old, ShareGroup) and isinstance(now, ShareGroup):
                    same = as_logged(now) == as_logged(old)
                    assert same, f"{name} was {as_logged(old)}, and is loaded as {as_logged(now)}"


class ShareEpochsAreInOrder(OrderedEpochs):
    """M2: of share groups, group epoch >= assignment epoch >= each member epoch, and none of them
    decreases."""

    group_type = ShareGroup
    allows_temporary_leave = False


class OnlyInitializedPartitionsAreAssigned(Invariant):
    """SH11: a target has share partitions that the share coordinator has begun with, of topics that its
    member reads; and a partition is not at the same time done and being deleted."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            state = group.state_topics
            both = state.initialized.keys() & state.deleting.keys()
            assert not both, f"{name}: {sorted(both)} is initialized, and being deleted"
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            for member_id, target in group.targets.items():
                if member_id in group.members and (old is None or old.targets.get(member_id) != target):
                    self._check_target(name, group, member_id)

    def _check_target(self, name: str, group: ShareGroup, member_id: str) -> None:
        reads = group.members[member_id].topics
        for topic, partitions in group.targets[member_id].items():
            begun = group.state_topics.initialized.get(topic)
            assert begun is not None, f"{name}: {member_id} is to have {topic}, which has not begun"
            early = set(partitions) - set(begun.partitions)
            assert not early, (
                f"{name}: {member_id} is to have {sorted(early)} of {topic}, which have not begun"
            )
            assert begun.name in reads, (
                f"{name}: {member_id} is to have {begun.name}, and reads {sorted(reads)}"
            )


class ShareMembersHaveTheirTarget(Invariant):
    """SH14: a member has its target as its assignment once its heartbeat is answered: share groups never
    wait."""

    def after(self, event: Event) -> None:
        if not event.is_request("ShareGroupHeartbeat") or event.error is not Errors.NONE:
            return
        group = event.after.groups.get(event.request.group_id)
        if not isinstance(group, ShareGroup) or event.request.member_id not in group.members:
            return
        current = group.members[event.request.member_id].current
        if current.epoch == group.assignment_epoch:
            target = group.targets.get(event.request.member_id, {})
            known, reads = event.runtime.topics.by_id, group.members[event.request.member_id].topics
            has, wanted = (
                {
                    t: frozenset(p)
                    for t, p in assignment.items()
                    if p and t in known and known[t].name in reads
                }
                for assignment in (current.assigned, target)
            )
            assert has == wanted, f"{event.request.member_id} has {has}, and is meant to have {wanted}"
        epoch = event.answer.member_epoch if event.answer is not None else None  # type: ignore[union-attr]
        assert epoch == current.epoch, f"{event.request.member_id} is answered {epoch}, not {current.epoch}"


class StaleHeartbeatsAreFenced(Invariant):
    """M10: a heartbeat whose epoch is neither the current nor the previous one is fenced; an unknown member
    may only join, with epoch 0."""

    def after(self, event: Event) -> None:
        if not event.is_request("ShareGroupHeartbeat") or event.request.member_epoch <= 0:
            return
        group = event.before.groups.get(event.request.group_id)
        known = group.members.get(event.request.member_id) if isinstance(group, ShareGroup) else None
        epochs = () if known is None else (known.current.epoch, known.current.previous_epoch)
        accepted = event.error is Errors.NONE
        fits = event.request.member_epoch in epochs
        assert not accepted or fits, f"{event.request} is accepted, of {known}"


class NewPartitionsAreInitialized(Invariant):
    """SH11, SH7: a member that joins or changes its subscription triggers the initialization of missing
    partitions: those of a new topic begin by the reset policy, those added to a known topic at 0."""

    def after(self, event: Event) -> None:
        if event.outcome is None or event.kind != "request":
            return
        for effect in event.outcome.effects:
            if effect.verb != INITIALIZE_STATE:
                continue
            group = event.before.groups.get(effect.subject.group_id)
            known = group.state_topics.initialized if isinstance(group, ShareGroup) else {}
            after = event.after.groups[effect.subject.group_id]
            for request in effect.subject.requests:
                topic, index = request.key.topic_id, request.key.partition
                had = topic in known
                assert not (had and index in known[topic].partitions), f"{request}: it is initialized already"
                assert not had or request.start_offset == 0, f"{request}: it was added to {known[topic]}"
                listed = after.state_topics.initializing.get(topic)
                noted = listed is not None and index in listed.partitions
                assert noted, f"{request}: it is requested, but not in the log"


class ShareSessionsAreTimed(Invariant):
    """M4, G11: exactly the members have a session timer."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete) or event.kind == "append failed":
            return
        timers = event.runtime.timers
        for name, old, group in touched(event):
            for member_id in group.members:
                assert ("session", name, member_id) in timers, f"{name}: {member_id} has no session"
            for member_id in (old.members.keys() if old is not None else set()) - group.members.keys():
                assert ("session", name, member_id) not in timers, (
                    f"{name}: {member_id} left, but has a session"
                )


class OnlyEmptyGroupsAreAltered(Invariant):
    """SH7: offsets are altered or deleted only in a group without members; altered offsets have the group's
    next epoch, which fences earlier share partition leaders; and a rejected request changes nothing."""

    APIS = ("AlterShareGroupOffsets", "DeleteShareGroupOffsets")

    def after(self, event: Event) -> None:
        if not event.is_request(*self.APIS) or event.answer is None or isinstance(event.answer, Errors):
            return
        wanted: Any = event.answer
        group = event.before.groups.get(event.request.group_id)
        has_members = isinstance(group, ShareGroup) and bool(group.members)
        refused = wanted.response.error_code is Errors.NON_EMPTY_GROUP
        assert refused == has_members, f"{event.request} is answered {wanted}, for {group!r}"
        assert not refused or not event.changed, f"{event.request} is rejected, but something is written"
        now = event.after.groups.get(event.request.group_id)
        epoch = group.epoch if isinstance(group, ShareGroup) else 0
        if wanted.requests and event.is_request(self.APIS[0]):
            assert isinstance(now, ShareGroup), f"{event.request} made {now!r}"
            assert now.epoch > epoch, f"{event.request} is accepted at epoch {epoch}"
            at = {request.state_epoch for request in wanted.requests}
            assert at == {now.epoch}, f"{event.request} is requested at {at}, but the group is {now!r}"
