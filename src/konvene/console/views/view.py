"""The interface of the views, and the facts that all of them have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from konvene.console.watch import ClusterWatch

__all__ = ["Row", "Sections", "UnknownView", "View"]

Row = dict[str, Any]
"""A JSON object."""
Sections = dict[str, dict[str, Any]]
"""JSON values by section and key."""


class UnknownView(ValueError):
    """A request names no view, or lacks an argument of it; the message is for the client."""


class View(ABC):
    """A view for particular arguments. It may keep what is costly to compute from one `build` to the next."""

    arguments: ClassVar[tuple[str, ...]] = ()
    """Names of the required arguments."""
    interval_s: ClassVar[float] = 1.0
    """Time after which the view is built again if the logs do not change."""

    def __init__(self, watch: ClusterWatch, arguments: Mapping[str, str]) -> None:
        self.watch = watch
        self.given = {name: arguments[name] for name in self.arguments}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.given}>"

    @abstractmethod
    async def build(self) -> Sections:
        """Return all sections as of now. Raises `ClientError` if the cluster does not answer."""

    def facts(self, **more: object) -> Row:
        """Return the facts that every view has, and `more`."""
        watch = self.watch
        return {
            "cluster_id": watch.cluster.metadata.cluster_id,
            "bootstrap": watch.bootstrap,
            "logs": watch.tail.state._asdict(),
            "error": None,
            **more,
        }
