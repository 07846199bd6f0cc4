"""Model check of a small share group and of the state of its share partitions: every interleaving,
breadth-first, on the real cores of both coordinators.

`GroupModel` has the search and the clients. A state has the group, the share coordinator's state, the
requests to it that are not answered (`share_states`), and what each client believes. As a fault a client
dies, or its session expires while it lives. The topic may grow, and be deleted. An administrator alters the
offsets, deletes them, or deletes the group, as often as the bounds permit; a group with members rejects that.

Faults of coordinators: the group coordinator is loaded again, while its requests to the share coordinator go
on or are lost; the share coordinator fails a request, having done it or not; a request takes so long that it
is sent again; a topic is deleted while both are away.

Beside the invariants of `sim.invariants.share` and `sim.share.invariants`, both coordinators must agree: the
share coordinator has the state of every initialized partition, with its start offset. After a complete search
each state leads, without another fault, to one in which every partition is initialized and assigned, and
the share coordinator has no state of a deleted topic.

Left out: records. Their delivery is checked in `sim.share` and in the exhaustive test of `delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.shard import GroupShard
from konvene.groups.share.decision import CLEANUP_TIMER
from konvene.groups.share.group import ShareGroup, SoftState
from konvene.groups.share.work import (
    DELETE_STATE,
    INITIALIZE_STATE,
    BeginDeletion,
    DeletedTopics,
    OffsetsToAlter,
    OffsetsToDelete,
    StateToDelete,
)
from konvene.messages import alter_share_group_offsets as alter
from konvene.messages import delete_share_group_offsets as forget
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.records.coordinator import GROUP_RECORDS, decode_record, encode_record
from konvene.shard.contract import Context, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import Answer, SharePartitionKey, TopicsDeleted
from konvene.sim.invariants import observer
from konvene.sim.invariants.share import (
    NewPartitionsAreInitialized,
    OnlyInitializedPartitionsAreAssigned,
    ShareEpochsAreInOrder,
    ShareGroupsAreStored,
    ShareMembersHaveTheirTarget,
    StaleHeartbeatsAreFenced,
    durable_part,
)
from konvene.sim.model_check.group_model import (
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
from konvene.sim.model_check.share_clients import Client, after_response, next_heartbeat
from konvene.sim.model_check.share_states import (
    ALTER,
    AT_ONCE,
    BY_ITSELF,
    DELETE,
    DELETE_GROUP,
    DELETE_OFFSETS,
    FAILED,
    INITIALIZE,
    Coordinator,
    Job,
    States,
    job,
    pending_requests,
    with_more,
)
from konvene.sim.world.event import Event, InvariantViolation, View

INVARIANTS = (
    ShareGroupsAreStored, ShareEpochsAreInOrder, OnlyInitializedPartitionsAreAssigned,
    ShareMembersHaveTheirTarget, StaleHeartbeatsAreFenced, NewPartitionsAreInitialized,
)  # fmt: skip

SMALL, GROWN, DELETED = range(3)
"""States of the topic: as created, with one more partition, deleted."""
ALTERED = 5
"""Start offset that the administrator sets."""


class State(NamedTuple):
    """A state of the model: the group, the states of its share partitions, the requests to the share
    coordinator that are under way, the clients, and how many requests of an administrator and faults may
    still happen."""

    group: ShareGroup | None
    states: States
    jobs: tuple[Job, ...]
    clients: tuple[Client, ...]
    topic: int
    orphaned: bool
    """Whether the share coordinator missed the deletion of the topic."""
    altered: frozenset[int] | None
    """The partitions whose offset was altered with an acknowledgement; None if the start offsets are
    unknown."""
    admin: int
    faults: int


class ShareGroupModel(GroupModel[State, Client]):
    """The model of a share group and its share coordinator. See `GroupModel` for the bounds; `admin` is how
    many requests an administrator may send."""

    invariants: tuple[type[object], ...] = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 1, faults: int = 1, *, static: int = 0, joins: int = 1,
        admin: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(members, partitions, faults, static, joins)
        self.bounds["admin"] = admin
        if static or admin < 0:
            raise ValueError(f"no such model: {self.bounds}")
        clients = tuple(Client(name, joins=joins) for name in NAMES[:members])
        begin = frozenset[int]()
        self.begin = State(None, (), (), clients, SMALL, False, begin, admin, faults)
        self.topics = (*(Topics([Topic("orders", ORDERS, partitions + more)]) for more in (0, 1)), Topics())
        self.config, _ = BrokerConfig.load(overrides=[("group.share.assignment.interval.ms", "0")])
        self.group_configs = GroupConfigs(self.config)
        self.check_event = observer([invariant() for invariant in INVARIANTS])
        self.coordinator = Coordinator(self.config, NOW_MS)
        self.invariants = (*INVARIANTS, *map(type, self.coordinator.invariants))
        self._decisions: dict[Hashable, tuple[ShareGroup | None, Any, tuple[Job, ...]]] = {}
        """Group, response and new jobs after each decision made so far, by its inputs."""

    def key(self, state: State) -> Hashable:
        since = relative_to(state.group.epoch if state.group is not None else 0)
        clients = tuple(
            (
                c.inside, since(c.epoch), c.held, c.has_all_tags, c.joins,
                c.request and (since(c.request.member_epoch), c.request.subscribed_topic_names),
                c.response and (c.response.error_code, since(c.response.member_epoch), c.response.assignment),
            )
            for c in state.clients
        )  # fmt: skip
        states = tuple((k.partition, since(s.highest_state_epoch), s.start_offset) for k, s in state.states)
        jobs = tuple(
            (
                j.kind,
                j.answers,
                j.awaited,
                j.overtaken,
                tuple(r[:1] + tuple(map(since, r[1:2])) + r[2:] for r in j.requests),
            )
            for j in state.jobs
        )
        return self._group_key(state.group, since), states, jobs, clients, *state[4:]

    def _group_key(self, group: ShareGroup | None, since: Callable[[int], int]) -> Hashable:
        """Return everything of the group that its next decisions depend on. `since` makes epochs relative to
        the group's."""
        if group is None:
            return None
        state = group.state_topics
        return (
            since(group.assignment_epoch),
            group.soft.hashed_topics is not None and self.topics.index(group.soft.hashed_topics),
            tuple(group.soft.requested_ms),
            group.metadata_hash,
            tuple((name, target.get(ORDERS)) for name, target in sorted(group.targets.items())),
            state.initializing.get(ORDERS), state.initialized.get(ORDERS), tuple(state.deleting),
            tuple(
                (m.member_id, since(m.current.epoch), since(m.current.previous_epoch),
                 m.current.assigned.get(ORDERS))
                for m in group.members.values()
            ),
        )  # fmt: skip

    def is_settled(self, state: State) -> bool:
        """Return True if every member has its target and the share coordinator has no state of deleted
        partitions."""
        inside = [c for c in state.clients if c.inside]
        group = state.group
        if state.jobs or any(c.request or c.response for c in inside):
            return False
        if group is None:
            return not inside and not state.states
        if group.members.keys() != {c.name for c in inside} or group.state_topics.deleting:
            return False
        counts = 0 if state.topic == DELETED else self.topics[state.topic].by_name["orders"].partitions
        known = {key.partition for key, _ in state.states}
        initialized = _initialized(group)
        if not inside:
            pending = group.state_topics.initializing.get(ORDERS)
            most = initialized | set(pending.partitions if pending else ())
            return initialized <= known <= most and (state.topic != DELETED or not known)
        held = {p for c in inside for p in c.held}
        complete = held == initialized == known == set(range(counts)) and not group.state_topics.initializing
        return complete and all(c.epoch == group.epoch for c in inside)

    # --- transitions ---

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        for index, client in enumerate(state.clients):
            yield from self.client_transitions(state, index, client)
        yield from self._jobs(state)
        yield from self._topic(state)
        group = state.group
        if group is None:
            return
        yield from self._timers(state, group)
        if state.admin:
            yield from self._admin(state._replace(admin=state.admin - 1), group)
        if state.faults:
            less = state._replace(faults=state.faults - 1)
            yield Transition("the group coordinator is loaded again", _reloaded(less), False)
            if state.jobs:
                yield Transition("all pending requests are lost", _reloaded(less)._replace(jobs=()), False)

    def client_faults(self, state: State, index: int, client: Client) -> Iterator[Transition[State]]:
        if client.inside and state.faults:
            dead = Client(client.name, joins=client.joins)
            yield Transition(f"{client.name} dies", with_client(state, index, dead, fault=True), False)

    def starts(self, client: Client) -> Client:
        return Client(client.name, True, 0, joins=client.joins - 1)

    def sends(self, client: Client) -> Client:
        return next_heartbeat(client)

    def receives(self, client: Client) -> Client:
        return after_response(client)

    def leaves(self, state: State, index: int, client: Client) -> Transition[State]:
        request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=client.name, member_epoch=-1)
        left = Client(client.name, joins=client.joins)
        return Transition(
            f"{client.name} leaves", self.decide(with_client(state, index, left), request)[0], False
        )

    def _jobs(self, state: State) -> Iterator[Transition[State]]:
        """Yield the transitions in which the share coordinator handles a pending request, or fails to, and
        those in which the responses of a complete job arrive."""
        jobs, topics = state.jobs, self.topics[state.topic]
        for number, at in pending_requests(jobs):
            request = jobs[number].requests[at]
            what = f"{type(request).__name__.lower()} {request.key.partition} ({jobs[number].kind})"
            states, answer = self.coordinator.decide(state.states, request, topics)
            done = self._answered(state._replace(states=states), number, at, answer)
            yield self._checked(f"the share coordinator does {what}", done, True)
            if state.faults:
                less = state._replace(faults=state.faults - 1)
                failed = self._answered(less, number, at, FAILED)
                yield self._checked(f"it fails to {what}", failed, False)
                denied = self._answered(less._replace(states=states), number, at, FAILED)
                yield self._checked(f"it does {what} and reports a failure", denied, False)
        for number, each in enumerate(jobs):
            if each.done:
                after = self._completed(state._replace(jobs=jobs[:number] + jobs[number + 1 :]), each)
                yield self._checked(f"the responses arrive ({each.kind})", after, True)

    def _answered(self, state: State, number: int, at: int, answer: Answer) -> State:
        """Return the state after request `at` of job `number` got its answer. If that completes a job of a
        kind in `AT_ONCE`, the sender receives the responses in the same transition."""
        jobs = state.jobs
        each = jobs[number].with_answer(at, answer)
        if not each.done or each.kind not in AT_ONCE:
            return state._replace(jobs=(*jobs[:number], each, *jobs[number + 1 :]))
        rest = state._replace(jobs=jobs[:number] + jobs[number + 1 :])
        return self._completed(rest, each) if each.awaited else rest

    def _completed(self, state: State, each: Job) -> State:
        """Return the state after the sender received the responses of the complete job `each`."""
        completion = each.completion(GROUP)
        if completion is not None:
            kind = "completion" if each.kind in BY_ITSELF else "request"
            state, answer = self.decide(state, completion, kind)
            if isinstance(answer, Errors):
                return state
        succeeded = all(answer is not None and not answer.error for answer in each.answers)
        if each.kind == ALTER and succeeded and not each.overtaken:
            state = state._replace(altered=frozenset(request.key.partition for request in each.requests))
        return state

    def _topic(self, state: State) -> Iterator[Transition[State]]:
        if state.orphaned:
            states = self.coordinator.delete_orphans(state.states, self.topics[state.topic])
            cleaned = state._replace(states=states, orphaned=False)
            yield self._checked("the share coordinator deletes orphans", cleaned, True)
        if state.topic == DELETED:
            return
        if state.topic == SMALL:
            yield Transition("orders grows", state._replace(topic=GROWN), False)
        without = state._replace(topic=DELETED, altered=None)
        ids = frozenset((ORDERS,))
        states = self.coordinator.inform(without.states, TopicsDeleted(ids), self.topics[DELETED])
        informed = without._replace(states=states)
        yield self._checked(
            "orders is deleted", self.decide(informed, DeletedTopics(ids), "completion")[0], False
        )
        if state.faults:
            orphaned = without._replace(faults=state.faults - 1, orphaned=True)
            yield Transition("orders is deleted while both coordinators are away", _reloaded(orphaned), False)

    def _timers(self, state: State, group: ShareGroup) -> Iterator[Transition[State]]:
        alive = {c.name for c in state.clients if c.inside}
        for member_id in list(group.members):
            dead = member_id not in alive
            if dead or state.faults:
                after = self.decide(state, ("session", GROUP, member_id), "timer")[0]
                after = after._replace(faults=state.faults - (not dead))
                yield self._checked(f"the session of {member_id} expires", after, dead)
        if not group.state_topics.is_empty and not any(j.kind == DELETE for j in state.jobs):
            after = self.decide(state, CLEANUP_TIMER, "timer")[0]
            yield self._checked("the group coordinator deletes leftover state", after, True)
        if group.soft.requested_ms:
            late = any(j.awaited and j.kind in (INITIALIZE, ALTER) for j in state.jobs)
            if state.faults or not late:
                forgotten = group.copy()
                forgotten.soft = SoftState(group.soft.hashed_topics)
                less = state._replace(group=forgotten, faults=state.faults - late)
                yield Transition("the request may be sent again", less, not late)

    def _admin(self, state: State, group: ShareGroup) -> Iterator[Transition[State]]:
        counts = 1 if state.topic == DELETED else self.topics[state.topic].by_name["orders"].partitions
        offsets = tuple(
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=ALTERED)
            for index in range(counts)
        )
        altered = alter.AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=(alter.AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=offsets),),
        )
        deleted = forget.DeleteShareGroupOffsetsRequest(
            group_id=GROUP, topics=(forget.DeleteShareGroupOffsetsRequestTopic(topic_name="orders"),)
        )
        for kind, request in (
            (ALTER, altered),
            (DELETE_OFFSETS, deleted),
            (DELETE_GROUP, BeginDeletion(GROUP)),
        ):
            after, started = self.decide(state, request)
            rejected = isinstance(started, Errors) or bool(getattr(_response(started), "error_code", 0))
            if rejected != bool(group.members):
                raise InvariantViolation(
                    "OnlyEmptyGroupsAreAltered", f"{group!r}: {kind} is answered {started}"
                )
            if rejected:
                if after.group is None or durable_part(after.group) != durable_part(group):
                    raise InvariantViolation(
                        "OnlyEmptyGroupsAreAltered", f"{kind} is rejected, but changed {after.group}"
                    )
                continue
            after = after._replace(altered=None)
            if started.requests:
                yield self._checked(
                    kind, after._replace(jobs=with_more(after.jobs, job(kind, started.requests))), False
                )
            elif kind == DELETE_GROUP:
                yield self._checked(kind, self._completed(after, job(kind, ())), False)

    # --- the core ---

    def _checked(self, what: str, state: State, by_itself: bool) -> Transition[State]:
        _check_start_offsets(state, self.bounds["partitions"], untouched=state.admin == self.bounds["admin"])
        return Transition(what, state, by_itself)

    def decide(self, state: State, request: Hashable, kind: str = "request") -> tuple[State, Any]:
        """Return the state after a decision, and the response. Decisions are cached by their inputs.

        `kind` is "request", "completion" or "timer"; for a timer `request` is its key."""
        inputs = self._group_key(state.group, int), state.group and state.group.epoch, state.topic
        decided = self._decisions.get((inputs, request, kind))
        if decided is None:
            decided = self._decisions[inputs, request, kind] = self._decided(state, request, kind)
        group, answer, jobs = decided
        return state._replace(group=group, jobs=reduce(with_more, jobs, state.jobs)), answer

    def _decided(
        self, state: State, request: Any, kind: str
    ) -> tuple[ShareGroup | None, Any, tuple[Job, ...]]:
        shard, before, topics = GroupShard(), state.group, self.topics[state.topic]
        if before is not None:
            shard.groups[GROUP] = before.copy()
        context = Context(
            NOW_MS, self.config, 0 if kind == "timer" else 1, 1, "client", "/host", ("fresh",), topics,
            self.group_configs, OFFERED,
        )  # fmt: skip
        rejected: Errors | None = None
        try:
            outcome = shard.expire(request, context) if kind == "timer" else shard.handle(request, context)
        except GroupError as error:
            outcome, rejected = Outcome(), error.error
        shadow = _shadow(before, outcome)
        for record in (*outcome.records, *outcome.soft_records):
            shard.replay(record)
        group = group_in(shard, ShareGroup)
        answer = rejected or next((reply.response for reply in outcome.replies), None)
        is_heartbeat = isinstance(request, ShareGroupHeartbeatRequest)
        event = Event(
            kind,
            SimpleNamespace(topics=topics, config=self.config, shadow=shadow),  # type: ignore[arg-type]
            View({} if before is None else {GROUP: before}, {}),
            View({} if group is None else {GROUP: group}, {}),
            changed=bool(outcome.records),
            api="ShareGroupHeartbeat" if is_heartbeat else "",
            request=request if is_heartbeat else None,
            version=1, context=context, waiter=1, key=request if kind == "timer" else (),
            outcome=outcome, answer=answer,
        )  # fmt: skip
        self.check_event(event)
        return group, answer, tuple(_started_jobs(outcome))


def _shadow(before: ShareGroup | None, outcome: Outcome) -> GroupShard:
    """Return a shard with a copy of the group `before` (none if None), on which the records of the outcome
    were replayed after they were encoded and decoded."""
    shadow = GroupShard()
    if before is not None:
        shadow.groups[GROUP] = before.copy()
    for record in outcome.records:
        shadow.replay(decode_record(*encode_record(record, GROUP_RECORDS), GROUP_RECORDS))
    return shadow


def _started_jobs(outcome: Outcome) -> Iterator[Job]:
    kinds = {INITIALIZE_STATE: INITIALIZE, DELETE_STATE: DELETE}
    for verb, subject in outcome.effects:
        if verb in kinds:
            yield job(kinds[verb], subject.requests)


def _response(started: OffsetsToAlter | OffsetsToDelete | StateToDelete) -> Any:
    return None if isinstance(started, StateToDelete) else started.response


def _reloaded(state: State) -> State:
    """Return the state after the group coordinator was loaded again from its log. All connections are
    closed."""
    loaded = None
    if state.group is not None:
        loaded = state.group.copy()
        loaded.soft, loaded.reached_ms = SoftState(), {}
    jobs = (j._replace(awaited=False) if j.kind in BY_ITSELF else j for j in state.jobs)
    left = tuple(j for j in jobs if j.awaited or not j.done)
    return state._replace(group=loaded, jobs=left, clients=without_messages(state.clients))


def _initialized(group: ShareGroup) -> set[int]:
    """Return the partitions that the group has recorded as initialized."""
    topic = group.state_topics.initialized.get(ORDERS)
    return set(topic.partitions) if topic is not None else set()


def _check_start_offsets(state: State, partitions: int, *, untouched: bool) -> None:
    """Check SH11 and SH7: the share coordinator has the state of every initialized partition, with the
    expected start offset. `untouched` means that the administrator has sent no request; then the first
    `partitions` partitions, which exist from the start, have start offset -1 (by the reset policy)."""
    if state.group is None or state.topic == DELETED:
        return
    known = dict(state.states)
    for index in sorted(_initialized(state.group)):
        found = known.get(SharePartitionKey(GROUP, ORDERS, index))
        if found is None:
            why = f"{state.group!r} has initialized {index}, but the share coordinator has no state of it"
            raise InvariantViolation("InitializedPartitionsHaveState", why)
        if untouched and index < partitions and found.start_offset != -1:
            why = f"partition {index} exists from the start, but its start offset is {found.start_offset}"
            raise InvariantViolation("StartOffsetsAreCorrect", why)
        if state.altered and index in state.altered and found.start_offset != ALTERED:
            why = f"partition {index} was altered to {ALTERED}, but its start offset is {found.start_offset}"
            raise InvariantViolation("StartOffsetsAreCorrect", why)
