"""Model check of a small consumer group: every interleaving, on the production code.

`GroupModel` has the search and the clients. As faults, a message is lost, a session expires while its client
lives, a member exceeds its rebalance timeout, the coordinator is loaded again from its log. The topic may
grow once.

Names and times are left out: epochs are relative to the group's, so a group that returns to its old shape is
the same state. Beside the invariants of `konvene.sim.invariants`, no client may believe to own a partition
that the coordinator could assign to another member.

With three members the search is too large without symmetry reduction. Dynamic members are then
interchangeable: states that differ only in their names are one, and partitions are assigned by
`assign_symmetrically`, which depends only on the order of members in the group (the production assignors sort
by name, and are checked with two members). Where even that is too large, the search ends at a depth.

Left out: a slow disk, commits, and clients that use the member id of another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.codec.schema import Struct
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
from konvene.shard.contract import Context, TimerKey
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics
from konvene.sim.invariants import observer
from konvene.sim.invariants.consumer.decisions import (
    HeartbeatErrorsAreExpected,
    HeartbeatResponsesAreCurrent,
    MembersAdvanceAfterRevocation,
    RevocationsAreConfirmed,
)
from konvene.sim.invariants.consumer.state import (
    EmptyGroupsHaveNoTargets,
    EpochsAreInOrder,
    IndexesMatchMembers,
    PartitionsHaveOneOwner,
    StableGroupsAreReconciled,
    owned_units,
)
from konvene.sim.invariants.consumer.targets import (
    EpochBumpsHaveACause,
    MetadataHashIsCurrent,
    TargetsAreComplete,
)
from konvene.sim.model_check.group_model import (
    FENCED,
    GROUP,
    NAMES,
    NOW_MS,
    ORDERS,
    GroupModel,
    Transition,
    group_in,
    relative_to,
    with_client,
    without_messages,
)
from konvene.sim.model_check.symmetric_assignor import assign_symmetrically
from konvene.sim.world.event import Event, InvariantViolation, View

INVARIANTS = (
    PartitionsHaveOneOwner, EpochsAreInOrder, EmptyGroupsHaveNoTargets, StableGroupsAreReconciled,
    IndexesMatchMembers, HeartbeatErrorsAreExpected, HeartbeatResponsesAreCurrent, RevocationsAreConfirmed,
    MembersAdvanceAfterRevocation, TargetsAreComplete, EpochBumpsHaveACause, MetadataHashIsCurrent,
)  # fmt: skip
Held = frozenset[int]
"""Partitions of the one topic."""


class Client(NamedTuple):
    """A client in the model: what it believes of its membership, and its request or response under way.
    `held` are the partitions it owns, `target` those of an assignment that it has not carried out yet."""

    name: str
    static: bool = False
    life: int = 0
    """How often it was started; a static member returns under another member id."""
    inside: bool = False
    epoch: int = -1
    held: Held = frozenset()
    target: Held | None = None
    has_all_tags: bool = True
    owes_report: bool = False
    """Whether it carried out something that it has not reported."""
    request: ConsumerGroupHeartbeatRequest | None = None
    response: ConsumerGroupHeartbeatResponse | None = None
    joins: int = 1
    """How often it may still be started."""

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.life % 2}" if self.static else self.name


class State(NamedTuple):
    """A state of the model: the group, its clients, whether the topic has got its additional partition, and
    how many faults may still happen."""

    group: ConsumerGroup | None
    clients: tuple[Client, ...]
    grown: bool
    faults: int


class ConsumerGroupModel(GroupModel[State, Client]):
    """The model of one consumer group. See `GroupModel` for the bounds. With `symmetric` states that differ
    only in the names of dynamic members are one state; by default that is used for more than two dynamic
    members."""

    invariants: tuple[type[object], ...] = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 2, faults: int = 1, *, static: int = 0, joins: int = 1,
        symmetric: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(members, partitions, faults, static, joins)
        self.begin = State(
            None,
            tuple(
                Client(name, n < static, joins=joins + (n < static)) for n, name in enumerate(NAMES[:members])
            ),
            False,
            faults,
        )
        self.symmetric = members - static > 2 if symmetric is None else symmetric
        self.assignors = {"uniform": Assignor("uniform", assign_symmetrically)} if self.symmetric else OFFERED
        self.topics = tuple(Topics([Topic("orders", ORDERS, partitions + more)]) for more in (0, 1))
        self.config, _ = BrokerConfig.load(overrides=[("group.consumer.assignment.interval.ms", "0")])
        self.group_configs = GroupConfigs(self.config)
        self.check_event = observer([invariant() for invariant in INVARIANTS])

    def key(self, state: State) -> Hashable:
        group, base = state.group, state.group.epoch if state.group is not None else 0
        since = relative_to(base)
        clients = [
            (
                *c[1:4], since(c.epoch), *c[5:9], c.joins,
                c.request and (since(c.request.member_epoch), c.request.topic_partitions,
                                c.request.rebalance_timeout_ms),
                c.response and (c.response.error_code, since(c.response.member_epoch), c.response.assignment),
            )
            for c in state.clients
        ]  # fmt: skip
        names = {c.member_id: c.member_id for c in state.clients}
        if self.symmetric:
            order = self._order(state, clients)
            clients = [clients[n] for n in order]
            dynamic = [n for n in order if not state.clients[n].static]
            names |= {state.clients[n].name: f"dynamic {position}" for position, n in enumerate(dynamic)}
        shape = None
        if group is not None:
            shape = (
                group.assignment_epoch - base,
                group.soft.hashed_topics is not None and self.topics.index(group.soft.hashed_topics),
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
        return shape, tuple(clients), state.grown, state.faults

    @staticmethod
    def _order(state: State, clients: Sequence[object]) -> list[int]:
        """Return the indexes of the clients in their canonical order: static clients by number, then dynamic
        ones in the order of the group's members, and those that are not members by their own state."""
        positions = {} if state.group is None else {name: n for n, name in enumerate(state.group.members)}

        def rank(n: int) -> tuple[int, int, str]:
            client = state.clients[n]
            if client.static:
                return (0, n, "")
            return (1, positions.get(client.name, len(positions)), repr(clients[n]))

        return sorted(range(len(clients)), key=rank)

    def is_settled(self, state: State) -> bool:
        inside = [c for c in state.clients if c.inside or c.request or c.response]
        group = state.group
        if group is None:
            return not inside
        if any(c.request or c.response or c.owes_report or c.target is not None for c in inside):
            return False
        if group.members.keys() != {c.member_id for c in inside}:
            return False
        counts = self.topics[state.grown].by_name["orders"].partitions
        owned = [p for c in inside for p in c.held]
        everything = sorted(owned) == list(range(counts)) or not inside
        return everything and all(c.epoch == group.epoch for c in inside)

    # --- transitions ---

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        for index, client in enumerate(state.clients):
            yield from self.client_transitions(state, index, client)
        if not state.grown:
            yield Transition("orders grows", state._replace(grown=True), False)
        group = state.group
        if group is not None:
            yield from self._timers(state, group)
            if state.faults:
                loaded = group.copy()
                loaded.soft, loaded.reached_ms = SoftState(), {}
                after = State(loaded, without_messages(state.clients), state.grown, state.faults - 1)
                yield Transition("the coordinator is loaded again", after, False)

    def starts(self, client: Client) -> Client:
        return client._replace(
            life=client.life + 1, inside=True, epoch=0, joins=client.joins - 1, has_all_tags=True
        )

    def sends(self, client: Client) -> Client:
        return _next_heartbeat(client)

    def receives(self, client: Client) -> Client:
        return _after_response(client)

    def carries_out(self, state: State, index: int, client: Client) -> Iterator[Transition[State]]:
        if client.inside and client.target is not None and _may_carry_out(client):
            done = client._replace(held=client.target, target=None, owes_report=True)
            yield Transition(f"{client.name} carries out", with_client(state, index, done), True)

    def _timers(self, state: State, group: ConsumerGroup) -> Iterator[Transition[State]]:
        alive = {c.member_id for c in state.clients if c.inside}
        for member in list(group.members.values()):
            dead = member.member_id not in alive
            is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
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
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch,
            instance_id=client.name if client.static else None,
        )  # fmt: skip
        left = Client(client.name, client.static, client.life, joins=client.joins)
        after, _ = self.decide(with_client(state, index, left), request)
        return Transition(f"{client.name} leaves ({epoch})", after, False)

    # --- the core ---

    def decide(
        self, state: State, request: Struct | None, key: TimerKey = ()
    ) -> tuple[State, Struct | Errors | None]:
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
        rejected = None
        try:
            outcome = shard.expire(key, context) if request is None else shard.handle(request, context)
        except GroupError as error:
            outcome, rejected = None, error.error
        for record in (*outcome.records, *outcome.soft_records) if outcome is not None else ():
            shard.replay(record)
        group = group_in(shard, ConsumerGroup)
        answer = rejected if outcome is None else next((r.response for r in outcome.replies), None)
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
        _check_owners(after)
        return after, answer


def _may_carry_out(client: Client) -> bool:
    """Return False if the client would take new partitions while a report of those that it owns is not
    acknowledged.

    Otherwise two members could own a partition: the earlier report lacks the new partition, so it counts as
    revoking it, and then another member may get it. Kafka's Java consumer has this race; the protocol cannot
    express it."""
    request = client.request
    takes = client.target is not None and not client.target <= client.held
    unacknowledged = client.has_all_tags or (request is not None and request.topic_partitions is not None)
    return not (takes and unacknowledged)


def _next_heartbeat(client: Client) -> Client:
    """Return the client with its next heartbeat as the request under way. It has all fields when the client
    joins or a response was lost, otherwise only those that changed."""
    joins, everything = client.epoch == 0, client.has_all_tags or client.epoch == 0
    owned = None
    if everything or client.owes_report:
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
    return client._replace(request=request, has_all_tags=False, owes_report=False)


def _after_response(client: Client) -> Client:
    answer: Any = client.response
    client = client._replace(response=None)
    error = answer if isinstance(answer, Errors) else Errors(answer.error_code)
    if error in FENCED:
        return client._replace(epoch=0, held=frozenset(), target=None, has_all_tags=True, owes_report=False)
    if error is not Errors.NONE:  # The client stops, and may be started again.
        return Client(client.name, client.static, client.life, joins=client.joins)
    assignment = answer.assignment
    target, owes_report = client.target, client.owes_report
    if assignment is not None:
        assigned = frozenset(p for t in assignment.topic_partitions for p in t.partitions)
        target = assigned if assigned != client.held else None
        # An assignment that it never carried out was withdrawn: it has to report what it owns.
        owes_report = owes_report or (target is None and client.target is not None)
    return client._replace(epoch=answer.member_epoch, target=target, owes_report=owes_report)


def _check_owners(state: State) -> None:
    """Check M1 for what clients believe: a member owns no partition that the coordinator does not count as
    owned by it."""
    group = state.group
    for client in state.clients:
        member = group.members.get(client.member_id) if group is not None else None
        if member is None or not 0 < client.epoch <= member.current.epoch:
            continue
        known = {p for _, p in owned_units(member)}
        unknown = client.held - known
        if unknown:
            why = f"{client.name} owns {sorted(unknown)}, the coordinator knows of {sorted(known)}"
            raise InvariantViolation("PartitionsAreExclusive", why)
