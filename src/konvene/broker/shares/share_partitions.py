"""The share partitions of this broker, and the sessions in which members of share groups fetch from them.

A share partition is loaded by its first fetch. It is dropped when its group is empty, its topic is deleted,
or its state was initialized anew; the next fetch loads it again. Acquisitions are kept in memory only: after
a restart, acquired records are available again, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from konvene.broker.shares.dead_letters import DeadLetters
from konvene.broker.shares.share_partition import SHARE_GROUPS, PartitionResult, SharePartitionServer
from konvene.cluster.features import SHARE_VERSION
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import InFlight
from konvene.delivery.sessions import ShareSession, ShareSessions
from konvene.errors import Errors
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.storage.partitions import Partition

LEAVE_GRACE_S = 1.0
"""How long a member that has left may still acknowledge records, in seconds.

librdkafka leaves its group on one connection while it closes its share session on another."""


class SharePartitions:
    """The share partitions and share sessions of one broker."""

    def __init__(self, node: NodeServices, share_coordinators: ShareCoordinators) -> None:
        self._node = node
        self._share_coordinators = share_coordinators
        self.sessions = ShareSessions(node.settings.config["group.share.max.share.sessions"])
        self.dead_letters = DeadLetters(node)
        self.served: dict[SharePartitionKey, SharePartitionServer] = {}
        self._by_group: dict[str, dict[SharePartitionKey, None]] = {}

    def __repr__(self) -> str:
        return f"<{len(self.served)} share partitions, {self.sessions!r}>"

    # --- fetches and acknowledgements ---

    def serve(self, key: SharePartitionKey, topic: str) -> SharePartitionServer | PartitionResult:
        """Return the share partition, loaded on first use, or an error if the partition is missing."""
        served = self.served.get(key)
        if served is not None:
            return served
        partitions = self._node.partitions
        partition = partitions.get(topic, key.partition)
        if partition is None:
            return partitions.missing_error(topic, key.partition, Errors.UNKNOWN_TOPIC_OR_PARTITION), None
        served = self.served[key] = self._make_server(key, partition)
        self._by_group.setdefault(key.group_id, {})[key] = None
        served.load()
        return served

    def _make_server(self, key: SharePartitionKey, partition: Partition) -> SharePartitionServer:
        return SharePartitionServer(
            self._node, self._share_coordinators, self.dead_letters, key, partition, self._drop
        )

    @property
    def now_ms(self) -> int:
        """Return the current time in ms by the clock of acquisition locks, which is the event loop's."""
        return int(self._node.loop.time() * 1000)

    def _drop(self, served: SharePartitionServer) -> None:
        if self.served.get(served.key) is served:
            del self.served[served.key]
            if self._node.meter is not None:
                self._node.meter.share_partition_done(served.key.group_id, served.core.counts)
            others = self._by_group[served.key.group_id]
            del others[served.key]
            if not others:
                del self._by_group[served.key.group_id]

    def in_flight(self, key: SharePartitionKey) -> Iterable[InFlight]:
        """Return the delivered records of a share partition that are neither acknowledged nor archived."""
        served = self.served.get(key)
        return served.core.in_flight() if served is not None and served.loaded else ()

    def of_group(self, group_id: str) -> Iterator[SharePartitionServer]:
        """Yield the share partitions of a group that this broker has loaded or is loading."""
        for key in tuple(self._by_group.get(group_id, ())):
            yield self.served[key]

    # --- events ---

    def release(self, group_id: str, member_id: str) -> None:
        """Close a member's share session, if any, and release its records."""
        for topic_id, partition in self.sessions.remove(group_id, member_id):
            served = self.served.get(SharePartitionKey(group_id, topic_id, partition))
            if served is not None:
                served.release(member_id)

    def member_left(self, group_id: str, member_id: str) -> None:
        """Release the records of a member that left, after `LEAVE_GRACE_S` if it has a share session."""
        session = self.sessions.get(group_id, member_id)
        if session is None:
            self.member_removed(group_id, member_id)
        else:
            self._node.loop.call_later(LEAVE_GRACE_S, self._end_leave_grace, session, session.epoch)

    def _end_leave_grace(self, session: ShareSession, epoch: int) -> None:
        """Release the records of a member that left when its session had `epoch`.

        Keep them if it has opened another session or sent a request (its epoch has advanced) since."""
        now = self.sessions.get(*session.member)
        if now is None or (now is session and now.epoch == epoch):
            self.member_removed(*session.member)

    def member_removed(self, group_id: str, member_id: str) -> None:
        """Release all records of a member that was removed from its group."""
        self.sessions.remove(group_id, member_id)
        for served in self.of_group(group_id):
            served.release(member_id)

    def disconnected(self, connection: object) -> None:
        """Close the share sessions that were opened on a lost connection."""
        for group_id, member_id in self.sessions.of_connection(connection):
            self.release(group_id, member_id)

    def group_empty(self, group_id: str) -> None:
        """Drop the share partitions of a group without members; if it has sessions, after the leave grace."""
        if self.sessions.of_group(group_id):
            self._node.loop.call_later(2 * LEAVE_GRACE_S, self._drop_unused, group_id)
        else:
            self._drop_unused(group_id)

    def _drop_unused(self, group_id: str) -> None:
        if not self.sessions.of_group(group_id):
            for served in self.of_group(group_id):
                served.fail((Errors.NOT_LEADER_OR_FOLLOWER, None))

    def state_initialized(self, key: SharePartitionKey) -> None:
        """Drop a share partition whose state was replaced; load it again if it is being loaded."""
        served = self.served.get(key)
        if served is not None and not served.loaded:
            served.load()
        else:
            self.forget(key)

    def forget(self, key: SharePartitionKey) -> None:
        """Drop a share partition, because the share coordinator has replaced or deleted its state."""
        served = self.served.get(key)
        if served is not None:
            served.fail((Errors.NOT_LEADER_OR_FOLLOWER, None))

    def topic_deleted(self, topic_id: Uuid) -> None:
        """Fail the share partitions of a deleted topic."""
        for key in [key for key in self.served if key.topic_id == topic_id]:
            self.served[key].fail((Errors.UNKNOWN_TOPIC_OR_PARTITION, None))

    def features_changed(self) -> None:
        """Apply a change of `share.version`; drop all share partitions if it disables share groups."""
        for served in self.served.values():
            served.invalidate_terms()
        if self._node.catalogue.feature_level(SHARE_VERSION) < SHARE_GROUPS and (
            self.served or self.sessions
        ):
            self.sessions.clear()
            for served in tuple(self.served.values()):
                served.fail((Errors.NOT_LEADER_OR_FOLLOWER, None))

    async def close(self) -> None:
        for served in tuple(self.served.values()):
            served.fail((Errors.NOT_LEADER_OR_FOLLOWER, None))
        await self.dead_letters.close()
