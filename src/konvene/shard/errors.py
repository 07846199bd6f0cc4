"""How a core refuses: by raising, and only while nothing has changed.

A refusal knows its wire code; the handler that called the core answers with it. An error with
consequences (a heartbeat that is answered REBALANCE_IN_PROGRESS still keeps its session alive) is no
refusal but an outcome whose reply carries the code.
"""

from __future__ import annotations

from konvene.errors import Errors


class Refusal(Exception):
    """A request that is refused as a whole, leaving no trace."""

    def __init__(self, error: Errors, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class GroupError(Refusal):
    """Refused by a group coordinator."""


class TransactionError(Refusal):
    """Refused by a transaction coordinator."""


class ClusterError(Refusal):
    """Refused by the catalogue of topics, configs and features."""
