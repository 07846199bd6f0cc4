"""What ShareFetch and ShareAcknowledge have in common: who may ask, and what becomes of acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from konvene.broker.handlers.group_requests import share_groups_enabled
from konvene.broker.shares.share_partition import SUCCESS, PartitionResult
from konvene.delivery.contract import Acknowledged, AcknowledgeType
from konvene.delivery.sessions import TopicIdPartition
from konvene.errors import MESSAGES, Errors
from konvene.runtime.deferred import Deferred
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.runtime.coordinator import RequestContext

LONGEST_MEMBER_ID = 36
FIRST_VERSION_WITH_RENEW = 2

UNKNOWN_PARTITION: PartitionResult = (
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION],
)

LEADER_CHANGED_ERRORS = frozenset((Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH))
"""With these a member is told who leads."""


class RequestRejected(Exception):
    """The whole request is answered with this error."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Batch(Protocol):
    """An acknowledgement batch of either request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> tuple[int, ...]: ...


def check_request(catalogue: ClusterCatalogue, request: Any) -> None:
    """What is asked of both requests before anything else. Raises `RequestRejected`."""
    if not share_groups_enabled(catalogue):
        raise RequestRejected(Errors.UNSUPPORTED_VERSION)
    if request.group_id is None or not request.member_id or len(request.member_id) > LONGEST_MEMBER_ID:
        raise RequestRejected(Errors.INVALID_REQUEST)


def lock_timeout_ms(settings: BrokerSettings, group_id: str) -> int:
    """How long the group's members may keep a record, which every answer tells."""
    timeout: int = settings.group_configs.of(group_id)["share.record.lock.duration.ms"]
    return timeout


def leader_epoch(catalogue: ClusterCatalogue, place: TopicIdPartition) -> int:
    """Of the partition's leader, which is this broker; -1 where there is none."""
    topic = catalogue.topics.by_id.get(place[0])
    return catalogue.state.leader_epoch(topic.name) if topic is not None else -1


class PendingAcknowledgements:
    """The acknowledgements of one request. `done` is called when the last of them is written."""

    __slots__ = ("_done", "_missing", "results")

    def __init__(self, done: Callable[[], None]) -> None:
        self.results: dict[TopicIdPartition, PartitionResult] = {}
        self._missing = 1  # The taking itself: nothing is done before all partitions were taken.
        self._done = done

    def take(
        self,
        catalogue: ClusterCatalogue,
        share_partitions: SharePartitions,
        request: Any,
        context: RequestContext,
        places: Iterable[tuple[TopicIdPartition, Any]],
    ) -> None:
        """Do what the request says of these partitions, each of which has an answer of its own.

        A partition of which nothing is said is fine, served or not; as by Kafka it is left out where nothing
        is said of any. To be called once; `done` may be called in it."""
        group_id, member_id = request.group_id, request.member_id
        renews = context.api_version >= FIRST_VERSION_WITH_RENEW
        unsaid: list[TopicIdPartition] = []
        is_said = False
        for place, batches in places:
            topic = catalogue.topics.by_id.get(place[0])
            if topic is None:
                self.results[place] = (Errors.UNKNOWN_TOPIC_ID, None)
            elif not are_valid_batches(batches, renews=renews, is_renew_ack=renews and request.is_renew_ack):
                self.results[place] = (Errors.INVALID_REQUEST, None)
            elif not 0 <= place[1] < topic.partitions:
                self.results[place] = (Errors.UNKNOWN_TOPIC_OR_PARTITION, None)
            elif not batches:
                unsaid.append(place)
            else:
                is_said = True
                served = share_partitions.served.get(SharePartitionKey(group_id, *place))
                if served is None:
                    self.results[place] = UNKNOWN_PARTITION
                    continue
                acks = [Acknowledged(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches]
                self._wait(place, served.acknowledge(member_id, acks))
        if is_said:
            self.results.update(dict.fromkeys(unsaid, SUCCESS))
        self._one_less()

    def _wait(self, place: TopicIdPartition, answer: Deferred[PartitionResult]) -> None:
        self._missing += 1
        answer.listen(lambda told: self._answered(place, told))

    def _answered(self, place: TopicIdPartition, told: PartitionResult) -> None:
        self.results[place] = told
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done()


def are_valid_batches(batches: Iterable[Batch], *, renews: bool, is_renew_ack: bool) -> bool:
    """Whether they rise, and each says one thing of all of its offsets or one of each."""
    last_type = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    before = -1
    for batch in batches:
        types = batch.acknowledge_types
        offsets = batch.last_offset - batch.first_offset + 1
        if offsets < 1 or batch.first_offset < before or not types:
            return False
        if len(types) > 1 and len(types) != offsets:
            return False
        if min(types) < 0 or max(types) > last_type:
            return False
        if AcknowledgeType.RENEW in types and not is_renew_ack:
            return False
        before = batch.last_offset
    return True
