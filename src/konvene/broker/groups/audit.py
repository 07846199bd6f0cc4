"""Records the cause of each rebalance: a row in `__konvene_audit` and a line in the log.

A row is appended once the group records that it explains are durable. If the broker dies in between, the row
is missing. While the log is loaded after a crash, it is derived from those records (`groups.history`) and
marked as inferred. All rows are derived if the directory has no audit topic yet, such as a directory of
Kafka's. No rows are derived from records older than the audit's retention. Deriving a row needs all records
before it, so a history of each partition is kept until all coordinators are loaded.

Limitation: if one decision has two rows and the broker dies between them, the second one is lost, because the
first one is recorded as explaining the offsets of both.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from konvene.codec import batches
from konvene.groups.history import History, epoch_noun
from konvene.internal_topics import AUDIT_TOPIC
from konvene.log.errors import LogError
from konvene.records.audit import RebalanceKey, RebalanceValue, shortened
from konvene.records.coordinator import AUDIT_RECORDS, Record, decode_record, encode_record
from konvene.runtime.ports import ExplainedRebalance
from konvene.shard.contract import Rebalance

if TYPE_CHECKING:
    from konvene.broker.node_services import NodeServices
    from konvene.log.directory import LogDirectory
    from konvene.runtime.ports import RecordObserver

log = logging.getLogger("konvene.rebalance")


BATCH_OVERHEAD_BYTES = 100
"""Estimated size of a batch with one record, without the record's key and value."""


class Audit:
    """Writes the audit rows of all group coordinators; nothing else writes to `__konvene_audit`."""

    def __init__(self, node: NodeServices, directory: LogDirectory) -> None:
        self._node = node
        self._directory = directory
        self.is_new = False
        """True if the audit topic was created at this start, so that existing groups have no rows yet."""
        self._explained: dict[int, int] | None = None
        """Last offset that a row explains, by partition of `__consumer_offsets`; None until it is needed."""
        self._histories: dict[int, History] = {}

    def record(self, partition: int, explained: ExplainedRebalance) -> None:
        """Count a rebalance, write its row and log line. `partition` is that of the group's coordinator."""
        self._histories.pop(partition, None)  # Its coordinator is loaded.
        group_id, row = explained.rebalance
        row = row.replace(
            partition=partition if explained.base_offset >= 0 else -1,
            base_offset=explained.base_offset,
            last_offset=explained.last_offset,
        )
        if self._node.meter is not None:
            self._node.meter.rebalance(group_id, row)
        self._write(group_id, row)
        _log(group_id, row)

    def _write(self, group_id: str, row: RebalanceValue) -> None:
        partition = self._node.partitions.get(AUDIT_TOPIC, 0)
        if partition is None or not self._node.settings.config["konvene.audit.enable"]:
            return
        key, max_bytes = RebalanceKey(group=group_id), partition.max_message_bytes - BATCH_OVERHEAD_BYTES
        pair = encode_record(Record(key, row), AUDIT_RECORDS)
        while len(pair[0]) + len(pair[1] or b"") > max_bytes and (row.causes or row.members):
            row = shortened(row)
            pair = encode_record(Record(key, row), AUDIT_RECORDS)
        try:
            partition.append([pair], self._node.environment.wall_clock_ms())
        except LogError as error:
            noun = epoch_noun(row)
            log.error(
                "the audit row of group %s %s %d could not be written: %s", group_id, noun, row.epoch, error
            )
            return
        if self._explained is not None:  # A partition may be reloaded at any time.
            last = self._explained.get(row.partition, -1)
            self._explained[row.partition] = max(last, row.last_offset)

    # --- deriving rows, after a crash or for a new audit ---

    def observe(self, partition: int, header: batches.BatchHeader) -> RecordObserver | None:
        """Return an observer that derives missing rows from the records of a batch that is being loaded.

        Return None if the audit is disabled, or after a clean shutdown, when no rows can be missing."""
        is_complete = self._directory.clean and not self.is_new
        if is_complete or not self._node.settings.config["konvene.audit.enable"]:
            return None
        history = self._histories.get(partition)
        if history is None or header.base_offset <= history.begins:
            history = self._histories[partition] = History(partition)
        history.batch(header.base_offset, header.last_offset, header.record_count)
        take = history.take

        def observe(offset: int, timestamp_ms: int, record: object) -> None:
            rebalance = take(offset, timestamp_ms, record)
            if rebalance is not None:
                self._write_derived(partition, offset, timestamp_ms, rebalance)

        return observe

    def _write_derived(self, partition: int, offset: int, timestamp_ms: int, rebalance: Rebalance) -> None:
        """Write a row derived from the record at `offset`, unless that record has a row or is too old.

        Too old is a record whose `timestamp_ms` exceeds the audit's retention."""
        if timestamp_ms < self._oldest_ms() or offset <= self._explained_offsets().get(partition, -1):
            return
        group_id, row = rebalance
        self._write(group_id, row)
        _log(group_id, row)

    def loaded(self) -> None:
        """Release the histories and offsets from which rows are derived, once all coordinators are loaded."""
        self._histories.clear()
        self._explained = None
        self.is_new = False

    def _oldest_ms(self) -> int:
        """Return the wall-clock time before which rows exceed the retention; 0 without retention."""
        retention_ms: int = self._node.settings.config["konvene.audit.retention.ms"]
        return self._node.environment.wall_clock_ms() - retention_ms if retention_ms >= 0 else 0

    def _explained_offsets(self) -> dict[int, int]:
        """Return the last offset of each `__consumer_offsets` partition that an audit row explains.

        The first call reads the audit topic."""
        if self._explained is None:
            self._explained = {}
            partition = self._node.partitions.get(AUDIT_TOPIC, 0)
            for header, batch in partition.batches() if partition is not None else ():
                for entry in batches.records(batch, header):
                    record = decode_record(entry.key or b"", entry.value, AUDIT_RECORDS)
                    if record is not None and isinstance(record.value, RebalanceValue):
                        row = record.value
                        last = self._explained.get(row.partition, -1)
                        self._explained[row.partition] = max(last, row.last_offset)
        return self._explained


def _log(group_id: str, row: RebalanceValue) -> None:
    """Log a rebalance: as one line of JSON in a text log, as fields in a JSON log."""
    if log.isEnabledFor(logging.INFO):
        fields = _fields(group_id, row)
        causes = ", ".join(dict.fromkeys(cause.kind for cause in row.causes)) or "unknown"
        sentence = f"group {group_id} {epoch_noun(row)} {row.epoch}: {causes}"
        log.info("%s", json.dumps(fields), extra={"fields": fields, "sentence": sentence})


def _fields(group_id: str, row: RebalanceValue) -> dict[str, object]:
    return {
        "event": "rebalance",
        "group": group_id,
        "type": row.group_type,
        epoch_noun(row): row.epoch,
        "state": row.state,
        "duration_ms": row.ended_ms - row.started_ms if row.started_ms >= 0 else None,
        "members": len(row.members) + row.members_left_out,
        "inferred": row.inferred,
        "causes": [
            {
                "kind": c.kind,
                "member": c.member_id,
                "client": c.client_id,
                "reason": c.reason,
                "topic": c.topic,
            }
            for c in row.causes
        ],
    }
