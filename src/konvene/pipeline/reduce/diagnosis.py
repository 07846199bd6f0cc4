"""The causes of a rebalance: from the audit if it has a row, otherwise inferred from the log; with the
evidence.

An audit row counts if it is about the same group and epoch, explains the record that bumped the epoch, and
was not itself inferred from the log. Its causes are observed. All others are inferred, by `groups.history`.

A log shows that a member departed but not how. So a departure has all possible causes, in the order of
`member-left|session-expired|rebalance-timeout|sync-timeout`; a removal by an administrator counts as leaving.
A cause is excluded if it is impossible, provided that one clock wrote all times:

    session-expired     impossible for a classic member before its session timeout has passed since it was
                        last seen for certain: when its generation was created, unless it is static (it may
                        have been absent then), or its last record in a consumer group. No log has the
                        timeout of the other protocols.
    rebalance-timeout   for a classic group only if the rebalance can have lasted as long as the shortest
                        rebalance timeout of its members, and the member was not static; for the other groups
                        only if the member had to revoke units, or speaks the classic protocol, for that long
    sync-timeout        only for members of the classic protocol, once the rebalance timeout above has
                        passed; for a classic group not after more than four times the longest rebalance
                        timeout of its members

Timers may be late and are never early, so only lower bounds are used, except for the last rule: a generation
waits once for its members' SyncGroup, from its start, and the rebalance after it lasts as long at most.
Neither is assumed to be late by more than its own length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, NotRequired, TypedDict

from konvene.pipeline.reduce.position import INFERRED, MISSING, NOT_KNOWN, OBSERVED
from konvene.records.audit import Cause, RebalanceValue
from konvene.records.classic import GroupMetadataValue, MemberMetadata
from konvene.shard import causes

__all__ = [
    "UNKNOWN_DIAGNOSIS",
    "Audit",
    "AuditMember",
    "AuditRow",
    "CauseRow",
    "Diagnosis",
    "cause_row",
    "departure_causes_of_generation",
    "inferred",
    "missing_evidence",
    "observed",
    "possible_departure_causes",
]


class CauseRow(TypedDict):
    """An element of the column `causes`, with the fields of `records.audit.Cause`."""

    kind: str
    at_ms: int
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    reason: str | None
    topic: str | None


class AuditMember(TypedDict):
    """An element of the column `members` of `audit_event`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    joined_ms: int


class AuditRow(TypedDict):
    """A row of `audit_event`, whose columns `konvene.pipeline.tables.audit_event` documents."""

    cluster: str
    audit_partition: int
    audit_offset: int
    timestamp_ms: int
    group_id: str
    group_type: str
    epoch: int
    state: str
    started_ms: int
    joined_ms: int
    ended_ms: int
    partition: int
    base_offset: int
    last_offset: int
    inferred: bool
    protocol: str | None
    leader: str | None
    causes: list[CauseRow]
    causes_left_out: int
    members: list[AuditMember]
    members_left_out: int
    moved: list[int]
    session_timeout_ms: NotRequired[int]
    """Absent in the tables of earlier releases."""


LEFT, EXPIRED = causes.MEMBER_LEFT, causes.SESSION_EXPIRED
TIMED_OUT, NO_SYNC = causes.REBALANCE_TIMEOUT, causes.SYNC_TIMEOUT
ANY_DEPARTURE = "|".join((LEFT, EXPIRED, TIMED_OUT, NO_SYNC))


class Diagnosis(NamedTuple):
    """The causes of a rebalance, strongest first, and the evidence for them."""

    causes: tuple[CauseRow, ...]
    left_out: int
    evidence: str
    audit_offset: int = -1
    """Offset of the audit row, if there is one."""
    session_timeout_ms: int = NOT_KNOWN
    """Session timeout that the audit row has."""

    @property
    def kind(self) -> str:
        return self.causes[0]["kind"] if self.causes else causes.UNKNOWN


UNKNOWN_DIAGNOSIS = Diagnosis((), 0, MISSING)


def observed(row: AuditRow) -> Diagnosis:
    """Return the diagnosis that an audit row contains."""
    return Diagnosis(
        tuple(row["causes"]),
        row["causes_left_out"],
        OBSERVED,
        row["audit_offset"],
        row.get("session_timeout_ms", NOT_KNOWN),
    )


def inferred(row: RebalanceValue, departures: Mapping[str, str]) -> Diagnosis:
    """Return the diagnosis that the log implies.

    `departures` are the possible departure causes by member id, as `possible_departure_causes` returns
    them."""
    return Diagnosis(tuple(_as_row(c, departures) for c in row.causes), row.causes_left_out, INFERRED)


def _as_row(cause: Cause, departures: Mapping[str, str]) -> CauseRow:
    row = cause_row(cause)
    if cause.kind == causes.MEMBER_DEPARTED:
        unknown = f"{LEFT}|{EXPIRED}" if cause.member_id is not None else ANY_DEPARTURE
        row["kind"] = departures.get(cause.member_id or "", unknown)
    return row


def cause_row(cause: Cause) -> CauseRow:
    return {
        "kind": cause.kind, "at_ms": cause.at_ms, "member_id": cause.member_id,
        "instance_id": cause.instance_id, "client_id": cause.client_id, "client_host": cause.client_host,
        "reason": cause.reason, "topic": cause.topic,
    }  # fmt: skip


# --- the audit -------------------------------------------------------------------------------------


class Audit:
    """Index of the audit rows of one log partition that were not inferred from its log.

    Each lookup removes the rows that it returns."""

    def __init__(self, rows: Iterable[AuditRow]) -> None:
        self._rows: dict[str, dict[int, list[AuditRow]]] = {}
        self.add(rows)

    def __repr__(self) -> str:
        return f"<audit of {len(self._rows)} groups>"

    def add(self, rows: Iterable[AuditRow]) -> None:
        """Add rows that follow the known ones in the audit topic; rows inferred from the log are ignored."""
        for row in rows:
            if not row["inferred"]:
                self._rows.setdefault(row["group_id"], {}).setdefault(row["epoch"], []).append(row)

    def of(self, group_id: str, epoch: int, offset: int, *, completed: bool = False) -> AuditRow | None:
        """Remove and return the row that explains a record, or None.

        With `completed` it is the row that reports the end of the rebalance."""
        epochs = self._rows.get(group_id)
        if epochs is None:
            return None
        candidates = epochs.get(epoch, [])
        for row in candidates:
            if row["base_offset"] <= offset <= row["last_offset"] and _reports_completion(row) is completed:
                candidates.remove(row)
                self._delete_if_empty(group_id, epoch)
                return row
        return None

    def lost(self, group_id: str, first: int, last: int, offset: int) -> list[AuditRow]:
        """Remove and return the rows about these epochs, up to `offset`, whose records are lost or were never
        written.

        A decision that ends two generations leaves a record of the last one only, and two audit rows."""
        epochs = self._rows.get(group_id, {})
        found = []
        for epoch in sorted(e for e in epochs if first <= e <= last):
            candidates = [
                r for r in epochs[epoch] if r["base_offset"] <= offset and not _reports_completion(r)
            ]
            found += candidates[:1]
            epochs[epoch] = [r for r in epochs[epoch] if r["base_offset"] > offset]
            self._delete_if_empty(group_id, epoch)
        return found

    def unwritten(self, group_id: str, ms: int) -> list[AuditRow]:
        """Remove and return the rows up to `ms` about generations that left no record.

        Each was superseded before it was stored, and its number may be reused after a crash."""
        epochs = self._rows.get(group_id, {})
        found = [
            (row["audit_offset"], epoch, row)
            for epoch, candidates in epochs.items()
            for row in candidates
            if row["base_offset"] < 0 and row["ended_ms"] <= ms
        ]
        found.sort(key=lambda each: each[0])
        for _, epoch, row in found:
            epochs[epoch].remove(row)
            self._delete_if_empty(group_id, epoch)
        return [row for _, _, row in found]

    def _delete_if_empty(self, group_id: str, epoch: int) -> None:
        epochs = self._rows[group_id]
        if not epochs[epoch]:
            del epochs[epoch]
        if not epochs:
            del self._rows[group_id]


def _reports_completion(row: AuditRow) -> bool:
    """Return True for the second audit row of an epoch, which reports that all members have converged."""
    return row["group_type"] != "classic" and row["state"] not in ("Assigning", "Empty")


# --- departures of members --------------------------------------------------------------------


def possible_departure_causes(
    *, session_timeout_ms: int = NOT_KNOWN, rebalance_timeout_ms: int = NOT_KNOWN, seen_ms: int = NOT_KNOWN,
    absent_ms: int, may_time_out: bool, may_miss_sync: bool,
) -> str:  # fmt: skip
    """Return the causes, joined by `|`, that can explain a member last seen at `seen_ms` and absent at
    `absent_ms`.

    `may_time_out` and `may_miss_sync`: whether a rebalance waited for the member to revoke or rejoin, and for
    its SyncGroup."""
    since_ms = absent_ms - seen_ms if seen_ms >= 0 else None
    found = [LEFT]
    if session_timeout_ms < 0 or since_ms is None or since_ms >= session_timeout_ms:
        found.append(EXPIRED)
    timeout_passed = since_ms is None or since_ms >= rebalance_timeout_ms
    if may_time_out and timeout_passed:
        found.append(TIMED_OUT)
    if may_miss_sync and timeout_passed:
        found.append(NO_SYNC)
    return "|".join(found)


def departure_causes_of_generation(
    previous: GroupMetadataValue, generation_ms: int, absent_ms: int, members: Iterable[MemberMetadata],
    generations: int = 1,
) -> dict[str, str]:  # fmt: skip
    """Return the possible causes for members of a stored classic generation that are not in the next one.

    `generation_ms`: when all members had joined the generation; `absent_ms`: when all had joined the next
    one; `generations`: by how much its number is larger. Each of those in between waited for a SyncGroup."""
    timeouts_ms = [_rebalance_timeout_ms(m) for m in (*previous.members, *members)]
    shortest_ms, longest_ms = min(timeouts_ms, default=NOT_KNOWN), max(timeouts_ms, default=NOT_KNOWN)
    return {
        m.member_id: possible_departure_causes(
            session_timeout_ms=m.session_timeout if m.group_instance_id is None else NOT_KNOWN,
            rebalance_timeout_ms=shortest_ms,
            seen_ms=generation_ms,
            absent_ms=absent_ms,
            may_time_out=m.group_instance_id is None,
            may_miss_sync=generations > 1 or generation_ms < 0 or absent_ms - generation_ms <= 4 * longest_ms,
        )
        for m in previous.members
    }


def _rebalance_timeout_ms(member: MemberMetadata) -> int:
    """Return the rebalance timeout; version 0 of the record has none, and its session timeout is used
    instead."""
    return member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout


# --- missing evidence ------------------------------------------------------------------------------

_THE_AUDIT = (
    "A konvene broker records it in __konvene_audit (konvene.audit.enable=true); Apache Kafka writes it to "
    "the "
    "coordinator's application log at level INFO"
)
MISSING_EVIDENCE = {
    causes.MEMBER_DEPARTED: f"How a member departed. {_THE_AUDIT}.",
    causes.LEADER_REJOINED: f"Why a member rejoined, and which one. {_THE_AUDIT}.",
    causes.UNKNOWN: "The remaining records do not contain the cause. " + _THE_AUDIT + "; a log that is "
    "read before compaction contains more.",
    causes.WARMUP_CAUGHT_UP: "That a warm-up task caught up. No log records the progress of tasks: this "
    "is the "
    "remaining cause if nothing else bumped the epoch of a group with a warm-up task. " + _THE_AUDIT + ".",
    causes.TOPIC_METADATA_CHANGED: "Which topic changed is not in the group's records, which contain one "
    "hash "
    "of all. The log __cluster_metadata records when topics were created, extended and deleted.",
}
"""By cause: what the log leaves open, and which source has it."""


def missing_evidence(cause: str) -> str | None:
    """Return a text on what a cause leaves open and which source has it; None if it leaves nothing open."""
    if causes.LEADER_REJOINED in cause.split("|"):
        return MISSING_EVIDENCE[causes.LEADER_REJOINED]
    if "|" in cause or cause == causes.MEMBER_DEPARTED:
        return MISSING_EVIDENCE[causes.MEMBER_DEPARTED]
    return MISSING_EVIDENCE.get(cause)
