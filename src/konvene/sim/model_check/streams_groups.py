"""Model check of a small streams group: every interleaving, on the production code.

Two processes: `a` and `c` are threads of the first one, `b` and `d` of the second. The topology has a
stateful subtopology with as many tasks as the model has partitions, and a stateless one with a single task.
Each stateful task is to have a standby. The changelog topic is missing at first, and created when the group
requests it. Setting the number of standbys to zero counts as a fault.

`GroupModel` has the search and the clients. As a further fault a client dies without leaving, and returns
with another member id on the same disk. Beside the invariants of `konvene.sim.invariants`, no client may
believe to run a task that the coordinator could assign to another member, and no two members of a process may
have the same state open.

Clients are careful: they take assigned tasks only when no report of their tasks is unacknowledged.

Left out: commits, task offsets, endpoints, shutdowns, and clients that use the member id of another one;
the seeded simulator has these (`members.streams.member`, `members.hostile.streams`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.shard import GroupShard
from konvene.groups.streams.current_assignment import MemberState, Role, Unit
from konvene.groups.streams.group import SoftState, StreamsGroup
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from konvene.shard.contract import Context, TimerKey
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants import observer
from konvene.sim.invariants.streams.decisions import (
    StreamsHeartbeatErrorsAreExpected,
    StreamsMembersAdvanceAfterRevocation,
    TaskRevocationsAreConfirmed,
    reported_units,
)
from konvene.sim.invariants.streams.responses import (
    HeartbeatResponsesListTasks,
    ReturnedTasksAreExclusive,
    StatusesAreAccurate,
)
from konvene.sim.invariants.streams.state import (
    ActiveTasksHaveEpochs,
    ActiveTasksHaveOneOwner,
    EmptyStreamsGroupsHaveNoTargets,
    ProcessesOwnATaskOnce,
    StreamsEpochsAreInOrder,
    StreamsIndexesMatchMembers,
    StreamsStateMatchesMembers,
    owned_units,
    units,
)
from konvene.sim.invariants.streams.targets import (
    MissingTopicsAreReported,
    StreamsEpochBumpsHaveACause,
    StreamsMetadataHashIsCurrent,
    TasksAreAssigned,
    TopologiesAreKept,
    tasks_of,
)
from konvene.sim.model_check.group_model import (
    FENCED,
    GROUP,
    NAMES,
    NOW_MS,
    GroupModel,
    Transition,
    group_in,
    relative_to,
    with_client,
    without_messages,
)
from konvene.sim.world.event import Event, InvariantViolation, View

INVARIANTS = (
    ActiveTasksHaveOneOwner, ProcessesOwnATaskOnce, StreamsEpochsAreInOrder, ActiveTasksHaveEpochs,
    EmptyStreamsGroupsHaveNoTargets, StreamsStateMatchesMembers, StreamsIndexesMatchMembers,
    StreamsHeartbeatErrorsAreExpected, TaskRevocationsAreConfirmed, StreamsMembersAdvanceAfterRevocation,
    TasksAreAssigned, StreamsEpochBumpsHaveACause, StreamsMetadataHashIsCurrent, TopologiesAreKept,
    MissingTopicsAreReported, HeartbeatResponsesListTasks, ReturnedTasksAreExclusive, StatusesAreAccurate,
)  # fmt: skip

CHANGELOG = "g-counts-changelog"
TOPOLOGY = Topology(
    (
        Subtopology("0", ("orders",), state_changelog_topics=(InternalTopic(CHANGELOG),)),
        Subtopology("1", ("audit",)),
    )
).to_message()
PROCESSES = 2
REBALANCE_TIMEOUT_MS = 30_000

Held = frozenset[Unit]
NONE_HELD: Held = frozenset()


class Client(NamedTuple):
    """A client in the model: what it believes of its membership, and its request or response under way.
    `held` are the tasks it owns, `target` those of an assignment that it has not carried out yet."""

    name: str
    static: bool = False
    life: int = 0
    """How often it was started; it returns under another member id."""
    inside: bool = False
    epoch: int = -1
    held: Held = NONE_HELD
    target: Held | None = None
    has_all_tags: bool = True
    owes_report: bool = False
    """Whether it carried out something that it has not reported."""
    request: StreamsGroupHeartbeatRequest | None = None
    response: StreamsGroupHeartbeatResponse | None = None
    joins: int = 1
    """How often it may still be started."""

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.life % 2}"

    @property
    def process(self) -> str:
        return f"p{NAMES.index(self.name) % PROCESSES}"

    def stopped(self, more_joins: int = 0) -> Client:
        """Return the client after it died or stopped: not a member, with no request under way. It may be
        started again as often as before, and `more_joins` times more."""
        return Client(self.name, self.static, self.life, joins=self.joins + more_joins)


class State(NamedTuple):
    """A state of the model: the group, its clients, the topics and settings, and how many faults may still
    happen."""

    group: StreamsGroup | None
    clients: tuple[Client, ...]
    changelog_exists: bool
    """Whether the changelog topic exists."""
    standbys_disabled: bool
    """Whether the number of standbys was set to zero."""
    faults: int


class StreamsGroupModel(GroupModel[State, Client]):
    """The model of one streams group. See `GroupModel` for the bounds; `standbys` is the number of standbys
    of each stateful task."""

    invariants: tuple[type[object], ...] = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 1, faults: int = 1, *, static: int = 0, joins: int = 1,
        standbys: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(members, partitions, faults, static, joins)
        self.bounds["standbys"] = standbys
        names = NAMES[:members]
        clients = tuple(Client(name, n < static, joins=joins + (n < static)) for n, name in enumerate(names))
        self.begin = State(None, clients, False, not standbys, faults)
        sources = [_topic("orders", partitions), _topic("audit", 1)]
        self.topics = (Topics(sources), Topics([*sources, _topic(CHANGELOG, partitions)]))
        immediate = ("assignment.interval.ms", "initial.rebalance.delay.ms")
        settings = [(f"group.streams.{name}", "0") for name in immediate]
        self.configs = []
        for count in (standbys, 0):
            standby = ("group.streams.num.standby.replicas", str(count))
            config, _ = BrokerConfig.load(overrides=[*settings, standby])
            self.configs.append((config, GroupConfigs(config)))
        self.check_event = observer([invariant() for invariant in INVARIANTS])
        self._decisions: dict[Hashable, tuple[StreamsGroup | None, Struct | None]] = {}
        """Group and response after each decision made so far, by its inputs."""

    def key(self, state: State) -> Hashable:
        group = state.group
        since = relative_to(group.epoch if group is not None else 0)
        clients = tuple(
            (
                c.life % 2, c.inside, since(c.epoch), c.held, c.target, c.has_all_tags, c.owes_report,
                c.joins,
                c.request and (since(c.request.member_epoch), _reported_tasks(c.request)),
                c.response and (c.response.error_code, since(c.response.member_epoch),
                                _reported_tasks(c.response)),
            )
            for c in state.clients
        )  # fmt: skip
        return (
            self._group_key(group, since),
            clients,
            state.changelog_exists,
            state.standbys_disabled,
            state.faults,
        )

    def _group_key(self, group: StreamsGroup | None, since: Callable[[int], int]) -> Hashable:
        """Return everything of the group that its next decisions depend on. `since` makes epochs relative to
        the group's."""
        if group is None:
            return None
        return (
            since(group.assignment_epoch),
            group.soft.hashed_topics is not None and self.topics.index(group.soft.hashed_topics),
            group.validated_topology_epoch,
            group.metadata_hash,
            tuple(group.assignment_configs.items()),
            tuple((name, frozenset(units(target))) for name, target in sorted(group.targets.items())),
            tuple(
                (m.member_id, m.current.state.value, since(m.current.epoch),
                 since(m.current.previous_epoch), frozenset(m.current.assigned.units()),
                 frozenset(m.current.pending_revocation.units()))
                for m in group.members.values()
            ),
        )  # fmt: skip

    def is_settled(self, state: State) -> bool:
        inside = [c for c in state.clients if c.inside or c.request or c.response]
        group = state.group
        if not inside or group is None:
            return not inside and (group is None or not group.members)
        if any(c.request or c.response or c.owes_report or c.target is not None for c in inside):
            return False
        if group.members.keys() != {c.member_id for c in inside} or not state.changelog_exists:
            return False
        assert group.topology is not None
        tasks = tasks_of(group.topology, self.topics[1])
        held = [unit for c in inside for unit in c.held]
        active = sorted(unit[1:] for unit in held if unit[0] is Role.ACTIVE)
        standbys = sorted(unit[1:] for unit in held if unit[0] is Role.STANDBY)
        spread = len({c.process for c in inside}) > 1 and not state.standbys_disabled
        expected_standbys = sorted(task for task, stateful in tasks.items() if stateful and spread)
        return (
            active == sorted(tasks)
            and standbys == expected_standbys
            and all(c.epoch == group.epoch for c in inside)
        )

    # --- transitions ---

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        for index, client in enumerate(state.clients):
            yield from self.client_transitions(state, index, client)
        group = state.group
        if group is None:
            return
        if not state.changelog_exists:
            yield Transition("the changelog is created", state._replace(changelog_exists=True), True)
        yield from self._timers(state, group)
        if state.faults:
            less = state._replace(faults=state.faults - 1)
            if not state.standbys_disabled:
                yield Transition(
                    "the number of standbys becomes 0", less._replace(standbys_disabled=True), False
                )
            loaded = group.copy()
            loaded.soft, loaded.reached_ms, loaded.reported = SoftState(), {}, {}
            after = less._replace(group=loaded, clients=without_messages(state.clients))
            yield Transition("the coordinator is loaded again", after, False)

    def client_faults(self, state: State, index: int, client: Client) -> Iterator[Transition[State]]:
        if client.inside and state.faults:
            dead = client.stopped(more_joins=1)
            yield Transition(f"{client.name} dies", with_client(state, index, dead, fault=True), False)

    def starts(self, client: Client) -> Client:
        return client._replace(life=client.life + 1, inside=True, epoch=0, joins=client.joins - 1)

    def sends(self, client: Client) -> Client:
        return _next_heartbeat(client)

    def receives(self, client: Client) -> Client:
        return _after_response(client)

    def carries_out(self, state: State, index: int, client: Client) -> Iterator[Transition[State]]:
        done = _carried_out(client)
        if done is not client:
            after = with_client(state, index, done)
            _check_tasks(after)
            yield Transition(f"{client.name} carries out", after, True)

    def _timers(self, state: State, group: StreamsGroup) -> Iterator[Transition[State]]:
        alive = {c.member_id for c in state.clients if c.inside}
        for member in list(group.members.values()):
            dead = member.member_id not in alive
            is_revoking = member.current.state is MemberState.UNREVOKED_TASKS and member.current.epoch > 0
            for kind, is_possible in (
                ("session", dead or state.faults),
                ("revocation", is_revoking and state.faults),
            ):
                if is_possible:
                    cost = 0 if dead and kind == "session" else 1
                    after = self.decide(state, None, (kind, GROUP, member.member_id))[0]
                    label = f"the {kind} timeout of {member.member_id} expires"
                    yield Transition(label, after._replace(faults=state.faults - cost), not cost)

    def leaves(self, state: State, index: int, client: Client) -> Transition[State]:
        epoch = -2 if client.static and client.joins else -1
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch,
            instance_id=client.name if client.static else None,
        )  # fmt: skip
        after, _ = self.decide(with_client(state, index, client.stopped()), request)
        return Transition(f"{client.name} leaves ({epoch})", after, False)

    # --- the core ---

    def decide(self, state: State, request: Struct | None, key: TimerKey = ()) -> tuple[State, Struct | None]:
        """Return the state after the coordinator handles a request or a timer, and the response. `key` is
        that of the timer; `request` is None then. Decisions are cached by their inputs."""
        group = state.group
        inputs = (
            self._group_key(group, int),
            group and group.epoch,
            state.changelog_exists,
            state.standbys_disabled,
            request,
            key,
        )
        decided = self._decisions.get(inputs)
        if decided is None:
            decided = self._decisions[inputs] = self._decided(state, request, key)
        after = state._replace(group=decided[0])
        _check_tasks(after)
        return after, decided[1]

    def _decided(
        self, state: State, request: Struct | None, key: TimerKey
    ) -> tuple[StreamsGroup | None, Struct | None]:
        shard, before = GroupShard(), state.group
        topics = self.topics[state.changelog_exists]
        config, group_configs = self.configs[state.standbys_disabled]
        if before is not None:
            shard.groups[GROUP] = before.copy()
        context = Context(
            NOW_MS, config, 1, 1, "client", "/host", ("fresh",), topics, group_configs, OFFERED
        )  # fmt: skip
        outcome = shard.expire(key, context) if request is None else shard.handle(request, context)
        for record in (*outcome.records, *outcome.soft_records):
            shard.replay(record)
        group = group_in(shard, StreamsGroup)
        answer = next((reply.response for reply in outcome.replies), None)
        event = Event(
            "timer" if request is None else "request",
            SimpleNamespace(topics=topics, config=config),  # type: ignore[arg-type]
            View({} if before is None else {GROUP: before}, {}),
            View({} if group is None else {GROUP: group}, {}),
            changed=bool(outcome.records),
            api="" if request is None else "StreamsGroupHeartbeat",
            request=request, version=1, context=context, waiter=1, key=key, outcome=outcome, answer=answer,
        )  # fmt: skip
        self.check_event(event)
        return group, answer


def _topic(name: str, partitions: int) -> Topic:
    return Topic(name, Uuid(name[:16].ljust(16, "-").encode()), partitions)


def _reported_tasks(message: StreamsGroupHeartbeatRequest | StreamsGroupHeartbeatResponse) -> Held | None:
    """Return the tasks that a heartbeat reports, or that its response assigns; None if the message has
    none."""
    found = reported_units(message)
    return None if found is None else frozenset(found)


def _carried_out(client: Client) -> Client:
    """Return the client after it carried out its target. While a report of its tasks is not acknowledged it
    only revokes tasks and takes none: that report lacks a newly assigned task, so it would count as revoking
    it."""
    target, request = client.target, client.request
    if not client.inside or target is None:
        return client
    if client.has_all_tags or (request is not None and request.active_tasks is not None):
        kept = client.held & target
        return client if kept == client.held else client._replace(held=kept, owes_report=True)
    return client._replace(held=target, target=None, owes_report=True)


def _next_heartbeat(client: Client) -> Client:
    """Return the client with its next heartbeat as the request under way. Its tasks are included when the
    client joins, after a lost response, and when they changed."""
    joins = client.epoch == 0
    reports_tasks = client.has_all_tags or joins or client.owes_report
    roles = [_rows(client.held, role) if reports_tasks else None for role in Role]
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=client.member_id,
        member_epoch=client.epoch,
        instance_id=client.name if client.static else None,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
        topology=TOPOLOGY if joins else None,
        process_id=client.process if joins else None,
        active_tasks=roles[0],
        standby_tasks=roles[1],
        warmup_tasks=roles[2],
    )
    return client._replace(request=request, has_all_tags=False, owes_report=False)


def _rows(held: Held, role: Role) -> tuple[TaskIds, ...]:
    partitions: dict[str, list[int]] = {}
    for _, name, partition in sorted(unit for unit in held if unit[0] is role):
        partitions.setdefault(name, []).append(partition)
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(numbers)) for name, numbers in partitions.items()
    )


def _after_response(client: Client) -> Client:
    answer: Any = client.response
    client = client._replace(response=None)
    error = Errors(answer.error_code)
    if error in FENCED:
        return client._replace(epoch=0, held=NONE_HELD, target=None, has_all_tags=True, owes_report=False)
    if error is not Errors.NONE:  # The client stops, and may be started again.
        return client.stopped()
    assigned, target, owes_report = _reported_tasks(answer), client.target, client.owes_report
    if assigned is not None:
        target = assigned if assigned != client.held else None
        # An assignment that it never carried out was withdrawn: it has to report what it owns.
        owes_report = owes_report or (target is None and client.target is not None)
    return client._replace(epoch=answer.member_epoch, target=target, owes_report=owes_report)


def _check_tasks(state: State) -> None:
    """Check T1 and T2 for what clients believe: a member runs no active task that the coordinator does not
    count as owned by it, and has no state open that another member of its process has open."""
    group = state.group
    opened: dict[tuple[str, str, int], str] = {}
    for client in state.clients:
        member = group.members.get(client.member_id) if group is not None else None
        if member is None or not 0 < client.epoch <= member.current.epoch:
            continue
        unknown = {unit for unit in client.held - owned_units(member) if unit[0] is Role.ACTIVE}
        if unknown:
            why = f"{client.name} runs {sorted(unknown)}, not {sorted(owned_units(member))}"
            raise InvariantViolation("TasksAreExclusive", why)
        for _, name, partition in sorted(client.held):
            other = opened.setdefault((client.process, name, partition), client.name)
            if other != client.name:
                why = f"{other} and {client.name} of {client.process} have {name}_{partition}"
                raise InvariantViolation("TasksAreExclusive", why)
