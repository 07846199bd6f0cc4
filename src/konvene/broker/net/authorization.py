"""Answers the handlers' questions of authorization: may the client of this request do this?

Without an authorizer (`authorizer.class.name` is empty) everything is permitted, and each check costs one
attribute and one comparison. With one, `authorizer` is the current value of the ACLs
(`konvene.security.authorizer`), which is replaced as a whole when ACLs change; `epoch` then increases.
Whatever is cached or held for a client depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from konvene.configs import ConfigError
from konvene.security.resources import (
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Operation,
    Resource,
    ResourceType,
    operation_bits,
    topic,
)

if TYPE_CHECKING:
    from konvene.configs import BrokerConfig
    from konvene.runtime.coordinator import RequestContext
    from konvene.security.acls import Acl
    from konvene.security.authorizer import StandardAuthorizer
    from konvene.security.principal import KafkaPrincipal

__all__ = ["NOT_REQUESTED", "Authorization", "Authorizer"]

NOT_REQUESTED = -(1 << 31)
"""Value of `authorized_operations` in a response whose request does not ask for them."""


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only authorizer that the broker has, under the name of Kafka's class."""


class Authorizer(Protocol):
    """The ACLs, super users and defaults at one time, as an immutable value."""

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
        """Return True if `principal` at `host` (an address) may perform the operation; log it for the audit.

        `logs_denied`: whether a denial is written at INFO (else at TRACE, as for filters)."""

    def authorize_by_resource_type(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        api_key: int = -1,
    ) -> bool:
        """Return True if the operation is permitted on at least one resource of the type."""


def standard_authorizer(config: BrokerConfig) -> StandardAuthorizer | None:
    """Return the authorizer of a broker's settings without any ACL; None if `authorizer.class.name` is empty.

    Raises `ConfigError` for another class than Kafka's and for invalid super users."""
    name = config["authorizer.class.name"]
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(f"authorizer.class.name={name} is not supported; use {STANDARD_AUTHORIZER}")
    from konvene.security.authorizer import StandardAuthorizer, parse_super_users

    try:
        super_users = parse_super_users(config["super.users"])
    except ValueError as error:
        raise ConfigError(f"super.users: {error}") from None
    return StandardAuthorizer((), super_users, allows_everyone=config["allow.everyone.if.no.acl.found"])


class Authorization:
    """The authorizer of a broker as its handlers use it: permits everything while `authorizer` is None."""

    __slots__ = ("authorizer", "epoch")

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self.authorizer = authorizer
        self.epoch = 0
        """Increases whenever the authorizer is replaced."""

    def __repr__(self) -> str:
        return f"<authorization: {self.authorizer!r}, epoch {self.epoch}>"

    @property
    def is_enabled(self) -> bool:
        """Return True if there is an authorizer."""
        return self.authorizer is not None

    def replace(self, authorizer: Authorizer | None) -> None:
        """Replace the authorizer, because ACLs or settings have changed."""
        self.authorizer = authorizer
        self.epoch += 1

    def acls_changed(self, created: Iterable[Acl], deleted: Iterable[Acl]) -> None:
        """Apply changes of ACLs in the metadata log."""
        if self.authorizer is None:
            return
        from konvene.security.authorizer import StandardAuthorizer

        if isinstance(self.authorizer, StandardAuthorizer):
            self.replace(self.authorizer.with_acls(created, deleted))

    def permits(
        self,
        context: RequestContext,
        operation: Operation,
        resource: Resource,
        *,
        logs_denied: bool = True,
    ) -> bool:
        """Return True if the client of this request may perform the operation on the resource."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize(
            context.session.principal,
            context.client_host.removeprefix("/"),
            operation,
            resource,
            api_key=context.api_key,
            logs_denied=logs_denied,
        )

    def permits_cluster(
        self, context: RequestContext, operation: Operation, *, logs_denied: bool = True
    ) -> bool:
        """Return True if the client may perform the operation on the cluster."""
        return self.permits(context, operation, CLUSTER, logs_denied=logs_denied)

    def permits_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Return True if the client may perform the operation on at least one resource of the type."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize_by_resource_type(
            context.session.principal,
            context.client_host.removeprefix("/"),
            operation,
            resource_type,
            api_key=context.api_key,
        )

    def permitted_topics(
        self,
        context: RequestContext,
        operation: Operation,
        names: Iterable[str],
        *,
        logs_denied: bool = True,
    ) -> set[str]:
        """Return the names of the topics on which the client may perform the operation."""
        if self.authorizer is None:
            return set(names)
        return {
            name
            for name in dict.fromkeys(names)
            if self.permits(context, operation, topic(name), logs_denied=logs_denied)
        }

    def operations(self, context: RequestContext, resource: Resource) -> int:
        """Return all operations that the client may perform on a resource, as a bit field."""
        supported = SUPPORTED_OPERATIONS[resource.type]
        if self.authorizer is None:
            return operation_bits(*supported)
        return operation_bits(
            *(o for o in supported if self.permits(context, o, resource, logs_denied=False))
        )
