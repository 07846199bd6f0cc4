"""How a client connects securely: TLS and SASL settings as one value, from Kafka's and librdkafka's names.

A `client.properties` file for Kafka's tools works unchanged, and so do the names of librdkafka
(`sasl.username`, `ssl.ca.location`). Access tokens of OAUTHBEARER come from a function of the program or as
the settings say (`konvene.client.oauth`). JAAS configurations are read as text; no class is ever loaded. The
value shows no secret in its `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from konvene.client.errors import Misconfigured
from konvene.client.security_names import MECHANISMS, PROTOCOLS, TLS_NAMES, check_names

if TYPE_CHECKING:
    import ssl

    from konvene.security.kerberos.login import KerberosLogin
    from konvene.security.sasl.mechanisms import SaslClient

__all__ = ["PLAINTEXT_SECURITY", "ClientSecurity", "client_security"]

PLAIN, OAUTHBEARER, GSSAPI = "PLAIN", "OAUTHBEARER", "GSSAPI"

TokenProvider = Callable[[], str]
"""Returns an access token; it is called in a thread, and may block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Protocol, TLS settings and credentials of a client."""

    protocol: str = "PLAINTEXT"
    tls: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """TLS settings by Kafka's names."""
    mechanism: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    is_token: bool = False
    """Whether user name and password are a delegation token's id and HMAC."""
    token_provider: TokenProvider | None = field(default=None, repr=False)
    """Returns an access token for OAUTHBEARER."""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """SASL extensions that are sent with an access token."""
    kerberos: KerberosLogin | None = field(default=None, repr=False)
    """Where tickets for GSSAPI come from."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of new connections; None without TLS. Raises `Misconfigured`."""
        if not self.has_tls:
            return None
        from konvene.security.tls.contexts import client_context

        try:
            return client_context(self.tls)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

    @property
    def blocks(self) -> bool:
        """Return True if a step of an exchange may block, as Kerberos asks its KDC."""
        return self.mechanism == GSSAPI

    def sasl_client(self, nonce: str, token: str = "", *, host: str = "") -> SaslClient:
        """Return one exchange of the mechanism; `nonce` is random text, `token` the access token of
        OAUTHBEARER, `host` the broker's host.

        Raises `Misconfigured` if the mechanism needs a library that is missing."""
        if self.mechanism == PLAIN:
            from konvene.security.sasl.plain import PlainClient

            return PlainClient(self.username, self.password)
        if self.mechanism == OAUTHBEARER:
            from konvene.security.sasl.oauthbearer import OAuthBearerClient

            return OAuthBearerClient(token, self.extensions)
        if self.mechanism == GSSAPI:
            from konvene.client.kerberos import gssapi_client

            return gssapi_client(self.kerberos, host)
        from konvene.security.sasl.scram import ScramClient

        return ScramClient(self.mechanism, self.username, self.password, nonce, is_token=self.is_token)


PLAINTEXT_SECURITY: Final = ClientSecurity()


def client_security(given: Mapping[str, str], token_provider: TokenProvider | None = None) -> ClientSecurity:
    """Return the security of client settings; others than `security.`, `ssl.` and `sasl.` are ignored.

    `token_provider` replaces the settings that request a token. Raises `Misconfigured`, whose message
    contains no secret."""
    check_names(given)
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise Misconfigured(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    tls = MappingProxyType(_tls(given) if protocol in ("SSL", "SASL_SSL") else {})
    if not protocol.startswith("SASL_"):
        return ClientSecurity(protocol=protocol, tls=tls)
    mechanism = _mechanism(given)
    if mechanism == OAUTHBEARER:
        extensions: Mapping[str, str] = {}
        if token_provider is None:
            from konvene.client.oauth.settings import token_login

            token_provider, extensions = token_login(given, tls or _tls(given))
        return ClientSecurity(
            protocol=protocol,
            tls=tls,
            mechanism=mechanism,
            token_provider=token_provider,
            extensions=MappingProxyType(extensions),
        )
    if mechanism == GSSAPI:
        from konvene.client.kerberos import kerberos_login

        return ClientSecurity(
            protocol=protocol, tls=tls, mechanism=mechanism, kerberos=kerberos_login(given, MECHANISMS)
        )
    username, password, is_token = _credentials(given, mechanism)
    return ClientSecurity(
        protocol=protocol,
        tls=tls,
        mechanism=mechanism,
        username=username,
        password=password,
        is_token=is_token,
    )


def _mechanism(given: Mapping[str, str]) -> str:
    """Return the SASL mechanism. Raises `Misconfigured`."""
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").strip().upper()
    if mechanism in MECHANISMS:
        return mechanism
    hint = "; MSK with IAM takes OAUTHBEARER and a token_provider" if mechanism == "AWS_MSK_IAM" else ""
    raise Misconfigured(f"sasl.mechanism={mechanism} is not supported; use {', '.join(MECHANISMS)}{hint}")


def _credentials(given: Mapping[str, str], mechanism: str) -> tuple[str, str, bool]:
    """Return user name, password, and whether they are a delegation token."""
    jaas = given.get("sasl.jaas.config")
    if jaas is None:
        username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
        if not username or not password:
            raise Misconfigured(
                f"sasl.mechanism={mechanism} needs sasl.jaas.config, or sasl.username and sasl.password"
            )
        return username, password, False
    if "sasl.username" in given or "sasl.password" in given:
        raise Misconfigured("set either sasl.jaas.config or sasl.username and sasl.password, not both")
    from konvene.security.sasl.jaas import parse_jaas

    try:
        module = parse_jaas(jaas)
    except ValueError as error:
        raise Misconfigured(f"sasl.jaas.config: {error}") from None
    expected = "PlainLoginModule" if mechanism == PLAIN else "ScramLoginModule"
    if module.name != expected:
        raise Misconfigured(
            f"sasl.jaas.config names {module.name}, but sasl.mechanism={mechanism} needs {expected}"
        )
    options = module.options
    if not options.get("username") or not options.get("password"):
        raise Misconfigured(f"sasl.jaas.config: {module.name} needs the options username and password")
    return options["username"], options["password"], options.get("tokenauth", "").lower() == "true"


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the TLS settings under Kafka's names; those of librdkafka are translated."""
    tls: dict[str, Any] = {name: given[name] for name in TLS_NAMES if name in given}
    if given.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        raise Misconfigured(
            "enable.ssl.certificate.verification=false is not supported: anyone could answer as the broker;"
            " name the certificate authority with ssl.ca.location"
        )
    if given.get("ssl.ca.location"):
        tls |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    if given.get("ssl.ca.pem"):
        tls |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": given["ssl.ca.pem"]}
    certificate = given.get("ssl.certificate.pem") or _text(given, "ssl.certificate.location")
    key = given.get("ssl.key.pem") or _text(given, "ssl.key.location")
    if certificate or key:
        if not certificate or not key:
            raise Misconfigured("ssl.certificate.location and ssl.key.location have to be set together")
        tls |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": certificate,
        }
    return tls


def _text(given: Mapping[str, str], name: str) -> str:
    path = given.get(name)
    if not path:
        return ""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not in PEM format"
        raise Misconfigured(f"{name}={path} cannot be read: {reason}") from None
