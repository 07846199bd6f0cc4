"""Applies the permitted and possible changes of AlterConfigs and IncrementalAlterConfigs; the others get
Kafka's errors.

As in Kafka, some resources are rejected without a check of permissions: those that are named twice, or of an
unknown type, or with a setting that is named twice or has no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from konvene.broker.net.authorizer import config_resource
from konvene.cluster.state import ResourceType
from konvene.configs.alter import Operation as Alteration
from konvene.errors import MESSAGES, Errors
from konvene.messages.alter_configs import AlterConfigsResource as WholeResource
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext

_Key = tuple[int, str]
"""Type and name of a resource."""

_Refusal = tuple[Errors, str | None]
"""Error and message for a resource."""

_NO_REFUSALS: Mapping[_Key, _Refusal] = {}


_WITHOUT_MESSAGE = frozenset((ResourceType.BROKER, ResourceType.BROKER_LOGGER))
"""Types of resources whose denial Kafka reports without a message."""


async def alter_permitted(
    authorization: Authorization,
    request: Any,
    context: RequestContext,
    alter: Callable[[Any], Awaitable[Any]],
    result: Callable[[Any, Errors, str | None], Any],
    refused: Callable[[tuple[Any, ...]], Mapping[_Key, _Refusal]] = lambda _: _NO_REFUSALS,
) -> Any:
    """Call `alter` with the resources of the request that the client may alter; return the response to all.

    `request` is an AlterConfigsRequest or an IncrementalAlterConfigsRequest, and `result` returns the result
    of one of its resources for an error and its message. `refused` returns the error and the message of each
    resource that cannot be changed like this. Results are in the order of the request."""
    denied = _denied(authorization, request.resources, context)
    permitted = tuple(r for r in request.resources if _key(r) not in denied)
    denied |= refused(permitted)
    if not denied:
        return await alter(request)
    possible = tuple(r for r in permitted if _key(r) not in denied)
    response = await alter(request.replace(resources=possible))
    results = {(r.resource_type, r.resource_name): r for r in response.responses}
    for resource in request.resources:
        refusal = denied.get(_key(resource))
        if refusal is not None:
            results[_key(resource)] = result(resource, *refusal)
    return response.replace(responses=tuple(results[_key(r)] for r in request.resources))


def _denied(
    authorization: Authorization, resources: tuple[Any, ...], context: RequestContext
) -> dict[_Key, _Refusal]:
    """Return the error of each resource that the client may not alter, and its message."""
    if not authorization.is_enabled:
        return {}
    counts = Counter(map(_key, resources))
    denied: dict[_Key, _Refusal] = {}
    for resource in resources:
        if counts[_key(resource)] > 1 or _is_malformed(resource):
            continue
        needed = config_resource(resource.resource_type, resource.resource_name)
        if not authorization.permits(context, Operation.ALTER_CONFIGS, needed):
            error = needed.authorization_failed
            message = None if resource.resource_type in _WITHOUT_MESSAGE else MESSAGES[error]
            denied[_key(resource)] = error, message
    return denied


def _key(resource: Any) -> _Key:
    return resource.resource_type, resource.resource_name


def _is_malformed(resource: Any) -> bool:
    """Return True if the catalogue rejects the resource whatever its state."""
    known = set(ResourceType)
    if isinstance(resource, WholeResource):
        known.remove(ResourceType.BROKER_LOGGER)
    if resource.resource_type not in known:
        return True
    names = [config.name for config in resource.configs]
    has_null = any(
        config.value is None and getattr(config, "config_operation", Alteration.SET) != Alteration.DELETE
        for config in resource.configs
    )
    return has_null or len(set(names)) < len(names)
