"""Tells why groups rebalanced: a row in `__konvene_audit`, a line in the log.

The row is appended once the records that it explains are durable. If the broker dies in between, the row is
missing; then, at the load after a crash, it is derived again from the records themselves (`groups.history`)
and says so. Records older than the rows are kept are not explained again.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from konvene.broker.coordinator import Explained
from konvene.cluster.names import AUDIT_TOPIC
from konvene.codec import batches
from konvene.groups.history import infer
from konvene.log.errors import LogError
from konvene.records.audit import RebalanceKey, RebalanceValue, shortened
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.coordinator import AUDIT_RECORDS, Record, decode_record, encode_record

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

log = logging.getLogger("konvene.rebalance")


BESIDE_A_ROW = 100
"""Bytes of a batch with one record that are not its key and value."""


class Audit:
    """The one writer of `__konvene_audit`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._explained: dict[int, int] | None = None
        self._last: dict[tuple[int, str], GroupMetadataValue | None] = {}

    def tell(self, partition: int, explained: Explained) -> None:
        """A rebalance is over: write its row and its line."""
        group_id, story = explained.rebalance
        story = story.replace(
            partition=partition if explained.base_offset >= 0 else -1,
            base_offset=explained.base_offset,
            last_offset=explained.last_offset,
        )
        self._write(group_id, story)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", _line(group_id, story))

    def _write(self, group_id: str, story: RebalanceValue) -> None:
        partition = self._broker.partitions.get(AUDIT_TOPIC, 0)
        if partition is None or not self._broker.config["konvene.audit.enable"]:
            return
        key, room = RebalanceKey(group=group_id), partition.max_message_bytes - BESIDE_A_ROW
        pair = encode_record(Record(key, story), AUDIT_RECORDS)
        while len(pair[0]) + len(pair[1] or b"") > room and (story.causes or story.members):
            story = shortened(story)
            pair = encode_record(Record(key, story), AUDIT_RECORDS)
        try:
            partition.append([pair], self._broker.wall_clock_ms())
        except LogError as error:
            log.error("the row of group %s generation %d is lost: %s", group_id, story.epoch, error)
            return
        if self._explained is not None:  # A shard may be read again at any time.
            last = self._explained.get(story.partition, -1)
            self._explained[story.partition] = max(last, story.last_offset)

    # --- after a crash ---

    def observe(self, partition: int, offset: int, timestamp_ms: int, record: Any) -> None:
        """A record that is being loaded. If no row explains it, derive one."""
        if type(record) is not Record or self._broker.directory.clean:
            return
        key: Any = record.key
        value: Any = record.value
        if type(key) is not GroupMetadataKey:
            return
        if not self._broker.config["konvene.audit.enable"]:
            return
        where = (partition, key.group)
        before, now = self._last.get(where), value
        self._last[where] = now
        if timestamp_ms < self._oldest_ms() or offset <= self._rows().get(partition, -1):
            return
        story = infer(
            before, now, group=key.group, timestamp_ms=timestamp_ms, partition=partition, offset=offset
        )
        if story is not None:
            self._write(key.group, story)
            log.info("%s", _line(key.group, story))

    def loaded(self) -> None:
        """All coordinators are loaded: what was kept to derive rows is not needed any more."""
        self._last.clear()
        self._explained = None

    def _oldest_ms(self) -> int:
        """Rows of what happened before would be let go of at once."""
        kept_ms: int = self._broker.config["konvene.audit.retention.ms"]
        return self._broker.wall_clock_ms() - kept_ms if kept_ms >= 0 else 0

    def _rows(self) -> dict[int, int]:
        """The last offset that a row explains, by partition of `__consumer_offsets`."""
        if self._explained is None:
            self._explained = {}
            partition = self._broker.partitions.get(AUDIT_TOPIC, 0)
            for header, batch in partition.batches() if partition is not None else ():
                for row in batches.records(batch, header):
                    record = decode_record(row.key or b"", row.value, AUDIT_RECORDS)
                    if record is not None and isinstance(record.value, RebalanceValue):
                        story = record.value
                        last = self._explained.get(story.partition, -1)
                        self._explained[story.partition] = max(last, story.last_offset)
        return self._explained


def _line(group_id: str, story: RebalanceValue) -> str:
    """One rebalance as one line of JSON."""
    return json.dumps(
        {
            "event": "rebalance",
            "group": group_id,
            "type": story.group_type,
            "generation": story.epoch,
            "state": story.state,
            "duration_ms": story.ended_ms - story.started_ms if story.started_ms >= 0 else None,
            "members": len(story.members) + story.members_left_out,
            "inferred": story.inferred,
            "causes": [
                {"kind": c.kind, "member": c.member_id, "client": c.client_id, "reason": c.reason}
                for c in story.causes
            ],
        }
    )
