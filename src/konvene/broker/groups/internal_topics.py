"""Internal topics of streams groups: made when a group says that it misses them.

A group says so with every heartbeat. A topic that is being made is not made again, and one that could not be
made is left alone for a heartbeat's time. No topic that exists is altered: the catalogue refuses it, and that
is no failure, for somebody else was quicker.

Who may: whoever may create topics in the cluster, or each of these.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from konvene.broker.net.authorizer import (
    CLUSTER_NAME,
    Authorizer,
    Operation,
    Resource,
    ResourceType,
    allow_all,
)
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

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices

log = logging.getLogger("konvene.groups")

BROKER = RequestContext(api_version=7, client_id="broker")
DEFAULT = -1
"""Of partitions or replicas: as many as the broker is configured to give."""


class InternalTopics:
    """What is being made, and what is left alone for a while."""

    def __init__(self, node: NodeServices, authorize: Authorizer = allow_all) -> None:
        self._node = node
        self._authorize = authorize
        self._making: set[str] = set()
        self._not_before: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<{len(self._making)} internal topics being made>"

    async def create(self, wanted: TopicsToCreate) -> TopicsNotCreated | None:
        """Make those that nobody is making; what went wrong, None if nothing did."""
        now = self._node.loop.time()
        there = self._node.catalogue.topics.by_name
        topics = [
            topic
            for topic in wanted.topics
            if topic.name not in self._making
            and topic.name not in there
            and self._not_before.get(topic.name, now) <= now
        ]
        if not topics:
            return None
        denied = self._denied(topics)
        if denied:
            return TopicsNotCreated(wanted.group_id, unauthorized=denied)
        names = [topic.name for topic in topics]
        self._making.update(names)
        try:
            errors = await self._create(topics)
        finally:
            self._making.difference_update(names)
        for name in names:
            self._not_before.pop(name, None)
        if not errors:
            log.info("group %s: made its internal topics %s", wanted.group_id, ", ".join(names))
            return None
        settings = self._node.settings.group_configs.of(wanted.group_id)
        until = now + settings["streams.heartbeat.interval.ms"] / 1000
        self._not_before.update(dict.fromkeys(errors, until))
        for name, error in errors.items():
            log.warning("group %s: its internal topic %s could not be made: %s", wanted.group_id, name, error)
        return TopicsNotCreated(wanted.group_id, errors)

    def _denied(self, topics: list[InternalTopic]) -> tuple[str, ...]:
        if self._authorize is allow_all:
            return ()
        cluster = Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        if self._authorize(BROKER, Operation.CREATE, cluster):
            return ()
        return tuple(
            topic.name
            for topic in topics
            if not self._authorize(BROKER, Operation.CREATE, Resource(ResourceType.TOPIC, topic.name))
        )

    async def _create(self, topics: list[InternalTopic]) -> dict[str, str]:
        """Why which of them were not made."""
        request = CreateTopicsRequest(topics=tuple(map(_creatable, topics)))
        context = BROKER._replace(fresh_ids=self._node.environment.fresh_ids(len(topics)))
        answer = await self._node.catalogue.submit(request, context)
        if isinstance(answer, Errors):
            return dict.fromkeys((topic.name for topic in topics), answer.name)
        assert isinstance(answer, CreateTopicsResponse)
        return {
            told.name: told.error_message or Errors(told.error_code).name
            for told in answer.topics
            if told.error_code not in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS)
        }


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT,
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()),
    )
