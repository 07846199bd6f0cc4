"""Tells why groups rebalanced: a row in `__konvene_audit`, a line in the log.

The row is appended once the records that it explains are durable. If the broker dies in between, the row is
missing; then, at the load after a crash, it is derived again from the records themselves (`groups.history`)
and says so. So are all rows where there was no audit, as in a directory that was Kafka's. Records older than
the rows are kept are not explained again. To tell what a record means, all that stand before it are looked at
too: what is remembered of them is dropped once the coordinators serve.

A crash between two rows of one decision loses the second: the first says that its records are explained.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

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


BESIDE_A_ROW = 100
"""Bytes of a batch with one record that are not its key and value."""


class Audit:
    """The one writer of `__konvene_audit`."""

    def __init__(self, node: NodeServices, directory: LogDirectory) -> None:
        self._node = node
        self._directory = directory
        self.is_new = False
        """Whether there are groups whose past nobody has told so far."""
        self._explained: dict[int, int] | None = None
        self._histories: dict[int, History] = {}

    def tell(self, partition: int, explained: ExplainedRebalance) -> None:
        """A group has moved: write its row and its line."""
        self._histories.pop(partition, None)  # Its coordinator serves: nothing of it is being loaded.
        group_id, story = explained.rebalance
        story = story.replace(
            partition=partition if explained.base_offset >= 0 else -1,
            base_offset=explained.base_offset,
            last_offset=explained.last_offset,
        )
        if self._node.meter is not None:
            self._node.meter.rebalance(group_id, story)
        self._write(group_id, story)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", _line(group_id, story))

    def _write(self, group_id: str, story: RebalanceValue) -> None:
        partition = self._node.partitions.get(AUDIT_TOPIC, 0)
        if partition is None or not self._node.settings.config["konvene.audit.enable"]:
            return
        key, room = RebalanceKey(group=group_id), partition.max_message_bytes - BESIDE_A_ROW
        pair = encode_record(Record(key, story), AUDIT_RECORDS)
        while len(pair[0]) + len(pair[1] or b"") > room and (story.causes or story.members):
            story = shortened(story)
            pair = encode_record(Record(key, story), AUDIT_RECORDS)
        try:
            partition.append([pair], self._node.environment.wall_clock_ms())
        except LogError as error:
            noun = epoch_noun(story)
            log.error("the row of group %s %s %d is lost: %s", group_id, noun, story.epoch, error)
            return
        if self._explained is not None:  # A shard may be read again at any time.
            last = self._explained.get(story.partition, -1)
            self._explained[story.partition] = max(last, story.last_offset)

    # --- after a crash, or where there was no audit ---

    def observe(self, partition: int, header: batches.BatchHeader) -> RecordObserver | None:
        """A batch is being loaded. What is to be shown its records, if rows are to be derived from them."""
        is_told = self._directory.clean and not self.is_new
        if is_told or not self._node.settings.config["konvene.audit.enable"]:
            return None
        history = self._histories.get(partition)
        if history is None or header.base_offset <= history.begins:
            history = self._histories[partition] = History(partition)
        history.batch(header.base_offset, header.last_offset, header.record_count)
        take = history.take

        def observe(offset: int, timestamp_ms: int, record: Any) -> None:
            found = take(offset, timestamp_ms, record)
            if found is not None:
                self._derived(partition, offset, timestamp_ms, found)

        return observe

    def _derived(self, partition: int, offset: int, timestamp_ms: int, found: Rebalance) -> None:
        """Write what was derived from a record, unless a row explains it or would be too old."""
        if timestamp_ms < self._oldest_ms() or offset <= self._rows().get(partition, -1):
            return
        group_id, story = found
        self._write(group_id, story)
        log.info("%s", _line(group_id, story))

    def loaded(self) -> None:
        """All coordinators are loaded: what was kept to derive rows is not needed any more."""
        self._histories.clear()
        self._explained = None
        self.is_new = False

    def _oldest_ms(self) -> int:
        """Rows of what happened before would be let go of at once."""
        kept_ms: int = self._node.settings.config["konvene.audit.retention.ms"]
        return self._node.environment.wall_clock_ms() - kept_ms if kept_ms >= 0 else 0

    def _rows(self) -> dict[int, int]:
        """The last offset that a row explains, by partition of `__consumer_offsets`."""
        if self._explained is None:
            self._explained = {}
            partition = self._node.partitions.get(AUDIT_TOPIC, 0)
            for header, batch in partition.batches() if partition is not None else ():
                for row in batches.records(batch, header):
                    record = decode_record(row.key or b"", row.value, AUDIT_RECORDS)
                    if record is not None and isinstance(record.value, RebalanceValue):
                        story = record.value
                        last = self._explained.get(story.partition, -1)
                        self._explained[story.partition] = max(last, story.last_offset)
        return self._explained


def _line(group_id: str, story: RebalanceValue) -> str:
    """One rebalance as one line of JSON: of a generation, or of an epoch."""
    return json.dumps(
        {
            "event": "rebalance",
            "group": group_id,
            "type": story.group_type,
            epoch_noun(story): story.epoch,
            "state": story.state,
            "duration_ms": story.ended_ms - story.started_ms if story.started_ms >= 0 else None,
            "members": len(story.members) + story.members_left_out,
            "inferred": story.inferred,
            "causes": [
                {
                    "kind": c.kind,
                    "member": c.member_id,
                    "client": c.client_id,
                    "reason": c.reason,
                    "topic": c.topic,
                }
                for c in story.causes
            ],
        }
    )
