"""Invariants of Kafka Streams groups that are converted between the classic and the streams protocol, online
(KIP-1071).

What members of the classic protocol send and receive is decoded here from their bytes. The rules are
implemented a second time, from the protocol and not from the code that is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from konvene.client.consumer.protocol import read_assignment, read_subscription
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.groups.streams.assignors import assignment_configs
from konvene.groups.streams.classic.user_data import AssignmentInfo, read_subscription_info
from konvene.groups.streams.current_assignment import MemberState
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.topology.configure import KAFKA, configure
from konvene.groups.streams.topology.expressions import expressions
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.messages.sync_group import SyncGroupResponse
from konvene.shard.errors import GroupError
from konvene.sim.invariants.conversions import (
    DOWNGRADE_POLICIES,
    UPGRADE_POLICIES,
    check_downgrade,
    check_offsets_kept,
    check_upgrade,
    config_of,
    converted,
    lost_last_modern_member,
)
from konvene.sim.invariants.modern import ServedClassicMembers
from konvene.sim.invariants.streams.classic_state import (
    FIRST_VERSION_THAT_REJOINS,
    FIRST_VERSION_WITH_OFFSETS,
    SHUTDOWN_REQUESTED,
    STREAM,
    ClassicState,
    read_classic_state,
    read_info,
)
from konvene.sim.invariants.streams.decisions import HEARTBEAT
from konvene.sim.invariants.streams.state import UNREVOKED, Task, flat_tasks
from konvene.sim.world.event import Event, Invariant

KINDS = ("streams", "streams-migration")

INCOMPLETE_SOURCE_TOPICS = 1
"""Error code of an assignment: a source topic does not exist."""
NEVER_MS = 2**63 - 1
TopicPartition = tuple[str, int]


def migration_policy(event: Event) -> str:
    """Return the effective migration policy."""
    config = config_of(event)
    if config["konvene.streams.mode"] == KAFKA:
        return "disabled"
    return str(config["konvene.streams.migration.policy"]).lower()


# --- MG1: classic to streams -----------------------------------------------------------------------


class StreamsUpgradesKeepTasks(Invariant):
    """MG1: a classic group becomes a streams group with all its members, at its generation, if the policy and
    the maximum size allow it. A member keeps the tasks that the leader assigned, or those that it owns if it
    has no assignment; it has to revoke the other tasks that it owns. Pending requests are answered so that
    their members rejoin. No offset changes."""

    def after(self, event: Event) -> None:
        for _, old, group in converted(event, ClassicGroup, StreamsGroup):
            if old.members:
                max_size = event.context.config["group.streams.max.size"]
                check_upgrade(event, old, group, migration_policy(event), max_size)
                check_offsets_kept(event, group)
                self._check_pending_requests(event, old)
                self._check_tasks(old, group)

    def _check_pending_requests(self, event: Event, old: ClassicGroup) -> None:
        responses = dict(event.answered)
        for member in old.members.values():
            state = read_classic_state(member)
            is_old = state is not None and state.info.version < FIRST_VERSION_THAT_REJOINS
            join_error = Errors.COORDINATOR_LOAD_IN_PROGRESS if is_old else Errors.REBALANCE_IN_PROGRESS
            for waiter, expected in (
                (member.join_waiter, join_error),
                (member.sync_waiter, Errors.REBALANCE_IN_PROGRESS),
            ):
                if waiter is not None:
                    error = getattr(responses.get(waiter), "error_code", None)
                    assert error == expected, f"{member.member_id} gets {error}, not {expected!r}"

    def _check_tasks(self, old: ClassicGroup, group: StreamsGroup) -> None:
        states: dict[str, ClassicState] = {}
        for member_id, classic_member in old.members.items():
            state = read_classic_state(classic_member)
            assert state is not None, f"{member_id} is upgraded, but cannot be decoded"
            states[member_id] = state
        active = self._expected_active_tasks(old, group, states)
        assigned = {task for tasks in active.values() for task in tasks}
        by_process = {
            (states[member_id].info.process_id, task) for member_id in states for task in active[member_id]
        }
        first_epoch = max(old.generation, FIRST_EPOCH)
        for member_id, state in states.items():
            process_id = state.info.process_id
            copies = {task for task in state.assigned.standby if (process_id, task) not in by_process}
            by_process |= {(process_id, task) for task in copies}
            member = group.members.get(member_id)
            if member is None or member.classic is None:
                continue  # A static member that returned with the streams protocol.
            current, owned = member.current, _owned_tasks(group, state)
            kept = flat_tasks(current.assigned.active), flat_tasks(current.assigned.standby)
            assert kept == (active[member_id], copies), (
                f"{member_id} had {active[member_id]}, {copies} and has {kept}"
            )
            assert not current.assigned.warmup, f"{member_id} has warm-ups after the upgrade"
            unrevoked = flat_tasks(current.pending_revocation.active)
            lost = {task for task in owned - assigned - unrevoked if _is_task(group, task)}
            assert not lost, f"{member_id} still owns {sorted(lost)}, but does not have to revoke it"
            assert unrevoked <= owned - active[member_id], (
                f"{member_id} owns {owned}, but has to revoke {unrevoked}"
            )
            assigned |= unrevoked
            assert (current.state is UNREVOKED) == bool(unrevoked), (
                f"{member_id} is {current.state} and has to revoke {unrevoked}"
            )
            assert current.epoch == first_epoch, (
                f"{member_id} was in generation {first_epoch}, but is at {current.epoch}"
            )

    def _expected_active_tasks(
        self, old: ClassicGroup, group: StreamsGroup, states: dict[str, ClassicState]
    ) -> dict[str, set[Task]]:
        """Return the active tasks of each member: those assigned by the leader; or those that a member
        without an assignment owns, unless they are assigned to or owned by an earlier member."""
        active: dict[str, set[Task]] = {}
        claimed: set[Task] = set()
        for member_id, state in states.items():
            active[member_id] = {task for task, _ in state.assigned.active} - claimed
            claimed |= active[member_id]
        for member_id, state in states.items():
            owned = {task for task in _owned_tasks(group, state) - claimed if _is_task(group, task)}
            claimed |= owned
            if not old.members[member_id].assignment:
                active[member_id] |= owned
        return active


def _owned_tasks(group: StreamsGroup, state: ClassicState) -> set[Task]:
    """Return the tasks of the partitions that a classic member reported as owned."""
    owned = state.subscription.owned
    return {
        (str(group.reader_of(p.topic)), p.partition) for p in owned if group.reader_of(p.topic) is not None
    }


def _is_task(group: StreamsGroup, task: Task) -> bool:
    configured = group.soft.configured
    return configured is not None and task[1] < configured.tasks.get(task[0], 0)


class StreamsUpgradesAreValidated(Invariant):
    """MG1: a member that joins a classic group with the streams protocol is accepted exactly if the policy
    and the maximum size allow it, all members are instances of a Kafka Streams application with the same
    topology, and no topic is missing. A rejected request changes nothing."""

    def after(self, event: Event) -> None:
        if not event.is_request(HEARTBEAT) or event.request.member_epoch != 0:
            return
        old = event.before.groups.get(event.request.group_id)
        if not isinstance(old, ClassicGroup) or not (old.members or old.pending_joins):
            return
        rejected = event.error is Errors.GROUP_ID_NOT_FOUND
        assert event.error is Errors.NONE or not event.changed, f"{old!r}: rejected, but something changed"
        if not rejected and event.error is not Errors.NONE:
            return  # The request itself is invalid.
        if old.members:
            found = list(upgrade_obstacles(event, old))
            assert rejected == bool(found), f"{old!r}: {event.error!r}, the obstacles are {found}"


def upgrade_obstacles(event: Event, old: ClassicGroup) -> Iterator[str]:
    """Yield what prevents the upgrade of a classic group to a streams group."""
    config, topics = event.context.config, event.runtime.topics.by_name
    if migration_policy(event) not in UPGRADE_POLICIES:
        yield f"the policy {migration_policy(event)}"
    if old.protocol_type != "consumer" or len(old.members) > config["group.streams.max.size"]:
        yield f"the protocol type or size of {old!r}"
    states = {member_id: read_classic_state(member) for member_id, member in old.members.items()}
    yield from (f"{member_id} cannot be decoded" for member_id, state in states.items() if state is None)
    try:
        topology = Topology.from_request(event.request.topology)
        configured = configure(topology, {name: topics[name].partitions for name in topics})
    except GroupError as error:
        yield str(error)
        return
    numbered = all(map(str.isdigit, topology.subtopologies))
    if expressions(topology) or not configured.is_ready or not numbered:
        yield f"{topology} is not ready, has expressions, or subtopologies without numbers"
        return
    source_topics = {topic for each in topology.subtopologies.values() for topic in sources(each)}
    for member_id, state in states.items():
        if state is None:
            continue
        if set(state.subscription.topics) != source_topics:
            yield f"{member_id} subscribes to {state.subscription.topics}, not {source_topics}"
        assigned = state.assigned
        tasks = [
            *assigned.active,
            *((t, p) for t, partitions in assigned.standby.items() for p in partitions),
        ]
        for (name, number), (topic, partition) in tasks:
            exists = number == partition < configured.tasks.get(name, 0)
            if not exists or topology.readers.get(topic) != name:
                yield f"{member_id} reads {topic}-{partition} with task {name}_{number}"
        for name, number in assigned.standby:
            if name in configured.tasks and not topology.is_stateful(name):
                yield f"{member_id} has a copy of the stateless task {name}_{number}"


# --- MG2, MG3: members of the classic protocol -------------------------------------------------------


class ClassicStreamsMembersRejoinOnChanges(ServedClassicMembers[StreamsGroup]):
    """MG2: the generation of a classic member is its epoch, no member leads, and it has to rejoin exactly
    when it needs a new assignment: for a newer target, a revocation, released tasks, a shutdown, or endpoints
    of other members; or when its task offsets are due, while it has a warm-up."""

    group_type = StreamsGroup

    def after(self, event: Event) -> None:
        if event.is_request("Heartbeat", "JoinGroup", "SyncGroup"):
            group = event.before.groups.get(event.request.group_id)
            if isinstance(group, StreamsGroup) and group.members:
                super().after(event)

    def rejoin_causes(self, event: Event, group: StreamsGroup, member: Member) -> list[str]:
        return list(_rejoin_causes(event, group, member))

    def check_join(self, event: Event) -> None:
        response: Any = event.answer
        if event.error is not Errors.NONE:
            assert not event.changed, f"{event.request.member_id} is rejected, but something changed"
            return
        member_id, generation = response.member_id, response.generation_id
        assert migration_policy(event) != "disabled", f"{member_id} is accepted, but the policy is disabled"
        group = event.after.groups[event.request.group_id]
        if isinstance(group, StreamsGroup):
            member = group.members.get(member_id)
            assert member is not None, f"{member_id} joined, but is no member"
            epoch = member.current.epoch
            assert generation == epoch, f"{member_id} gets generation {generation}, but is at {epoch}"
        leader = (response.leader, response.members)
        assert leader == ("", ()), f"{member_id} gets the leader and members {leader}"
        assert response.protocol_name == STREAM, f"{member_id} gets the protocol {response.protocol_name}"


def _rejoin_causes(event: Event, group: StreamsGroup, member: Member) -> Iterator[str]:
    """Yield the causes for which a member of the classic protocol has to rejoin."""
    current, all_classic = member.current, all(m.classic is not None for m in group.members.values())
    report = group.reported.get(member.member_id)
    if group.soft.shutdown is not None:
        yield "a shutdown"
    if current.state is UNREVOKED:
        yield "a revocation"
    if current.epoch < (group.epoch if all_classic else group.assignment_epoch):
        yield "a newer target"
    if all_classic and group.soft.hashed_topics is not event.context.topics:
        yield "changed topics"
    config = event.context.group_configs.of(group.group_id)
    if all_classic and assignment_configs(config, group.topology) != group.assignment_configs:
        yield "changed assignment configs"
    if current.state is MemberState.UNRELEASED_TASKS and any(_released_tasks(group, member)):
        yield "released tasks"
    if must_report_offsets(group, member):
        interval_ms = config["streams.task.offset.interval.ms"]
        elapsed_ms = None if report is None else event.context.now_ms - report.reported_ms
        if elapsed_ms is None or not 0 <= elapsed_ms < interval_ms:
            yield "due task offsets"
    if member.user_endpoint is not None:
        known_epoch = None if report is None else report.sent_endpoint_epoch
        if known_epoch != group.soft.endpoint_epoch:
            yield "endpoints of other members"


def _released_tasks(group: StreamsGroup, member: Member) -> Iterator[Task]:
    """Yield the tasks of the target that the member lacks and that no other member blocks."""
    target, current = group.target_of(member.member_id), member.current
    assigned = {role: flat_tasks(getattr(current.assigned, role)) for role in ("active", "standby", "warmup")}
    others = [m for m in group.members.values() if m is not member]
    active = {
        task
        for m in others
        for owned in (m.current.assigned, m.current.pending_revocation)
        for task in flat_tasks(owned.active)
    }
    in_process = {
        task
        for m in others
        if m.process_id == member.process_id
        for owned in (m.current.assigned, m.current.pending_revocation)
        for tasks in (owned.active, owned.standby, owned.warmup)
        for task in flat_tasks(tasks)
    }
    missing = flat_tasks(target.active) - assigned["active"]
    yield from (task for task in missing if task not in active | in_process)
    for role in ("standby", "warmup"):
        missing = flat_tasks(getattr(target, role)) - assigned[role]
        yield from (task for task in missing if task not in in_process)


def must_report_offsets(group: StreamsGroup, member: Member) -> bool:
    """Return True for a member of the classic protocol whose warm-ups need its task offsets."""
    report = group.reported.get(member.member_id)
    has_warmups = member.classic is not None and bool(flat_tasks(member.current.assigned.warmup))
    return has_warmups and (report is None or report.reports)


class SyncGroupReturnsOwnedTasks(Invariant):
    """MG2, MG3: the response to a SyncGroup has the member's tasks in the version of its user data: the
    partitions of its active tasks, standbys and warm-ups as standbys, and the endpoints of all members.

    MG3: of the members that must report task offsets for a warm-up, exactly one gets a time to rejoin."""

    def after(self, event: Event) -> None:
        if not event.is_request("SyncGroup") or event.error is not Errors.NONE:
            return
        group = event.after.groups.get(event.request.group_id)
        if not isinstance(group, StreamsGroup):
            return
        response = event.answer
        assert isinstance(response, SyncGroupResponse)
        member = group.members[event.request.member_id]
        assert member.classic is not None
        subscription = read_subscription(dict(member.classic.protocols)[STREAM])
        sent = read_subscription_info(subscription.user_data or b"")
        returned = read_info(read_assignment(response.assignment))
        member_id, version = member.member_id, sent.version
        assert returned is not None, f"{member_id} gets an assignment without user data"
        assert returned.version == version, f"{member_id} uses version {version}, gets {returned.version}"
        self._check_tasks(event, group, member, returned)
        if sent.user_endpoint and member.user_endpoint is None:
            assert not returned.partitions_by_host, f"{member_id} gets endpoints without its own"
        else:
            self._check_endpoints(event, group, returned)
        config = event.runtime.group_configs.of(group.group_id)
        reporting = sorted(m.member_id for m in group.members.values() if must_report_offsets(group, m))
        due_ms = event.context.now_ms + config["streams.task.offset.interval.ms"]
        is_first = reporting[:1] == [member_id] and version >= FIRST_VERSION_WITH_OFFSETS
        expected_ms = due_ms if is_first else NEVER_MS
        assert returned.next_rebalance_ms == expected_ms, (
            f"{member_id} is to rejoin at {returned.next_rebalance_ms}, not {expected_ms}: {reporting}"
        )

    def _check_tasks(
        self, event: Event, group: StreamsGroup, member: Member, returned: AssignmentInfo
    ) -> None:
        member_id, assigned = member.member_id, member.current.assigned
        expected = {(p, t) for t in flat_tasks(assigned.active) for p in source_partitions(event, group, t)}
        active = {(partition, task) for task, partition in returned.active}
        assert active == expected, f"{member_id} gets {sorted(active)}, but has {sorted(expected)}"
        copies = {task: set(source_partitions(event, group, task)) for task in _copies(member)}
        expected_copies = {task: partitions for task, partitions in copies.items() if partitions}
        returned_copies = {task: set(partitions) for task, partitions in returned.standby.items()}
        assert returned_copies == expected_copies, (
            f"{member_id} gets the copies {returned_copies}, but has {expected_copies}"
        )
        missing = group.topology is not None and any(
            topic not in event.runtime.topics.by_name for topic in group.topology.source_topics
        )
        shutdown = group.soft.shutdown is not None
        if not shutdown and group.soft.hashed_topics is not event.context.topics:
            return  # The response is of the topics at the last heartbeat.
        error = SHUTDOWN_REQUESTED if shutdown else INCOMPLETE_SOURCE_TOPICS if missing else 0
        error = error if returned.version >= 4 else 0
        assert returned.error_code == error, f"{member_id} gets the error {returned.error_code}, not {error}"

    def _check_endpoints(self, event: Event, group: StreamsGroup, returned: AssignmentInfo) -> None:
        active: dict[tuple[str, int], set[TopicPartition]] = {}
        copies: dict[tuple[str, int], set[TopicPartition]] = {}
        configured = group.soft.configured is not None and group.soft.configured.tasks
        for member in group.members.values() if configured else ():
            host = member.user_endpoint
            if host is not None:
                active.setdefault(host, set()).update(
                    p
                    for task in flat_tasks(member.current.assigned.active)
                    for p in source_partitions(event, group, task)
                )
                copies.setdefault(host, set()).update(
                    p for task in _copies(member) for p in source_partitions(event, group, task)
                )
        by_host = {host: set(partitions) for host, partitions in returned.partitions_by_host.items()}
        expected = active if returned.version >= 2 else {}
        assert by_host == expected, f"the active partitions are returned as {by_host}, expected {expected}"
        by_host = {host: set(partitions) for host, partitions in returned.standby_partitions_by_host.items()}
        expected = copies if returned.version >= 6 else {}
        assert by_host == expected, f"the standby partitions are returned as {by_host}, expected {expected}"


def _copies(member: Member) -> set[Task]:
    """Return the standby and warm-up tasks of a member."""
    assigned = member.current.assigned
    return flat_tasks(assigned.standby) | flat_tasks(assigned.warmup)


def source_partitions(event: Event, group: StreamsGroup, task: Task) -> list[TopicPartition]:
    """Return the partitions that a task reads, of the topics that exist."""
    topology, topics = group.topology, event.runtime.topics.by_name
    assert topology is not None
    if task[0] not in topology.subtopologies:
        return []
    names = set(sources(topology.subtopologies[task[0]]))
    return [(name, task[1]) for name in sorted(names) if name in topics and task[1] < topics[name].partitions]


# --- MG4, MG5: streams to classic --------------------------------------------------------------------


class StreamsDowngradesKeepTasks(Invariant):
    """MG4: when the last member of the streams protocol leaves, the group becomes a classic one with the
    remaining members and their tasks, at the group's epoch. No offset changes.

    MG5: it does not exceed the maximum size of a classic group. M1: no member gets a task that another one
    owns."""

    def after(self, event: Event) -> None:
        if event.is_complete or not event.changed:
            return
        for _, old, group in converted(event, StreamsGroup, ClassicGroup):
            if old.members:
                self._check_downgraded(event, old, group)
        for group in event.after.groups.values():
            if isinstance(group, StreamsGroup) and event.kind != "completion":
                self._check_not_downgraded(event, group)

    def _check_downgraded(self, event: Event, old: StreamsGroup, group: ClassicGroup) -> None:
        check_offsets_kept(event, group)
        check_downgrade(event, old, group, migration_policy(event))
        assert old.soft.shutdown is None, f"{old!r} is downgraded, but is shutting down"
        assert group.generation == old.epoch, f"{old!r} is downgraded to {group!r}"
        lost = [m for i, m in old.members.items() if m.classic is not None and i not in group.members]
        removes = event.kind == "timer" or event.is_request("LeaveGroup", "ConsumerGroupHeartbeat")
        assert not lost or removes, f"{old!r} is downgraded without {lost}"
        owners: dict[TopicPartition, str] = {}
        for member_id, member in group.members.items():
            state = read_classic_state(member)
            assert state is not None, f"{member_id} of {group!r} cannot be decoded"
            for task, partition in state.assigned.active:
                other = owners.setdefault(partition, member_id)
                assert other == member_id, f"{group!r}: {other} and {member_id} run {task}"
            before = old.members.get(member_id)
            if before is not None and event.api != "JoinGroup":
                self._check_partitions(event, old, before, state)

    def _check_partitions(self, event: Event, old: StreamsGroup, before: Member, state: ClassicState) -> None:
        owned = before.current.assigned.active, before.current.pending_revocation.active
        expected = {
            p for tasks in owned for task in flat_tasks(tasks) for p in source_partitions(event, old, task)
        }
        partitions = {partition for _, partition in state.assigned.active}
        assert partitions == expected, (
            f"{before.member_id} had {sorted(expected)}, but has {sorted(partitions)}"
        )

    def _check_not_downgraded(self, event: Event, group: StreamsGroup) -> None:
        """Check that a downgrade was impossible if a group remains a streams group although its last member
        of the streams protocol left."""
        old = event.before.groups.get(group.group_id)
        if not isinstance(old, StreamsGroup):
            return
        if event.is_request("JoinGroup") and event.request.group_instance_id is None:
            return  # The last member of the streams protocol itself joins with the classic protocol.
        if lost_last_modern_member(old, group):
            allowed = migration_policy(event) in DOWNGRADE_POLICIES
            fits = len(group.members) <= config_of(event)["group.max.size"] and group.soft.shutdown is None
            assert not (allowed and fits), f"{group!r} has classic members only, but was not downgraded"
