"""The assignors of share groups.

The contract is that of consumer groups, except that a partition may be assigned to several members.

    name     result                                                                   compared with Kafka's
    simple   balanced, sticky; each topic separately if subscriptions differ          same rules
    spread   few members per partition; balanced over all topics, rack-aware, sticky  Kafka has none

`group.share.assignors` selects one; Kafka's class name of `simple` is accepted as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from konvene.groups.assignors.contract import Assignor
from konvene.groups.assignors.share import simple, spread
from konvene.shard.contract import Context

SHARE_ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {row.name: row for row in (Assignor("simple", simple.assign), Assignor("spread", spread.assign))}
)
"""Assignors by name, the default first."""


def assignor_of(context: Context) -> Assignor:
    """Return the assignor that `group.share.assignors` selects."""
    name = context.config["group.share.assignors"][0]
    return SHARE_ASSIGNORS.get(name) or next(iter(SHARE_ASSIGNORS.values()))
