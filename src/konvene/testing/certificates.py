"""A certificate authority for tests, and the certificates that it issues. Needs `konvene[tls]`."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificate", "CertificateAuthority"]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_VALID = datetime.timedelta(days=30)

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Certificate(NamedTuple):
    """A private key and a certificate in PEM format."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "<certificate and key [hidden]>"

    @property
    def der(self) -> bytes:
        """Return the certificate in DER."""
        loaded = x509.load_pem_x509_certificate(self.certificate.encode())
        return loaded.public_bytes(serialization.Encoding.DER)

    def write(self, folder: Path, name: str) -> tuple[Path, Path, Path]:
        """Write key, certificate, and both together; return the paths of certificate, key and key store."""
        paths = tuple(folder / f"{name}{suffix}" for suffix in (".crt", ".key", ".pem"))
        for path, text in zip(paths, (self.certificate, self.key, self.key + self.certificate), strict=True):
            path.touch(mode=0o600)
            path.write_text(text)
        return paths[0], paths[1], paths[2]


class CertificateAuthority:
    """Issues certificates that are valid for a month, with P-256 keys unless others are requested."""

    def __init__(self, name: str = "konvene test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM).decode()
        """The authority's own certificate in PEM format, which clients trust."""

    def __repr__(self) -> str:
        return f"<certificate authority {self._name.rfc4514_string()}>"

    def server(
        self, hosts: Sequence[str] = LOCAL_HOSTS, *, name: str = "localhost", is_expired: bool = False,
        uses_rsa: bool = False,
    ) -> Certificate:  # fmt: skip
        """Return a certificate for a server with these host names and addresses."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(subject, names, is_expired=is_expired, uses_rsa=uses_rsa)

    def client(self, subject: str, *, is_expired: bool = False, uses_rsa: bool = False) -> Certificate:
        """Return a certificate for a client, by its name such as `CN=alice,O=example` or just `alice`."""
        text = subject if "=" in subject else f"CN={subject}"
        name = x509.Name.from_rfc4514_string(text)
        return self._issue(name, (), is_expired=is_expired, uses_rsa=uses_rsa)

    def _issue(
        self, subject: x509.Name, names: Sequence[x509.GeneralName], *, is_expired: bool, uses_rsa: bool
    ) -> Certificate:
        key: _Key
        key = rsa.generate_private_key(65_537, 2_048) if uses_rsa else ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key, is_expired=is_expired)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode())

    def _builder(self, subject: x509.Name, key: _Key, *, is_expired: bool = False) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _VALID)
            .not_valid_after(now - _VALID if is_expired else now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(authority, critical=False)
        )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=not signs, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip
