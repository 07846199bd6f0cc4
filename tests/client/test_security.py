"""Security of clients from the names of Kafka's tools and of librdkafka; presets of known services."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from konvene.client.errors import Misconfigured
from konvene.client.net.settings import load_command_config
from konvene.client.security import ClientSecurity, client_security
from konvene.properties import properties_mapping
from konvene.security.kerberos.login import KerberosLogin

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KERBEROS = "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"

CONFLUENT_CLOUD = f"""
bootstrap.servers=pkc-1.example:9092
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN} required username='KEY' password='SECRET';
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
"""
EVENT_HUBS = f"""
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN} required username="$ConnectionString" password="Endpoint=sb://x/;Key=a=";
"""
MSK_SCRAM = f"""
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM} required \\
  username="alice" \\
  password="SECRET";
"""
LIBRDKAFKA = """
security.protocol=sasl_ssl
sasl.mechanisms=SCRAM-SHA-256
sasl.username=alice
sasl.password=SECRET
ssl.ca.location=/etc/ca.pem
"""


def of(text: str) -> ClientSecurity:
    return client_security(properties_mapping(text, "client.properties"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONFLUENT_CLOUD, ("SASL_SSL", "PLAIN", "KEY", "SECRET")),
        (EVENT_HUBS, ("SASL_SSL", "PLAIN", "$ConnectionString", "Endpoint=sb://x/;Key=a=")),
        (MSK_SCRAM, ("SASL_SSL", "SCRAM-SHA-512", "alice", "SECRET")),
        (LIBRDKAFKA, ("SASL_SSL", "SCRAM-SHA-256", "alice", "SECRET")),
        ("", ("PLAINTEXT", "", "", "")),
        ("security.protocol=SSL", ("SSL", "", "", "")),
    ],
)
def test_documented_settings(text: str, expected: tuple[str, str, str, str]) -> None:
    found = of(text)
    assert (found.protocol, found.mechanism, found.username, found.password) == expected
    assert "SECRET" not in repr(found)
    assert "Key=a" not in repr(found)


def test_names_of_librdkafka_are_translated() -> None:
    assert of(LIBRDKAFKA).tls == {
        "ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem",
    }  # fmt: skip


def test_mutual_tls_with_the_names_of_librdkafka(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("CERTIFICATE")
    (tmp_path / "a.key").write_text("KEY")
    found = of(
        f"security.protocol=SSL\nssl.certificate.location={tmp_path}/a.crt\nssl.key.location={tmp_path}/a.key"
    )
    assert found.tls["ssl.keystore.key"] == "KEY"
    assert found.tls["ssl.keystore.certificate.chain"] == "CERTIFICATE"


def test_a_delegation_token() -> None:
    text = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    found = of(f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={text}")
    assert (found.username, found.password, found.is_token) == ("id", "hmac", True)


def test_kerberos() -> None:
    """By the names of Java, and by those of librdkafka."""
    java = f'sasl.jaas.config={KRB5} required useKeyTab=true keyTab="/k" principal="alice@R" storeKey=true;'
    librdkafka = "sasl.kerberos.keytab=/k\nsasl.kerberos.principal=alice@R\nsasl.kerberos.kinit.cmd=kinit"
    for settings in (java, librdkafka):
        found = of(KERBEROS + settings)
        assert found.kerberos == KerberosLogin("kafka", "alice@R", True, "/k")
        assert found.blocks


def test_kerberos_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(Misconfigured, match=r"pip install 'konvene\[gssapi\]'"):
        of(KERBEROS).sasl_client("nonce", host="broker")


def test_a_token_provider() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    found = client_security(given, lambda: "a.b.c")
    assert found.token_provider is not None
    assert found.sasl_client("nonce", found.token_provider()).start() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    with pytest.raises(Misconfigured, match="token_provider"):
        client_security(given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("security.protocol=TLS", "not one of PLAINTEXT"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=EXTERNAL", "sasl.mechanism=EXTERNAL is not supported"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is not set, and GSSAPI by default: No serviceName"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "sasl.mechanism=GSSAPI: No serviceName"),
        (KERBEROS + "sasl.jaas.config=x;", "JAAS"),
        (KERBEROS + f'sasl.jaas.config={PLAIN} required password="SECRET";', "needs Krb5LoginModule"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "needs sasl.jaas.config"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a", "needs sasl.jaas.config"),
        (LIBRDKAFKA + f"sasl.jaas.config={PLAIN} required;", "not both"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={SCRAM} required username="SECRET";',
            "needs PlainLoginModule",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            'sasl.jaas.config=com.sun.security.auth.module.JndiLoginModule required p="SECRET";',
            "JndiLoginModule is not supported",
        ),
        ("security.protocol=SSL\nssl.trustore.location=x", "do you mean ssl.truststore.location"),
        ("security.protocol=SSL\nenable.ssl.certificate.verification=false", "ssl.ca.location"),
        ("security.protocol=SSL\nssl.key.location=/nowhere", "cannot be read"),
    ],
)
def test_unusable_settings_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    """Without any secret in the message; a file is named."""
    path = tmp_path / "client.properties"
    path.write_text(text)
    with pytest.raises(Misconfigured, match=message) as raised:
        load_command_config(path)
    assert str(path) in str(raised.value)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.truststore.location": "/nowhere.jks"}, "cannot be read"),
        ({"ssl.truststore.type": "XML", "ssl.truststore.location": "/x"}, "use PEM, PKCS12 or JKS"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, "no certificate"),
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3 is not supported"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5"}, "is not supported"),
    ],
)
def test_unusable_tls_material(settings: dict[str, str], message: str) -> None:
    security = client_security({"security.protocol": "SSL"} | settings)
    with pytest.raises(Misconfigured, match=message):
        security.tls_context()
