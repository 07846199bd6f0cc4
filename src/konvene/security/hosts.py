"""Hosts of ACLs: addresses as Java writes them, and ranges in CIDR notation (KAFKA-20088)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

__all__ = ["check_range", "is_in_range", "java_address"]

_INTEGER: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_IPV4_RANGE: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)


@lru_cache(maxsize=4_096)
def java_address(address: str) -> str:
    """Return an address as Java's `getHostAddress`: IPv6 in full, and an IPv4-mapped one as IPv4.

    ACLs are compared with this text. Anything that is not an address is returned unchanged."""
    plain, _, scope = address.partition("%")
    try:
        parsed = ip_address(plain)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    text = ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":"))
    return f"{text}%{scope}" if scope else text


def check_range(text: str) -> None:
    """Raise ValueError, with Kafka's message, unless the text is a range of addresses in CIDR notation."""
    _parse_range(text)


def is_in_range(host: str, text: str) -> bool:
    """Return True if `text` is a range in CIDR notation, and the address `host` is in it."""
    parsed = _parsed_range(text)
    if parsed is None:
        return False
    version, first, last = parsed
    address = _parsed_address(host)
    # As in Kafka, 0.0.0.0 is in no range, but `::` is in those of IPv6.
    return address is not None and address[0] == version and first <= address[1] <= last and address != (4, 0)


@lru_cache(maxsize=4_096)
def _parsed_range(text: str) -> tuple[int, int, int] | None:
    """Return IP version, first and last address of a range; None if it is none."""
    try:
        return _parse_range(text)
    except ValueError:
        return None


def _parse_range(text: str) -> tuple[int, int, int]:
    """Return IP version, first and last address of a range. Raises ValueError."""
    if ":" in text:
        return _parse_ipv6_range(text)
    match = _IPV4_RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *parts, bits = map(int, match.groups())
    for number, last in (*((part, 255) for part in parts), (bits, 32)):
        if number > last:
            raise ValueError(f"Value [{number}] not in range [0,{last}]")
    mask = (0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF
    first = int.from_bytes(bytes(parts), "big") & mask
    return 4, first, first | (~mask & 0xFFFFFFFF)


def _parse_ipv6_range(text: str) -> tuple[int, int, int]:
    address, slash, prefix = text.partition("/")
    if not slash:
        raise ValueError(f"Could not parse [{text}] - missing prefix length")
    if _INTEGER.fullmatch(prefix) is None:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= int(prefix) <= 128:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    try:
        network = IPv6Network((address, int(prefix)), strict=False)
        parsed = IPv6Address(address)
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if parsed.scope_id is not None:
        raise ValueError(f"Could not parse [{address}]")
    if parsed.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return 6, int(network.network_address), int(network.broadcast_address)


@lru_cache(maxsize=4_096)
def _parsed_address(host: str) -> tuple[int, int] | None:
    try:
        address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return address.version, int(address)
