"""Delegation token APIs: admit a request of an authenticated client and submit it to the catalogue.

As Kafka's `KafkaApis`: a client on a plaintext listener, one without a certificate on an SSL listener, and
one that authenticated with a token get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from konvene.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from konvene.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, Resource, ResourceType
from konvene.security.tokens import DelegationToken, may_describe, may_use_tokens, token_hmac

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.environment import Environment

NOT_ALLOWED = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIMESTAMP = -1
FIRST_VERSION_WITH_OWNER = 3


async def handle_create_delegation_token(
    environment: Environment,
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: CreateDelegationTokenRequest,
    context: RequestContext,
) -> CreateDelegationTokenResponse:
    requester = owner = context.session.principal
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    if not may_use_tokens(context.session):
        return _not_created(NOT_ALLOWED, owner, context)
    if owner != requester and not authorization.permits(
        context, Operation.CREATE_TOKENS, Resource(ResourceType.USER, str(owner))
    ):
        return _not_created(Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, context)
    token_id = str(Uuid(environment.fresh_uuid().bytes))
    response = await catalogue.submit(request, context._replace(fresh_ids=(token_id,)))
    if isinstance(response, Errors):
        return _not_created(response, owner, context)
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def _not_created(
    error: Errors, owner: KafkaPrincipal, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = context.session.principal
    has_requester = context.api_version >= FIRST_VERSION_WITH_OWNER
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if has_requester else "",
        token_requester_principal_name=requester.name if has_requester else "",
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


async def handle_renew_delegation_token(
    catalogue: ClusterCatalogue, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    response = (
        NOT_ALLOWED if not may_use_tokens(context.session) else await catalogue.submit(request, context)
    )
    if isinstance(response, Errors):
        return RenewDelegationTokenResponse(error_code=response, expiry_timestamp_ms=NO_TIMESTAMP)
    assert isinstance(response, RenewDelegationTokenResponse)
    return response


async def handle_expire_delegation_token(
    catalogue: ClusterCatalogue, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    response = (
        NOT_ALLOWED if not may_use_tokens(context.session) else await catalogue.submit(request, context)
    )
    if isinstance(response, Errors):
        return ExpireDelegationTokenResponse(error_code=response, expiry_timestamp_ms=NO_TIMESTAMP)
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response


def handle_describe_delegation_token(
    settings: BrokerSettings,
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
) -> DescribeDelegationTokenResponse:
    if not may_use_tokens(context.session):
        return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
    secret_key = settings.config["delegation.token.secret.key"]
    if secret_key is None:
        return DescribeDelegationTokenResponse(error_code=Errors.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {KafkaPrincipal(o.principal_type, o.principal_name) for o in request.owners}

    def permits_token(token_id: str) -> bool:
        resource = Resource(ResourceType.DELEGATION_TOKEN, token_id)
        return authorization.permits(context, Operation.DESCRIBE, resource)

    def permits_owner(owner: KafkaPrincipal) -> bool:
        resource = Resource(ResourceType.USER, str(owner))
        return authorization.permits(context, Operation.DESCRIBE_TOKENS, resource)

    return DescribeDelegationTokenResponse(
        tokens=tuple(
            _described(token, secret_key, context.api_version)
            for token in catalogue.state.tokens.values()
            if may_describe(token, context.session.principal, owners, permits_token, permits_owner)
        )
    )


def _described(token: DelegationToken, secret_key: str, version: int) -> DescribedDelegationToken:
    has_requester = version >= FIRST_VERSION_WITH_OWNER
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if has_requester else "",
        token_requester_principal_name=token.requester.name if has_requester else "",
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(secret_key, token.id),
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=r.type, principal_name=r.name)
            for r in token.renewers
        ),
    )
