"""The permissions that each API requires, as a table.

`REQUIRED_PERMISSIONS` has for each API the operation, the type of resource, and the path to the resources'
names in the request. Codes and rows are Kafka's (`AclOperation`, `ResourceType`, "Operations and Resources
on Protocols"). The handlers check the permissions themselves (`broker.net.authorization`), because each API
has its own way to answer a denied item; a test checks that every handler does, and that every served API
has a row. Fault rules find the groups and topics of a request by this table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.cluster.state import ResourceType as Configured
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.security.resources import CLUSTER, CLUSTER_NAME, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from konvene.codec.schema import Struct
    from konvene.shard.image import Topics


class Permission(NamedTuple):
    """A permission that an API requires.

    `path` names the field of the request that has the resources' names or ids, such as "topics.name"."""

    operation: Operation
    type: ResourceType
    path: str = ""


def resources(topics: Topics, permission: Permission, request: Struct) -> Iterator[Resource]:
    """Yield the resources of a request for which `permission` is required."""
    if permission.type is ResourceType.CLUSTER and not permission.path:
        yield Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        return
    for found in _follow(request, permission.path.split(".")):
        if type(found) is str:
            is_cluster = permission.type is ResourceType.CLUSTER
            yield Resource(permission.type, CLUSTER_NAME if is_cluster else found)
        elif isinstance(found, Uuid):
            topic = topics.by_id.get(found)
            if topic is not None:
                yield Resource(permission.type, topic.name)
        elif found is not None:
            yield config_resource(found.resource_type, found.resource_name)


def _follow(value: object, path: list[str]) -> Iterator[Any]:
    """Yield all values at the end of a path of fields, through all items of arrays, except empty names."""
    if isinstance(value, tuple):
        for item in value:
            yield from _follow(item, path)
    elif not path:
        if value not in ("", ZERO_UUID):
            yield value
    elif value is not None:
        yield from _follow(getattr(value, path[0]), path[1:])


_CONFIGURED: dict[int, ResourceType] = {
    Configured.TOPIC: ResourceType.TOPIC,
    Configured.GROUP: ResourceType.GROUP,
}


def config_resource(config_type: int, name: str) -> Resource:
    """Return the resource whose permissions apply to the settings of a config resource.

    It is the topic or group itself, else the cluster."""
    kind = _CONFIGURED.get(config_type)
    return CLUSTER if kind is None else Resource(kind, name)


def _topics(operation: Operation, *paths: str) -> tuple[Permission, ...]:
    return tuple(Permission(operation, ResourceType.TOPIC, path) for path in paths)


def _group(operation: Operation, path: str) -> Permission:
    return Permission(operation, ResourceType.GROUP, path)


def _cluster(operation: Operation) -> tuple[Permission, ...]:
    return (Permission(operation, ResourceType.CLUSTER),)


def _transaction(operation: Operation) -> Permission:
    return Permission(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")


_O = Operation

REQUIRED_PERMISSIONS: dict[int, tuple[Permission, ...]] = {
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
    10: (_group(_O.DESCRIBE, "key"), _group(_O.DESCRIBE, "coordinator_keys")),  # For keys of groups.
    11: (_group(_O.READ, "group_id"),),
    12: (_group(_O.READ, "group_id"),),
    13: (_group(_O.READ, "group_id"),),
    14: (_group(_O.READ, "group_id"),),
    15: (_group(_O.DESCRIBE, "groups"),),
    16: _cluster(_O.DESCRIBE),  # Or DESCRIBE on each listed group.
    17: (),  # Authentication and
    18: (),  # version negotiation come before authorization.
    19: _topics(_O.CREATE, "topics.name"),  # Or CREATE on the cluster.
    20: _topics(_O.DELETE, "topic_names", "topics.name", "topics.topic_id"),  # Or DELETE on the cluster.
    21: _topics(_O.DELETE, "topics.name"),
    22: (_transaction(_O.WRITE),),  # Without an id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.
    23: _topics(_O.DESCRIBE, "topics.topic"),  # Or CLUSTER_ACTION on the cluster.
    24: (
        Permission(_O.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
        *_topics(_O.WRITE, "v3_and_below_topics.name"),
        Permission(_O.CLUSTER_ACTION, ResourceType.CLUSTER, "transactions.transactional_id"),
    ),
    25: (_transaction(_O.WRITE), _group(_O.READ, "group_id")),
    26: (_transaction(_O.WRITE),),
    27: _cluster(_O.CLUSTER_ACTION),  # Or ALTER on the cluster.
    28: (
        _transaction(_O.WRITE),
        _group(_O.READ, "group_id"),
        *_topics(_O.READ, "topics.name", "topics.topic_id"),
    ),
    29: _cluster(_O.DESCRIBE),
    30: _cluster(_O.ALTER),
    31: _cluster(_O.ALTER),
    32: (Permission(_O.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "resources"),),
    33: (Permission(_O.ALTER_CONFIGS, ResourceType.CLUSTER, "resources"),),
    34: _cluster(_O.ALTER),
    35: _cluster(_O.DESCRIBE),
    36: (),
    37: _topics(_O.ALTER, "topics.name"),
    38: (),  # Delegation tokens are checked by owner.
    39: (),
    40: (),
    41: (),
    42: (_group(_O.DELETE, "groups_names"),),
    43: _cluster(_O.ALTER),
    44: (Permission(_O.ALTER_CONFIGS, ResourceType.CLUSTER, "resources"),),
    45: _cluster(_O.ALTER),
    46: _cluster(_O.DESCRIBE),
    47: (_group(_O.DELETE, "group_id"), *_topics(_O.READ, "topics.name")),
    48: _cluster(_O.DESCRIBE_CONFIGS),
    49: _cluster(_O.ALTER_CONFIGS),
    50: _cluster(_O.DESCRIBE),
    51: _cluster(_O.ALTER),
    55: _cluster(_O.DESCRIBE),
    57: _cluster(_O.ALTER),
    60: (),  # Only the field of authorized operations needs DESCRIBE on the cluster.
    61: _topics(_O.READ, "topics.name"),
    65: (Permission(_O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_ids"),),
    66: (),  # DESCRIBE on each listed transactional id.
    68: (_group(_O.READ, "group_id"), *_topics(_O.DESCRIBE, "subscribed_topic_names")),
    69: (_group(_O.DESCRIBE, "group_ids"),),
    71: (),  # Client metrics need no permission.
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
            "topology.subtopologies.repartition_source_topics.name",
            "topology.subtopologies.state_changelog_topics.name",
        ),
    ),
    89: (_group(_O.DESCRIBE, "group_ids"),),
    90: (_group(_O.DESCRIBE, "groups.group_id"), *_topics(_O.DESCRIBE, "groups.topics.topic_name")),
    91: (_group(_O.READ, "group_id"), *_topics(_O.READ, "topics.topic_name")),
    92: (_group(_O.DELETE, "group_id"), *_topics(_O.READ, "topics.topic_name")),
    93: (_group(_O.READ, "group_id"),),
}
"""Required permissions by API key."""
