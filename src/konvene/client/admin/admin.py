"""Administration of a cluster: topics, settings, groups and transactions.

This module has topics and settings. Groups and offsets are in `groups`, share groups in `share_groups`,
streams groups in `streams_groups`, transactions in `transactions`, ACLs in `acls`, SCRAM credentials and
delegation tokens in `credentials`, client quotas in `client_quotas`; `Admin` inherits from all of them.

An error code is raised as a `KafkaError` that names its subject. A method for several topics raises the error
of the first one that fails, after all were processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from konvene.client.admin.acls import AclAdmin
from konvene.client.admin.client_quotas import ANY_NAME, ClientQuotaAdmin, ClientQuotas
from konvene.client.admin.credentials import CredentialAdmin
from konvene.client.admin.groups import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Removal,
)
from konvene.client.admin.share_groups import (
    InFlightRecords,
    ShareGroupAdmin,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from konvene.client.admin.streams_groups import (
    StreamsGroupAdmin,
    StreamsGroupDescription,
    StreamsMemberDescription,
)
from konvene.client.admin.transactions import (
    HangingTransaction,
    ProducerState,
    TransactionAdmin,
    TransactionDescription,
    TransactionListing,
)
from konvene.client.errors import KafkaError, raise_for
from konvene.client.net.cluster import Request, Topic
from konvene.client.net.connection import Connection
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from konvene.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.list_config_resources import ListConfigResourcesRequest

__all__ = [
    "ANY_NAME", "BROKER", "GROUP_CONFIG", "TOPIC", "Admin", "ClientQuotas", "CommittedOffset", "ConfigEntry",
    "ConfigSynonym",
    "GroupDescription", "GroupListing", "HangingTransaction", "InFlightRecords", "MemberDescription",
    "ProducerState", "Removal", "ShareGroupDescription", "ShareMemberDescription", "SharePartitionOffset",
    "StreamsGroupDescription", "StreamsMemberDescription", "TransactionDescription", "TransactionListing",
]  # fmt: skip

R = TypeVar("R", bound=Struct)

TOPIC, BROKER, GROUP_CONFIG = 2, 4, 32
"""Config resource types."""

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""Operations of IncrementalAlterConfigs."""

CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG", 6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


class ConfigSynonym(NamedTuple):
    """A level that defines a value for a config: the config's name, value and source at that level."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting with its value; `source` is Kafka's name of the level that defines the value."""

    name: str
    value: str | None
    source: str
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    """All levels that define a value, in order of precedence; empty unless requested."""

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


class Admin(
    ShareGroupAdmin, StreamsGroupAdmin, TransactionAdmin, AclAdmin, CredentialAdmin, ClientQuotaAdmin
):
    """Admin client of a cluster, as Kafka's `Admin`.

    All methods raise `ClientError`: `KafkaError` for an error code of a broker."""

    # topics

    async def list_topics(self) -> list[Topic]:
        """List all topics by name, including internal ones."""
        metadata = await self.cluster.refresh()
        return [metadata.topics[name] for name in sorted(metadata.topics)]

    async def describe_topics(self, names: Iterable[str]) -> list[Topic]:
        """Describe topics and their partitions. Raises `KafkaError` for one that does not exist."""
        wanted = sorted(set(names))
        metadata = await self.cluster.refresh(wanted)
        for name in wanted:
            raise_for(metadata.topics[name].error_code, about=f"topic {name}")
        return [metadata.topics[name] for name in wanted]

    async def create_topic(
        self, name: str, *, partitions: int = -1, replication_factor: int = -1,
        configs: Mapping[str, str] | None = None, assignments: Mapping[int, tuple[int, ...]] | None = None,
        validate_only: bool = False,
    ) -> None:  # fmt: skip
        """Create a topic. -1 means the default of the broker.

        `assignments` maps partitions to replicas and replaces both numbers. `validate_only` creates nothing.
        Raises `KafkaError`, such as TOPIC_ALREADY_EXISTS."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
                for index, brokers in sorted((assignments or {}).items())
            ),
            configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()),
        )
        response: CreateTopicsResponse = await self._ask_controller(
            CreateTopicsRequest(topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only),
            lambda r: r.topics[0].error_code,
        )
        created = response.topics[0]
        raise_for(created.error_code, created.error_message, about=f"topic {name}")

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name. Raises `KafkaError` for the first that cannot be deleted."""
        wanted = tuple(sorted(set(names)))
        if not wanted:
            return

        def versioned(connection: Connection) -> tuple[Struct, int]:
            version = connection.version_of(BY_NAME["DeleteTopics"].key)
            if version >= 6:
                states = tuple(DeleteTopicState(name=name) for name in wanted)
                return DeleteTopicsRequest(topics=states, timeout_ms=self._timeout_ms), version
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=self._timeout_ms), version

        response: DeleteTopicsResponse = await self._ask_controller(
            versioned, lambda r: r.responses[0].error_code
        )
        for row in response.responses:
            if row.name is not None:
                self.cluster.forget_topic(row.name)
        for row in response.responses:
            raise_for(row.error_code, row.error_message, about=f"topic {row.name}")

    async def create_partitions(self, name: str, count: int) -> None:
        """Increase the number of partitions of a topic to `count`. Raises `KafkaError`."""
        request = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=name, count=count, assignments=None),),
            timeout_ms=self._timeout_ms,
        )
        response: CreatePartitionsResponse = await self._ask_controller(
            request, lambda r: r.results[0].error_code
        )
        self.cluster.forget_topic(name)
        raise_for(response.results[0].error_code, response.results[0].error_message, about=f"topic {name}")

    # settings

    async def describe_configs(
        self, resource_type: int, name: str, *, synonyms: bool = False
    ) -> list[ConfigEntry]:
        """Return the settings of a topic, a broker ("" for the default of all brokers) or a group, by name.

        `synonyms` requests all levels that define a value."""
        request = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                ),
            ),
            include_synonyms=synonyms,
        )
        response = await self.cluster.ask(request, node_id=_node_of(resource_type, name))
        found = response.results[0]
        raise_for(found.error_code, found.error_message, about=f"the settings of {name}")
        return sorted(
            ConfigEntry(
                c.name,
                c.value,
                CONFIG_SOURCES.get(c.config_source, "UNKNOWN"),
                c.read_only,
                c.is_sensitive,
                tuple(
                    ConfigSynonym(s.name, s.value, CONFIG_SOURCES.get(s.source, "UNKNOWN"))
                    for s in c.synonyms
                ),
            )
            for c in found.configs
        )

    async def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a resource, named as in `describe_configs`; None resets one to its default.

        Raises `KafkaError`, such as INVALID_CONFIG."""
        rows = tuple(
            AlterableConfig(name=k, config_operation=DELETE if v is None else SET, value=v)
            for k, v in changes.items()
        )
        request = IncrementalAlterConfigsRequest(
            resources=(AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=rows),),
            validate_only=validate_only,
        )
        response = await self.cluster.ask(request, node_id=_node_of(resource_type, name))
        raise_for(
            response.responses[0].error_code,
            response.responses[0].error_message,
            about=f"the settings of {name}",
        )

    async def list_config_resources(self, resource_type: int) -> list[str]:
        """Return the names of the resources of a type that have settings, even of groups that do not exist.

        Returns an empty list if the broker lacks ListConfigResources v1."""
        connection = await self.cluster.any_node()
        key = BY_NAME["ListConfigResources"].key
        if not connection.speaks(key) or connection.version_of(key) < 1:
            return []
        response = await self.cluster.ask(ListConfigResourcesRequest(resource_types=(resource_type,)))
        raise_for(response.error_code, about="the config resources")
        return sorted(r.resource_name for r in response.config_resources if r.resource_type == resource_type)

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.settings.request_timeout_ms

    async def _ask_controller(self, request: Request, code: Callable[[R], int]) -> R:
        """Send a request to any broker, which forwards it in KRaft mode; after NOT_CONTROLLER, to the
        controller."""
        patience = self.cluster.patience()
        node_id: int | None = None
        while True:
            response: R = await self.cluster.ask(request, node_id=node_id)
            if code(response) != Errors.NOT_CONTROLLER:
                return response
            await patience.after(KafkaError(code(response), about="the controller"))
            controller = (await self.cluster.refresh([])).controller_id
            node_id = controller if controller >= 0 else None


def _node_of(resource_type: int, name: str) -> int | None:
    """Return the id of the broker that a request about a resource must go to; None for any broker.

    Only a broker itself describes and changes its settings."""
    return int(name) if resource_type == BROKER and name else None
