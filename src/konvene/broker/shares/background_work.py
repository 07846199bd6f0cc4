"""What share groups have to do with others: the share coordinator, and those who deliver.

The group's coordinator says what it wants as an effect; then the share coordinator is asked for each share
partition, and when all have answered the group's coordinator is told. Nothing of it needs a task: the answers
come by themselves, and a question that the share coordinator cannot take yet waits with it.

Requests by which an administrator changes offsets, or deletes a group, are in two steps: the group's
coordinator writes down what is to be done, the share coordinator does it, the first is told. A crash between
two steps leaves the lists in the group's log, from which `groups.share.initialize` goes on.

The share coordinator may be slow, and meanwhile something else is wanted of the same share partition: that
its state is forgotten, or begun with once more. The answer to the first question then says nothing any more
of how it is, and is kept from the group's coordinator; that to the last one counts.

Whoever delivers is told of each share partition whose state is another one now.
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

Answers = dict[SharePartitionKey, Answer]

SUPERSEDED = Answer(
    Errors.COORDINATOR_NOT_AVAILABLE, "Something else was asked of the share partition meanwhile."
)
"""What an administrator is told who altered offsets that are others by now."""


class ShareStateWork:
    """See the top of this file."""

    def __init__(
        self,
        catalogue: ClusterCatalogue,
        share_coordinators: ShareCoordinators,
        share_partitions: SharePartitions,
    ) -> None:
        self._catalogue = catalogue
        self._share_coordinators = share_coordinators
        self._share_partitions = share_partitions
        self._last: dict[SharePartitionKey, Initialize | Delete] = {}
        """What was asked last of a share partition, until all that was asked with it is answered."""

    def __repr__(self) -> str:
        return "<the work of share groups>"

    # --- effects ---

    def perform(self, coordinator: Coordinator, effect: Effect) -> bool:
        """Begin with what a coordinator asks for; False where that is not for share groups."""
        begin = EFFECTS.get(effect.verb)
        if begin is None:
            return False
        begin(self, coordinator, effect.subject)
        return True

    def _initialize(self, coordinator: Coordinator, wanted: StateToInitialize) -> None:
        core, overtaken = coordinator.core, set[SharePartitionKey]()

        def heard(answers: Answers) -> None:
            # A coordinator that has loaded its log anew asks again.
            if coordinator.core is core:
                coordinator.inform(initialization_result(wanted.group_id, answers, overtaken))

        self._ask_all(wanted.requests, overtaken).listen(heard)

    def _delete(self, coordinator: Coordinator, wanted: StateToDelete) -> None:
        core = coordinator.core

        def heard(answers: Answers) -> None:
            gone = topics_without_error(answers)
            if gone and coordinator.core is core:
                coordinator.inform(StateDeleted(wanted.group_id, gone))

        self._ask_all(wanted.requests).listen(heard)

    def _member_gone(self, coordinator: Coordinator, who: tuple[str, str]) -> None:
        self._share_partitions.member_removed(*who)

    def _member_left(self, coordinator: Coordinator, who: tuple[str, str]) -> None:
        self._share_partitions.member_left(*who)

    def _group_empty(self, coordinator: Coordinator, group_id: str) -> None:
        self._share_partitions.group_empty(group_id)

    # --- in two steps ---

    async def alter(
        self, coordinator: Coordinator, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse | Errors:
        """AlterShareGroupOffsets, whole."""
        wanted = await coordinator.submit(request, context)
        if isinstance(wanted, Errors):
            return wanted
        assert isinstance(wanted, OffsetsToAlter)
        if not wanted.requests:
            return wanted.response
        overtaken: set[SharePartitionKey] = set()
        written: Deferred[tuple[Answers, Any]] = Deferred()

        def heard(answers: Answers) -> None:
            # At once: a heartbeat in between would have begun with the share partitions once more.
            news = initialization_result(request.group_id, answers, overtaken)
            coordinator.submit(news, context).listen(lambda told: written.resolve((answers, told)))

        self._ask_all(wanted.requests, overtaken).listen(heard)
        answers, told = await written
        if isinstance(told, Errors):
            return told
        stale = {key.topic_id for key in overtaken}
        in_vain = {key: SUPERSEDED for key in answers if key.topic_id in stale}
        return with_alter_errors(wanted.response, answers | in_vain)

    async def delete_offsets(
        self, coordinator: Coordinator, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> DeleteShareGroupOffsetsResponse | Errors:
        """DeleteShareGroupOffsets, whole."""
        wanted = await coordinator.submit(request, context)
        if isinstance(wanted, Errors):
            return wanted
        assert isinstance(wanted, OffsetsToDelete)
        if not wanted.requests:
            return wanted.response
        answers = await self._ask_all(wanted.requests)
        gone = topics_without_error(answers)
        if gone:
            told = await coordinator.submit(StateDeleted(request.group_id, gone), context)
            if isinstance(told, Errors):
                return told
        return wanted.response.replace(responses=(*self._deleted(answers), *wanted.response.responses))

    def _deleted(self, answers: Answers) -> list[DeleteShareGroupOffsetsResponseTopic]:
        topics = self._catalogue.topics.by_id
        errors: dict[Any, Errors] = {}
        messages: dict[Any, str | None] = {}
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
        """Have all state of a group forgotten, before the group is; nothing where it is no share group."""
        wanted = await coordinator.submit(BeginDeletion(group_id), context)
        if isinstance(wanted, Errors):
            return wanted
        assert isinstance(wanted, StateToDelete)
        answers = await self._ask_all(wanted.requests) if wanted.requests else {}
        return next((a.error for a in answers.values() if a.error is not Errors.NONE), Errors.NONE)

    # --- asking ---

    def _ask_all(
        self, requests: Sequence[Initialize | Delete], overtaken: set[SharePartitionKey] | None = None
    ) -> Deferred[Answers]:
        """What the share coordinator says to each; there when all is. Of which something else was asked
        meanwhile is added to `overtaken`."""
        answers: Answers = {}
        all_there: Deferred[Answers] = Deferred()

        def heard(request: Initialize | Delete, answer: Answer) -> None:
            key = request.key
            answers[key] = answer
            if answer.error is Errors.NONE:
                self._share_partitions.forget(key)
            if len(answers) == len(requests):
                stale = self._not_the_last(requests)
                if overtaken is not None:
                    overtaken.update(stale)
                all_there.resolve({request.key: answers[request.key] for request in requests})

        for request in requests:
            self._last[request.key] = request
            self._share_coordinators.submit(request).listen(partial(heard, request))
        return all_there

    def _not_the_last(self, requests: Sequence[Initialize | Delete]) -> set[SharePartitionKey]:
        """The share partitions of which something else was asked since. All answers are there."""
        stale: set[SharePartitionKey] = set()
        for request in requests:
            if self._last.get(request.key) is request:
                del self._last[request.key]
            else:
                stale.add(request.key)
        return stale


EFFECTS: dict[str, Callable[[ShareStateWork, Coordinator, Any], None]] = {
    INITIALIZE_STATE: ShareStateWork._initialize,
    DELETE_STATE: ShareStateWork._delete,
    MEMBER_FENCED: ShareStateWork._member_gone,
    MEMBER_LEFT: ShareStateWork._member_left,
    GROUP_EMPTY: ShareStateWork._group_empty,
}
"""What is done for each effect."""


def topics_without_error(answers: Answers) -> tuple[Any, ...]:
    """The topics of which all that was asked has been done."""
    bad = {key.topic_id for key, answer in answers.items() if answer.error is not Errors.NONE}
    return tuple(topic for topic in dict.fromkeys(key.topic_id for key in answers) if topic not in bad)


def initialization_result(
    group_id: str, answers: Answers, overtaken: Collection[SharePartitionKey] = ()
) -> StateInitialized:
    """A topic begins whole or not at all: else the rest of it would not begin where it should. Of a topic of
    which something else was asked meanwhile nothing is told."""
    stale = {key.topic_id for key in overtaken}
    whole = set(topics_without_error(answers))
    told = [key for key in answers if key.topic_id not in stale]
    return StateInitialized(
        group_id,
        tuple(key for key in told if key.topic_id in whole),
        tuple(key for key in told if key.topic_id not in whole),
    )


def with_alter_errors(
    response: AlterShareGroupOffsetsResponse, answers: Answers
) -> AlterShareGroupOffsetsResponse:
    """The response, with the errors of partitions that the share coordinator refused."""
    refused = {
        (key.topic_id, key.partition): answer
        for key, answer in answers.items()
        if answer.error is not Errors.NONE
    }
    if not refused:
        return response
    return response.replace(
        responses=tuple(
            topic.replace(
                partitions=tuple(
                    partition.replace(error_code=bad.error, error_message=bad.message)
                    if (bad := refused.get((topic.topic_id, partition.partition_index))) is not None
                    else partition
                    for partition in topic.partitions
                )
            )
            for topic in response.responses
        )
    )
