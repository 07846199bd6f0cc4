"""Keys and certificates in each format, and what is wrong with stores that cannot be used."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given
from hypothesis import strategies as st

from konvene.security.tls.contexts import client_context, server_context
from konvene.security.tls.jks import read_jks
from konvene.security.tls.reload import IncompatibleStore, ServerTls
from konvene.security.tls.stores import InvalidStore
from konvene.testing.certificates import Certificate, CertificateAuthority

CA = CertificateAuthority()
SERVER = CA.server()
PEM = {
    "ssl.keystore.type": "PEM", "ssl.keystore.key": SERVER.key,
    "ssl.keystore.certificate.chain": SERVER.certificate,
}  # fmt: skip
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA.certificate}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Complete a handshake in memory; return both sides. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    pending = [theirs, ours]
    for _ in range(20):
        for side in list(pending):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(side)
        if not pending:
            return ours, theirs
    raise AssertionError("the handshake does not end")


def loaded(certificate: Certificate) -> tuple[Any, x509.Certificate]:
    key = serialization.load_pem_private_key(certificate.key.encode(), None)
    return key, x509.load_pem_x509_certificate(certificate.certificate.encode())


def test_pem_texts() -> None:
    ours, theirs = handshake(server_context(PEM), client_context(TRUST))
    assert theirs.version() == "TLSv1.3"
    assert theirs.getpeercert(binary_form=True) == SERVER.der
    assert ours.getpeercert() is None


def test_a_pem_file(tmp_path: Path) -> None:
    path = SERVER.write(tmp_path, "s")[2]
    handshake(
        server_context({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}),
        client_context(TRUST),
    )


@pytest.mark.parametrize("password", ["secret", "ü;="])
def test_an_encrypted_pem_key(password: str) -> None:
    key, _ = loaded(SERVER)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()
    settings = PEM | {"ssl.keystore.key": encrypted}
    handshake(server_context(settings | {"ssl.key.password": password}), client_context(TRUST))
    for wrong in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(InvalidStore, match=r"ssl\.key\.password") as raised:
            server_context(settings | wrong)
        assert password not in str(raised.value)


def test_a_pkcs12_store(tmp_path: Path) -> None:
    key, certificate = loaded(SERVER)
    authority = x509.load_pem_x509_certificate(CA.certificate.encode())
    keystore, truststore = tmp_path / "k.p12", tmp_path / "t.p12"
    encryption = serialization.BestAvailableEncryption(b"secret")
    keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, certificate, [authority], encryption)
    )
    truststore.write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"ca")], encryption)
    )
    own = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(keystore)}
    trust = {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(truststore)}
    handshake(
        server_context(own | {"ssl.keystore.password": "secret"}),
        client_context(trust | {"ssl.truststore.password": "secret"}),
    )
    with pytest.raises(InvalidStore, match="password"):
        server_context(own | {"ssl.keystore.password": "wrong"})


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool of a JDK makes JKS stores")
def test_stores_of_keytool(tmp_path: Path) -> None:
    """JKS and PKCS12, with a key password of its own in JKS."""
    (tmp_path / "ca.pem").write_text(CA.certificate)
    key, certificate = loaded(SERVER)
    source = tmp_path / "source.p12"
    encryption = serialization.BestAvailableEncryption(b"secret")
    source.write_bytes(pkcs12.serialize_key_and_certificates(b"server", key, certificate, None, encryption))

    def keytool(*arguments: str) -> None:
        subprocess.run(["keytool", "-noprompt", *arguments], check=True, capture_output=True, timeout=60)

    for kind in ("JKS", "PKCS12"):
        keys, trust = tmp_path / f"keys.{kind}", tmp_path / f"trust.{kind}"
        key_password = "key-secret" if kind == "JKS" else "store-secret"
        keytool(
            "-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass",
            "secret", "-destkeystore", str(keys), "-deststoretype", kind, "-deststorepass", "store-secret",
            "-destkeypass", key_password,
        )  # fmt: skip
        keytool(
            "-importcert", "-alias", "ca", "-file", str(tmp_path / "ca.pem"), "-keystore", str(trust),
            "-storetype", kind, "-storepass", "store-secret",
        )  # fmt: skip
        own = {
            "ssl.keystore.type": kind, "ssl.keystore.location": str(keys),
            "ssl.keystore.password": "store-secret", "ssl.key.password": key_password,
        }  # fmt: skip
        others = {
            "ssl.truststore.type": kind, "ssl.truststore.location": str(trust),
            "ssl.truststore.password": "store-secret",
        }  # fmt: skip
        handshake(server_context(own), client_context(others))
        for wrong in ({"ssl.keystore.password": "wrong"}, {"ssl.key.password": "wrong"}):
            if kind == "JKS" or "ssl.keystore.password" in wrong:
                with pytest.raises(InvalidStore, match="password"):
                    server_context(own | wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a key"),
        (PEM | {"ssl.keystore.key": ""}, "have to be set together"),
        (PEM | {"ssl.keystore.key": "x"}, "no private key"),
        (PEM | {"ssl.keystore.certificate.chain": "x"}, "no certificate"),
        (PEM | {"ssl.keystore.type": "JKS"}, "ssl.keystore.type=PEM"),
        (PEM | {"ssl.keystore.key": CA.server().key}, "does not belong to the certificate"),
        ({"ssl.keystore.location": "/nowhere"}, "cannot be read"),
    ],
)
def test_unusable_key_stores(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidStore, match=message) as raised:
        server_context(settings)
    assert "PRIVATE KEY-----" not in str(raised.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_jks_store(data: bytes) -> None:
    for content in (data, b"\xfe\xed\xfe\xed" + data):
        with pytest.raises(ValueError, match=r"."):
            read_jks(content, "")


def test_client_certificates_may_be_required() -> None:
    required = server_context(PEM | TRUST | {"ssl.client.auth": "required"})
    material = CA.client("CN=alice")
    own = {
        "ssl.keystore.type": "PEM", "ssl.keystore.key": material.key,
        "ssl.keystore.certificate.chain": material.certificate,
    }  # fmt: skip
    ours, _ = handshake(required, client_context(TRUST | own))
    assert ours.getpeercert(binary_form=True) == material.der
    with pytest.raises(ssl.SSLError):
        handshake(required, client_context(TRUST))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_versions_and_suites_are_limited(version: str) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256"
    limited = server_context(PEM | {"ssl.enabled.protocols": version, "ssl.cipher.suites": suites})
    _, theirs = handshake(limited, client_context(TRUST))
    assert theirs.version() == version
    if version == "TLSv1.2":
        assert theirs.cipher() is not None
        assert theirs.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"  # type: ignore[index]


def test_a_reload_keeps_the_names(tmp_path: Path) -> None:
    """Unless the settings permit other ones; what is refused changes nothing."""
    other = CA.server(("example.org",), name="other")
    changed = {
        **PEM, "ssl.keystore.key": other.key, "ssl.keystore.certificate.chain": other.certificate,
    }  # fmt: skip
    for permitted, message in (
        ({}, "DistinguishedName"),
        ({"ssl.allow.dn.changes": True}, "SubjectAltNames"),
    ):
        tls = ServerTls(PEM | permitted)
        before = tls.context
        with pytest.raises(IncompatibleStore, match=message):
            tls.replace(changed)
        assert tls.context is before
    tls = ServerTls(PEM | {"ssl.allow.dn.changes": True, "ssl.allow.san.changes": True})
    before = tls.context
    tls.replace(changed)
    assert tls.context is not before


def test_changed_files_are_noticed_once(tmp_path: Path) -> None:
    """Also if they cannot be used: they are tried again when they change again."""
    key_store = tmp_path / "k.pem"
    key_store.write_text(SERVER.key + SERVER.certificate)
    tls = ServerTls({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)})
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
    assert not tls.has_changed_files()
    assert not tls.has_changed(settings)
    key_store.write_text("broken")
    assert tls.has_changed_files()
    with pytest.raises(InvalidStore):
        tls.replace(settings)
    assert not tls.has_changed_files()
    renewed = CA.server()
    key_store.write_text(renewed.key + renewed.certificate)
    assert tls.has_changed_files()
    tls.replace(settings)
    assert not tls.has_changed_files()


def test_only_stores_are_replaced() -> None:
    """As in Kafka: other settings apply when the broker starts, and a trust store cannot be added."""
    tls = ServerTls(PEM)
    tls.replace(PEM | {"ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.2"})
    assert tls.context.verify_mode is ssl.CERT_NONE
    assert tls.context.maximum_version is ssl.TLSVersion.TLSv1_3
    trusting = PEM | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA.certificate}
    with pytest.raises(IncompatibleStore, match="Cannot add SSL truststore"):
        tls.check(trusting)


def test_renegotiation_is_refused() -> None:
    assert ServerTls(PEM).context.options & ssl.OP_NO_RENEGOTIATION
