"""Runs the effects of share groups: work for the share coordinator and the share partitions of this broker.

A group coordinator requests work as an effect. Each share partition of the work is one request to the share
coordinator; when all are answered, the group coordinator receives the result as an event. No asyncio task is
needed: answers arrive by callback, and `ShareCoordinators` queues requests for a coordinator that is not
ready.

AlterShareGroupOffsets, DeleteShareGroupOffsets and the deletion of a group take two steps: the group
coordinator records what has to be done, the share coordinator does it, and the group coordinator records the
result. After a crash in between, `groups.share.initialize` continues from the lists in the group's log.

While the share coordinator is working, a second request for the same share partition (a deletion, or another
initialization) may be submitted. The first one is then superseded: only the answer to the last one is
reported to the group coordinator.

After such a change of its state, the `SharePartitionServer` is dropped; the next fetch loads the share
partition anew. One that is being loaded when its state is initialized loads the new state, and the fetches
that wait for it keep waiting: a member may fetch right after its first heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from konvene.errors import Errors
from konvene.groups.share.work import (
    DELETE_STATE,
    GROUP_EMPTY,
    INITIALIZE_STATE,
    MEMBER_FENCED,
    MEMBER_LEFT,
    BeginDeletion,
    OffsetsToAlter,
    OffsetsToDelete,
    StateDeleted,
    StateInitialized,
    StateToDelete,
    StateToInitialize,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.deferred import Deferred
from konvene.shard.contract import Effect
from konvene.share_state.requests import Answer, Delete, Initialize, SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.codec.uuid import Uuid

Answers = dict[SharePartitionKey, Answer]

SUPERSEDED = Answer(
    Errors.COORDINATOR_NOT_AVAILABLE, "A later request changed the state of the share partition."
)
"""Answer to AlterShareGroupOffsets for a share partition that another request has changed meanwhile."""


class ShareStateWork:
    """Runs the effects of share groups, and the administrative requests that take two steps."""

    def __init__(
        self,
        catalogue: ClusterCatalogue,
        share_coordinators: ShareCoordinators,
        share_partitions: SharePartitions,
    ) -> None:
        self._catalogue = catalogue
        self._share_coordinators = share_coordinators
        self._share_partitions = share_partitions
        self._latest: dict[SharePartitionKey, Initialize | Delete] = {}
        """The last request for each share partition, until all requests of its call are answered."""

    def __repr__(self) -> str:
        return f"<share state work: {len(self._latest)} share partitions pending>"

    # --- effects ---

    def perform(self, coordinator: Coordinator, effect: Effect) -> bool:
        """Start the work that an effect requests. Return False if it is not an effect of a share group."""
        begin = EFFECTS.get(effect.verb)
        if begin is None:
            return False
        begin(self, coordinator, effect.subject)
        return True

    def _initialize(self, coordinator: Coordinator, work: StateToInitialize) -> None:
        core, superseded = coordinator.core, set[SharePartitionKey]()

        def report(answers: Answers) -> None:
            # A coordinator that has reloaded its log requests the work again.
            if coordinator.core is core:
                coordinator.inform(initialization_result(work.group_id, answers, superseded))

        self._submit_all(work.requests, superseded).listen(report)

    def _delete(self, coordinator: Coordinator, work: StateToDelete) -> None:
        core = coordinator.core

        def report(answers: Answers) -> None:
            deleted = topics_without_error(answers)
            if deleted and coordinator.core is core:
                coordinator.inform(StateDeleted(work.group_id, deleted))

        self._submit_all(work.requests).listen(report)

    def _member_fenced(self, coordinator: Coordinator, member: tuple[str, str]) -> None:
        self._share_partitions.member_removed(*member)

    def _member_left(self, coordinator: Coordinator, member: tuple[str, str]) -> None:
        self._share_partitions.member_left(*member)

    def _group_empty(self, coordinator: Coordinator, group_id: str) -> None:
        self._share_partitions.group_empty(group_id)

    # --- requests in two steps ---

    async def alter(
        self, coordinator: Coordinator, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse | Errors:
        """Run both steps of AlterShareGroupOffsets; return its response, or the group coordinator's error."""
        work = await coordinator.submit(request, context)
        if isinstance(work, Errors):
            return work
        assert isinstance(work, OffsetsToAlter)
        if not work.requests:
            return work.response
        superseded: set[SharePartitionKey] = set()
        recorded: Deferred[tuple[Answers, object]] = Deferred()

        def record(answers: Answers) -> None:
            # At once: a heartbeat in between would initialize the share partitions once more.
            event = initialization_result(request.group_id, answers, superseded)
            coordinator.submit(event, context).listen(lambda result: recorded.resolve((answers, result)))

        self._submit_all(work.requests, superseded).listen(record)
        answers, result = await recorded
        if isinstance(result, Errors):
            return result
        stale_topics = {key.topic_id for key in superseded}
        ineffective = {key: SUPERSEDED for key in answers if key.topic_id in stale_topics}
        return with_alter_errors(work.response, answers | ineffective)

    async def delete_offsets(
        self, coordinator: Coordinator, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> DeleteShareGroupOffsetsResponse | Errors:
        """Run both steps of DeleteShareGroupOffsets, as `alter` does."""
        work = await coordinator.submit(request, context)
        if isinstance(work, Errors):
            return work
        assert isinstance(work, OffsetsToDelete)
        if not work.requests:
            return work.response
        answers = await self._submit_all(work.requests)
        deleted = topics_without_error(answers)
        if deleted:
            result = await coordinator.submit(StateDeleted(request.group_id, deleted), context)
            if isinstance(result, Errors):
                return result
        return work.response.replace(responses=(*self._topic_results(answers), *work.response.responses))

    def _topic_results(self, answers: Answers) -> list[DeleteShareGroupOffsetsResponseTopic]:
        topics = self._catalogue.topics.by_id
        errors: dict[Uuid, Errors] = {}
        messages: dict[Uuid, str | None] = {}
        for key, answer in answers.items():
            if errors.get(key.topic_id, Errors.NONE) is Errors.NONE:
                errors[key.topic_id], messages[key.topic_id] = answer.error, answer.message
        return [
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topics[topic].name if topic in topics else "",
                topic_id=topic,
                error_code=error,
                error_message=messages.get(topic),
            )
            for topic, error in errors.items()
        ]

    async def delete_state(self, coordinator: Coordinator, group_id: str, context: RequestContext) -> Errors:
        """Delete the share state of a group that is about to be deleted; return the first error, else NONE.

        A group of another type has no share state: nothing is deleted."""
        work = await coordinator.submit(BeginDeletion(group_id), context)
        if isinstance(work, Errors):
            return work
        assert isinstance(work, StateToDelete)
        answers = await self._submit_all(work.requests) if work.requests else {}
        return next((a.error for a in answers.values() if a.error is not Errors.NONE), Errors.NONE)

    # --- requests to the share coordinator ---

    def _submit_all(
        self, requests: Sequence[Initialize | Delete], superseded: set[SharePartitionKey] | None = None
    ) -> Deferred[Answers]:
        """Submit the requests; return a deferred of all answers.

        When all are answered, the share partitions for which a later request was submitted meanwhile are
        added to the set `superseded`."""
        answers: Answers = {}
        all_answers: Deferred[Answers] = Deferred()

        def on_answer(request: Initialize | Delete, answer: Answer) -> None:
            key = request.key
            answers[key] = answer
            if answer.error is Errors.NONE and isinstance(request, Initialize):
                self._share_partitions.state_initialized(key)
            elif answer.error is Errors.NONE:
                self._share_partitions.forget(key)
            if len(answers) == len(requests):
                stale = self._pop_superseded(requests)
                if superseded is not None:
                    superseded.update(stale)
                all_answers.resolve({request.key: answers[request.key] for request in requests})

        for request in requests:
            self._latest[request.key] = request
            self._share_coordinators.submit(request).listen(partial(on_answer, request))
        return all_answers

    def _pop_superseded(self, requests: Sequence[Initialize | Delete]) -> set[SharePartitionKey]:
        """Return the share partitions for which a later request than the answered one was submitted.

        Forget the requests of the other share partitions."""
        superseded: set[SharePartitionKey] = set()
        for request in requests:
            if self._latest.get(request.key) is request:
                del self._latest[request.key]
            else:
                superseded.add(request.key)
        return superseded


EFFECTS: dict[str, Callable[[ShareStateWork, Coordinator, Any], None]] = {
    INITIALIZE_STATE: ShareStateWork._initialize,
    DELETE_STATE: ShareStateWork._delete,
    MEMBER_FENCED: ShareStateWork._member_fenced,
    MEMBER_LEFT: ShareStateWork._member_left,
    GROUP_EMPTY: ShareStateWork._group_empty,
}
"""The method that performs each effect."""


def topics_without_error(answers: Answers) -> tuple[Uuid, ...]:
    """Return the ids of the topics of which all share partitions succeeded."""
    failed = {key.topic_id for key, answer in answers.items() if answer.error is not Errors.NONE}
    return tuple(topic for topic in dict.fromkeys(key.topic_id for key in answers) if topic not in failed)


def initialization_result(
    group_id: str, answers: Answers, superseded: Collection[SharePartitionKey] = ()
) -> StateInitialized:
    """Return the event that informs the group coordinator which topics were initialized.

    If one share partition of a topic failed, the whole topic did: otherwise the rest of it would begin at the
    wrong offset. Topics with a superseded share partition are left out."""
    superseded_topics = {key.topic_id for key in superseded}
    complete_topics = set(topics_without_error(answers))
    reported = [key for key in answers if key.topic_id not in superseded_topics]
    return StateInitialized(
        group_id,
        tuple(key for key in reported if key.topic_id in complete_topics),
        tuple(key for key in reported if key.topic_id not in complete_topics),
    )


def with_alter_errors(
    response: AlterShareGroupOffsetsResponse, answers: Answers
) -> AlterShareGroupOffsetsResponse:
    """Return the response with the errors of partitions that the share coordinator rejected."""
    rejected = {
        (key.topic_id, key.partition): answer
        for key, answer in answers.items()
        if answer.error is not Errors.NONE
    }
    if not rejected:
        return response
    return response.replace(
        responses=tuple(
            topic.replace(
                partitions=tuple(
                    partition.replace(error_code=bad.error, error_message=bad.message)
                    if (bad := rejected.get((topic.topic_id, partition.partition_index))) is not None
                    else partition
                    for partition in topic.partitions
                )
            )
            for topic in response.responses
        )
    )
