"""Creates the internal topics of streams groups (KIP-1071) when a heartbeat reports that they are missing.

Each heartbeat of such a group requests the creation. A topic whose creation is pending is not created again,
and after a failure the next attempt waits for one heartbeat interval. Existing topics are never altered: the
catalogue rejects the creation with TOPIC_ALREADY_EXISTS, which is not reported as a failure.

Creation requires the permission of the heartbeat's client to create topics in the cluster, or to create each
of the topics. Without it no topic is created, and the response names those that the client may not create.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.groups.streams.topology.configure import InternalTopic
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated, TopicsToCreate
from konvene.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.runtime.coordinator import RequestContext
from konvene.security.resources import Operation
from konvene.security.resources import topic as topic_resource
from konvene.security.session import ANONYMOUS_SESSION

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.node_services import NodeServices

log = logging.getLogger("konvene.groups")

STREAMS_GROUP_HEARTBEAT = 88
CONTEXT = RequestContext(api_version=7, client_id="broker", api_key=STREAMS_GROUP_HEARTBEAT)
DEFAULT = -1
"""In a request: the broker's default number of partitions or replicas."""


class InternalTopics:
    """Creates internal topics, and tracks pending creations and those that failed recently."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._pending: set[str] = set()
        self._retry_at_s: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<{len(self._pending)} internal topics pending>"

    async def create(self, missing: TopicsToCreate) -> TopicsNotCreated | None:
        """Create the missing topics that are neither pending nor backing off; return failures, else None."""
        now_s = self._node.loop.time()
        existing = self._node.catalogue.topics.by_name
        topics = [
            topic
            for topic in missing.topics
            if topic.name not in self._pending
            and topic.name not in existing
            and self._retry_at_s.get(topic.name, now_s) <= now_s
        ]
        if not topics:
            return None
        session = ANONYMOUS_SESSION._replace(principal=missing.principal)
        context = CONTEXT._replace(session=session, client_host=missing.host)
        required = [topic.name for topic in missing.topics if topic.name not in existing]
        if denied_topics(self._node.authorization, context, required, logs_denied=False):
            return None  # The handler of the heartbeat logs the denial, and adds it to the response.
        names = [topic.name for topic in topics]
        self._pending.update(names)
        try:
            errors = await self._create(topics, context)
        finally:
            self._pending.difference_update(names)
        for name in names:
            self._retry_at_s.pop(name, None)
        if not errors:
            log.info("group %s: created its internal topics %s", missing.group_id, ", ".join(names))
            return None
        settings = self._node.settings.group_configs.of(missing.group_id)
        retry_at_s = now_s + settings["streams.heartbeat.interval.ms"] / 1000
        self._retry_at_s.update(dict.fromkeys(errors, retry_at_s))
        for name, error in errors.items():
            log.warning("group %s: cannot create its internal topic %s: %s", missing.group_id, name, error)
        return TopicsNotCreated(missing.group_id, errors)

    async def _create(self, topics: list[InternalTopic], context: RequestContext) -> dict[str, str]:
        """Create topics; return the error message of each topic that could not be created, by its name."""
        request = CreateTopicsRequest(topics=tuple(map(_creatable, topics)))
        context = context._replace(fresh_ids=self._node.environment.fresh_ids(len(topics)))
        response = await self._node.catalogue.submit(request, context)
        if isinstance(response, Errors):
            return dict.fromkeys((topic.name for topic in topics), response.name)
        assert isinstance(response, CreateTopicsResponse)
        return {
            topic.name: topic.error_message or Errors(topic.error_code).name
            for topic in response.topics
            if topic.error_code not in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS)
        }


def denied_topics(
    authorization: Authorization, context: RequestContext, names: Iterable[str], *, logs_denied: bool = True
) -> tuple[str, ...]:
    """Return the topics that the client may not create."""
    if authorization.permits_cluster(context, Operation.CREATE, logs_denied=False):
        return ()
    return tuple(
        name
        for name in names
        if not authorization.permits(context, Operation.CREATE, topic_resource(name), logs_denied=logs_denied)
    )


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT,
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()),
    )
