"""How a client connects securely: TLS and SASL settings as one value, from Kafka's and librdkafka's names.

A `client.properties` file for Kafka's tools works unchanged, and so do the names of librdkafka
(`sasl.username`, `ssl.ca.location`). JAAS configurations are read as text; no class is ever loaded. The value
shows no secret in its `repr`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from konvene.client.errors import Misconfigured

if TYPE_CHECKING:
    import ssl

    from konvene.security.sasl.mechanisms import SaslClient

__all__ = ["PLAINTEXT_SECURITY", "ClientSecurity", "client_security"]

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)

TLS_NAMES: Final = (
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.keystore.type",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
SASL_NAMES: Final = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
)
LIBRDKAFKA_TLS: Final = (
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "enable.ssl.certificate.verification",
)  # fmt: skip
IGNORED: Final = (
    "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "sasl.kerberos.service.name",
)  # fmt: skip
"""Settings of Java's libraries, which change nothing here."""

TokenProvider = Callable[[], str]


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

    def sasl_client(self, nonce: str) -> SaslClient:
        """Return one exchange of the mechanism; `nonce` is random text."""
        if self.mechanism == PLAIN:
            from konvene.security.sasl.plain import PlainClient

            return PlainClient(self.username, self.password)
        if self.mechanism == OAUTHBEARER:
            from konvene.security.sasl.oauthbearer import OAuthBearerClient

            assert self.token_provider is not None
            return OAuthBearerClient(self.token_provider())
        from konvene.security.sasl.scram import ScramClient

        return ScramClient(self.mechanism, self.username, self.password, nonce, is_token=self.is_token)


PLAINTEXT_SECURITY: Final = ClientSecurity()


def client_security(given: Mapping[str, str], token_provider: TokenProvider | None = None) -> ClientSecurity:
    """Return the security of client settings; others than `security.`, `ssl.` and `sasl.` are ignored.

    Raises `Misconfigured`, whose message contains no secret."""
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise Misconfigured(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
    _check_names(given)
    tls = _tls(given) if protocol in ("SSL", "SASL_SSL") else {}
    if not protocol.startswith("SASL_"):
        return ClientSecurity(protocol=protocol, tls=MappingProxyType(tls))
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise Misconfigured(f"sasl.mechanism={mechanism} is not supported; use {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        if token_provider is None:
            raise Misconfigured("sasl.mechanism=OAUTHBEARER needs a token: pass a token_provider")
        return ClientSecurity(
            protocol=protocol, tls=MappingProxyType(tls), mechanism=mechanism, token_provider=token_provider
        )
    username, password, is_token = _credentials(given, mechanism)
    return ClientSecurity(
        protocol=protocol,
        tls=MappingProxyType(tls),
        mechanism=mechanism,
        username=username,
        password=password,
        is_token=is_token,
    )


def _check_names(given: Mapping[str, str]) -> None:
    """Raise `Misconfigured` for an unknown setting of TLS or SASL, with the nearest name."""
    known = (*TLS_NAMES, *SASL_NAMES, *LIBRDKAFKA_TLS, *IGNORED)
    for name in given:
        is_security = name.startswith(("ssl.", "sasl.", "enable.ssl."))
        if not is_security or name in known or name.startswith(("sasl.login.", "sasl.oauthbearer.")):
            continue
        nearest = difflib.get_close_matches(name, known, 1)
        hint = f"; do you mean {nearest[0]}?" if nearest else ""
        raise Misconfigured(f"{name} is not supported{hint}")


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
