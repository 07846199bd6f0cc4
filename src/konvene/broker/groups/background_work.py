"""Runs the slow work of groups in the background and hands the results back to their coordinator.

    work                                                                   runs in
    matching topics with regular expressions (`groups.consumer.work`)      threads
    computing targets of large groups (`groups.consumer.work`)             threads
    creating internal topics of streams groups (`internal_topics`)         the catalogue
    initializing share partitions (`ShareStateWork`)                       the share coordinator
    looking up end offsets of changelogs (`changelog_ends`)                slices on the event loop

The coordinator serves other requests meanwhile. If it has stopped or reloaded its log before the work is
done, the result is dropped. A failure is reported as a result too, because the group would wait for it
otherwise.

There are `group.coordinator.background.threads` threads. Closing does not wait for them, because they write
nothing. Limitation: Python waits for its threads at exit, so an assignor that never returns has to be killed
together with its broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from konvene.broker.groups import changelog_ends
from konvene.broker.groups.internal_topics import InternalTopics
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
from konvene.runtime.coordinator import Coordinator
from konvene.security.resources import Operation, topic
from konvene.shard.contract import Core, Effect

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorizer
    from konvene.broker.node_services import NodeServices

log = logging.getLogger("konvene.groups")

CONSUMER_GROUP_HEARTBEAT = 68


class GroupWork:
    """Runs the background work that the group coordinators of a broker request as effects."""

    def __init__(self, node: NodeServices, share_state_work: ShareStateWork) -> None:
        self._node = node
        self._loop = node.loop
        self._threads = ThreadPoolExecutor(
            node.settings.config["group.coordinator.background.threads"], thread_name_prefix="konvene-groups"
        )
        self._topics = InternalTopics(node)
        self._share_state_work = share_state_work
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<group work: {len(self._tasks)} running>"

    def perform(self, coordinator: Coordinator, effect: Effect) -> None:
        """Start the work that `effect` requests; the coordinator is informed of its result."""
        if self._share_state_work.perform(coordinator, effect):
            return
        if effect.verb == CREATE_TOPICS:
            task = self._loop.create_task(self._create(coordinator, coordinator.core, effect.subject))
        elif effect.verb == LOOK_UP_ENDS:
            task = self._loop.create_task(self._look_up(coordinator, coordinator.core, effect.subject))
        else:
            work, authorizer = WORK[effect.verb], self._node.authorization.authorizer
            task = self._loop.create_task(
                self._run_in_thread(coordinator, coordinator.core, lambda: work(effect.subject, authorizer))
            )
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _create(self, coordinator: Coordinator, core: Core, missing: TopicsToCreate) -> None:
        failures = await self._topics.create(missing)
        if failures is not None and coordinator.core is core:
            coordinator.inform(failures)

    async def _look_up(self, coordinator: Coordinator, core: Core, request: EndsToLookUp) -> None:
        ends = await changelog_ends.look_up(self._node.partitions, request)
        if coordinator.core is core:
            coordinator.inform(ends)

    async def _run_in_thread(
        self, coordinator: Coordinator, core: Core, work: Callable[[], RegexesResolved | AssignmentComputed]
    ) -> None:
        result = await self._loop.run_in_executor(self._threads, work)
        if coordinator.core is core and coordinator.inform(result) is False:
            coordinator.inform(failed_result(result))

    async def close(self) -> None:
        """Cancel the running work and drop its results."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def resolve_regexes(work: RegexesToResolve, authorizer: Authorizer | None) -> RegexesResolved:
    """Return the topics that each expression matches, and that the user may describe whose request caused it.

    As in Kafka, one heartbeat resolves all expressions of its group, and a denial is not written at INFO."""
    matches: dict[str, frozenset[str]] = {}
    try:
        matches = matching(work.regexes, sorted(work.topics.by_name))
        if authorizer is not None:
            permitted = _describable(work, authorizer, frozenset().union(*matches.values()))
            matches = {expression: names & permitted for expression, names in matches.items()}
    except Exception:
        log.exception("group %s: matching its regular expressions failed", work.group_id)
        matches = {}
    return RegexesResolved(work.group_id, matches, work.topics.version)


def _describable(work: RegexesToResolve, authorizer: Authorizer, names: frozenset[str]) -> frozenset[str]:
    """Return the topics among `names` that the user may describe."""
    host = work.host.removeprefix("/")
    return frozenset(
        name
        for name in sorted(names)
        if authorizer.authorize(
            work.principal,
            host,
            Operation.DESCRIBE,
            topic(name),
            api_key=CONSUMER_GROUP_HEARTBEAT,
            logs_denied=False,
        )
    )


def compute_assignment(work: AssignmentToCompute, _authorizer: Authorizer | None) -> AssignmentComputed:
    """Run the assignor of a group; return the target assignment, or the assignor's error."""
    name = work.assignor.name
    try:
        assignment = work.compute()
    except (PartitionAssignorError, TaskAssignorError) as error:
        return AssignmentComputed(work.group_id, work.epoch, name, error)
    except Exception as error:
        log.exception("group %s: assignor %s failed", work.group_id, name)
        failure = PartitionAssignorError(f"Assignor {name}: {type(error).__name__}: {error}")
        return AssignmentComputed(work.group_id, work.epoch, name, failure)
    return AssignmentComputed(work.group_id, work.epoch, name, assignment)


WORK: dict[str, Callable[[Any, Authorizer | None], RegexesResolved | AssignmentComputed]] = {
    RESOLVE_REGEXES: resolve_regexes,
    COMPUTE_ASSIGNMENT: compute_assignment,
}
"""The function that runs in a thread for an effect, by the verb of the effect."""
