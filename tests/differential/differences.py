"""Where konvene is known to answer otherwise than Kafka, and why that is meant.

Each row quotes a sentence of `docs/differences.md`. A difference that no row covers is a mistake; so is a row
without its sentence, or one that no conversation needs.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """What Kafka answered and konvene does not, and the other way about: patterns of whole lines."""

    sentence: str
    kafka: str
    konvene: str


KNOWN = (
    Known(
        "A member's older JoinGroup that still waits is answered REBALANCE_IN_PROGRESS when the member joins "
        "again on another connection. So is its older SyncGroup.",
        "",
        r"\S+ <- (JoinGroup|SyncGroup) v\d REBALANCE_IN_PROGRESS .*",
    ),
    Known(
        "A member that waits for its assignment and is removed is answered UNKNOWN_MEMBER_ID.",
        "",
        r"(\S+ <- SyncGroup v\d UNKNOWN_MEMBER_ID .*\n?)+",
    ),
    Known(
        "A member id that would be longer than 32767 bytes is refused, and the group stays as it was.",
        r"admin <- DescribeGroups v6 groups=\[\{UNKNOWN_SERVER_ERROR .*",
        r"admin <- DescribeGroups v6 groups=\[\{GROUP_ID_NOT_FOUND .*",
    ),
)


MET: set[Known] = set()
"""The rows that were needed."""


def meant(kafka: list[str], konvene: list[str]) -> bool:
    """Whether a row covers what is different between two lists of answers."""
    there = "\n".join(a for a in kafka if a not in konvene)
    here = "\n".join(a for a in konvene if a not in kafka)
    rows = {row for row in KNOWN if re.fullmatch(row.kafka, there) and re.fullmatch(row.konvene, here)}
    MET.update(rows)
    return bool(rows)
