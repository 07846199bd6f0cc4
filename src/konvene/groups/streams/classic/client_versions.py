"""Which releases of Kafka Streams say what in the classic protocol, and which of them can change it.

All releases call their protocol `stream`. What tells one from another is the version that their user data
begins with; with `upgrade.from` a release speaks as an older one, and counts as that here.

Only 4.x speaks the streams protocol, and an application changes its protocol by being restarted. So whoever
is older goes two hops: to 4.x with `group.protocol=classic`, then to `streams`. Who is older than 2.4 stops
all its tasks in each rebalance, which 4.x does not do any more: it goes by way of 2.4 to 3.9.
"""

from __future__ import annotations

from typing import Final, NamedTuple

EAGER, COOPERATIVE = "eager", "cooperative"


class Release(NamedTuple):
    """Releases whose user data is of one version."""

    version: int
    releases: str
    rebalances: str
    """Whether all tasks stop in a rebalance (`eager`), or only those that move."""
    news: str
    """What the user data has since then."""


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
"""By version. The last one is that of all releases that speak the streams protocol too."""

BY_VERSION: Final = {row.version: row for row in RELEASES}

FIRST_THAT_MIGRATES: Final = "4.0"
"""The oldest release that may know the streams protocol. Which one an application runs its version does not
tell: 3.2 and 4.4 say the same."""

FIRST_VERSION_THAT_MAY_MIGRATE: Final = RELEASES[-1].version


def release_of(version: int) -> Release | None:
    """Who speaks this version; None for one that is not known."""
    return BY_VERSION.get(version)
