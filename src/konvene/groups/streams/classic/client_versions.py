"""The releases of Kafka Streams by the version of their user data, and how each can be migrated.

All releases name their assignor `stream`; the version at the start of its user data distinguishes them. With
`upgrade.from` a release sends the version of an older one, and is treated as that one here.

Only 4.x supports the streams protocol, and an application changes its protocol by a restart. Older releases
need two rolling restarts: to 4.x with `group.protocol=classic`, then to `group.protocol=streams`. Releases
before 2.4 stop all tasks in each rebalance, which 4.x does not support any more: they go through a release
from 2.4 to 3.9."""

from __future__ import annotations

from typing import Final, NamedTuple

EAGER, COOPERATIVE = "eager", "cooperative"


class Release(NamedTuple):
    """A range of Kafka Streams releases that send the same version of user data."""

    version: int
    releases: str
    rebalances: str
    """Whether a rebalance stops all tasks (`eager`) or only those that move (`cooperative`)."""
    features: str
    """What this version of the user data added."""


RELEASES: Final = (
    Release(1, "0.10.0", EAGER, "process, tasks that ran and standbys"),
    Release(2, "0.10.1 to 1.1", EAGER, "endpoint (application.server)"),
    Release(3, "2.0", EAGER, "latest supported version: version probing"),
    Release(4, "2.1 to 2.3", EAGER, "error code in the assignment"),
    Release(5, "2.4", COOPERATIVE, "topics by a dictionary in the assignment"),
    Release(6, "2.5", COOPERATIVE, "standbys' partitions by host"),
    Release(7, "2.6.0", COOPERATIVE, "offset sums in the place of tasks: warm-ups (KIP-441)"),
    Release(8, "2.6.1 to 2.7", COOPERATIVE, "a field that is changed to force a rebalance"),
    Release(9, "2.8", COOPERATIVE, "error code in the subscription: shutdown of the application (KIP-663)"),
    Release(10, "3.0, 3.1", COOPERATIVE, "named topologies"),
    Release(11, "3.2 to 4.4", COOPERATIVE, "client tags (KIP-708)"),
)
"""By version. The last one includes all releases that support the streams protocol."""

BY_VERSION: Final = {row.version: row for row in RELEASES}

FIRST_MIGRATING_RELEASE: Final = "4.0"
"""The oldest release that may support the streams protocol. The version does not identify the release: 3.2
and 4.4 have the same one."""

FIRST_MIGRATING_VERSION: Final = RELEASES[-1].version


def release_of(version: int) -> Release | None:
    """Return the releases that send this version of user data; None for an unknown version."""
    return BY_VERSION.get(version)
