"""The views of the console: each builds its sections from a `ClusterWatch`.

A view is a set of sections; a section maps keys to JSON values. `konvene.console.live` sends the whole
first and then what changes. `VIEWS` has the views by the name in the request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from konvene.console.views.group import GroupView
from konvene.console.views.groups import GroupsView
from konvene.console.views.rebalance import RebalanceView
from konvene.console.views.topic import TopicView
from konvene.console.views.topics import TopicsView
from konvene.console.views.view import Sections, UnknownView, View

__all__ = ["VIEWS", "Sections", "UnknownView", "View"]

VIEWS: Mapping[str, type[View]] = MappingProxyType(
    {
        "groups": GroupsView,
        "group": GroupView,
        "rebalance": RebalanceView,
        "topics": TopicsView,
        "topic": TopicView,
    }
)
