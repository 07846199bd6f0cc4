"""Resolves the host names in quotas and settings to addresses, as Java's `InetAddress.getAllByName`."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from konvene.security.hosts import java_address

if TYPE_CHECKING:
    import asyncio

__all__ = ["address_literal", "addresses_of"]


def address_literal(host: str) -> str | None:
    """Return an address in the notation of `java_address`; None if `host` is a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return java_address(host)


async def addresses_of(loop: asyncio.AbstractEventLoop, host: str) -> list[str]:
    """Return the addresses of a host, its most preferred one first; none if it cannot be resolved."""
    literal = address_literal(host)
    if literal is not None:
        return [literal]
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(java_address(str(entry[4][0])) for entry in found))
