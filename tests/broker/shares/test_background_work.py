"""Requests of share groups to the share coordinator, and which answers count when it is slow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from konvene.broker.shares.background_work import ShareStateWork
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.share.work import (
    DELETE_STATE,
    INITIALIZE_STATE,
    OffsetsToAlter,
    StateDeleted,
    StateInitialized,
    StateToDelete,
    StateToInitialize,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import Deferred
from konvene.shard.contract import Effect
from konvene.share_state.requests import Answer, Delete, Initialize, SharePartitionKey

ORDERS, AUDIT = Uuid(b"orders".ljust(16, b"-")), Uuid(b"audit".ljust(16, b"-"))
FIRST, OTHER = SharePartitionKey("g", ORDERS, 0), SharePartitionKey("g", AUDIT, 0)


class SlowCoordinator:
    """A share coordinator that answers on request; also the group coordinator and the catalogue."""

    def __init__(self) -> None:
        self.pending: list[tuple[Any, Deferred[Answer]]] = []
        self.events: list[Any] = []
        self.core = object()
        self.work_to_alter: Any = None
        partitions: Any = SimpleNamespace(forget=lambda key: None, state_initialized=lambda key: None)
        services: Any = self
        self.work = ShareStateWork(services, services, partitions)

    def submit(self, request: Any, context: RequestContext | None = None) -> Deferred[Any]:
        answer = Deferred[Any]()
        if context is None:
            self.pending.append((request, answer))
        elif isinstance(request, AlterShareGroupOffsetsRequest):
            answer.resolve(self.work_to_alter)
        else:
            self.events.append(request)
            answer.resolve(None)
        return answer

    def inform(self, event: Any) -> None:
        self.events.append(event)

    def perform(self, *requests: Initialize | Delete) -> None:
        """Perform an effect of the group coordinator with these requests."""
        initializes = isinstance(requests[0], Initialize)
        subject: Any = (StateToInitialize if initializes else StateToDelete)("g", requests)
        verb = INITIALIZE_STATE if initializes else DELETE_STATE
        assert self.work.perform(self, Effect(verb, subject))  # type: ignore[arg-type]

    def answer(self, *answers: Answer) -> None:
        """Answer the oldest pending requests; without arguments, all of them successfully."""
        for answer in answers or (Answer(),) * len(self.pending):
            self.pending.pop(0)[1].resolve(answer)


def test_answers_are_reported_to_the_group_coordinator() -> None:
    slow = SlowCoordinator()
    slow.perform(Initialize(FIRST, 2, -1), Initialize(OTHER, 2, -1))
    slow.answer(Answer(), Answer(Errors.FENCED_STATE_EPOCH))
    assert slow.events == [StateInitialized("g", (FIRST,), (OTHER,))]


def test_an_initialization_superseded_by_a_deletion_is_not_reported() -> None:
    """SH11. Otherwise a group would count partitions as initialized whose state was deleted."""
    slow = SlowCoordinator()
    slow.perform(Initialize(FIRST, 2, -1), Initialize(OTHER, 2, -1))
    slow.perform(Delete(FIRST))
    slow.perform(Initialize(FIRST, 4, -1))
    slow.answer(Answer(), Answer())
    assert slow.events == [StateInitialized("g", (OTHER,), ())]
    slow.answer(Answer(), Answer(Errors.COORDINATOR_NOT_AVAILABLE))
    assert slow.events[1:] == [StateDeleted("g", (ORDERS,)), StateInitialized("g", (), (FIRST,))]


def test_the_answer_to_the_last_of_two_initializations_counts() -> None:
    slow = SlowCoordinator()
    slow.perform(Initialize(FIRST, 2, -1))
    slow.perform(Initialize(FIRST, 2, -1))
    slow.answer()
    assert slow.events == [StateInitialized("g", (), ()), StateInitialized("g", (FIRST,), ())]


def test_an_initialization_repeated_before_all_answers_counts_by_the_last_answer() -> None:
    slow = SlowCoordinator()
    second = SharePartitionKey("g", ORDERS, 1)
    slow.perform(Initialize(FIRST, 2, -1), Initialize(second, 2, -1))
    slow.answer(Answer())
    slow.perform(Initialize(FIRST, 2, 0))
    slow.answer(Answer())
    slow.answer(Answer(Errors.COORDINATOR_NOT_AVAILABLE))
    assert slow.events == [StateInitialized("g", (), ()), StateInitialized("g", (), (FIRST,))]


@pytest.mark.parametrize(
    ("is_superseded", "error"), [(True, Errors.COORDINATOR_NOT_AVAILABLE), (False, Errors.NONE)]
)
def test_an_alteration_superseded_by_an_initialization_is_an_error(
    is_superseded: bool, error: Errors
) -> None:
    """SH7. A reloaded group coordinator may initialize the partition again, which undoes the alteration.

    Without that, the group is informed at once, before any other request."""

    async def run() -> None:
        slow = SlowCoordinator()
        partition = AlterShareGroupOffsetsResponsePartition(partition_index=0)
        topic = AlterShareGroupOffsetsResponseTopic(
            topic_name="orders", topic_id=ORDERS, partitions=(partition,)
        )
        response = AlterShareGroupOffsetsResponse(responses=(topic,))
        slow.work_to_alter = OffsetsToAlter(response, (Initialize(FIRST, 3, 5),))
        request = AlterShareGroupOffsetsRequest(group_id="g")
        altering = asyncio.ensure_future(slow.work.alter(slow, request, RequestContext(0, "admin", "/host")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        if is_superseded:
            slow.perform(Initialize(FIRST, 4, -1))
        slow.answer()
        assert slow.events[0] == StateInitialized("g", () if is_superseded else (FIRST,)), (
            "the group is informed at once"
        )
        answer = await altering
        assert isinstance(answer, AlterShareGroupOffsetsResponse)
        assert answer.responses[0].partitions[0].error_code == error

    asyncio.run(run())
