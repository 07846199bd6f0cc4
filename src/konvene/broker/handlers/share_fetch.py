"""ShareFetch: a member acknowledges what it had, and acquires records.

Both happen at once and are answered together, when the acknowledgements are written and the records are
there. A fetch that finds nothing waits: for a partition to grow, for records that are given back, for a
share partition to be loaded. Whoever wakes it says which partition has news, and only that one is looked at.
A share partition that cannot be loaded is told of when time is up, as by Kafka: who is told at once asks
again at once.

Partitions begin with another one in each request of a session, so that none of them is always the last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.broker.handlers.share_requests import (
    FIRST_VERSION_WITH_RENEW,
    LEADER_CHANGED_ERRORS,
    PendingAcknowledgements,
    RequestRejected,
    check_request,
    leader_epoch,
    lock_timeout_ms,
)
from konvene.broker.net.fetch_sessions import MAX_INT
from konvene.broker.shares.share_partition import SUCCESS, PartitionResult, SharePartitionServer
from konvene.codec.errors import CodecError
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import Acquired, AcquireMode
from konvene.delivery.sessions import SessionError, TopicIdPartition
from konvene.errors import Errors
from konvene.log.errors import LogError
from konvene.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from konvene.runtime.deferred import Answer, Deferred
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.runtime.coordinator import RequestContext

log = logging.getLogger("konvene.sharing")


def handle(
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    share_partitions: SharePartitions,
    request: ShareFetchRequest,
    context: RequestContext,
) -> Answer[ShareFetchResponse]:
    try:
        check_request(catalogue, request)
        _check_renewal(request, context)
        return _Fetch(loop, settings, catalogue, share_partitions, request, context).deferred
    except RequestRejected as refused:
        return ShareFetchResponse(error_code=refused.error)
    except SessionError as refused:
        answer = ShareFetchResponse(error_code=refused.error)
        if refused.error is not Errors.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
            return answer
        deferred: Deferred[ShareFetchResponse] = Deferred()
        loop.call_later(min(request.max_wait_ms, MAX_INT) / 1000, deferred.resolve, answer)
        return deferred


def _check_renewal(request: ShareFetchRequest, context: RequestContext) -> None:
    """A request that renews locks fetches nothing (KIP-1222). Raises `RequestRejected`."""
    if context.api_version < FIRST_VERSION_WITH_RENEW or not request.is_renew_ack:
        return
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise RequestRejected(Errors.INVALID_REQUEST)


class _Found(NamedTuple):
    """What a fetch has for one partition."""

    told: PartitionResult = SUCCESS
    acquired: tuple[Acquired, ...] = ()
    records: bytes | memoryview = b""


class _Fetch:
    """One request until it is answered."""

    __slots__ = (
        "acknowledging", "alarm", "catalogue", "deferred", "found", "is_fetched", "loop", "member_id",
        "request", "settings", "share_partitions", "turn", "watches", "written",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        catalogue: ClusterCatalogue,
        share_partitions: SharePartitions,
        request: ShareFetchRequest,
        context: RequestContext,
    ) -> None:
        assert request.group_id is not None and request.member_id is not None
        self.loop, self.settings = loop, settings
        self.catalogue, self.share_partitions = catalogue, share_partitions
        self.request, self.member_id = request, request.member_id
        said: list[tuple[TopicIdPartition, Any]] = []
        wanted: list[TopicIdPartition] = []
        for topic in request.topics:
            for partition in topic.partitions:
                place = (topic.topic_id, partition.partition_index)
                wanted.append(place)
                said.append((place, partition.acknowledgement_batches))
        if not any(batches for _, batches in said):
            said.clear()
        self.turn = share_partitions.sessions.fetch(
            request.group_id,
            self.member_id,
            request.share_session_epoch,
            wanted,
            [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
            acknowledges=bool(said),
            connection=context.connection,
        )
        self.deferred: Deferred[ShareFetchResponse] = Deferred()
        self.found: dict[TopicIdPartition, _Found] = {}
        self.watches: list[_Watch] = []
        self.alarm: Any = None
        self.is_fetched = False
        self.written = not said
        self.acknowledging = PendingAcknowledgements(self._acknowledged)
        if said:
            self.acknowledging.take(catalogue, share_partitions, request, context, said)
        renews = context.api_version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
        self._begin(() if renews else self.turn.partitions)

    # --- fetching ---

    def _begin(self, places: tuple[TopicIdPartition, ...]) -> None:
        """Take what is there; if there is nothing, wait for it."""
        served = self._served(places)
        request = self.request
        if not served or not request.max_records or not request.max_bytes or self._take(served):
            self._fetched()
            return
        if request.max_wait_ms <= 0:
            self._take(served, enough=0)
            self._fetched()
            return
        self.alarm = self.loop.call_later(min(request.max_wait_ms, MAX_INT) / 1000, self._timed_out)
        for place, partition in served:
            watch = _Watch(self, place, partition)
            self.watches.append(watch)
            partition.waiting[watch] = None
            partition.partition.waiting[watch] = None

    def _served(
        self, places: tuple[TopicIdPartition, ...]
    ) -> list[tuple[TopicIdPartition, SharePartitionServer]]:
        """The share partitions that can be fetched, or will be when they are loaded. The others are found."""
        topics, group_id = self.catalogue.topics, self.request.group_id
        assert group_id is not None
        served: list[tuple[TopicIdPartition, SharePartitionServer]] = []
        at = self.request.share_session_epoch % len(places) if places else 0
        for place in places[at:] + places[:at]:
            topic = topics.by_id.get(place[0])
            if topic is None:
                self.found[place] = _Found((Errors.UNKNOWN_TOPIC_ID, None))
                continue
            if not 0 <= place[1] < topic.partitions:
                self.found[place] = _Found((Errors.UNKNOWN_TOPIC_OR_PARTITION, None))
                continue
            one = self.share_partitions.serve(SharePartitionKey(group_id, *place), topic.name)
            if not isinstance(one, SharePartitionServer):
                self.found[place] = _Found(one)
            else:
                if one.failed is not None:
                    self.found[place] = _Found(one.failed)
                served.append((place, one))
        return served

    def _take(
        self, served: list[tuple[TopicIdPartition, SharePartitionServer]], enough: int | None = None
    ) -> bool:
        """Acquire what these have. False if there is nothing, or too little: then nothing was acquired."""
        ready = [(place, one) for place, one in served if one.can_acquire]
        if not ready:
            return False
        request = self.request
        min_bytes = request.min_bytes if enough is None else enough
        if min_bytes > 1 and _size(ready, min_bytes) < min_bytes:
            return False
        left = request.max_records
        max_bytes = min(request.max_bytes, self.settings.config["fetch.max.bytes"]) // len(ready)
        is_something = False
        found: dict[TopicIdPartition, _Found] = {}
        for place, one in ready:
            here = found[place] = self._acquire(one, left, max_bytes) if left > 0 else _Found()
            left -= sum(last - first + 1 for first, last, _ in here.acquired)
            is_something = is_something or bool(here.acquired) or here.told is not SUCCESS
        if is_something or enough == 0:
            self.found.update(found)
        return is_something

    def _acquire(self, one: SharePartitionServer, max_records: int, max_bytes: int) -> _Found:
        request = self.request
        mode = AcquireMode.RECORD_LIMIT if request.share_acquire_mode == 1 else AcquireMode.BATCH_OPTIMIZED
        try:
            acquired, read = one.acquire(self.member_id, mode, max_records, request.batch_size, max_bytes)
        except LogError as error:
            return _Found((Errors(error.code), None))
        except CodecError as error:
            log.error("%s cannot be read: %s", one, error)
            return _Found((Errors.CORRUPT_MESSAGE, str(error)))
        return _Found(SUCCESS, tuple(acquired), read[0] if len(read) == 1 else b"".join(read))

    def try_complete(self, watch: _Watch) -> None:
        """A partition has news."""
        if self.is_fetched:
            return
        one = watch.served
        if one.failed is not None:
            self.found[watch.place] = _Found(one.failed)
            if one.was_loaded:
                self._fetched()
        elif not self.turn.is_open:
            self._fetched()  # The member's connection is lost: what it would be given is better with others.
        elif self._take([(watch.place, one)] if self.request.min_bytes <= 1 else self._all()):
            self._fetched()

    def _timed_out(self) -> None:
        """Whatever is there is enough."""
        if self.turn.is_open:
            self._take(self._all(), enough=0)
        self._fetched()

    def _all(self) -> list[tuple[TopicIdPartition, SharePartitionServer]]:
        return [(watch.place, watch.served) for watch in self.watches]

    def _fetched(self) -> None:
        self.is_fetched = True
        if self.alarm is not None:
            self.alarm.cancel()
        for watch in self.watches:
            watch.served.waiting.pop(watch, None)
            watch.served.partition.waiting.pop(watch, None)
        self.watches = []
        self._answer()

    # --- answering ---

    def _acknowledged(self) -> None:
        self.written = True
        self._answer()

    def _answer(self) -> None:
        if not self.is_fetched or not self.written:
            return
        catalogue, request = self.catalogue, self.request
        assert request.group_id is not None
        error, found = self.turn.answer(
            {place: (bool(one.records), bool(one.told[0])) for place, one in self.found.items()}
        )
        if self.turn.is_final:
            self.share_partitions.release(request.group_id, self.member_id)
        acknowledged = self.acknowledging.results
        topics: dict[Uuid, list[PartitionData]] = {}
        moved = False
        for place in dict.fromkeys((*found, *acknowledged)):
            one = self.found[place] if place in found else _Found()
            moved = moved or one.told[0] in LEADER_CHANGED_ERRORS
            topics.setdefault(place[0], []).append(
                self._partition(place, one, acknowledged.get(place, SUCCESS))
            )
        host, port = catalogue.advertised
        self.deferred.resolve(
            ShareFetchResponse(
                error_code=error,
                acquisition_lock_timeout_ms=lock_timeout_ms(self.settings, request.group_id),
                responses=tuple(
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                    for topic_id, partitions in topics.items()
                ),
                node_endpoints=(NodeEndpoint(node_id=catalogue.node_id, host=host, port=port),)
                if moved
                else (),
            )
        )

    def _partition(
        self, place: TopicIdPartition, found: _Found, acknowledged: PartitionResult
    ) -> PartitionData:
        error, message = found.told
        data = PartitionData(
            partition_index=place[1],
            error_code=error,
            error_message=message,
            acknowledge_error_code=acknowledged[0],
            acknowledge_error_message=acknowledged[1],
            records=found.records,
            acquired_records=tuple(
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in found.acquired
            ),
        )
        if error not in LEADER_CHANGED_ERRORS:
            return data
        leader = LeaderIdAndEpoch(
            leader_id=self.catalogue.node_id, leader_epoch=leader_epoch(self.catalogue, place)
        )
        return data.replace(current_leader=leader)


def _size(ready: list[tuple[TopicIdPartition, SharePartitionServer]], enough: int) -> int:
    """Bytes that could be had, as long as that may matter."""
    size = 0
    for _, one in ready:
        size += one.size_ahead(enough - size)
        if size >= enough:
            break
    return size


class _Watch:
    """One partition of a fetch that waits."""

    __slots__ = ("fetch", "place", "served")

    def __init__(self, fetch: _Fetch, place: TopicIdPartition, served: SharePartitionServer) -> None:
        self.fetch, self.place, self.served = fetch, place, served

    def try_complete(self) -> None:
        self.fetch.try_complete(self)
