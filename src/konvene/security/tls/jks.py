"""Reads JKS, Java's old key store format: keys, their chains, and trusted certificates.

The file is a list of entries and a SHA-1 digest over password and content. A key is encrypted by a stream of
SHA-1 digests (`sun.security.provider.KeyProtector`).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from konvene.security.tls.der import InvalidDer, read_element

__all__ = ["JavaKeyStore", "read_jks"]

MAGIC: Final = 0xFEEDFEED
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_SIZE: Final = 20


class JavaKeyStore(NamedTuple):
    """The content of a store: the first key in PKCS #8 with its chain, and the trusted certificates, in
    DER."""

    key: bytes | None
    chain: tuple[bytes, ...]
    certificates: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<Java key store: {len(self.chain)} + {len(self.certificates)} certificates>"


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise ValueError("the store is truncated")
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def certificate(self) -> bytes:
        self.text()  # The type: X.509.
        return self.take(self.number())


def read_jks(data: bytes, password: str, key_password: str = "") -> JavaKeyStore:
    """Return the content of a store. Raises ValueError if it is malformed, or a password is wrong.

    Without a password the digest is not checked, as in Java."""
    if len(data) < 12 + _DIGEST_SIZE or int.from_bytes(data[:4], "big") != MAGIC:
        hint = "; set the type to PKCS12" if data[:1] == b"\x30" else ""
        raise ValueError(f"this is not a JKS store{hint}")
    content, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + content).digest()
        if not hmac.compare_digest(expected, digest):
            raise ValueError("the password is wrong, or the store is damaged")
    reader = _Reader(content)
    reader.take(4)
    version, count = struct.unpack(">II", reader.take(8))
    if version not in (1, 2):
        raise ValueError(f"version {version} of JKS is not supported")
    key: bytes | None = None
    chain: tuple[bytes, ...] = ()
    certificates = []
    for _ in range(count):
        entry = reader.number()
        reader.text()  # The alias.
        reader.take(8)  # The time of creation.
        if entry == _KEY_ENTRY:
            protected = reader.take(reader.number())
            its_chain = tuple(reader.certificate() for _ in range(reader.number()))
            if key is None:
                key, chain = _recovered(protected, key_password or password), its_chain
        elif entry == _CERTIFICATE_ENTRY:
            certificates.append(reader.certificate())
        else:
            raise ValueError(f"an entry of type {entry} is not supported")
    return JavaKeyStore(key, chain, tuple(certificates))


def _recovered(protected: bytes, password: str) -> bytes:
    """Return the key in an encrypted entry. Raises ValueError if the password is wrong."""
    try:
        info, _ = read_element(protected)
        encrypted = info.children[1].content
    except (InvalidDer, IndexError):
        raise ValueError("a key entry is damaged") from None
    if len(encrypted) < 2 * _DIGEST_SIZE:
        raise ValueError("a key entry is damaged")
    salt, body, check = encrypted[:20], encrypted[20:-20], encrypted[-20:]
    secret, block, stream = password.encode("utf-16-be"), salt, b""
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise ValueError("the key's password is wrong")
    return key
