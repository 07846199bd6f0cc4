"""Creates topics on demand: the broker's internal topics, and missing topics that clients request."""

from __future__ import annotations

from konvene.broker.catalogue import ClusterCatalogue
from konvene.broker.net.client_quotas import MutationQuota, limited_by
from konvene.broker.settings import BrokerSettings
from konvene.broker.storage.partitions import Partitions
from konvene.configs import BrokerConfig
from konvene.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.environment import Environment

DEFAULT = -1
"""In a request: the partition count or replication factor of the broker's settings."""


class TopicCreator:
    """Creates topics with the broker's defaults; Kafka's `AutoTopicCreationManager`."""

    def __init__(
        self,
        environment: Environment,
        settings: BrokerSettings,
        catalogue: ClusterCatalogue,
        partitions: Partitions,
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._catalogue = catalogue
        self._partitions = partitions

    def __repr__(self) -> str:
        return f"<topic creator of {self._catalogue!r}>"

    async def create_missing(self, names: list[str], quota: MutationQuota | None = None) -> None:
        """Create those topics of `names` that do not exist, within the quota of the client that needs them.

        Internal topics get the configs of `internal_topic`, others the broker's defaults."""
        missing = [n for n in dict.fromkeys(names) if n not in self._catalogue.topics.by_name]
        internal = [n for n in missing if n in INTERNAL_TOPICS]
        for name in internal:
            await self.create_internal(name)
        others = [n for n in missing if n not in internal]
        await self._create(
            [CreatableTopic(name=n, num_partitions=DEFAULT, replication_factor=DEFAULT) for n in others],
            quota,
        )

    async def create_internal(self, topic: str) -> None:
        """Create an internal topic unless it exists."""
        if topic in self._catalogue.topics.by_name:
            return
        partitions, configs = internal_topic(topic, self._settings.config)
        await self._create(
            [
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in configs.items()),
                )
            ]
        )

    def open_partitions(self, topic: str) -> int:
        """Return the topic's partition count, or 0 while it does not exist or its logs are not open yet.

        A topic is in the catalogue a moment before its logs are open. A damaged log counts as open."""
        found, partitions = self._catalogue.topics.by_name.get(topic), self._partitions
        if found is None:
            return 0
        is_open = all(
            partitions.get(topic, index) is not None or (topic, index) in partitions.offline
            for index in range(found.partitions)
        )
        return found.partitions if is_open else 0

    async def _create(self, topics: list[CreatableTopic], quota: MutationQuota | None = None) -> None:
        if topics:
            context = RequestContext(api_version=7, fresh_ids=self._environment.fresh_ids(len(topics)))
            if quota is not None:
                context = limited_by(context, quota)
            await self._catalogue.submit(CreateTopicsRequest(topics=tuple(topics)), context)


def internal_topic(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """Return the partition count and the configs of an internal topic: Kafka's, or those of the audit."""
    if name == OFFSETS_TOPIC:
        return config["offsets.topic.num.partitions"], {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        }
    if name == TRANSACTION_TOPIC:
        return config["transaction.state.log.num.partitions"], {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_STATE_TOPIC:
        return config["share.coordinator.state.topic.num.partitions"], {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
            "retention.ms": "-1",
            "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
        }
    return 1, {
        "cleanup.policy": "delete",
        "retention.ms": str(config["konvene.audit.retention.ms"]),
    }
