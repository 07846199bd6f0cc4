"""Access control entries and the filters that select them (Kafka's `AclBinding`, `AclBindingFilter`)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from konvene.security.principal import KafkaPrincipal, parse_principal
from konvene.security.resources import Operation, ResourceType

__all__ = ["WILDCARD", "Acl", "AclFilter", "PatternType", "PermissionType"]

WILDCARD: Final = "*"
"""Name of a literal pattern that matches each resource, and host that matches each client."""


class PatternType(IntEnum):
    """How an ACL names resources; UNKNOWN, ANY and MATCH are used in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL allows or denies; UNKNOWN and ANY are used in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """An access control entry: who may, or may not, do what from where on which resources."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """`type:name`; `User:*` stands for all users."""
    host: str
    """An address as Java writes it, a range in CIDR notation, or `*`."""
    operation: Operation
    permission_type: PermissionType

    def __str__(self) -> str:
        """Return the entry as Kafka's `StandardAcl` prints it."""
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, resourceName={self.resource_name},"
            f" patternType={self.pattern_type.name}, principal={self.principal}, host={self.host},"
            f" operation={self.operation.name}, permissionType={self.permission_type.name}]"
        )

    @property
    def kafka_principal(self) -> KafkaPrincipal:
        """Return the principal of the entry. Raises ValueError if it has no type."""
        return parse_principal(self.principal)


class AclFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls: None, ANY and MATCH leave a component open."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission_type: PermissionType = PermissionType.ANY

    @property
    def is_unknown(self) -> bool:
        """Return True if a component has a code that this broker does not know."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission_type)

    def matches(self, acl: Acl) -> bool:
        """Return True if the filter selects the entry."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name, pattern_type = self.resource_name, self.pattern_type
        if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if pattern_type in (PatternType.ANY, acl.pattern_type):
            return name == acl.resource_name
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)
