"""The cluster's catalogue: topics, configs, features and this node, as the broker's services read them.

The state is the shard `konvene.cluster.catalogue.Catalogue`, replayed from the log of `__cluster_metadata`,
which no client reads or writes. Changes are submitted as requests; their effects (logs to create, configs to
apply) go to the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from konvene.broker.settings import BrokerSettings
from konvene.broker.storage.partitions import Partition
from konvene.cluster.catalogue import Catalogue
from konvene.cluster.state import CatalogueState, ResourceType
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC
from konvene.records.cluster_log import decode_cluster_record, encode_cluster_record
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.runtime.deferred import Deferred
from konvene.runtime.environment import Environment
from konvene.runtime.journal import Journal
from konvene.runtime.ports import EventLoop, Ports, RecordSerde, one_by_one
from konvene.shard.contract import Effect
from konvene.shard.image import Topics

CLUSTER_SERDE = RecordSerde(encode_cluster_record, one_by_one(decode_cluster_record))

DEFAULT_LISTENER = "PLAINTEXT"

MAX_METADATA_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of a batch in the metadata log, as in Kafka."""


class ClusterCatalogue:
    """Topics, configs and features of the cluster, and the identity of its only node."""

    def __init__(
        self,
        loop: EventLoop,
        environment: Environment,
        settings: BrokerSettings,
        metadata: Partition,
        cluster_id: str,
        perform: Callable[[Effect], None],
    ) -> None:
        self.node_id: int = settings.static_config["node.id"]
        self.cluster_id = cluster_id
        self.advertised_by_listener: dict[str, tuple[str, int]] = {DEFAULT_LISTENER: ("localhost", 0)}
        """Host and port that responses name for clients to connect to, by listener."""
        self._metadata = metadata
        self.coordinator = Coordinator(
            CLUSTER_METADATA_TOPIC,
            Catalogue,
            CLUSTER_SERDE,
            Ports(
                journal=Journal(metadata, durable=True),
                config=lambda: settings.config,
                loop=loop,
                wall_clock_ms=environment.wall_clock_ms,
                perform=perform,
            ),
            unavailable=Errors.KAFKA_STORAGE_ERROR,
        )

    def __repr__(self) -> str:
        return f"<catalogue of {len(self.topics.by_name)} topics>"

    @property
    def advertised(self) -> tuple[str, int]:
        """Return the advertised host and port of the first listener."""
        return next(iter(self.advertised_by_listener.values()))

    def advertised_to(self, listener: str) -> tuple[str, int]:
        """Return the host and port that responses name for clients of a listener."""
        return self.advertised_by_listener.get(listener) or self.advertised

    @property
    def state(self) -> CatalogueState:
        catalogue = self.coordinator.core
        assert isinstance(catalogue, Catalogue)
        return catalogue.state

    @property
    def topics(self) -> Topics:
        return self.state.image

    @property
    def end_offset(self) -> int:
        """Return the end offset of the metadata log, which is also the epoch of the finalized features."""
        return self._metadata.end_offset

    def settings_of(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the configs that clients have set for a resource, without defaults."""
        return self.state.configs.get((resource_type, name), {})

    def feature_level(self, feature: str) -> int:
        """Return the finalized level of a feature, 0 if it is not finalized."""
        return self.state.features.get(feature, 0)

    def submit(self, request: object, context: RequestContext) -> Deferred[Struct | Errors]:
        """Submit a request that changes the catalogue; return its future response, or `Errors` on failure."""
        return self.coordinator.submit(request, context)
