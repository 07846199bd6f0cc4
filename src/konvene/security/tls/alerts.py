"""Sends the TLS alert of a failed handshake, which is the client's reason why it is not connected.

The event loops close the transport at once when a handshake fails, and discard the alert that OpenSSL has
written. A Java client then connects again and again, where an alert makes it report the reason. Contexts of
this class pass the alert to the function that the task of the handshake has set.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["SEND_ALERT", "AlertingContext"]

SEND_ALERT: ContextVar[Callable[[bytes], object] | None] = ContextVar("SEND_ALERT", default=None)
"""Function that sends bytes to the client of this handshake."""


class _AlertingObject(ssl.SSLObject):
    """A TLS session that sends the alert of its failed handshake."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Continue the handshake. Raises SSLError."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            send, alert = SEND_ALERT.get(), self.outgoing.read()
            if send is not None and alert:
                send(alert)
            raise


class AlertingContext(ssl.SSLContext):
    """A TLS context whose sessions send the alert of a failed handshake."""

    sslobject_class = _AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> Any:
        """Return a TLS session that reads and writes these buffers."""
        session = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(session, _AlertingObject)
        session.outgoing = outgoing
        return session
