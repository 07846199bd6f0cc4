"""Invariants of groups of Kafka Streams that move between the classic and the streams protocol while
they run (KIP-1071).

What members of the classic protocol say and are told is read here from their bytes; what follows from it is
said once more, from the protocol and not from the code that does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from konvene.client.consumer.protocol import Assigned, Subscription, read_assignment, read_subscription
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.assignors import assignment_configs
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    SubscriptionInfo,
    UserDataError,
    read_assignment_info,
    read_subscription_info,
)
from konvene.groups.streams.current_assignment import MemberState
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, configure
from konvene.groups.streams.topology.expressions import expressions
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages.sync_group import SyncGroupResponse
from konvene.records.commits import OffsetCommitted
from konvene.shard.errors import GroupError
from konvene.sim.invariants.consumer.migration import converted
from konvene.sim.invariants.modern import ServedClassicMembers
from konvene.sim.invariants.streams.decisions import HEARTBEAT
from konvene.sim.invariants.streams.state import OWES, Task
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
STREAM = "stream"
FIRST_TOLD_BY_JOINS = 9
"""Of user data: clients of earlier versions end at a join that is answered REBALANCE_IN_PROGRESS."""
TopicPartition = tuple[str, int]


class Spoke(NamedTuple):
    """What a classic member said as it joined last, and what its leader gave it then."""

    subscription: Subscription
    info: SubscriptionInfo
    given: AssignmentInfo


def spoke(member: ClassicMember) -> Spoke | None:
    """None where it cannot be read."""
    try:
        said = read_subscription(dict(member.protocols)[STREAM])
        info = read_subscription_info(said.user_data or b"")
        given = info_of(read_assignment(member.assignment))
    except (CodecError, UserDataError, KeyError):
        return None
    return None if info.named_topologies or given is None else Spoke(said, info, given)


def info_of(found: Assigned) -> AssignmentInfo | None:
    """What stands beside the partitions; None where nothing does. Raises `UserDataError`."""
    partitions = tuple((p.topic, p.partition) for p in found.partitions)
    if found.user_data:
        return read_assignment_info(found.user_data, partitions)
    return None if partitions else AssignmentInfo(1, 1)


def ways(event: Event) -> str:
    """The policy that holds."""
    config = event.context.config if event.context is not None else event.runtime.config
    if config["konvene.streams.mode"] == KAFKA:
        return "disabled"
    return str(config["konvene.streams.migration.policy"]).lower()


# --- MG1: classic to streams -----------------------------------------------------------------------


class StreamsUpgradesKeepTasks(Invariant):
    """MG1: a classic group becomes a streams group with the members that it has, at its generation, with what
    their leader gave them, or what they own where it has not spoken since they joined, and what they owned
    beside that as yet to be given up; where the policy and the sizes let it. Who waited is told to join. No
    offset is touched."""

    def after(self, event: Event) -> None:
        for name, old, group in converted(event, ClassicGroup, StreamsGroup):
            if not old.members:
                continue
            assert ways(event) in UPGRADES, f"{name} is upgraded, the policy is {ways(event)}"
            most = event.context.config["group.streams.max.size"]
            assert len(old.members) <= most, f"{old!r} is upgraded, {most} may be in"
            gone = [
                member_id
                for member_id, m in old.members.items()
                if member_id not in group.members and group.static_member(m.instance_id) is None
            ]
            assert not gone, f"{old!r} is upgraded without {gone}"
            moved = group.epoch - max(old.generation, FIRST_EPOCH)
            assert moved in (0, 1), f"{old!r} is upgraded to {group!r}"
            joined = len(group.members.keys() - old.members.keys())
            assert joined <= 1, f"{old!r} is upgraded, {joined} joined at once"
            for record in event.batch.records if event.batch is not None else ():
                assert type(record) is not OffsetCommitted, f"{name} is upgraded, and an offset is another"
            self._waiters(event, old)
            self._tasks(old, group)

    def _waiters(self, event: Event, old: ClassicGroup) -> None:
        answers = dict(event.answered)
        for member in old.members.values():
            said = spoke(member)
            is_old = said is not None and said.info.version < FIRST_TOLD_BY_JOINS
            joins = Errors.COORDINATOR_LOAD_IN_PROGRESS if is_old else Errors.REBALANCE_IN_PROGRESS
            for waiter, again in (
                (member.join_waiter, joins),
                (member.sync_waiter, Errors.REBALANCE_IN_PROGRESS),
            ):
                if waiter is not None:
                    error = getattr(answers.get(waiter), "error_code", None)
                    assert error == again, f"{member.member_id} hears {error}, not {again!r}"

    def _tasks(self, old: ClassicGroup, group: StreamsGroup) -> None:
        taken: set[Task] = set()
        at_process: set[tuple[str, Task]] = set()
        all_said = {member_id: spoke(member) for member_id, member in old.members.items()}
        runs: dict[str, set[Task]] = {}
        for member_id, said in all_said.items():
            assert said is not None, f"{member_id} cannot be read, and is taken over"
            runs[member_id] = {task for task, _ in said.given.active} - taken
            taken |= runs[member_id]
        claimed = set(taken)
        for member_id, said in all_said.items():
            assert said is not None
            mine = {task for task in _owned(group, said) - claimed if _is_task(group, task)}
            claimed |= mine
            if not old.members[member_id].assignment:
                runs[member_id] |= mine
                taken |= mine
            at_process |= {(said.info.process_id, task) for task in runs[member_id]}
        for member_id, said in all_said.items():
            member = group.members.get(member_id)
            assert said is not None
            copies = {t for t in said.given.standby if (said.info.process_id, t) not in at_process}
            at_process |= {(said.info.process_id, task) for task in copies}
            owned = _owned(group, said)
            if member is None or member.classic is None:
                continue  # Its own other self has taken its place.
            current = member.current
            has = _flat(current.assigned.active), _flat(current.assigned.standby)
            assert has == (runs[member_id], copies), f"{member_id} had {runs[member_id]}, {copies}: {has}"
            assert not current.assigned.warmup, f"{member_id} warms something up, out of nothing"
            owes = _flat(current.pending_revocation.active)
            unknown = {task for task in owned - taken - owes if _is_task(group, task)}
            assert not unknown, f"{member_id} owns {sorted(unknown)} still, and need not give it up"
            assert owes <= owned - runs[member_id], f"{member_id} owns {owned}, and has to give up {owes}"
            taken |= owes
            assert (current.state is OWES) == bool(owes), f"{member_id} is {current.state}, owes {owes}"
            at = max(old.generation, FIRST_EPOCH)
            assert current.epoch == at, f"{member_id} was in generation {at}, and is at {current.epoch}"


def _owned(group: StreamsGroup, said: Any) -> set[Task]:
    """What a member said that it runs."""
    owned = said.subscription.owned
    return {
        (str(group.reader_of(p.topic)), p.partition) for p in owned if group.reader_of(p.topic) is not None
    }


def _flat(tasks: Any) -> set[Task]:
    return {(name, p) for name, some in tasks.items() for p in some}


def _is_task(group: StreamsGroup, task: Task) -> bool:
    configured = group.soft.configured
    return configured is not None and task[1] < configured.tasks.get(task[0], 0)


class StreamsUpgradesAreValidated(Invariant):
    """MG1: who joins a classic group that has members with the streams protocol is let in exactly if nothing
    stands in the way: the policy, the size, a member that is no such application or runs another topology, or
    topics that are missing. Who is refused leaves no trace."""

    def after(self, event: Event) -> None:
        if not event.is_request(HEARTBEAT) or event.request.member_epoch != 0:
            return
        old = event.before.groups.get(event.request.group_id)
        if not isinstance(old, ClassicGroup) or not (old.members or old.pending_joins):
            return
        refused = event.error is Errors.GROUP_ID_NOT_FOUND
        assert not (event.error is not Errors.NONE and event.changed), f"{old!r}: refused, yet changed"
        if not refused and event.error is not Errors.NONE:
            return  # Something is wrong with the request itself.
        if not old.members:
            return
        why = list(obstacles(event, old))
        assert refused == bool(why), f"{old!r}: {event.error!r}, in the way is {why}"


def obstacles(event: Event, old: ClassicGroup) -> Iterator[str]:
    """What stands in the way of a classic group's becoming a streams group."""
    config, topics = event.context.config, event.runtime.topics.by_name
    if ways(event) not in UPGRADES:
        yield f"the policy {ways(event)}"
    if old.protocol_type != "consumer" or len(old.members) > config["group.streams.max.size"]:
        yield f"{old!r}"
    said = {member_id: spoke(member) for member_id, member in old.members.items()}
    yield from (f"{member_id}, who cannot be read" for member_id, each in said.items() if each is None)
    try:
        topology = Topology.from_request(event.request.topology)
        found = configure(topology, {name: topics[name].partitions for name in topics})
    except GroupError as wrong:
        yield str(wrong)
        return
    if expressions(topology) or not found.is_ready or not all(map(str.isdigit, topology.subtopologies)):
        yield f"{topology} is not ready, or has no words"
        return
    reads = {topic for each in topology.subtopologies.values() for topic in sources(each)}
    for member_id, each in said.items():
        if each is None:
            continue
        if set(each.subscription.topics) != reads:
            yield f"{member_id}, who reads {each.subscription.topics}, not {reads}"
        tasks = [*each.given.active, *((t, p) for t, some in each.given.standby.items() for p in some)]
        for (name, number), (topic, partition) in tasks:
            fits = number == partition < found.tasks.get(name, 0) and topology.readers.get(topic) == name
            if not fits:
                yield f"{member_id}, whose task {name}_{number} reads {topic}-{partition}"
        for name, number in each.given.standby:
            if name in found.tasks and not topology.is_stateful(name):
                yield f"{member_id}, who has a copy of {name}_{number}"


# --- MG2, MG3: members of the classic protocol -------------------------------------------------------


class ClassicStreamsMembersRejoinOnChanges(ServedClassicMembers):
    """MG2: the generation of a classic member is its epoch, no member leads, and it has to rejoin exactly
    when it has something to learn: a newer target, something to revoke, tasks that it waited for, a shutdown,
    other members' endpoints; or something to report, while it warms up a task."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        if event.is_request("Heartbeat", "JoinGroup", "SyncGroup"):
            group = event.before.groups.get(event.request.group_id)
            if isinstance(group, StreamsGroup) and group.members:
                super().after(event)

    def rejoin_causes(self, event: Event, group: StreamsGroup, member: Member) -> list[str]:
        return list(_news(event, group, member))

    def check_join(self, event: Event) -> None:
        answer: Any = event.answer
        if event.error is not Errors.NONE:
            assert not event.changed, f"{event.request.member_id} is refused, yet something changed"
            return
        assert ways(event) != "disabled", f"{answer.member_id} is let in, and the policy is disabled"
        group = event.after.groups[event.request.group_id]
        if isinstance(group, StreamsGroup):
            member = group.members.get(answer.member_id)
            assert member is not None, f"{answer.member_id} joined and is no member"
            assert answer.generation_id == member.current.epoch, (
                f"{answer.member_id} is told {answer.generation_id}, it is at {member.current.epoch}"
            )
        assert (answer.leader, answer.members) == ("", ()), f"{answer.member_id} hears of {answer.leader}"
        assert answer.protocol_name == STREAM, f"{answer.member_id} is told {answer.protocol_name}"


def _news(event: Event, group: StreamsGroup, member: Member) -> Iterator[str]:
    """What a member of the classic protocol joins again for."""
    current, alone = member.current, all(m.classic is not None for m in group.members.values())
    known = group.reported.get(member.member_id)
    if group.soft.shutdown is not None:
        yield "a shutdown"
    if current.state is OWES:
        yield "something to give up"
    if current.epoch < (group.epoch if alone else group.assignment_epoch):
        yield "a newer target"
    if alone and group.soft.seen is not event.context.topics:
        yield "other topics"
    config = event.context.group_configs.of(group.group_id)
    if alone and assignment_configs(config, group.topology) != group.assignment_configs:
        yield "other settings"
    if current.state is MemberState.UNRELEASED_TASKS and any(_free(group, member)):
        yield "what it waits for"
    if is_asked(group, member):
        interval_ms = config["streams.task.offset.interval.ms"]
        since_ms = None if known is None else event.context.now_ms - known.reported_ms
        if since_ms is None or not 0 <= since_ms < interval_ms:
            yield "how far it is"
    if member.user_endpoint is not None:
        knows = None if known is None else known.sent_endpoint_epoch
        if knows != group.soft.endpoint_epoch:
            yield "where others have their state"


def _free(group: StreamsGroup, member: Member) -> Iterator[Task]:
    """What the member waits for, and nobody is in the way any more."""
    target, current = group.target_of(member.member_id), member.current
    has = {role: _flat(getattr(current.assigned, role)) for role in ("active", "standby", "warmup")}
    others = [m for m in group.members.values() if m is not member]
    run = {
        t for m in others for c in (m.current.assigned, m.current.pending_revocation) for t in _flat(c.active)
    }
    here = {
        task
        for m in others
        if m.process_id == member.process_id
        for held in (m.current.assigned, m.current.pending_revocation)
        for some in (held.active, held.standby, held.warmup)
        for task in _flat(some)
    }
    yield from (task for task in _flat(target.active) - has["active"] if task not in run | here)
    for role in ("standby", "warmup"):
        yield from (task for task in _flat(getattr(target, role)) - has[role] if task not in here)


def is_asked(group: StreamsGroup, member: Member) -> bool:
    """Whether it is to be heard of how far a member of the classic protocol is."""
    known = group.reported.get(member.member_id)
    warms = member.classic is not None and bool(_flat(member.current.assigned.warmup))
    return warms and (known is None or known.reports)


class SyncGroupReturnsOwnedTasks(Invariant):
    """MG2, MG3: the answer to a SyncGroup is what the member has: the partitions of its active tasks, each
    with its task; its standbys and warm-ups as standbys; where all others are; in the version that it uses.

    MG3: of the members that warm something up and say how far they are exactly one is told when to join of
    its own accord, and nobody else is."""

    def after(self, event: Event) -> None:
        if not event.is_request("SyncGroup") or event.error is not Errors.NONE:
            return
        group = event.after.groups.get(event.request.group_id)
        if not isinstance(group, StreamsGroup):
            return
        answer: Any = event.answer
        assert isinstance(answer, SyncGroupResponse)
        member = group.members[event.request.member_id]
        assert member.classic is not None
        said = read_subscription(dict(member.classic.protocols)[STREAM])
        info = read_subscription_info(said.user_data or b"")
        version = info.version
        found = info_of(read_assignment(answer.assignment))
        assert found is not None, f"{member.member_id} is told nothing of tasks"
        assert found.version == version, f"{member.member_id} speaks {version}, and is told {found.version}"
        self._tasks(event, group, member, found)
        if info.user_endpoint and member.user_endpoint is None:
            assert not found.partitions_by_host, f"{member.member_id} is told of others and not of itself"
        else:
            self._hosts(event, group, found)
        config = event.runtime.group_configs.of(group.group_id)
        asked = sorted(m.member_id for m in group.members.values() if is_asked(group, m))
        at_ms = event.context.now_ms + config["streams.task.offset.interval.ms"]
        expected = at_ms if asked[:1] == [member.member_id] and version >= 7 else 2**63 - 1
        assert found.next_rebalance_ms == expected, (
            f"{member.member_id} is told to join at {found.next_rebalance_ms}, not {expected}: {asked}"
        )

    def _tasks(self, event: Event, group: StreamsGroup, member: Member, found: AssignmentInfo) -> None:
        held = member.current.assigned
        active = {(p, t) for t in _flat(held.active) for p in reads(event, group, t)}
        told = {(partition, task) for task, partition in found.active}
        assert told == active, f"{member.member_id} is told {sorted(told)}, it has {sorted(active)}"
        copies = {task: set(reads(event, group, task)) for task in _flat(held.standby) | _flat(held.warmup)}
        told_copies = {task: set(some) for task, some in found.standby.items()}
        expected = {task: some for task, some in copies.items() if some}
        assert told_copies == expected, f"{member.member_id} is told {told_copies}, it has {expected}"
        missing = group.topology is not None and any(
            topic not in event.runtime.topics.by_name for topic in group.topology.source_topics
        )
        if group.soft.shutdown is None and group.soft.seen is not event.context.topics:
            return  # It is told what was so when somebody was heard last.
        error = 4 if group.soft.shutdown is not None else 1 if missing else 0
        error = error if found.version >= 4 else 0
        assert found.error_code == error, f"{member.member_id} is told error {found.error_code}, not {error}"

    def _hosts(self, event: Event, group: StreamsGroup, found: AssignmentInfo) -> None:
        active: dict[tuple[str, int], set[TopicPartition]] = {}
        copies: dict[tuple[str, int], set[TopicPartition]] = {}
        ready = group.soft.configured is not None and group.soft.configured.tasks
        for member in group.members.values() if ready else ():
            if member.user_endpoint is not None:
                held = member.current.assigned
                host = member.user_endpoint
                active.setdefault(host, set()).update(
                    p for t in _flat(held.active) for p in reads(event, group, t)
                )
                both = _flat(held.standby) | _flat(held.warmup)
                copies.setdefault(host, set()).update(p for t in both for p in reads(event, group, t))
        told = {host: set(some) for host, some in found.partitions_by_host.items()}
        assert told == (active if found.version >= 2 else {}), f"told is {told}, it is {active}"
        told = {host: set(some) for host, some in found.standby_partitions_by_host.items()}
        assert told == (copies if found.version >= 6 else {}), f"of copies told is {told}, it is {copies}"


def reads(event: Event, group: StreamsGroup, task: Task) -> list[TopicPartition]:
    """The partitions that a task reads, of all topics that there are."""
    topology, topics = group.topology, event.runtime.topics.by_name
    assert topology is not None
    if task[0] not in topology.subtopologies:
        return []
    names = set(sources(topology.subtopologies[task[0]]))
    return [(n, task[1]) for n in sorted(names) if n in topics and task[1] < topics[n].partitions]


# --- MG4, MG5: streams to classic --------------------------------------------------------------------


class StreamsDowngradesKeepTasks(Invariant):
    """MG4: when the last member of the streams protocol is gone, the group is a classic one again, with
    whoever is left and at the group's epoch; everybody has what they have. Every offset is as it was.

    MG5: it is no larger than a classic group may be. M1: nobody is given what another one has."""

    def after(self, event: Event) -> None:
        if event.is_complete or not event.changed:
            return
        for name, old, group in converted(event, StreamsGroup, ClassicGroup):
            if old.members:
                self._downgraded(event, name, old, group)
        for group in event.after.groups.values():
            if isinstance(group, StreamsGroup) and event.kind != "completion":
                self._stays(event, group)

    def _downgraded(self, event: Event, name: str, old: StreamsGroup, group: ClassicGroup) -> None:
        for record in event.batch.records if event.batch is not None else ():
            assert type(record) is not OffsetCommitted, f"{name} is downgraded, and an offset is gone"
        config = event.context.config if event.context is not None else event.runtime.config
        most = config["group.max.size"]
        assert ways(event) in DOWNGRADES, f"{name} is downgraded, the policy is {ways(event)}"
        assert len(group.members) <= most, f"{old!r} is downgraded, {most} may be in a classic group"
        assert group.members, f"{old!r} is downgraded, and nobody is left"
        assert old.soft.shutdown is None, f"{old!r} is downgraded, and is to be shut down"
        assert group.generation == old.epoch, f"{old!r} is downgraded to {group!r}"
        new = [m for m in old.members.values() if m.classic is None and m.member_id in group.members]
        assert not new, f"{old!r} is downgraded with {new}, who speak the new protocol"
        lost = [m for i, m in old.members.items() if m.classic is not None and i not in group.members]
        by_itself = event.kind == "timer" or event.is_request("LeaveGroup", "ConsumerGroupHeartbeat")
        assert not lost or by_itself, f"{old!r} is downgraded without {lost}"
        taken: dict[TopicPartition, str] = {}
        for member in group.members.values():
            said = spoke(member)
            assert said is not None, f"{member.member_id} cannot be read in {group!r}"
            for task, partition in said.given.active:
                other = taken.setdefault(partition, member.member_id)
                assert other == member.member_id, f"{name}: {other}, {member.member_id} run {task}"
            before = old.members.get(member.member_id)
            if before is not None and event.api != "JoinGroup":
                held = before.current.assigned.active, before.current.pending_revocation.active
                runs = {p for some in held for t in _flat(some) for p in reads(event, old, t)}
                has = {partition for _, partition in said.given.active}
                assert has == runs, f"{member.member_id} ran {sorted(runs)}, and has {sorted(has)}"

    def _stays(self, event: Event, group: StreamsGroup) -> None:
        """All who are left speak the classic protocol: where the last other one went just now, why not?"""
        old = event.before.groups.get(group.group_id)
        if not isinstance(old, StreamsGroup) or not group.members:
            return
        if event.is_request("JoinGroup") and event.request.group_instance_id is None:
            return  # Somebody else had spoken for it with the streams protocol: it stays who it is.
        had = any(m.classic is None for m in old.members.values())
        if had and all(m.classic is not None for m in group.members.values()):
            config = event.context.config if event.context is not None else event.runtime.config
            fits = len(group.members) <= config["group.max.size"] and group.soft.shutdown is None
            assert not (ways(event) in DOWNGRADES and fits), (
                f"{group!r}: only classic members are left, and it is no classic group"
            )
