"""Resources and operations of Kafka's ACLs, with Kafka's codes (`AclOperation`, `ResourceType`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from konvene.errors import Errors

__all__ = [
    "AUTHORIZATION_FAILED",
    "CLUSTER",
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "Operation",
    "Resource",
    "ResourceType",
    "group",
    "operation_bits",
    "topic",
    "transactional_id",
]

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Operation(IntEnum):
    """Operations of Kafka's ACLs; UNKNOWN and ANY are used in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Resource types of Kafka's ACLs; UNKNOWN and ANY are used in filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """A resource to which access is permitted or denied, such as a topic or a group, by its name."""

    type: ResourceType
    name: str

    @property
    def authorization_failed(self) -> Errors:
        """Return the error code for a request that is denied access to this resource."""
        return AUTHORIZATION_FAILED[self.type]


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


def topic(name: str) -> Resource:
    """Return the topic of this name as a resource."""
    return Resource(ResourceType.TOPIC, name)


def group(group_id: str) -> Resource:
    """Return the group of this id as a resource."""
    return Resource(ResourceType.GROUP, group_id)


def transactional_id(name: str) -> Resource:
    """Return the transactional id as a resource."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


AUTHORIZATION_FAILED: Final[Mapping[ResourceType, Errors]] = MappingProxyType(
    {
        ResourceType.TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ResourceType.DELEGATION_TOKEN: Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""The error code of a denied request, by type of resource."""

_O = Operation
SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        ResourceType.CLUSTER: (
            _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
            _O.ALTER, _O.DESCRIBE,
        ),
        ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
        ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
        ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
    }
)  # fmt: skip
"""The operations that exist for each type of resource (Kafka's `AclEntry.supportedOperations`)."""


def operation_bits(*operations: Operation) -> int:
    """Return operations as a bit field, as in `authorizedOperations`: bit n stands for the code n."""
    return sum(1 << operation for operation in operations)
