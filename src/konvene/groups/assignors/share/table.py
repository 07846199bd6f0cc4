"""Who reads which partition of a share group: the assignors on offer.

The contract is that of consumer groups, but for one thing: a partition may be given to many.

    name         answer                                                             as Kafka's
    simple       balanced, sticky; each topic for itself where members differ       same rules
    spread       few members at a partition; even over all topics, near, sticky     Kafka has none

`group.share.assignors` names one. Kafka's class name of `simple` is understood, too.
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
"""By name, the default first."""


def assignor_of(context: Context) -> Assignor:
    """That of `group.share.assignors`."""
    name = context.config["group.share.assignors"][0]
    return SHARE_ASSIGNORS.get(name) or next(iter(SHARE_ASSIGNORS.values()))
