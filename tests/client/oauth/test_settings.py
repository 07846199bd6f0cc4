"""Token providers from the settings of Kafka's clients and of librdkafka."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from tests.client.oauth.token_endpoint import token_endpoint
from tests.security.oauth.tokens import token

from konvene.client.errors import AuthenticationFailed, Misconfigured
from konvene.client.oauth.settings import ALLOWED_URLS_VARIABLE
from konvene.client.security import ClientSecurity, client_security
from konvene.security.oauth.urls import ALLOWED_URLS
from konvene.testing.certificates import CertificateAuthority

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
UNSECURED = f"{MODULE} required unsecuredLoginStringClaim"
ENDPOINT = "https://issuer.example/token"
SECRET = "marked-secret"


def oauth(**changed: str) -> dict[str, str]:
    """Return properties; keyword arguments have underscores for dots."""
    base = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return base | {name.replace("_", "."): value for name, value in changed.items()}


def at(url: str, **changed: str) -> dict[str, str]:
    """Return properties with a token endpoint, which is allowed."""
    return oauth(sasl_oauthbearer_token_endpoint_url=url, **changed) | {ALLOWED_URLS: f"https://a, {url}"}


def token_of(security: ClientSecurity) -> str:
    assert security.token_provider is not None
    return security.token_provider()


def claims_of(text: str) -> dict[str, Any]:
    part = text.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


@pytest.mark.parametrize(
    "credentials",
    [
        {
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        },
        {
            "sasl.jaas.config": f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="kafka";',
            "sasl.login.callback.handler.class": f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
        },
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
        },
    ],
    ids=["kafka", "jaas", "librdkafka"],
)
def test_client_credentials(credentials: dict[str, str]) -> None:
    """One request, whose token is used for further connections."""
    expires_s = 4_000_000_000
    text = token({"exp": expires_s})
    with token_endpoint((200, {"access_token": text})) as endpoint:
        security = client_security(at(endpoint.url) | credentials)
        assert [token_of(security), token_of(security)] == [text, text]
    (received,) = endpoint.received
    assert received.body == "grant_type=client_credentials&scope=kafka"
    assert SECRET not in repr(security)


def test_the_endpoint_is_trusted_by_the_trust_store_of_the_client(tmp_path: Path) -> None:
    """Or by `ssl.` options of the JAAS configuration, as in Kafka."""
    authority = CertificateAuthority()
    files = authority.server().write(tmp_path, "endpoint")
    (tmp_path / "ca.pem").write_text(authority.certificate)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    options = " ".join(f'{name}="{value}"' for name, value in trust.items())
    text = token({"exp": 4_000_000_000})
    with token_endpoint((200, {"access_token": text}), certificate=(files[0], files[1])) as endpoint:
        known = f'clientId="me" clientSecret="{SECRET}"'
        by_client = at(endpoint.url, sasl_jaas_config=f"{MODULE} required {known};") | trust
        by_options = at(endpoint.url, sasl_jaas_config=f"{MODULE} required {known} {options};")
        by_neither = at(endpoint.url, sasl_jaas_config=f"{MODULE} required {known};")
        assert token_of(client_security(by_client)) == text
        assert token_of(client_security(by_options)) == text
        with pytest.raises(AuthenticationFailed, match="certificate is not trusted"):
            token_of(client_security(by_neither))


def test_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    security = client_security(at(file.as_uri()))
    with pytest.raises(AuthenticationFailed, match="No such file"):
        token_of(security)
    for subject in ("alice", "bob"):
        file.write_text(token({"sub": subject}) + "\n")
        assert claims_of(token_of(security))["sub"] == subject


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SECRET, "three parts"),
        (token({"exp": None}), "exp is missing"),
        (token({"sub": ""}), "sub is missing or empty"),
        (f"{SECRET}.x.y", "base64url|JSON"),
    ],
)
def test_unusable_tokens_are_not_sent(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(AuthenticationFailed, match=message) as raised:
        token_of(client_security(at((tmp_path / "token").as_uri())))
    assert SECRET not in str(raised.value)


def test_an_unsecured_token_is_made_of_the_jaas_options() -> None:
    options = (
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b"'
        ' unsecuredLoginNumberClaim_level="3" unsecuredLoginLifetimeSeconds="60"'
        ' unsecuredLoginExtension_traceId="123"'
    )
    security = client_security(oauth(sasl_jaas_config=f"{MODULE} required {options};"))
    text = token_of(security)
    claims = claims_of(text)
    assert text.startswith("eyJhbGciOiJub25lIn0.")
    assert text.endswith(".")
    assert claims.pop("exp") - claims.pop("iat") == pytest.approx(60)
    assert claims == {"sub": "alice", "scope": ["a", "b"], "level": 3.0}
    first = security.sasl_client("nonce", "a.b.c").start()
    assert first == b"n,,\x01auth=Bearer a.b.c\x01traceId=123\x01\x01"


def test_extensions_of_a_token_endpoint() -> None:
    """Confluent Cloud identifies a cluster and an identity pool by them."""
    options = f'clientId="me" clientSecret="{SECRET}" extension_logicalCluster="lkc-1"'
    jaas = client_security(at(ENDPOINT, sasl_jaas_config=f"{MODULE} required {options};"))
    assert jaas.extensions == {"logicalCluster": "lkc-1"}
    named = at(
        ENDPOINT, sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret=SECRET,
        sasl_oauthbearer_extensions="logicalCluster=lkc-1,identityPoolId=pool-2",
    )  # fmt: skip
    assert client_security(named).extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


def test_the_allow_list_of_the_environment_replaces_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"sasl_oauthbearer_client_id": "me", "sasl_oauthbearer_client_secret": SECRET}
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, f"https://other, {ENDPOINT}")
    assert client_security(oauth(sasl_oauthbearer_token_endpoint_url=ENDPOINT, **known)).token_provider
    monkeypatch.setenv(ALLOWED_URLS_VARIABLE, "https://other")
    with pytest.raises(Misconfigured, match=f"not allowed; add it to {ALLOWED_URLS_VARIABLE}"):
        client_security(at(ENDPOINT, **known))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (oauth(), "needs a token: set sasl.oauthbearer.token.endpoint.url"),
        (oauth(sasl_oauthbearer_token_endpoint_url=ENDPOINT), "is not allowed; add it to org.apache.kafka"),
        (oauth(sasl_oauthbearer_token_endpoint_url="file:///etc/passwd"), "is not allowed"),
        (at("http://issuer.example/token"), "use https"),
        (at(f"https://me:{SECRET}@issuer.example/token"), "must not contain a user name or a password"),
        (at("ftp://issuer.example"), "use an https or file URL"),
        (at(ENDPOINT), "needs the client's credentials"),
        (at(ENDPOINT, sasl_oauthbearer_client_id="me"), "needs the client's credentials"),
        (oauth(sasl_oauthbearer_method="oidc"), "token.endpoint.url is required"),
        (at(ENDPOINT, sasl_login_callback_handler_class="software.amazon.msk.X"), "pass a token_provider"),
        (at(ENDPOINT, sasl_oauthbearer_jwt_retriever_class=f"{PACKAGE}.JwtBearerJwtRetriever"), "no class"),
        (at(ENDPOINT, sasl_oauthbearer_assertion_file="/x"), "assertion.file is not supported"),
        (at(ENDPOINT, sasl_oauthbearer_token_endpoint_uri="x"), "mean sasl.oauthbearer.token.endpoint.url"),
        (oauth(sasl_jaas_config=f'{UNSECURED}_x="{SECRET}";'), "StringClaim_sub"),
        (oauth(sasl_jaas_config=f'{UNSECURED}_exp="{SECRET}";'), "'exp' claim"),
        (oauth(sasl_jaas_config=f'{PACKAGE}.X required p="{SECRET}";'), "is not supported"),
        (oauth(sasl_oauthbearer_extensions=f"auth={SECRET}"), "extension auth"),
        (at(ENDPOINT, sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret=SECRET,
            sasl_login_refresh_window_factor="2"), "is not a number from 0.5 to 1.0"),
    ],
)  # fmt: skip
def test_unusable_settings(given: dict[str, str], message: str) -> None:
    """They are rejected before anything is sent, without a secret in the message."""
    with pytest.raises(Misconfigured, match=message) as raised:
        client_security(given)
    assert SECRET not in str(raised.value)


def test_a_wrong_trust_store_of_the_endpoint_is_named() -> None:
    given = at(ENDPOINT, sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret=SECRET)
    given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/nowhere"}
    with pytest.raises(Misconfigured, match=r"the token endpoint: .*cannot be read"):
        token_of(client_security(given))
