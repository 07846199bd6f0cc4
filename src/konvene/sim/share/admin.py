"""Administrator requests for share groups, in virtual time: alter offsets, delete offsets, delete groups.

Each request has the steps of the broker: the group coordinator writes the intended change, the share
coordinator carries it out, and its result goes back to the group coordinator. Either may fail in between. The
broker's own functions build the requests and responses; callbacks replace its coroutines.

When altered offsets are acknowledged, the share coordinator must have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.shares.background_work import (
    Answers,
    initialization_result,
    topics_without_error,
    with_alter_errors,
)
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.share.work import (
    BeginDeletion,
    OffsetsToAlter,
    OffsetsToDelete,
    StateDeleted,
    StateToDelete,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.runtime.coordinator import RequestContext
from konvene.share_state.requests import Initialize, SharePartitionKey
from konvene.sim.world.event import InvariantViolation

if TYPE_CHECKING:
    from konvene.sim.share.node import ShareNode
    from konvene.sim.world.process import Process

Respond = Callable[[Struct | Errors], None]
"""Receives the response."""


class Administration:
    """A request of an administrator, which is carried out in steps from its creation on.

    If a coordinator fails over between two steps, the request gets no response."""

    def __init__(
        self, node: ShareNode, client: Process, request: Any, version: int, respond: Respond
    ) -> None:
        self.node = node
        self.runtime = node.world.runtime
        self.deliveries = node.deliveries
        self.request = request
        self.respond = respond
        self._call = RequestContext(version, client.name, "/10.0.0.1")
        BEGIN[type(request)](self)

    def _submit(self, request: object, proceed: Callable[[Any], None]) -> None:
        """Submit a request to the group coordinator; on success call `proceed` with its response, otherwise
        answer the administrator with the error."""

        def receive(answer: Any) -> None:
            if isinstance(answer, Errors):
                self.respond(answer)
            else:
                proceed(answer)

        if self.deliveries.loop.alive and self.runtime in (self.node.world.runtime, *self.node.world.deposed):
            self.runtime.ask(request, self._call, receive)

    # --- offsets ---

    def alter(self) -> None:
        overtaken: set[SharePartitionKey] = set()

        def begin(intended: OffsetsToAlter) -> None:
            if not intended.requests:
                self.respond(intended.response)
                return
            self.node.altering.update(intended.requests)
            answers = self.deliveries.work._submit_all(intended.requests, overtaken)
            answers.listen(lambda answers: complete(intended, answers))

        def complete(intended: OffsetsToAlter, answers: Answers) -> None:
            completion = initialization_result(self.request.group_id, answers, overtaken)
            self._submit(completion, lambda _: finish(intended, answers))

        def finish(intended: OffsetsToAlter, answers: Answers) -> None:
            if not overtaken:
                self._check_altered(intended.requests, with_alter_errors(intended.response, answers))
            self.respond(with_alter_errors(intended.response, answers))

        self._submit(self.request, begin)

    def _check_altered(
        self, requests: tuple[Initialize, ...], answer: AlterShareGroupOffsetsResponse
    ) -> None:
        """Check that the share coordinator has the start offsets that the response confirms.

        A start offset may be higher if members or another administrator have moved it since; a deleted topic
        has none."""
        rejected = any(p.error_code for topic in answer.responses for p in topic.partitions)
        runtime = self.node.runtime
        if rejected or not runtime.is_active:
            return
        for request in requests:
            state = runtime.core.states.get(request.key)
            exists = request.key.topic_id in self.node.world.topics.by_id
            altered = request.state_epoch, request.start_offset
            if exists and (state is None or (state.state_epoch, state.start_offset) < altered):
                why = f"{request} is confirmed, but the state is {state}"
                self.node.report_violation(InvariantViolation("AlteredOffsetsAreApplied", why))
            served = self.deliveries.share_partitions.served.get(request.key)
            if served is not None and served.loaded and served.core.state_epoch < request.state_epoch:
                why = f"{request} is confirmed, but {served!r} has state epoch {served.core.state_epoch}"
                self.node.report_violation(InvariantViolation("AlteredOffsetsAreApplied", why))

    def delete_offsets(self) -> None:
        def begin(intended: OffsetsToDelete) -> None:
            if not intended.requests:
                self.respond(intended.response)
            else:
                answers = self.deliveries.work._submit_all(intended.requests)
                answers.listen(lambda answers: complete(intended, answers))

        def complete(intended: OffsetsToDelete, answers: Answers) -> None:
            completion = StateDeleted(self.request.group_id, topics_without_error(answers))
            self._submit(completion, lambda _: self.respond(intended.response))

        self._submit(self.request, begin)

    # --- groups ---

    def delete_groups(self) -> None:
        """Delete the share partition state of one group of the request after another, and then all these
        groups."""
        names = list(self.request.groups_names)

        def delete_next(answers: Answers) -> None:
            if any(answer.error for answer in answers.values()):
                return
            if names:
                self._submit(BeginDeletion(names.pop()), begin)
            else:
                self._submit(self.request, self.respond)

        def begin(intended: StateToDelete) -> None:
            if intended.requests:
                self.deliveries.work._submit_all(intended.requests).listen(delete_next)
            else:
                delete_next({})

        delete_next({})


BEGIN: dict[type, Callable[[Administration], None]] = {
    AlterShareGroupOffsetsRequest: Administration.alter,
    DeleteShareGroupOffsetsRequest: Administration.delete_offsets,
    DeleteGroupsRequest: Administration.delete_groups,
}
"""First step of each request."""
