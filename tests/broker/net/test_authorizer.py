"""Authorization: required permissions of each API, resources of a request, and denied requests."""

from __future__ import annotations

import asyncio
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.net.holds import responsive
from tests.broker.net.raw_connections import Line
from tests.broker.rights import Rights

from konvene.broker.net.authorizer import REQUIRED_PERMISSIONS, resources
from konvene.broker.net.router import HANDLERS
from konvene.codec.compile import decode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import API_KEYS
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.produce import ProduceRequest, TopicProduceData
from konvene.security.resources import CLUSTER_NAME
from konvene.shard.image import Topic, Topics

KNOWN = Uuid(b"k" * 16)
TOPICS = Topics([Topic("known", KNOWN, 1)])
SERVICES: Any = SimpleNamespace(catalogue=SimpleNamespace(topics=TOPICS), groups=None)

NEEDS_NONE = {17, 18, 36, 39, 40, 71, 72}
"""Authentication, version negotiation, client metrics; tokens are renewed by their owners and renewers."""

ASKS_NOTHING = {17, 18, 36, 38, 39, 40, 41, 60, 66, 71, 72}
"""Authentication, versions, delegation tokens, client metrics, ListTransactions and DescribeCluster."""


def required(key: int, request: Struct) -> list[tuple[str, str, str]]:
    return [
        (question.operation.name, resource.type.name, resource.name)
        for question in REQUIRED_PERMISSIONS[key]
        for resource in resources(TOPICS, question, request)
    ]


def test_each_served_api_has_required_permissions() -> None:
    """A row for each served API, and for no other; only a few require nothing."""
    assert set(REQUIRED_PERMISSIONS) == set(HANDLERS)
    assert {key for key, questions in REQUIRED_PERMISSIONS.items() if not questions} == ASKS_NOTHING


@pytest.mark.parametrize("key", sorted(REQUIRED_PERMISSIONS), ids=lambda key: API_KEYS[key].name)
def test_each_path_leads_through_declared_fields(key: int) -> None:
    """Each path to a resource consists of fields that the request declares."""
    for question in REQUIRED_PERMISSIONS[key]:
        declared = API_KEYS[key].request
        for name in filter(None, question.path.split(".")):
            fields = {field.name: field for field in declared.__fields__}
            assert name in fields, f"{declared.__name__} has no {name}"
            inner = fields[name].element
            if isinstance(inner, type) and issubclass(inner, Struct):
                declared = inner


def test_resources_are_found_by_name_and_id() -> None:
    """Topics by name or id, groups in nested fields, and the cluster for requests without names."""
    with_name, with_id = TopicProduceData(name="t"), TopicProduceData(topic_id=KNOWN)
    produce = ProduceRequest(topic_data=(with_name, with_id), transactional_id="tx")
    assert required(0, produce) == [
        ("WRITE", "TOPIC", "t"), ("WRITE", "TOPIC", "known"), ("WRITE", "TRANSACTIONAL_ID", "tx"),
    ]  # fmt: skip
    unknown = FetchTopic(topic_id=Uuid(b"u" * 16), partitions=(FetchPartition(),))
    assert required(1, FetchRequest(topics=(unknown,))) == []
    topics = (OffsetFetchRequestTopics(name="a"), OffsetFetchRequestTopics(topic_id=KNOWN))
    groups = (OffsetFetchRequestGroup(group_id="g", topics=topics), OffsetFetchRequestGroup(group_id="h"))
    assert required(9, OffsetFetchRequest(groups=groups)) == [
        ("DESCRIBE", "GROUP", "g"), ("DESCRIBE", "GROUP", "h"),
        ("DESCRIBE", "TOPIC", "a"), ("DESCRIBE", "TOPIC", "known"),
    ]  # fmt: skip
    assert required(16, ListGroupsRequest()) == [("DESCRIBE", "CLUSTER", CLUSTER_NAME)]


def test_configs_belong_to_their_resources() -> None:
    """Those of a broker belong to the cluster."""
    named = ((2, "t"), (4, "1"), (32, "g"))
    wanted = tuple(DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in named)
    assert required(32, DescribeConfigsRequest(resources=wanted)) == [
        ("DESCRIBE_CONFIGS", "TOPIC", "t"),
        ("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER_NAME),
        ("DESCRIBE_CONFIGS", "GROUP", "g"),
    ]


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: API_KEYS[key].name)
def test_handlers_check_permissions_themselves(key: int) -> None:
    """They name the service `authorization`, unless their API needs no permission."""
    module = import_module(f"konvene.broker.handlers.{HANDLERS[key]}")
    handler = getattr(module, "handle_" + API_KEYS[key].module, None) or module.handle
    assert key in NEEDS_NONE or "authorization" in signature(handler).parameters


def test_denied_heartbeat_is_answered(tmp_path: Path) -> None:
    """With Kafka's error, and the connection stays open."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            broker.authorization.replace(Rights())
            line = await Line.to(broker)
            for _ in range(2):
                line.send(12, 4, HeartbeatRequest(group_id="g"))
                length = int.from_bytes(await asyncio.wait_for(line.reader.readexactly(4), 30), "big")
                frame = await asyncio.wait_for(line.reader.readexactly(length), 30)
                response = decode(HeartbeatResponse, 4, frame, 5)
                assert response.error_code == Errors.GROUP_AUTHORIZATION_FAILED

    asyncio.run(main())
