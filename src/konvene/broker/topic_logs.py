"""The logs of topics on this node: opened, created, reconfigured and deleted as the catalogue decides."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.broker.storage.partitions import Partition, log_config
from konvene.cluster.state import ResourceType, TopicState
from konvene.configs.effective import topic_values
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from konvene.log.config import LogConfig
from konvene.log.directory import LogDirectory, TopicPartition
from konvene.log.errors import DamagedLog
from konvene.log.partition import PartitionLog

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.broker.storage.cleaner import LogCleaner

log = logging.getLogger("konvene.broker")


class TopicLogs:
    """Opens, creates, configures and deletes logs so that they match the topics of the catalogue."""

    def __init__(
        self,
        node: NodeServices,
        directory: LogDirectory,
        cleaner: LogCleaner,
        make_partition: Callable[[TopicPartition, PartitionLog, int], Partition],
    ) -> None:
        """`make_partition` creates a partition from its name, log and leader epoch."""
        self._node = node
        self._directory = directory
        self._cleaner = cleaner
        self._make_partition = make_partition
        self._existing = set(directory.partitions())
        """The logs in the data directory at the start."""

    def __repr__(self) -> str:
        return f"<topic logs in {self._directory.path}>"

    def open_topic(self, topic: TopicState) -> None:
        """Open the topic's logs and create those that do not exist."""
        config = self._log_config(topic.name)
        existing: list[TopicPartition] = []
        missing: list[TopicPartition] = []
        for index in range(topic.partitions):
            name = TopicPartition(topic.name, index)
            if self._node.partitions.get(topic.name, index) is None:
                (existing if name in self._existing else missing).append(name)
        for name in existing:
            self._open(name, config)
        if missing:
            now_ms = self._node.environment.wall_clock_ms()
            created = self._directory.create(missing, config, now_ms, topic_id=str(topic.id))
            for name, opened in zip(missing, created, strict=True):
                self._put(name, opened)

    def _open(self, name: TopicPartition, config: LogConfig) -> None:
        """Open an existing log. A damaged one stays offline, which is logged here once."""
        try:
            opened = self._directory.load(name, config, self._node.environment.wall_clock_ms())
        except DamagedLog as damage:
            log.error("%s is offline: %s", name, damage)
            self._node.partitions.offline.add((name.topic, name.partition))
        else:
            self._put(name, opened)

    def _put(self, name: TopicPartition, opened: PartitionLog) -> None:
        leader_epoch = self._node.catalogue.state.leader_epoch(name.topic)
        self._node.partitions.put(self._make_partition(name, opened, leader_epoch))

    def delete_topic(self, topic: TopicState) -> None:
        """Delete the logs of a topic, aborting a cleaning that is in progress."""
        for index in range(topic.partitions):
            if self._node.partitions.drop(topic.name, index) is not None:
                self._cleaner.abort(TopicPartition(topic.name, index))
                self._delete(TopicPartition(topic.name, index))

    def _delete(self, name: TopicPartition) -> None:
        self._directory.delete(name, self._node.environment.fresh_uuid().hex)

    def delete_orphans(self) -> None:
        """Delete logs of topics that are not in the catalogue, remains of an interrupted deletion."""
        known = {TopicPartition(p.topic, p.index) for p in self._node.partitions}
        known.add(TopicPartition(CLUSTER_METADATA_TOPIC, 0))
        for orphan in sorted(self._existing - known - self._node.partitions.offline):
            log.warning("%s belongs to no topic and is deleted", orphan)
            self._delete(orphan)

    def reconfigure(self, topic: str) -> None:
        """Apply the current settings to the open logs of a topic."""
        config = self._log_config(topic)
        for index in range(self._node.catalogue.topics.by_name[topic].partitions):
            partition = self._node.partitions.get(topic, index)
            if partition is not None:
                partition.log.config = config

    def _log_config(self, topic: str) -> LogConfig:
        config = self._node.settings.config
        values = topic_values(config, self._node.catalogue.settings_of(ResourceType.TOPIC, topic))
        syncs = topic not in INTERNAL_TOPICS or config["konvene.log.fsync.internal"]
        return log_config(values, config["producer.id.expiration.ms"], sync_on_roll=syncs)
