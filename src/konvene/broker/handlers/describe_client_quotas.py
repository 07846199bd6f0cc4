"""DescribeClientQuotas: there are none; a filter that makes no sense is refused all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT_ID, IP = "user", "client-id", "ip"


class _Odd(Exception):
    """A filter that cannot be meant."""

    def __init__(self, message: str, error: Errors = Errors.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = error


def handle(request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except _Odd as odd:
        return DescribeClientQuotasResponse(error_code=odd.error, error_message=str(odd), entries=None)
    return DescribeClientQuotasResponse()


def _check(components: tuple[ComponentData, ...]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _Odd("Invalid empty entity type.")
        if kind in seen:
            raise _Odd(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise _Odd(f"Unsupported entity type {kind}", Errors.UNSUPPORTED_VERSION)
        _check_match(component)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _Odd(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )


def _check_match(component: ComponentData) -> None:
    given = component.match is not None
    if component.match_type == EXACT:
        if not given:
            raise _Odd("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif component.match_type in (DEFAULT, SPECIFIED):
        if given:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise _Odd(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    else:
        raise _Odd(f"Unknown match type {component.match_type}")
