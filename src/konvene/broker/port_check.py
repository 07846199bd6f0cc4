"""Checks whether a port can be bound, before anything is written for a process that needs it."""

from __future__ import annotations

import errno
import socket

__all__ = ["bind_error"]


def bind_error(host: str, port: int | None) -> OSError | None:
    """Return the error if the port is in use or reserved.

    Other errors are left to the listener, which binds the port when the logs are open."""
    if port is None or port <= 0:
        return None
    try:
        found = socket.getaddrinfo(
            "127.0.0.1" if host == "localhost" else host or None,
            port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE,
        )  # fmt: skip
    except OSError:
        return None
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(where)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return error
    return None
