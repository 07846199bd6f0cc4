"""A group moves between the classic and the streams protocol while it runs, both ways (KIP-1071).

    classic → streams   a member of the new protocol joins. The members are taken over as they are, at the
                        generation, with the tasks that the leader gave them; from here on the coordinator
                        assigns. Those who wait for a join or a sync are told REBALANCE_IN_PROGRESS, and come
                        back. The topology is the joining member's.
    streams → classic   the last member of the new protocol leaves, or is replaced by itself with the classic
                        one. The generation is the group's epoch; a rebalance follows where somebody left.

Both are one batch: tombstones of what the group was, records of what it is. Committed offsets stay.

Apache Kafka 4.4 changes a group only while nobody is in it. So this is done where `konvene.streams.mode` is
`kip` alone, and as far as `konvene.streams.migration.policy` lets it.

The classic protocol knows tasks, but not what they read: so the topology that a member brings must be that of
the tasks that the others run. Whatever can be compared is (`blockers`, `topology_blockers`); where something
does not fit, the group stays what it is, and who wanted to join hears why.

What a member owned as it joined last and was not given by its leader it may be running still: until it has
joined again without it, it has yet to give it up. Where its leader has not spoken since, it keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import MemberAssignment, Tasks
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.subscriptions import CONSUMER, STREAM, read_assignment
from konvene.groups.modern import conversion
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import BOTH_WAYS, DISABLED, UPGRADE, Blocker
from konvene.groups.streams import log
from konvene.groups.streams.classic.tasks import (
    Said,
    can_be_told,
    owned_tasks,
    read,
    read_topics,
    reported,
    told,
)
from konvene.groups.streams.classic.user_data import (
    AssignmentInfo,
    Task,
    UserDataError,
    read_assignment_info,
)
from konvene.groups.streams.current_assignment import NONE_HELD, CurrentAssignment, Held, MemberState
from konvene.groups.streams.decision import Decision, delay_key, refresh_key
from konvene.groups.streams.group import FIRST_EPOCH, Member, StreamsGroup
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, configure
from konvene.groups.streams.topology.expressions import expressions
from konvene.groups.streams.topology.topology import Topology
from konvene.groups.streams.validate import topology_after
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.records.streams import StreamsGroupMetadataKey
from konvene.shard.contract import Context, Disarm, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

MOST_NAMED = 3

FIRST_VERSION_TOLD_BY_JOINS = 9
"""Of user data: Kafka Streams 2.8, whose consumer is the first to take REBALANCE_IN_PROGRESS from a join."""


def policy(config: Mapping[str, Any]) -> str:
    """Which ways are open."""
    if config["konvene.streams.mode"] != KIP:
        return DISABLED
    return str(config["konvene.streams.migration.policy"]).lower()


# --- what stands in the way ------------------------------------------------------------------------


class Taken:
    """What members said as they joined last, and what they were given then: each is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Said, AssignmentInfo]] = {}

    def __repr__(self) -> str:
        return f"<{len(self._known)} members were read>"

    def of(self, member: ClassicMember) -> tuple[Said, AssignmentInfo]:
        """Raises `UserDataError`."""
        known = self._known.get(member.member_id)
        if known is None:
            known = self._known[member.member_id] = _taken(member)
        return known


def blockers(classic: ClassicGroup, config: Mapping[str, Any], taken: Taken | None = None) -> list[Blocker]:
    """Why the group cannot become a streams group, as far as that can be told without a topology."""
    found: list[Blocker] = []
    taken = Taken() if taken is None else taken
    if policy(config) not in (BOTH_WAYS, UPGRADE):
        found.append(Blocker("policy", "online upgrade is disabled."))
    if classic.protocol_type != CONSUMER:
        return [*found, Blocker("protocol-type", "the group does not use the consumer embedded protocol.")]
    if len(classic.members) > config["group.streams.max.size"]:
        found.append(Blocker("size", "the group size exceeds the streams group maximum size."))
    others = [m.member_id for m in classic.members.values() if STREAM not in dict(m.protocols)]
    if others:
        why = f"not all of its members use Kafka Streams' assignor {STREAM}."
        return [*found, Blocker("assignor", why, tuple(others))]
    for member in classic.members.values():
        try:
            said, _ = taken.of(member)
        except UserDataError as unread:
            found.append(
                Blocker("user-data", f"a member's user data cannot be read: {unread}.", (member.member_id,))
            )
            continue
        if said.info.named_topologies:
            names = ", ".join(sorted(said.info.named_topologies))
            why = f"a member runs named topologies ({names}), which the streams protocol does not have."
            found.append(Blocker("named-topologies", why, (member.member_id,)))
    return found


def topology_blockers(
    classic: ClassicGroup,
    topology: Topology,
    configured: ConfiguredTopology,
    topics: Topics,
    taken: Taken | None = None,
) -> list[Blocker]:
    """Why the members of a classic group cannot be those of this topology. Of groups without `blockers`."""
    taken = Taken() if taken is None else taken
    if expressions(topology):
        return [
            Blocker(
                "expressions", "the topology has source topic expressions, which no classic member knows."
            )
        ]
    if not can_be_told(topology):
        why = "subtopologies are numbers in the classic protocol, and those of the topology are not."
        return [Blocker("subtopologies", why)]
    if not configured.is_ready:
        why = configured.failure.detail if configured.failure is not None else "its topics are not known"
        return [Blocker("not-ready", f"the topology cannot run: {why}")]
    found = []
    for member in classic.members.values():
        said, given = taken.of(member)
        wrong = sorted(set(_unlike(given, topology, configured)))
        if wrong:
            more = f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
            why = f"a member's tasks are not those of the topology: {'; '.join(wrong[:MOST_NAMED])}{more}."
            found.append(Blocker("tasks", why, (member.member_id,)))
        reads = read_topics(topology)
        if said.subscription.topics != reads:
            why = (
                f"a member subscribes to {_named(said.subscription.topics)}, "
                f"and the topology reads {_named(reads)}."
            )
            found.append(Blocker("topics", why, (member.member_id,)))
    return found


def _named(topics: Iterable[str]) -> str:
    return f"[{', '.join(sorted(topics))}]"


def _taken(member: ClassicMember) -> tuple[Said, AssignmentInfo]:
    """What a member said as it joined last, and what it was given then. Raises `UserDataError`."""
    said = read(member.metadata(STREAM))
    given = read_assignment(member.assignment)
    if given is None:
        raise UserDataError("the assignment is malformed")
    partitions = tuple((topic, p) for topic, some in given.partitions for p in some)
    if not given.user_data:
        if partitions:
            raise UserDataError("the assignment has partitions and no tasks")
        return said, AssignmentInfo(said.info.version, said.info.version)
    return said, read_assignment_info(given.user_data, partitions, tasks_alone=True)


def _unlike(given: AssignmentInfo, topology: Topology, configured: ConfiguredTopology) -> Iterator[str]:
    """What a member was given that this topology does not have like that."""
    tasks = [(task, partition) for task, partition in given.active]
    tasks += [(task, partition) for task, some in given.standby.items() for partition in some]
    for (name, number), (topic, partition) in tasks:
        if number >= configured.tasks.get(name, 0):
            yield f"there is no task {name}_{number}"
        elif topology.readers.get(topic) != name or partition != number:
            yield f"task {name}_{number} does not read {topic}-{partition}"
    for name, number in given.standby:
        if name in topology.subtopologies and not topology.is_stateful(name):
            yield f"task {name}_{number} has no state"


# --- classic to streams ----------------------------------------------------------------------------


def upgraded(classic: ClassicGroup, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision:
    """The group as a streams group, before the member joins. Raises GROUP_ID_NOT_FOUND where it must stay
    what it is."""
    taken = Taken()
    _check(blockers(classic, context.config, taken), classic)
    topology = topology_after(None, request.topology, KIP)  # type: ignore[arg-type]  # Checked: it is there.
    by_name = context.topics.by_name
    counts = {name: by_name[name].partitions for name in topology.required_topics if name in by_name}
    configured = configure(topology, counts, KIP)
    _check(topology_blockers(classic, topology, configured, context.topics, taken), classic)
    members = _members(classic, topology, configured, taken)
    records = [classic_log.tombstone(classic.group_id), *_records(classic, [m for m, _ in members])]
    private: dict[str, Any] = {}
    for record in records[1:]:
        log.replay(private, record)
    step = Decision(private[classic.group_id], context)
    old = {m.member_id for m, said in members if said.info.version < FIRST_VERSION_TOLD_BY_JOINS}
    conversion.take_over(step, classic, old)
    step.records = records
    for member, said in members:
        step.report(member.member_id, reported(said, None, NONE_HELD, context.now_ms))
    return step


def _check(found: Sequence[Blocker], classic: ClassicGroup) -> None:
    if found:
        head = f"Cannot upgrade classic group {classic.group_id} to streams group because"
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"{head} {found[0].reason}")


def _epoch(classic: ClassicGroup) -> int:
    """The generation. One that is still being made is none, and 0 is no epoch that a member could be at."""
    return max(classic.generation, FIRST_EPOCH)


def _records(classic: ClassicGroup, members: Sequence[Member]) -> list[Any]:
    """What the group is as a streams group; what it is for the joining member follows."""
    group_id, epoch = classic.group_id, _epoch(classic)
    return [
        *(log.member_record(group_id, member) for member in members),
        log.group_record(StreamsGroup(group_id), epoch, 0, -1, {}),
        *(log.target_record(group_id, m.member_id, m.current.assigned.tasks) for m in members),
        log.assignment_record(group_id, epoch, 0),
        *(log.current_record(group_id, member.member_id, member.current) for member in members),
    ]


def _members(
    classic: ClassicGroup, topology: Topology, configured: ConfiguredTopology, read_before: Taken
) -> list[tuple[Member, Said]]:
    """The members with what they run. What a leader gave to two of them is the first one's."""
    epoch = _epoch(classic)
    told = [(member, *read_before.of(member)) for member in classic.members.values()]
    taken: set[Task] = set()
    at_process: set[tuple[str, Task]] = set()
    had, give_up = [], []
    for _, _, given in told:
        had.append({task for task, _ in given.active} - taken)
        taken |= had[-1]
    for (member, said, _), active in zip(told, had, strict=True):
        owned = owned_tasks(said.subscription.owned, topology).active
        runs = {(name, p) for name, some in owned.items() for p in some if p < configured.tasks.get(name, 0)}
        give_up.append(runs - taken)
        taken |= runs
        if not member.assignment:
            # Its leader has not spoken since it joined: nobody has asked it to give up anything.
            active |= give_up.pop()
            give_up.append(set())
        at_process |= {(said.info.process_id, task) for task in active}
    found = []
    for (member, said, given), active, gives_up in zip(told, had, give_up, strict=True):
        here = said.info.process_id
        standby = {task for task in given.standby if (here, task) not in at_process}
        at_process |= {(here, task) for task in standby}
        current = CurrentAssignment(
            MemberState.UNREVOKED_TASKS if gives_up else MemberState.STABLE,
            epoch,
            epoch,
            Held(_since(active, epoch), _tasks(standby)),
            Held(_since(gives_up, epoch)),
        )
        found.append((_member(member, said, topology.epoch, current), said))
    return found


def _tasks(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, tuple[int, ...]] = {}
    for name, partition in sorted(tasks):
        found[name] = (*found.get(name, ()), partition)
    return found


def _since(tasks: Iterable[Task], epoch: int) -> dict[str, dict[int, int]]:
    return {name: dict.fromkeys(some, epoch) for name, some in _tasks(tasks).items()}


def _member(member: ClassicMember, said: Said, topology_epoch: int, current: CurrentAssignment) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        said.subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        topology_epoch,
        said.info.process_id,
        said.info.endpoint,
        said.info.client_tags,
        ClassicProtocolMetadata(member.session_timeout_ms, member.protocols),
        current,
    )


# --- streams to classic ----------------------------------------------------------------------------


def may_downgrade(step: Decision, leaving: Collection[Member], *, replaced: bool = False) -> bool:
    """See `conversion.may_downgrade`. Not while somebody asked for the application to be shut down: a streams
    group tells its members so, and the next leader of a classic one would not know of it."""
    if step.soft.shutdown is not None:
        return False
    config = step.context.config
    most: int = config["group.max.size"]
    return conversion.may_downgrade(step.group, leaving, policy(config), most, replaced=replaced)


def downgraded(
    step: Decision, leaving: Sequence[Member], joining: Member | None = None, *, rebalance: bool = True
) -> Outcome:
    """The group as a classic one, without who leaves, or with `joining` in the place of who leaves.

    Stable at the group's epoch, everybody with what they have or have yet to give up. What they should have
    is for the next leader to say; what they run has to be known if the group comes back at once."""
    group = step.group
    replaced = (leaving[0].member_id, joining.member_id) if joining is not None else None
    # An epoch that was raised for who joins is none: what comes of it is the next generation.
    step.records = [r for r in step.records if type(r.key) is not StreamsGroupMetadataKey]
    step.records += log.group_tombstones(group, replaced)
    stay = [member for member in group.members.values() if member not in leaving]
    stay += [joining] if joining is not None else []
    classic = conversion.classic_group(group, stay, step.context.now_ms)
    for member in stay:
        assignment = told(step, member, _runs(member.current))
        classic.put(replace(classic.members[member.member_id], assignment=assignment))
    step.timers += [Disarm(delay_key(group.group_id)), Disarm(refresh_key(group.group_id))]
    return conversion.downgraded(step, classic, leaving, rebalance=rebalance)


def _runs(current: CurrentAssignment) -> MemberAssignment:
    """What a member may be running."""
    has, gives_up = current.assigned.tasks, current.pending_revocation.tasks
    active = {
        (name, p) for tasks in (has.active, gives_up.active) for name, some in tasks.items() for p in some
    }
    return replace(has, active=_tasks(active))
