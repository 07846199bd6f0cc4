"""One state for all that differ by names only.

Names in a state are the numbers of clients and of member ids, and how high the generation is. The core looks
at none of them but to see whether they are the same, so a search needs one of each kind:

    generations   are moved so that the group's is `GENERATION`
    member ids    are numbered as they are met: first those in the group, then those in the log, then those
                  that the clients use, in their order, then those that nobody uses
    clients       dynamic ones stand for one another, and so do static ones; of all orders that is taken whose
                  state is the smallest. Most states need not try them: what is seen of a client without its
                  name (what it does, which seat it has) sorts them already
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, permutations, product
from typing import Any

from konvene.sim.model_check.values import (
    COMMIT,
    HEARTBEAT,
    JOIN,
    NO_WAITER,
    SILENCE,
    SYNC,
    Client,
    Coordinator,
    Group,
    State,
    Words,
    named,
)

GENERATION = 10
"""What the group's generation is called."""

Order = tuple[int, ...]
"""The old numbers of clients, in their new order."""


class Names:
    """Makes the one state of many. `static` clients are the first ones."""

    def __init__(self, static: int) -> None:
        self.static = static
        self._coordinators: dict[tuple[Coordinator, Order, tuple[int, ...]], Coordinator] = {}

    def canonical(self, state: State) -> State:
        """The state that stands for all that differ from this one by names only."""
        orders = list(self._orders(state))
        if len(orders) == 1:
            return self._renamed(state, orders[0])
        return min((self._renamed(state, order) for order in orders), key=_key)

    def _orders(self, state: State) -> Iterator[Order]:
        """The orders of clients of which one is the smallest: those who look alike are tried in each."""
        group = state.coordinator.group
        seats = {seat.member: at for at, seat in enumerate(group.seats)} if group else {}
        looks = [
            (number > self.static, _looks(client, seats), number)
            for number, client in enumerate(state.clients, 1)
        ]
        looks.sort()
        alike = [[n for *_, n in same] for _, same in groupby(looks, key=lambda row: row[:2])]
        if len(alike) == len(looks):
            yield tuple(numbers[0] for numbers in alike)
            return
        for chosen in product(*(permutations(numbers) for numbers in alike)):
            yield tuple(number for numbers in chosen for number in numbers)

    def _renamed(self, state: State, order: Order) -> State:
        ids = tuple(_ids(state, order))
        coordinator = state.coordinator
        key = (coordinator, order, ids)
        renamed = self._coordinators.get(key)
        client_names = {old: new for new, old in enumerate(order, 1)}
        member_names = {old: new for new, old in enumerate(ids, 1)}
        member_names[0] = 0
        shift = GENERATION - coordinator.group.generation if coordinator.group else 0
        to = _To(client_names, member_names, shift, self.static)
        if renamed is None:
            renamed = self._coordinators[key] = to.coordinator(coordinator)
        clients = tuple(to.client(state.clients[old - 1]) for old in order)
        late = tuple(sorted(to.asked(asked) for asked in state.late)) if state.late else ()
        return State(renamed, clients, late, state.faults)


def _key(state: State) -> Any:
    return state.clients, state.coordinator, state.late


def _looks(client: Client, seats: dict[int, int]) -> tuple[Any, ...]:
    """What is seen of a client without its name."""
    kind = client.slot[0] if client.slot else ""
    words: Any = client.slot[1] if client.slot else 0
    seat = seats.get(client.member, -2 if client.member else -1)
    api = words if kind in ("", "waits") else words[0] * 1000 + words[1] * (kind == "hears")
    return client.phase, seat, client.owned, client.at, client.lives, kind, api


def _ids(state: State, order: Order) -> Iterable[int]:
    """The member ids of a state, as they are met."""
    coordinator = state.coordinator
    group, stored = coordinator.group, coordinator.stored
    found: dict[int, None] = {}
    for seat in group.seats if group else ():
        found[seat.member] = None
    for member, _, _ in stored.seats if stored else ():
        found[member] = None
    for number in order:
        client = state.clients[number - 1]
        found[client.member] = None
        if client.slot and client.slot[0] != "waits":
            found.update(dict.fromkeys(named(*client.slot)))
    for asked in state.late:
        found.update(dict.fromkeys(named("asks", asked)))
    found.update(dict.fromkeys(group.handed_out if group else ()))
    found.update(dict.fromkeys(coordinator.sessions))
    found.update(dict.fromkeys(member for _, member, _ in coordinator.given))
    found.pop(0, None)
    return found


class _To:
    """From old names to new ones."""

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
        slot = old.slot
        if slot and slot[0] == "asks":
            slot = ("asks", self.asked(slot[1]))
        elif slot and slot[0] == "hears":
            slot = ("hears", self.told(slot[1]))
        member, generation = self.members[old.member], self.generation(old.generation)
        return Client(old.phase, member, generation, old.owned, old.at, old.lives, slot)

    def asked(self, asked: Words) -> Words:
        api, member, instance = asked[:3]
        new = (api, self.members[member], self.instances[instance])
        if api in (HEARTBEAT, COMMIT):
            return (*new, self.generation(asked[3]), *asked[4:])
        if api == SYNC:
            given = tuple((self.members[m], self.instances[i], g) for m, i, g in asked[4])
            return (*new, self.generation(asked[3]), given)
        return new

    def told(self, told: Words) -> Words:
        if told[0] != JOIN or told[1] == SILENCE:
            return told
        api, error, member, generation, listed, skip = told
        listed = tuple((self.members[m], self.instances[i]) for m, i in listed)
        return (api, error, self.members[member], self.generation(generation), listed, skip)

    def coordinator(self, old: Coordinator) -> Coordinator:
        members, instances = self.members, self.instances
        stored = old.stored
        if stored:
            seats = tuple((members[m], instances[i], g) for m, i, g in stored.seats)
            stored = stored._replace(
                generation=self.generation(stored.generation), leader=members[stored.leader], seats=seats
            )
        given = tuple(sorted((instances[i], members[m], g) for i, m, g in old.given))
        return Coordinator(
            self.group(old.group) if old.group else (),
            stored,
            old.offsets,
            tuple(sorted(members[m] for m in old.sessions)),
            old.join_timer,
            old.sync_timer,
            given,
            old.told,
        )

    def group(self, old: Group) -> Group:
        members, instances, waiters = self.members, self.instances, self.waiters
        seats = tuple(
            s._replace(
                member=members[s.member], instance=instances[s.instance],
                joins=waiters[s.joins], syncs=waiters[s.syncs],
            )
            for s in old.seats
        )  # fmt: skip
        return old._replace(
            generation=GENERATION,
            leader=members[old.leader],
            seats=seats,
            handed_out=tuple(sorted(members[m] for m in old.handed_out)),
            to_sync=tuple(sorted(members[m] for m in old.to_sync)),
        )
