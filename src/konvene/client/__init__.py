"""A client of any Kafka cluster: connections, metadata, administration, producing, consuming in a group.

    async with Cluster("localhost:9092") as cluster:
        groups = await Admin(cluster).list_groups()

`connection` is one broker, `cluster` all of them; `admin`, `producer`, `member` and `consumer` are built on
`cluster` alone. Everything is asyncio, takes its time from the running loop and keeps no global state; what
goes wrong is a `ClientError`. Used by the CLI, the tests, the simulator and the pipeline.

The names below can be imported from here; each file is loaded when its first name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konvene.client.admin import Admin
    from konvene.client.cluster import Cluster, TopicPartition
    from konvene.client.connection import Connection
    from konvene.client.consumer import Consumer
    from konvene.client.consumer_member import ConsumerMember
    from konvene.client.errors import ClientError, KafkaError, ProducerFenced, TransactionFailed, WokenUp
    from konvene.client.group_state import GroupState, GroupType
    from konvene.client.member import Member, MemberSettings
    from konvene.client.producer import Producer
    from konvene.client.settings import ClientSettings
    from konvene.client.share_consumer import ShareConsumer, ShareRecord
    from konvene.client.share_member import ShareMember
    from konvene.client.share_session import AcknowledgeType, FetchTerms
    from konvene.client.streams_member import StreamsMember
    from konvene.client.streams_settings import StreamsMemberSettings
    from konvene.client.streams_tasks import Assignment, InternalTopic, Role, Subtopology, Task, Topology
    from konvene.client.transaction_offsets import ConsumerGroupMetadata
    from konvene.client.transactional_producer import TransactionalProducer

__all__ = [
    "AcknowledgeType", "Admin", "Assignment", "ClientError", "ClientSettings", "Cluster", "Connection",
    "Consumer", "ConsumerGroupMetadata", "ConsumerMember", "FetchTerms", "GroupState", "GroupType",
    "InternalTopic", "KafkaError", "Member", "MemberSettings", "Producer", "ProducerFenced", "Role",
    "ShareConsumer", "ShareMember", "ShareRecord", "StreamsMember", "StreamsMemberSettings", "Subtopology",
    "Task", "TopicPartition", "Topology", "TransactionFailed", "TransactionalProducer", "WokenUp",
]  # fmt: skip

_FILES = {
    "AcknowledgeType": "share_session", "Admin": "admin", "Assignment": "streams_tasks",
    "ClientError": "errors", "ClientSettings": "settings", "Cluster": "cluster",
    "Connection": "connection", "Consumer": "consumer",
    "ConsumerGroupMetadata": "transaction_offsets", "ConsumerMember": "consumer_member",
    "FetchTerms": "share_session", "GroupState": "group_state", "GroupType": "group_state",
    "InternalTopic": "streams_tasks", "KafkaError": "errors", "Member": "member",
    "MemberSettings": "member", "Producer": "producer", "ProducerFenced": "errors",
    "Role": "streams_tasks", "ShareConsumer": "share_consumer", "ShareMember": "share_member",
    "ShareRecord": "share_consumer", "StreamsMember": "streams_member",
    "StreamsMemberSettings": "streams_settings", "Subtopology": "streams_tasks",
    "Task": "streams_tasks", "TopicPartition": "cluster", "Topology": "streams_tasks",
    "TransactionFailed": "errors", "TransactionalProducer": "transactional_producer",
    "WokenUp": "errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"konvene.client.{_FILES[name]}"), name)
