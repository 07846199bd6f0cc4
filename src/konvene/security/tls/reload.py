"""The TLS context of a listener, and what may replace it while the broker runs.

As Kafka's `SslFactory`: a new key store has to keep the distinguished name and the alternative names of the
old one, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` permit others. Material that cannot be
used leaves the old context in place. Open connections keep the context that they began with."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from konvene.security.tls.contexts import server_context
from konvene.security.tls.distinguished_names import CertificateNames, certificate_names
from konvene.security.tls.stores import InvalidStore, key_material

__all__ = ["ServerTls", "file_versions"]

_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")


class ServerTls:
    """The context for new connections of one listener."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make the first context. Raises `InvalidStore`."""
        self.context = server_context(settings)
        self._names = _names(settings)

    def __repr__(self) -> str:
        return f"<TLS of {self._names.subject or 'a listener'}>"

    def check(self, settings: Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context of other settings, which is not used yet. Raises `InvalidStore`."""
        context, names = server_context(settings), _names(settings)
        if names.subject != self._names.subject and not settings.get("ssl.allow.dn.changes"):
            raise InvalidStore(
                f"Keystore DistinguishedName does not match: existing={{{self._names.subject}}},"
                f" new={{{names.subject}}}"
            )
        if not self._names.alternatives <= names.alternatives and not settings.get("ssl.allow.san.changes"):
            raise InvalidStore("Keystore SubjectAltNames do not match")
        return context

    def replace(self, settings: Mapping[str, Any]) -> None:
        """Use other settings for new connections. Raises `InvalidStore`, and keeps the context."""
        self.context = self.check(settings)
        self._names = _names(settings)


def _names(settings: Mapping[str, Any]) -> CertificateNames:
    material = key_material(settings, lambda path: Path(path).read_bytes())
    assert material is not None
    first = material.chain[: material.chain.index("-----END CERTIFICATE-----") + 25]
    return certificate_names(ssl.PEM_cert_to_DER_cert(first + "\n"))


def file_versions(settings: Mapping[str, Any]) -> tuple[tuple[str, int, int] | None, ...]:
    """Return path, modification time (ns) and size of each store's file, to notice changes."""
    versions: list[tuple[str, int, int] | None] = []
    for name in _FILES:
        path = str(settings.get(name) or "")
        try:
            status = Path(path).stat() if path else None
        except OSError:
            status = None
        versions.append(None if status is None else (path, status.st_mtime_ns, status.st_size))
    return tuple(versions)
