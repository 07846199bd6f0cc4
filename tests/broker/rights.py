"""Authorizers of tests: a set of rights, or everything except one resource."""

from __future__ import annotations

from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType

Right = tuple[Operation, Resource]

IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""The operations that imply another one."""


class Rights:
    """An authorizer with a set of rights, which one user has at one host, or all users by default.

    `checked` has the checks that were made, in order."""

    def __init__(self, *rights: Right, principal: KafkaPrincipal | None = None, host: str = "") -> None:
        self.rights = set(rights)
        self.principal, self.host = principal, host
        self.checked: list[Right] = []

    def __repr__(self) -> str:
        return f"<rights: {sorted(self.rights)}>"

    def authorize(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        api_key: int = -1,
        logs_denied: bool = True,
    ) -> bool:
        self.checked.append((operation, resource))
        if self.principal not in (None, principal) or (self.host and self.host != host):
            return False
        return any((each, resource) in self.rights for each in (operation, *IMPLIED_BY.get(operation, ())))

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        return any(each is operation and resource.type is resource_type for each, resource in self.rights)


class AllExcept:
    """An authorizer that permits everything except on the resources of a type, or on those of a name."""

    def __init__(self, denied: ResourceType | str) -> None:
        self.denied = denied
        self.names: list[str] = []

    def authorize(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        api_key: int = -1,
        logs_denied: bool = True,
    ) -> bool:
        self.names.append(resource.name)
        return self.denied not in (resource.type, resource.name)

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        return resource_type is not self.denied
