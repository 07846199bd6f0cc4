"""Assignments of consumer and share groups: sets of (topic id, partition), and the names of their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.client.net.cluster import Cluster
from konvene.codec.uuid import Uuid

if TYPE_CHECKING:
    from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

__all__ = ["Partitions", "TopicNames", "assigned_partitions"]

Partitions = frozenset[tuple[Uuid, int]]
"""Partitions as heartbeats carry them: topic id and partition number."""


def assigned_partitions(
    response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse,
) -> Partitions | None:
    """Return the assignment in a ConsumerGroupHeartbeat or ShareGroupHeartbeat response; None if it has
    none."""
    if response.assignment is None:
        return None
    rows = response.assignment.topic_partitions
    return frozenset((Uuid(row.topic_id), p) for row in rows for p in row.partitions)


class TopicNames:
    """A cache of the names of assigned topics by id. It keeps a name after the metadata has dropped the
    topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: dict[Uuid, str] = {}

    async def resolve(self, partitions: Partitions) -> dict[Uuid, str]:
        """Return the known names of the topics of `partitions`; refresh the metadata once if one is
        missing."""
        ids = {topic_id for topic_id, _ in partitions}
        for refresh in (False, True):
            if refresh:
                await self._cluster.refresh()
            known = self._cluster.metadata.names
            self._names |= {topic_id: known[topic_id] for topic_id in ids if topic_id in known}
            if ids <= self._names.keys():
                break
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in ids}
        return self._names
