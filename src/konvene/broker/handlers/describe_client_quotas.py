"""DescribeClientQuotas: validate the filter and return no entries, since quotas are not supported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT_ID, IP = "user", "client-id", "ip"


class _InvalidFilter(Exception):
    """Rejects an invalid or unsupported filter, with an error code and a message."""

    def __init__(self, message: str, error: Errors = Errors.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = error


def handle(
    authorization: Authorization, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED, entries=None)
    try:
        _check(request.components)
    except _InvalidFilter as invalid:
        return DescribeClientQuotasResponse(
            error_code=invalid.error, error_message=str(invalid), entries=None
        )
    return DescribeClientQuotasResponse()


def _check(components: tuple[ComponentData, ...]) -> None:
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise _InvalidFilter("Invalid empty entity type.")
        if entity_type in seen:
            raise _InvalidFilter(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _InvalidFilter(f"Unsupported entity type {entity_type}", Errors.UNSUPPORTED_VERSION)
        _check_match(component)
        seen.add(entity_type)
    if IP in seen and len(seen) > 1:
        raise _InvalidFilter(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )


def _check_match(component: ComponentData) -> None:
    has_match = component.match is not None
    if component.match_type == EXACT:
        if not has_match:
            raise _InvalidFilter("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif component.match_type in (DEFAULT, SPECIFIED):
        if has_match:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise _InvalidFilter(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    else:
        raise _InvalidFilter(f"Unknown match type {component.match_type}")
