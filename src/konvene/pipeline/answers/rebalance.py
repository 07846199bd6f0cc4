"""A rebalance as a value: one row of the table `rebalance`, with the table's column names.

`Selection` filters rebalances by group and time. Nothing here reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.row import Row

__all__ = ["Cause", "Rebalance", "Selection", "document"]


class Cause(NamedTuple):
    """An event that triggered a rebalance, and the member concerned."""

    kind: str
    at_ms: int = -1
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str | None = None
    topic: str | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Possible kinds of the event (`konvene.shard.causes`); more than one where the log cannot
        distinguish them."""
        return tuple(self.kind.split("|"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A row of `rebalance`; `konvene.pipeline.tables.rebalance` documents the columns."""

    cluster: str
    group_id: str
    group_type: str
    protocol_type: str | None = None
    from_epoch: int
    to_epoch: int
    state: str
    cause: str
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    reason: str | None
    cause_topic: str | None
    causes: tuple[Cause, ...]
    causes_left_out: int
    evidence: str
    start_ms: int | None
    target_ms: int | None
    end_ms: int | None
    duration_ms: int | None
    converged: bool
    superseded_by: int | None
    members: int
    joined: int
    departed: int
    """Number of members that departed."""
    units: int
    kept: int
    moved: int
    revoked: int
    added: int
    standby_moved: int
    warmup_moved: int
    least_moves: int
    churn_ratio: float | None
    unavailable_ms: int | None
    silent_units: int
    silent_ms: int | None
    """An upper bound."""
    session_timeout_ms: int | None
    last_member_id: str | None
    log_partition: int
    base_offset: int
    last_offset: int
    by_broker_log: bool = False
    """Whether lines of a broker's log contributed to the causes; no column of the table."""
    by_description: bool = False
    """Whether polled descriptions of the group did; no column of the table."""

    @classmethod
    def from_row(cls, row: Row) -> Rebalance:
        """Build a rebalance from a row of the table, converted to a dict."""
        columns = {field: column for column, field in _FIELDS.items()}
        names = (each.name for each in fields(cls) if each.name not in _BY_EVIDENCE)
        values = {name: row[columns.get(name, name)] for name in names}
        known = Cause._fields
        values["causes"] = tuple(
            Cause(**{k: v for k, v in c.items() if k in known}) for c in values["causes"]
        )
        return cls(**values)

    def __repr__(self) -> str:
        return f"<rebalance {self.group_id} {self.from_epoch} → {self.to_epoch}, {self.cause}>"

    @property
    def at_ms(self) -> int:
        """Time at which the rebalance began; if unknown, its first known time; -1 if it has none."""
        for each in (self.start_ms, self.target_ms, self.end_ms):
            if each is not None and each >= 0:
                return each
        return -1

    @property
    def until_ms(self) -> int:
        """Time at which the rebalance ended, as far as that is known."""
        return max(self.at_ms, self.end_ms if self.end_ms is not None else -1)

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Key by which rows of other tables refer to the rebalance: cluster, group id, log partition, base
        offset, epoch."""
        return (self.cluster, self.group_id, self.log_partition, self.base_offset, self.to_epoch)

    @property
    def all_causes(self) -> tuple[Cause, ...]:
        """All causes, at least one: if the list is empty, the cause in the row's own columns."""
        if self.causes:
            return self.causes
        return (
            Cause(
                self.cause, self.at_ms, self.member_id, self.instance_id, self.client_id, self.client_host,
                self.reason, self.cause_topic,
            ),
        )  # fmt: skip

    @property
    def epoch_noun(self) -> str:
        """Noun for what the group counts: generation or epoch."""
        return "generation" if self.group_type == "classic" else "epoch"

    @property
    def unit(self) -> str:
        """Noun for what members are assigned: partition or task. A connector counts as a task, as in Kafka
        Connect."""
        return "task" if self.group_type == "streams" or self.is_connect else "partition"

    @property
    def is_connect(self) -> bool:
        """Return True for the workers of Kafka Connect."""
        return self.protocol_type == "connect"


class Selection(NamedTuple):
    """Filter for rebalances by group and time."""

    groups: tuple[str, ...] = ()
    """Exact group ids; empty for all groups."""
    since_ms: int | None = None
    """Leave out rebalances that ended before."""
    until_ms: int | None = None
    """Leave out rebalances that began later."""
    group_type: str | None = None

    def includes(self, rebalance: Rebalance) -> bool:
        """Return True if the selection includes this rebalance."""
        if self.groups and rebalance.group_id not in self.groups:
            return False
        if self.group_type is not None and rebalance.group_type != self.group_type:
            return False
        if self.since_ms is not None and rebalance.until_ms < self.since_ms:
            return False
        return self.until_ms is None or rebalance.at_ms <= self.until_ms


_BY_EVIDENCE = ("by_broker_log", "by_description")
_FIELDS = {"gone": "departed"}
"""Fields of `Rebalance` by column, where the names differ."""

_COPIED = (
    "state", "reason", "cause_topic", "target_ms", "duration_ms", "converged", "superseded_by", "joined",
    "gone", "units", "kept", "standby_moved", "warmup_moved", "least_moves", "churn_ratio", "unavailable_ms",
    "silent_units", "silent_ms", "session_timeout_ms", "last_member_id", "causes_left_out", "log_partition",
    "base_offset", "last_offset",
)  # fmt: skip


def document(
    rebalance: Rebalance, cost: Cost | None = None, sentence: str = "", *, damaged: bool = False
) -> dict[str, object]:
    """Return the rebalance as a dict for JSON output; unknown values are None.

    `damaged` states that records next to it could not be read, so that it may be incomplete."""
    r = rebalance
    values: dict[str, object] = {
        "cluster": r.cluster,
        "group": r.group_id,
        "type": r.group_type,
        "from_epoch": r.from_epoch if r.from_epoch >= 0 else None,
        "to_epoch": r.to_epoch,
        "start_ms": r.start_ms,
        "end_ms": r.end_ms,
        "cause": r.cause,
        "member": r.member_id,
        "client_id": r.client_id,
        "instance_id": r.instance_id,
        "client_host": r.client_host,
        "evidence": r.evidence,
        "by_broker_log": r.by_broker_log,
        "by_description": r.by_description,
        "members": r.members,
        "moved": r.moved,
        "revoked": r.revoked,
        "added": r.added,
    }
    values.update({name: getattr(r, _FIELDS.get(name, name)) for name in _COPIED})
    values["stopped"] = cost.stopped if cost is not None else 0 if rebalance.unavailable_ms == 0 else None
    values["lag_records"] = cost.lag_records if cost is not None else None
    values["causes"] = [
        {**c._asdict(), "at_ms": c.at_ms if c.at_ms >= 0 else None} for c in rebalance.all_causes
    ]
    values["damaged"] = damaged
    if sentence:
        values["sentence"] = sentence
    return values
