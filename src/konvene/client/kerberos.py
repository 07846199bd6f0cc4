"""Kerberos in a client's settings: `Krb5LoginModule`, read as text, or the names of librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from konvene.client.errors import Misconfigured
from konvene.security.kerberos.login import SERVICE_NAME, KerberosLogin, client_login
from konvene.security.sasl.jaas import parse_jaas

if TYPE_CHECKING:
    from konvene.security.sasl.mechanisms import SaslClient

__all__ = ["gssapi_client", "kerberos_login"]

GSSAPI: Final = "GSSAPI"


def kerberos_login(given: Mapping[str, str], mechanisms: Iterable[str]) -> KerberosLogin:
    """Return where the tickets of a client come from.

    Raises `Misconfigured`, which names the other `mechanisms`: GSSAPI is the default, and rarely intended
    where its settings are missing."""
    jaas = given.get("sasl.jaas.config")
    try:
        return client_login(
            None if jaas is None else parse_jaas(jaas),
            given.get(SERVICE_NAME),
            given.get("sasl.kerberos.principal"),
            given.get("sasl.kerberos.keytab"),
        )
    except ValueError as error:
        is_set = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
        name = f"sasl.mechanism={GSSAPI}" if is_set else f"sasl.mechanism is not set, and {GSSAPI} by default"
        others = ", ".join(mechanism for mechanism in mechanisms if mechanism != GSSAPI)
        raise Misconfigured(f"{name}: {error}; other mechanisms are {others}") from None


def gssapi_client(login: KerberosLogin | None, host: str) -> SaslClient:
    """Return one exchange of GSSAPI with the broker on `host`. Raises `Misconfigured` without the library."""
    from konvene.security.kerberos.contexts import initiator
    from konvene.security.sasl.gssapi import GssapiClient

    assert login is not None
    try:
        return GssapiClient(initiator(login, host))
    except ValueError as error:
        raise Misconfigured(str(error)) from None
