"""Settings of known services, as their documentation has them, with a broker that is configured alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.broker.net.secured import LISTENERS, PLAIN_MODULE, SCRAM_MODULE, Secured
from tests.client.oauth.token_endpoint import token_endpoint
from tests.security.oauth.tokens import key_set, token

from konvene.client import Admin, Cluster, client_settings
from konvene.client.admin.credentials import ScramPassword
from konvene.client.errors import AuthenticationFailed
from konvene.client.net.settings import load_command_config, settings_of
from konvene.properties import properties_mapping
from konvene.security.oauth.urls import ALLOWED_URLS

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CONNECTION_STRING = "Endpoint=sb://ns.example/;SharedAccessKeyName=Root;SharedAccessKey=a+b/c="

CONFLUENT_CLOUD = f"""
security.protocol=SASL_SSL
sasl.jaas.config={PLAIN_MODULE} required username='APIKEY' password='a/secret+';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
"""
EVENT_HUBS = f"""
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN_MODULE} required username="$ConnectionString" password="{CONNECTION_STRING}";
"""
MSK_SCRAM = f"""
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM_MODULE} required \\
  username="alice" \\
  password="alice-secret";
"""
PLAIN_USERS = f'user_APIKEY="a/secret+" user_$ConnectionString="{CONNECTION_STRING}" user_admin="admin"'


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(limited())


def settings_of_broker(secured: Secured, **changed: str) -> dict[str, str]:
    """Return the settings of a broker with the users above, who are known to PLAIN."""
    plain = {"listener.name.secure.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {PLAIN_USERS};"}
    return secured.settings(**changed) | plain


async def principal_of(secured: Secured, client: Cluster) -> str:
    """Return the principal by which a client is served."""
    async with client:
        await Admin(client).list_topics()
        (connection,) = secured.broker.network.connections
        return str(connection.session.principal)


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        (CONFLUENT_CLOUD, "User:APIKEY"),
        (EVENT_HUBS, "User:$ConnectionString"),
        (MSK_SCRAM, "User:alice"),
    ],
    ids=["confluent-cloud", "event-hubs", "msk-scram"],
)
def test_a_properties_file_of_a_service(tmp_path: Path, text: str, principal: str) -> None:
    """The file is that of the service, and the test's certificate authority; a changed password fails."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        trust = f"ssl.truststore.type=PEM\nssl.truststore.location={secured.ca_file}\n"
        (tmp_path / "client.properties").write_text(text + trust)
        (tmp_path / "wrong.properties").write_text(
            text.replace("secret", "other").replace("a+b", "x") + trust
        )
        async with secured.running(settings_of_broker(secured)):
            admin = settings_of(properties_mapping(EVENT_HUBS + trust, ""))
            async with Cluster(secured.address("SECURE"), admin) as client:
                await Admin(client).alter_user_scram_credentials(
                    "alice", {"SCRAM-SHA-512": ScramPassword("alice-secret")}
                )
            settings = load_command_config(tmp_path / "client.properties")
            assert await principal_of(secured, Cluster(secured.address("SECURE"), settings)) == principal
            with pytest.raises(AuthenticationFailed):
                wrong = load_command_config(tmp_path / "wrong.properties")
                await principal_of(secured, Cluster(secured.address("SECURE"), wrong))

    run(scenario())


def test_msk_with_mutual_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)
        material = secured.authority.client("CN=alice").write(tmp_path, "alice")
        async with secured.running(secured.settings(ssl_client_auth="required")):
            settings = client_settings(
                security_protocol="SSL", ssl_ca_location=str(secured.ca_file),
                ssl_keystore_type="PEM", ssl_keystore_location=str(material[2]),
            )  # fmt: skip
            assert await principal_of(secured, Cluster(secured.address("TLS"), settings)) == "User:CN=alice"

    run(scenario())


def signed_token(now_s: int) -> str:
    """Return a token that the broker accepts for a minute."""
    return token({"iat": now_s, "exp": now_s + 60})


def oauth_broker(secured: Secured) -> dict[str, str]:
    """Return the settings of a broker that verifies tokens with the key set of the tests."""
    jwks = secured.folder / "jwks.json"
    jwks.write_bytes(key_set())
    return secured.settings() | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listeners": ",".join(LISTENERS.split(",")[2:3]),
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
        ALLOWED_URLS: jwks.as_uri(),
    }


def by_callback(text: str, tmp_path: Path) -> tuple[Mapping[str, str], Callable[[], str] | None]:
    """Amazon MSK with IAM: a function of the program signs a token."""
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, lambda: text


def by_file(text: str, tmp_path: Path) -> tuple[Mapping[str, str], Callable[[], str] | None]:
    file = tmp_path / "token"
    file.write_text(text)
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        ALLOWED_URLS: file.as_uri(),
    }
    return properties, None


@pytest.mark.parametrize("source", [by_callback, by_file])
def test_an_access_token(tmp_path: Path, source: Any) -> None:
    """The principal is the token's subject; a token that cannot be verified is rejected."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        trust = {"ssl.ca.location": str(secured.ca_file)}
        async with secured.running(oauth_broker(secured)):
            text = signed_token(int(time.time()))
            properties, provider = source(text, tmp_path)
            settings = settings_of({**properties, **trust}, provider)
            assert await principal_of(secured, Cluster(secured.address("SECURE"), settings)) == "User:alice"
            properties, provider = source(text[:-8] + "AAAAAAAA", tmp_path)
            settings = settings_of({**properties, **trust}, provider)
            with pytest.raises(AuthenticationFailed, match="invalid_token"):
                await principal_of(secured, Cluster(secured.address("SECURE"), settings))

    run(scenario())


def test_a_token_endpoint(tmp_path: Path) -> None:
    """One token serves all connections; the loop is not blocked while it is requested."""

    async def scenario() -> None:
        secured = Secured(tmp_path)
        response = {"access_token": signed_token(int(time.time()))}
        with token_endpoint((200, response)) as endpoint:
            options = 'clientId="me" clientSecret="secret" scope="kafka"'
            settings = settings_of(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.token.endpoint.url": endpoint.url,
                    "sasl.jaas.config": f"{OAUTH_MODULE} required {options};",
                    ALLOWED_URLS: endpoint.url,
                    "ssl.ca.location": str(secured.ca_file),
                }
            )
            async with secured.running(oauth_broker(secured)):
                for _ in range(2):
                    client = Cluster(secured.address("SECURE"), settings)
                    assert await principal_of(secured, client) == "User:alice"
                    await asyncio.sleep(0)
            assert len(endpoint.received) == 1

    run(scenario())


@pytest.mark.parametrize("failure", [OSError("no signer"), AuthenticationFailed("no signer")])
def test_a_token_provider_that_fails(tmp_path: Path, failure: Exception) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path)

        def fail() -> str:
            raise failure

        settings = client_settings(
            fail, security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER",
            ssl_ca_location=str(secured.ca_file),
        )  # fmt: skip
        async with secured.running(oauth_broker(secured)):
            with pytest.raises(AuthenticationFailed, match="no signer"):
                await principal_of(secured, Cluster(secured.address("SECURE"), settings))

    run(scenario())
