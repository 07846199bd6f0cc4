"""Delegation tokens: only a connection that has proved who it is may have to do with them, and none has."""

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

NO = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NEVER = -1


def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=NO,
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User" if context.api_version >= 3 else "",
        token_requester_principal_name="ANONYMOUS" if context.api_version >= 3 else "",
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
    )


def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=NO, expiry_timestamp_ms=NEVER)


def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=NO, expiry_timestamp_ms=NEVER)


def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=NO)
