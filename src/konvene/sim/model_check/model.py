"""What can happen next: clients, what is under way, timers, and faults from a budget.

The model is one group of classic, eager consumers, dynamic and static, in front of one coordinator. Clients
keep to the protocol as `members.classic` does; they are values here. Each has one question at a time.

    a question    may arrive now or later; a heartbeat or a commit arrives when it is sent, for one that
                  arrives later is the same as one that is sent later
    an answer     may be heard now or later, and others go on meanwhile
    a LeaveGroup  is under way when its client is gone already, and may be overtaken by its client's next life
    a timer       is armed or it is not. It may ring at any moment, but not while somebody alive is about to
                  make it unnecessary: then it costs a fault, for somebody was too slow. So a session ends by
                  itself only for a member id that no client uses, a rebalance where nobody comes any more,
                  and the first one, which waits for its initial delay, at any moment

Faults: a request or an answer is lost, a connection breaks under a question that waits, a request arrives a
second time and late, a client dies (what it said last may still arrive) and may be started again, somebody is
too slow, the coordinator dies at any moment, and before or after the batch at hand is durable.

So every generation has a cause that is counted, in a start, a stop or a fault, and the space is finite. What
is not modelled: cooperative members, more than one group, changing subscriptions, compaction, time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from konvene.errors import Errors
from konvene.sim.model_check.core import Step, Steps
from konvene.sim.model_check.values import (
    COMMIT,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    NO_WAITER,
    NOBODY,
    NONE,
    SILENCE,
    SYNC,
    Client,
    Coordinator,
    Seat,
    State,
    Words,
    named,
)
from konvene.sim.world.event import InvariantViolation

LOST = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION)
RETRIED = (
    SILENCE, Errors.REBALANCE_IN_PROGRESS, Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.UNKNOWN_SERVER_ERROR,
)  # fmt: skip


class Move(NamedTuple):
    """A transition. `who` is a client's number, or a member's for a timer, or 0."""

    what: str
    who: int
    said: Words
    state: State
    fault: bool = False
    spontaneous: bool = True
    """Whether it happens by itself: nobody has to want it, and nothing has to break."""


class Model(NamedTuple):
    """The bounds of a model, and its moves."""

    members: int
    partitions: int
    faults: int
    static: int
    starts: int
    """How often a dynamic client may be started; a static one may once more."""
    records: int
    """How far a partition may be read and committed."""
    steps: Steps

    def first(self) -> State:
        """Nobody is there, and the log is empty."""
        clients = tuple(_gone(self.starts + (number <= self.static)) for number in range(1, self.members + 1))
        return State(self.steps.nothing(), clients, (), self.faults)

    def moves(self, state: State) -> Iterator[Move]:
        """All that can happen in a state."""
        for number, client in enumerate(state.clients, 1):
            kind = client.slot[0] if client.slot else ""
            if kind == "asks":
                yield from self._arrivals(state, number, client.slot[1])
            elif kind == "hears":
                yield self._hears(state, number, client)
            elif client.phase == "gone":
                if client.lives:
                    yield self._starts(state, number, client)
            elif not kind:
                yield from self._wishes(state, number, client)
            if state.faults and client.phase != "gone":
                yield from self._client_faults(state, number, client, kind)
        yield from self._late(state)
        yield from self._timers(state)
        if state.faults:
            yield from self._coordinator_dies(state)

    # --- requests --------------------------------------------------------------------------------

    def _arrivals(self, state: State, number: int, asked: Words) -> Iterator[Move]:
        step = self._ask(state, asked, number)
        yield Move("is heard", number, asked, _after(state, step, number, asked))
        if state.faults:
            if step.wrote:
                yield from self._dies_at(state, step, number, asked)
            late = _spend(state)._replace(late=(*state.late, asked))
            twice = _after(late, step, number, asked)
            yield Move("is heard, and again later", number, asked, twice, fault=True)

    def _ask(self, state: State, asked: Words, number: int, *, late: bool = False) -> Step:
        before = state.coordinator
        step = self.steps.ask(before, asked, number, fresh(state))
        if not late:
            pairs = zip(before.offsets, step.after.offsets, strict=True)
            back = [p for p, (old, new) in enumerate(pairs) if new < old]
            if back:
                told = f"partition {back[0]}: {before.offsets}, now {step.after.offsets}"
                raise InvariantViolation("CommitsDoNotGoBack", told)
        return step

    def _late(self, state: State) -> Iterator[Move]:
        for at, asked in enumerate(state.late):
            if asked not in state.late[:at]:
                rest = state._replace(late=state.late[:at] + state.late[at + 1 :])
                step = self._ask(state, asked, NOBODY, late=True)
                yield Move("heard late", 0, asked, _after(rest, step, 0, asked))

    # --- what clients want -----------------------------------------------------------------------

    def _instance(self, number: int) -> int:
        return number if number <= self.static else 0

    def _join(self, number: int, client: Client) -> Client:
        """Ask to be in the next generation: an eager member has given up all it had."""
        asked = (JOIN, client.member, self._instance(number))
        return Client("joining", client.member, -1, 0, (), client.lives, ("asks", asked))

    def _starts(self, state: State, number: int, client: Client) -> Move:
        client = self._join(number, client._replace(lives=client.lives - 1))
        return Move("starts", number, (), _set(state, number, client), spontaneous=False)

    def _wishes(self, state: State, number: int, client: Client) -> Iterator[Move]:
        """A member with nothing to wait for sends a heartbeat, commits, or stops."""
        own = (client.member, self._instance(number), client.generation)
        beat = (HEARTBEAT, *own)
        step = self._ask(state, beat, number)
        if step.answers != ((number, (HEARTBEAT, NONE)),) or step.after != state.coordinator:
            yield Move("sends", number, beat, _after(state, step, number, beat))
        for partition, at in enumerate(client.at):
            if 0 <= at < self.records:
                commit = (COMMIT, *own, partition, at + 1)
                step = self._ask(state, commit, number)
                done = _after(state, step, number, commit)
                yield Move("sends", number, commit, done, spontaneous=False)
                if state.faults:
                    yield from self._dies_at(state, step, number, commit)
                    twice = _spend(done)._replace(late=(*done.late, commit))
                    yield Move("sends, and again later", number, commit, twice, fault=True)
                    dead = _set(_spend(state), number, _gone(client.lives + 1))
                    dead = dead._replace(late=(*dead.late, commit))
                    yield Move("sends, dies, heard later", number, commit, dead, fault=True)
        stopped = _set(state, number, _gone(client.lives))
        if not self._instance(number):
            leave = (LEAVE, client.member, 0)
            yield Move("stops", number, leave, stopped._replace(late=(*state.late, leave)), spontaneous=False)
        elif client.lives:
            yield Move("stops", number, (), stopped, spontaneous=False)

    # --- answers ---------------------------------------------------------------------------------

    def _hears(self, state: State, number: int, client: Client) -> Move:
        told: Words = client.slot[1]
        api, error = told[0], told[1]
        client = client._replace(slot=())
        if error == NONE:
            client = self._accepted(state, number, client, told)
        elif api == JOIN and error == Errors.MEMBER_ID_REQUIRED:
            client = self._join(number, client._replace(member=told[2]))
        elif error in LOST:
            keeps_id = error == Errors.ILLEGAL_GENERATION and api != JOIN
            client = self._join(number, client if keeps_id else client._replace(member=0))
        elif (api in (JOIN, SYNC) and error in RETRIED) or error == Errors.REBALANCE_IN_PROGRESS:
            client = self._join(number, client)
        elif error not in RETRIED:  # An error after which a consumer does not go on.
            client = _gone(client.lives)
        return Move("hears", number, told, _set(state, number, client))

    def _accepted(self, state: State, number: int, client: Client, told: Words) -> Client:
        api = told[0]
        if api == JOIN:
            _, _, member, generation, listed, skip = told
            given = self._assign(listed) if not skip else ()
            asked = (SYNC, member, self._instance(number), generation, given)
            return Client("syncing", member, generation, 0, (), client.lives, ("asks", asked))
        if api == SYNC:
            owned = max(told[2], 0)
            offsets = self.steps.ask(state.coordinator, (FETCH,), NOBODY, 0).told[2]
            at = tuple(max(0, o) if owned >> p & 1 else -1 for p, o in enumerate(offsets))
            return client._replace(phase="in", owned=owned, at=at)
        if api == COMMIT:
            _, _, partition, offset = told
            at = tuple(offset if p == partition else o for p, o in enumerate(client.at))
            return client._replace(at=at)
        return client

    def _assign(self, listed: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        """As the leader: partitions in turn to the members, in the order in which they are told."""
        given = [0] * len(listed)
        if listed:
            for partition in range(self.partitions):
                given[partition % len(listed)] |= 1 << partition
        return tuple((member, instance, g) for (member, instance), g in zip(listed, given, strict=True))

    # --- timers ----------------------------------------------------------------------------------

    def _timers(self, state: State) -> Iterator[Move]:
        coordinator = state.coordinator
        group = coordinator.group
        if not group:
            return
        used = _used(state)
        waits = {seat.member for seat in group.seats if _waits(seat) and not seat.is_new}
        for member in coordinator.sessions:
            yield from self._rings(state, "session", member, member in used and member not in waits)
        if coordinator.join_timer:
            missing = {seat.member for seat in group.seats if seat.joins == NO_WAITER}
            missing.update(group.handed_out)
            yield from self._rings(state, "join", 0, not group.first and bool(missing & used))
        if coordinator.sync_timer:
            yield from self._rings(state, "sync", 0, bool(used.intersection(group.to_sync)))

    def _rings(self, state: State, timer: str, member: int, slow: bool) -> Iterator[Move]:
        """A timer rings; if somebody is too slow that is a fault."""
        if slow and not state.faults:
            return
        step = self.steps.ring(state.coordinator, timer, member)
        if slow:
            after = _after(_spend(state), step, 0, ())
            yield Move(f"{timer} timer rings, somebody is slow", member, (), after, True)
        else:
            yield Move(f"{timer} timer rings", member, (), _after(state, step, 0, ()))

    # --- faults ----------------------------------------------------------------------------------

    def _client_faults(self, state: State, number: int, client: Client, kind: str) -> Iterator[Move]:
        less = _spend(state)
        silence = ("hears", (client.slot[1][0] if kind in ("asks", "hears") else 0, SILENCE))
        if kind == "asks":
            lost = _set(less, number, client._replace(slot=silence))
            yield Move("is not heard", number, client.slot[1], lost, True)
        elif kind == "hears" and client.slot[1][1] != SILENCE and client.slot[1][0] != HEARTBEAT:
            lost = _set(less, number, client._replace(slot=silence))
            yield Move("does not hear", number, client.slot[1], lost, True)
        elif kind == "waits":
            api: int = client.slot[1]
            broken = _unheard(less, number)
            silence = ("hears", (api, SILENCE))
            broken = _set(broken, number, client._replace(slot=silence))
            yield Move("is cut off", number, (), broken, True)
        dead = _unheard(_set(less, number, _gone(client.lives + 1)), number)
        yield Move("dies", number, (), dead, True)
        if kind == "asks":
            dead = dead._replace(late=(*dead.late, client.slot[1]))
            yield Move("dies, heard later", number, client.slot[1], dead, True)

    def _coordinator_dies(self, state: State) -> Iterator[Move]:
        """Either what is under way arrives at the next one, or all connections break."""
        less = _spend(state)._replace(coordinator=self.steps.load(state.coordinator).after)
        clients = tuple(_cut_off(client) for client in state.clients)
        after = less._replace(clients=clients)
        if after._replace(faults=state.faults) != state:
            yield Move("coordinator dies", 0, (), after, True)
        clients = tuple(_cut_off(client, everything=True) for client in state.clients)
        if clients != after.clients or state.late:
            after = after._replace(clients=clients, late=())
            yield Move("coordinator dies, connections break", 0, (), after, True)

    def _dies_at(self, state: State, step: Step, number: int, asked: Words) -> Iterator[Move]:
        """The coordinator dies over the batch at hand: who asked hears nothing, the others' requests wait."""
        silence = ("hears", (asked[0], SILENCE))
        less = _set(_spend(state), number, state.clients[number - 1]._replace(slot=silence))
        less = less._replace(clients=tuple(_cut_off(client) for client in less.clients))
        lost = less._replace(coordinator=self.steps.load(state.coordinator).after)
        yield Move("is heard, coordinator dies before it is durable", number, asked, lost, True)
        kept = less._replace(coordinator=self.steps.load(step.after).after)
        yield Move("is heard, coordinator dies when it is durable", number, asked, kept, True)


# --- states of clients -----------------------------------------------------------------------------


def _gone(lives: int) -> Client:
    return Client("gone", 0, -1, 0, (), lives, ())


def _cut_off(client: Client, *, everything: bool = False) -> Client:
    """A client whose coordinator is gone. Who waits hears that; with `everything` whoever has a question."""
    if client.slot and client.slot[0] == "waits":
        return client._replace(slot=("hears", (client.slot[1], SILENCE)))
    if everything and client.slot:
        return client._replace(slot=("hears", (client.slot[1][0], SILENCE)))
    return client


def _set(state: State, number: int, client: Client) -> State:
    clients = (*state.clients[: number - 1], client, *state.clients[number:])
    return state._replace(clients=clients)


def _spend(state: State) -> State:
    return state._replace(faults=state.faults - 1)


def _after(state: State, step: Step, number: int, asked: Words) -> State:
    """What a step leads to: the coordinator's state, and answers under way."""
    clients = list(state.clients)
    if step.waits and number:
        clients[number - 1] = clients[number - 1]._replace(slot=("waits", asked[0]))
    for waiter, told in step.answers:
        client = clients[waiter - 1]
        if waiter != number and (client.slot[:1] != ("waits",) or client.slot[1] != told[0]):
            raise InvariantViolation(
                "RequestsAreAnsweredOnce", f"client {waiter} is told {told} and does not wait for it"
            )
        clients[waiter - 1] = client._replace(slot=("hears", told))
    return state._replace(coordinator=step.after, clients=tuple(clients))


def _waits(seat: Seat) -> bool:
    return seat.joins != NO_WAITER or seat.syncs != NO_WAITER


def _unheard(state: State, number: int) -> State:
    """A client's question that waits is one that nobody waits for any more."""
    group = state.coordinator.group
    if not group:
        return state
    seats = tuple(
        seat._replace(
            joins=NOBODY if seat.joins == number else seat.joins,
            syncs=NOBODY if seat.syncs == number else seat.syncs,
        )
        for seat in group.seats
    )
    coordinator = state.coordinator._replace(group=group._replace(seats=seats))
    return state._replace(coordinator=coordinator)


def _used(state: State) -> set[int]:
    """The member ids of clients who are there: that they have, are about to be told or wait under."""
    used = {client.member for client in state.clients if client.phase != "gone"}
    for client in state.clients:
        if (
            client.slot
            and client.slot[0] == "hears"
            and client.slot[1][0] == JOIN
            and client.slot[1][1] != SILENCE
        ):
            used.add(client.slot[1][2])
    group = state.coordinator.group
    for seat in group.seats if group else ():
        if seat.joins > NOBODY or seat.syncs > NOBODY:
            used.add(seat.member)
    used.discard(0)
    return used


def fresh(state: State) -> int:
    """A number that is no member's, anywhere."""
    most = highest(state.coordinator)
    for client in state.clients:
        most = max(most, client.member)
        if client.slot and client.slot[0] != "waits":
            most = max(most, 0, *named(*client.slot))
    for asked in state.late:
        most = max(most, 0, *named("asks", asked))
    return most + 1


def highest(coordinator: Coordinator) -> int:
    """The highest number of a member that a coordinator knows."""
    group, stored = coordinator.group, coordinator.stored
    found = [0, *coordinator.sessions, *(member for _, member, _ in coordinator.given)]
    if group:
        found += [seat.member for seat in group.seats]
        found += group.handed_out
    if stored:
        found += [member for member, _, _ in stored.seats]
    return max(found)


# --- what holds in every state ---------------------------------------------------------------------


def check(state: State) -> None:
    """Raises `InvariantViolation` where a state is not as clients were promised."""
    group = state.coordinator.group
    owners: dict[tuple[int, int], int] = {}
    for number, client in enumerate(state.clients, 1):
        if client.phase == "in":
            _check_owner(state, number, client, owners)
        _check_waits(state, number, client)
    for seat in group.seats if group else ():
        for waiter, api in ((seat.joins, JOIN), (seat.syncs, SYNC)):
            if waiter > NOBODY and state.clients[waiter - 1].slot != ("waits", api):
                raise InvariantViolation(
                    "QuestionsAreAnswered", f"client {waiter} is waited for and waits for nothing"
                )


def _check_owner(state: State, number: int, client: Client, owners: dict[tuple[int, int], int]) -> None:
    for partition in range(len(client.at)):
        if client.owned >> partition & 1:
            other = owners.setdefault((client.generation, partition), number)
            if other != number:
                why = f"partition {partition} is owned by clients {other} and {number} in one generation"
                raise InvariantViolation("OnePartitionOneOwner", why)
    group = state.coordinator.group
    if group and group.state == "Stable" and group.generation == client.generation:
        for seat in group.seats:
            if seat.member == client.member and max(seat.given, 0) != client.owned:
                why = f"client {number} owns {client.owned:b}, the group says {max(seat.given, 0):b}"
                raise InvariantViolation("ClientsHaveWhatTheGroupSays", why)


def _check_waits(state: State, number: int, client: Client) -> None:
    """G12: a question that waits has somebody who will answer it."""
    if client.slot and client.slot[0] == "waits":
        group = state.coordinator.group
        at = 3 if client.slot[1] == JOIN else 4
        waits = sum(seat[at] == number for seat in group.seats) if group else 0
        if waits != 1:
            raise InvariantViolation(
                "QuestionsAreAnswered", f"client {number} waits, in {waits} waiting rooms"
            )


def is_stable(state: State, partitions: int) -> bool:
    """Whether those who are there are the members of a stable group and have all there is to have."""
    there = [client for client in state.clients if client.phase != "gone"]
    if state.late or any(client.phase != "in" or client.slot for client in there):
        return False
    group = state.coordinator.group
    if not there:
        return not group or (group.state == "Empty" and not group.handed_out)
    if not group or group.state != "Stable" or group.handed_out or group.to_sync:
        return False
    members = sorted(seat.member for seat in group.seats)
    owned = sorted(p for c in there for p in range(partitions) if c.owned >> p & 1)
    return (
        members == sorted(client.member for client in there)
        and all(client.generation == group.generation for client in there)
        and owned == list(range(partitions))
    )
