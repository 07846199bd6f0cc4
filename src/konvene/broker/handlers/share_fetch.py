"""ShareFetch: acknowledge acquired records and acquire further ones.

Records are acquired while the acknowledgements are being persisted; the response is sent when both are done.
A fetch that acquires nothing waits for a partition to grow, for records to be released, or for a share
partition to be loaded. Each such event concerns one share partition, and only that one is tried again. If a
share partition cannot be loaded, its error is returned when `max_wait_ms` have passed, as in Kafka: an
immediate error would make the member fetch in a tight loop.

Permissions are checked when the request arrives; and, if ACLs have changed while it waited, again before it
acquires records.

Successive requests of a session begin with different partitions, so that none of them is always the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.share_requests import (
    FIRST_VERSION_WITH_RENEW,
    LEADER_CHANGED_ERRORS,
    PendingAcknowledgements,
    RequestRejected,
    check_request,
    denied_topics,
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
from konvene.log.errors import DamagedLog, LogError
from konvene.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from konvene.runtime.deferred import Answer, Deferred
from konvene.security.resources import Operation
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    import asyncio

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.runtime.coordinator import RequestContext


ACQUIRE_MODES = frozenset(AcquireMode)

Servers = list[tuple[TopicIdPartition, SharePartitionServer]]


def handle(
    authorization: Authorization,
    loop: asyncio.AbstractEventLoop,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    share_partitions: SharePartitions,
    request: ShareFetchRequest,
    context: RequestContext,
) -> Answer[ShareFetchResponse]:
    try:
        check_request(authorization, catalogue, request, context)
        if request.share_acquire_mode not in ACQUIRE_MODES:
            raise RequestRejected(Errors.INVALID_REQUEST)
        _check_renewal(request, context)
        fetch = _DelayedShareFetch(
            authorization, loop, settings, catalogue, share_partitions, request, context
        )
        return fetch.deferred
    except RequestRejected as rejected:
        return ShareFetchResponse(error_code=rejected.error)
    except SessionError as rejected:
        response = ShareFetchResponse(error_code=rejected.error)
        if rejected.error is not Errors.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
            return response
        deferred: Deferred[ShareFetchResponse] = Deferred()
        loop.call_later(min(request.max_wait_ms, MAX_INT) / 1000, deferred.resolve, response)
        return deferred


def _check_renewal(request: ShareFetchRequest, context: RequestContext) -> None:
    """Raise `RequestRejected` if a request that renews locks fetches records too (KIP-1222)."""
    if context.api_version < FIRST_VERSION_WITH_RENEW or not request.is_renew_ack:
        return
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise RequestRejected(Errors.INVALID_REQUEST)


class _FetchedPartition(NamedTuple):
    """The result of a fetch for one partition: an error, or acquired records."""

    result: PartitionResult = SUCCESS
    acquired: tuple[Acquired, ...] = ()
    records: bytes | memoryview = b""


class _DelayedShareFetch:
    """A ShareFetch request in progress: applies acknowledgements, and acquires records or waits for them."""

    __slots__ = (
        "acknowledgements", "acls", "advertised", "authorization", "catalogue", "context", "deferred",
        "denied", "error", "fetched", "is_acknowledged", "is_fetched", "loop", "member_id", "request",
        "session_fetch", "settings", "share_partitions", "timer", "usage", "watches",
    )  # fmt: skip

    def __init__(
        self,
        authorization: Authorization,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        catalogue: ClusterCatalogue,
        share_partitions: SharePartitions,
        request: ShareFetchRequest,
        context: RequestContext,
    ) -> None:
        assert request.group_id is not None and request.member_id is not None
        self.loop, self.settings = loop, settings
        self.authorization, self.context = authorization, context
        self.acls = authorization.epoch  # Epoch of the ACLs that were checked last.
        self.error = Errors.NONE  # The error of the whole request.
        self.catalogue, self.share_partitions = catalogue, share_partitions
        self.advertised = catalogue.advertised_to(context.session.listener)
        self.request, self.member_id, self.usage = request, request.member_id, context.usage
        requested: list[TopicIdPartition] = []
        batches: list[tuple[TopicIdPartition, tuple[AcknowledgementBatch, ...]]] = []
        for topic in request.topics:
            for partition in topic.partitions:
                topic_partition = (topic.topic_id, partition.partition_index)
                requested.append(topic_partition)
                batches.append((topic_partition, partition.acknowledgement_batches))
        if not any(of_partition for _, of_partition in batches):
            batches.clear()
        self.session_fetch = share_partitions.sessions.fetch(
            request.group_id,
            self.member_id,
            request.share_session_epoch,
            requested,
            [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
            acknowledges=bool(batches),
            connection=context.connection,
        )
        fetched_partitions = self.session_fetch.partitions
        self.denied = denied_topics(
            authorization, catalogue, context, (topic_id for topic_id, _ in (*requested, *fetched_partitions))
        )
        self.deferred: Deferred[ShareFetchResponse] = Deferred()
        self.fetched: dict[TopicIdPartition, _FetchedPartition] = {}
        self.watches: list[_PartitionWatch] = []
        self.timer: asyncio.TimerHandle | None = None
        self.is_fetched = False
        self.is_acknowledged = not batches
        self.acknowledgements = PendingAcknowledgements(self._complete_acknowledgements)
        if batches:
            self.acknowledgements.submit(catalogue, share_partitions, request, context, batches, self.denied)
        renews = context.api_version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
        self._start(() if renews else fetched_partitions)

    # --- fetching ---

    def _start(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Acquire available records; if there are none, wait for them."""
        servers = self._find_servers(partitions)
        request = self.request
        if not servers or not request.max_records or not request.max_bytes or self._acquire_all(servers):
            self._complete_fetch()
            return
        if request.max_wait_ms <= 0:
            self._acquire_all(servers, min_bytes=0)
            self._complete_fetch()
            return
        self.timer = self.loop.call_later(min(request.max_wait_ms, MAX_INT) / 1000, self._expire)
        for partition, server in servers:
            watch = _PartitionWatch(self, partition, server)
            self.watches.append(watch)
            server.waiting[watch] = None
            server.partition.waiting[watch] = None

    def _find_servers(self, partitions: tuple[TopicIdPartition, ...]) -> Servers:
        """Return the share partitions to acquire from or wait for. Errors are stored in `fetched`."""
        topics, group_id = self.catalogue.topics, self.request.group_id
        assert group_id is not None
        servers: Servers = []
        start = self.request.share_session_epoch % len(partitions) if partitions else 0
        for partition in partitions[start:] + partitions[:start]:
            topic = topics.by_id.get(partition[0])
            if topic is None:
                self.fetched[partition] = _FetchedPartition((Errors.UNKNOWN_TOPIC_ID, None))
                continue
            if partition[0] in self.denied:
                self.fetched[partition] = _FetchedPartition((Errors.TOPIC_AUTHORIZATION_FAILED, None))
                continue
            if not 0 <= partition[1] < topic.partitions:
                self.fetched[partition] = _FetchedPartition((Errors.UNKNOWN_TOPIC_OR_PARTITION, None))
                continue
            server = self.share_partitions.serve(SharePartitionKey(group_id, *partition), topic.name)
            if not isinstance(server, SharePartitionServer):
                self.fetched[partition] = _FetchedPartition(server)
            else:
                if server.failed is not None:
                    self.fetched[partition] = _FetchedPartition(server.failed)
                servers.append((partition, server))
        return servers

    def _acquire_all(self, servers: Servers, min_bytes: int | None = None) -> bool:
        """Acquire records if at least `min_bytes` (default: the request's) are available.

        Return True if there is a result: acquired records, or an error of a share partition; with `min_bytes`
        0 also if no records are available. Results are stored in `fetched`; with `min_bytes` 0, share
        partitions without a result are stored there too."""
        ready = [(partition, server) for partition, server in servers if server.can_acquire]
        if not ready:
            return False
        request = self.request
        if min_bytes is None:
            min_bytes = request.min_bytes
        keeps_all = min_bytes <= 0
        if min_bytes > 1 and _available_bytes(ready, min_bytes) < min_bytes:
            return False
        remaining = request.max_records
        max_bytes = min(request.max_bytes, self.settings.config["fetch.max.bytes"])
        if self.usage is not None:
            max_bytes = min(max_bytes, self.usage.max_fetch_bytes())
        max_bytes //= len(ready)
        has_results = False
        fetched: dict[TopicIdPartition, _FetchedPartition] = {}
        for partition, server in ready:
            result = _FetchedPartition() if remaining <= 0 else self._acquire(server, remaining, max_bytes)
            fetched[partition] = result
            remaining -= sum(last - first + 1 for first, last, _ in result.acquired)
            has_results = has_results or bool(result.acquired) or result.result is not SUCCESS
        if has_results or keeps_all:
            self.fetched.update(fetched)
        return has_results or keeps_all

    def _acquire(self, server: SharePartitionServer, max_records: int, max_bytes: int) -> _FetchedPartition:
        request = self.request
        mode = AcquireMode(request.share_acquire_mode)
        try:
            acquired, read = server.acquire(self.member_id, mode, max_records, request.batch_size, max_bytes)
        except (DamagedLog, CodecError) as damage:
            refused = server.partition.report_damage(damage)
            return _FetchedPartition((refused.error, refused.message))
        except LogError as error:
            return _FetchedPartition((Errors(error.code), None))
        return _FetchedPartition(SUCCESS, tuple(acquired), read[0] if len(read) == 1 else b"".join(read))

    def try_complete(self, watch: _PartitionWatch) -> None:
        """Complete the fetch if the share partition of `watch` has failed, or has enough records now."""
        if self.is_fetched or self._completed_by_revocation():
            return
        server = watch.server
        if server.failed is not None:
            self.fetched[watch.topic_partition] = _FetchedPartition(server.failed)
            if server.was_loaded:
                self._complete_fetch()
        elif not self.session_fetch.is_open:
            self._complete_fetch()  # The member's connection is lost: leave the records to other members.
        elif self._acquire_all(
            [(watch.topic_partition, server)] if self.request.min_bytes <= 1 else self._watched()
        ):
            self._complete_fetch()

    def _expire(self) -> None:
        """Complete the fetch with the records that are available when `max_wait_ms` have passed."""
        if self._completed_by_revocation():
            return
        if self.session_fetch.is_open:
            self._acquire_all(self._watched(), min_bytes=0)
        self._complete_fetch()

    def _completed_by_revocation(self) -> bool:
        """Check the permissions again if ACLs have changed, and return True if one was revoked.

        Then the fetch completes with an error, without records: none is acquired after the permission to read
        it was revoked. Kafka does not repeat the check."""
        authorization, group_id = self.authorization, self.request.group_id
        if self.acls == authorization.epoch:
            return False
        self.acls = authorization.epoch
        assert group_id is not None
        if not permits_group(authorization, self.context, Operation.READ, group_id):
            self.error = Errors.GROUP_AUTHORIZATION_FAILED
            self._complete_fetch()
            return True
        watched = [watch.topic_partition for watch in self.watches]
        denied = denied_topics(
            authorization, self.catalogue, self.context, (topic_id for topic_id, _ in watched)
        )
        for partition in watched:
            if partition[0] in denied:
                self.fetched[partition] = _FetchedPartition((Errors.TOPIC_AUTHORIZATION_FAILED, None))
        if denied:
            self._complete_fetch()
        return bool(denied)

    def _watched(self) -> Servers:
        return [(watch.topic_partition, watch.server) for watch in self.watches]

    def _complete_fetch(self) -> None:
        self.is_fetched = True
        if self.timer is not None:
            self.timer.cancel()
        for watch in self.watches:
            watch.server.waiting.pop(watch, None)
            watch.server.partition.waiting.pop(watch, None)
        self.watches = []
        self._respond()

    # --- responding ---

    def _complete_acknowledgements(self) -> None:
        self.is_acknowledged = True
        self._respond()

    def _respond(self) -> None:
        """Respond once the fetch and the acknowledgements are complete."""
        if not self.is_fetched or not self.is_acknowledged:
            return
        catalogue, request = self.catalogue, self.request
        assert request.group_id is not None
        error, reported = self.session_fetch.answer(
            {
                partition: (bool(fetched.records), bool(fetched.result[0]))
                for partition, fetched in self.fetched.items()
            }
        )
        if self.session_fetch.is_final:
            self.share_partitions.release(request.group_id, self.member_id)
        acknowledged = self.acknowledgements.results
        if self.usage is not None:
            self.usage.count_fetched(sum(len(fetched.records) for fetched in self.fetched.values()))
        topics: dict[Uuid, list[PartitionData]] = {}
        leader_changed = False
        for partition in dict.fromkeys((*reported, *acknowledged)):
            fetched = self.fetched[partition] if partition in reported else _FetchedPartition()
            leader_changed = leader_changed or fetched.result[0] in LEADER_CHANGED_ERRORS
            topics.setdefault(partition[0], []).append(
                self._partition(partition, fetched, acknowledged.get(partition, SUCCESS))
            )
        host, port = self.advertised
        self.deferred.resolve(
            ShareFetchResponse(
                error_code=self.error or error,
                acquisition_lock_timeout_ms=lock_timeout_ms(self.settings, request.group_id),
                responses=tuple(
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                    for topic_id, partitions in topics.items()
                ),
                node_endpoints=(NodeEndpoint(node_id=catalogue.node_id, host=host, port=port),)
                if leader_changed
                else (),
            )
        )

    def _partition(
        self, partition: TopicIdPartition, fetched: _FetchedPartition, acknowledged: PartitionResult
    ) -> PartitionData:
        error, message = fetched.result
        data = PartitionData(
            partition_index=partition[1],
            error_code=error,
            error_message=message,
            acknowledge_error_code=acknowledged[0],
            acknowledge_error_message=acknowledged[1],
            records=fetched.records,
            acquired_records=tuple(
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in fetched.acquired
            ),
        )
        if error not in LEADER_CHANGED_ERRORS:
            return data
        leader = LeaderIdAndEpoch(
            leader_id=self.catalogue.node_id, leader_epoch=leader_epoch(self.catalogue, partition)
        )
        return data.replace(current_leader=leader)


def _available_bytes(servers: Servers, limit: int) -> int:
    """Return the bytes of records that could be acquired; counting stops at `limit`."""
    size = 0
    for _, server in servers:
        size += server.size_ahead(limit - size)
        if size >= limit:
            break
    return size


class _PartitionWatch:
    """An observer of one share partition: when it changes, the waiting fetch tries to complete."""

    __slots__ = ("fetch", "server", "topic_partition")

    def __init__(
        self, fetch: _DelayedShareFetch, topic_partition: TopicIdPartition, server: SharePartitionServer
    ) -> None:
        self.fetch, self.topic_partition, self.server = fetch, topic_partition, server

    def try_complete(self) -> None:
        self.fetch.try_complete(self)
