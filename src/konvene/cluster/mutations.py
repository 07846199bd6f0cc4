"""Counts the partitions that one request creates or deletes, within its client's quota (KIP-599)."""

from __future__ import annotations

from konvene.errors import MESSAGES, Errors
from konvene.shard.contract import Context, Mutations
from konvene.shard.errors import ClusterError

__all__ = ["MutationCounter"]


class MutationCounter:
    """The partitions that a request has created or deleted so far, and those that the quota prevented."""

    __slots__ = ("_accepted", "_rejected", "_tokens")

    def __init__(self, context: Context) -> None:
        self._tokens = context.mutation_tokens
        self._accepted = self._rejected = 0

    def __repr__(self) -> str:
        return f"<{self._accepted} partitions changed, {self._rejected} rejected>"

    def count(self, partitions: int) -> None:
        """Count partitions. Raises `ClusterError` if the quota was exhausted before."""
        if self._tokens is not None:
            if self._tokens < 0:
                self._rejected += partitions
                error = Errors.THROTTLING_QUOTA_EXCEEDED
                raise ClusterError(error, MESSAGES[error])
            self._tokens -= partitions
        self._accepted += partitions

    @property
    def mutations(self) -> Mutations:
        return Mutations(self._accepted, self._rejected)
