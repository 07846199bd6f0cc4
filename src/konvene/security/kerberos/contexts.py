"""Security contexts of Kerberos, of the library `gssapi` (`konvene[gssapi]`), which is imported late.

The realm and its KDCs come from the file that the environment variable KRB5_CONFIG names, or
/etc/krb5.conf. An acceptor only needs its key table; an initiator asks the KDC, which blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from konvene.security.kerberos.login import KerberosLogin
from konvene.security.sasl.gssapi import SecurityContext, SecurityContextError

__all__ = ["acceptor", "default_realm", "initiator"]

MISSING: Final = "GSSAPI needs the library gssapi, which is compiled with the headers of Kerberos:"
INSTALL: Final = "pip install 'konvene[gssapi]'"

ERROR_TABLE: Final = -1_765_328_384
"""Code of the first Kerberos error in MIT's library; others follow by the numbers of RFC 4120, 7.5.9."""
RETRIABLE: Final = tuple((ERROR_TABLE + number) & 0xFFFF_FFFF for number in (21, 33, 34))
"""A client or ticket that is not valid yet, and a replayed one."""


def acceptor(login: KerberosLogin) -> Callable[[], SecurityContext]:
    """Return a function that begins a context of a broker. Raises ValueError if the library is missing, or
    the key table has no key of the principal."""
    gssapi = _library()
    store = {} if login.keytab is None else {"keytab": login.keytab}
    try:
        name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        mechanisms = [gssapi.MechType.kerberos]
        credentials = gssapi.Credentials(name=name, usage="accept", store=store, mechs=mechanisms)
    except gssapi.exceptions.GSSError as error:
        where = login.keytab or "the default key table"
        raise ValueError(f"no key of {login.principal} in {where}: {_reason(error)}") from None
    return lambda: _Context(gssapi, gssapi.SecurityContext(creds=credentials, usage="accept"))


def initiator(login: KerberosLogin, host: str) -> SecurityContext:
    """Return a context of a client of the broker on `host`; its first step asks the KDC for a ticket.

    Raises ValueError if the library is missing."""
    return _Initiator(_library(), login, host)


def default_realm() -> str:
    """Return the default realm of this machine, or an empty string. Raises ValueError without the library."""
    gssapi = _library()
    try:
        name = gssapi.Name("tmp", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).partition("@")[2]


def _library() -> Any:
    try:
        import gssapi
    except ImportError:
        raise ValueError(f"{MISSING} {INSTALL}") from None
    return gssapi


def _reason(error: Any) -> str:
    """Return the text of Kerberos, which is more exact than the general one of GSS-API."""
    texts = [
        *error.get_all_statuses(error.min_code, is_maj=False),
        *error.get_all_statuses(error.maj_code, True),
    ]
    return str(next((text for text in texts if text and "unknown error" not in text.lower()), error))


class _Context:
    """A security context of the library, with its errors translated."""

    def __init__(self, gssapi: Any, context: Any) -> None:
        self._gssapi = gssapi
        self._context = context
        self.is_established = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'established' if self.is_established else 'open'}>"

    def step(self, token: bytes) -> bytes:
        answer = self._run(lambda: self._context.step(token or None))
        # The library has kept an error of the step if there is an error token, which Kafka does not send.
        self.is_established = self._run(lambda: self._context.complete)
        return answer or b""

    @property
    def initiator_name(self) -> str:
        return str(self._run(lambda: self._context.initiator_name))

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._run(lambda: self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._run(lambda: self._context.unwrap(message).message))

    def _run(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._gssapi.exceptions.GSSError as error:
            raise SecurityContextError(
                _reason(error), is_retriable=error.min_code & 0xFFFF_FFFF in RETRIABLE
            ) from None


class _Initiator(_Context):
    """A client's context, whose credentials are acquired at its first step, as that may block."""

    def __init__(self, gssapi: Any, login: KerberosLogin, host: str) -> None:
        super().__init__(gssapi, None)
        self._login = login
        self._host = host

    def step(self, token: bytes) -> bytes:
        if self._context is None:
            login = self._login
            service = f"{login.service_name}@{self._host}"
            try:
                self._context = self._run(lambda: self._begin(service))
                return super().step(token)
            except SecurityContextError as error:
                owner = "" if login.principal is None else f" of {login.principal}"
                source = "the ticket cache"
                if login.uses_keytab:
                    source = login.keytab or "the default key table"
                raise SecurityContextError(
                    f"cannot get a Kerberos ticket{owner} for {service} with {source}: {error}"
                ) from None
        return super().step(token)

    def _begin(self, service: str) -> Any:
        gssapi, login = self._gssapi, self._login
        name = None
        if login.principal is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=name, usage="initiate", store=_store(login))
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=flags.mutual_authentication | flags.integrity,
            usage="initiate",
        )


def _store(login: KerberosLogin) -> dict[str, str]:
    """Return where the library finds the client's keys and tickets.

    Tickets of a key table are kept in memory, one cache for each key table and principal, so that each
    connection does not ask for new ones; the library renews them when they have expired."""
    if not login.uses_keytab:
        return {} if login.ticket_cache is None else {"ccache": login.ticket_cache}
    identity = sha256(f"{login.keytab}\0{login.principal}".encode()).hexdigest()[:16]
    store = {"ccache": f"MEMORY:konvene-{identity}"}
    if login.keytab is not None:
        store["client_keytab"] = login.keytab
    return store
