"""How the APIs of share state ask the share coordinator: one share partition at a time.

On this node everybody who needs it asks `broker.shares.state_coordinators` without a request, and waits for
a coordinator
that is not ready. Who comes over the wire is another broker, or somebody who looks: told so at once, as by
Kafka, and in its words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.codec.uuid import Uuid
from konvene.errors import MESSAGES, Errors
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.runtime.deferred import Deferred

MANY = 200
"""After so many others have their turn."""

Results = dict[Uuid, dict[int, Any]]


def is_empty(request: Any) -> bool:
    """Whether there is nothing to ask: Kafka answers with nothing, whatever else the request says."""
    return not request.group_id or not request.topics


def has_an_empty_topic(request: Any) -> bool:
    return any(not topic.partitions for topic in request.topics)


class Failed(NamedTuple):
    """The answer of a coordinator that could not decide."""

    error: Errors
    message: str


async def ask(
    share_coordinators: ShareCoordinators,
    request: Any,
    verb: str,
    question: Callable[[SharePartitionKey, Any], Any],
) -> Results:
    """The answers, by topic and partition: what is named twice is asked twice, and answered once."""
    waiting: list[tuple[Uuid, int, Deferred[Any]]] = []
    for topic in request.topics:
        for partition in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
            answer = share_coordinators.submit_once(question(key, partition))
            waiting.append((topic.topic_id, partition.partition, answer))
            if len(waiting) % MANY == 0:
                await asyncio.sleep(0)
    results: Results = {}
    for topic_id, index, answer in waiting:
        told = await answer
        if isinstance(told, Errors):
            told = Failed(told, f"Unable to {verb}: {MESSAGES.get(told, told.name)}")
        results.setdefault(topic_id, {})[index] = told
    return results
