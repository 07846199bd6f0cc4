"""Who may do what: the questions that each API asks, and the one place where they are answered.

`QUESTIONS` is the table: for each API the operation, the kind of resource, and where in the request the names
of the resources stand. A request is asked about once, where it is handed to its handler (`frames.Route`), so
no handler has to remember to ask, and a test holds that every API that is served has its row. Numbers and
rows are Kafka's (`AclOperation`, `ResourceType`, "Operations and Resources on Protocols").

There is no authorizer yet: `allows` says yes. One that says no would have to tell what is the matter in each
API's own words. A handler that has them takes `asked` and asks itself (ConsumerGroupHeartbeat,
ConsumerGroupDescribe); a request of the others that is not allowed closes its connection, which every client
understands and which fails closed.

Still ugly: a session's partitions (Fetch) are asked about when the session learns of them, not at each
fetch after that; Metadata that would create a topic asks no more than Metadata that would not; and
FindCoordinator takes each key for a group's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.cluster.state import ResourceType as Configured
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.runtime.deferred import HANG_UP

if TYPE_CHECKING:
    from konvene.runtime.coordinator import Call
    from konvene.shard.image import Topics

CLUSTER_NAME = "kafka-cluster"


class Operation(IntEnum):
    """What somebody wants to do."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """To what."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One thing that access is given to."""

    type: ResourceType
    name: str

    @property
    def authorization_failed(self) -> Errors:
        """What somebody is told who may not."""
        return AUTHORIZATION_FAILED[self.type]


AUTHORIZATION_FAILED = {
    ResourceType.TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Question(NamedTuple):
    """What an API asks. `path` leads to the resources' names (or ids) in the request, level by level."""

    operation: Operation
    type: ResourceType
    path: str = ""


def allows(call: Call, operation: Operation, resource: Resource) -> bool:
    """Whether the caller may. An authorizer's answer, once there is one."""
    return True


Handler = Callable[..., Any]
Allows = Callable[["Call", Operation, Resource], bool]


def guarded(api_key: int, handler: Handler, topics: Callable[[], Topics], asked: Allows = allows) -> Handler:
    """The handler behind its questions; itself, where the answer is known before."""
    if asked is allows or not QUESTIONS[api_key]:
        return handler
    if "asked" in signature(handler).parameters:
        return partial(handler, asked=asked)

    def ask_first(request: Any, call: Call) -> Any:
        for _ in denied(topics(), api_key, request, call, asked):
            return HANG_UP
        return handler(request, call)

    return ask_first


def denied(topics: Topics, api_key: int, request: Any, call: Call, asked: Allows) -> Iterator[Resource]:
    """What is not allowed to the caller, of all that the API asks about a request."""
    for question in QUESTIONS[api_key]:
        for resource in resources(topics, question, request):
            if not asked(call, question.operation, resource):
                yield resource


def resources(topics: Topics, question: Question, request: Any) -> Iterator[Resource]:
    """The resources of which a question is about a request."""
    if question.type is ResourceType.CLUSTER and not question.path:
        yield Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        return
    for found in _follow(request, question.path.split(".")):
        if type(found) is str:
            is_cluster = question.type is ResourceType.CLUSTER
            yield Resource(question.type, CLUSTER_NAME if is_cluster else found)
        elif isinstance(found, Uuid):
            topic = topics.by_id.get(found)
            if topic is not None:
                yield Resource(question.type, topic.name)
        elif found is not None:
            yield _configured(found)


def _follow(value: Any, path: list[str]) -> Iterator[Any]:
    """All values at the end of a path; the fields of a struct, each item of an array."""
    if isinstance(value, tuple):
        for item in value:
            yield from _follow(item, path)
    elif not path:
        if value not in ("", ZERO_UUID):
            yield value
    elif value is not None:
        yield from _follow(getattr(value, path[0]), path[1:])


_CONFIGURED = {Configured.TOPIC: ResourceType.TOPIC, Configured.GROUP: ResourceType.GROUP}


def _configured(named: Any) -> Resource:
    """A resource that has settings says itself what it is; all but topics and groups are the cluster's."""
    kind = _CONFIGURED.get(named.resource_type)
    return (
        Resource(ResourceType.CLUSTER, CLUSTER_NAME) if kind is None else Resource(kind, named.resource_name)
    )


def _topics(operation: Operation, *paths: str) -> tuple[Question, ...]:
    return tuple(Question(operation, ResourceType.TOPIC, path) for path in paths)


def _group(operation: Operation, path: str) -> Question:
    return Question(operation, ResourceType.GROUP, path)


def _cluster(operation: Operation) -> tuple[Question, ...]:
    return (Question(operation, ResourceType.CLUSTER),)


def _transaction(operation: Operation) -> Question:
    return Question(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")


_O = Operation

QUESTIONS: dict[int, tuple[Question, ...]] = {
    0: (*_topics(_O.WRITE, "topic_data.name", "topic_data.topic_id"), _transaction(_O.WRITE)),
    1: _topics(_O.READ, "topics.topic", "topics.topic_id"),
    2: _topics(_O.DESCRIBE, "topics.name"),
    3: _topics(_O.DESCRIBE, "topics.name", "topics.topic_id"),
    8: (_group(_O.READ, "group_id"), *_topics(_O.READ, "topics.name", "topics.topic_id")),
    9: (
        _group(_O.DESCRIBE, "group_id"),
        _group(_O.DESCRIBE, "groups.group_id"),
        *_topics(_O.DESCRIBE, "topics.name", "groups.topics.name", "groups.topics.topic_id"),
    ),
    10: (_group(_O.DESCRIBE, "key"), _group(_O.DESCRIBE, "coordinator_keys")),
    11: (_group(_O.READ, "group_id"),),
    12: (_group(_O.READ, "group_id"),),
    13: (_group(_O.READ, "group_id"),),
    14: (_group(_O.READ, "group_id"),),
    15: (_group(_O.DESCRIBE, "groups"),),
    16: _cluster(_O.DESCRIBE),
    17: (),  # Whoever has not said who he is may say so,
    18: (),  # and ask how to speak.
    19: _cluster(_O.CREATE),
    20: _topics(_O.DELETE, "topic_names", "topics.name", "topics.topic_id"),
    21: _topics(_O.DELETE, "topics.name"),
    22: (Question(_O.IDEMPOTENT_WRITE, ResourceType.CLUSTER), _transaction(_O.WRITE)),
    23: _topics(_O.DESCRIBE, "topics.topic"),
    24: (
        Question(_O.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
        *_topics(_O.WRITE, "v3_and_below_topics.name"),
        Question(_O.CLUSTER_ACTION, ResourceType.CLUSTER, "transactions.transactional_id"),
    ),
    25: (_transaction(_O.WRITE), _group(_O.READ, "group_id")),
    26: (_transaction(_O.WRITE),),
    27: _cluster(_O.CLUSTER_ACTION),
    28: (
        _transaction(_O.WRITE),
        _group(_O.READ, "group_id"),
        *_topics(_O.READ, "topics.name", "topics.topic_id"),
    ),
    29: _cluster(_O.DESCRIBE),
    30: _cluster(_O.ALTER),
    31: _cluster(_O.ALTER),
    32: (Question(_O.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "resources"),),
    33: (Question(_O.ALTER_CONFIGS, ResourceType.CLUSTER, "resources"),),
    34: _cluster(_O.ALTER),
    35: _cluster(_O.DESCRIBE),
    36: (),
    37: _topics(_O.ALTER, "topics.name"),
    38: (),  # Tokens are their owner's affair.
    39: (),
    40: (),
    41: (),
    42: (_group(_O.DELETE, "groups_names"),),
    43: _cluster(_O.ALTER),
    44: (Question(_O.ALTER_CONFIGS, ResourceType.CLUSTER, "resources"),),
    45: _cluster(_O.ALTER),
    46: _cluster(_O.DESCRIBE),
    47: (_group(_O.DELETE, "group_id"), *_topics(_O.READ, "topics.name")),
    48: _cluster(_O.DESCRIBE_CONFIGS),
    50: _cluster(_O.DESCRIBE),
    55: _cluster(_O.DESCRIBE),
    57: _cluster(_O.ALTER),
    60: _cluster(_O.DESCRIBE),
    61: _topics(_O.READ, "topics.name"),
    65: (Question(_O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_ids"),),
    66: _cluster(_O.DESCRIBE),
    68: (_group(_O.READ, "group_id"), *_topics(_O.DESCRIBE, "subscribed_topic_names")),
    69: (_group(_O.DESCRIBE, "group_ids"),),
    71: (),  # Whoever has metrics to give may ask who wants them.
    72: (),
    74: _cluster(_O.DESCRIBE_CONFIGS),
    75: _topics(_O.DESCRIBE, "topics.name"),
    76: (_group(_O.READ, "group_id"), *_topics(_O.DESCRIBE, "subscribed_topic_names")),
    77: (_group(_O.DESCRIBE, "group_ids"),),
    78: (_group(_O.READ, "group_id"), *_topics(_O.READ, "topics.topic_id")),
    79: (_group(_O.READ, "group_id"), *_topics(_O.READ, "topics.topic_id")),
    83: _cluster(_O.CLUSTER_ACTION),
    84: _cluster(_O.CLUSTER_ACTION),
    85: _cluster(_O.CLUSTER_ACTION),
    86: _cluster(_O.CLUSTER_ACTION),
    87: _cluster(_O.CLUSTER_ACTION),
    88: (
        _group(_O.READ, "group_id"),
        *_topics(
            _O.DESCRIBE,
            "topology.subtopologies.source_topics",
            "topology.subtopologies.repartition_sink_topics",
        ),
    ),
    89: (_group(_O.DESCRIBE, "group_ids"),),
    90: (_group(_O.DESCRIBE, "groups.group_id"),),
    91: (_group(_O.READ, "group_id"), *_topics(_O.READ, "topics.topic_name")),
    92: (_group(_O.DELETE, "group_id"), *_topics(_O.READ, "topics.topic_name")),
    93: (_group(_O.READ, "group_id"),),
}
"""API key: its questions."""
