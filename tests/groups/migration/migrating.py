"""Classic groups as logged: of plain consumers, and of Kafka Streams threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from konvene.broker.groups.assignors import load_assignors
from konvene.codec.compile import encode
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    AssignmentInfo,
    SubscriptionInfo,
    write_assignment_info,
    write_subscription_info,
)
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record
from konvene.shard.contract import Context
from konvene.shard.image import Topic, Topics

Task = tuple[str, int]
Partition = tuple[str, int]


def context(topics: Mapping[str, int], **settings: str) -> Context:
    """Return a context with these topics and partition counts, and settings with underscores for dots."""
    overrides = [(name.replace("_", "."), value) for name, value in settings.items()]
    config, _ = BrokerConfig.load(overrides=overrides)
    rows = [
        Topic(name, Uuid(number.to_bytes(16, "big")), count)
        for number, (name, count) in enumerate(topics.items(), 1)
    ]
    return Context(
        1_000_000,
        config,
        topics=Topics(rows, len(rows)),
        group_configs=GroupConfigs(config),
        assignors=load_assignors(config["group.consumer.assignors"]),
    )


def subscription(
    topics: Iterable[str], user_data: bytes | None = None, owned: Iterable[Partition] = ()
) -> bytes:
    rows = tuple(TopicPartition(topic=topic, partitions=(p,)) for topic, p in owned)
    info = ConsumerProtocolSubscription(
        topics=tuple(sorted(topics)), user_data=user_data, owned_partitions=rows
    )
    return b"\0\1" + encode(info, 1)


def assignment(partitions: Iterable[Partition], user_data: bytes | None = None) -> bytes:
    by_topic: dict[str, tuple[int, ...]] = {}
    for topic, partition in sorted(partitions):
        by_topic[topic] = (*by_topic.get(topic, ()), partition)
    return write_assignment(by_topic.items(), b"\0\1", user_data)


def member(
    name: str, subscription_data: bytes, assignment_data: bytes, instance_id: str | None = None
) -> MemberMetadata:
    return MemberMetadata(
        member_id=name,
        group_instance_id=instance_id,
        client_id=f"client-{name}",
        client_host="/10.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=45_000,
        subscription=subscription_data,
        assignment=assignment_data,
    )


def record(
    *members: MemberMetadata, group: str = "g", protocol: str = "range", protocol_type: str = "consumer",
    generation: int = 7,
) -> Record:  # fmt: skip
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol if members else None,
        leader=members[0].member_id if members else None,
        current_state_timestamp=1_000,
        members=members,
    )
    return Record(GroupMetadataKey(group=group), value)


def classic(*members: MemberMetadata, **more: Any) -> ClassicGroup:
    """Return the group that a coordinator has after it has replayed the group's record."""
    logged = record(*members, **more)
    assert isinstance(logged.value, GroupMetadataValue)
    return classic_log.from_record(logged.key.group, logged.value)


def consumer(
    name: str, partitions: Iterable[int], *, instance_id: str | None = None, topic: str = "orders"
) -> MemberMetadata:
    """Return a plain consumer of a topic."""
    return member(name, subscription([topic]), assignment((topic, p) for p in partitions), instance_id)


def thread(
    name: str, active: Iterable[Task], standby: Iterable[Task] = (), *, version: int = 11,
    topics: Iterable[str] = ("orders",), reads: str = "orders", **fields: Any,
) -> MemberMetadata:  # fmt: skip
    """Return a Kafka Streams thread whose tasks all consume one topic; each is a process of its own."""
    active = sorted(active)
    info = SubscriptionInfo(
        version,
        11,
        str(uuid5(NAMESPACE_DNS, name)),
        offset_sums=dict.fromkeys(active, LATEST_OFFSET),
        **fields,
    )
    user_data = AssignmentInfo(
        version,
        version,
        tuple((task, (reads, task[1])) for task in active),
        {task: ((reads, task[1]),) for task in standby},
    )
    assigned = assignment(((reads, p) for _, p in active), write_assignment_info(user_data))
    return member(name, subscription(topics, write_subscription_info(info)), assigned)
