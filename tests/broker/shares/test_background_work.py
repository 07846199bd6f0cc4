"""What is asked of the share coordinator, and which of its answers count when it is slow."""

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


class Slow:
    """A share coordinator that answers when it is told to; a group's coordinator, and a broker."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Deferred[Answer]]] = []
        self.news: list[Any] = []
        self.core = object()
        self.wanted: Any = None
        partitions: Any = SimpleNamespace(forget=lambda key: None)
        this: Any = self
        self.work = ShareStateWork(this, this, partitions)

    def submit(self, request: Any, call: RequestContext | None = None) -> Deferred[Any]:
        answer = Deferred[Any]()
        if call is None:
            self.asked.append((request, answer))
        elif isinstance(request, AlterShareGroupOffsetsRequest):
            answer.resolve(self.wanted)
        else:
            self.news.append(request)
            answer.resolve(None)
        return answer

    def inform(self, news: Any) -> None:
        self.news.append(news)

    def wants(self, *requests: Initialize | Delete) -> None:
        """A group's coordinator asks."""
        begins = isinstance(requests[0], Initialize)
        subject: Any = (StateToInitialize if begins else StateToDelete)("g", requests)
        verb = INITIALIZE_STATE if begins else DELETE_STATE
        assert self.work.perform(self, Effect(verb, subject))  # type: ignore[arg-type]

    def answers(self, *answers: Answer) -> None:
        """The next questions are answered, in their order; with nothing said all of them, and well."""
        for answer in answers or (Answer(),) * len(self.asked):
            self.asked.pop(0)[1].resolve(answer)


def test_an_answer_is_told() -> None:
    slow = Slow()
    slow.wants(Initialize(FIRST, 2, -1), Initialize(OTHER, 2, -1))
    slow.answers(Answer(), Answer(Errors.FENCED_STATE_EPOCH))
    assert slow.news == [StateInitialized("g", (FIRST,), (OTHER,))]


def test_what_was_to_be_forgotten_meanwhile_has_not_begun() -> None:
    """SH11. Else a group would have what the share coordinator does not know, and not ask for it again."""
    slow = Slow()
    slow.wants(Initialize(FIRST, 2, -1), Initialize(OTHER, 2, -1))
    slow.wants(Delete(FIRST))
    slow.wants(Initialize(FIRST, 4, -1))
    slow.answers(Answer(), Answer())
    assert slow.news == [StateInitialized("g", (OTHER,), ())]
    slow.answers(Answer(), Answer(Errors.COORDINATOR_NOT_AVAILABLE))
    assert slow.news[1:] == [StateDeleted("g", (ORDERS,)), StateInitialized("g", (), (FIRST,))]


def test_what_was_asked_for_twice_begins_by_the_last_answer() -> None:
    slow = Slow()
    slow.wants(Initialize(FIRST, 2, -1))
    slow.wants(Initialize(FIRST, 2, -1))
    slow.answers()
    assert slow.news == [StateInitialized("g", (), ()), StateInitialized("g", (FIRST,), ())]


def test_what_was_asked_for_again_before_the_others_were_answered_begins_by_the_last_answer() -> None:
    slow = Slow()
    more = SharePartitionKey("g", ORDERS, 1)
    slow.wants(Initialize(FIRST, 2, -1), Initialize(more, 2, -1))
    slow.answers(Answer())
    slow.wants(Initialize(FIRST, 2, 0))
    slow.answers(Answer())
    slow.answers(Answer(Errors.COORDINATOR_NOT_AVAILABLE))
    assert slow.news == [StateInitialized("g", (), ()), StateInitialized("g", (), (FIRST,))]


@pytest.mark.parametrize(
    ("in_time", "told"), [(True, Errors.COORDINATOR_NOT_AVAILABLE), (False, Errors.NONE)]
)
def test_who_alters_what_begins_once_more_meanwhile_is_told_that_it_was_in_vain(
    in_time: bool, told: Errors
) -> None:
    """SH7. A coordinator that began again has it begin where its reset says, behind the alteration. Once the
    offsets are altered the group knows of it, before anybody else can ask."""

    async def play() -> None:
        slow = Slow()
        partition = AlterShareGroupOffsetsResponsePartition(partition_index=0)
        topic = AlterShareGroupOffsetsResponseTopic(
            topic_name="orders", topic_id=ORDERS, partitions=(partition,)
        )
        response = AlterShareGroupOffsetsResponse(responses=(topic,))
        slow.wanted = OffsetsToAlter(response, (Initialize(FIRST, 3, 5),))
        request = AlterShareGroupOffsetsRequest(group_id="g")
        altering = asyncio.ensure_future(slow.work.alter(slow, request, RequestContext(0, "admin", "/host")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        if in_time:
            slow.wants(Initialize(FIRST, 4, -1))
        slow.answers()
        assert slow.news[0] == StateInitialized("g", () if in_time else (FIRST,)), "told at once"
        answer = await altering
        assert isinstance(answer, AlterShareGroupOffsetsResponse)
        assert answer.responses[0].partitions[0].error_code == told

    asyncio.run(play())
