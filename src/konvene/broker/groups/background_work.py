"""Work of groups that takes long: done elsewhere, and what comes of it handed back to the coordinator.

By threads: which topics an expression matches, and targets of large groups (`groups.consumer.work`). By the
catalogue: internal topics of streams groups (`internal_topics`). By the share coordinator: share partitions
(`share_state_work`). By the loop, a little later: ends of changelogs (`changelog_ends`).

The coordinator goes on meanwhile. One that has loaded its log anew, or serves no more, has forgotten that it
asked; then what comes is dropped. Work that fails is told as well, for the group would wait for it otherwise:
no expression was looked at, or the assignor gave nothing.

There are `group.coordinator.background.threads`. A close waits for none of them, as nothing that they do is
written anywhere. Still ugly: Python waits for a thread before it ends, so an assignor that never comes back
has to be killed with its broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from konvene.broker.groups import changelog_ends
from konvene.broker.groups.internal_topics import InternalTopics
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.broker.shares.background_work import ShareStateWork
from konvene.groups.assignors import PartitionAssignorError
from konvene.groups.assignors.tasks.contract import TaskAssignorError
from konvene.groups.consumer.regex import matching
from konvene.groups.consumer.work import (
    COMPUTE_ASSIGNMENT,
    RESOLVE_REGEXES,
    AssignmentComputed,
    AssignmentToCompute,
    RegexesResolved,
    RegexesToResolve,
    failed_result,
)
from konvene.groups.streams.classic.changelog_ends import LOOK_UP_ENDS, EndsToLookUp
from konvene.groups.streams.topology.internal_topics import CREATE_TOPICS, TopicsToCreate
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.shard.contract import Core, Effect

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices

log = logging.getLogger("konvene.groups")

BROKER = RequestContext(client_id="broker")


class GroupWork:
    """What is being worked on, for all coordinators of groups."""

    def __init__(
        self, node: NodeServices, share_state_work: ShareStateWork, authorize: Authorizer = allow_all
    ) -> None:
        self._node = node
        self._loop = node.loop
        self._authorize = authorize
        self._threads = ThreadPoolExecutor(
            node.settings.config["group.coordinator.background.threads"], thread_name_prefix="konvene-groups"
        )
        self._topics = InternalTopics(node, authorize)
        self._share_state_work = share_state_work
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<group work: {len(self._tasks)} under way>"

    def perform(self, coordinator: Coordinator, effect: Effect) -> None:
        """Begin with what a coordinator asks for."""
        if self._share_state_work.perform(coordinator, effect):
            return
        if effect.verb == CREATE_TOPICS:
            task = self._loop.create_task(self._create(coordinator, coordinator.core, effect.subject))
        elif effect.verb == LOOK_UP_ENDS:
            task = self._loop.create_task(self._look_up(coordinator, coordinator.core, effect.subject))
        else:
            work = WORK[effect.verb]
            task = self._loop.create_task(
                self._do(coordinator, coordinator.core, lambda: work(effect.subject, self._authorize))
            )
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _create(self, coordinator: Coordinator, core: Core, wanted: TopicsToCreate) -> None:
        failed = await self._topics.create(wanted)
        if failed is not None and coordinator.core is core:
            coordinator.inform(failed)

    async def _look_up(self, coordinator: Coordinator, core: Core, wanted: EndsToLookUp) -> None:
        found = await changelog_ends.look_up(self._node.partitions, wanted)
        if coordinator.core is core:
            coordinator.inform(found)

    async def _do(
        self, coordinator: Coordinator, core: Core, work: Callable[[], RegexesResolved | AssignmentComputed]
    ) -> None:
        came = await self._loop.run_in_executor(self._threads, work)
        if coordinator.core is core and coordinator.inform(came) is False:
            coordinator.inform(failed_result(came))

    async def close(self) -> None:
        """Wait for nothing that is under way, and tell nobody what would come of it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def resolve(wanted: RegexesToResolve, authorize: Authorizer) -> RegexesResolved:
    """Which topics each expression matches: internal ones too, and none that may not be described."""
    names = [
        name
        for name in sorted(wanted.topics.by_name)
        if authorize is allow_all or authorize(BROKER, Operation.DESCRIBE, Resource(ResourceType.TOPIC, name))
    ]
    matches: dict[str, frozenset[str]] = {}
    try:
        matches = matching(wanted.regexes, names)
    except Exception:
        log.exception("group %s: its expressions could not be matched", wanted.group_id)
    return RegexesResolved(wanted.group_id, matches, wanted.topics.version)


def compute(wanted: AssignmentToCompute, _authorize: Authorizer) -> AssignmentComputed:
    """The next target, or why there is none."""
    name = wanted.assignor.name
    try:
        given = wanted.compute()
    except (PartitionAssignorError, TaskAssignorError) as failed:
        return AssignmentComputed(wanted.group_id, wanted.epoch, name, failed)
    except Exception as error:
        log.exception("group %s: assignor %s failed", wanted.group_id, name)
        why = PartitionAssignorError(f"Assignor {name}: {type(error).__name__}: {error}")
        return AssignmentComputed(wanted.group_id, wanted.epoch, name, why)
    return AssignmentComputed(wanted.group_id, wanted.epoch, name, given)


WORK: dict[str, Callable[[Any, Authorizer], RegexesResolved | AssignmentComputed]] = {
    RESOLVE_REGEXES: resolve,
    COMPUTE_ASSIGNMENT: compute,
}
"""What is done for each effect."""
