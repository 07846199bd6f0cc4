"""The share coordinator of a small world: what it is asked, by whom, and what came of it, as values.

A `Job` is what a group's coordinator, or an administrator, wants done of share partitions. Its questions
answered one by one, those about the same share partition in the order in which they were asked; when all are,
the group's coordinator is told. What follows from the answers is said by the broker's own functions.

Each question is decided by the core that serves, and held against the invariants of `sim.share.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from konvene.broker.shares.background_work import initialized, topics_without_error
from konvene.errors import Errors
from konvene.groups.share.work import StateDeleted
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.records.coordinator import SHARE_STATE_RECORDS, decode_record, encode_record
from konvene.shard.contract import Context
from konvene.shard.image import Topics
from konvene.share_state.pruning import ORPHANS
from konvene.share_state.requests import Answer, Delete, Initialize, SharePartitionKey
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import At, SharePartitionState
from konvene.sim.share.invariants import share_state_invariants
from konvene.sim.share.runtime import StateEvent

INITIALIZE, DELETE = "initialize", "delete"
ALTER, DELETE_OFFSETS, DELETE_GROUP = "alter", "delete offsets", "delete group"
BY_ITSELF = (INITIALIZE, DELETE)
"""What no administrator waits for: of these a coordinator that begins again hears nothing."""
AT_ONCE = (*BY_ITSELF, ALTER)
"""Of what a coordinator hears when the last answer is there."""

NEVER_CUT = SimpleNamespace(cut=0)

States = tuple[tuple[SharePartitionKey, SharePartitionState], ...]


class Job(NamedTuple):
    """Questions to the share coordinator, in order, and the answers so far."""

    kind: str
    requests: tuple[Initialize | Delete, ...]
    answers: tuple[Answer | None, ...] = ()
    heard: bool = True
    """Whether who asked is still there."""
    overtaken: frozenset[SharePartitionKey] = frozenset()
    """Of which something else was asked before all were answered."""

    @property
    def done(self) -> bool:
        return None not in self.answers

    def with_answer(self, at: int, answer: Answer) -> Job:
        return self._replace(answers=(*self.answers[:at], answer, *self.answers[at + 1 :]))

    def news(self, group_id: str) -> Any:
        """What the group's coordinator is told, or asked next; None where there is nothing to say."""
        told = {r.key: a for r, a in zip(self.requests, self.answers, strict=True) if a is not None}
        if self.kind in (INITIALIZE, ALTER):
            return initialized(group_id, told, self.overtaken)
        if self.kind == DELETE_GROUP:
            failed = any(answer.error for answer in told.values())
            return None if failed else DeleteGroupsRequest(groups_names=(group_id,))
        gone = topics_without_error(told)
        return StateDeleted(group_id, gone) if gone else None


def with_more(jobs: tuple[Job, ...], new: Job) -> tuple[Job, ...]:
    """The same with a job more, which overtakes those that are about the same."""
    keys = {request.key for request in new.requests}
    stale = (keys.intersection(request.key for request in each.requests) for each in jobs)
    marked = (e._replace(overtaken=e.overtaken | some) for e, some in zip(jobs, stale, strict=True))
    return (*marked, new)


def job(kind: str, requests: tuple[Initialize | Delete, ...]) -> Job:
    """A job of which nothing is done."""
    return Job(kind, requests, (None,) * len(requests))


def open_questions(jobs: tuple[Job, ...]) -> Iterator[tuple[int, int]]:
    """The questions that may be answered next, as numbers of a job and of a request in it."""
    before: set[SharePartitionKey] = set()
    for number, each in enumerate(jobs):
        for at, request in enumerate(each.requests):
            if each.answers[at] is None and request.key not in before:
                before.add(request.key)
                yield number, at


class Coordinator:
    """The share coordinator: from states to states. Raises `InvariantViolation`."""

    def __init__(self, config: Any, now_ms: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self.invariants = share_state_invariants()

    def asked(self, states: States, request: Initialize | Delete, topics: Topics) -> tuple[States, Answer]:
        """A question is decided."""
        after, answer = self._decide("request", states, request, topics)
        return after, answer

    def informed(self, states: States, news: Any, topics: Topics) -> States:
        """It hears that topics are gone."""
        return self._decide("completion", states, news, topics)[0]

    def looks_for_orphans(self, states: States, topics: Topics) -> States:
        """After it began again."""
        return self._decide("timer", states, ORPHANS, topics)[0]

    def _decide(self, kind: str, states: States, about: Any, topics: Topics) -> tuple[States, Any]:
        before: Mapping[SharePartitionKey, SharePartitionState] = dict(states)
        core, shadow = ShareStateShard(), ShareStateShard()
        core.states, shadow.states = dict(before), dict(before)
        waiter = 1 if kind == "request" else 0
        context = Context(self._now_ms, self._config, waiter, topics=topics)
        outcome = core.expire(about, context) if kind == "timer" else core.handle(about, context)
        for record in outcome.records:
            core.replay(record)
            plain = record.record if isinstance(record, At) else record
            key, value = encode_record(plain, SHARE_STATE_RECORDS)
            shadow.replay(decode_record(key, value, SHARE_STATE_RECORDS))
        answer = outcome.replies[0].response if outcome.replies else None
        runtime: Any = SimpleNamespace(shadow=shadow, updates=core.updates_per_snapshot, log=NEVER_CUT)
        batch: Any = outcome.records or None
        event = StateEvent(kind, runtime, before, dict(core.states), about, answer, batch, waiter)
        for invariant in self.invariants:
            invariant.check(event)
        return tuple(sorted(core.states.items())), answer


FAILED = Answer(Errors.COORDINATOR_NOT_AVAILABLE)
"""What is answered where nobody knows whether it was done."""
