"""How a core rejects a request: by raising, and only while nothing has changed.

A refusal carries its error code of the protocol; the handler that called the core sends it as the response.
An error with consequences (a heartbeat answered with REBALANCE_IN_PROGRESS still extends its session) is not
a refusal but an outcome whose reply carries the code.
"""

from __future__ import annotations

from konvene.errors import Errors


class Refusal(Exception):
    """Raised for a request that is rejected as a whole and leaves the state unchanged."""

    def __init__(self, error: Errors, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class GroupError(Refusal):
    """Raised for a request that a group coordinator rejects."""


class TransactionError(Refusal):
    """Raised for a request that a transaction coordinator rejects."""


class ClusterError(Refusal):
    """Raised for a request that the catalogue of topics, configs and features rejects."""
