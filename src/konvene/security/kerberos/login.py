"""Where Kerberos keys and tickets come from: the options of `Krb5LoginModule`, which is never loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from konvene.security.sasl.jaas import LoginModule

__all__ = ["SERVICE_NAME", "KerberosLogin", "broker_login", "client_login"]

SERVICE_NAME: Final = "sasl.kerberos.service.name"
MODULE: Final = "Krb5LoginModule"


class KerberosLogin(NamedTuple):
    """The Kerberos principal of a broker or a client, and the source of its keys."""

    service_name: str
    """Primary of the broker's principal."""
    principal: str | None = None
    """Own principal; None on a client: that of the ticket cache, or the first of the key table."""
    uses_keytab: bool = False
    keytab: str | None = None
    """File with the principal's keys; None: the default one of this machine."""
    ticket_cache: str | None = None
    """File with tickets that `kinit` made; None: the default one of this user."""


def broker_login(module: LoginModule, service_name: str | None) -> KerberosLogin:
    """Return the login of a broker, which needs a key table. Raises ValueError."""
    login = _login(module, service_name)
    if not login.uses_keytab or login.principal is None:
        raise ValueError(f"{MODULE} needs the options useKeyTab=true, keyTab and principal on a broker")
    return login


def client_login(
    module: LoginModule | None, service_name: str | None, principal: str | None, keytab: str | None
) -> KerberosLogin:
    """Return the login of a client. Without a login module, principal and key table are librdkafka's
    settings, and without a key table tickets come from the ticket cache. Raises ValueError."""
    if module is not None:
        return _login(module, service_name)
    return KerberosLogin(_service_name(None, service_name), principal, keytab is not None, keytab)


def _login(module: LoginModule, service_name: str | None) -> KerberosLogin:
    if module.name != MODULE:
        raise ValueError(f"GSSAPI needs {MODULE}, not {module.name}")
    options = module.options
    uses_keytab = _is_true(options, "useKeyTab")
    if not uses_keytab and not _is_true(options, "useTicketCache"):
        raise ValueError(f"{MODULE} needs useKeyTab=true or useTicketCache=true; passwords are not asked for")
    return KerberosLogin(
        _service_name(options.get("serviceName"), service_name),
        options.get("principal"),
        uses_keytab,
        options.get("keyTab"),
        None if uses_keytab else options.get("ticketCache"),
    )


def _service_name(of_module: str | None, of_config: str | None) -> str:
    """Return the service name as Kafka's `KerberosLogin` finds it. Raises ValueError."""
    if of_module and of_config and of_module != of_config:
        raise ValueError(
            "Conflicting serviceName values found in JAAS and Kafka configs: value in JAAS config"
            f" {of_module}, value in Kafka config {of_config}"
        )
    name = of_module or of_config
    if not name:
        raise ValueError(f"No serviceName defined in either JAAS or Kafka config: set {SERVICE_NAME}")
    return name


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
