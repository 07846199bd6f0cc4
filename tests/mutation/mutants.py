"""All planted bugs, in one table: plausible mistakes that users would notice.

It has no changes without effect, no changes that fail at import, and none that only cost time.
"""

from __future__ import annotations

from tests.mutation.consumers import CONSUMERS
from tests.mutation.membership import MEMBERSHIP
from tests.mutation.memory import MEMORY
from tests.mutation.mutant import Mutant
from tests.mutation.offsets import OFFSETS_OF_GROUPS
from tests.mutation.racks import RACKS
from tests.mutation.rebalances import REBALANCES
from tests.mutation.runtime import RUNTIME
from tests.mutation.security import SECURITY
from tests.mutation.share import SHARE_GROUPS
from tests.mutation.storage import STORAGE
from tests.mutation.streams import STREAMS
from tests.mutation.streams_migration import STREAMS_MIGRATION
from tests.mutation.transactions import TRANSACTIONS_OF_MEMBERS
from tests.mutation.warmups import WARMUPS

MUTANTS: tuple[Mutant, ...] = (
    *MEMBERSHIP, *REBALANCES, *MEMORY, *OFFSETS_OF_GROUPS, *RUNTIME, *STORAGE, *CONSUMERS, *STREAMS, *RACKS,
    *TRANSACTIONS_OF_MEMBERS, *SHARE_GROUPS, *WARMUPS,
    *STREAMS_MIGRATION, *SECURITY,
)  # fmt: skip

INVARIANTS = frozenset(
    f"{letters}{number}"
    for letters, first, last in (
        ("G", 1, 12),
        ("C", 1, 5),
        ("ST", 1, 8),
        ("O", 1, 7),
        ("L", 3, 7),
        ("M", 1, 15),
        ("MG", 1, 5),
        ("L", 1, 1),
        ("T", 1, 16),
        ("TX", 1, 7),
        ("SH", 1, 15),
        ("SE", 1, 5),
    )
    for number in range(first, last + 1)
)
"""The invariants by their numbers: log and state, classic groups, static members, offsets, liveness;
consumer groups, migration, streams groups, transactions, share groups; security."""

KNOWN_BUGS = frozenset(
    {
        "KAFKA-8069", "KAFKA-8220", "KAFKA-8500", "KAFKA-9752", "KAFKA-9801", "KAFKA-9844", "KAFKA-10284",
        "KAFKA-12890", "KAFKA-13435", "KAFKA-13636", "KAFKA-14009", "KAFKA-14201", "KAFKA-15981",
        "KAFKA-16030", "KAFKA-16663", "KAFKA-17306", "KAFKA-18263", "KAFKA-20254", "Redpanda#17260",
        "KAFKA-12984", "KAFKA-16147", "KAFKA-16152", "KAFKA-16249", "KAFKA-16367", "KAFKA-16861",
        "KAFKA-17228", "KAFKA-17317", "KAFKA-19147", "KAFKA-19233", "KAFKA-19720", "KAFKA-19862",
        "KAFKA-16371", "KAFKA-19163", "Redpanda-CORE-16998", "Redpanda-CORE-17000",
        "KAFKA-20066", "KAFKA-20442", "KAFKA-21117", "KAFKA-PR-23542", "kfake-0013f780", "kfake-007d8635",
        "kfake-ac7d0fb8", "KAFKA-19256", "KAFKA-19521", "KAFKA-19661", "KAFKA-20169",
    }
)  # fmt: skip
"""Bugs of other brokers, by their number there, that rows bring back."""
