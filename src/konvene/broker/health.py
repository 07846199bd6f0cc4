"""Reports whether a broker is ready to serve clients; `/health/ready` of the metrics port answers with it.

A broker is ready while it listens, its log directory is open, and its coordinators have read their logs.
A partition whose log is damaged does not count, nor does its coordinator: the broker serves the others, and
the metric `num-partitions` counts the failed ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.net.socket_server import SocketServer


class Health:
    """The readiness of one broker."""

    def __init__(self, broker: Broker, server: SocketServer) -> None:
        self._broker = broker
        self._server = server
        self.stopping = False

    def __repr__(self) -> str:
        return f"<health: {'; '.join(self.reasons()) or 'ready'}>"

    def reasons(self) -> list[str]:
        """Return why the broker is not ready; empty if it is."""
        if self.stopping:
            return ["the broker is stopping"]
        reasons = []
        failure = self._broker.directory.health.failure
        if failure is not None:
            reasons.append(f"the log directory is offline: {failure}")
        if not self._server.is_listening:
            reasons.append("the listener is closed")
        loading = Counter(
            noun
            for noun, coordinators in (
                ("group", self._broker.groups),
                ("transaction", self._broker.transactions),
                ("share", self._broker.share_coordinators),
            )
            for coordinator in coordinators.all()
            if coordinator.state == "loading"
        )
        reasons += [f"{count} {noun} coordinators are loading their logs" for noun, count in loading.items()]
        return reasons
