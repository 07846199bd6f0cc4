"""What an administrator asks of share groups, in virtual time: offsets altered or deleted, groups deleted.

Each is in steps, as the broker does it: the group's coordinator writes down what is to be done, the share
coordinator does it, the first is told. Anybody may die in between. What is asked for, and what comes of it,
are the broker's own functions; only that nothing here can wait is different.

An administrator who is told that offsets are altered finds them so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.broker.shares.background_work import (
    initialization_result,
    topics_without_error,
    with_alter_errors,
)
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.share.work import BeginDeletion, StateDeleted
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

Answered = Callable[[Struct | Errors], None]


class Administration:
    """One request of an administrator, until it is answered, or somebody dies on the way."""

    def __init__(self, node: ShareNode, client: Process, request: Any, version: int, told: Answered) -> None:
        self.node = node
        self.runtime = node.world.runtime
        self.deliveries = node.deliveries
        self.request = request
        self.told = told
        self._call = RequestContext(version, client.name, "/10.0.0.1")
        BEGIN[type(request)](self)

    def _ask(self, request: Any, heard: Callable[[Any], None]) -> None:
        """The group's coordinator; what it refuses ends it all."""

        def answered(answer: Any) -> None:
            if isinstance(answer, Errors):
                self.told(answer)
            else:
                heard(answer)

        if self.deliveries.loop.alive and self.runtime in (self.node.world.runtime, *self.node.world.deposed):
            self.runtime.ask(request, self._call, answered)

    # --- offsets ---

    def alter(self) -> None:
        overtaken: set[SharePartitionKey] = set()

        def begun(wanted: Any) -> None:
            if not wanted.requests:
                self.told(wanted.response)
                return
            self.node.altering.update(wanted.requests)
            asked = self.deliveries.work._submit_all(wanted.requests, overtaken)
            asked.listen(lambda answers: done(wanted, answers))

        def done(wanted: Any, answers: Any) -> None:
            news = initialization_result(self.request.group_id, answers, overtaken)
            self._ask(news, lambda _: finished(wanted, answers))

        def finished(wanted: Any, answers: Any) -> None:
            if not overtaken:
                self._is_altered(wanted.requests, with_alter_errors(wanted.response, answers))
            self.told(with_alter_errors(wanted.response, answers))

        self._ask(self.request, begun)

    def _is_altered(self, requests: tuple[Initialize, ...], answer: AlterShareGroupOffsetsResponse) -> None:
        """Members may be further by now, or another administrator; and its topic may be gone."""
        refused = any(p.error_code for topic in answer.responses for p in topic.partitions)
        runtime = self.node.runtime
        if refused or not runtime.is_active:
            return
        for request in requests:
            known = runtime.core.states.get(request.key)
            gone = request.key.topic_id not in self.node.world.topics.by_id
            wanted = request.state_epoch, request.start_offset
            if not gone and (known is None or (known.state_epoch, known.start_offset) < wanted):
                why = f"{request} is answered, and there is {known}"
                self.node.broken(InvariantViolation("AlteredOffsetsHold", why))
            served = self.deliveries.share_partitions.served.get(request.key)
            if served is not None and served.loaded and served.core.state_epoch < request.state_epoch:
                why = f"{request} is answered, and {served!r} serves at {served.core.state_epoch}"
                self.node.broken(InvariantViolation("AlteredOffsetsHold", why))

    def delete_offsets(self) -> None:
        def begun(wanted: Any) -> None:
            if not wanted.requests:
                self.told(wanted.response)
            else:
                asked = self.deliveries.work._submit_all(wanted.requests)
                asked.listen(lambda answers: done(wanted, answers))

        def done(wanted: Any, answers: Any) -> None:
            gone = topics_without_error(answers)
            news = StateDeleted(self.request.group_id, gone)
            self._ask(news, lambda _: self.told(wanted.response))

        self._ask(self.request, begun)

    # --- groups ---

    def delete_groups(self) -> None:
        """One after another; all state of each goes first."""
        names = list(self.request.groups_names)

        def next_one(answers: Any) -> None:
            if any(answer.error for answer in answers.values()):
                return
            if names:
                self._ask(BeginDeletion(names.pop()), begun)
            else:
                self._ask(self.request, self.told)

        def begun(wanted: Any) -> None:
            if wanted.requests:
                self.deliveries.work._submit_all(wanted.requests).listen(next_one)
            else:
                next_one({})

        next_one({})


BEGIN: dict[type, Callable[[Administration], None]] = {
    AlterShareGroupOffsetsRequest: Administration.alter,
    DeleteShareGroupOffsetsRequest: Administration.delete_offsets,
    DeleteGroupsRequest: Administration.delete_groups,
}
"""What is begun with for each request."""
