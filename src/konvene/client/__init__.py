"""Asyncio client for any Kafka cluster: administration, producers, consumers, share consumers, streams
members.

    async with Cluster("localhost:9092") as cluster:
        groups = await Admin(cluster).list_groups()

A `Connection` is a connection to one broker; a `Cluster` manages the connections to all of them. All clients
are built on a `Cluster`. Time comes from the running event loop, and there is no global state. Errors are
`ClientError`s.

The names below can be imported from this package; a module is loaded when its first name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.group_state import GroupState, GroupType
    from konvene.client.consumer.classic_member import Member, MemberSettings
    from konvene.client.consumer.consumer import Consumer
    from konvene.client.consumer.modern_member import ConsumerMember
    from konvene.client.errors import ClientError, KafkaError, ProducerFenced, TransactionFailed, WokenUp
    from konvene.client.net.cluster import Cluster, TopicPartition
    from konvene.client.net.connection import Connection
    from konvene.client.net.settings import ClientSettings, client_settings
    from konvene.client.producer.producer import Producer
    from konvene.client.producer.transaction_offsets import ConsumerGroupMetadata
    from konvene.client.producer.transactional import TransactionalProducer
    from konvene.client.share.consumer import ShareConsumer, ShareRecord
    from konvene.client.share.member import ShareMember
    from konvene.client.share.session import AcknowledgeType, FetchTerms
    from konvene.client.streams.member import StreamsMember
    from konvene.client.streams.settings import StreamsMemberSettings
    from konvene.client.streams.tasks import Assignment, InternalTopic, Role, Subtopology, Task, Topology

__all__ = [
    "AcknowledgeType", "Admin", "Assignment", "ClientError", "ClientSettings", "Cluster", "Connection",
    "Consumer", "ConsumerGroupMetadata", "ConsumerMember", "FetchTerms", "GroupState", "GroupType",
    "InternalTopic", "KafkaError", "Member", "MemberSettings", "Producer", "ProducerFenced", "Role",
    "ShareConsumer", "ShareMember", "ShareRecord", "StreamsMember", "StreamsMemberSettings", "Subtopology",
    "Task", "TopicPartition", "Topology", "TransactionFailed", "TransactionalProducer", "WokenUp",
    "client_settings",
]  # fmt: skip

_FILES = {
    "AcknowledgeType": "share.session", "Admin": "admin.admin", "Assignment": "streams.tasks",
    "ClientError": "errors", "ClientSettings": "net.settings", "Cluster": "net.cluster",
    "Connection": "net.connection", "Consumer": "consumer.consumer",
    "ConsumerGroupMetadata": "producer.transaction_offsets", "ConsumerMember": "consumer.modern_member",
    "FetchTerms": "share.session", "GroupState": "admin.group_state", "GroupType": "admin.group_state",
    "InternalTopic": "streams.tasks", "KafkaError": "errors", "Member": "consumer.classic_member",
    "MemberSettings": "consumer.classic_member", "Producer": "producer.producer", "ProducerFenced": "errors",
    "Role": "streams.tasks", "ShareConsumer": "share.consumer", "ShareMember": "share.member",
    "ShareRecord": "share.consumer", "StreamsMember": "streams.member",
    "StreamsMemberSettings": "streams.settings", "Subtopology": "streams.tasks",
    "Task": "streams.tasks", "TopicPartition": "net.cluster", "Topology": "streams.tasks",
    "TransactionFailed": "errors", "TransactionalProducer": "producer.transactional",
    "WokenUp": "errors", "client_settings": "net.settings",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"konvene.client.{_FILES[name]}"), name)
