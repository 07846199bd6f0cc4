"""The composition root: creates the services of a broker, connects them, starts and stops them.

Services and handlers do not know the broker. Each names what it uses in its constructor or signature.
Everything runs on one event loop; only syncing the disk has threads of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from konvene.broker.catalogue import MAX_METADATA_BATCH_BYTES, ClusterCatalogue
from konvene.broker.groups.audit import Audit
from konvene.broker.groups.coordinators import GroupCoordinators
from konvene.broker.net.authorization import Authorization, standard_authorizer
from konvene.broker.net.client_metrics import Telemetry
from konvene.broker.net.client_quotas import ClientQuotas
from konvene.broker.net.connection_quotas import ConnectionQuotas
from konvene.broker.net.connection_rates import ConnectionAdmission, ConnectionRates
from konvene.broker.net.fetch_sessions import FetchSessions
from konvene.broker.net.frame_buffers import FrameBufferPool
from konvene.broker.net.frames import routes
from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
from konvene.broker.net.listener import Accept
from konvene.broker.net.listener_security import ListenerSecurity
from konvene.broker.net.network import Network
from konvene.broker.net.request_scheduler import RequestScheduler
from konvene.broker.net.response_cache import ResponseCache
from konvene.broker.net.router import HANDLERS, UNADVERTISED
from konvene.broker.net.socket_server import SocketServer
from konvene.broker.net.supported_apis import SupportedApis
from konvene.broker.node_services import NodeServices
from konvene.broker.producer_ids import ProducerIds
from konvene.broker.services import Services
from konvene.broker.settings import BrokerSettings
from konvene.broker.shares.background_work import ShareStateWork
from konvene.broker.shares.share_partitions import SharePartitions
from konvene.broker.shares.state_coordinators import ShareCoordinators
from konvene.broker.storage.archive import Archive
from konvene.broker.storage.cleaner import LogCleaner
from konvene.broker.storage.disk_threads import DiskThreads
from konvene.broker.storage.log_maintenance import LogMaintenance
from konvene.broker.storage.partitions import Partition, Partitions
from konvene.broker.topic_creator import TopicCreator
from konvene.broker.topic_logs import TopicLogs
from konvene.broker.transactions.coordinators import TransactionCoordinators
from konvene.broker.transactions.hanging_transactions import end_hanging_transactions, has_open_transactions
from konvene.cluster.acls import ACLS_CHANGED
from konvene.cluster.client_quotas import CLIENT_QUOTAS_CHANGED
from konvene.cluster.configs import CONFIGS_CHANGED
from konvene.cluster.features import FEATURES_CHANGED
from konvene.cluster.state import ResourceType
from konvene.cluster.topics import CREATE_PARTITIONS, DELETE_PARTITIONS
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC
from konvene.log.config import LogConfig
from konvene.log.directory import LogDirectory, TopicPartition
from konvene.log.partition import PartitionLog
from konvene.messages.broker_registration import BrokerRegistrationRequest
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.environment import SYSTEM, Environment
from konvene.shard.contract import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from konvene.broker.metrics.meter import Meter

log = logging.getLogger("konvene.broker")

UNBOUNDED_REQUEST_BYTES = 1 << 30
"""Maximum bytes of incomplete requests if `queued.max.request.bytes` is -1, which is unbounded in Kafka."""

DISK_THREADS = 2


class Broker:
    """All services of one node, which is the only node of its cluster.

    `make_share_partitions` creates the service for share partitions; the simulator passes a class that
    observes them. Raises `ConfigError` if the settings are unusable."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: LogDirectory,
        loop: asyncio.AbstractEventLoop,
        environment: Environment = SYSTEM,
        disk: DiskThreads | None = None,
        make_share_partitions: Callable[[NodeServices, ShareCoordinators], SharePartitions] = SharePartitions,
    ) -> None:
        self.loop = loop
        self.environment = environment
        self.directory = directory
        self.disk = DiskThreads(DISK_THREADS) if disk is None else disk
        self.settings = BrokerSettings(config)
        self.meter = _meter(config)
        self.authorization = Authorization(standard_authorizer(config))
        self.partitions = Partitions()
        self.catalogue = ClusterCatalogue(
            loop,
            environment,
            self.settings,
            self._open_metadata(),
            directory.identity.cluster_id,
            self._perform,
        )
        self.topic_creator = TopicCreator(environment, self.settings, self.catalogue, self.partitions)
        self.node = NodeServices(
            loop,
            environment,
            self.settings,
            self.authorization,
            self.catalogue,
            self.topic_creator,
            self.partitions,
            self.meter,
        )
        self.producer_ids = ProducerIds(self.catalogue)
        self._make_storage(config)
        self._make_coordinators(make_share_partitions)
        self._make_network(config)

    def _make_storage(self, config: BrokerConfig) -> None:
        node = self.node
        self.archive = Archive.of(config, self.directory)
        self.cleaner = LogCleaner(node, self.directory, self.disk, self.archive)
        self.topic_logs = TopicLogs(node, self.directory, self.cleaner, self._make_partition)
        self.log_maintenance = LogMaintenance(node, self.directory, self.disk, self.archive, self.cleaner)

    def _make_coordinators(
        self, make_share_partitions: Callable[[NodeServices, ShareCoordinators], SharePartitions]
    ) -> None:
        node = self.node
        self.response_cache = ResponseCache()
        self.heartbeat_purgatory = HeartbeatPurgatory(self.loop)
        self.share_coordinators = ShareCoordinators(node)
        self.share_partitions = make_share_partitions(node, self.share_coordinators)
        self.share_state_work = ShareStateWork(self.catalogue, self.share_coordinators, self.share_partitions)
        self.audit = Audit(node, self.directory)
        self.groups = GroupCoordinators(
            node, self.audit, self.heartbeat_purgatory, self.response_cache, self.share_state_work
        )
        self.transactions = TransactionCoordinators(node, self.groups, self.producer_ids)

    def _make_network(self, config: BrokerConfig) -> None:
        self.telemetry = Telemetry(
            self.environment.wall_clock_ms, self._fresh_id, config["telemetry.max.bytes"]
        )
        self.listener_security = ListenerSecurity(self.loop, self.environment, self.settings, self.catalogue)
        self.services = Services(
            loop=self.loop,
            environment=self.environment,
            settings=self.settings,
            authorization=self.authorization,
            catalogue=self.catalogue,
            topic_creator=self.topic_creator,
            producer_ids=self.producer_ids,
            directory=self.directory,
            partitions=self.partitions,
            supported_apis=SupportedApis(HANDLERS.keys() - UNADVERTISED, self.catalogue),
            fetch_sessions=FetchSessions(config["max.incremental.fetch.session.cache.slots"]),
            telemetry=self.telemetry,
            heartbeat_purgatory=self.heartbeat_purgatory,
            listener_security=self.listener_security,
            groups=self.groups,
            share_state_work=self.share_state_work,
            share_coordinators=self.share_coordinators,
            share_partitions=self.share_partitions,
            transactions=self.transactions,
        )
        clock_ms = lambda: int(self.loop.time() * 1000)  # noqa: E731 - passed twice
        self.client_quotas = ClientQuotas(config, clock_ms, self.environment.processing_clock_ns)
        self.connection_rates = ConnectionRates(lambda: self.settings.config, clock_ms)
        queued_bytes: int = config["queued.max.request.bytes"]
        self.network = Network(
            loop=self.loop,
            wall_clock_ms=self.environment.wall_clock_ms,
            settings=self.settings,
            authorization=self.authorization,
            routes=routes(HANDLERS, self.services),
            connection_quotas=ConnectionQuotas(lambda: self.settings.config),
            connection_admission=ConnectionAdmission(
                self.loop, lambda: self.settings.config, self.connection_rates
            ),
            client_quotas=self.client_quotas,
            request_scheduler=RequestScheduler(self.loop),
            response_cache=self.response_cache,
            heartbeat_purgatory=self.heartbeat_purgatory,
            frame_buffers=FrameBufferPool(queued_bytes if queued_bytes > 0 else UNBOUNDED_REQUEST_BYTES),
            telemetry=self.telemetry,
            groups=self.groups,
            share_partitions=self.share_partitions,
            meter=self.meter,
            max_request_bytes=config["socket.request.max.bytes"],
        )

    def __repr__(self) -> str:
        topics, connections = len(self.catalogue.topics.by_name), len(self.network.connections)
        return f"<broker {self.catalogue.node_id}: {topics} topics, {connections} connections>"

    def _open_metadata(self) -> Partition:
        """Open or create the log of `__cluster_metadata`, which no client reads or writes."""
        name = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
        config = LogConfig(max_message_bytes=MAX_METADATA_BATCH_BYTES, retention_ms=-1)
        (opened,) = self.directory.create([name], config, self.environment.wall_clock_ms())
        return self._make_partition(name, opened, leader_epoch=0)

    def _make_partition(self, name: TopicPartition, opened: PartitionLog, leader_epoch: int) -> Partition:
        return Partition(
            name.topic,
            name.partition,
            opened,
            environment=self.environment,
            disk=self.disk,
            meter=self.meter,
            leader_epoch=leader_epoch,
            syncs=self.settings.config["konvene.log.fsync.topics"],
        )

    def _fresh_id(self) -> Uuid:
        return Uuid(self.environment.fresh_uuid().bytes)

    def socket_server(self, accept: Accept | None = None) -> SocketServer:
        """Return the server of this broker's listeners. `accept` creates each connection's protocol."""
        return SocketServer(
            self.network, self.catalogue, self.log_maintenance, self.listener_security, accept
        )

    # --- effects of the catalogue ---

    def _perform(self, effect: Effect) -> None:
        """Apply a change of the catalogue to the logs, groups and share partitions.

        First drop all cached responses and release all held heartbeats, because any change may alter them."""
        self.response_cache.invalidate()
        self.heartbeat_purgatory.release_all()
        if effect.verb == CREATE_PARTITIONS:
            self.topic_logs.open_topic(effect.subject)
        elif effect.verb == DELETE_PARTITIONS:
            self.topic_logs.delete_topic(effect.subject)
            self.groups.topic_deleted(effect.subject.name, effect.subject.id)
            self.share_coordinators.topic_deleted(effect.subject.id)
            self.share_partitions.topic_deleted(effect.subject.id)
        elif effect.verb == FEATURES_CHANGED:
            self.share_partitions.features_changed()
        elif effect.verb == CONFIGS_CHANGED:
            self._reconfigure(*effect.subject)
        elif effect.verb == ACLS_CHANGED:
            self.authorization.acls_changed(*effect.subject)
        elif effect.verb == CLIENT_QUOTAS_CHANGED:
            self._update_quotas()

    def _update_quotas(self) -> None:
        quotas = tuple(self.catalogue.state.client_quotas.items())
        self.client_quotas.update(quotas)
        self.connection_rates.update(quotas, self.loop)

    def _reconfigure(self, resource_type: int, name: str) -> None:
        """Apply altered configs of a resource; those of the broker also to all groups and topics."""
        configs = self.catalogue.settings_of
        if resource_type == ResourceType.BROKER:
            warnings = self.settings.apply_broker_configs(
                configs(ResourceType.BROKER, ""),
                configs(ResourceType.BROKER, str(self.catalogue.node_id)),
                {
                    group_id: values
                    for (owner, group_id), values in self.catalogue.state.configs.items()
                    if owner == ResourceType.GROUP
                },
            )
            _warn(warnings)
            self.cleaner.reconfigured()
            self.listener_security.reconfigured()
            self.groups.internal_topic_warnings.configs_changed(None)
            for topic in list(self.catalogue.topics.by_name):
                self.topic_logs.reconfigure(topic)
        elif resource_type == ResourceType.GROUP:
            _warn(self.settings.apply_group_configs(name, configs(ResourceType.GROUP, name)))
        elif resource_type == ResourceType.TOPIC:
            self.topic_logs.reconfigure(name)
            self.groups.internal_topic_warnings.configs_changed(name)

    # --- starting and stopping ---

    async def start(self) -> None:
        """Load the catalogue, open the partitions, start the coordinators."""
        await self.catalogue.coordinator.load()
        self.authorization.acls_changed(self.catalogue.state.acls.values(), ())
        self._update_quotas()
        self._reconfigure(ResourceType.BROKER, "")
        await self._register()
        for topic in self.catalogue.state.topics.values():
            self._perform(Effect(CREATE_PARTITIONS, topic))
        self.topic_logs.delete_orphans()
        await self.groups.resume()
        self.transactions.start()
        self.share_coordinators.start()
        if not self.directory.clean and has_open_transactions(self.partitions):
            await self.groups.loaded()
            await self.transactions.loaded()
            await end_hanging_transactions(self.environment, self.partitions, self.groups, self.transactions)

    async def _register(self) -> None:
        """Register this start of the broker in the catalogue, which advances all leader epochs."""
        request = BrokerRegistrationRequest(
            broker_id=self.catalogue.node_id,
            cluster_id=self.catalogue.cluster_id,
            incarnation_id=self._fresh_id(),
            rack=self.settings.config["broker.rack"],
        )
        response = await self.catalogue.submit(request, RequestContext())
        if isinstance(response, Errors):
            log.error("this start could not be registered: %s", response.name)

    async def stop(self) -> None:
        """Complete waiting requests, stop the coordinators, close connections, sync and close the logs."""
        await self.cleaner.close()
        self.network.connection_admission.close()
        self.network.request_scheduler.close()
        self.heartbeat_purgatory.close()
        await self.share_partitions.close()
        await self.share_coordinators.close()
        await self.transactions.close()
        await self.groups.close()
        await self.catalogue.coordinator.close()
        for connection in list(self.network.connections):
            connection.close()
        self.directory.close()
        self.disk.shutdown()


def _meter(config: BrokerConfig) -> Meter | None:
    """Return a meter, or None if `konvene.metrics.port` disables metrics."""
    if config["konvene.metrics.port"] < 0:
        return None
    from konvene.broker.metrics.meter import Meter

    return Meter(config["konvene.metrics.groups"], config["konvene.metrics.topics"])


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        log.warning("%s", warning)
