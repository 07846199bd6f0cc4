"""Who gets which partition of a consumer group, where the coordinator decides it (KIP-848).

One file, one assignor, one row in the table. `contract` says what it is given and what it gives; the tests in
`tests/groups/assignors` hold every row to the same promises. Assignors of others are loaded by
`konvene.broker.groups.assignors`, for finding modules is no business of a core.

    name         answer                                                    as Kafka's
    uniform      balanced, sticky                                          same algorithm, members by name
    range        each topic cut in pieces, in the order of names           exactly
    rack-aware   as balanced, then near, then sticky                       Kafka has none
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from konvene.groups.assignors import rack_aware, range
from konvene.groups.assignors.contract import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    PartitionAssignorError,
    SubscriptionType,
    TopicSpec,
    checked,
    each_once,
    subscription_type,
)
from konvene.groups.assignors.uniform import assignor

__all__ = [
    "ASSIGNORS",
    "OFFERED",
    "Assignor",
    "GroupAssignment",
    "GroupSpec",
    "MemberAssignment",
    "MemberSpec",
    "PartitionAssignorError",
    "SubscriptionType",
    "TopicSpec",
    "checked",
    "each_once",
    "subscription_type",
]

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Assignor("uniform", assignor.assign),
            Assignor("range", range.assign),
            Assignor("rack-aware", rack_aware.assign),
        )
    }
)
"""The built-in ones, the default first."""

OFFERED: Final[Mapping[str, Assignor]] = MappingProxyType(
    {name: ASSIGNORS[name] for name in ("uniform", "range")}
)
"""Those on offer where nobody says otherwise, as with Kafka."""
