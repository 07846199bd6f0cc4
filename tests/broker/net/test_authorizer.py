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

from konvene.broker.net.authorizer import (
    CHECKED_BY_DATA_HANDLERS,
    REQUIRED_PERMISSIONS,
    guarded,
    resources,
)
from konvene.broker.net.frames import routes
from konvene.broker.net.router import HANDLERS
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.messages import API_KEYS
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.produce import ProduceRequest, TopicProduceData
from konvene.runtime.coordinator import RequestContext
from konvene.runtime.deferred import HANG_UP
from konvene.security.resources import CLUSTER_NAME, Operation, Resource, ResourceType
from konvene.shard.image import Topic, Topics

KNOWN = Uuid(b"k" * 16)
TOPICS = Topics([Topic("known", KNOWN, 1)])
SERVICES: Any = SimpleNamespace(catalogue=SimpleNamespace(topics=TOPICS), groups=None)

ASKS_NOTHING = {17, 18, 36, 38, 39, 40, 41, 60, 71, 72}
"""Authentication, version negotiation, delegation tokens, client metrics and DescribeCluster."""


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


def test_denied_request_closes_the_connection() -> None:
    """The authorizer receives the context, the operation and the resource."""
    calls: list[tuple[str, Operation, Resource]] = []

    def authorize(call: RequestContext, operation: Operation, resource: Resource) -> bool:
        calls.append((call.client_id, operation, resource))
        return resource.name == "mine"

    handler = guarded(12, lambda request, call: "handled", lambda: TOPICS, authorize)
    call = RequestContext(4, "me")
    assert handler(HeartbeatRequest(group_id="mine"), call) == "handled"
    assert handler(HeartbeatRequest(group_id="theirs"), call) is HANG_UP
    assert calls[1] == ("me", Operation.READ, Resource(ResourceType.GROUP, "theirs"))


@pytest.mark.parametrize("key", sorted(CHECKED_BY_DATA_HANDLERS), ids=lambda key: API_KEYS[key].name)
def test_handlers_of_data_check_permissions_themselves(key: int) -> None:
    """They name the service `authorization`, unless their API needs no permission."""
    module = import_module(f"konvene.broker.handlers.{HANDLERS[key]}")
    handler = getattr(module, "handle_" + API_KEYS[key].module, None) or module.handle
    needs_none = key in ASKS_NOTHING - {60}
    assert needs_none or "authorization" in signature(handler).parameters
    assert guarded(key, handler, lambda: TOPICS, lambda *question: False) is handler


def test_routes_use_the_given_authorizer() -> None:
    """With an authorizer that denies everything."""
    route = routes({12: "heartbeat"}, SERVICES, lambda *question: False)[12]
    assert route.handler(HeartbeatRequest(group_id="g"), RequestContext()) is HANG_UP


def test_denied_heartbeat_closes_the_connection(tmp_path: Path) -> None:
    """Without an error in the broker: there is no response that could be cached."""

    async def main() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
        async with responsive(tmp_path) as broker:
            broker.network.routes.update(routes({12: HANDLERS[12]}, broker.services, lambda *question: False))
            line = await Line.to(broker)
            line.send(12, 4, HeartbeatRequest(group_id="g"))
            assert await asyncio.wait_for(line.reader.read(), 5) == b""
        assert errors == []

    asyncio.run(main())
