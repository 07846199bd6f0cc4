"""Share coordinator of a model check: pending requests and their responses, as values.

A `Job` is the requests about share partitions that a group coordinator or an administrator sends together.
They are answered one by one, those about the same share partition in the order in which they were sent; when
all are, the group coordinator receives the result. What follows from the responses is decided by the broker's
own functions.

The production code decides each request, checked against the invariants of `sim.share.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.broker.shares.background_work import initialization_result, topics_without_error
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.share.work import StateDeleted, StateInitialized
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.records.coordinator import SHARE_STATE_RECORDS, decode_record, encode_record
from konvene.shard.contract import Context
from konvene.shard.image import Topics
from konvene.share_state.pruning import ORPHANS
from konvene.share_state.requests import Answer, Delete, Initialize, SharePartitionKey, TopicsDeleted
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import PositionedRecord, SharePartitionState
from konvene.sim.share.invariants import share_state_invariants
from konvene.sim.share.runtime import StateEvent

INITIALIZE, DELETE = "initialize", "delete"
ALTER, DELETE_OFFSETS, DELETE_GROUP = "alter", "delete offsets", "delete group"
BY_ITSELF = (INITIALIZE, DELETE)
"""Jobs that the group coordinator starts by itself. A coordinator that was loaded again does not receive
their responses."""
AT_ONCE = (*BY_ITSELF, ALTER)
"""Jobs whose sender receives the responses in the transition that completes the job."""

UNCUT_LOG = SimpleNamespace(cut=0)

States = tuple[tuple[SharePartitionKey, SharePartitionState], ...]


class Job(NamedTuple):
    """A batch of requests to the share coordinator that are sent together, in order, with the answers so far.
    `kind` is its purpose: `INITIALIZE`, `DELETE`, `ALTER`, `DELETE_OFFSETS` or `DELETE_GROUP`."""

    kind: str
    requests: tuple[Initialize | Delete, ...]
    answers: tuple[Answer | None, ...] = ()
    awaited: bool = True
    """Whether the sender still waits for the responses."""
    overtaken: frozenset[SharePartitionKey] = frozenset()
    """Share partitions about which another job began before this one was done."""

    @property
    def done(self) -> bool:
        return None not in self.answers

    def with_answer(self, at: int, answer: Answer) -> Job:
        return self._replace(answers=(*self.answers[:at], answer, *self.answers[at + 1 :]))

    def completion(self, group_id: str) -> StateInitialized | StateDeleted | DeleteGroupsRequest | None:
        """Return what the group coordinator has to handle when this job is complete: a completion or another
        request; None if there is nothing to do."""
        answers = {r.key: a for r, a in zip(self.requests, self.answers, strict=True) if a is not None}
        if self.kind in (INITIALIZE, ALTER):
            return initialization_result(group_id, answers, self.overtaken)
        if self.kind == DELETE_GROUP:
            failed = any(answer.error for answer in answers.values())
            return None if failed else DeleteGroupsRequest(groups_names=(group_id,))
        deleted = topics_without_error(answers)
        return StateDeleted(group_id, deleted) if deleted else None


def with_more(jobs: tuple[Job, ...], new: Job) -> tuple[Job, ...]:
    """Return the jobs and a new one, which is marked as overtaking each earlier job in the share partitions
    that both concern."""
    keys = {request.key for request in new.requests}
    stale = (keys.intersection(request.key for request in each.requests) for each in jobs)
    marked = (e._replace(overtaken=e.overtaken | keys) for e, keys in zip(jobs, stale, strict=True))
    return (*marked, new)


def job(kind: str, requests: tuple[Initialize | Delete, ...]) -> Job:
    """Return a job of which no request is answered yet."""
    return Job(kind, requests, (None,) * len(requests))


def pending_requests(jobs: tuple[Job, ...]) -> Iterator[tuple[int, int]]:
    """Yield the requests that may be answered next, as pairs: index of the job, index of the request in it.
    Of each share partition that is its earliest request."""
    before: set[SharePartitionKey] = set()
    for number, each in enumerate(jobs):
        for at, request in enumerate(each.requests):
            if each.answers[at] is None and request.key not in before:
                before.add(request.key)
                yield number, at


class Coordinator:
    """The production code of the share coordinator as functions from the states of share partitions to the
    states after a decision. Each decision is checked; methods raise `InvariantViolation`."""

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self.invariants = share_state_invariants()

    def decide(self, states: States, request: Initialize | Delete, topics: Topics) -> tuple[States, Answer]:
        """Return the states after a request, and its response."""
        after, answer = self._decide("request", states, request, topics)
        return after, answer

    def inform(self, states: States, completion: TopicsDeleted, topics: Topics) -> States:
        """Return the states after a notification, such as the deletion of topics."""
        return self._decide("completion", states, completion, topics)[0]

    def delete_orphans(self, states: States, topics: Topics) -> States:
        """Return the states after the coordinator's timer deleted those whose topic no longer exists."""
        return self._decide("timer", states, ORPHANS, topics)[0]

    def _decide(self, kind: str, states: States, subject: Any, topics: Topics) -> tuple[States, Any]:
        before: Mapping[SharePartitionKey, SharePartitionState] = dict(states)
        core, shadow = ShareStateShard(), ShareStateShard()
        core.states, shadow.states = dict(before), dict(before)
        waiter = 1 if kind == "request" else 0
        context = Context(self._now_ms, self._config, waiter, topics=topics)
        outcome = core.expire(subject, context) if kind == "timer" else core.handle(subject, context)
        for record in outcome.records:
            core.replay(record)
            plain = record.record if isinstance(record, PositionedRecord) else record
            key, value = encode_record(plain, SHARE_STATE_RECORDS)
            decoded = decode_record(key, value, SHARE_STATE_RECORDS)
            assert decoded is not None
            shadow.replay(decoded)
        answer = outcome.replies[0].response if outcome.replies else None
        runtime: Any = SimpleNamespace(shadow=shadow, updates=core.updates_per_snapshot, log=UNCUT_LOG)
        batch: Any = outcome.records or None
        event = StateEvent(kind, runtime, before, dict(core.states), subject, answer, batch, waiter)
        for invariant in self.invariants:
            invariant.check(event)
        return tuple(sorted(core.states.items())), answer


FAILED = Answer(Errors.COORDINATOR_NOT_AVAILABLE)
"""The response of a request that may or may not have been done."""
