"""The server-side assignors of consumer groups (KIP-848).

Each is a module, and a row of the table here. `contract` defines their input and output; the tests in
`tests/groups/assignors` check every row against the same invariants. Third-party assignors are loaded by
`konvene.broker.groups.assignors`, since the core imports no module by a configured name.

    name         result                                               compared with Kafka's
    uniform      balanced, sticky                                     same algorithm, members ordered by name
    range        each topic in contiguous ranges, members by name     identical
    rack-aware   balanced, then rack-local, then sticky               Kafka has none
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
"""The built-in assignors, the default first."""

OFFERED: Final[Mapping[str, Assignor]] = MappingProxyType(
    {name: ASSIGNORS[name] for name in ("uniform", "range")}
)
"""The assignors that are enabled by default, as in Kafka."""
