"""Sources of `konvene groups history`, and its rows.

A konvene broker records rebalances in `__konvene_audit`; all of its partitions are read in full. Any other
broker keeps the metadata of the group in one partition of `__consumer_offsets`, from which `groups.history`
infers rebalances; compaction removes the older ones over time.

A classic group has a row for each generation. For other types an epoch has a row when it begins, with its
causes, and one when all members have reached it, with its duration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from konvene.cli.output import Table, iso, note, print_json_line, print_more_rows, print_tables
from konvene.client.consumer.fetch import EARLIEST, LATEST, list_offsets, read_partition
from konvene.client.errors import raise_for
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.batches import Record
from konvene.codec.errors import CodecError
from konvene.codec.hashes import group_partition
from konvene.errors import Errors
from konvene.groups.history import History, duration, epoch_noun, sentences
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC
from konvene.plurals import counted
from konvene.records.audit import RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, GROUP_RECORDS, decode_record

__all__ = ["HistoryPrinter", "HistoryReader", "document", "table"]


class HistoryReader:
    """Reads the rebalances of a group, each record once.

    `note` is a remark about the source, `reason_empty` the reason why there is none, if that is known."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.note = ""
        self.reason_empty = ""
        self._cluster, self._group = cluster, group
        self._positions: dict[TopicPartition, int] = {}
        self._history: History | None = None
        self._inferred: set[tuple[str, int, str]] = set()
        self._skipped = 0

    async def read(self) -> list[RebalanceValue]:
        """Return the rebalances recorded since the previous call, or all that the cluster still has records
        of; oldest first. Raises `ClientError`."""
        metadata = await self._cluster.refresh([AUDIT_TOPIC, OFFSETS_TOPIC])
        audit, offsets = metadata.topics[AUDIT_TOPIC], metadata.topics[OFFSETS_TOPIC]
        self.reason_empty = ""
        if audit.error_code == 0:
            found = await self._read_audit([p.partition for p in audit.partitions])
        elif offsets.error_code == 0:
            found = await self._infer(group_partition(self._group, len(offsets.partitions)))
        elif offsets.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            self.reason_empty = "the cluster has never had a group"
            return []
        else:
            raise_for(offsets.error_code, about=f"topic {OFFSETS_TOPIC}")
            raise AssertionError("unreachable")
        return sorted(found, key=lambda value: (value.ended_ms, value.epoch))

    async def _read_audit(self, partitions: Sequence[int]) -> list[RebalanceValue]:
        """Read the audit topic. It may be created after rebalances were inferred: these are left out."""
        found: list[RebalanceValue] = []
        async for record in self._new_records([TopicPartition(AUDIT_TOPIC, p) for p in partitions]):
            try:
                decoded = decode_record(record.key or b"", record.value, AUDIT_RECORDS)
            except CodecError:
                self._skipped += 1
                continue
            if decoded is None or not isinstance(decoded.key, RebalanceKey):
                continue
            value = decoded.value
            if decoded.key.group != self._group or not isinstance(value, RebalanceValue):
                continue
            if (value.group_type, value.epoch, value.state) not in self._inferred:
                found.append(value)
        self.note = f"skipped {counted(self._skipped, 'record')} of a newer version" if self._skipped else ""
        return found

    async def _infer(self, partition: int) -> list[RebalanceValue]:
        found: list[RebalanceValue] = []
        self._history = self._history or History(partition)
        async for record in self._new_records([TopicPartition(OFFSETS_TOPIC, partition)]):
            try:
                decoded = decode_record(record.key or b"", record.value, GROUP_RECORDS)
            except CodecError:
                decoded = None  # A newer version, or no record of a coordinator.
            inferred = self._history.take(record.offset, record.timestamp, decoded)
            if inferred is not None and inferred.group_id == self._group:
                value = inferred.value
                self._inferred.add((value.group_type, value.epoch, value.state))
                found.append(value)
        self.note = f"The cluster has no audit topic: inferred from {OFFSETS_TOPIC}-{partition}."
        return found

    async def _new_records(self, partitions: Sequence[TopicPartition]) -> AsyncIterator[Record]:
        """Yield the records of the partitions that were not read before."""
        added = {tp: EARLIEST for tp in partitions if tp not in self._positions}
        if added:
            found = await list_offsets(self._cluster, added)
            self._positions |= {tp: at.offset for tp, at in found.items()}
        ends = await list_offsets(self._cluster, dict.fromkeys(partitions, LATEST))
        for tp in partitions:
            start, end = self._positions[tp], ends[tp].offset
            async for record in read_partition(self._cluster, tp, start=start, end=end):
                if record.offset >= self._positions[tp]:
                    self._positions[tp] = record.offset + 1
                    yield record
            self._positions[tp] = end


# output ---------------------------------------------------------------------------------------


def table(rows: Sequence[RebalanceValue], notes: Sequence[str] = ()) -> Table:
    """Return a table with a row for each generation or epoch, and its causes as lines below the row.

    LEADER is shown for classic groups only, TYPE only if the group has changed its type. `notes` are printed
    to standard error."""
    types = {v.group_type for v in rows}
    classic = "classic" in types
    numbers = [
        head for head, is_shown in (("GENERATION", classic), ("EPOCH", bool(types - {"classic"}))) if is_shown
    ]
    columns = ["/".join(numbers), "ENDED (UTC)", "STATE", "DURATION", "#MEMBERS", "PROTOCOL"]
    columns += ["LEADER"] if classic else []
    columns += ["TYPE"] if len(types) > 1 else []
    lines = []
    for v in rows:
        line: list[object] = [v.epoch, iso(v.ended_ms), v.state, _duration(v), _members(v), v.protocol]
        line += [v.leader] if classic else []
        line += [v.group_type] if len(types) > 1 else []
        lines.append(line)
    return Table(columns, lines, notes, [sentences(v) for v in rows])


class HistoryPrinter:
    """Prints rebalances as they are read: rows of one table, or JSON lines."""

    def __init__(self, group: str, *, as_json: bool) -> None:
        self._group, self._as_json = group, as_json
        self._above: Table | None = None

    def show(self, rows: Sequence[RebalanceValue], remark: str = "") -> None:
        """Print rows; `remark` is a note about their source."""
        if remark:
            note(remark)
        if self._as_json:
            for value in rows:
                print_json_line(document(self._group, value))
        elif rows:
            made = table(rows)
            if self._above is None or list(self._above.columns) != list(made.columns):
                print_tables([made])
                self._above = made
            else:
                print_more_rows(made, self._above.widths())


def _duration(v: RebalanceValue) -> str | None:
    ms = _duration_ms(v)
    return None if ms is None else duration(ms)


def _members(v: RebalanceValue) -> int | None:
    return None if _begins(v) and v.state != "Empty" else len(v.members) + v.members_left_out


def _begins(v: RebalanceValue) -> bool:
    """Return True for a row about the beginning of an epoch, False for one about its end."""
    return v.group_type != "classic" and v.state in ("Assigning", "Empty")


def document(group: str, v: RebalanceValue) -> dict[str, object]:
    """Return a row as a JSON document, with null for unknown values. The epoch of a classic group is named
    `generation`."""
    return {
        "group": group,
        "group_type": v.group_type,
        epoch_noun(v): v.epoch,
        "state": v.state,
        "started_ms": _known(v.started_ms),
        "joined_ms": _known(v.joined_ms),
        "ended_ms": _known(v.ended_ms),
        "duration_ms": _duration_ms(v),
        "partition": _known(v.partition),
        "base_offset": _known(v.base_offset),
        "last_offset": _known(v.last_offset),
        "inferred": v.inferred,
        "protocol": v.protocol,
        "leader": v.leader,
        "causes": [
            {
                "kind": c.kind,
                "at_ms": _known(c.at_ms),
                "member_id": c.member_id,
                "instance_id": c.instance_id,
                "client_id": c.client_id,
                "client_host": c.client_host,
                "reason": c.reason,
                "topic": c.topic,
            }
            for c in v.causes
        ],
        "members": [
            {
                "member_id": m.member_id,
                "instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "joined_ms": _known(m.joined_ms),
            }
            for m in v.members
        ],
        "tasks_moved": dict(zip(("active", "standby", "warmup"), v.moved, strict=False)) if v.moved else None,
        "causes_left_out": v.causes_left_out,
        "members_left_out": v.members_left_out,
    }


def _duration_ms(v: RebalanceValue) -> int | None:
    """Return the time from the first cause to the end of the rebalance in ms; None for a row about the
    beginning of an epoch."""
    return v.ended_ms - v.started_ms if 0 <= v.started_ms <= v.ended_ms and not _begins(v) else None


def _known(number: int) -> int | None:
    return number if number >= 0 else None
