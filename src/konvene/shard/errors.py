"""How a core rejects a request: by raising, and only while nothing has changed.

A refusal carries its error code of the protocol; the handler that called the core sends it as the response.
An error with consequences (a heartbeat answered with REBALANCE_IN_PROGRESS still extends its session) is not
a refusal but an outcome whose reply carries the code.
"""

from __future__ import annotations

from konvene.errors import Errors


class Refusal(Exception):
    """A request that is rejected as a whole and leaves the state unchanged."""

    def __init__(self, error: Errors, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class GroupError(Refusal):
    """A request rejected by a group coordinator."""


class TransactionError(Refusal):
    """A request rejected by a transaction coordinator."""


class ClusterError(Refusal):
    """A request rejected by the catalogue of topics, configs and features."""
