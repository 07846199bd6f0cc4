"""The broker as its handlers see it: the configuration, the catalogue, the partitions, the coordinators.

It is made of parts that know nothing of each other; here they are introduced. Everything happens on one
event loop; only syncing the disk has threads of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from konvene.broker.groups.assignors import load_assignors, offered_task_assignors
from konvene.broker.groups.audit import Audit
from konvene.broker.groups.coordinators import GroupCoordinators
from konvene.broker.net.admission import Admission
from konvene.broker.net.client_metrics import Telemetry
from konvene.broker.net.fetch_sessions import FetchSessions
from konvene.broker.net.frame_buffers import FrameBufferPool
from konvene.broker.net.frames import Route, routes
from konvene.broker.net.heartbeat_purgatory import HeartbeatPurgatory
from konvene.broker.net.request_scheduler import RequestScheduler
from konvene.broker.net.response_cache import ResponseCache
from konvene.broker.net.router import HANDLERS, UNADVERTISED
from konvene.broker.shares.share_partitions import SharePartitions
from konvene.broker.shares.state_coordinators import ShareCoordinators
from konvene.broker.storage.archive import Archive
from konvene.broker.storage.cleaner import LogCleaner
from konvene.broker.storage.disk_threads import DiskThreads
from konvene.broker.storage.partitions import Partition, Partitions, log_config
from konvene.broker.storage.retention import retain_all
from konvene.broker.transactions.coordinators import TransactionCoordinators
from konvene.broker.transactions.hanging import end_hanging, has_open
from konvene.cluster.catalogue import Catalogue
from konvene.cluster.configs import CONFIGS_CHANGED
from konvene.cluster.features import FEATURES_CHANGED, SUPPORTED
from konvene.cluster.state import CatalogueState, ResourceType, TopicState
from konvene.cluster.topics import CREATE_PARTITIONS, DELETE_PARTITIONS
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.effective import topic_values
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.heartbeat_intervals import RESPONSIVE
from konvene.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from konvene.log.config import LogConfig
from konvene.log.directory import LogDirectory, TopicPartition
from konvene.log.errors import DamagedLog, LogError
from konvene.log.partition import PartitionLog
from konvene.messages import API_VERSIONS
from konvene.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from konvene.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from konvene.messages.broker_registration import BrokerRegistrationRequest
from konvene.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from konvene.records.cluster_log import decode_cluster_record, encode_cluster_record
from konvene.runtime.coordinator import Call, Coordinator
from konvene.runtime.environment import SYSTEM, Environment
from konvene.runtime.journal import Journal
from konvene.runtime.ports import Ports, RecordSerde, one_by_one
from konvene.shard.contract import Effect
from konvene.shard.image import Topics

if TYPE_CHECKING:
    from konvene.broker.metrics.meter import Meter
    from konvene.broker.net.connection import Connection

log = logging.getLogger("konvene.broker")

CLUSTER_SPEECH = RecordSerde(encode_cluster_record, one_by_one(decode_cluster_record))

MAX_METADATA_BATCH = 8 * 1024 * 1024
"""Kafka's limit for a batch of the metadata log."""

MOST_COMING = 1 << 30
"""Bytes of requests that are being read, where `queued.max.request.bytes` sets no bound (Kafka: none)."""

PRODUCE = 0

ADVERTISED_FIRST = {PRODUCE: 0}
"""As Kafka since 4.0: some clients take a missing Produce 0 for a broker that cannot compress."""

FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients cannot read of a feature that may be at level 0, so they do not hear of it (KAFKA-17492)."""


class Broker:
    """One node that is its whole cluster. Raises `ConfigError` where it cannot be made of these settings."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: LogDirectory,
        loop: asyncio.AbstractEventLoop,
        environment: Environment = SYSTEM,
    ) -> None:
        self.static_config = config
        self.config = config
        self.group_configs = GroupConfigs(config)
        self.assignors = load_assignors(config["group.consumer.assignors"])
        self.task_assignors = offered_task_assignors(config)
        self.directory = directory
        self.loop = loop
        self.wall_clock_ms = environment.wall_clock_ms
        self.random_int = environment.random_int
        self.fresh_uuid = environment.fresh_uuid
        self.node_id: int = config["node.id"]
        self.cluster_id: str = directory.identity.cluster_id
        self.advertised: tuple[str, int] = ("localhost", 0)
        self.max_request_bytes: int = config["socket.request.max.bytes"]
        self.disk = DiskThreads(2)
        self.routes: dict[int, Route] = routes(HANDLERS)
        self.connections: dict[Connection, None] = {}
        self.admission = Admission(lambda: self.config)
        self.partitions = Partitions()
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.remembered = ResponseCache()
        self.meter = _meter(config)
        self.turns = RequestScheduler(loop)
        self.holding = HeartbeatPurgatory(loop)
        self.telemetry = Telemetry(self.wall_clock_ms, self._fresh_id, config["telemetry.max.bytes"])
        self.intake = FrameBufferPool(
            config["queued.max.request.bytes"] if config["queued.max.request.bytes"] > 0 else MOST_COMING
        )
        self.archive = Archive.of(config, directory)
        self.cleaning = LogCleaner(self)
        self.audit = Audit(self)
        self.groups = GroupCoordinators(self)
        self.transactions = TransactionCoordinators(self)
        self.share_states = ShareCoordinators(self)
        self.sharing = SharePartitions(self)
        self._found = set(directory.partitions())
        self._metadata = self._open_metadata()
        self.catalogue = Coordinator(
            CLUSTER_METADATA_TOPIC,
            Catalogue,
            CLUSTER_SPEECH,
            Ports(
                journal=Journal(self, self._metadata, durable=True),
                config=lambda: self.config,
                loop=loop,
                wall_clock_ms=self.wall_clock_ms,
                perform=self._perform,
            ),
            unavailable=Errors.KAFKA_STORAGE_ERROR,
        )
        self._producer_ids = iter(range(0))

    def __repr__(self) -> str:
        return (
            f"<broker {self.node_id}: {len(self.topics.by_name)} topics, {len(self.connections)} connections>"
        )

    def _open_metadata(self) -> Partition:
        """The cluster's own log. Without it there is no broker; no client reads or writes it."""
        wanted = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
        config = LogConfig(max_message_bytes=MAX_METADATA_BATCH, retention_ms=-1)
        opened = self.directory.create([wanted], config, self.wall_clock_ms())
        return self._partition(wanted, opened[0])

    # --- what handlers ask ---

    @property
    def state(self) -> CatalogueState:
        catalogue = self.catalogue.core
        assert isinstance(catalogue, Catalogue)
        return catalogue.state

    @property
    def topics(self) -> Topics:
        return self.state.image

    @property
    def metadata_end_offset(self) -> int:
        """Where the cluster's own log ends."""
        return self._metadata.end_offset

    def settings_of(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """What was set for a resource."""
        return self.state.configs.get((kind, name), {})

    @property
    def holds_heartbeats(self) -> bool:
        """Whether answers to heartbeats with nothing to tell are kept for a while."""
        responsive = self.config["konvene.heartbeat.policy"] == RESPONSIVE
        return responsive and bool(self.config["konvene.heartbeat.hold.enable"])

    def level(self, feature: str) -> int:
        """The level at which a feature is finalized; 0 where it is not."""
        return self.state.features.get(feature, 0)

    def api_versions(self, api_version: int) -> ApiVersionsResponse:
        """What is served, read off the table of handlers."""
        return ApiVersionsResponse(
            api_keys=tuple(
                ApiVersion(
                    api_key=key, min_version=ADVERTISED_FIRST.get(key, route.first), max_version=route.last
                )
                for key, route in sorted(self.routes.items())
                if key not in UNADVERTISED
            ),
            supported_features=tuple(
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED.items()
                if low > 0 or api_version >= FIRST_VERSION_WITH_LEVEL_0
            ),
            finalized_features_epoch=self._metadata.end_offset,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(self.state.features.items())
                if level > 0
            ),
        )

    def unsupported_api_versions(self) -> ApiVersionsResponse:
        """For a client that speaks a version of ApiVersions that is not known here: which ones are."""
        route = self.routes[API_VERSIONS]
        known = ApiVersion(api_key=API_VERSIONS, min_version=route.first, max_version=route.last)
        return ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION, api_keys=(known,))

    def _fresh_id(self) -> Uuid:
        return Uuid(self.fresh_uuid().bytes)

    def fresh_ids(self, count: int) -> tuple[str, ...]:
        """Random ids as Kafka makes them: none of them starts with a dash, which tools would take badly."""
        ids: list[str] = []
        while len(ids) < count:
            text = base64.urlsafe_b64encode(self.fresh_uuid().bytes).rstrip(b"=").decode()
            if not text.startswith("-"):
                ids.append(text)
        return tuple(ids)

    async def next_producer_id(self) -> int | None:
        """A producer id that nobody has; None while the catalogue cannot be written."""
        for producer_id in self._producer_ids:
            return producer_id
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=0)
        answer = await self.catalogue.submit(request, Call())
        if not isinstance(answer, AllocateProducerIdsResponse):
            return None
        first = answer.producer_id_start
        self._producer_ids = iter(range(first, first + answer.producer_id_len))
        return next(self._producer_ids)

    # --- topics that appear by themselves ---

    async def create_missing(self, names: list[str]) -> None:
        """Create the topics that are not there, at the broker's defaults."""
        wanted = [n for n in dict.fromkeys(names) if n not in self.topics.by_name]
        internal = [n for n in wanted if n in INTERNAL_TOPICS]
        for name in internal:
            await self.create_internal(name)
        others = [n for n in wanted if n not in internal]
        await self._create([CreatableTopic(name=n, num_partitions=-1, replication_factor=-1) for n in others])

    async def create_internal(self, name: str) -> None:
        """Create a topic that the broker itself needs."""
        if name in self.topics.by_name:
            return
        partitions, configs = self._internal(name)
        await self._create(
            [
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in configs.items()),
                )
            ]
        )

    def _internal(self, name: str) -> tuple[int, dict[str, str]]:
        config = self.config
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

    async def _create(self, topics: list[CreatableTopic]) -> None:
        if topics:
            call = Call(api_version=7, fresh_ids=self.fresh_ids(len(topics)))
            await self.catalogue.submit(CreateTopicsRequest(topics=tuple(topics)), call)

    # --- effects of the catalogue ---

    def _perform(self, effect: Effect) -> None:
        """Whatever it is, the answer to a request may be another one from now on."""
        self.remembered.forget()
        self.holding.release_all()
        if effect.verb == CREATE_PARTITIONS:
            topic: TopicState = effect.subject
            self._open_topic(topic)
        elif effect.verb == DELETE_PARTITIONS:
            gone: TopicState = effect.subject
            for index in range(gone.partitions):
                partition = self.partitions.drop(gone.name, index)
                if partition is not None:
                    self.cleaning.abort(TopicPartition(gone.name, index))
                    self.directory.delete(TopicPartition(gone.name, index), self.fresh_uuid().hex)
            self.groups.topic_deleted(gone.name, gone.id)
            self.share_states.topic_deleted(gone.id)
            self.sharing.topic_deleted(gone.id)
        elif effect.verb == FEATURES_CHANGED:
            self.sharing.features_changed()
        elif effect.verb == CONFIGS_CHANGED:
            self._reconfigure(*effect.subject)

    def _open_topic(self, topic: TopicState) -> None:
        """Open a topic's logs, and make those that are not there."""
        config = self._log_config(topic.name)
        there: list[TopicPartition] = []
        missing: list[TopicPartition] = []
        for index in range(topic.partitions):
            wanted = TopicPartition(topic.name, index)
            if self.partitions.get(topic.name, index) is None:
                (there if wanted in self._found else missing).append(wanted)
        for wanted in there:
            self._open(wanted, config)
        if missing:
            now_ms = self.wall_clock_ms()
            made = self.directory.create(missing, config, now_ms, topic_id=str(topic.id))
            for wanted, opened in zip(missing, made, strict=True):
                self._put(wanted, opened)

    def _open(self, wanted: TopicPartition, config: LogConfig) -> Partition | None:
        """Open a log that is there. A damaged one stays offline, which is told once, here."""
        try:
            return self._put(wanted, self.directory.load(wanted, config, self.wall_clock_ms()))
        except DamagedLog as damage:
            log.error("%s is offline: %s", wanted, damage)
            self.partitions.offline.add((wanted.topic, wanted.partition))
            return None

    def _put(self, wanted: TopicPartition, opened: PartitionLog) -> Partition:
        partition = self._partition(wanted, opened)
        self.partitions.put(partition)
        return partition

    def _partition(self, wanted: TopicPartition, opened: PartitionLog) -> Partition:
        syncs = self.config["konvene.log.fsync.topics"]
        epoch = 0 if wanted.topic == CLUSTER_METADATA_TOPIC else self.state.leader_epoch(wanted.topic)
        return Partition(self, wanted.topic, wanted.partition, opened, leader_epoch=epoch, syncs=syncs)

    def _log_config(self, topic: str) -> LogConfig:
        values = topic_values(self.config, self.settings_of(ResourceType.TOPIC, topic))
        syncs = topic not in INTERNAL_TOPICS or self.config["konvene.log.fsync.internal"]
        return log_config(values, self.config["producer.id.expiration.ms"], sync_on_roll=syncs)

    def _reconfigure(self, kind: int, name: str) -> None:
        """Settings were altered: they are in force from here on."""
        if kind == ResourceType.BROKER:
            self.config, warnings = self.static_config.with_dynamic(
                self.settings_of(ResourceType.BROKER, ""),
                self.settings_of(ResourceType.BROKER, str(self.node_id)),
            )
            told = self.state.configs.items()
            groups = {group: said for (of, group), said in told if of == ResourceType.GROUP}
            self.group_configs = GroupConfigs(self.config, groups)
            _warn(*warnings, *self.group_configs.warnings)
            names = list(self.topics.by_name)
            self.cleaning.reconfigured()
            self.groups.topic_remarks.altered(None)
        elif kind == ResourceType.GROUP:
            self.group_configs = self.group_configs.with_group(
                name, self.settings_of(ResourceType.GROUP, name)
            )
            _warn(*self.group_configs.warnings)
            names = []
        else:
            names = [name] if kind == ResourceType.TOPIC else []
        for topic in names:
            config = self._log_config(topic)
            for index in range(self.topics.by_name[topic].partitions):
                partition = self.partitions.get(topic, index)
                if partition is not None:
                    partition.log.config = config
        if kind == ResourceType.TOPIC:
            self.groups.topic_remarks.altered(name)

    # --- starting and stopping ---

    async def start(self) -> None:
        """Load the catalogue, open the partitions, start the coordinators."""
        await self.catalogue.load()
        self._reconfigure(ResourceType.BROKER, "")
        await self._register()
        for topic in self.state.topics.values():
            self._perform(Effect(CREATE_PARTITIONS, topic))
        self._drop_orphans()
        await self.groups.resume()
        self.transactions.start()
        self.share_states.start()
        if not self.directory.clean and has_open(self):
            await self.groups.loaded()
            await self.transactions.loaded()
            await end_hanging(self)

    async def _register(self) -> None:
        """Tell the catalogue of this start: partitions are led in a new epoch from now on."""
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=Uuid(self.fresh_uuid().bytes),
            rack=self.config["broker.rack"],
        )
        answer = await self.catalogue.submit(request, Call())
        if isinstance(answer, Errors):
            log.error("this start could not be registered: %s", answer.name)

    def _drop_orphans(self) -> None:
        """Logs of topics that the catalogue does not know: left over from a deletion cut short."""
        known = {TopicPartition(p.topic, p.index) for p in (*self.partitions, self._metadata)}
        for found in sorted(self._found - known - self.partitions.offline):
            log.warning("%s belongs to no topic and is deleted", found)
            self.directory.delete(found, self.fresh_uuid().hex)

    async def stop(self) -> None:
        """Answer who waits, write everything down, close the files."""
        await self.cleaning.close()
        self.turns.close()
        self.holding.close()
        await self.sharing.close()
        await self.share_states.close()
        await self.transactions.close()
        await self.groups.close()
        await self.catalogue.close()
        for connection in list(self.connections):
            connection.close()
        self.directory.close()
        self.disk.shutdown()

    async def retain(self) -> None:
        """Let go of what retention no longer keeps; of compacted logs only where nobody cleans."""
        with self._storage_may_fail("retention"):
            await retain_all(self)

    async def checkpoint(self) -> None:
        """Make finished segments durable and write down how far the logs are: less to read after a crash."""
        with self._storage_may_fail("the checkpoint"):
            await self.disk.run(self.directory.sync_finished)
            self.directory.checkpoint()

    @contextlib.contextmanager
    def _storage_may_fail(self, what: str) -> Iterator[None]:
        try:
            yield
        except LogError as error:
            log.error("%s could not be done: %s", what, error)


def _meter(config: BrokerConfig) -> Meter | None:
    """What counts, if somebody is to see it."""
    if config["konvene.metrics.port"] < 0:
        return None
    from konvene.broker.metrics.meter import Meter

    return Meter(config["konvene.metrics.groups"])


def _warn(*warnings: str) -> None:
    for warning in warnings:
        log.warning("%s", warning)
