"""No secret is in any output: of commands that succeed or fail, of a broker at debug level, of values.

Each secret of these tests contains MARK; everything that is printed, logged, raised or shown is searched for
it. `delegation-tokens create` and `describe` print the HMAC of a token, which is what they are for."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.cli.commands import call
from tests.cli.secured import SecuredBroker, properties, secured_broker
from tests.client.oauth.token_endpoint import token_endpoint

from konvene.client import Cluster
from konvene.client.admin.credentials import DelegationToken, ScramPassword
from konvene.client.errors import ClientError
from konvene.client.net.settings import load_command_config, settings_of
from konvene.client.oauth.endpoint import TokenRequest
from konvene.client.oauth.renewal import FetchedToken, RenewedToken
from konvene.client.security import ClientSecurity
from konvene.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from konvene.messages.renew_delegation_token import RenewDelegationTokenRequest
from konvene.messages.sasl_authenticate import SaslAuthenticateRequest
from konvene.security.oauth.urls import ALLOWED_URLS
from konvene.security.principal import KafkaPrincipal
from konvene.security.sasl.jaas import parse_jaas
from konvene.testing.certificates import CertificateAuthority

MARK = "marked-"
SECRET = f"{MARK}secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as broker:
        broker.run("topics", "create", "orders")
        yield broker


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "args",
    [
        ("topics", "list"),
        ("topics", "describe", "missing"),
        ("acls", "list"),
        ("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
        ("configs", "alter", "--user", "u", "--add-config", f"SCRAM-SHA-256=[password={SECRET}]"),
        ("configs", "alter", "--user", "u", "--add-config", f"SCRAM-SHA-256=[passwort={SECRET}]"),
        ("configs", "alter", "--user", "u", "--add-config",
         f"SCRAM-SHA-256=[iterations=1,password={SECRET}]"),
        ("configs", "alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config",
         f"listener.name.x.ssl.keystore.password={SECRET}"),
        ("delegation-tokens", "expire", "--hmac", f"{MARK}hmac"),
        ("delegation-tokens", "renew", "--hmac", "bWFya2VkLWhtYWM="),
    ],
)  # fmt: skip
def test_commands(
    broker: SecuredBroker, args: Sequence[str], as_json: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What they print, and what the broker and the client log at debug level meanwhile."""
    caplog.set_level(logging.DEBUG)
    for user in ("alice", "bob"):
        result = broker.call(*args, *as_json, user=user)
        assert result.out or result.err or user == "bob"
        assert MARK not in result.out + result.err
    assert MARK not in caplog.text
    assert MARK not in "\n".join(broker.konvene.log)


def test_describe_configs_hides_sensitive_values(broker: SecuredBroker) -> None:
    described = broker.run("configs", "describe", "--broker", "1", "--all").out
    hidden = [line for line in described.splitlines() if " sensitive=true" in line]
    assert any("plain.sasl.jaas.config=null" in line for line in hidden)
    assert MARK not in described


def login(mechanism: str, module: str, options: str) -> str:
    jaas = f"sasl.jaas.config={module} required {options};"
    return f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n{jaas}\n"


NAMED = f'username="alice" password="{SECRET}"'
FAILURES = {
    "wrong-password": login("PLAIN", PLAIN, NAMED),
    "wrong-scram-password": login("SCRAM-SHA-512", SCRAM, NAMED),
    "mechanism": login("PLAIN", SCRAM, NAMED),
    "open-quote": login("PLAIN", PLAIN, f'username="alice" password="{SECRET}'),
    "no-equals": login("PLAIN", PLAIN, f'username="alice" password "{SECRET}"'),
    "class": login("PLAIN", "com.example.Login", NAMED),
    "misspelt": f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.passwort={SECRET}\n",
    "no-user": f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password={SECRET}\n",
    "key": f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key={SECRET}\n"
    f"ssl.keystore.certificate.chain={SECRET}\n",
    "trust": f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates={SECRET}\n",
    "unreadable": f"sasl.password=\\u12{SECRET}\n",
    "oauth": login("OAUTHBEARER", OAUTH, f'clientId="me" clientSecret="{SECRET}"'),
    "oauth-url": login("OAUTHBEARER", OAUTH, f'clientId="me" clientSecret="{SECRET}"')
    + f"sasl.oauthbearer.token.endpoint.url=https://me:{SECRET}@issuer.example/\n",
    "unsecured": login("OAUTHBEARER", OAUTH, f'unsecuredLoginNumberClaim_x="{SECRET}"'),
}


@pytest.mark.parametrize("text", FAILURES.values(), ids=FAILURES)
def test_commands_that_cannot_connect(
    broker: SecuredBroker, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With and without --json, also `explain`; and an unknown host."""
    caplog.set_level(logging.DEBUG)
    trust = "".join(
        f"{line}\n" for line in Path(broker.file()).read_text().splitlines() if line.startswith("ssl.trust")
    )
    file = properties(tmp_path / "client.properties", text if "ssl." in text else text + trust)
    for args in (("topics", "list"), ("groups", "list", "--json")):
        result = call(broker, *args, "--command-config", file, "--timeout", "5000")
        assert result.code == 1, result
        assert MARK not in result.out + result.err
    shown = call(None, "explain", broker.address, "--command-config", file)
    assert shown.code == 1
    assert MARK not in shown.out + shown.err
    unknown = call(
        None, "topics", "list", "--bootstrap-server", "unknown.invalid:1", "--command-config", file
    )
    assert MARK not in unknown.out + unknown.err
    assert MARK not in caplog.text


def test_tracebacks(broker: SecuredBroker, tmp_path: Path) -> None:
    """Of a program that does not handle the client's errors."""
    printed = []

    async def list_topics(cluster: Cluster) -> None:
        async with cluster:
            await cluster.refresh()

    for name in FAILURES:
        file = tmp_path / name
        file.write_text(FAILURES[name] + f"ssl.ca.location={Path(broker.file()).parent / 'ca.pem'}\n")
        try:
            asyncio.run(list_topics(Cluster(broker.address, load_command_config(file))))
        except ClientError:
            printed.append(traceback.format_exc())
    assert len(printed) == len(FAILURES)
    assert MARK not in "".join(printed)


def test_a_token_endpoint(broker: SecuredBroker, tmp_path: Path) -> None:
    """An endpoint that repeats the credentials in its error, and one whose response is no token."""
    responses = [
        (401, {"error": "invalid_client", "error_description": f"{SECRET} is wrong"}),
        (200, {"access_token": SECRET}),
        (200, SECRET.encode()),
    ]
    for response in responses:
        with token_endpoint(response) as endpoint:
            file = properties(
                tmp_path / "oauth.properties",
                login("OAUTHBEARER", OAUTH, f'clientId="me" clientSecret="{SECRET}"')
                + f"sasl.oauthbearer.token.endpoint.url={endpoint.url}\n{ALLOWED_URLS}={endpoint.url}\n"
                + f"ssl.ca.location={Path(broker.file()).parent / 'ca.pem'}\n",
            )
            result = call(broker, "topics", "list", "--command-config", file)
        assert (result.code, MARK in result.out + result.err) == (1, False), result


def test_a_broker_at_debug_level(tmp_path: Path) -> None:
    """What `konvene serve` and a client print, from the start to a login that fails."""
    key = CertificateAuthority().server()
    (tmp_path / "server.pem").write_text(key.key + key.certificate)
    file = properties(
        tmp_path / "server.properties",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0\n"
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,TLS:SSL\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path / 'server.pem'}\n"
        f"delegation.token.secret.key={SECRET}\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config="
        f'{PLAIN} required user_alice="{MARK}alice";\n',
    )
    client = login("PLAIN", PLAIN, f'username="alice" password="{MARK}wrong"').replace(
        "SASL_SSL", "SASL_PLAINTEXT"
    )
    config = properties(tmp_path / "client.properties", client)
    environment = os.environ | {"KONVENE_LOG": "debug", "PYTHONASYNCIODEBUG": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "konvene", "serve", "--ephemeral", "--config", file], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
    ) as process:  # fmt: skip
        limit = threading.Timer(60, process.kill)
        limit.start()
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "konvene" in line and "127.0.0.1:" in line:
                break
        address = "127.0.0.1:" + printed[-1].partition("127.0.0.1:")[2].split()[0].rstrip(",;)")
        result = call(None, "topics", "list", "--bootstrap-server", address, "--command-config", config)
        process.send_signal(signal.SIGTERM)
        printed += process.stdout
        limit.cancel()
    assert "Invalid username or password" in result.err
    assert MARK not in "".join(printed) + result.out + result.err


def test_values_show_no_secret() -> None:
    security = settings_of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                            "sasl.username": "a", "sasl.password": SECRET})  # fmt: skip
    provider = RenewedToken(lambda: FetchedToken(SECRET, None, 10**15))
    provider()
    user = KafkaPrincipal("User", "a")
    values = [
        security,
        security.security.sasl_client("n"),
        Cluster("h:1", security),
        ClientSecurity(mechanism="SCRAM-SHA-256", password=SECRET),
        ClientSecurity(mechanism="SCRAM-SHA-256", password=SECRET).sasl_client("n"),
        ClientSecurity(mechanism="OAUTHBEARER", token_provider=provider, extensions={"a": SECRET}),
        ClientSecurity(mechanism="OAUTHBEARER").sasl_client("n", SECRET),
        ClientSecurity(tls={"ssl.key.password": SECRET}),
        provider,
        FetchedToken(SECRET, None, 0),
        TokenRequest("https://x", "me", SECRET),
        ScramPassword(SECRET),
        DelegationToken(token_id="i", hmac=SECRET.encode(), owner=user, requester=user, issue_ms=0,
                        expiry_ms=0, max_ms=0),
        parse_jaas(f'{PLAIN} required username="a" password="{SECRET}";'),
        SaslAuthenticateRequest(auth_bytes=SECRET.encode()),
        ScramCredentialUpsertion(name="a", salted_password=SECRET.encode()),
        RenewDelegationTokenRequest(hmac=SECRET.encode()),
    ]  # fmt: skip
    for value in values:
        assert MARK not in repr(value) + str(value)
        assert MARK not in repr([value])
