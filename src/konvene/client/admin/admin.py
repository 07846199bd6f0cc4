"""What an administrator asks of a cluster: topics and settings; what of groups and offsets is in `groups`, of
share groups in `share_groups`, of streams groups in `streams_groups`, of transactions in `transactions`.

Every method sends the requests of one question and gives values in Kafka's words. Error codes become
`KafkaError`s that name what they are about; where a method takes many topics, the first that fails is raised
after all were asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
from konvene.client.net.cluster import Topic
from konvene.client.net.connection import Connection
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.list_config_resources import ListConfigResourcesRequest

__all__ = [
    "BROKER", "GROUP_CONFIG", "TOPIC", "Admin", "CommittedOffset", "ConfigEntry", "ConfigSynonym",
    "GroupDescription", "GroupListing", "HangingTransaction", "InFlightRecords", "MemberDescription",
    "ProducerState", "Removal", "ShareGroupDescription", "ShareMemberDescription", "SharePartitionOffset",
    "StreamsGroupDescription", "StreamsMemberDescription", "TransactionDescription", "TransactionListing",
]  # fmt: skip

TOPIC, BROKER, GROUP_CONFIG = 2, 4, 32
"""Kinds of things that have settings (config resource types)."""

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""What IncrementalAlterConfigs does to a setting."""

CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG", 6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


class ConfigSynonym(NamedTuple):
    """One of the places that a setting's value may come from."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting and where its value comes from (`source` is Kafka's name)."""

    name: str
    value: str | None
    source: str
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    """Every place that gives it a value, the one that wins first; only where they were asked for."""

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


class Admin(ShareGroupAdmin, StreamsGroupAdmin, TransactionAdmin):
    """Administration of the cluster behind `cluster`."""

    # topics

    async def list_topics(self) -> list[Topic]:
        """All topics, internal ones too, by name."""
        metadata = await self.cluster.refresh()
        return [metadata.topics[name] for name in sorted(metadata.topics)]

    async def describe_topics(self, names: Iterable[str]) -> list[Topic]:
        """Topics with their partitions. Raises `KafkaError` for one that does not exist."""
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
        """Create a topic; -1 leaves a number to the broker.

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
        answer: CreateTopicsResponse = await self._ask_controller(
            CreateTopicsRequest(topics=(topic,), timeout_ms=self._timeout_ms, validate_only=validate_only),
            lambda a: a.topics[0].error_code,
        )
        made = answer.topics[0]
        raise_for(made.error_code, made.error_message, about=f"topic {name}")

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name. Raises `KafkaError` for the first that could not be."""
        wanted = tuple(sorted(set(names)))

        def speak(connection: Connection) -> tuple[Struct, int]:
            version = connection.version_of(BY_NAME["DeleteTopics"].key)
            if version >= 6:
                states = tuple(DeleteTopicState(name=name) for name in wanted)
                return DeleteTopicsRequest(topics=states, timeout_ms=self._timeout_ms), version
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=self._timeout_ms), version

        answer = await self._ask_controller(speak, lambda a: a.responses[0].error_code)
        for row in answer.responses:
            if row.name is not None:
                self.cluster.forget_topic(row.name)
        for row in answer.responses:
            raise_for(row.error_code, row.error_message, about=f"topic {row.name}")

    async def create_partitions(self, name: str, count: int) -> None:
        """Raise a topic's number of partitions to `count`."""
        request = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=name, count=count, assignments=None),),
            timeout_ms=self._timeout_ms,
        )
        answer = await self._ask_controller(request, lambda a: a.results[0].error_code)
        self.cluster.forget_topic(name)
        raise_for(answer.results[0].error_code, answer.results[0].error_message, about=f"topic {name}")

    # settings

    async def describe_configs(
        self, resource_type: int, name: str, *, synonyms: bool = False
    ) -> list[ConfigEntry]:
        """All settings of a topic, a broker ("" for what all brokers share) or a group, by name."""
        request = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                ),
            ),
            include_synonyms=synonyms,
        )
        answer = await self.cluster.ask(request, node_id=_node_of(resource_type, name))
        found = answer.results[0]
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
        """Set settings; a value of None takes a setting back to its default."""
        rows = tuple(
            AlterableConfig(name=k, config_operation=DELETE if v is None else SET, value=v)
            for k, v in changes.items()
        )
        request = IncrementalAlterConfigsRequest(
            resources=(AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=rows),),
            validate_only=validate_only,
        )
        answer = await self.cluster.ask(request, node_id=_node_of(resource_type, name))
        raise_for(
            answer.responses[0].error_code,
            answer.responses[0].error_message,
            about=f"the settings of {name}",
        )

    async def list_config_resources(self, resource_type: int) -> list[str]:
        """Names of the things of a kind that have settings, also where nothing else is left of them.

        Empty where no broker can say it (ListConfigResources v1)."""
        connection = await self.cluster.any_node()
        key = BY_NAME["ListConfigResources"].key
        if not connection.speaks(key) or connection.version_of(key) < 1:
            return []
        answer = await self.cluster.ask(ListConfigResourcesRequest(resource_types=(resource_type,)))
        raise_for(answer.error_code, about="the things that have settings")
        return sorted(r.resource_name for r in answer.config_resources if r.resource_type == resource_type)

    # how

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.settings.request_timeout_ms

    async def _ask_controller(self, request: Any, code: Callable[[Any], int]) -> Any:
        """Any broker hands such a request on in KRaft; older clusters say NOT_CONTROLLER, so ask it then."""
        patience = self.cluster.patience()
        node_id: int | None = None
        while True:
            answer = await self.cluster.ask(request, node_id=node_id)
            if code(answer) != Errors.NOT_CONTROLLER:
                return answer
            await patience.after(KafkaError(code(answer), about="the controller"))
            controller = (await self.cluster.refresh([])).controller_id
            node_id = controller if controller >= 0 else None


def _node_of(resource_type: int, name: str) -> int | None:
    """Only a broker itself knows (and checks) its own settings; any other may speak of the rest."""
    return int(name) if resource_type == BROKER and name else None
