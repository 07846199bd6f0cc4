"""Whether a group can change its protocol while it runs, what stands in the way, and what would move.

    a classic group   to consumer or streams: what the coordinator would refuse it for (`blockers` of either
                      `convert`), and if all members came back with the new protocol (`rehearsal_roll`), who
                      would have what
    another group     to classic: whether it could go back as soon as the last member of the new protocol is
                      gone

Settings that stand in the way (a policy, a size) are told, and the rehearsal goes on as if they did not; what
is wrong with the members ends it. What is no obstacle and yet worth knowing before is told as notes.

The topology of an application of Kafka Streams is nowhere in a classic group: with none given, what can be
told without one is. Internal topics that the reader of a log does not see are taken as there, if it says so.

It decides nothing: the group that it is given stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from konvene.codec.uuid import Uuid
from konvene.groups.classic.group import ClassicGroup, Member
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, read_assignment, read_subscription
from konvene.groups.consumer import conversion as to_consumer
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import TYPES
from konvene.groups.migration.roll import (
    Overlaid,
    Refused,
    Rolled,
    partitions_of,
    rolled_to_consumer,
    rolled_to_streams,
    tasks_of,
)
from konvene.groups.modern.conversion import BOTH_WAYS, DOWNGRADE, Blocker
from konvene.groups.streams.classic import conversion as to_streams
from konvene.groups.streams.classic.client_versions import EAGER, FIRST_MIGRATING_VERSION, release_of
from konvene.groups.streams.classic.tasks import JoinMetadata, read_metadata
from konvene.groups.streams.classic.user_data import (
    NO_REBALANCE_MS,
    AssignmentInfo,
    Task,
    UserDataError,
    read_assignment_info,
)
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, configure
from konvene.groups.streams.topology.topology import Topology
from konvene.messages import streams_group_heartbeat as wire
from konvene.shard.contract import Context
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

CLASSIC_TYPE, CONSUMER_TYPE, STREAMS_TYPE = "classic", "consumer", "streams"

SETTINGS = frozenset({"policy", "size"})
"""Blockers that a setting takes away: the rehearsal goes on as if it had."""

KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class Note(NamedTuple):
    """Nothing that stands in the way, and worth knowing before."""

    code: str
    sentence: str
    member_ids: tuple[str, ...] = ()


class Stance(NamedTuple):
    """A member as it is, and what it would have. Sets of partitions or tasks, by name."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    speaks: str
    """The protocol that it speaks now."""
    has: frozenset[str] = frozenset()
    standby: frozenset[str] = frozenset()
    """Standby and warm-up tasks, which the classic protocol does not tell apart."""
    version: int | None = None
    """Of Kafka Streams' user data."""
    process_id: str | None = None
    target: frozenset[str] | None = None
    """None where nothing was rehearsed."""
    target_standby: frozenset[str] = frozenset()
    target_warmup: frozenset[str] = frozenset()


class Moves(NamedTuple):
    """What a change of the protocol would move, if nobody but it changed anything."""

    stay: int
    """Partitions or active tasks that stay with their member."""
    move: int
    """That go to another one."""
    fresh: int
    """That nobody has had."""
    lost: int
    """That nobody would have."""
    copies_stay: int
    """Standby tasks that stay where they are, or become warm-ups or active there."""
    copies_gone: int
    copies_made: int
    settled: bool
    heartbeats: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What came of it for a group."""

    group_id: str
    type: str
    to: str
    epoch: int
    """Or generation."""
    protocol: str | None
    """The assignor that the members of a classic group agreed on."""
    members: tuple[Stance, ...]
    blockers: tuple[Blocker, ...]
    notes: tuple[Note, ...]
    moves: Moves | None = None

    @property
    def can(self) -> bool:
        """Whether nothing is known to stand in the way."""
        return not self.blockers


class Known(NamedTuple):
    """What is known beside the group."""

    topology: wire.Topology | None = None
    unseen_topics: bool = True
    """Whether internal topics may be there though the context does not have them: so for a log."""


NOTHING_KNOWN = Known()


def natural_target(group: Any) -> str:
    """What a group would become if nobody said."""
    if not isinstance(group, ClassicGroup):
        return CLASSIC_TYPE
    return STREAMS_TYPE if group.protocol == STREAM else CONSUMER_TYPE


def rehearse(group: Any, to: str, context: Context, known: Known = NOTHING_KNOWN) -> Rehearsal:
    """`to`: consumer or streams for a classic group, classic for another one."""
    if not isinstance(group, ClassicGroup):
        return _back(group, context)
    if not group.members:
        note = Note("empty", "Nobody is in the group: it becomes what the first member brings.")
        return _told(group, to, (), (), (note,))
    return _to_consumer(group, context) if to == CONSUMER_TYPE else _to_streams(group, context, known)


def _told(
    group: ClassicGroup, to: str, members: Iterable[Stance], blockers: Iterable[Blocker],
    notes: Iterable[Note], moves: Moves | None = None,
) -> Rehearsal:  # fmt: skip
    return Rehearsal(
        group.group_id, CLASSIC_TYPE, to, group.generation, group.protocol, tuple(members), tuple(blockers),
        tuple(notes), moves,
    )  # fmt: skip


def _stance(member: Member, **more: Any) -> Stance:
    return Stance(
        member.member_id, member.instance_id, member.client_id, member.client_host, CLASSIC_TYPE, **more
    )


# --- classic to consumer ---------------------------------------------------------------------------


def _to_consumer(group: ClassicGroup, context: Context) -> Rehearsal:
    blockers = to_consumer.blockers(group, context.config)
    has = {name: _partitions(member) for name, member in group.members.items()}
    members = {name: _stance(m, has=_named(has[name])) for name, m in group.members.items()}
    notes = _consumer_notes(group, has, context.topics) if group.protocol_type == CONSUMER else []
    if {each.code for each in blockers} - SETTINGS:
        return _told(group, CONSUMER_TYPE, members.values(), blockers, notes)
    open_ways = {to_consumer.POLICY: BOTH_WAYS, "group.consumer.max.size": len(group.members)}
    try:
        rolled = rolled_to_consumer(group, context._replace(config=Overlaid(context.config, open_ways)))
    except Refused as refused:
        blockers.append(Blocker("refused", str(refused)))
        return _told(group, CONSUMER_TYPE, members.values(), blockers, notes)
    names = {topic_id: topic.name for topic_id, topic in context.topics.by_id.items()}
    for name, target in partitions_of(rolled).items():
        members[name] = members[name]._replace(target=_named((names[t], p) for t, p in target))
    moves = _moves(members.values(), rolled)
    return _told(group, CONSUMER_TYPE, members.values(), blockers, notes, moves)


def _partitions(member: Member) -> list[tuple[str, int]]:
    given = read_assignment(member.assignment)
    return [(topic, p) for topic, some in given.partitions for p in some] if given is not None else []


def _named(units: Iterable[tuple[str, int]]) -> frozenset[str]:
    return frozenset(f"{topic}-{partition}" for topic, partition in units)


def _consumer_notes(
    group: ClassicGroup, has: Mapping[str, list[tuple[str, int]]], topics: Topics
) -> list[Note]:
    notes = []
    if group.protocol not in KNOWN_ASSIGNORS:
        sentence = f"The members' own assignor {group.protocol} is asked no more: the coordinator assigns."
        notes.append(Note("own-assignor", sentence))
    seen: dict[tuple[str, int], str] = {}
    twice = sorted(
        {unit for name, units in has.items() for unit in units if seen.setdefault(unit, name) != name}
    )
    if twice:
        sentence = f"The leader gave {_few(twice)} to two members: the first of them keeps it."
        notes.append(Note("given-twice", sentence))
    gone = sorted(unit for unit in seen if not topics.has(*unit))
    if gone:
        notes.append(Note("unknown-partitions", f"{_few(gone)} cannot be seen, and would not be taken over."))
    unread = sorted(
        {topic for topic, _ in seen} - {t for m in group.members.values() for t in _topics(group, m)}
    )
    if unread:
        sentence = f"Partitions of {', '.join(unread)} are assigned, and no member subscribes to it by name."
        notes.append(Note("not-subscribed", sentence))
    return notes


def _topics(group: ClassicGroup, member: Member) -> frozenset[str]:
    said = read_subscription(member.metadata(group.protocol))
    return said.topics if said is not None else frozenset()


def _few(units: list[tuple[str, int]]) -> str:
    named = ", ".join(f"{topic}-{partition}" for topic, partition in units[:3])
    return f"{named} and {len(units) - 3} more" if len(units) > 3 else named


# --- classic to streams ----------------------------------------------------------------------------


def _to_streams(group: ClassicGroup, context: Context, known: Known) -> Rehearsal:
    blockers = to_streams.blockers(group, context.config)
    told = {name: _read(member) for name, member in group.members.items()}
    members = {name: _streams_stance(m, told[name]) for name, m in group.members.items()}
    notes = _streams_notes(group, told, context)
    done = {each.code for each in blockers} - SETTINGS
    if done or known.topology is None:
        if not done:
            sentence = "No topology was given: tasks and topics are not compared, and nothing is rehearsed."
            notes.append(Note("no-topology", sentence))
        return _told(group, STREAMS_TYPE, members.values(), blockers, notes)
    config = Overlaid(
        context.config,
        {
            "konvene.streams.mode": KIP,
            "konvene.streams.migration.policy": BOTH_WAYS,
            "group.streams.max.size": len(group.members),
        },
    )
    try:
        topology = Topology.from_request(known.topology)
        topics, assumed = _seen(topology, context.topics, known)
        notes += assumed
        configured = _configured(topology, topics)
    except GroupError as refused:
        blockers.append(Blocker("not-ready", refused.message or str(refused)))
        return _told(group, STREAMS_TYPE, members.values(), blockers, notes)
    found = to_streams.topology_blockers(group, topology, configured, topics)
    if found:
        return _told(group, STREAMS_TYPE, members.values(), [*blockers, *found], notes)
    on_disk = {
        name: {task for task, _ in pair[1].active} | set(pair[1].standby)
        for name, pair in told.items() if pair is not None
    }  # fmt: skip
    try:
        asked = context._replace(config=config, topics=topics)
        rolled = rolled_to_streams(group, known.topology, on_disk, asked)
    except Refused as refused:
        blockers.append(Blocker("refused", str(refused)))
        return _told(group, STREAMS_TYPE, members.values(), blockers, notes)
    roles = {role: tasks_of(rolled, role) for role in ("active", "standby", "warmup")}
    for name in members:
        members[name] = members[name]._replace(
            target=_tasks(roles["active"][name]),
            target_standby=_tasks(roles["standby"][name]),
            target_warmup=_tasks(roles["warmup"][name]),
        )
    return _told(group, STREAMS_TYPE, members.values(), blockers, notes, _moves(members.values(), rolled))


def _seen(topology: Topology, topics: Topics, known: Known) -> tuple[Topics, list[Note]]:
    """The topics, with the internal ones of the topology that the reader may just not see."""
    missing = _configured(topology, topics).missing if known.unseen_topics else {}
    if not missing:
        return topics, []
    made = [
        Topic(each.name, Uuid(b"rehearsal" + number.to_bytes(7, "big")), each.partitions)
        for number, each in enumerate(missing.values())
    ]
    names = sorted(missing)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    sentence = f"Internal topics that are not in sight are taken as there: {', '.join(names[:3])}{more}."
    return Topics([*topics.by_name.values(), *made], topics.version), [Note("internal-topics", sentence)]


def _configured(topology: Topology, topics: Topics) -> ConfiguredTopology:
    by_name = topics.by_name
    counts = {name: by_name[name].partitions for name in topology.required_topics if name in by_name}
    return configure(topology, counts, KIP)


def _read(member: Member) -> tuple[JoinMetadata, AssignmentInfo] | None:
    """What it said, and what it was given; None where either cannot be read."""
    try:
        said = read_metadata(member.metadata(STREAM))
        given = read_assignment(member.assignment)
        if given is None or not given.user_data:
            return said, AssignmentInfo(said.info.version, said.info.version)
        partitions = tuple((topic, p) for topic, some in given.partitions for p in some)
        return said, read_assignment_info(given.user_data, partitions)
    except UserDataError:
        return None


def _streams_stance(member: Member, told: tuple[JoinMetadata, AssignmentInfo] | None) -> Stance:
    if told is None:
        return _stance(member)
    said, given = told
    return _stance(
        member,
        has=_tasks(task for task, _ in given.active),
        standby=_tasks(given.standby),
        version=said.info.version,
        process_id=said.info.process_id,
    )


def _tasks(tasks: Iterable[Task]) -> frozenset[str]:
    return frozenset(f"{name}_{partition}" for name, partition in tasks)


def _streams_notes(
    group: ClassicGroup, told: Mapping[str, tuple[JoinMetadata, AssignmentInfo] | None], context: Context
) -> list[Note]:
    read_of = {name: pair for name, pair in told.items() if pair is not None}
    notes = []
    old = {name: said.info.version for name, (said, _) in read_of.items()}
    for version in sorted(set(old.values())):
        who = tuple(name for name, each in old.items() if each == version)
        row = release_of(version)
        if version < FIRST_MIGRATING_VERSION and row is not None:
            stops = ": all tasks stop in each rebalance" if row.rebalances == EAGER else ""
            sentence = (
                f"{_members(who)} with user data version {version} (Kafka Streams {row.releases}){stops}."
            )
            notes.append(Note("old-client", sentence, who))
    copies = _copies(read_of.values())
    wanted = context.group_configs.of(group.group_id)["streams.num.standby.replicas"]
    if copies > wanted:
        sentence = (
            f"Tasks have up to {copies} standbys, and the group's streams.num.standby.replicas is {wanted}: "
            "the others would be given up."
        )
        notes.append(Note("standbys", sentence))
    waits = tuple(n for n, (_, given) in read_of.items() if given.next_rebalance_ms != NO_REBALANCE_MS)
    if waits:
        notes.append(
            Note("warming-up", "The group is still warming tasks up: some standbys are warm-ups.", waits)
        )
    failed = tuple(name for name, (said, _) in read_of.items() if said.info.error_code)
    if failed:
        notes.append(Note("shutdown", f"{_members(failed)} asked for a shutdown of the application.", failed))
    return notes


def _members(who: tuple[str, ...]) -> str:
    return f"{len(who)} members" if len(who) > 1 else "1 member"


def _copies(told: Iterable[tuple[JoinMetadata, AssignmentInfo]]) -> int:
    """The most standbys that a task has. Warm-ups are among them, as nobody tells them apart."""
    counts: dict[Task, int] = {}
    for _, given in told:
        if given.next_rebalance_ms != NO_REBALANCE_MS:
            continue  # Who has warm-ups, and nothing tells which.
        for task in given.standby:
            counts[task] = counts.get(task, 0) + 1
    return max(counts.values(), default=0)


# --- what moves ------------------------------------------------------------------------------------


def _moves(members: Iterable[Stance], rolled: Rolled) -> Moves:
    told = [each._replace(target=each.target or frozenset()) for each in members]
    before = frozenset[str]().union(*(each.has for each in told))
    after = frozenset[str]().union(*(each.target or frozenset() for each in told))
    stays = sum(len(each.has & (each.target or frozenset())) for each in told)
    copies_stay = copies_gone = copies_made = 0
    for each in told:
        copies = each.target_standby | each.target_warmup
        there = copies | (each.target or frozenset())
        copies_stay += len(each.standby & there)
        copies_gone += len(each.standby - there)
        copies_made += len(copies - each.standby - each.has)
    return Moves(
        stays, len(after & before) - stays, len(after - before), len(before - after), copies_stay,
        copies_gone, copies_made, rolled.settled, rolled.heartbeats,
    )  # fmt: skip


# --- back to classic -------------------------------------------------------------------------------


def _back(group: Any, context: Context) -> Rehearsal:
    """What would stand in the way as the last member of the new protocol leaves."""
    members = [
        Stance(
            member.member_id, member.instance_id, member.client_id, member.client_host,
            TYPES[type(group)].name if member.classic is None else CLASSIC_TYPE,
        )
        for member in group.members.values()
    ]  # fmt: skip
    left = sum(each.speaks == CLASSIC_TYPE for each in members)
    blockers, notes = [], []
    if _policy(group, context) not in (BOTH_WAYS, DOWNGRADE):
        blockers.append(Blocker("policy", "online downgrade is disabled."))
    most = context.config["group.max.size"]
    if left > most:
        blockers.append(Blocker("size", f"{left} members speak the classic protocol, and {most} may."))
    others = tuple(each.member_id for each in members if each.speaks != CLASSIC_TYPE)
    if not left and members:
        sentence = "No member speaks the classic protocol: without members the group is of no kind."
        notes.append(Note("nobody-classic", sentence))
    elif others:
        sentence = f"{_members(others)} still to be rolled: with the last of them the group goes back."
        notes.append(Note("still-new", sentence, others))
    epoch = group.epoch
    return Rehearsal(
        group.group_id, TYPES[type(group)].name, CLASSIC_TYPE, epoch, None, tuple(members), tuple(blockers),
        tuple(notes),
    )  # fmt: skip


def _policy(group: ConsumerGroup | StreamsGroup, context: Context) -> str:
    if isinstance(group, StreamsGroup):
        return to_streams.policy(context.config)
    return str(context.config[to_consumer.POLICY]).lower()
