"""All that can happen to a small share group and to the state of its share partitions: breadth-first, on the
real cores of both coordinators.

The search, and what a state and a step are, is that of consumer groups (`consumers`). A state has the group,
what the share coordinator knows, what it was asked and has not answered (`share_states`), what each client
believes. Clients come, beat, leave, and as a fault they die, or either word is lost, or a session ends under
one that lives. The topic may grow, and be deleted. An administrator alters the offsets, deletes them, or
deletes the group, so often as the model says; with members in he is refused.

Faults of coordinators: the group's begins again from its log, while what it asked for is still done, or dies
with all that was under way; the share coordinator says that it could not, when it has done it and when not; a
question takes so long that it is asked again; a topic goes while both are away, and nobody is told.

Each step is held against the invariants of `sim.invariants.share` and `sim.share.invariants`, and against
what has to be so of both together: what a group has begun with is known to the share coordinator, and begins
where it was told to. When the search is over, from every state one is reached, without another fault, in
which every partition is begun with, all are assigned, and of what is gone nothing is known.

Left out: records. What is delivered of them is in `sim.share` and in the exhaustive test of `delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED
from konvene.groups.shard import GroupShard
from konvene.groups.share.decision import TIDY
from konvene.groups.share.group import ShareGroup, SoftState
from konvene.groups.share.work import (
    DELETE_STATE,
    INITIALIZE_STATE,
    BeginDeletion,
    OffsetsToAlter,
    OffsetsToDelete,
    StateToDelete,
    TopicsGone,
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
    MembersHaveTheirTarget,
    NewTopicsBegin,
    OnlyWhatHasBegunIsAssigned,
    ShareEpochsAreInOrder,
    ShareGroupsAreTheirLog,
    StaleHeartbeatsAreFenced,
    as_logged,
)
from konvene.sim.model_check.consumer_groups import GROUP, NAMES, NOW_MS, ORDERS, Consumers, Step
from konvene.sim.model_check.share_clients import Client, heard, is_request
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
    open_questions,
    with_more,
)
from konvene.sim.world.event import Event, InvariantViolation, View

INVARIANTS = (
    ShareGroupsAreTheirLog, ShareEpochsAreInOrder, OnlyWhatHasBegunIsAssigned, MembersHaveTheirTarget,
    StaleHeartbeatsAreFenced, NewTopicsBegin,
)  # fmt: skip

SMALL, GROWN, GONE = range(3)
"""What became of the topic."""
ALTERED = 5
"""Where an administrator has the group begin."""


class State(NamedTuple):
    """All that there is."""

    group: ShareGroup | None
    states: States
    jobs: tuple[Job, ...]
    clients: tuple[Client, ...]
    topic: int
    unheard: bool
    """Whether the share coordinator is away while a topic goes."""
    altered: frozenset[int] | None
    """The partitions whose offset was altered, as an administrator was answered; None: nobody has a word for
    where they begin."""
    admin: int
    faults: int


class Shares(Consumers):
    """A small world of share members. See `Consumers` for the bounds; an administrator comes so often.

    Raises ValueError for bounds that make no world."""

    invariants = INVARIANTS

    def __init__(
        self, members: int = 2, partitions: int = 1, faults: int = 1, *, static: int = 0, joins: int = 1,
        admin: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(members, partitions, faults, static=static, joins=joins, alike=False)
        self.bounds["admin"] = admin
        if static or admin < 0:
            raise ValueError(f"there is no such model: {self.bounds}")
        clients = tuple(Client(name, joins=joins) for name in NAMES[:members])
        begin = frozenset[int]()
        self.begin: Any = State(None, (), (), clients, SMALL, False, begin, admin, faults)
        self.topics = (*(Topics([Topic("orders", ORDERS, partitions + more)]) for more in (0, 1)), Topics())
        self.config, _ = BrokerConfig.load(overrides=[("group.share.assignment.interval.ms", "0")])
        self.group_configs = GroupConfigs(self.config)
        self.check_event = observer([invariant() for invariant in INVARIANTS])
        self.coordinator = Coordinator(self.config, NOW_MS)
        self.invariants = (*INVARIANTS, *map(type, self.coordinator.invariants))  # type: ignore[assignment]
        self._known: dict[Any, tuple[Any, Any, tuple[Job, ...]]] = {}
        """What was decided before, by what it rests on."""

    def key(self, state: Any) -> Any:
        """The same for states that differ by what nobody can tell."""
        base = state.group.epoch if state.group is not None else 0

        def since(epoch: int) -> int:
            return epoch - base - 10 if epoch > 0 else epoch

        clients = tuple(
            (
                c.inside, since(c.epoch), c.held, c.says_all, c.joins,
                c.question and (since(c.question.member_epoch), c.question.subscribed_topic_names),
                c.answer and (c.answer.error_code, since(c.answer.member_epoch), c.answer.assignment),
            )
            for c in state.clients
        )  # fmt: skip
        states = tuple((k.partition, since(s.highest_state_epoch), s.start_offset) for k, s in state.states)
        jobs = tuple(
            (
                j.kind,
                j.answers,
                j.heard,
                j.overtaken,
                tuple(r[:1] + tuple(map(since, r[1:2])) + r[2:] for r in j.requests),
            )
            for j in state.jobs
        )
        return self._of_group(state.group, since), states, jobs, clients, *state[4:]

    def _of_group(self, group: ShareGroup | None, since: Callable[[int], int]) -> Any:
        """All of a group on which decisions rest."""
        if group is None:
            return None
        state = group.state_topics
        return (
            since(group.assignment_epoch),
            group.soft.seen is not None and self.topics.index(group.soft.seen),
            tuple(group.soft.asked_ms),
            group.metadata_hash,
            tuple((name, target.get(ORDERS)) for name, target in sorted(group.targets.items())),
            state.initializing.get(ORDERS), state.initialized.get(ORDERS), tuple(state.deleting),
            tuple(
                (m.member_id, since(m.current.epoch), since(m.current.previous_epoch),
                 m.current.assigned.get(ORDERS))
                for m in group.members.values()
            ),
        )  # fmt: skip

    def is_settled(self, state: Any) -> bool:
        """Whether all who are in have what they should, nothing is on its way, and nothing is left over."""
        inside = [c for c in state.clients if c.inside]
        group = state.group
        if state.jobs or any(c.question or c.answer for c in inside):
            return False
        if group is None:
            return not inside and not state.states
        if group.members.keys() != {c.name for c in inside} or group.state_topics.deleting:
            return False
        counts = 0 if state.topic == GONE else self.topics[state.topic].by_name["orders"].partitions
        known = {key.partition for key, _ in state.states}
        begun = _begun(group)
        if not inside:
            begins = group.state_topics.initializing.get(ORDERS)
            return begun <= known <= begun | set(begins.partitions if begins else ()) and (
                state.topic != GONE or not known
            )
        held = {p for c in inside for p in c.held}
        whole = held == begun == known == set(range(counts)) and not group.state_topics.initializing
        return whole and all(c.epoch == group.epoch for c in inside)

    # --- what can happen ---

    def steps(self, state: Any) -> Iterator[Step]:
        """All that can happen next. Raises `InvariantViolation`."""
        for index, client in enumerate(state.clients):
            yield from self._of_client(state, index, client)
        yield from self._of_jobs(state)
        yield from self._of_the_topic(state)
        group = state.group
        if group is None:
            return
        yield from self._of_timers(state, group)
        if state.admin:
            yield from self._of_admin(state._replace(admin=state.admin - 1))
        if state.faults:
            less = state._replace(faults=state.faults - 1)
            yield Step("the group's coordinator begins again", _begun_again(less), False)
            if state.jobs:
                yield Step("all dies that was under way", _begun_again(less)._replace(jobs=()), False)

    def _of_client(self, state: Any, index: int, client: Any) -> Iterator[Step]:
        who = client.name
        if client.inside and state.faults:
            gone = Client(who, joins=client.joins)
            yield Step(f"{who} dies", _with(state, index, gone, fault=True), False)
        if client.answer is not None:
            yield Step(f"{who} hears", _with(state, index, heard(client)), True)
            if state.faults:
                lost = client._replace(answer=None, says_all=True)
                yield Step(f"{who} loses an answer", _with(state, index, lost, fault=True), False)
            return
        if client.question is not None:
            after, answer = self._decide(state, client.question)
            told = after.clients[index]._replace(question=None, answer=answer)
            yield Step(f"{who} arrives", _with(after, index, told), True)
            if state.faults:
                lost = client._replace(question=None, says_all=True)
                yield Step(f"{who} loses a question", _with(state, index, lost, fault=True), False)
        elif client.inside:
            yield Step(f"{who} asks", _with(state, index, is_request(client)), True)
        elif client.joins:
            comes = Client(who, True, 0, joins=client.joins - 1)
            yield Step(f"{who} comes", _with(state, index, is_request(comes)), False)
        if client.inside and client.epoch > 0 and client.question is None:
            request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=who, member_epoch=-1)
            gone = Client(who, joins=client.joins)
            yield Step(f"{who} leaves", self._decide(_with(state, index, gone), request)[0], False)

    def _of_jobs(self, state: Any) -> Iterator[Step]:
        """The share coordinator answers, and the group's coordinator is told."""
        jobs, topics = state.jobs, self.topics[state.topic]
        for number, at in open_questions(jobs):
            request = jobs[number].requests[at]
            what = f"{type(request).__name__.lower()} {request.key.partition} ({jobs[number].kind})"
            states, answer = self.coordinator.asked(state.states, request, topics)
            did = state._replace(states=states)
            yield self._step(
                f"the share coordinator does {what}", self._answered(did, number, at, answer), True
            )
            if state.faults:
                less = state._replace(faults=state.faults - 1)
                yield self._step(f"it cannot {what}", self._answered(less, number, at, FAILED), False)
                lost = less._replace(states=states)
                yield self._step(
                    f"it does and denies {what}", self._answered(lost, number, at, FAILED), False
                )
        for number, each in enumerate(jobs):
            if each.done:
                after = self._told(state._replace(jobs=jobs[:number] + jobs[number + 1 :]), each)
                yield self._step(f"the answers come back ({each.kind})", after, True)

    def _answered(self, state: Any, number: int, at: int, answer: Answer) -> Any:
        """One question is answered. What comes of most jobs the coordinator hears at once."""
        jobs = state.jobs
        each = jobs[number].with_answer(at, answer)
        if not each.done or each.kind not in AT_ONCE:
            return state._replace(jobs=(*jobs[:number], each, *jobs[number + 1 :]))
        rest = state._replace(jobs=jobs[:number] + jobs[number + 1 :])
        return self._told(rest, each) if each.heard else rest

    def _told(self, state: Any, each: Job) -> Any:
        """What the group's coordinator makes of the answers."""
        news = each.news(GROUP)
        if news is not None:
            state, answer = self._decide(state, news, "completion" if each.kind in BY_ITSELF else "request")
            if isinstance(answer, Errors):
                return state
        fine = all(answer is not None and not answer.error for answer in each.answers)
        if each.kind == ALTER and fine and not each.overtaken:
            state = state._replace(altered=frozenset(request.key.partition for request in each.requests))
        return state

    def _of_the_topic(self, state: Any) -> Iterator[Step]:
        if state.unheard:
            states = self.coordinator.looks_for_orphans(state.states, self.topics[state.topic])
            found = state._replace(states=states, unheard=False)
            yield self._step("the share coordinator looks for orphans", found, True)
        if state.topic == GONE:
            return
        if state.topic == SMALL:
            yield Step("orders grows", state._replace(topic=GROWN), False)
        gone = state._replace(topic=GONE, altered=None)
        ids = frozenset((ORDERS,))
        told = gone._replace(
            states=self.coordinator.informed(gone.states, TopicsDeleted(ids), self.topics[GONE])
        )
        yield self._step("orders is deleted", self._decide(told, TopicsGone(ids), "completion")[0], False)
        if state.faults:
            unheard = gone._replace(faults=state.faults - 1, unheard=True)
            yield Step("orders is deleted, and nobody is there", _begun_again(unheard), False)

    def _of_timers(self, state: Any, group: Any) -> Iterator[Step]:
        alive = {c.name for c in state.clients if c.inside}
        for member_id in list(group.members):
            dead = member_id not in alive
            if dead or state.faults:
                after = self._decide(state, ("session", GROUP, member_id), "timer")[0]
                after = after._replace(faults=state.faults - (not dead))
                yield self._step(f"the session of {member_id} ends", after, dead)
        if not group.state_topics.is_empty and not any(j.kind == DELETE for j in state.jobs):
            after = self._decide(state, TIDY, "timer")[0]
            yield self._step("the group's coordinator tidies up", after, True)
        if group.soft.asked_ms:
            late = any(j.heard and j.kind in (INITIALIZE, ALTER) for j in state.jobs)
            if state.faults or not late:
                fresh = group.copy()
                fresh.soft = SoftState(group.soft.seen)
                less = state._replace(group=fresh, faults=state.faults - late)
                yield Step("it may be asked again", less, not late)

    def _of_admin(self, state: Any) -> Iterator[Step]:
        counts = 1 if state.topic == GONE else self.topics[state.topic].by_name["orders"].partitions
        offsets = tuple(
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=ALTERED)
            for index in range(counts)
        )
        altered = alter.AlterShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=(alter.AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=offsets),),
        )
        gone = forget.DeleteShareGroupOffsetsRequest(
            group_id=GROUP, topics=(forget.DeleteShareGroupOffsetsRequestTopic(topic_name="orders"),)
        )
        for kind, request in ((ALTER, altered), (DELETE_OFFSETS, gone), (DELETE_GROUP, BeginDeletion(GROUP))):
            after, wanted = self._decide(state, request)
            refused = isinstance(wanted, Errors) or bool(getattr(_response(wanted), "error_code", 0))
            if refused != bool(state.group.members):
                raise InvariantViolation(
                    "OnlyEmptyGroupsAreAltered", f"{state.group!r}: {kind} is answered {wanted}"
                )
            if refused:
                if as_logged(after.group) != as_logged(state.group):
                    raise InvariantViolation(
                        "OnlyEmptyGroupsAreAltered", f"{kind} is refused, and changed {after.group}"
                    )
                continue
            after = after._replace(altered=None)
            if wanted.requests:
                yield self._step(
                    kind, after._replace(jobs=with_more(after.jobs, job(kind, wanted.requests))), False
                )
            elif kind == DELETE_GROUP:
                yield self._step(kind, self._told(after, job(kind, ())), False)

    # --- the core ---

    def _step(self, what: str, state: Any, by_itself: bool) -> Step:
        _witness(state, self.bounds["partitions"], untouched=state.admin == self.bounds["admin"])
        return Step(what, state, by_itself)

    def _decide(self, state: Any, request: Any, kind: str = "request") -> tuple[Any, Any]:
        """What comes of a request, of news, or of a timer. The same is decided once."""
        rests_on = self._of_group(state.group, int), state.group and state.group.epoch, state.topic
        known = self._known.get((rests_on, request, kind))
        if known is None:
            known = self._known[rests_on, request, kind] = self._decided(state, request, kind)
        group, answer, jobs = known
        return state._replace(group=group, jobs=reduce(with_more, jobs, state.jobs)), answer

    def _decided(self, state: Any, request: Any, kind: str) -> tuple[Any, Any, tuple[Job, ...]]:
        shard, before, topics = GroupShard(), state.group, self.topics[state.topic]
        if before is not None:
            shard.groups[GROUP] = before.copy()
        context = Context(
            NOW_MS, self.config, 0 if kind == "timer" else 1, 1, "client", "/host", ("fresh",), topics,
            self.group_configs, OFFERED,
        )  # fmt: skip
        refused: Errors | None = None
        try:
            outcome = shard.expire(request, context) if kind == "timer" else shard.handle(request, context)
        except GroupError as error:
            outcome, refused = Outcome(), error.error
        shadow = _shadow(before, outcome)
        for record in (*outcome.records, *outcome.soft_records):
            shard.replay(record)
        group: Any = shard.groups.get(GROUP)
        answer = refused or next((reply.response for reply in outcome.replies), None)
        is_beat = isinstance(request, ShareGroupHeartbeatRequest)
        event = Event(
            kind,
            SimpleNamespace(topics=topics, config=self.config, shadow=shadow),  # type: ignore[arg-type]
            View({} if before is None else {GROUP: before}, {}),
            View({} if group is None else {GROUP: group}, {}),
            changed=bool(outcome.records),
            api="ShareGroupHeartbeat" if is_beat else "",
            request=request if is_beat else None,
            version=1, context=context, waiter=1, key=request if kind == "timer" else (),
            outcome=outcome, answer=answer,
        )  # fmt: skip
        self.check_event(event)
        return group, answer, tuple(_wanted(outcome))


def _shadow(before: ShareGroup | None, outcome: Outcome) -> GroupShard:
    """What the log says, where it said of the group what was so before."""
    shadow = GroupShard()
    if before is not None:
        shadow.groups[GROUP] = before.copy()
    for record in outcome.records:
        shadow.replay(decode_record(*encode_record(record, GROUP_RECORDS), GROUP_RECORDS))
    return shadow


def _wanted(outcome: Outcome) -> Iterator[Job]:
    kinds = {INITIALIZE_STATE: INITIALIZE, DELETE_STATE: DELETE}
    for verb, subject in outcome.effects:
        if verb in kinds:
            yield job(kinds[verb], subject.requests)


def _response(wanted: OffsetsToAlter | OffsetsToDelete | StateToDelete) -> Any:
    return None if isinstance(wanted, StateToDelete) else wanted.response


def _begun_again(state: Any) -> Any:
    """The group's coordinator has read its log anew, and every connection is lost."""
    fresh = None
    if state.group is not None:
        fresh = state.group.copy()
        fresh.soft, fresh.reached_ms = SoftState(), {}
    jobs = (j._replace(heard=False) if j.kind in BY_ITSELF else j for j in state.jobs)
    left = tuple(j for j in jobs if j.heard or not j.done)
    clients = tuple(c._replace(question=None, answer=None, says_all=True) for c in state.clients)
    return state._replace(group=fresh, jobs=left, clients=clients)


def _with(state: Any, index: int, client: Client, *, fault: bool = False) -> Any:
    clients = (*state.clients[:index], client, *state.clients[index + 1 :])
    return state._replace(clients=clients, faults=state.faults - fault)


def _begun(group: ShareGroup) -> set[int]:
    some = group.state_topics.initialized.get(ORDERS)
    return set(some.partitions) if some is not None else set()


def _witness(state: Any, partitions: int, *, untouched: bool) -> None:
    """SH11, SH7, of both coordinators together: what the group has begun with is known, and begins where it
    should."""
    if state.group is None or state.topic == GONE:
        return
    known = dict(state.states)
    for index in sorted(_begun(state.group)):
        found = known.get(SharePartitionKey(GROUP, ORDERS, index))
        if found is None:
            why = f"{state.group!r} has begun with {index}, and the share coordinator does not know it"
            raise InvariantViolation("WhatHasBegunIsKnown", why)
        if untouched and index < partitions and found.start_offset != -1:
            why = f"{index} was there from the start, and begins at {found.start_offset}"
            raise InvariantViolation("PartitionsBeginWhereTheyShould", why)
        if state.altered and index in state.altered and found.start_offset != ALTERED:
            why = f"{index} was altered to {ALTERED}, and begins at {found.start_offset}"
            raise InvariantViolation("PartitionsBeginWhereTheyShould", why)


__all__ = ["Client", "Shares", "State"]
