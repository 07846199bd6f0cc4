"""All that can happen to a small streams group: breadth-first, on the real core.

Two processes, whose members are told apart: `a` and `c` are threads of the first one, `b` and `d` of the
second. The topology has a subtopology that keeps state, of as many tasks as the model has partitions, and one
of a single task without. Each task with state is to have a standby. The changelog is missing at first, and
made when the group asks for it. That there are to be no standbys any more counts as a fault.

The search, and what a state and a step are, is that of consumer groups (`consumers`); a client may die as
well, without a word, and come back as a member with another id on the same disk. Each step is held against
the invariants of `sim.invariants`, and against what clients believe: nobody who is a member runs what the
coordinator would give to another, and no two members of a process have the same state open.

Clients are careful: what they are given they take when nothing that they said of their tasks is on its way.

Left out: commits, offsets of tasks, endpoints, shutdowns, and members by another's name;
`members.streams.member`
and `members.hostile.streams` have these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology
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
from konvene.shard.contract import Context
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants import observer
from konvene.sim.invariants.streams.decisions import (
    MembersMoveWhenTasksAreGivenUp,
    NoTaskIsTakenUnheard,
    StreamsHeartbeatsAreJudged,
    owned_by,
)
from konvene.sim.invariants.streams.responses import NobodyRunsWhatOthersGiveUp, TasksAreTold, TheStatusIsTrue
from konvene.sim.invariants.streams.state import (
    ActiveTasksHaveEpochs,
    EmptyStreamsGroupsAreAssigned,
    ProcessesHaveATaskOnce,
    StateSaysWhatIsSo,
    StreamsInstancesAreMembers,
    TaskEpochsAreInOrder,
    TasksHaveOneActive,
    has,
    units,
)
from konvene.sim.invariants.streams.targets import (
    StreamsEpochsMoveForAReason,
    TasksAreGiven,
    TheHashIsOfTheTopology,
    TheTopologyStays,
    TopicsAreFoundMissing,
    tasks_of,
)
from konvene.sim.model_check.consumer_groups import FENCED, GROUP, NAMES, NOW_MS, Consumers, Step
from konvene.sim.world.event import Event, InvariantViolation, View

INVARIANTS = (
    TasksHaveOneActive, ProcessesHaveATaskOnce, TaskEpochsAreInOrder, ActiveTasksHaveEpochs,
    EmptyStreamsGroupsAreAssigned, StateSaysWhatIsSo, StreamsInstancesAreMembers, StreamsHeartbeatsAreJudged,
    NoTaskIsTakenUnheard, MembersMoveWhenTasksAreGivenUp, TasksAreGiven, StreamsEpochsMoveForAReason,
    TheHashIsOfTheTopology, TheTopologyStays, TopicsAreFoundMissing, TasksAreTold,
    NobodyRunsWhatOthersGiveUp, TheStatusIsTrue,
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
    """What a client believes. Epochs of a state's key count from the group's."""

    name: str
    static: bool = False
    life: int = 0
    """It comes back under another id: its lives go by turns."""
    inside: bool = False
    epoch: int = -1
    held: Held = NONE_HELD
    target: Held | None = None
    says_all: bool = True
    owes: bool = False
    """Whether it has carried out something that the coordinator has not heard of."""
    question: StreamsGroupHeartbeatRequest | None = None
    answer: Any = None
    joins: int = 1
    """How often it will still come."""

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.life % 2}"

    @property
    def process(self) -> str:
        return f"p{NAMES.index(self.name) % PROCESSES}"

    def gone(self, more_joins: int = 0) -> Client:
        """The same, of which nothing is left but its name."""
        return Client(self.name, self.static, self.life, joins=self.joins + more_joins)


class State(NamedTuple):
    """All that there is."""

    group: StreamsGroup | None
    clients: tuple[Client, ...]
    made: bool
    """Whether the changelog is there."""
    without: bool
    """Whether there are to be no standbys any more."""
    faults: int


class Streams(Consumers):
    """A small world of streams members. See `Consumers` for the bounds; there is one standby, or none.

    Raises ValueError for bounds that make no world."""

    invariants = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 1, faults: int = 1, *, static: int = 0, joins: int = 1,
        standbys: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(members, partitions, faults, static=static, joins=joins, alike=False)
        self.bounds["standbys"] = standbys
        names = NAMES[:members]
        clients = tuple(Client(name, n < static, joins=joins + (n < static)) for n, name in enumerate(names))
        self.begin: Any = State(None, clients, False, not standbys, faults)
        sources = [_topic("orders", partitions), _topic("audit", 1)]
        self.topics = (Topics(sources), Topics([*sources, _topic(CHANGELOG, partitions)]))
        told = {"assignment.interval.ms": "0", "initial.rebalance.delay.ms": "0"}
        settings = [(f"group.streams.{name}", value) for name, value in told.items()]
        self.configs = []
        for count in (standbys, 0):
            standby = ("group.streams.num.standby.replicas", str(count))
            config, _ = BrokerConfig.load(overrides=[*settings, standby])
            self.configs.append((config, GroupConfigs(config)))
        self.check_event = observer([invariant() for invariant in INVARIANTS])
        self._known: dict[Any, tuple[Any, Any]] = {}
        """What was decided before, by what it rests on."""

    def key(self, state: Any) -> Any:
        """The same for states that differ by what nobody can tell."""
        group, base = state.group, state.group.epoch if state.group is not None else 0

        def since(epoch: int) -> int:
            return epoch - base - 10 if epoch > 0 else epoch

        clients = tuple(
            (
                c.life % 2, c.inside, since(c.epoch), c.held, c.target, c.says_all, c.owes, c.joins,
                c.question and (since(c.question.member_epoch), _said(c.question)),
                c.answer and (c.answer.error_code, since(c.answer.member_epoch), _said(c.answer)),
            )
            for c in state.clients
        )  # fmt: skip
        return self._of_group(group, since), clients, state.made, state.without, state.faults

    def _of_group(self, group: StreamsGroup | None, since: Callable[[int], int]) -> Any:
        """All of a group on which decisions rest."""
        if group is None:
            return None
        return (
            since(group.assignment_epoch),
            group.soft.seen is not None and self.topics.index(group.soft.seen),
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

    def is_settled(self, state: Any) -> bool:
        """Whether all who are in have what they should, and nothing is on its way."""
        inside = [c for c in state.clients if c.inside or c.question or c.answer]
        group = state.group
        if not inside or group is None:
            return not inside and (group is None or not group.members)
        if any(c.question or c.answer or c.owes or c.target is not None for c in inside):
            return False
        if group.members.keys() != {c.member_id for c in inside} or not state.made:
            return False
        tasks = tasks_of(group.topology, self.topics[1])
        held = [unit for c in inside for unit in c.held]
        active = sorted(unit[1:] for unit in held if unit[0] is Role.ACTIVE)
        copies = sorted(unit[1:] for unit in held if unit[0] is Role.STANDBY)
        spread = len({c.process for c in inside}) > 1 and not state.without
        wanted = sorted(task for task, stateful in tasks.items() if stateful and spread)
        return active == sorted(tasks) and copies == wanted and all(c.epoch == group.epoch for c in inside)

    # --- what can happen ---

    def steps(self, state: Any) -> Iterator[Step]:
        """All that can happen next. Raises `InvariantViolation`."""
        for index, client in enumerate(state.clients):
            yield from self._of_client(state, index, client)
        group = state.group
        if group is None:
            return
        if not state.made:
            yield Step("the changelog is made", state._replace(made=True), True)
        yield from self._of_timers(state, group)
        if state.faults:
            if not state.without:
                less = state._replace(without=True, faults=state.faults - 1)
                yield Step("no standbys any more", less, False)
            fresh = group.copy()
            fresh.soft, fresh.reached_ms, fresh.reported = SoftState(), {}, {}
            clients = tuple(c._replace(question=None, answer=None, says_all=True) for c in state.clients)
            again = state._replace(group=fresh, clients=clients, faults=state.faults - 1)
            yield Step("the coordinator begins again", again, False)

    def _of_client(self, state: Any, index: int, client: Any) -> Iterator[Step]:
        who = client.name
        if client.inside and state.faults:
            dead = client.gone(more_joins=1)
            yield Step(f"{who} dies", _with(state, index, dead, fault=True), False)
        if client.answer is not None:
            yield Step(f"{who} hears", _with(state, index, _heard(client)), True)
            if state.faults:
                lost = client._replace(answer=None, says_all=True)
                yield Step(f"{who} loses an answer", _with(state, index, lost, fault=True), False)
            return
        if client.question is not None:
            after, answer = self._decide(state, client.question, None)
            heard = after.clients[index]._replace(question=None, answer=answer)
            yield Step(f"{who} arrives", _with(after, index, heard), True)
            if state.faults:
                lost = client._replace(question=None, says_all=True)
                yield Step(f"{who} loses a question", _with(state, index, lost, fault=True), False)
        elif client.inside:
            yield Step(f"{who} asks", _with(state, index, _asks(client)), True)
        elif client.joins:
            comes = client._replace(life=client.life + 1, inside=True, epoch=0, joins=client.joins - 1)
            yield Step(f"{who} comes", _with(state, index, _asks(comes)), False)
        done = _carried_out(client)
        if done is not client:
            after = _with(state, index, done)
            _witness(after)
            yield Step(f"{who} carries out", after, True)
        if client.inside and client.epoch > 0 and client.question is None:
            yield self._leaves(state, index, client)

    def _of_timers(self, state: Any, group: Any) -> Iterator[Step]:
        alive = {c.member_id for c in state.clients if c.inside}
        for member in list(group.members.values()):
            dead = member.member_id not in alive
            owes = member.current.state is MemberState.UNREVOKED_TASKS and member.current.epoch > 0
            for kind, may in (("session", dead or state.faults), ("revocation", owes and state.faults)):
                if may:
                    cost = 0 if dead and kind == "session" else 1
                    after = self._decide(state, None, (kind, GROUP, member.member_id))[0]
                    what = f"{kind} of {member.member_id} ends"
                    yield Step(what, after._replace(faults=state.faults - cost), not cost)

    def _leaves(self, state: Any, index: int, client: Any) -> Step:
        epoch = -2 if client.static and client.joins else -1
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch,
            instance_id=client.name if client.static else None,
        )  # fmt: skip
        after, _ = self._decide(_with(state, index, client.gone()), request, None)
        return Step(f"{client.name} leaves ({epoch})", after, False)

    # --- the core ---

    def _decide(self, state: Any, request: Any, key: Any) -> tuple[Any, Any]:
        """What comes of a request, or of a timer. The same is decided once."""
        asked = self._of_group(state.group, int), state.group and state.group.epoch, state.made, state.without
        known = self._known.get((asked, request, key))
        if known is None:
            known = self._known[asked, request, key] = self._decided(state, request, key)
        group, answer = known
        after = state._replace(group=group)
        _witness(after)
        return after, answer

    def _decided(self, state: Any, request: Any, key: Any) -> tuple[Any, Any]:
        shard, before = GroupShard(), state.group
        topics = self.topics[state.made]
        config, group_configs = self.configs[state.without]
        if before is not None:
            shard.groups[GROUP] = before.copy()
        context = Context(
            NOW_MS, config, 1, 1, "client", "/host", ("fresh",), topics, group_configs, OFFERED
        )  # fmt: skip
        outcome = shard.expire(key, context) if request is None else shard.handle(request, context)
        for record in (*outcome.records, *outcome.soft_records):
            shard.replay(record)
        group: Any = shard.groups.get(GROUP)
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


def _with(state: Any, index: int, client: Client, *, fault: bool = False) -> Any:
    clients = (*state.clients[:index], client, *state.clients[index + 1 :])
    return state._replace(clients=clients, faults=state.faults - fault)


def _said(said: StreamsGroupHeartbeatRequest | StreamsGroupHeartbeatResponse) -> Held | None:
    """The tasks that are said in a heartbeat, or in its answer."""
    found = owned_by(said)
    return None if found is None else frozenset(found)


def _carried_out(client: Client) -> Client:
    """It has what it was told to have. While something that it said of its tasks is on its way, or was not
    answered, it only gives up: what it said without a task would be taken for giving that up again."""
    target, question = client.target, client.question
    if not client.inside or target is None:
        return client
    if client.says_all or (question is not None and question.active_tasks is not None):
        kept = client.held & target
        return client if kept == client.held else client._replace(held=kept, owes=True)
    return client._replace(held=target, target=None, owes=True)


def _asks(client: Client) -> Client:
    """The next heartbeat: all of it where an answer was lost, else what is new."""
    joins = client.epoch == 0
    says_tasks = client.says_all or joins or client.owes
    roles = [_rows(client.held, role) if says_tasks else None for role in Role]
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
    return client._replace(question=request, says_all=False, owes=False)


def _rows(held: Held, role: Role) -> tuple[TaskIds, ...]:
    told: dict[str, list[int]] = {}
    for _, name, partition in sorted(unit for unit in held if unit[0] is role):
        told.setdefault(name, []).append(partition)
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(some)) for name, some in told.items())


def _heard(client: Client) -> Client:
    answer = client.answer
    client = client._replace(answer=None)
    error = Errors(answer.error_code)
    if error in FENCED:
        return client._replace(epoch=0, held=NONE_HELD, target=None, says_all=True, owes=False)
    if error is not Errors.NONE:  # It stops; whoever started it may start it again.
        return client.gone()
    given, target, owes = _said(answer), client.target, client.owes
    if given is not None:
        target = given if given != client.held else None
        # It was told something else before and did not get to it: that it has what it should is news.
        owes = owes or (target is None and client.target is not None)
    return client._replace(epoch=answer.member_epoch, target=target, owes=owes)


def _witness(state: Any) -> None:
    """T1, T2, by what clients believe: who is a member runs nothing that the coordinator does not know of,
    and has no state open that another member of its process has."""
    group = state.group
    opened: dict[tuple[str, str, int], str] = {}
    for client in state.clients:
        member = group.members.get(client.member_id) if group is not None else None
        if member is None or not 0 < client.epoch <= member.current.epoch:
            continue
        more = {unit for unit in client.held - has(member) if unit[0] is Role.ACTIVE}
        if more:
            why = f"{client.name} runs {sorted(more)}, the coordinator knows of {sorted(has(member))}"
            raise InvariantViolation("NobodySharesATask", why)
        for _, name, partition in sorted(client.held):
            other = opened.setdefault((client.process, name, partition), client.name)
            if other != client.name:
                why = f"{other} and {client.name} of {client.process} have {name}_{partition}"
                raise InvariantViolation("NobodySharesATask", why)


__all__ = ["Client", "State", "Streams"]
