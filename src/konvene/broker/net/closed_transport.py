"""The transport of closed connections.

The transport of a TLS connection refers to the connection. A closed connection refers to this one instead, so
that both are freed at once, without the garbage collector.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["CLOSED"]


class _ClosedTransport(asyncio.Transport):
    """The transport of all closed connections: discards what is written."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: object) -> None:
        pass

    def writelines(self, list_of_data: object) -> None:
        pass

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close


CLOSED: Final = _ClosedTransport()
