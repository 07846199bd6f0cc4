"""Why a rebalance came: from the audit where it says so, else from what the log proves; and how sure that is.

A row of the audit counts where it is about the same group and epoch, explains the record that raised it, and
was not itself derived from the log. Its causes are observed. All others are inferred, by `groups.history`.

A log shows that a member is gone and not how. So `member-gone` becomes all that it can have been, in the
order of `member-left|session-expired|rebalance-timeout|sync-timeout`. To be taken out by an administrator is
to leave. What is left out is impossible, as long as one clock goes on:

    session-expired     a classic member cannot lose its session before its session timeout is over since it
                        was last heard of for sure: when its generation was made, unless it is static (then it
                        may have been absent), or with its last record in a consumer group. What the timeout
                        of the other protocols is, no log says.
    rebalance-timeout   of a classic group, only if the rebalance can have lasted as long as the shortest one
                        of its members', and the member was not static; of one that assigns, only if the
                        member owed a revocation, or speaks the classic protocol, for that long
    sync-timeout        only of who speaks the classic protocol, after so long as well; of a classic group,
                        not after more than four times the longest one of its members'

Timers may be late and never early, so lower bounds are all that is used but for that last one: a generation
waits for its members to ask for their assignment once, from its beginning on, and the rebalance behind it
lasts as long at most. It is taken that neither is late by more than it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from konvene.pipeline.reduce.position import INFERRED, MISSING, NOT_KNOWN, OBSERVED
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.classic import GroupMetadataValue, MemberMetadata
from konvene.shard import causes

__all__ = [
    "NOTHING_KNOWN",
    "Audit",
    "Why",
    "inferred",
    "observed",
    "ways_from_generation",
    "ways_to_go",
    "what_would_settle",
]

CauseRow = dict[str, Any]
"""A value of the column `causes`."""

LEFT, EXPIRED = causes.MEMBER_LEFT, causes.SESSION_EXPIRED
LATE, NO_SYNC = causes.REBALANCE_TIMEOUT, causes.SYNC_TIMEOUT

_FIELDS = ("kind", "at_ms", "member_id", "instance_id", "client_id", "client_host", "reason", "topic")


class Why(NamedTuple):
    """The causes of a rebalance, strongest first."""

    causes: tuple[CauseRow, ...]
    left_out: int
    evidence: str
    audit_offset: int = -1
    """Where the audit says so."""

    @property
    def kind(self) -> str:
        return str(self.causes[0]["kind"]) if self.causes else causes.UNKNOWN


NOTHING_KNOWN = Why((), 0, MISSING)


def observed(row: Mapping[str, Any]) -> Why:
    """What a row of the audit says."""
    told = tuple({name: each[name] for name in _FIELDS} for each in row["causes"])
    return Why(told, row["causes_left_out"], OBSERVED, row["audit_offset"])


def inferred(row: RebalanceValue, ways: Mapping[str, str]) -> Why:
    """What the log says; `ways` are those in which members may have gone, by member id."""
    return Why(tuple(_as_row(c, ways) for c in row.causes), row.causes_left_out, INFERRED)


def _as_row(cause: Cause, ways: Mapping[str, str]) -> CauseRow:
    told: CauseRow = {name: getattr(cause, name) for name in _FIELDS}
    if cause.kind == causes.MEMBER_DEPARTED:
        told["kind"] = ways.get(cause.member_id or "", f"{LEFT}|{EXPIRED}")
    return told


# --- the audit -------------------------------------------------------------------------------------


class Audit:
    """The rows about one partition that were not derived from its log. Each is found once."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
        self.add(rows)

    def __repr__(self) -> str:
        return f"<audit of {len(self._rows)} groups>"

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows that stand behind those that are known."""
        for row in rows:
            if not row["inferred"]:
                self._rows.setdefault(row["group_id"], {}).setdefault(row["epoch"], []).append(row)

    def of(self, group_id: str, epoch: int, offset: int, *, over: bool = False) -> Mapping[str, Any] | None:
        """The row that explains a record; `over`: the one that says that the rebalance was."""
        epochs = self._rows.get(group_id)
        if epochs is None:
            return None
        some = epochs.get(epoch, [])
        for row in some:
            if row["base_offset"] <= offset <= row["last_offset"] and _is_over(row) is over:
                some.remove(row)
                self._tidy(group_id, epoch)
                return row
        return None

    def lost(self, group_id: str, first: int, last: int, offset: int) -> list[Mapping[str, Any]]:
        """Rows about epochs whose records are gone, or that left none, up to this record.

        A decision that ends two generations leaves a record of the last one alone, and two rows."""
        epochs = self._rows.get(group_id, {})
        found = []
        for epoch in sorted(e for e in epochs if first <= e <= last):
            some = [r for r in epochs[epoch] if r["base_offset"] <= offset and not _is_over(r)]
            found += some[:1]
            epochs[epoch] = [r for r in epochs[epoch] if r["base_offset"] > offset]
            self._tidy(group_id, epoch)
        return found

    def unwritten(self, group_id: str, ms: int) -> list[Mapping[str, Any]]:
        """Rows about generations that left no record, up to a time: each was superseded before it was stored,
        and its number may come again after a crash."""
        epochs = self._rows.get(group_id, {})
        found = [
            (row["audit_offset"], epoch, row)
            for epoch, some in epochs.items()
            for row in some
            if row["base_offset"] < 0 and row["ended_ms"] <= ms
        ]
        found.sort(key=lambda each: each[0])
        for _, epoch, row in found:
            epochs[epoch].remove(row)
            self._tidy(group_id, epoch)
        return [row for _, _, row in found]

    def _tidy(self, group_id: str, epoch: int) -> None:
        epochs = self._rows[group_id]
        if not epochs[epoch]:
            del epochs[epoch]
        if not epochs:
            del self._rows[group_id]


def _is_over(row: Mapping[str, Any]) -> bool:
    """Whether it is the second row of an epoch, which says that all members have followed."""
    return row["group_type"] != "classic" and row["state"] not in ("Assigning", "Empty")


# --- how a member may have gone --------------------------------------------------------------------


def ways_to_go(
    *, session_timeout_ms: int = NOT_KNOWN, rebalance_timeout_ms: int = NOT_KNOWN, heard_ms: int = NOT_KNOWN,
    gone_ms: int, may_be_late: bool, may_not_sync: bool,
) -> str:  # fmt: skip
    """In what ways a member may have gone until a time, that was heard of for sure at another.

    `may_be_late`, `may_not_sync`: whether a rebalance waits for it at all."""
    since_ms = gone_ms - heard_ms if heard_ms >= 0 else None
    ways = [LEFT]
    if session_timeout_ms < 0 or since_ms is None or since_ms >= session_timeout_ms:
        ways.append(EXPIRED)
    is_long = since_ms is None or since_ms >= rebalance_timeout_ms
    if may_be_late and is_long:
        ways.append(LATE)
    if may_not_sync and is_long:
        ways.append(NO_SYNC)
    return "|".join(ways)


def ways_from_generation(
    previous: GroupMetadataValue, made_ms: int, gone_ms: int, members: Iterable[MemberMetadata]
) -> dict[str, str]:
    """The same of a classic group's members: who was in a generation, and in the next one not any more.

    `made_ms`: when all had joined the generation; `gone_ms`: when all had joined the next."""
    patience = [_patience(m) for m in (*previous.members, *members)]
    shortest_ms, longest_ms = min(patience, default=NOT_KNOWN), max(patience, default=NOT_KNOWN)
    return {
        m.member_id: ways_to_go(
            session_timeout_ms=m.session_timeout if m.group_instance_id is None else NOT_KNOWN,
            rebalance_timeout_ms=shortest_ms,
            heard_ms=made_ms,
            gone_ms=gone_ms,
            may_be_late=m.group_instance_id is None,
            may_not_sync=made_ms < 0 or gone_ms - made_ms <= 4 * longest_ms,
        )
        for m in previous.members
    }


def _patience(member: MemberMetadata) -> int:
    """Version 0 of the record has no rebalance timeout: the session's stands for it."""
    return member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout


# --- what would tell -------------------------------------------------------------------------------

_THE_AUDIT = (
    "A broker of konvene writes it to __konvene_audit (konvene.audit.enable=true) when it happens; Apache "
    "Kafka says it in the coordinator's log at level INFO"
)
SETTLES = {
    causes.MEMBER_DEPARTED: f"How a member went. {_THE_AUDIT}.",
    causes.UNKNOWN: "What happened is not in the records that are left. " + _THE_AUDIT + "; a log that is "
    "read before it is compacted says more.",
    causes.WARMUP_CAUGHT_UP: "That a warm-up had caught up. No log says how far tasks are: it is what is "
    "left where nothing else moved the epoch of a group in which a task warms up. " + _THE_AUDIT + ".",
    causes.TOPIC_METADATA_CHANGED: "Which topic changed is not in the group's records, for they hold a hash "
    "of all. The log __cluster_metadata says when topics were made, grew and went.",
}
"""By cause: what the log leaves open, and who says it."""


def what_would_settle(cause: str) -> str | None:
    """What would tell what a cause leaves open, in a sentence; None where it leaves nothing open."""
    if "|" in cause or cause == causes.MEMBER_DEPARTED:
        return SETTLES[causes.MEMBER_DEPARTED]
    return SETTLES.get(cause)
