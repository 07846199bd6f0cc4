"""Model check of a small group with server-side assignment: the part that consumer, share and streams groups
have in common.

A state is the group, what each client believes, the messages between them, and the number of faults left.
From each state every transition is taken. A subclass defines a state, the decisions of the coordinator, and
the transitions that it adds to those of all clients: a client starts, sends a heartbeat, carries out its
assignment (takes or revokes what was assigned), leaves; a request arrives, a response arrives; as a fault,
either is lost.

Each decision is checked against the invariants of `konvene.sim.invariants`. After a complete search each
state must lead, without another fault, to one in which every member has its target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.shard import GroupShard
from konvene.sim.model_check.kernel import BreadthFirstSearch, Progress, Stop
from konvene.sim.model_check.report import SearchReport
from konvene.sim.world.event import InvariantViolation

GROUP = "g"
ORDERS = Uuid(b"orders".ljust(16, b"-"))
NOW_MS = 1_000_000
NAMES = "abcd"
"""Names of clients."""
FENCED = (Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID)


class ModelClient(Protocol):
    """`typing.Protocol` of the clients of all models, which are named tuples with at least these fields."""

    @property
    def name(self) -> str: ...

    @property
    def inside(self) -> bool: ...

    @property
    def epoch(self) -> int: ...

    @property
    def request(self) -> Struct | None: ...

    @property
    def response(self) -> object: ...

    @property
    def joins(self) -> int: ...

    def _replace(self, *, request: None = ..., response: None = ..., has_all_tags: bool = ...) -> Self: ...


class ModelState(Protocol):
    """`typing.Protocol` of the states of all models, which are named tuples with at least these fields."""

    @property
    def clients(self) -> tuple[Any, ...]: ...

    @property
    def faults(self) -> int: ...

    def _replace(self, *, clients: tuple[Any, ...] = ..., faults: int = ...) -> Self: ...


C = TypeVar("C", bound=ModelClient)
G = TypeVar("G")
S = TypeVar("S", bound=ModelState)


class Transition(NamedTuple, Generic[S]):
    """A transition of a model: its label, and the state after it."""

    label: str
    state: S
    spontaneous: bool
    """Whether the transition needs neither a fault nor the decision of a client to start or leave."""


class GroupModel(Generic[S, C]):
    """Base class of models with `members` clients, of which the first `static` are static members. Each
    client is started at most `joins` times, a static one once more; at most `faults` faults happen.

    Raises ValueError for impossible bounds."""

    invariants: tuple[type[object], ...] = ()
    begin: S
    """The first state."""

    def __init__(self, members: int, partitions: int, faults: int, static: int, joins: int) -> None:
        self.bounds = {
            "members": members, "partitions": partitions, "faults": faults, "static": static, "starts": joins,
        }  # fmt: skip
        if not 0 <= static <= members <= len(NAMES) or min(members, partitions, joins) < 1 or faults < 0:
            raise ValueError(f"no such model: {self.bounds}")

    # --- for subclasses ---

    def key(self, state: S) -> Hashable:
        """Return a key that is equal for states that behave alike; epochs in it are relative to the
        group's."""
        raise NotImplementedError

    def is_settled(self, state: S) -> bool:
        """Return True if every member has its target and no message is under way."""
        raise NotImplementedError

    def transitions(self, state: S) -> Iterator[Transition[S]]:
        """Yield all transitions of a state. Raises `InvariantViolation`."""
        raise NotImplementedError

    def decide(self, state: S, request: Struct) -> tuple[S, object]:
        """Return the state after the coordinator handled a request, and its response."""
        raise NotImplementedError

    def starts(self, client: C) -> C:
        """Return the client after its process started, ready to join with epoch 0; `sends` then sends its
        heartbeat."""
        raise NotImplementedError

    def sends(self, client: C) -> C:
        """Return the client with its next heartbeat as the request under way."""
        raise NotImplementedError

    def receives(self, client: C) -> C:
        """Return the client after it handled the response that has reached it."""
        raise NotImplementedError

    def client_faults(self, state: S, index: int, client: C) -> Iterator[Transition[S]]:
        """Yield the transitions in which the client itself fails; by default there are none."""
        yield from ()

    def carries_out(self, state: S, index: int, client: C) -> Iterator[Transition[S]]:
        """Yield the transitions in which a client takes or revokes what was assigned to it; by default there
        are none."""
        yield from ()

    def leaves(self, state: S, index: int, client: C) -> Transition[S]:
        """Return the transition in which a member leaves the group."""
        raise NotImplementedError

    # --- searching ---

    def search(
        self, limit: int | None = 1_000_000, *, depth: int | None = None, stop: Stop | None = None,
        progress: Progress | None = None,
    ) -> SearchReport:  # fmt: skip
        """Search all states until the first violation, or until `stop` returns True.

        At most `limit` states are expanded, and only those that are reached by fewer than `depth`
        transitions."""
        report = SearchReport(dict(self.bounds), tuple(invariant.__name__ for invariant in self.invariants))
        began_s = time.perf_counter()
        try:
            self._search(report, limit, depth, stop, progress)
        finally:
            report.seconds = time.perf_counter() - began_s
        return report

    def _search(
        self, report: SearchReport, limit: int | None, depth: int | None, stop: Stop | None,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        found = BreadthFirstSearch(self.begin, self.key(self.begin))
        labels = [""]
        settled: list[int] = []

        def expand(number: int, state: S) -> None:
            report.states += 1
            report.depth = found.depths[number]
            if self.is_settled(state):
                settled.append(number)
            for transition in self.transitions(state):
                report.steps += 1
                after = transition.state
                is_new = found.visit(
                    number, after, self.key(after), spontaneous=transition.spontaneous
                )[1]  # fmt: skip
                if is_new:
                    labels.append(transition.label)

        def path(number: int) -> tuple[str, ...]:
            return tuple(labels[number] for number in found.path_to(number)[1:])

        try:
            found.run(expand, limit=limit, depth=depth, stop=stop, progress=progress)
        except InvariantViolation as violation:
            report.violated, report.path = violation, path(found.expanded - 1)
            return
        report.left, report.settled = found.left, len(settled)
        if not report.left:
            stuck = found.leading_to(settled).find(0)
            if stuck >= 0:
                report.stuck = path(stuck)

    # --- clients ---

    def client_transitions(self, state: S, index: int, client: C) -> Iterator[Transition[S]]:
        """Yield the transitions of one client: what it does next, and the loss of its request or response."""
        name = client.name
        yield from self.client_faults(state, index, client)
        if client.response is not None:
            received = with_client(state, index, self.receives(client))
            yield Transition(f"{name} receives the response", received, True)
            if state.faults:
                lost = client._replace(response=None, has_all_tags=True)
                lost_state = with_client(state, index, lost, fault=True)
                yield Transition(f"{name} loses a response", lost_state, False)
            return
        if client.request is not None:
            after, answer = self.decide(state, client.request)
            answered = after.clients[index]._replace(request=None, response=answer)
            yield Transition(f"the heartbeat of {name} arrives", with_client(after, index, answered), True)
            if state.faults:
                lost = client._replace(request=None, has_all_tags=True)
                lost_state = with_client(state, index, lost, fault=True)
                yield Transition(f"{name} loses a request", lost_state, False)
        elif client.inside:
            yield Transition(f"{name} sends a heartbeat", with_client(state, index, self.sends(client)), True)
        elif client.joins:
            started = self.sends(self.starts(client))
            yield Transition(f"{name} starts", with_client(state, index, started), False)
        yield from self.carries_out(state, index, client)
        if client.inside and client.epoch > 0 and client.request is None:
            yield self.leaves(state, index, client)


def with_client(state: S, index: int, client: ModelClient, *, fault: bool = False) -> S:
    """Return the state with one client replaced and, if the transition is a `fault`, one fault less to
    spend."""
    clients = (*state.clients[:index], client, *state.clients[index + 1 :])
    return state._replace(clients=clients, faults=state.faults - fault)


def without_messages(clients: tuple[C, ...]) -> tuple[C, ...]:
    """Return the clients after their connections to the coordinator were lost, with all requests and
    responses."""
    return tuple(c._replace(request=None, response=None, has_all_tags=True) for c in clients)


def group_in(shard: GroupShard, group_type: type[G]) -> G | None:
    """Return the group of the model as `shard` has it; None if it does not exist."""
    group = shard.groups.get(GROUP)
    assert group is None or isinstance(group, group_type), f"{group!r} is no {group_type.__name__}"
    return group


def relative_to(base: int) -> Callable[[int], int]:
    """Return a function that replaces a positive epoch by one that depends only on its distance from `base`,
    and keeps 0 and negative epochs (joining, leaving)."""

    def relative(epoch: int) -> int:
        return epoch - base - 10 if epoch > 0 else epoch

    return relative
