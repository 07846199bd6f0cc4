"""Which URLs a broker or a client may fetch tokens and keys from (Kafka's allow-lists, CVE-2025-27817).

Kafka reads the lists from system properties of the JVM, and an empty list allows nothing. Keys and tokens are
fetched over https; plain http is accepted on this machine only, for tests.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler

__all__ = ["ALLOWED_URLS", "NoRedirect", "check_url", "is_loopback"]

ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Setting with the URLs that may be fetched, as Kafka's system property."""


class NoRedirect(HTTPRedirectHandler):
    """Follows no redirects: they would lead to URLs that are not on the allow-list."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_url(name: str, url: str | None, allowed: Collection[str]) -> SplitResult:
    """Return the parts of the URL in the setting `name`. Raises ValueError if it may not be fetched."""
    if not url:
        raise ValueError(f"{name} is required")
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        raise ValueError(f"{name}={url} is not a URL") from None
    if parts.scheme == "file":
        if not parts.path:
            raise ValueError(f"{name}={url} names no file")
    elif parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{name}={url}: use an https or file URL")
    elif parts.scheme == "http" and not is_loopback(host):
        raise ValueError(f"{name}={url}: use https; http is accepted for this machine only")
    if url not in allowed:
        raise ValueError(f"{name}={url} is not allowed; add it to {ALLOWED_URLS}")
    return parts


def is_loopback(host: str) -> bool:
    """Return True if a host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
