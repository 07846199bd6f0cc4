"""Symmetry reduction: one canonical state for all states that differ in names only.

Names are the numbers of clients, member ids and the generation. The core only compares them for equality, so
the search needs one state of each equivalence class:

    generations   are shifted so that the generation of the group is `GENERATION`
    member ids    are numbered in the order of their first use: in the group, in the log, by the clients in
                  their order, then unused ones
    clients       dynamic clients are interchangeable, and so are static ones; the order whose state compares
                  smallest is canonical. Most states need a single order, because the clients already differ
                  in their signature: phase, position in the group, message under way
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, permutations, product
from typing import Any

from konvene.sim.model_check.values import (
    COMMIT,
    HEARTBEAT,
    JOIN,
    NO_RESPONSE,
    NO_WAITER,
    SYNC,
    Client,
    Coordinator,
    Group,
    Message,
    State,
    members_in,
)

GENERATION = 10
"""Generation of the group in a canonical state."""

Order = tuple[int, ...]
"""Old numbers of the clients, in their new order."""


class Canonicalizer:
    """A mapping of states to canonical ones. The clients with the numbers 1 to `static` are static
    members."""

    def __init__(self, static: int) -> None:
        self.static = static
        self._coordinators: dict[tuple[Coordinator, Order, tuple[int, ...]], Coordinator] = {}

    def canonical(self, state: State) -> State:
        """Return the representative of all states that differ from this one in names only."""
        orders = list(self._orders(state))
        if len(orders) == 1:
            return self._renamed(state, orders[0])
        return min((self._renamed(state, order) for order in orders), key=_key)

    def _orders(self, state: State) -> Iterator[Order]:
        """Yield the orders of clients of which one is canonical: sorted by signature, with each permutation
        of clients of equal signature."""
        group = state.coordinator.group
        indexes = {member.member: index for index, member in enumerate(group.members)} if group else {}
        signatures = [
            (number > self.static, _signature(client, indexes), number)
            for number, client in enumerate(state.clients, 1)
        ]
        signatures.sort()
        classes = [[n for *_, n in equal] for _, equal in groupby(signatures, key=lambda row: row[:2])]
        if len(classes) == len(signatures):
            yield tuple(numbers[0] for numbers in classes)
            return
        for chosen in product(*(permutations(numbers) for numbers in classes)):
            yield tuple(number for numbers in chosen for number in numbers)

    def _renamed(self, state: State, order: Order) -> State:
        ids = tuple(_member_ids(state, order))
        coordinator = state.coordinator
        key = (coordinator, order, ids)
        renamed = self._coordinators.get(key)
        client_names = {old: new for new, old in enumerate(order, 1)}
        member_names = {old: new for new, old in enumerate(ids, 1)}
        member_names[0] = 0
        shift = GENERATION - coordinator.group.generation if coordinator.group else 0
        renaming = _Renaming(client_names, member_names, shift, self.static)
        if renamed is None:
            renamed = self._coordinators[key] = renaming.coordinator(coordinator)
        clients = tuple(renaming.client(state.clients[old - 1]) for old in order)
        delayed = tuple(sorted(map(renaming.request, state.delayed))) if state.delayed else ()
        return State(renamed, clients, delayed, state.faults)


def _key(state: State) -> tuple[tuple[Client, ...], Coordinator, tuple[Message, ...]]:
    return state.clients, state.coordinator, state.delayed


def _signature(client: Client, indexes: dict[int, int]) -> tuple[object, ...]:
    """Return what distinguishes a client without its names. `indexes` is the position of each member id in
    the group."""
    kind = client.exchange[0] if client.exchange else ""
    message: Any = client.exchange[1] if client.exchange else 0
    index = indexes.get(client.member, -2 if client.member else -1)
    api = message if kind in ("", "waiting") else message[0] * 1000 + message[1] * (kind == "response")
    return client.phase, index, client.owned, client.positions, client.starts_left, kind, api


def _member_ids(state: State, order: Order) -> Iterable[int]:
    """Return the member ids of a state in the order of their first use."""
    coordinator = state.coordinator
    group, stored = coordinator.group, coordinator.stored
    found: dict[int, None] = {}
    for member in group.members if group else ():
        found[member.member] = None
    for member_id, _, _ in stored.members if stored else ():
        found[member_id] = None
    for number in order:
        client = state.clients[number - 1]
        found[client.member] = None
        if client.exchange and client.exchange[0] != "waiting":
            found.update(dict.fromkeys(members_in(*client.exchange)))
    for request in state.delayed:
        found.update(dict.fromkeys(members_in("request", request)))
    found.update(dict.fromkeys(group.pending_joins if group else ()))
    found.update(dict.fromkeys(coordinator.sessions))
    found.update(dict.fromkeys(member_id for _, member_id, _ in coordinator.leader_assignment))
    found.pop(0, None)
    return found


class _Renaming:
    """A renaming: it replaces the numbers of clients and members in values, and shifts generations."""

    def __init__(self, clients: dict[int, int], members: dict[int, int], shift: int, static: int) -> None:
        self.clients = clients
        self.members = members
        self.shift = shift
        self.instances = {old: new for old, new in clients.items() if old <= static}
        self.instances[0] = 0
        self.waiters = {**clients, 0: 0, NO_WAITER: NO_WAITER}

    def generation(self, generation: int) -> int:
        return generation + self.shift if generation >= 0 else generation

    def client(self, old: Client) -> Client:
        exchange = old.exchange
        if exchange and exchange[0] == "request":
            exchange = ("request", self.request(exchange[1]))
        elif exchange and exchange[0] == "response":
            exchange = ("response", self.response(exchange[1]))
        member, generation = self.members[old.member], self.generation(old.generation)
        return Client(old.phase, member, generation, old.owned, old.positions, old.starts_left, exchange)

    def request(self, request: Message) -> Message:
        api, member, instance = request[:3]
        head = (api, self.members[member], self.instances[instance])
        if api in (HEARTBEAT, COMMIT):
            return (*head, self.generation(request[3]), *request[4:])
        if api == SYNC:
            assignments = tuple((self.members[m], self.instances[i], mask) for m, i, mask in request[4])
            return (*head, self.generation(request[3]), assignments)
        return head

    def response(self, response: Message) -> Message:
        if response[0] != JOIN or response[1] == NO_RESPONSE:
            return response
        api, error, member, generation, listed, skip = response
        listed = tuple((self.members[m], self.instances[i]) for m, i in listed)
        return (api, error, self.members[member], self.generation(generation), listed, skip)

    def coordinator(self, old: Coordinator) -> Coordinator:
        members, instances = self.members, self.instances
        stored = old.stored
        if stored:
            stored_members = tuple((members[m], instances[i], mask) for m, i, mask in stored.members)
            stored = stored._replace(
                generation=self.generation(stored.generation),
                leader=members[stored.leader],
                members=stored_members,
            )
        leader_assignment = tuple(
            sorted((instances[i], members[m], mask) for i, m, mask in old.leader_assignment)
        )
        return Coordinator(
            self.group(old.group) if old.group else (),
            stored,
            old.offsets,
            tuple(sorted(members[m] for m in old.sessions)),
            old.join_timer,
            old.sync_timer,
            leader_assignment,
            old.has_cause,
        )

    def group(self, old: Group) -> Group:
        members, instances, waiters = self.members, self.instances, self.waiters
        renamed = tuple(
            m._replace(
                member=members[m.member], instance=instances[m.instance],
                join_waiter=waiters[m.join_waiter], sync_waiter=waiters[m.sync_waiter],
            )
            for m in old.members
        )  # fmt: skip
        return old._replace(
            generation=GENERATION,
            leader=members[old.leader],
            members=renamed,
            pending_joins=tuple(sorted(members[m] for m in old.pending_joins)),
            pending_syncs=tuple(sorted(members[m] for m in old.pending_syncs)),
        )
