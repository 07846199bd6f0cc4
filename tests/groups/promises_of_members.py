"""What is promised to members that have an instance id (ST), and to whoever commits offsets (O)."""

from __future__ import annotations

from typing import Any

from tests.groups.promise import RETENTION, SETTLED, Event, Promise, is_member, subscribed_topics
from tests.groups.world import State

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors

# --- ST: static members ----------------------------------------------------------------------------


class InstancesAreMembers(Promise):
    """ST1: an instance id is one member's. One that comes back without a member id gets a new one."""

    def after(self, event: Event) -> None:
        for group in event.after.groups.values():
            named = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
            assert group.instances == named
            assert len(set(named.values())) == len(named)
        if event.asks("JoinGroup") and event.request.group_instance_id is not None:
            said, before, after = event.request, event.asked_of, event.asked_of_after
            old = before.instances.get(said.group_instance_id)
            if old is not None and not said.member_id and event.error in (None, Errors.NONE):
                assert after.instances[said.group_instance_id] != old
                assert old not in after.members
                assert len(after.members) == len(before.members)
                assert (after.leader == after.instances[said.group_instance_id]) == (before.leader == old)


class OldMemberIdsAreFenced(Promise):
    """ST2: another member id than the instance's own is answered FENCED_INSTANCE_ID, and nobody else is.

    ST8: so that a member that uses the id it was told last is never fenced."""

    def after(self, event: Event) -> None:
        if not event.asks("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        said, group = event.request, event.asked_of
        holder = group.instances.get(said.group_instance_id)
        if event.error is Errors.FENCED_INSTANCE_ID:
            assert holder is not None
            assert holder != said.member_id
        elif holder is not None and said.member_id and said.member_id != holder:
            # Settings are looked at first, and a JoinGroup's room and protocols as well.
            if said.member_id in group.pending_joins and event.error is Errors.UNKNOWN_SERVER_ERROR:
                return  # An id that was handed out to a member without an instance id.
            assert event.error in BEFORE_FENCING.get(type(event.request).__name__, ())


BEFORE_FENCING = {
    "JoinGroupRequest": (
        Errors.INVALID_SESSION_TIMEOUT, Errors.GROUP_MAX_SIZE_REACHED, Errors.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "SyncGroupRequest": (Errors.UNKNOWN_MEMBER_ID,),
}  # fmt: skip


class StaticMembersKeepTheirs(Promise):
    """ST3: back within its session, a static member has the same assignment, and no rebalance starts unless
    another protocol would be chosen. ST6: what it says of itself anew takes effect."""

    def after(self, event: Event) -> None:
        if not event.asks("JoinGroup") or event.request.member_id:
            return
        said, before, group = event.request, event.asked_of, event.asked_of_after
        holder = before.instances.get(said.group_instance_id)
        if holder is None or event.error not in (None, Errors.NONE):
            return
        old, new = before.members[holder], group.members[group.instances[said.group_instance_id]]
        protocols = tuple((p.name, p.metadata) for p in said.protocols)
        assert (new.protocols, new.session_timeout_ms) == (protocols, said.session_timeout_ms)
        assert new.rebalance_timeout_ms == said.rebalance_timeout_ms
        assert event.life.timers.get(("session", group.group_id, new.member_id)) is not None
        if before.state is State.STABLE and (old.protocols == protocols or event.answer is not None):
            answer: Any = event.answer
            assert group.state is State.STABLE
            assert answer.generation_id == before.generation == group.generation
            assert new.assignment == old.assignment
            assert event.batch is not None, "the new id is written down"
            leads = group.leader == new.member_id
            assert answer.skip_assignment == (leads and event.version >= 9)
            told_of = [m.member_id for m in answer.members]
            assert told_of == (list(group.members) if leads and event.version >= 9 else [])


class StaticMembersStay(Promise):
    """ST4: a static member goes when its session ends, when it is taken out by LeaveGroup or finds no room;
    or when it joined and never asked for its assignment. Never because it was late to rejoin."""

    def after(self, event: Event) -> None:
        for name, group in event.before.groups.items():
            gone = group.instances.keys() - event.after.group(name).instances.keys()
            for instance in gone:
                member_id = group.instances[instance]
                if event.kind == "timer":
                    kind = event.key[0]
                    assert kind != "join"
                    assert kind == "sync" or event.key == ("session", name, member_id)
                    assert kind == "session" or member_id in group.pending_syncs
                elif event.kind in ("restart", "append failed"):
                    assert group.state not in SETTLED, "the mapping survives (ST5)"
                else:
                    full = event.error is Errors.GROUP_MAX_SIZE_REACHED
                    left = event.asks("LeaveGroup") and event.error is Errors.NONE
                    assert full or left


class MappingsSurvive(Promise):
    """ST5: after a restart a stable group has its static members, under the ids that they were told last."""

    def after(self, event: Event) -> None:
        if event.kind != "restart":
            return
        for name, group in event.before.groups.items():
            if group.state is State.STABLE:
                assert event.after.groups[name].instances == group.instances


class OneRebalanceForMany(Promise):
    """ST7: however many members one request takes out, one rebalance follows at most."""

    def after(self, event: Event) -> None:
        if event.asks("LeaveGroup"):
            before, after = event.asked_of, event.asked_of_after
            assert after.generation - before.generation in (0, 1)
            answer: Any = event.answer
            if event.version >= 3 and event.error is Errors.NONE:
                left = sum(not m.error_code for m in answer.members)
                gone = len(before.members) + len(before.pending_joins)
                gone -= len(after.members) + len(after.pending_joins)
                # Members that had not rejoined may go with a generation that became complete.
                assert left <= gone


# --- O: offsets ------------------------------------------------------------------------------------


class MembersCommit(Promise):
    """O1: a commit is accepted where it comes from a member of the generation, or from no member of an empty
    group; and never while the group waits for its leader."""

    def after(self, event: Event) -> None:
        if not event.asks("OffsetCommit"):
            return
        said, group = event.request, event.asked_of
        generation = said.generation_id_or_member_epoch
        known = said.group_id in event.before.groups
        alone = generation < 0 and (not known or group.state is State.EMPTY)
        member = known and is_member(group, said.member_id, said.group_instance_id)
        current = member and generation == group.generation and group.state is not State.COMPLETING_REBALANCE
        assert (event.error is Errors.NONE) == (alone or current)
        if current and not alone:
            key = ("session", said.group_id, said.member_id)
            told = group.members[said.member_id].session_timeout_ms
            assert event.life.timers[key] == event.life.now_ms + told


class OffsetsAreTheLastCommitted(Promise):
    """O2: what is fetched is what was accepted last. O5: it goes when somebody deletes it, its group or its
    topic, or when its time is up; no restart and no rebalance takes it."""

    def __init__(self) -> None:
        self.books: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.topic_ids: dict[tuple[str, str, int], Uuid] = {}

    def after(self, event: Event) -> None:
        if event.kind == "asked" and event.outcome is not None:
            self._write(event)
        elif event.key == RETENTION:
            for key in event.before.offsets.keys() - event.after.offsets.keys():
                del self.books[key]
        held = {key: (c.offset, c.metadata) for key, c in event.after.offsets.items()}
        assert held == self.books

    def _write(self, event: Event) -> None:
        said: Any = event.request
        told: Any = event.answer
        if event.asks("OffsetCommit"):
            for topic, answer in zip(said.topics, told.topics, strict=True):
                for p, a in zip(topic.partitions, answer.partitions, strict=True):
                    assert p.partition_index == a.partition_index
                    if not a.error_code:
                        name = topic.name or event.life.topics.by_id[topic.topic_id].name
                        key = (said.group_id, name, p.partition_index)
                        self.books[key] = p.committed_offset, p.committed_metadata or ""
                        for_ever = said.retention_time_ms == -1
                        self.topic_ids[key] = event.life.topics.by_name[name].id if for_ever else ZERO_UUID
        elif event.asks("OffsetDelete"):
            for topic in told.topics:
                for p in topic.partitions:
                    if not p.error_code:
                        self.books.pop((said.group_id, topic.name, p.partition_index), None)
        elif event.asks("DeleteGroups"):
            gone = {r.group_id for r in told.results if not r.error_code}
            self.books = {key: value for key, value in self.books.items() if key[0] not in gone}
        elif event.asks("DeleteTopics"):
            ids = {topic.name: (topic.topic_id, ZERO_UUID) for topic in said.topics}
            for key in [k for k in self.books if self.topic_ids[k] in ids.get(k[1], ())]:
                del self.books[key]


class OffsetsExpireLate(Promise):
    """O5: an offset expires only of an empty group, or of a topic that nobody of a stable group reads; when
    it is as old as it said itself, or has been of no use for `offsets.retention.minutes`."""

    def after(self, event: Event) -> None:
        if event.kind != "timer" or event.key != RETENTION:
            return
        now_ms, kept_ms = event.life.now_ms, event.life.config["offsets.retention.minutes"] * 60_000
        for key in event.before.offsets.keys() - event.after.offsets.keys():
            group, told = event.before.groups[key[0]], event.before.offsets[key]
            assert group.state in SETTLED
            if group.members:
                assert key[1] not in subscribed_topics(group)
            if told.expire_ms != -1:
                assert now_ms >= told.expire_ms
            else:
                since_ms = told.commit_ms
                if group.state is State.EMPTY and not group.is_simple and group.state_timestamp_ms != -1:
                    since_ms = group.state_timestamp_ms
                assert now_ms >= since_ms + kept_ms
        for name, group in event.before.groups.items():
            if group.state is State.EMPTY and name in event.after.groups:
                # And what is left in an empty group is not as old yet.
                left = [c for key, c in event.after.offsets.items() if key[0] == name]
                assert left
                assert all(now_ms < c.expire_ms for c in left if c.expire_ms != -1)


class SubscribedOffsetsStay(Promise):
    """O5: OffsetDelete takes offsets of an empty group, or of a topic that no member reads."""

    def after(self, event: Event) -> None:
        for group_id, topic, _ in event.before.offsets.keys() - event.after.offsets.keys():
            group = event.before.groups[group_id]
            if group.members and not event.asks("DeleteTopics"):
                assert event.asks("OffsetDelete") or event.key == RETENTION
                assert topic not in subscribed_topics(group)


class GroupsGoWhenEmpty(Promise):
    """O6: a group is deleted only when it is empty, and its offsets with it."""

    def after(self, event: Event) -> None:
        for name in event.before.groups.keys() - event.after.groups.keys():
            assert event.asks("DeleteGroups") or event.key == RETENTION
            assert event.before.groups[name].state is State.EMPTY
            assert not any(group_id == name for group_id, _, _ in event.after.offsets)


class RecreatedTopicsBeginAnew(Promise):
    """O7: who asks by topic id is not told what was committed for another topic of that name.

    Where the log has no room for the topic's id, because it says when the offset expires, nobody knows."""

    def after(self, event: Event) -> None:
        if not event.asks("OffsetFetch") or event.version < 10:
            return
        told: Any = event.answer
        for group in told.groups:
            for topic in group.topics:
                known = event.life.topics.by_id.get(topic.topic_id)
                for p in topic.partitions:
                    if known is None:
                        assert p.error_code == Errors.UNKNOWN_TOPIC_ID
                        continue
                    held = event.before.offsets.get((group.group_id, known.name, p.partition_index))
                    own = held is not None and held.topic_id in (ZERO_UUID, topic.topic_id)
                    assert p.committed_offset == (held.offset if own and held else -1)
