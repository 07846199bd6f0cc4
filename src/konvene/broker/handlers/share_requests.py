"""Common parts of ShareFetch and ShareAcknowledge: validation, and waiting for acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import share_groups_enabled
from konvene.broker.shares.share_partition import SUCCESS, PartitionResult
from konvene.delivery.contract import Acknowledged, AcknowledgeType
from konvene.delivery.sessions import TopicIdPartition
from konvene.errors import MESSAGES, Errors
from konvene.runtime.deferred import Deferred
from konvene.security.resources import Operation
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.codec.uuid import Uuid
    from konvene.messages.share_acknowledge import ShareAcknowledgeRequest
    from konvene.messages.share_fetch import ShareFetchRequest
    from konvene.runtime.coordinator import RequestContext

MAX_MEMBER_ID_LENGTH = 36
FIRST_VERSION_WITH_RENEW = 2

UNKNOWN_PARTITION: PartitionResult = (
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION],
)

LEADER_CHANGED_ERRORS = frozenset((Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH))
"""Errors with which a response also names the current leader of the partition."""


class RequestRejected(Exception):
    """Rejects a whole request, not only one of its partitions, with an error code."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Batch(Protocol):
    """An acknowledgement batch of a ShareFetch or ShareAcknowledge request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> tuple[int, ...]: ...


def check_request(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    context: RequestContext,
) -> None:
    """Raise `RequestRejected` if share groups are disabled, the client may not read the group, or an id is
    invalid."""
    if not share_groups_enabled(catalogue):
        raise RequestRejected(Errors.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise RequestRejected(Errors.INVALID_REQUEST)
    if not permits_group(authorization, context, Operation.READ, request.group_id):
        raise RequestRejected(Errors.GROUP_AUTHORIZATION_FAILED)
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        raise RequestRejected(Errors.INVALID_REQUEST)


def denied_topics(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    context: RequestContext,
    topic_ids: Iterable[Uuid],
) -> frozenset[Uuid]:
    """Return the ids of the topics that the client may not read."""
    if not authorization.is_enabled:
        return frozenset()
    by_id = catalogue.topics.by_id
    names = {topic_id: by_id[topic_id].name for topic_id in topic_ids if topic_id in by_id}
    readable = authorization.permitted_topics(context, Operation.READ, names.values())
    return frozenset(topic_id for topic_id, name in names.items() if name not in readable)


def lock_timeout_ms(settings: BrokerSettings, group_id: str) -> int:
    """Return the duration of the group's acquisition locks in ms, which every response has."""
    timeout: int = settings.group_configs.of(group_id)["share.record.lock.duration.ms"]
    return timeout


def leader_epoch(catalogue: ClusterCatalogue, partition: TopicIdPartition) -> int:
    """Return the leader epoch of a partition; -1 if its topic does not exist."""
    topic = catalogue.topics.by_id.get(partition[0])
    return catalogue.state.leader_epoch(topic.name) if topic is not None else -1


class PendingAcknowledgements:
    """Collects the results of a request's acknowledgements; calls `on_complete` when all are persisted."""

    __slots__ = ("_on_complete", "_pending", "results")

    def __init__(self, on_complete: Callable[[], None]) -> None:
        self.results: dict[TopicIdPartition, PartitionResult] = {}
        """Result of each partition, complete when `on_complete` is called."""
        self._pending = 1  # Counts `submit` itself, so that it does not complete before its last partition.
        self._on_complete = on_complete

    def submit(
        self,
        catalogue: ClusterCatalogue,
        share_partitions: SharePartitions,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        context: RequestContext,
        acknowledgements: Iterable[tuple[TopicIdPartition, Sequence[Batch]]],
        denied: frozenset[Uuid],
    ) -> None:
        """Apply the acknowledgement batches of each partition. Must be called once; may call `on_complete`.

        `denied`: ids of the topics that the client may not read.

        A partition without batches succeeds even if the member has acquired nothing from it. As in Kafka, it
        has a result only if another partition has batches."""
        group_id, member_id = request.group_id, request.member_id
        assert group_id is not None and member_id is not None
        renews = context.api_version >= FIRST_VERSION_WITH_RENEW
        without_batches: list[TopicIdPartition] = []
        has_batches = False
        for partition, batches in acknowledgements:
            topic = catalogue.topics.by_id.get(partition[0])
            if topic is None:
                self.results[partition] = (Errors.UNKNOWN_TOPIC_ID, None)
            elif not are_valid_batches(batches, renews=renews, is_renew_ack=renews and request.is_renew_ack):
                self.results[partition] = (Errors.INVALID_REQUEST, None)
            elif partition[0] in denied:
                self.results[partition] = (Errors.TOPIC_AUTHORIZATION_FAILED, None)
            elif not 0 <= partition[1] < topic.partitions:
                self.results[partition] = (Errors.UNKNOWN_TOPIC_OR_PARTITION, None)
            elif not batches:
                without_batches.append(partition)
            else:
                has_batches = True
                served = share_partitions.served.get(SharePartitionKey(group_id, *partition))
                if served is None:
                    self.results[partition] = UNKNOWN_PARTITION
                    continue
                acks = [Acknowledged(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches]
                self._await_result(partition, served.acknowledge(member_id, acks))
        if has_batches:
            self.results.update(dict.fromkeys(without_batches, SUCCESS))
        self._complete_one()

    def _await_result(self, partition: TopicIdPartition, pending: Deferred[PartitionResult]) -> None:
        self._pending += 1
        pending.listen(lambda result: self._set_result(partition, result))

    def _set_result(self, partition: TopicIdPartition, result: PartitionResult) -> None:
        self.results[partition] = result
        self._complete_one()

    def _complete_one(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._on_complete()


def are_valid_batches(batches: Iterable[Batch], *, renews: bool, is_renew_ack: bool) -> bool:
    """Return True if the batches ascend, and each has valid types: one for all offsets or one for each.

    RENEW is valid only if the request's version has it (`renews`) and the request sets `is_renew_ack`."""
    last_type = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    last_offset = -1
    for batch in batches:
        types = batch.acknowledge_types
        offsets = batch.last_offset - batch.first_offset + 1
        if offsets < 1 or batch.first_offset < last_offset or not types:
            return False
        if len(types) > 1 and len(types) != offsets:
            return False
        if min(types) < 0 or max(types) > last_type:
            return False
        if AcknowledgeType.RENEW in types and not is_renew_ack:
            return False
        last_offset = batch.last_offset
    return True
