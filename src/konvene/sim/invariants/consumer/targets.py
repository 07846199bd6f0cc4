"""Invariants of what members of a consumer group are meant to have, and of what makes it change."""

from __future__ import annotations

from typing import Any

from konvene.codec.hashes import metadata_hash, topic_hash
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, RESOLVE_REGEXES, RegexesResolved
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.shard.image import Topics
from konvene.sim.invariants.consumer.state import touched
from konvene.sim.world.event import Event, Invariant
from konvene.sim.world.faults import SECRET

KINDS = ("consumer", "consumer-static", "migration")


class TargetsAreComplete(Invariant):
    """M8: a target gives each partition of each topic that somebody reads to exactly one member that reads
    it, and nothing else to anybody; where all read the same, nobody has two more than another."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int], Topics] = {}
        """The topics when a target was asked for elsewhere, by group and epoch."""

    def after(self, event: Event) -> None:
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                self.asked[effect.subject.group_id, effect.subject.epoch] = event.runtime.topics
        for name, old, group in touched(event):
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            if not group.assignment_timestamp_ms:
                continue  # What a leader gave when it was a classic group.
            if group.assignment_epoch == group.epoch and group.members:
                topics = event.runtime.topics
                if event.kind == "completion":
                    if _waits_for_expressions(group):
                        continue  # Somebody read something else when it was asked for; no epoch moved for it.
                    topics = self.asked[name, group.epoch]
                self._look(group, topics)

    def _look(self, group: ConsumerGroup, topics: Topics) -> None:
        reads = {
            member_id: {topics.by_name[name].id for name in read_by(group, m) if name in topics.by_name}
            for member_id, m in group.members.items()
        }
        wanted = {(t, p) for ids in reads.values() for t in ids for p in range(topics.by_id[t].partitions)}
        given: dict[Any, str] = {}
        for member_id, target in group.targets.items():
            for topic, some in target.items():
                for p in some:
                    assert topic in reads.get(member_id, ()), f"{group!r}: {member_id} does not read {topic}"
                    other = given.setdefault((topic, p), member_id)
                    assert other == member_id, f"{group!r}: {other} and {member_id} are to have {topic}-{p}"
        left, more = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
        assert not left, f"{group!r}: nobody is to have {left}"
        assert not more, f"{group!r}: {more} are to be had, and are not there"
        if len({frozenset(ids) for ids in reads.values()}) == 1 and set(group.assignors) <= {"uniform"}:
            counts = [sum(map(len, group.targets.get(m, {}).values())) for m in group.members]
            assert max(counts) - min(counts) <= 1 or not group.assignors, f"{group!r}: {counts}"


class EpochBumpsHaveACause(Invariant):
    """M12, L5: a decision moves the epoch by one or not at all; it does where members come or go, read
    something else, or topics are not what they were, and else only where another assignor is to be asked.
    What an expression matches moves it when that is found."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            before = event.before.groups.get(name)
            first, was_classic = 1 if before is None or not before.members else 0, False
            if old is not None:
                first = old.epoch
            elif isinstance(before, ClassicGroup) and before.members:
                first, was_classic = max(before.generation, FIRST_EPOCH), True
            moved = group.epoch - first
            assert moved in (0, 1), f"{name} moved from {first} to {group.epoch} at once"
            if old is None:
                quiet = not self._says(group, group) or _waits_for_expressions(group)
                # Who was a classic member before may take its own place, and nothing moves.
                assert moved or quiet or was_classic, f"{name} came to be at {group.epoch}"
                continue
            same = self._says(old, group) == self._says(group, old)
            assert moved or same or _waits_for_expressions(group), (
                f"{group!r}: other members, or other topics, and its epoch stayed"
            )
            said = [
                ({i: (m.topics, m.regex) for i, m in g.members.items()},
                 {expression: found.topics for expression, found in g.regexes.items()})
                for g in (old, group)
            ]  # fmt: skip
            same = same and said[0] == said[1] and old.assignors == group.assignors
            assert not (moved and same and old.metadata_hash == group.metadata_hash), (
                f"{group!r} moved on, and nothing is new"
            )

    def _says(self, group: ConsumerGroup, other: ConsumerGroup) -> Any:
        """Who reads what. A static member is who it was, whatever its id. Nothing moves for who reads
        nothing."""
        return {
            m.member_id if m.member_id in other.members else m.instance_id or m.member_id: (
                m.topics,
                read_by(group, m),
            )
            for m in group.members.values()
            if read_by(group, m)
        }


class MetadataHashIsCurrent(Invariant):
    """M12: after a member was heard, and whenever the epoch moves, the group's hash is that of the topics
    that it reads, as they are: a change is seen with the next heartbeat, whoever sends it."""

    def after(self, event: Event) -> None:
        if event.is_request("ConsumerGroupHeartbeat") and event.error is Errors.NONE:
            group = event.after.groups.get(event.request.group_id)
            stays = event.request.member_epoch >= 0
            if isinstance(group, ConsumerGroup) and stays and not _waits_for_expressions(group):
                self._look(event, group)
        for _, old, group in touched(event):
            if not event.is_complete and (old is None or old.epoch != group.epoch):
                self._look(event, group)

    def _look(self, event: Event, group: ConsumerGroup) -> None:
        topics = event.runtime.topics
        names = {name for m in group.members.values() for name in read_by(group, m)} & topics.by_name.keys()
        hashes = {}
        for name in names:
            topic = topics.by_name[name]
            hashes[name] = topic_hash(name, topic.id, topic.racks or ((),) * topic.partitions)
        expected = metadata_hash(hashes)
        assert group.metadata_hash == expected, (
            f"{group!r}: the hash is {group.metadata_hash}, of {sorted(names)} it is {expected}"
        )


class RegexesMatchAuthorizedTopics(Invariant):
    """M15: an expression matches no topic that may not be described. One that nobody uses is not kept."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            for expression, resolved in group.regexes.items():
                seen = [name for name in resolved.topics if name.startswith(SECRET)]
                assert not seen, f"{group!r}: {expression} was found to match {seen}"
            idle = group.regexes.keys() - {m.regex for m in group.members.values()}
            assert not idle, f"{group!r}: nobody uses {sorted(idle)}"


class CompletedWorkIsNotPending(Invariant):
    """L1, M12: when it was found what expressions match, or a target was computed, nobody waits for it any
    more: what is new by then is looked at again."""

    def after(self, event: Event) -> None:
        if event.kind != "completion" or event.outcome is None:
            return
        group = event.after.groups.get(event.news.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        asked = {effect.verb for effect in event.outcome.effects}
        if isinstance(event.news, RegexesResolved):
            waits, verb = group.soft.resolving, RESOLVE_REGEXES
        else:
            waits, verb = group.soft.computing == event.news.epoch, COMPUTE_ASSIGNMENT
        assert not waits or verb in asked, f"{group!r} waits on for {event.news}, which came"


def _waits_for_expressions(group: ConsumerGroup) -> bool:
    """Whether somebody's expression has not been looked at yet."""
    return any(m.regex and m.regex not in group.regexes for m in group.members.values())


def read_by(group: ConsumerGroup, member: Member) -> set[str]:
    """The topics that a member reads, by name and by what its expression was found to match."""
    resolved = group.regexes.get(member.regex)
    return set(member.topics) | (set(resolved.topics) if resolved is not None else set())
