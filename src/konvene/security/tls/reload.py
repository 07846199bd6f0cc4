"""The TLS context of a listener, and what may replace it while the broker runs.

As Kafka's `SslFactory`: only key store and trust store can be replaced (`RELOADABLE`). A new key store has to
keep the distinguished name and the alternative names of the old one, unless `ssl.allow.dn.changes` and
`ssl.allow.san.changes` permit others. Material that cannot be used leaves the old context in place. Open
connections keep the context that they began with."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from konvene.security.hosts import java_address
from konvene.security.tls.contexts import server_context
from konvene.security.tls.der import read_element
from konvene.security.tls.distinguished_names import CertificateNames, certificate_names
from konvene.security.tls.stores import InvalidStore, ReadFile, key_material

__all__ = ["RELOADABLE", "IncompatibleStore", "ServerTls"]

RELOADABLE: Final = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
    "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
)  # fmt: skip
"""Settings that apply to new connections when they are altered (Kafka's `SslConfigs`)."""

_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
_TRUSTED: Final = ("ssl.truststore.location", "ssl.truststore.certificates")
_IP_ADDRESS: Final = 7
_ALIAS: Final = "kafka"
"""Kafka's name of the only entry of a key store in PEM format."""

_Version = tuple[str, int, int]


class IncompatibleStore(InvalidStore):
    """A usable key store or trust store that may not replace the present one; the message is Kafka's."""


class ServerTls:
    """The context for new connections of one listener."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make the first context. Raises `InvalidStore`."""
        self._settings = self._attempted = dict(settings)
        self._files = _file_versions(settings)
        read_file = _read_once()
        self.context = server_context(settings, read_file)
        self._names = _names(settings, read_file)

    def __repr__(self) -> str:
        return f"<TLS of {self._names.subject or 'a listener'}>"

    def has_changed(self, settings: Mapping[str, Any]) -> bool:
        """Return True if reloadable settings differ from those in use."""
        return any(settings.get(name) != self._settings.get(name) for name in RELOADABLE)

    def has_changed_files(self) -> bool:
        """Return True if a file differs from the one that was read last."""
        return _file_versions(self._attempted) != self._files

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise `InvalidStore` unless these settings can replace those in use."""
        self._made(self._merged(settings))

    def replace(self, settings: Mapping[str, Any]) -> None:
        """Use these settings for new connections. Raises `InvalidStore`, and keeps the context."""
        self._attempted = self._merged(settings)
        self._files = _file_versions(self._attempted)
        self.context, self._names = self._made(self._attempted)
        self._settings = self._attempted

    def _merged(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self._settings | {name: settings.get(name) for name in RELOADABLE}

    def _made(self, settings: Mapping[str, Any]) -> tuple[ssl.SSLContext, CertificateNames]:
        """Return the context of settings and the names of its certificate. Raises `InvalidStore`."""
        read_file = _read_once()
        context, old, new = server_context(settings, read_file), self._names, _names(settings, read_file)
        if new.subject.lower() != old.subject.lower() and not settings.get("ssl.allow.dn.changes"):
            raise IncompatibleStore(
                f"Keystore DistinguishedName does not match:  existing={{alias={_ALIAS}, DN={_shown(old)}}},"
                f" new={{alias={_ALIAS}, DN={_shown(new)}}}"
            )
        if not old.alternatives <= new.alternatives and not settings.get("ssl.allow.san.changes"):
            raise IncompatibleStore(
                f"Keystore SubjectAltNames do not match:  existing={{alias={_ALIAS}, SAN={_hosts(old)}}},"
                f" new={{alias={_ALIAS}, SAN={_hosts(new)}}}"
            )
        if _has_trust(settings) and not _has_trust(self._settings):
            raise IncompatibleStore(
                "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            )
        return context, new


def _has_trust(settings: Mapping[str, Any]) -> bool:
    return any(settings.get(name) for name in _TRUSTED)


def _read_once() -> ReadFile:
    """Return a function that reads each file once, so that all of a context is of the same content."""
    return cache(lambda path: Path(path).read_bytes())


def _names(settings: Mapping[str, Any], read_file: ReadFile) -> CertificateNames:
    material = key_material(settings, read_file)
    assert material is not None
    first = material.chain[: material.chain.index("-----END CERTIFICATE-----") + 25]
    return certificate_names(ssl.PEM_cert_to_DER_cert(first + "\n"))


def _shown(names: CertificateNames) -> str:
    """Return the distinguished name as Java shows it in messages."""
    return names.subject.replace(",", ", ").replace("\\, ", "\\,")


def _hosts(names: CertificateNames) -> str:
    """Return the alternative names as Java shows them: pairs of type and value."""
    pairs = []
    for encoded in sorted(names.alternatives):
        element, _ = read_element(encoded)
        kind = element.tag & 0x1F
        value = element.content.decode("latin-1")
        if kind == _IP_ADDRESS and len(element.content) in (4, 16):
            value = java_address(str(ip_address(element.content)))
        pairs.append(f"[{kind}, {value}]")
    return f"[{', '.join(pairs)}]"


def _file_versions(settings: Mapping[str, Any]) -> tuple[_Version | None, ...]:
    """Return path, modification time (ns) and size of each store's file, to notice changes."""
    versions: list[_Version | None] = []
    for name in _FILES:
        path = str(settings.get(name) or "")
        try:
            status = Path(path).stat() if path else None
        except OSError:
            status = None
        versions.append(None if status is None else (path, status.st_mtime_ns, status.st_size))
    return tuple(versions)
