"""All that can happen to a small consumer group: breadth-first, on the real core.

A state is the group, what each client believes, what is on its way between them, how many faults are left.
From each state every step is taken: a client joins, beats, carries out what it was told, leaves; a question
arrives, an answer is heard; and as faults, either is lost, a session ends under a client that lives, a member
is too slow to give something up, the coordinator begins again from its log. A topic may grow once.

Names and times are left out: epochs count from the group's own, so that a group which comes back to where it
was is the same one. Each step is held against the invariants of `sim.invariants`, and against what clients
believe: nobody believes to own what the coordinator would give to another. When the search is over, from
every state one is reached, without another fault, in which everybody who is in has what it should.

Of three members there are too many states to tell apart who is who. There the dynamic ones stand for one
another: states that differ by their names are one, and partitions are given by `in_turn`, which knows members
by their order in the group alone (the assignors that serve look at names, and are tried with two). Where that
is too much still, a search ends at a depth: then it has seen all that can happen in so many steps.

Simpler than its neighbour for classic groups: no disk that is late, no commits, no members by another's name.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED, Assignor
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.group import ConsumerGroup, SoftState
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.shard.contract import Context
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants import observer
from konvene.sim.invariants.consumer.decisions import (
    AnswersAreTheTruth,
    HeartbeatsAreJudged,
    MembersMoveWhenTheyHaveLetGo,
    NothingIsTakenUnheard,
)
from konvene.sim.invariants.consumer.state import (
    EmptyGroupsAreAssigned,
    EpochsAreInOrder,
    NamesAreMembers,
    PartitionsHaveOneOwner,
    StableMeansDone,
    has,
)
from konvene.sim.invariants.consumer.targets import EpochsMoveOnce, TargetsAreWhole, TheHashIsOfTheTopics
from konvene.sim.model_check.report import Found
from konvene.sim.model_check.symmetric_assignor import in_turn
from konvene.sim.world.event import Event, Invariant, InvariantViolation, View

GROUP = "g"
ORDERS = Uuid(b"orders".ljust(16, b"-"))
NOW_MS = 1_000_000
INVARIANTS = (
    PartitionsHaveOneOwner, EpochsAreInOrder, EmptyGroupsAreAssigned, StableMeansDone, NamesAreMembers,
    HeartbeatsAreJudged, AnswersAreTheTruth, NothingIsTakenUnheard, MembersMoveWhenTheyHaveLetGo,
    TargetsAreWhole, EpochsMoveOnce, TheHashIsOfTheTopics,
)  # fmt: skip
FENCED = (Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID)
TELL_EVERY = 2_000
"""After how many states `progress` is called."""

Progress = Callable[[int, int, int], None]
"""Is told states looked at, states found, and how deep the search is."""

NAMES = "abcd"

Held = frozenset[int]
"""Partitions of the one topic."""


class Client(NamedTuple):
    """What a client believes. Epochs of a state's key count from the group's."""

    name: str
    static: bool = False
    life: int = 0
    """A static one comes back as somebody else: its lives go by turns."""
    inside: bool = False
    epoch: int = -1
    held: Held = frozenset()
    target: Held | None = None
    says_all: bool = True
    owes: bool = False
    """Whether it has carried out something that the coordinator has not heard of."""
    question: ConsumerGroupHeartbeatRequest | None = None
    answer: ConsumerGroupHeartbeatResponse | None = None
    joins: int = 1
    """How often it will still come."""

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.life % 2}" if self.static else self.name


class State(NamedTuple):
    """All that there is."""

    group: ConsumerGroup | None
    clients: tuple[Client, ...]
    grown: bool
    faults: int


class Step(NamedTuple):
    """What happens, and what comes of it. Nobody has to wait for a fault, or for somebody to come or go."""

    what: str
    state: State
    by_itself: bool


class Consumers:
    """A small world: so many clients, of which the first ones are static, and partitions. Each comes so
    often, a static one once more; `alike`: dynamic ones stand for one another, as they do where there are
    three.

    Raises ValueError for bounds that make no world."""

    invariants: tuple[type[Invariant], ...] = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 2, faults: int = 1, *, static: int = 0, joins: int = 1,
        alike: bool | None = None,
    ) -> None:  # fmt: skip
        self.bounds = {
            "members": members, "partitions": partitions, "faults": faults, "static": static, "starts": joins,
        }  # fmt: skip
        if not 0 <= static <= members <= len(NAMES) or min(members, partitions, joins) < 1 or faults < 0:
            raise ValueError(f"there is no such model: {self.bounds}")
        self.begin = State(
            None,
            tuple(
                Client(name, n < static, joins=joins + (n < static)) for n, name in enumerate(NAMES[:members])
            ),
            False,
            faults,
        )
        self.alike = members - static > 2 if alike is None else alike
        self.assignors = {"uniform": Assignor("uniform", in_turn)} if self.alike else OFFERED
        self.topics = tuple(Topics([Topic("orders", ORDERS, partitions + more)]) for more in (0, 1))
        self.config, _ = BrokerConfig.load(overrides=[("group.consumer.assignment.interval.ms", "0")])
        self.group_configs = GroupConfigs(self.config)
        self.check_event = observer([invariant() for invariant in INVARIANTS])

    # --- searching ---

    def search(
        self, limit: int | None = 1_000_000, *, depth: int | None = None, progress: Progress | None = None
    ) -> Found:
        """Every state, the near ones first, up to so many, and so many steps away. Ends with the first
        invariant that is violated."""
        found = Found(dict(self.bounds), tuple(invariant.__name__ for invariant in self.invariants))
        began_s = time.perf_counter()
        try:
            self._search(found, limit, depth, progress)
        finally:
            found.seconds = time.perf_counter() - began_s
        return found

    def _search(self, found: Found, limit: int | None, depth: int | None, progress: Progress | None) -> None:
        numbers: dict[Any, int] = {self.key(self.begin): 0}
        came: list[tuple[int, str]] = [(-1, "")]
        back: list[list[int]] = [[]]
        settled: list[int] = []
        queue = deque([(0, 0, self.begin)])
        while queue:
            number, far, state = queue[0]
            if found.states == limit or far == depth:
                found.left = len(queue)
                break
            queue.popleft()
            found.states += 1
            found.depth = far
            if progress is not None and found.states % TELL_EVERY == 0:
                progress(found.states, len(came), far)
            if self.is_settled(state):
                settled.append(number)
            steps = self.steps(state)
            while True:
                try:
                    step = next(steps, None)
                except InvariantViolation as broken:
                    found.broken, found.path = broken, self._path(came, number)
                    return
                if step is None:
                    break
                found.steps += 1
                key = self.key(step.state)
                then = numbers.get(key)
                if then is None:
                    then = numbers[key] = len(came)
                    came.append((number, step.what))
                    back.append([])
                    queue.append((then, far + 1, step.state))
                if step.by_itself:
                    back[then].append(number)
        found.settled = len(settled)
        if not found.left:
            self._progress(found, settled, came, back)

    def _progress(
        self, found: Found, settled: list[int], came: list[tuple[int, str]], back: list[list[int]]
    ) -> None:
        """From where a settled state is reached by itself, walking back from those."""
        good = bytearray(len(came))
        todo = list(settled)
        for number in settled:
            good[number] = 1
        while todo:
            for before in back[todo.pop()]:
                if not good[before]:
                    good[before] = 1
                    todo.append(before)
        stuck = good.find(0)
        if stuck >= 0:
            found.stuck = self._path(came, stuck)

    def _path(self, came: list[tuple[int, str]], number: int) -> tuple[str, ...]:
        path = []
        while number > 0:
            number, what = came[number]
            path.append(what)
        return tuple(reversed(path))

    def key(self, state: State) -> Any:
        """The same for states that differ by what nobody can tell."""
        group, base = state.group, state.group.epoch if state.group is not None else 0

        def since(epoch: int) -> int:
            return epoch - base - 10 if epoch > 0 else epoch

        clients = [
            (
                *c[1:4], since(c.epoch), *c[5:9], c.joins,
                c.question and (since(c.question.member_epoch), c.question.topic_partitions,
                                c.question.rebalance_timeout_ms),
                c.answer and (c.answer.error_code, since(c.answer.member_epoch), c.answer.assignment),
            )
            for c in state.clients
        ]  # fmt: skip
        names = {c.member_id: c.member_id for c in state.clients}
        if self.alike:
            order = self._order(state, clients)
            clients = [clients[n] for n in order]
            dynamic = [n for n in order if not state.clients[n].static]
            names |= {state.clients[n].name: f"dynamic {place}" for place, n in enumerate(dynamic)}
        told = None
        if group is not None:
            told = (
                group.assignment_epoch - base,
                group.soft.seen is not None and self.topics.index(group.soft.seen),
                tuple(
                    sorted(
                        (names.get(i, i), tuple(sorted(t.get(ORDERS, ())))) for i, t in group.targets.items()
                    )
                ),
                group.metadata_hash,
                tuple(
                    (names.get(m.member_id, m.member_id), m.current.state.value, since(m.current.epoch),
                     since(m.current.previous_epoch), tuple(sorted(m.current.assigned.get(ORDERS, ()))),
                     tuple(sorted(m.current.pending_revocation.get(ORDERS, ()))))
                    for m in group.members.values()
                ),
            )  # fmt: skip
        return told, tuple(clients), state.grown, state.faults

    @staticmethod
    def _order(state: State, clients: list[Any]) -> list[int]:
        """Static clients where they are; dynamic ones as they stand in the group, then by what they do. Who
        is left is alike in everything."""
        places = {} if state.group is None else {name: n for n, name in enumerate(state.group.members)}

        def rank(n: int) -> Any:
            client = state.clients[n]
            if client.static:
                return (0, n, "")
            return (1, places.get(client.name, len(places)), repr(clients[n]))

        return sorted(range(len(clients)), key=rank)

    def is_settled(self, state: State) -> bool:
        """Whether all who are in have what they should, and nothing is on its way."""
        inside = [c for c in state.clients if c.inside or c.question or c.answer]
        group = state.group
        if group is None:
            return not inside
        if any(c.question or c.answer or c.owes or c.target is not None for c in inside):
            return False
        if group.members.keys() != {c.member_id for c in inside}:
            return False
        counts = self.topics[state.grown].by_name["orders"].partitions
        owned = [p for c in inside for p in c.held]
        everything = sorted(owned) == list(range(counts)) or not inside
        return everything and all(c.epoch == group.epoch for c in inside)

    # --- what can happen ---

    def steps(self, state: State) -> Iterator[Step]:
        """All that can happen next. Raises `InvariantViolation`."""
        for index, client in enumerate(state.clients):
            yield from self._of_client(state, index, client)
        if not state.grown:
            yield Step("orders grows", state._replace(grown=True), False)
        group = state.group
        if group is not None:
            yield from self._of_timers(state, group)
            if state.faults:
                fresh = group.copy()
                fresh.soft, fresh.reached_ms = SoftState(), {}
                clients = tuple(c._replace(question=None, answer=None, says_all=True) for c in state.clients)
                yield Step(
                    "the coordinator begins again",
                    State(fresh, clients, state.grown, state.faults - 1),
                    False,
                )

    def _of_client(self, state: State, index: int, client: Client) -> Iterator[Step]:
        who = client.name
        if client.answer is not None:
            yield Step(f"{who} hears", _with(state, index, _heard(client)), True)
            if state.faults:
                lost = client._replace(answer=None, says_all=True)
                yield Step(f"{who} loses an answer", _with(state, index, lost, fault=True), False)
            return
        if client.question is not None:
            yield self._arrives(state, index, client)
            if state.faults:
                lost = client._replace(question=None, says_all=True)
                yield Step(f"{who} loses a question", _with(state, index, lost, fault=True), False)
        elif client.inside:
            yield Step(f"{who} asks", _with(state, index, _asks(client)), True)
        elif client.joins:
            life = client.life + 1
            comes = client._replace(life=life, inside=True, epoch=0, joins=client.joins - 1, says_all=True)
            yield Step(f"{who} comes", _with(state, index, _asks(comes)), False)
        if client.inside and client.target is not None and _may_carry_out(client):
            done = client._replace(held=client.target, target=None, owes=True)
            yield Step(f"{who} carries out", _with(state, index, done), True)
        if client.inside and client.epoch > 0 and client.question is None:
            yield self._leaves(state, index, client)

    def _of_timers(self, state: State, group: ConsumerGroup) -> Iterator[Step]:
        alive = {c.member_id for c in state.clients if c.inside}
        for member in list(group.members.values()):
            dead = member.member_id not in alive
            owes = member.current.state is MemberState.UNREVOKED_PARTITIONS
            for kind, may in (("session", dead or state.faults), ("revocation", owes and state.faults)):
                if may:
                    cost = 0 if dead and kind == "session" else 1
                    after = self._decide(state, None, (kind, GROUP, member.member_id))[0]
                    what = f"{kind} of {member.member_id} ends"
                    yield Step(what, after._replace(faults=state.faults - cost), not cost)

    def _arrives(self, state: State, index: int, client: Client) -> Step:
        after, answer = self._decide(state, client.question, None)
        done = after.clients[index]._replace(question=None, answer=answer)
        return Step(f"{client.name} arrives", _with(after, index, done), True)

    def _leaves(self, state: State, index: int, client: Client) -> Step:
        epoch = -2 if client.static and client.joins else -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch,
            instance_id=client.name if client.static else None,
        )  # fmt: skip
        gone = Client(client.name, client.static, client.life, joins=client.joins)
        after, _ = self._decide(_with(state, index, gone), request, None)
        return Step(f"{client.name} leaves ({epoch})", after, False)

    # --- the core ---

    def _decide(self, state: State, request: Any, key: Any) -> tuple[State, Any]:
        shard = GroupShard()
        before = state.group
        topics = self.topics[state.grown]
        if before is not None:
            shard.groups[GROUP] = before.copy()
        context = Context(
            NOW_MS,
            self.config,
            1,
            1,
            "client",
            "/host",
            ("fresh",),
            topics,
            self.group_configs,
            self.assignors,
        )
        refused = None
        try:
            outcome = shard.expire(key, context) if request is None else shard.handle(request, context)
        except GroupError as error:
            outcome, refused = None, error.error
        for record in (*outcome.records, *outcome.soft_records) if outcome is not None else ():
            shard.replay(record)
        group: Any = shard.groups.get(GROUP)
        answer = refused if outcome is None else next((r.response for r in outcome.replies), None)
        event = Event(
            "timer" if request is None else "request",
            SimpleNamespace(topics=topics),  # type: ignore[arg-type]
            View({} if before is None else {GROUP: before}, {}),
            View({} if group is None else {GROUP: group}, {}),
            changed=outcome is not None and bool(outcome.records),
            api="" if request is None else "ConsumerGroupHeartbeat",
            request=request, version=1, context=context, waiter=1, key=key, outcome=outcome, answer=answer,
        )  # fmt: skip
        self.check_event(event)
        after = state._replace(group=group)
        _witness(after)
        return after, answer


def _with(state: State, index: int, client: Client, *, fault: bool = False) -> State:
    clients = (*state.clients[:index], client, *state.clients[index + 1 :])
    return state._replace(clients=clients, faults=state.faults - fault)


def _may_carry_out(client: Client) -> bool:
    """A careful client takes nothing while what it said of itself is on its way, or was not answered.

    One that does may come to share a partition: what it said without it is taken for giving it up, where it
    is to be another's by now. Kafka's Java consumer may; the protocol has no word for it."""
    question = client.question
    takes = client.target is not None and not client.target <= client.held
    unheard = client.says_all or (question is not None and question.topic_partitions is not None)
    return not (takes and unheard)


def _asks(client: Client) -> Client:
    """The next heartbeat: all of it where an answer was lost, else what is new."""
    joins, everything = client.epoch == 0, client.says_all or client.epoch == 0
    owned = None
    if everything or client.owes:
        owned = (
            (TopicPartitions(topic_id=ORDERS, partitions=tuple(sorted(client.held))),) if client.held else ()
        )
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=client.member_id,
        member_epoch=client.epoch,
        instance_id=client.name if client.static else None,
        rebalance_timeout_ms=30_000 if everything else -1,
        subscribed_topic_names=("orders",) if everything else None,
        topic_partitions=() if joins else owned,
    )
    return client._replace(question=request, says_all=False, owes=False)


def _heard(client: Client) -> Client:
    answer: Any = client.answer
    client = client._replace(answer=None)
    error = answer if isinstance(answer, Errors) else Errors(answer.error_code)
    if error in FENCED:
        return client._replace(epoch=0, held=frozenset(), target=None, says_all=True, owes=False)
    if error is not Errors.NONE:  # It stops; whoever started it may start it again.
        return Client(client.name, client.static, client.life, joins=client.joins)
    told = answer.assignment
    target, owes = client.target, client.owes
    if told is not None:
        given = frozenset(p for t in told.topic_partitions for p in t.partitions)
        target = given if given != client.held else None
        # It was told something else before and did not get to it: that it has what it should is news.
        owes = owes or (target is None and client.target is not None)
    return client._replace(epoch=answer.member_epoch, target=target, owes=owes)


def _witness(state: State) -> None:
    """M1, by what clients believe: who is a member owns nothing that the coordinator does not know of."""
    group = state.group
    for client in state.clients:
        member = group.members.get(client.member_id) if group is not None else None
        if member is None or not 0 < client.epoch <= member.current.epoch:
            continue
        known = {p for _, p in has(member)}
        more = client.held - known
        if more:
            why = f"{client.name} owns {sorted(more)}, the coordinator knows of {sorted(known)}"
            raise InvariantViolation("NobodySharesAPartition", why)


__all__ = ["Client", "Consumers", "Found", "State", "Step"]
