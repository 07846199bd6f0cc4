"""Fields of batches and records for `konvene log dump`, in the order of their output.

Coordinator records are decoded with the table of their topic; records of other topics are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from konvene.codec.batches import BatchHeader, ControlType, Record, control_type, read_end_marker
from konvene.codec.compile import decode
from konvene.codec.errors import CodecError
from konvene.codec.json import to_json
from konvene.codec.schema import Struct
from konvene.codec.varint import read_unsigned_varint
from konvene.internal_topics import (
    AUDIT_TOPIC,
    CLUSTER_METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from konvene.records import control
from konvene.records.cluster_log import METADATA_RECORDS, decode_cluster_record
from konvene.records.coordinator import (
    AUDIT_RECORDS,
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordType,
    value_version,
)

__all__ = ["Decode", "batch_facts", "control_facts", "decoder_of", "record_facts", "text_in"]

Decode = Callable[[Record], dict[str, object]]

TABLES = {
    OFFSETS_TOPIC: GROUP_RECORDS,
    SHARE_STATE_TOPIC: SHARE_STATE_RECORDS,
    TRANSACTION_TOPIC: TRANSACTION_RECORDS,
    AUDIT_TOPIC: AUDIT_RECORDS,
}

CONTROLS: dict[ControlType, type[Struct]] = {
    ControlType.LEADER_CHANGE: control.LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: control.SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: control.SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: control.KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: control.VotersRecord,
}
"""Control records other than transaction markers; each begins with its own version."""


def batch_facts(header: BatchHeader) -> dict[str, object]:
    """Return the output fields of a batch, which all its records share."""
    facts: dict[str, object] = {
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "compression": _compression(header),
        "leader_epoch": header.partition_leader_epoch,
    }
    if header.has_producer_id:
        facts["producer_id"] = header.producer_id
        facts["producer_epoch"] = header.producer_epoch
        facts["base_sequence"] = header.base_sequence
        facts["transactional"] = header.is_transactional
    return facts


def _compression(header: BatchHeader) -> str:
    try:
        return header.compression.label
    except CodecError:
        return f"unknown ({header.attributes & 7})"


def record_facts(
    topic: str | None, partition: int | None, header: BatchHeader, record: Record, read: Decode
) -> dict[str, object]:
    """Return the output fields of a record for `--json`; `read` decodes its key and value."""
    facts: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "batch_base_offset": header.base_offset,
        "timestamp": record.timestamp,
    }
    facts |= batch_facts(header)
    if header.is_control:
        return facts | control_facts(record)
    facts["key_hex"] = None if record.key is None else record.key.hex()
    facts["value_hex"] = None if record.value is None else record.value.hex()
    if record.headers:
        facts["headers"] = [
            {"key": name, "value_hex": None if value is None else value.hex()}
            for name, value in record.headers
        ]
    return facts | read(record)


def decoder_of(topic: str | None) -> Decode:
    """Return the decoder for records of a topic: by the record table of a coordinator or of the cluster
    metadata, or as text."""
    if topic == CLUSTER_METADATA_TOPIC:
        return _cluster_record
    table = TABLES.get(topic or "")
    return _plain_record if table is None else lambda record: _coordinator_record(record, table)


def _coordinator_record(record: Record, table: dict[int, RecordType]) -> dict[str, object]:
    facts: dict[str, object] = dict.fromkeys(("key_type", "key_name", "key", "value_version", "value"))
    if record.key is None or len(record.key) < 2:
        return facts | {"error": "a coordinator record without a type"}
    facts["key_type"] = code = int.from_bytes(record.key[:2], "big")
    if code not in table:
        return facts | {"error": f"unknown record type {code}"}
    kind = table[code]
    facts["key_name"] = kind.name
    try:
        facts["key"] = to_json(decode(kind.key, 0, record.key, 2), 0)
        if record.value is not None:
            facts["value_version"] = int.from_bytes(record.value[:2], "big")
            version = value_version(kind, record.value)
            facts["value"] = to_json(decode(kind.value, version, record.value, 2), version)
    except CodecError as error:
        facts["error"] = str(error)
    return facts


def _cluster_record(record: Record) -> dict[str, object]:
    facts: dict[str, Any] = dict.fromkeys(("key_type", "key_name", "key", "value_version", "value"))
    try:
        if record.value is not None:
            _, at = read_unsigned_varint(record.value, 0)
            code, at = read_unsigned_varint(record.value, at)
            version, _ = read_unsigned_varint(record.value, at)
            facts |= {"key_type": code, "value_version": version}
            if code in METADATA_RECORDS:
                facts["key_name"] = _spaced(METADATA_RECORDS[code].__name__)
        facts["value"] = to_json(decode_cluster_record(record.key, record.value), facts["value_version"])
    except CodecError as error:
        facts["error"] = str(error)
    return facts


def _spaced(name: str) -> str:
    """Convert `PartitionChangeRecord` to Kafka's enum name `PARTITION_CHANGE_RECORD`."""
    return "".join("_" + c if c.isupper() else c for c in name).lstrip("_").upper()


def _plain_record(record: Record) -> dict[str, object]:
    """Return the key and value of a record as text, each None if it is not UTF-8: the output then has only
    its `_hex` field."""
    return {"key": text_in(record.key), "value": text_in(record.value)}


def text_in(data: bytes | None) -> str | None:
    """Decode UTF-8; None if the bytes are not valid."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def control_facts(record: Record) -> dict[str, object]:
    """Return the output fields of a control record: a transaction marker, or a record of the Raft quorum."""
    try:
        kind = control_type(record)
        marker = read_end_marker(record)
        if marker is not None:
            return {"control": kind.name, "coordinator_epoch": marker.coordinator_epoch}
        facts: dict[str, object] = {"control": kind.name}
        if kind in CONTROLS and record.value is not None:
            version = int.from_bytes(record.value[:2], "big")
            if version in CONTROLS[kind].__versions__:
                return facts | {"value": to_json(decode(CONTROLS[kind], version, record.value), version)}
        return facts | {
            "key_hex": (record.key or b"").hex(),
            "value_hex": None if record.value is None else record.value.hex(),
        }
    except CodecError as error:
        return {"control": "UNKNOWN", "key_hex": (record.key or b"").hex(), "error": str(error)}
