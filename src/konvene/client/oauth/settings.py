"""Token providers of OAUTHBEARER from Kafka's and librdkafka's settings.

The token comes from a token endpoint (client credentials), from a file, or is made here without a signature
(`unsecuredLoginStringClaim_sub`). Class names of Kafka's own handlers are recognized, and no class is loaded:
for others a program passes a function that returns a token.

URLs have to be allowed (CVE-2025-27817), by the setting that is a system property in Kafka. An operator may
set the list from outside with an environment variable, which then replaces the setting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote

from konvene.client.errors import AuthenticationFailed, Misconfigured
from konvene.client.oauth.renewal import FetchedToken, RenewalRule, RenewedToken
from konvene.client.oauth.unsecured import PREFIX as UNSECURED
from konvene.client.oauth.unsecured import unsecured_token
from konvene.security.oauth.urls import ALLOWED_URLS, check_url

if TYPE_CHECKING:
    import ssl

__all__ = ["ALLOWED_URLS_VARIABLE", "NAMES", "TokenLogin", "token_login"]

ALLOWED_URLS_VARIABLE: Final = "KONVENE_OAUTHBEARER_ALLOWED_URLS"
URL: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER: Final = "sasl.login.callback.handler.class"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
ENDPOINT_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
)
UNSECURED_HANDLER: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
CLASSES: Final = {
    HANDLER: (*ENDPOINT_HANDLERS, UNSECURED_HANDLER),
    RETRIEVER: tuple(
        f"{_PACKAGE}.{name}" for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever",
                                          "FileJwtRetriever")
    ),
    VALIDATOR: tuple(f"{_PACKAGE}.{name}" for name in ("DefaultJwtValidator", "ClientJwtValidator")),
}  # fmt: skip
"""Classes of Kafka whose behaviour this client has, by the setting that names them."""

NAMES: Final = (
    URL, HANDLER, RETRIEVER, VALIDATOR, ALLOWED_URLS,
    "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.header.urlencode",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms",
    "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds",
    "sasl.oauthbearer.method", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.extensions",
)  # fmt: skip
"""Settings that choose and request tokens; the last five are librdkafka's."""

MAX_TOKEN_BYTES: Final = 64 * 1024


class TokenLogin(NamedTuple):
    """A token provider, and the SASL extensions that a client sends with each token."""

    provider: Callable[[], str]
    extensions: Mapping[str, str]


def token_login(given: Mapping[str, str], tls: Mapping[str, Any]) -> TokenLogin:
    """Return how a client with these settings gets its tokens; `tls` has its TLS settings by Kafka's names.

    Raises `Misconfigured`, whose message contains no secret."""
    for name, known in CLASSES.items():
        if given.get(name) and given[name].strip() not in known:
            raise Misconfigured(
                f"{name}={given[name]} is not supported, as no class is loaded; a program can pass a"
                " token_provider instead"
            )
    options = _jaas_options(given)
    extensions = _extensions(given, options)
    handler = given.get(HANDLER, "").strip()
    if given.get(URL) and handler != UNSECURED_HANDLER:
        return TokenLogin(_from_url(given, options, tls), extensions)
    if handler in ENDPOINT_HANDLERS or given.get("sasl.oauthbearer.method", "").lower() == "oidc":
        raise Misconfigured(f"{URL} is required")
    if not any(name.startswith(UNSECURED) for name in options):
        raise Misconfigured(f"sasl.mechanism=OAUTHBEARER needs a token: set {URL}, or pass a token_provider")

    def make() -> str:
        return unsecured_token(options, time.time())

    try:
        make()
    except ValueError as error:
        raise Misconfigured(f"sasl.jaas.config: {error}") from None
    return TokenLogin(make, extensions)


def _jaas_options(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of an OAuthBearerLoginModule; none without a JAAS configuration."""
    text = given.get("sasl.jaas.config")
    if not text:
        return {}
    from konvene.security.sasl.jaas import parse_jaas

    try:
        module = parse_jaas(text)
    except ValueError as error:
        raise Misconfigured(f"sasl.jaas.config: {error}") from None
    if module.name != "OAuthBearerLoginModule":
        raise Misconfigured(
            f"sasl.jaas.config names {module.name}, but sasl.mechanism=OAUTHBEARER needs"
            " OAuthBearerLoginModule"
        )
    return module.options


def _extensions(given: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions in the JAAS configuration or under librdkafka's name."""
    found: dict[str, str] = {}
    for prefix in ("extension_", f"{UNSECURED}Extension_"):
        found |= {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
    for pair in filter(None, given.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        found[name.strip()] = value.strip()
    for name, value in found.items():
        is_name = name.isascii() and name.isalpha() and name != "auth"
        if not is_name or not all(c in "\t\r\n" or " " <= c <= "~" for c in value) or not value:
            raise Misconfigured(f"the SASL extension {name} has a name or a value that is not permitted")
    return found


def _from_url(
    given: Mapping[str, str], options: Mapping[str, str], tls: Mapping[str, Any]
) -> Callable[[], str]:
    url = given[URL].strip()
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Misconfigured(f"{URL} must not contain a user name or a password")
    parts = _check_url(url, given.get(ALLOWED_URLS, ""), os.environ.get(ALLOWED_URLS_VARIABLE))
    claims = (
        given.get("sasl.oauthbearer.sub.claim.name", "sub"),
        given.get("sasl.oauthbearer.scope.claim.name", "scope"),
    )
    if parts.scheme == "file":
        path = unquote(parts.path)
        return lambda: _checked(_file(path), url, *claims).text
    return RenewedToken(_request(given, options, tls, url, claims), _renewal_rule(given))


def _check_url(url: str, setting: str, variable: str | None) -> SplitResult:
    """Return the parts of an allowed URL; the environment variable replaces the setting."""
    allowed = setting if variable is None else variable
    try:
        return check_url(URL, url, [each.strip() for each in allowed.split(",")])
    except ValueError as error:
        text = str(error)
        if variable is not None:
            text = text.replace(ALLOWED_URLS, ALLOWED_URLS_VARIABLE)
        elif text.endswith(ALLOWED_URLS):
            text += f" or to the environment variable {ALLOWED_URLS_VARIABLE}"
        raise Misconfigured(text) from None


def _request(
    given: Mapping[str, str], options: Mapping[str, str], tls: Mapping[str, Any], url: str,
    claims: tuple[str, str],
) -> Callable[[], FetchedToken]:  # fmt: skip
    """Return a function that requests a token with the client's credentials."""
    from konvene.client.oauth.endpoint import TokenRequest, request_token

    if given.get("sasl.oauthbearer.method", "oidc").lower() != "oidc":
        raise Misconfigured("sasl.oauthbearer.method has to be oidc")
    if given.get("sasl.oauthbearer.grant.type", "client_credentials") != "client_credentials":
        raise Misconfigured("sasl.oauthbearer.grant.type has to be client_credentials")
    client_id = _first(given, options, "client.id", "clientId")
    secret = _first(given, options, "client.secret", "clientSecret")
    if not client_id or not secret:
        raise Misconfigured(
            f"{URL} needs the client's credentials: set sasl.oauthbearer.client.credentials.client.id and"
            " sasl.oauthbearer.client.credentials.client.secret"
        )
    timeouts = [_number(given, f"sasl.login.{kind}.timeout.ms", 0) for kind in ("connect", "read")]
    request = TokenRequest(
        url, client_id, secret, given.get("sasl.oauthbearer.scope", options.get("scope", "")).strip(),
        given.get("sasl.oauthbearer.header.urlencode", "false").strip().lower() == "true",
    )  # fmt: skip
    request = request._replace(
        timeout_ms=max(timeouts) or request.timeout_ms,
        retry_backoff_ms=_number(given, "sasl.login.retry.backoff.ms", request.retry_backoff_ms),
        retry_backoff_max_ms=_number(given, "sasl.login.retry.backoff.max.ms", request.retry_backoff_max_ms),
    )
    own_tls = {name: value for name, value in options.items() if name.startswith("ssl.")}
    return lambda: _checked(request_token(request, lambda: _context(own_tls, tls)), url, *claims)


def _first(given: Mapping[str, str], options: Mapping[str, str], name: str, option: str) -> str:
    """Return a credential under Kafka's name, librdkafka's, or in the JAAS configuration."""
    names = (f"sasl.oauthbearer.client.credentials.{name}", f"sasl.oauthbearer.{name}")
    return next((given[n].strip() for n in names if given.get(n)), options.get(option, "").strip())


def _context(own: Mapping[str, str], tls: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS context of the token endpoint.

    `own` are `ssl.` options of the JAAS configuration, as in Kafka. Without them the endpoint is trusted by
    the client's trust store and by the system's certificate authorities; the client's key is for brokers
    only."""
    from konvene.security.tls.contexts import client_context

    shared = {n: v for n, v in tls.items() if not n.startswith(("ssl.key", "ssl.endpoint"))}
    try:
        context = client_context(own or shared)
    except ValueError as error:
        raise Misconfigured(f"the token endpoint: {error}") from None
    context.check_hostname = True
    if not own:
        context.load_default_certs()
    return context


def _checked(token: str, url: str, subject_claim: str, scope_claim: str) -> FetchedToken:
    """Return a token with its times. Raises `AuthenticationFailed` if a broker could not accept it.

    The signature is not verified: that is what brokers do."""
    from konvene.security.oauth.jwt import InvalidToken, unverified_claims

    try:
        claims = unverified_claims(token)
        expires, issued = claims.get("exp"), claims.get("iat")
        subject, scope = claims.get(subject_claim), claims.get(scope_claim, "")
        if isinstance(expires, bool) or not isinstance(expires, (int, float)):
            raise InvalidToken("the claim exp is missing")
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidToken(f"the claim {subject_claim} is missing or empty")
        if not isinstance(scope, (str, list)):
            raise InvalidToken(f"the claim {scope_claim} is not text")
    except InvalidToken as error:
        raise AuthenticationFailed(f"the access token of {url} is not usable: {error}") from None
    issued_ms = int(issued * 1000) if isinstance(issued, (int, float)) else None
    return FetchedToken(token, issued_ms, int(expires * 1000))


def _file(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(MAX_TOKEN_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a token"
        raise AuthenticationFailed(f"the access token {path} cannot be read: {reason}") from None
    return text.strip()


def _renewal_rule(given: Mapping[str, str]) -> RenewalRule:
    prefix = "sasl.login.refresh."
    rule = RenewalRule()
    return RenewalRule(
        _part(given, f"{prefix}window.factor", rule.window_factor, 0.5, 1.0),
        _part(given, f"{prefix}window.jitter", rule.window_jitter, 0.0, 0.25),
        _number(given, f"{prefix}min.period.seconds", rule.min_period_s),
        _number(given, f"{prefix}buffer.seconds", rule.buffer_s),
    )


def _part(given: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(given.get(name, default))
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise Misconfigured(f"{name}={given[name]} is not a number from {least} to {most}")
    return value


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isascii() or not text.isdigit():
        raise Misconfigured(f"{name}={text} is not a number")
    return int(text)
