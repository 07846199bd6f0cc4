"""Delegation token APIs: respond with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, since no client authenticates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from konvene.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from konvene.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext

NOT_ALLOWED = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIMESTAMP = -1


def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=NOT_ALLOWED,
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User" if context.api_version >= 3 else "",
        token_requester_principal_name="ANONYMOUS" if context.api_version >= 3 else "",
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)


def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)


def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
