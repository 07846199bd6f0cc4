"""The shard of `__cluster_metadata`: tables of the functions that handle requests and replay records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.cluster import (
    acls,
    client_quotas,
    configs,
    delegation_tokens,
    features,
    partitions,
    producer_ids,
    registration,
    scram,
    topics,
)
from konvene.cluster.state import CatalogueState, ResourceType, TopicState
from konvene.codec.schema import Struct
from konvene.messages.allocate_producer_ids import AllocateProducerIdsRequest
from konvene.messages.alter_configs import AlterConfigsRequest
from konvene.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from konvene.messages.broker_registration import BrokerRegistrationRequest
from konvene.messages.create_acls import CreateAclsRequest
from konvene.messages.create_delegation_token import CreateDelegationTokenRequest
from konvene.messages.create_partitions import CreatePartitionsRequest
from konvene.messages.create_topics import CreateTopicsRequest
from konvene.messages.delete_acls import DeleteAclsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest
from konvene.messages.expire_delegation_token import ExpireDelegationTokenRequest
from konvene.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest
from konvene.messages.update_features import UpdateFeaturesRequest
from konvene.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from konvene.shard.contract import Context, Outcome


class Catalogue:
    """The shard of the log `__cluster_metadata`: decides requests about topics, configs, features, brokers.

    Only `replay` changes its `state`.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = CatalogueState()

    def __repr__(self) -> str:
        return f"<catalogue: {len(self.state.topics)} topics>"

    def handle(self, request: object, context: Context) -> Outcome:
        """Return the reply to a request, and its records and effects. Raises `ClusterError`."""
        return HANDLERS[type(request)](self.state, request, context)

    def expire(self, key: object, context: Context) -> Outcome:
        """Remove expired delegation tokens: the only timer."""
        if key != delegation_tokens.EXPIRE_TOKENS:
            raise LookupError(f"the catalogue has no timer {key!r}")
        return delegation_tokens.remove_expired(self.state, context)

    def replay(self, record: object) -> None:
        """Apply a metadata record to the state; types that have no meaning for a single node are ignored."""
        apply = REPLAYS.get(type(record))
        if apply is not None:
            apply(self.state, record)

    def cacheable(self, request: Struct, context: Context) -> None:
        """Return None: no request to the catalogue is repeated often enough to cache."""

    def is_current(self, value: object) -> bool:
        return False

    def load(self, context: Context) -> Outcome:
        """Return records that set each feature without a level in the log to its latest level.

        Kafka leaves a new feature at 0 until an operator raises it, as other nodes may still run the old
        version. A single node needs no such wait. A level that was lowered to 0 is in the log, and stays."""
        missing = {name: level for name, level in features.LATEST.items() if name not in self.state.features}
        return Outcome(
            records=tuple(
                FeatureLevelRecord(name=name, feature_level=level) for name, level in missing.items()
            ),
            timers=delegation_tokens.sweep_timer(context),
        )


HANDLERS: dict[type[object], Callable[[CatalogueState, Any, Context], Outcome]] = {
    CreateTopicsRequest: topics.create,
    DeleteTopicsRequest: topics.delete,
    CreatePartitionsRequest: partitions.grow,
    IncrementalAlterConfigsRequest: configs.alter_incrementally,
    AlterConfigsRequest: configs.alter,
    AllocateProducerIdsRequest: producer_ids.allocate,
    UpdateFeaturesRequest: features.update,
    BrokerRegistrationRequest: registration.register,
    AlterUserScramCredentialsRequest: scram.alter,
    CreateAclsRequest: acls.create,
    DeleteAclsRequest: acls.delete,
    CreateDelegationTokenRequest: delegation_tokens.create,
    RenewDelegationTokenRequest: delegation_tokens.renew,
    ExpireDelegationTokenRequest: delegation_tokens.expire,
    client_quotas.QuotaAlterations: client_quotas.alter,
}


def _topic(state: CatalogueState, record: TopicRecord) -> None:
    state.put_topic(TopicState(record.name, record.topic_id, since=state.starts))


def _partition(state: CatalogueState, record: PartitionRecord) -> None:
    topic = state.names.get(record.topic_id)
    if topic is not None:
        known = state.topics[topic]
        state.put_topic(known._replace(partitions=max(known.partitions, record.partition_id + 1)))


def _remove_topic(state: CatalogueState, record: RemoveTopicRecord) -> None:
    name = state.names.get(record.topic_id)
    if name is not None:
        state.drop_topic(name)


def _config(state: CatalogueState, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    configured = state.configs.setdefault(resource, {})
    if record.value is None:
        configured.pop(record.name, None)
        if not configured:
            del state.configs[resource]
    else:
        configured[record.name] = record.value


def _feature(state: CatalogueState, record: FeatureLevelRecord) -> None:
    state.features[record.name] = record.feature_level


def _producer_ids(state: CatalogueState, record: ProducerIdsRecord) -> None:
    state.next_producer_id = record.next_producer_id


def _register_broker(state: CatalogueState, record: RegisterBrokerRecord) -> None:
    state.put_broker(record)


REPLAYS: dict[type, Callable[[CatalogueState, Any], None]] = {
    TopicRecord: _topic,
    PartitionRecord: _partition,
    RemoveTopicRecord: _remove_topic,
    ConfigRecord: _config,
    FeatureLevelRecord: _feature,
    ProducerIdsRecord: _producer_ids,
    RegisterBrokerRecord: _register_broker,
    UserScramCredentialRecord: scram.replay,
    RemoveUserScramCredentialRecord: scram.replay_removal,
    AccessControlEntryRecord: acls.replay,
    RemoveAccessControlEntryRecord: acls.replay_removal,
    ClientQuotaRecord: client_quotas.replay,
    DelegationTokenRecord: delegation_tokens.replay,
    RemoveDelegationTokenRecord: delegation_tokens.replay_removal,
}

__all__ = ["Catalogue", "ResourceType"]
