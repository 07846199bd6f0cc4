"""Transitions of the model of a classic group: clients, messages, timers, and a budget of faults.

The model is one group of classic consumers with the eager protocol, dynamic and static, and one coordinator.
Clients are values that follow the protocol as `members.classic` does. Each has one request at a time.

    request     arrives now or later. A heartbeat or a commit arrives when it is sent: one that arrives later
                equals one that is sent later
    response    is received now or later, in any order with the messages of other clients
    LeaveGroup  is under way after its client has stopped; a new start of the client may overtake it
    timer       is armed or not, and may expire at any moment. If a live client is about to cancel it, the
                expiry costs a fault: the client was too slow. Without a fault expire the session of a member
                id that no client uses, a rebalance that no client can still join, and the delay of the
                initial rebalance

Faults: a request or a response is lost; the connection of a pending request breaks; a request is duplicated
and delayed; a client dies, may be started again, and its last request may still arrive; a client is too slow;
the coordinator crashes at any moment, also before or after the batch of a decision is durable.

Every generation is caused by a start, a stop or a fault, and all of these are bounded, so the number of
states is finite. Not modelled: the cooperative protocol, several groups, changes of subscriptions,
compaction, time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from konvene.errors import Errors
from konvene.sim.model_check.core import Step, StepCache
from konvene.sim.model_check.values import (
    COMMIT,
    DISCONNECTED,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    NO_RESPONSE,
    NO_WAITER,
    NONE,
    SYNC,
    Client,
    Coordinator,
    Member,
    Message,
    State,
    members_in,
)
from konvene.sim.world.event import InvariantViolation

FENCED = (Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION)
RETRIABLE = (
    NO_RESPONSE, Errors.REBALANCE_IN_PROGRESS, Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.UNKNOWN_SERVER_ERROR,
)  # fmt: skip


STARTS, STOPS, DIES = "starts", "stops", "dies"
DIES_AFTER_REQUEST = "dies, its request is delayed"
ARRIVES = "request arrives"
ARRIVES_TWICE = "request arrives, a duplicate is delayed"
ARRIVES_UNSTORED = "request arrives, the coordinator crashes before its batch is durable"
ARRIVES_STORED = "request arrives, the coordinator crashes after its batch is durable"
ARRIVES_LATE = "delayed request arrives"
SENDS = "sends"
SENDS_TWICE = "sends, a duplicate is delayed"
SENDS_AND_DIES = "sends and dies, its request is delayed"
RECEIVES = "receives response"
REQUEST_LOST, RESPONSE_LOST = "request is lost", "response is lost"
DISCONNECTED_PENDING = "connection of a pending request breaks"
COORDINATOR_CRASHES = "coordinator crashes"
COORDINATOR_CRASHES_AND_DISCONNECTS = "coordinator crashes, all messages are lost"
"""Labels of moves. A heartbeat or a commit is sent and arrives in one move, `SENDS`."""


class Move(NamedTuple):
    """A transition of the model. `number` is the client that moves, the member whose timer expires, or 0;
    `message` is the request or the response, if any."""

    label: str
    number: int
    message: Message
    state: State
    fault: bool = False
    spontaneous: bool = True
    """Whether the move needs neither a decision to start, commit or stop nor a fault."""


def is_timer(move: Move) -> bool:
    """Return True if the move is the expiry of a timer; its label then begins with the name of the timer."""
    return " timer expires" in move.label


class Model(NamedTuple):
    """The model of a classic group: its bounds, and its moves. The first `static` clients are static
    members."""

    members: int
    partitions: int
    faults: int
    static: int
    starts: int
    """How often a dynamic client may be started; a static one may be started once more."""
    records: int
    """Number of records per partition that are consumed and committed."""
    steps: StepCache

    def first(self) -> State:
        """Return the initial state: no client is started, and the log is empty."""
        clients = tuple(
            _absent(self.starts + (number <= self.static)) for number in range(1, self.members + 1)
        )
        return State(self.steps.empty_coordinator(), clients, (), self.faults)

    def moves(self, state: State) -> Iterator[Move]:
        """Yield every move that is possible in a state."""
        for number, client in enumerate(state.clients, 1):
            kind = client.exchange[0] if client.exchange else ""
            if kind == "request":
                yield from self._arrivals(state, number, client.exchange[1])
            elif kind == "response":
                yield self._receive(state, number, client)
            elif client.phase == "absent":
                if client.starts_left:
                    yield self._start(state, number, client)
            elif not kind:
                yield from self._member_moves(state, number, client)
            if state.faults and client.phase != "absent":
                yield from self._client_faults(state, number, client, kind)
        yield from self._delayed_requests(state)
        yield from self._timer_moves(state)
        if state.faults:
            yield from self._coordinator_crashes(state)

    # --- requests --------------------------------------------------------------------------------

    def _arrivals(self, state: State, number: int, request: Message) -> Iterator[Move]:
        step = self._handle(state, request, number)
        yield Move(ARRIVES, number, request, _after(state, step, number, request))
        if state.faults:
            if step.has_batch:
                yield from self._crashes_at(state, step, number, request)
            duplicated = _spend_fault(state)._replace(delayed=(*state.delayed, request))
            yield Move(ARRIVES_TWICE, number, request, _after(duplicated, step, number, request), fault=True)

    def _handle(self, state: State, request: Message, number: int, *, is_delayed: bool = False) -> Step:
        before = state.coordinator
        step = self.steps.handle(before, request, number, fresh_member(state))
        if not is_delayed:
            pairs = zip(before.offsets, step.after.offsets, strict=True)
            decreased = [p for p, (old, new) in enumerate(pairs) if new < old]
            if decreased:
                why = f"partition {decreased[0]}: {before.offsets}, now {step.after.offsets}"
                raise InvariantViolation("CommitsDoNotGoBack", why)
        return step

    def _delayed_requests(self, state: State) -> Iterator[Move]:
        for index, request in enumerate(state.delayed):
            if request not in state.delayed[:index]:
                rest = state._replace(delayed=state.delayed[:index] + state.delayed[index + 1 :])
                step = self._handle(state, request, DISCONNECTED, is_delayed=True)
                yield Move(ARRIVES_LATE, 0, request, _after(rest, step, 0, request))

    # --- clients ---------------------------------------------------------------------------------

    def _instance(self, number: int) -> int:
        return number if number <= self.static else 0

    def _join(self, number: int, client: Client) -> Client:
        """Return the client with a JoinGroup under way. With the eager protocol it has revoked everything."""
        request = (JOIN, client.member, self._instance(number))
        return Client("joining", client.member, -1, 0, (), client.starts_left, ("request", request))

    def _start(self, state: State, number: int, client: Client) -> Move:
        client = self._join(number, client._replace(starts_left=client.starts_left - 1))
        return Move(STARTS, number, (), _with_client(state, number, client), spontaneous=False)

    def _member_moves(self, state: State, number: int, client: Client) -> Iterator[Move]:
        """Yield the moves of a member without a request under way: heartbeat, commit, stop."""
        own = (client.member, self._instance(number), client.generation)
        heartbeat = (HEARTBEAT, *own)
        step = self._handle(state, heartbeat, number)
        if step.responses != ((number, (HEARTBEAT, NONE)),) or step.after != state.coordinator:
            yield Move(SENDS, number, heartbeat, _after(state, step, number, heartbeat))
        for partition, position in enumerate(client.positions):
            if 0 <= position < self.records:
                commit = (COMMIT, *own, partition, position + 1)
                step = self._handle(state, commit, number)
                done = _after(state, step, number, commit)
                yield Move(SENDS, number, commit, done, spontaneous=False)
                if state.faults:
                    yield from self._crashes_at(state, step, number, commit)
                    duplicated = _spend_fault(done)._replace(delayed=(*done.delayed, commit))
                    yield Move(SENDS_TWICE, number, commit, duplicated, fault=True)
                    dead = _with_client(_spend_fault(state), number, _absent(client.starts_left + 1))
                    dead = dead._replace(delayed=(*dead.delayed, commit))
                    yield Move(SENDS_AND_DIES, number, commit, dead, fault=True)
        stopped = _with_client(state, number, _absent(client.starts_left))
        if not self._instance(number):
            leave = (LEAVE, client.member, 0)
            left = stopped._replace(delayed=(*state.delayed, leave))
            yield Move(STOPS, number, leave, left, spontaneous=False)
        elif client.starts_left:
            yield Move(STOPS, number, (), stopped, spontaneous=False)

    # --- responses -------------------------------------------------------------------------------

    def _receive(self, state: State, number: int, client: Client) -> Move:
        response: Message = client.exchange[1]
        api, error = response[0], response[1]
        client = client._replace(exchange=())
        if error == NONE:
            client = self._accept(state, number, client, response)
        elif api == JOIN and error == Errors.MEMBER_ID_REQUIRED:
            client = self._join(number, client._replace(member=response[2]))
        elif error in FENCED:
            keeps_id = error == Errors.ILLEGAL_GENERATION and api != JOIN
            client = self._join(number, client if keeps_id else client._replace(member=0))
        elif (api in (JOIN, SYNC) and error in RETRIABLE) or error == Errors.REBALANCE_IN_PROGRESS:
            client = self._join(number, client)
        elif error not in RETRIABLE:  # A fatal error stops the client.
            client = _absent(client.starts_left)
        return Move(RECEIVES, number, response, _with_client(state, number, client))

    def _accept(self, state: State, number: int, client: Client, response: Message) -> Client:
        api = response[0]
        if api == JOIN:
            _, _, member, generation, listed, skip = response
            assignments = self._assign(listed) if not skip else ()
            request = (SYNC, member, self._instance(number), generation, assignments)
            return Client("syncing", member, generation, 0, (), client.starts_left, ("request", request))
        if api == SYNC:
            owned = max(response[2], 0)
            offsets = self.steps.handle(state.coordinator, (FETCH,), DISCONNECTED, 0).own_response[2]
            positions = tuple(max(0, o) if owned >> p & 1 else -1 for p, o in enumerate(offsets))
            return client._replace(phase="active", owned=owned, positions=positions)
        if api == COMMIT:
            _, _, partition, offset = response
            positions = tuple(offset if p == partition else o for p, o in enumerate(client.positions))
            return client._replace(positions=positions)
        return client

    def _assign(self, listed: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        """Return the assignment of the leader: partitions round-robin over the listed members."""
        masks = [0] * len(listed)
        if listed:
            for partition in range(self.partitions):
                masks[partition % len(listed)] |= 1 << partition
        return tuple((member, instance, mask) for (member, instance), mask in zip(listed, masks, strict=True))

    # --- timers ----------------------------------------------------------------------------------

    def _timer_moves(self, state: State) -> Iterator[Move]:
        coordinator = state.coordinator
        group = coordinator.group
        if not group:
            return
        live = _live_members(state)
        pending = {each.member for each in group.members if _has_waiter(each) and not each.is_new}
        for member in coordinator.sessions:
            yield from self._expire(state, "session", member, member in live and member not in pending)
        if coordinator.join_timer:
            missing = {each.member for each in group.members if each.join_waiter == NO_WAITER}
            missing.update(group.pending_joins)
            yield from self._expire(state, "join", 0, not group.initial_rebalance and bool(missing & live))
        if coordinator.sync_timer:
            yield from self._expire(state, "sync", 0, bool(live.intersection(group.pending_syncs)))

    def _expire(self, state: State, timer: str, member: int, is_fault: bool) -> Iterator[Move]:
        """Yield the expiry of a timer. It is a fault if a live client is about to cancel the timer."""
        if is_fault and not state.faults:
            return
        step = self.steps.expire(state.coordinator, timer, member)
        if is_fault:
            after = _after(_spend_fault(state), step, 0, ())
            yield Move(f"{timer} timer expires, a client is too slow", member, (), after, True)
        else:
            yield Move(f"{timer} timer expires", member, (), _after(state, step, 0, ()))

    # --- faults ----------------------------------------------------------------------------------

    def _client_faults(self, state: State, number: int, client: Client, kind: str) -> Iterator[Move]:
        less = _spend_fault(state)
        message: Any = client.exchange[1] if client.exchange else ()
        if kind == "request":
            lost = _with_client(less, number, _timed_out(client, message[0]))
            yield Move(REQUEST_LOST, number, message, lost, True)
        elif kind == "response" and message[1] != NO_RESPONSE and message[0] != HEARTBEAT:
            lost = _with_client(less, number, _timed_out(client, message[0]))
            yield Move(RESPONSE_LOST, number, message, lost, True)
        elif kind == "waiting":
            broken = _with_client(_disconnect(less, number), number, _timed_out(client, message))
            yield Move(DISCONNECTED_PENDING, number, (), broken, True)
        dead = _disconnect(_with_client(less, number, _absent(client.starts_left + 1)), number)
        yield Move(DIES, number, (), dead, True)
        if kind == "request":
            dead = dead._replace(delayed=(*dead.delayed, message))
            yield Move(DIES_AFTER_REQUEST, number, message, dead, True)

    def _coordinator_crashes(self, state: State) -> Iterator[Move]:
        """Yield the crash of the coordinator: messages under way reach the next one, or all are lost."""
        less = _spend_fault(state)._replace(coordinator=self.steps.load(state.coordinator).after)
        clients = tuple(_failed_over(client) for client in state.clients)
        after = less._replace(clients=clients)
        if after._replace(faults=state.faults) != state:
            yield Move(COORDINATOR_CRASHES, 0, (), after, True)
        clients = tuple(_failed_over(client, disconnects=True) for client in state.clients)
        if clients != after.clients or state.delayed:
            after = after._replace(clients=clients, delayed=())
            yield Move(COORDINATOR_CRASHES_AND_DISCONNECTS, 0, (), after, True)

    def _crashes_at(self, state: State, step: Step, number: int, request: Message) -> Iterator[Move]:
        """Yield the crashes of the coordinator before and after the batch of a step is durable. The sender of
        the request times out; the requests of the other clients reach the next coordinator."""
        client = _timed_out(state.clients[number - 1], request[0])
        less = _with_client(_spend_fault(state), number, client)
        less = less._replace(clients=tuple(_failed_over(each) for each in less.clients))
        lost = less._replace(coordinator=self.steps.load(state.coordinator).after)
        yield Move(ARRIVES_UNSTORED, number, request, lost, True)
        kept = less._replace(coordinator=self.steps.load(step.after).after)
        yield Move(ARRIVES_STORED, number, request, kept, True)


# --- states of clients -----------------------------------------------------------------------------


def _absent(starts_left: int) -> Client:
    return Client("absent", 0, -1, 0, (), starts_left, ())


def _timed_out(client: Client, api: int) -> Client:
    """Return the client after its request timed out or its connection broke, so that it gets no response."""
    return client._replace(exchange=("response", (api, NO_RESPONSE)))


def _failed_over(client: Client, *, disconnects: bool = False) -> Client:
    """Return a client after the coordinator crashed: its pending request has timed out. With `disconnects` a
    request or response that is under way is lost as well."""
    if client.exchange and client.exchange[0] == "waiting":
        return _timed_out(client, client.exchange[1])
    if disconnects and client.exchange:
        return _timed_out(client, client.exchange[1][0])
    return client


def _with_client(state: State, number: int, client: Client) -> State:
    clients = (*state.clients[: number - 1], client, *state.clients[number:])
    return state._replace(clients=clients)


def _spend_fault(state: State) -> State:
    return state._replace(faults=state.faults - 1)


def _after(state: State, step: Step, number: int, request: Message) -> State:
    """Return the state after a step of the coordinator that `request` of client `number` caused, with the
    responses under way to their clients."""
    clients = list(state.clients)
    if step.is_pending and number:
        clients[number - 1] = clients[number - 1]._replace(exchange=("waiting", request[0]))
    for waiter, response in step.responses:
        client = clients[waiter - 1]
        if waiter != number and (client.exchange[:1] != ("waiting",) or client.exchange[1] != response[0]):
            raise InvariantViolation(
                "RequestsAreAnsweredOnce",
                f"client {waiter} has no pending request for the response {response}",
            )
        clients[waiter - 1] = client._replace(exchange=("response", response))
    return state._replace(coordinator=step.after, clients=tuple(clients))


def _has_waiter(member: Member) -> bool:
    return member.join_waiter != NO_WAITER or member.sync_waiter != NO_WAITER


def _disconnect(state: State, number: int) -> State:
    """Return the state with the pending request of a client, if it has one, marked as disconnected."""
    group = state.coordinator.group
    if not group:
        return state
    members = tuple(
        member._replace(
            join_waiter=DISCONNECTED if member.join_waiter == number else member.join_waiter,
            sync_waiter=DISCONNECTED if member.sync_waiter == number else member.sync_waiter,
        )
        for member in group.members
    )
    coordinator = state.coordinator._replace(group=group._replace(members=members))
    return state._replace(coordinator=coordinator)


def _live_members(state: State) -> set[int]:
    """Return the member ids of running clients: the ones they use, receive next or have a request for."""
    live = {client.member for client in state.clients if client.phase != "absent"}
    for client in state.clients:
        if (
            client.exchange
            and client.exchange[0] == "response"
            and client.exchange[1][0] == JOIN
            and client.exchange[1][1] != NO_RESPONSE
        ):
            live.add(client.exchange[1][2])
    group = state.coordinator.group
    for member in group.members if group else ():
        if member.join_waiter > DISCONNECTED or member.sync_waiter > DISCONNECTED:
            live.add(member.member)
    live.discard(0)
    return live


def fresh_member(state: State) -> int:
    """Return the number of a member id that no part of the state uses."""
    most = highest_member(state.coordinator)
    for client in state.clients:
        most = max(most, client.member)
        if client.exchange and client.exchange[0] != "waiting":
            most = max(most, 0, *members_in(*client.exchange))
    for request in state.delayed:
        most = max(most, 0, *members_in("request", request))
    return most + 1


def highest_member(coordinator: Coordinator) -> int:
    """Return the highest number of a member id that a coordinator uses."""
    group, stored = coordinator.group, coordinator.stored
    numbers = [0, *coordinator.sessions, *(member for _, member, _ in coordinator.leader_assignment)]
    if group:
        numbers += [each.member for each in group.members]
        numbers += group.pending_joins
    if stored:
        numbers += [member for member, _, _ in stored.members]
    return max(numbers)


# --- invariants of every state ---------------------------------------------------------------------


def check(state: State) -> None:
    """Check the invariants of clients in a state. Raises `InvariantViolation`."""
    group = state.coordinator.group
    owners: dict[tuple[int, int], int] = {}
    for number, client in enumerate(state.clients, 1):
        if client.phase == "active":
            _check_owner(state, number, client, owners)
        _check_pending_request(state, number, client)
    for member in group.members if group else ():
        for waiter, api in ((member.join_waiter, JOIN), (member.sync_waiter, SYNC)):
            if waiter > DISCONNECTED and state.clients[waiter - 1].exchange != ("waiting", api):
                raise InvariantViolation(
                    "PendingRequestsHaveAWaiter",
                    f"waiter {waiter} of the group has no pending request",
                )


def _check_owner(state: State, number: int, client: Client, owners: dict[tuple[int, int], int]) -> None:
    for partition in range(len(client.positions)):
        if client.owned >> partition & 1:
            other = owners.setdefault((client.generation, partition), number)
            if other != number:
                why = f"partition {partition} is owned by clients {other} and {number} in one generation"
                raise InvariantViolation("OnePartitionOneOwner", why)
    group = state.coordinator.group
    if group and group.state == "Stable" and group.generation == client.generation:
        for member in group.members:
            if member.member == client.member and max(member.assignment, 0) != client.owned:
                assigned = max(member.assignment, 0)
                why = f"client {number} owns {client.owned:b}, but the group assigned {assigned:b}"
                raise InvariantViolation("ClientsOwnTheirAssignment", why)


def _check_pending_request(state: State, number: int, client: Client) -> None:
    """G12: the group has exactly one waiter for each pending request."""
    if client.exchange and client.exchange[0] == "waiting":
        group = state.coordinator.group
        field = "join_waiter" if client.exchange[1] == JOIN else "sync_waiter"
        waiters = sum(getattr(member, field) == number for member in group.members) if group else 0
        if waiters != 1:
            raise InvariantViolation(
                "PendingRequestsHaveAWaiter", f"client {number} has a pending request, but {waiters} waiters"
            )


def is_stable(state: State, partitions: int) -> bool:
    """Return True if the running clients are the members of a stable group and own all partitions."""
    running = [client for client in state.clients if client.phase != "absent"]
    if state.delayed or any(client.phase != "active" or client.exchange for client in running):
        return False
    group = state.coordinator.group
    if not running:
        return not group or (group.state == "Empty" and not group.pending_joins)
    if not group or group.state != "Stable" or group.pending_joins or group.pending_syncs:
        return False
    members = sorted(member.member for member in group.members)
    owned = sorted(p for c in running for p in range(partitions) if c.owned >> p & 1)
    return (
        members == sorted(client.member for client in running)
        and all(client.generation == group.generation for client in running)
        and owned == list(range(partitions))
    )
