"""Delegation tokens (KIP-48): their HMAC, and which of them a principal may see or renew."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from konvene.records.metadata import DelegationTokenRecord
from konvene.security.principal import ANONYMOUS, KafkaPrincipal, parse_principal
from konvene.security.session import SecurityProtocol, Session

__all__ = ["DelegationToken", "may_describe", "may_use_tokens", "token_hmac"]

NO_TIMESTAMP: Final = -1


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC-SHA-512 of a token id under `delegation.token.secret.key`: the token's password."""
    import hmac  # A plaintext broker starts without it.

    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


class DelegationToken(NamedTuple):
    """A delegation token: its owner, who requested it, who may renew it, and its times in milliseconds."""

    id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    max_ms: int
    """Time after which the token cannot be renewed."""
    expires_ms: int

    @classmethod
    def of(cls, record: DelegationTokenRecord) -> DelegationToken:
        """Return the token of a record of the metadata log."""
        return cls(
            record.token_id,
            parse_principal(record.owner),
            parse_principal(record.requester),
            tuple(map(parse_principal, record.renewers)),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    @property
    def record(self) -> DelegationTokenRecord:
        """Return the token as a record of the metadata log."""
        return DelegationTokenRecord(
            owner=str(self.owner),
            requester=str(self.requester),
            renewers=tuple(map(str, self.renewers)),
            issue_timestamp=self.issued_ms,
            max_timestamp=self.max_ms,
            expiration_timestamp=self.expires_ms,
            token_id=self.id,
        )

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token can be neither used nor renewed any more."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def is_owner_or_renewer(self, principal: KafkaPrincipal) -> bool:
        """Return True if `principal` may renew and describe the token without any ACL."""
        return principal == self.owner or principal in self.renewers


def may_use_tokens(session: Session) -> bool:
    """Return True if token requests are allowed: the client authenticated, and not with a token itself."""
    if session.is_token_authenticated or session.security_protocol is SecurityProtocol.PLAINTEXT:
        return False
    return not (session.security_protocol is SecurityProtocol.SSL and session.principal == ANONYMOUS)


def may_describe(
    token: DelegationToken,
    principal: KafkaPrincipal,
    owners: Collection[KafkaPrincipal] | None,
    permits_token: Callable[[str], bool],
    permits_owner: Callable[[KafkaPrincipal], bool],
) -> bool:
    """Return True if a DescribeDelegationToken of `principal` lists the token.

    `owners`: the requested owners, None for all. `permits_token`: DESCRIBE on the token id; `permits_owner`:
    DESCRIBE_TOKENS on the owner. They apply to tokens that the principal neither owns nor may renew."""
    if owners is not None and not any(map(token.is_owner_or_renewer, owners)):
        return False
    return token.is_owner_or_renewer(principal) or permits_token(token.id) or permits_owner(token.owner)
