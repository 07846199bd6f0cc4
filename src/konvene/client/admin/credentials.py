"""Admin methods for credentials: SCRAM credentials of users (KIP-554) and delegation tokens (KIP-48).

A password is salted here, as in Kafka's `Admin`: it never leaves the client."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from konvene.client.errors import Misconfigured, raise_for
from konvene.client.net.cluster import Cluster
from konvene.errors import Errors
from konvene.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from konvene.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from konvene.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from konvene.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from konvene.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from konvene.security.principal import KafkaPrincipal
from konvene.security.sasl.scram import MECHANISMS

__all__ = ["CredentialAdmin", "DelegationToken", "ScramPassword"]

DEFAULT_ITERATIONS: Final = 4_096
SALT_BYTES: Final = 32
CODES: Final = {mechanism: code for code, mechanism in enumerate(MECHANISMS, 1)}
"""Code of each SCRAM mechanism in the protocol."""


@dataclass(frozen=True, slots=True)
class ScramPassword:
    """A new password for a SCRAM mechanism."""

    password: str = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token; its HMAC is the password of the client that uses it. Times are in ms."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...] = ()
    issue_ms: int
    expiry_ms: int
    max_ms: int


class CredentialAdmin:
    """The methods of `Admin` for credentials."""

    cluster: Cluster

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """Return the iterations by mechanism of each user; of all users if none is given.

        A user without credentials is left out. Raises `KafkaError`."""
        names = None if users is None else tuple(UserName(name=user) for user in sorted(set(users)))
        response: DescribeUserScramCredentialsResponse = await self.cluster.ask(
            DescribeUserScramCredentialsRequest(users=names)
        )
        raise_for(response.error_code, response.error_message, about="the SCRAM credentials")
        by_code = {code: mechanism for mechanism, code in CODES.items()}
        found = {}
        for row in response.results:
            if row.error_code == Errors.RESOURCE_NOT_FOUND:
                continue
            raise_for(row.error_code, row.error_message, about=f"the SCRAM credentials of {row.user}")
            infos = {by_code.get(c.mechanism, "UNKNOWN"): c.iterations for c in row.credential_infos}
            found[row.user] = dict(sorted(infos.items()))
        return dict(sorted(found.items()))

    async def alter_user_scram_credentials(
        self, user: str, changes: Mapping[str, ScramPassword | None]
    ) -> None:
        """Set or delete (None) the credentials of a user, by mechanism: one request for each, as a broker
        accepts only one change of a user in a request.

        Raises `KafkaError`, such as UNACCEPTABLE_CREDENTIAL or RESOURCE_NOT_FOUND."""
        unknown = [mechanism for mechanism in changes if mechanism not in CODES]
        if unknown:
            raise Misconfigured(f"{unknown[0]} is not a SCRAM mechanism; use {', '.join(CODES)}")
        for mechanism, new in changes.items():
            if new is None:
                deletion = ScramCredentialDeletion(name=user, mechanism=CODES[mechanism])
                request = AlterUserScramCredentialsRequest(deletions=(deletion,))
            else:
                upsertion = await _upsertion(user, mechanism, new)
                request = AlterUserScramCredentialsRequest(upsertions=(upsertion,))
            response: AlterUserScramCredentialsResponse = await self.cluster.ask(request)
            for row in response.results:
                raise_for(
                    row.error_code, row.error_message, about=f"the {mechanism} credential of {row.user}"
                )

    async def create_delegation_token(
        self,
        *,
        renewers: Sequence[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a token for `owner`, the caller if None. -1 is the broker's longest lifetime.

        Raises `KafkaError`, such as DELEGATION_TOKEN_AUTH_DISABLED."""
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=tuple(CreatableRenewers(principal_type=r.type, principal_name=r.name) for r in renewers),
            max_lifetime_ms=max_lifetime_ms,
        )
        r: CreateDelegationTokenResponse = await self.cluster.ask(request)
        raise_for(r.error_code, about="the delegation token")
        owned_by = KafkaPrincipal(r.principal_type, r.principal_name)
        requested_by = KafkaPrincipal(r.token_requester_principal_type, r.token_requester_principal_name)
        return DelegationToken(
            token_id=r.token_id, hmac=bytes(r.hmac), owner=owned_by,
            requester=requested_by if requested_by.type else owned_by, renewers=tuple(renewers),
            issue_ms=r.issue_timestamp_ms, expiry_ms=r.expiry_timestamp_ms, max_ms=r.max_timestamp_ms,
        )  # fmt: skip

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Prolong a token by a period, -1 for the broker's default; return when it expires, in ms."""
        response: RenewDelegationTokenResponse = await self.cluster.ask(
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        )
        raise_for(response.error_code, about="the delegation token")
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire after a period, -1 for at once; return when it expires, in ms."""
        response: ExpireDelegationTokenResponse = await self.cluster.ask(
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        )
        raise_for(response.error_code, about="the delegation token")
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Sequence[KafkaPrincipal] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of the owners, all that the caller may see if None, by their id."""
        rows = (
            None
            if owners is None
            else tuple(DescribeDelegationTokenOwner(principal_type=o.type, principal_name=o.name)
                       for o in owners)
        )  # fmt: skip
        response: DescribeDelegationTokenResponse = await self.cluster.ask(
            DescribeDelegationTokenRequest(owners=rows)
        )
        raise_for(response.error_code, about="the delegation tokens")
        found = []
        for t in response.tokens:
            owner = KafkaPrincipal(t.principal_type, t.principal_name)
            requester = KafkaPrincipal(t.token_requester_principal_type, t.token_requester_principal_name)
            found.append(
                DelegationToken(
                    token_id=t.token_id, hmac=bytes(t.hmac), owner=owner,
                    requester=requester if requester.type else owner,
                    renewers=tuple(KafkaPrincipal(r.principal_type, r.principal_name) for r in t.renewers),
                    issue_ms=t.issue_timestamp, expiry_ms=t.expiry_timestamp, max_ms=t.max_timestamp,
                )
            )  # fmt: skip
        return sorted(found, key=lambda token: token.token_id)


async def _upsertion(user: str, mechanism: str, new: ScramPassword) -> ScramCredentialUpsertion:
    """Return the salted password; a thread salts it, which takes some milliseconds."""
    salt = os.urandom(SALT_BYTES)
    salted = await asyncio.to_thread(
        hashlib.pbkdf2_hmac, MECHANISMS[mechanism], new.password.encode(), salt, max(new.iterations, 1)
    )
    return ScramCredentialUpsertion(
        name=user, mechanism=CODES[mechanism], iterations=new.iterations, salt=salt, salted_password=salted
    )
