"""TLS contexts of servers and clients, made of Kafka's settings.

Private keys reach OpenSSL through an anonymous file in memory where the system has one, else through a
temporary file that only its owner can read and that is removed at once."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from konvene.security.tls.alerts import AlertingContext
from konvene.security.tls.cipher_suites import openssl_names
from konvene.security.tls.stores import (
    InvalidStore,
    KeyMaterial,
    ReadFile,
    key_material,
    trusted_certificates,
)

__all__ = ["client_context", "server_context"]

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
}  # fmt: skip


def _read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def server_context(settings: Mapping[str, Any], read_file: ReadFile = _read_file) -> ssl.SSLContext:
    """Return the context of a listener with TLS. Raises `InvalidStore` if the settings are unusable."""
    material = key_material(settings, read_file)
    if material is None:
        raise InvalidStore("a listener with TLS needs a key: set ssl.keystore.location or ssl.keystore.key")
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    _load_key(context, material)
    # A resumed session would skip the client's certificate after it was revoked, and tickets cost time.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    client_auth = str(settings.get("ssl.client.auth") or "none").lower()
    context.verify_mode = CLIENT_AUTH[client_auth]
    trusted = trusted_certificates(settings, read_file)
    if trusted is not None:
        _trust(context, trusted)
    elif client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context of a client. Raises `InvalidStore` if the settings are unusable.

    Without a trust store the system's certificate authorities are trusted. An empty
    `ssl.endpoint.identification.algorithm` does not compare the server's name with its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    context.check_hostname = bool(algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    trusted = trusted_certificates(settings, _read_file)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted)
    material = key_material(settings, _read_file)
    if material is not None:
        _load_key(context, material)
    return context


def _restrict(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    """Limit a context to the enabled versions and cipher suites."""
    context.options |= ssl.OP_NO_COMPRESSION
    enabled = settings.get("ssl.enabled.protocols") or tuple(VERSIONS)
    if isinstance(enabled, str):
        enabled = [name.strip() for name in enabled.split(",")]
    unknown = [name for name in enabled if name not in VERSIONS]
    if unknown:
        raise InvalidStore(f"ssl.enabled.protocols: {unknown[0]} is not supported; use {', '.join(VERSIONS)}")
    versions = sorted(VERSIONS[name] for name in enabled)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    suites = settings.get("ssl.cipher.suites") or ()
    if isinstance(suites, str):
        suites = [name.strip() for name in suites.split(",") if name.strip()]
    if suites:
        try:
            older = openssl_names(suites)
            context.set_ciphers(":".join(older) if older else "@SECLEVEL=2")
        except (ValueError, ssl.SSLError) as error:
            raise InvalidStore(f"ssl.cipher.suites: {error}") from None


def _trust(context: ssl.SSLContext, certificates: str) -> None:
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise InvalidStore(f"the trusted certificates cannot be used: {_reason(error)}") from None


def _load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    with _private_file(f"{material.key}\n{material.chain}".encode()) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            reason = _reason(error)
            if reason == "KEY_VALUES_MISMATCH":
                reason = "the private key does not belong to the certificate"
            raise InvalidStore(f"the key store cannot be used: {reason}") from None


def _reason(error: ssl.SSLError) -> str:
    return error.reason or "malformed"


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, which exists within the block only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("konvene-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="konvene-") as file:
        file.write(content)
        file.flush()
        yield file.name
