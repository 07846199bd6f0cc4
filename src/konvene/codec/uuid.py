"""Kafka's 128-bit ids: sixteen bytes, formatted as Kafka does."""

from __future__ import annotations

import base64

from konvene.codec.errors import Malformed


class Uuid(bytes):
    """A topic, directory or cluster id: 16 bytes, shown as 22 characters of URL-safe base64."""

    __slots__ = ()

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({self})"

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """Parse the 22-character text form. Raises `Malformed` unless it is base64 of 16 bytes."""
        try:
            raw = base64.b64decode(text.rstrip("=") + "==", altchars="-_", validate=True)
        except (TypeError, ValueError, AttributeError):
            raw = b""
        if len(raw) != 16:
            raise Malformed(f"not a Kafka id: {text!r}")
        return cls(raw)


ZERO_UUID = Uuid(16)
