"""Determines the address that responses name for clients to connect to (`advertised.listeners`).

A broker that listens on all addresses cannot advertise the one that it listens on: no client can connect to
0.0.0.0. Without a setting it advertises, in this order:

1. its host name, if that resolves here to an address that is not this machine's loopback address;
2. the address from which packets to other machines leave. The kernel selects it when a UDP socket is
   connected; nothing is sent.

Otherwise the broker does not start. Limitation: whether a client can resolve the host name, or reach the
address through a container's network or a NAT, cannot be known here.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

__all__ = ["WILDCARDS", "NoReachableAddress", "parse_advertised", "reachable_host", "shown"]

WILDCARDS: Final = ("", "0.0.0.0", "::")
"""Hosts that mean "all addresses": a broker may listen on them and cannot advertise them."""

IPV4, IPV6 = socket.AF_INET, socket.AF_INET6

_OTHER_MACHINES: Final = ((IPV4, "192.0.2.1"), (IPV6, "2001:db8::1"))
"""Addresses of the networks for documentation, which are routed as any other machine's."""

_ANY_PORT: Final = 9


class NoReachableAddress(Exception):
    """No address of this machine is known that other machines can connect to."""


def parse_advertised(text: str, default_port: int) -> tuple[str, int]:
    """Return host and port of `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`. Raises ValueError."""
    host, separator, port_text = text.strip(), "", ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text}: write [IPV6]:PORT")
        separator, port_text = rest[:1], rest[1:]
    elif host.count(":") == 1:
        host, separator, port_text = host.partition(":")
    elif ":" in host:
        raise ValueError(f"{text}: write an IPv6 address in brackets, as [{host}]:{default_port}")
    port = default_port
    if separator:
        if not (port_text.isascii() and port_text.isdigit() and 1 <= int(port_text) <= 65_535):
            raise ValueError(f"{text}: the port is a number from 1 to 65535")
        port = int(port_text)
    if host in WILDCARDS:
        raise ValueError(
            f"{text}: no client can connect to {host or 'an empty host'}; name a host or an address"
        )
    return host, port


def reachable_host(listening: str) -> str:
    """Return the host that a broker advertises that listens on all addresses (`listening`: a wildcard).

    Raises `NoReachableAddress`."""
    families = (IPV4,) if listening == "0.0.0.0" else (IPV4, IPV6)
    name = socket.gethostname()
    resolved = _addresses(name, families)
    if any(map(_is_reachable, resolved)):
        return name
    for family, other in _OTHER_MACHINES:
        outbound = _outbound_address(family, other) if family in families else None
        if outbound is not None and _is_reachable(outbound):
            return outbound
    resolves_to = f"resolves to {', '.join(sorted(resolved))}" if resolved else "does not resolve"
    raise NoReachableAddress(
        f"the address that clients connect to is not known: the host name {name} {resolves_to}, and there is"
        " no route to other machines; set it with --advertise HOST[:PORT] (or advertised.listeners)"
    )


def shown(host: str, port: int) -> str:
    """Return an address as text: IPv6 in brackets, `*` for all addresses."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def _addresses(name: str, families: tuple[int, ...]) -> set[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(where[0]) for family, _, _, _, where in found if family in families}


def _is_reachable(address: str) -> bool:
    ip = ip_address(address.partition("%")[0])
    return not (ip.is_loopback or ip.is_unspecified or ip.is_link_local)


def _outbound_address(family: socket.AddressFamily, other: str) -> str | None:
    """Return the local address of a UDP socket connected to another machine; None if there is no route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, _ANY_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None
