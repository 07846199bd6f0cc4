"""Finds the SCRAM credentials of users and of delegation tokens in the catalogue."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from konvene.security.sasl.scram import ScramCredential, ScramUser, credential_of
from konvene.security.tokens import token_hmac

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings


class ScramUsers:
    """The users that may log in with SCRAM, as the catalogue has them at each login."""

    def __init__(self, settings: BrokerSettings, catalogue: ClusterCatalogue) -> None:
        self._settings = settings
        self._catalogue = catalogue

    def __repr__(self) -> str:
        return f"<SCRAM users of {self._catalogue!r}>"

    def find(self, mechanism: str, name: str, now_ms: int, *, is_token: bool) -> ScramUser | None:
        """Return a user by name, or the owner of a delegation token by the token's id; None if unknown.

        An expired token is unknown."""
        state = self._catalogue.state
        if not is_token:
            credential = state.scram.get((name, mechanism))
            return None if credential is None else ScramUser(credential, name)
        token, secret_key = state.tokens.get(name), self._settings.config["delegation.token.secret.key"]
        if token is None or secret_key is None or token.is_expired(now_ms):
            return None
        return ScramUser(_of_token(mechanism, secret_key, token.id), str(token.owner), token.expires_ms)


@lru_cache(maxsize=1_024)
def _of_token(mechanism: str, secret_key: str, token_id: str) -> ScramCredential:
    """Return the credential of a token, whose password is its HMAC in base64; takes milliseconds once."""
    password = b64encode(token_hmac(secret_key, token_id)).decode()
    return credential_of(mechanism, password, token_id.encode())
