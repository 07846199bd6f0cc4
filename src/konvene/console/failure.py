"""The failure of a request, as the page shows it."""

from __future__ import annotations

__all__ = ["Failure"]


class Failure(Exception):
    """A request failed: the HTTP status, a sentence that explains it, and a hint on what to do."""

    def __init__(self, status: int, error: str, hint: str | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
