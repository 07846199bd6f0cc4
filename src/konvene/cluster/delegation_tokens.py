"""Delegation tokens in the metadata log: create, renew, expire (Kafka's `DelegationTokenControlManager`).

A token is stored without its HMAC, which is computed from its id and `delegation.token.secret.key`. A timer
removes expired tokens every `delegation.token.expiry.check.interval.ms`. Without a secret key tokens are
disabled.
"""

from __future__ import annotations

from konvene.cluster.state import CatalogueState
from konvene.errors import Errors
from konvene.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from konvene.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from konvene.records.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from konvene.security.principal import USER, KafkaPrincipal
from konvene.security.tokens import DelegationToken, token_hmac
from konvene.shard.contract import Arm, Context, Outcome, Reply, TimerKey

__all__ = [
    "EXPIRE_TOKENS",
    "create",
    "expire",
    "remove_expired",
    "renew",
    "replay",
    "replay_removal",
    "sweep_timer",
]

EXPIRE_TOKENS: TimerKey = ("expire-delegation-tokens",)
"""Key of the timer that removes expired tokens."""

SECRET_KEY = "delegation.token.secret.key"
FIRST_VERSION_WITH_OWNER = 3


def create(state: CatalogueState, request: CreateDelegationTokenRequest, context: Context) -> Outcome:
    """Create a token for the requesting principal, or for the owner that the request names.

    `context.fresh_ids` has the id of the new token."""
    requester = owner = context.principal
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if context.api_version >= FIRST_VERSION_WITH_OWNER:
        response = response.replace(
            token_requester_principal_type=requester.type, token_requester_principal_name=requester.name
        )
    secret_key = context.config[SECRET_KEY]
    if secret_key is None:
        return _reply(context, response.replace(error_code=Errors.DELEGATION_TOKEN_AUTH_DISABLED))
    if any(renewer.principal_type != USER for renewer in request.renewers):
        return _reply(context, response.replace(error_code=Errors.INVALID_PRINCIPAL_TYPE))
    lifetime_ms = context.config["delegation.token.max.lifetime.ms"]
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = context.now_ms + lifetime_ms
    token = DelegationToken(
        context.fresh_ids[0],
        owner,
        requester,
        tuple(KafkaPrincipal(r.principal_type, r.principal_name) for r in request.renewers),
        issued_ms=context.now_ms,
        max_ms=max_ms,
        expires_ms=min(max_ms, context.now_ms + context.config["delegation.token.expiry.time.ms"]),
    )
    response = response.replace(
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(secret_key, token.id),
    )
    return _reply(context, response, token.record)


def renew(state: CatalogueState, request: RenewDelegationTokenRequest, context: Context) -> Outcome:
    """Postpone the expiry of a token, up to its maximum lifetime."""
    token, error = _usable(state, request.hmac, context)
    if token is None:
        return _reply(context, RenewDelegationTokenResponse(error_code=error))
    period_ms = context.config["delegation.token.expiry.time.ms"]
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    token = token._replace(expires_ms=min(token.max_ms, context.now_ms + period_ms))
    response = RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)
    return _reply(context, response, token.record)


def expire(state: CatalogueState, request: ExpireDelegationTokenRequest, context: Context) -> Outcome:
    """Change the expiry of a token; a negative period removes it at once."""
    token, error = _usable(state, request.hmac, context)
    if token is None:
        return _reply(context, ExpireDelegationTokenResponse(error_code=error))
    period_ms = request.expiry_time_period_ms
    if period_ms < 0:
        response = ExpireDelegationTokenResponse(expiry_timestamp_ms=period_ms)
        return _reply(context, response, RemoveDelegationTokenRecord(token_id=token.id))
    token = token._replace(expires_ms=min(token.max_ms, context.now_ms + period_ms))
    response = ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)
    return _reply(context, response, token.record)


def _usable(state: CatalogueState, hmac: bytes, context: Context) -> tuple[DelegationToken | None, Errors]:
    """Return the token with this HMAC if the principal may renew it; else None and the error code."""
    secret_key = context.config[SECRET_KEY]
    if secret_key is None:
        return None, Errors.DELEGATION_TOKEN_AUTH_DISABLED
    from hmac import compare_digest  # A plaintext broker starts without it.

    for token in state.tokens.values():
        if compare_digest(token_hmac(secret_key, token.id), hmac):
            break
    else:
        return None, Errors.DELEGATION_TOKEN_NOT_FOUND
    if token.is_expired(context.now_ms):
        return None, Errors.DELEGATION_TOKEN_EXPIRED
    if not token.is_owner_or_renewer(context.principal):
        return None, Errors.DELEGATION_TOKEN_OWNER_MISMATCH
    return token, Errors.NONE


def remove_expired(state: CatalogueState, context: Context) -> Outcome:
    """Remove the tokens that have expired, and arm the timer again."""
    expired = [token for token in state.tokens.values() if token.is_expired(context.now_ms)]
    records = tuple(RemoveDelegationTokenRecord(token_id=token.id) for token in expired)
    return Outcome(records=records, timers=sweep_timer(context))


def sweep_timer(context: Context) -> tuple[Arm, ...]:
    """Return the timer that removes expired tokens; nothing if tokens are disabled."""
    if context.config[SECRET_KEY] is None:
        return ()
    return (Arm(EXPIRE_TOKENS, context.config["delegation.token.expiry.check.interval.ms"]),)


def replay(state: CatalogueState, record: DelegationTokenRecord) -> None:
    """Add a token, or replace it after its expiry changed."""
    state.tokens[record.token_id] = DelegationToken.of(record)


def replay_removal(state: CatalogueState, record: RemoveDelegationTokenRecord) -> None:
    """Remove a token."""
    state.tokens.pop(record.token_id, None)


def _reply(context: Context, response: object, *records: object) -> Outcome:
    return Outcome((Reply(context.waiter, response),), tuple(records))
