"""Fuzz tests of every decoder of external bytes.

`DECODERS` lists each decoder with valid inputs to mutate and the errors that it may raise. For any input a
decoder returns a value or raises one of these errors, and its memory use is proportional to the input.

`KONVENE_FUZZ=50` multiplies the number of inputs by fifty; `KONVENE_FUZZ_SEED=7` selects other inputs. The
message of a failure contains the seed and the input.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.codec.mutations import mutated
from tests.codec.strategies import MESSAGE_TYPES, versions_of

from konvene.broker.net.frames import read_frame_header, skip_tags
from konvene.cli import wire
from konvene.cli.log.decoding import control_facts, decoder_of
from konvene.client.consumer import protocol
from konvene.client.errors import ClientError
from konvene.client.net.settings import parse_bootstrap
from konvene.codec import batches as rb
from konvene.codec.compile import decode
from konvene.codec.compression import Compression, compress, decompress
from konvene.codec.errors import CodecError
from konvene.codec.json import from_json, to_json
from konvene.codec.record_check import check_records
from konvene.codec.uuid import Uuid
from konvene.codec.varint import read_unsigned_varint, read_unsigned_varlong, read_varint, read_varlong
from konvene.groups.classic.subscriptions import read_subscription
from konvene.log import summary
from konvene.log.config import LogConfig
from konvene.log.directory import Identity, read_checkpoint
from konvene.log.disk.memory import MemoryDisk
from konvene.log.epochs import LeaderEpochs
from konvene.log.errors import LogError
from konvene.log.index import BadIndex, OffsetIndex, TimeIndex
from konvene.log.opening import open_log
from konvene.log.producers import AbortedTransaction, Producers, read_aborted, write_aborted
from konvene.properties import UnreadableProperties, parse_properties, properties_mapping
from konvene.records import coordinator
from konvene.records.cluster_log import METADATA_RECORDS, decode_cluster_record, encode_cluster_record

VECTORS = Path(__file__).parents[1] / "vectors"
FACTOR = float(os.environ.get("KONVENE_FUZZ", "1"))
SEED = int(os.environ.get("KONVENE_FUZZ_SEED", "0"))
LIMIT = 1 << 18
"""Limit of the decompressed size of a batch's records."""


class Decoder(NamedTuple):
    """A decoder of external bytes, with seeds to mutate and its limits."""

    name: str
    read: Callable[[bytes], Any]
    seeds: Callable[[], Sequence[bytes]]
    expected_errors: type[Exception] | tuple[type[Exception], ...] = CodecError
    count: int = 4000
    memory: int = 64
    """Limit of the memory in bytes per byte of input."""
    base_memory: int = 64_000
    """Limit of the memory in bytes in addition, for any input."""


# --- valid inputs ----------------------------------------------------------------------------------


@cache
def vectors(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def bodies() -> dict[str, list[tuple[int, bytes]]]:
    """Return message bodies that Kafka encoded, as (version, bytes) by name of the message."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for row in [*vectors("messages"), *vectors("records"), *vectors("unknown_tags")]:
        data = bytes.fromhex(row["hex"])[2 if row.get("type") in ("key", "value") else 0 :]
        found.setdefault(row["name"], []).append((row["version"], data))
    return found


def raw_records(kind: str) -> list[bytes]:
    """Return keys or values of coordinator records as stored in a log, with their version prefix."""
    return [bytes.fromhex(row["hex"]) for row in vectors("records") if row["type"] == kind]


@cache
def sample_batches() -> list[bytes]:
    """Return batches of every compression type, and the first batches of Kafka's own logs."""
    found = [bytes.fromhex(row["hex"]) for row in vectors("batches")]
    for log in sorted(VECTORS.glob("logs/*/*/*.log")):
        found += [bytes(view) for _, view in rb.batches(log.read_bytes())][:20]
    return [data for data in found if len(data) < 3000]


def produced_batches() -> list[bytes]:
    """Return the sample batches without offset gaps, as producers send them."""
    headers = ((data, rb.read_header(data)) for data in sample_batches())
    return [data for data, header in headers if header.record_count == header.last_offset_delta + 1]


def subscriptions(name: str) -> list[bytes]:
    return [version.to_bytes(2, "big") + data for version, data in bodies()[name]]


SOME_RECORDS = b"".join(view[61:] for view in sample_batches() if view[22] & 7 == 0)[:2000]
INDEX, TIME_INDEX = OffsetIndex(0), TimeIndex(0)
for entry in range(1, 30):
    INDEX.append(entry * 7, entry * 4096)
    TIME_INDEX.append(entry * 1000, entry * 7)


def snapshot() -> bytes:
    producers = Producers()
    for number, data in enumerate(sample_batches()):
        header = rb.read_header(data)._replace(producer_id=number, base_sequence=0)
        producers.note(header)
    return producers.snapshot()


def epochs() -> bytes:
    found = LeaderEpochs()
    found.starts = [(0, 0), (3, 17), (4, 2**40)]
    return found.encode()


def wire_lines() -> list[bytes]:
    """Return input lines of `konvene wire`."""
    rows = [row for row in [*vectors("messages"), *vectors("records")] if len(row["hex"]) < 600][::20]
    keys = ("name", "version", "hex", "json")
    return [json.dumps({key: row[key] for key in keys}).encode() for row in rows]


# --- decoders --------------------------------------------------------------------------------------


def decode_message(cls: Any, data: bytes) -> None:
    """Decode a message; the first byte selects the version."""
    if data:
        decode(cls, versions_of(cls)[data[0] % len(versions_of(cls))], data, 1)


def decode_request_header(data: bytes) -> None:
    skip_tags(data, read_frame_header(data, 0, len(data)).body, len(data))


def decode_coordinator_record(table: dict[int, coordinator.RecordType], data: bytes) -> None:
    """Decode a record and its tombstone; the first byte is the length of the key."""
    if data:
        key, value = data[1 : 1 + data[0]], data[1 + data[0] :]
        coordinator.decode_record(key, value, table)
        coordinator.decode_record(key, None, table)


def encoded_pairs(table: dict[int, coordinator.RecordType]) -> list[bytes]:
    """Return inputs of `decode_coordinator_record`: each golden value after the key of its type."""
    rows = {row["name"]: bytes.fromhex(row["hex"]) for row in vectors("records") if row["kind"] == "typical"}
    return [
        bytes([len(key)]) + key + bytes.fromhex(row["hex"])
        for kind in table.values()
        if len(key := rows.get(kind.key.__name__, b"")) in range(1, 256)
        for row in vectors("records")
        if row["name"] == kind.value.__name__
    ]


def decode_batches(data: bytes) -> None:
    for header, view in rb.batches(data):
        rb.check(view, header)


def decode_records(data: bytes) -> None:
    """Decode records without verifying the checksum, which an attacker can compute."""
    header = rb.read_header(data)
    for record in rb.records(data, header, limit=LIMIT):
        if header.is_control:
            rb.read_end_marker(record)


def check_batch(data: bytes) -> None:
    check_records(data, rb.read_header(data), limit=LIMIT)


def recover_log(data: bytes) -> None:
    """Recover and read a log with this single segment."""
    disk = MemoryDisk()
    open_log(disk, "/d/t-0", LogConfig(), clean=False, now_ms=0)
    file = disk.open("/d/t-0/00000000000000000000.log")
    file.truncate(0)
    file.append(data)
    log, _ = open_log(disk, "/d/t-0", LogConfig(), clean=False, now_ms=0)
    log.read(log.start_offset, 1 << 20)


def decode_checkpoint(data: bytes) -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    disk.open("/d/f", create=True).append(data)
    read_checkpoint(disk, "/d/f")


def describe_record(data: bytes) -> None:
    """Describe a record as `konvene log dump` and `konvene consume` do; this never raises."""
    record = rb.Record(0, 0, data[: len(data) // 3], data[len(data) // 3 :])
    for topic in ("__consumer_offsets", "__share_group_state", "__transaction_state", "__konvene_audit"):
        decoder_of(topic)(record)
    decoder_of("__cluster_metadata")(record)
    decoder_of("orders")(record)
    control_facts(record)


def convert_line(convert: Callable[[dict[str, Any]], Any], data: bytes) -> None:
    """Convert a line as `konvene wire` does, which rejects lines that are no JSON object earlier."""
    row = json.loads(data)
    if isinstance(row, dict):
        convert(row)


def convert_to_json_and_back(cls: Any, data: bytes) -> None:
    """Decode a message, convert it to JSON and parse that; the first byte selects the version."""
    if data:
        version = versions_of(cls)[data[0] % len(versions_of(cls))]
        value = decode(cls, version, data, 1)
        document = json.loads(json.dumps(to_json(value, version)))
        assert from_json(cls, document, version).replace(unknown_tags=()) is not None


def decode_varints(data: bytes) -> None:
    for read in (read_unsigned_varint, read_unsigned_varlong, read_varint, read_varlong):
        read(data, 0)


def messages_of(cls: Any) -> list[bytes]:
    versions = versions_of(cls)
    return [
        bytes([versions.index(version)]) + data
        for version, data in bodies().get(cls.__name__, [])
        if version in versions and len(data) < 3000
    ]


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


NEVER: tuple[type[Exception], ...] = ()

TABLES = {
    "groups": coordinator.GROUP_RECORDS,
    "share state": coordinator.SHARE_STATE_RECORDS,
    "transactions": coordinator.TRANSACTION_RECORDS,
    "audit": coordinator.AUDIT_RECORDS,
}

LOG_SUMMARY = summary.LogSummary(
    1, 0, 9, [[0, 0]], "", None, [summary.SegmentSummary(0, 9, 500, 1, 1, 5, 3, 0, 1, 2)]
)

DECODERS = [
    *(
        Decoder(cls.__name__, partial(decode_message, cls), partial(messages_of, cls), count=500)
        for cls in MESSAGE_TYPES
    ),
    *(
        Decoder(f"{cls.__name__} as JSON", partial(convert_to_json_and_back, cls), partial(messages_of, cls),
                count=40, memory=500)
        for cls in MESSAGE_TYPES
    ),
    Decoder("what a clean close wrote down", summary.decode_summary,
            lambda: [summary.encode_summary([("t-0", LOG_SUMMARY)])],
            memory=400),
    Decoder("the header of a request", decode_request_header,
            lambda: [bytes.fromhex("0012000300000001000163") + tags for tags in (b"\0", b"\2\5\0\6\1a")]),
    *(
        Decoder(f"records of {name}", partial(decode_coordinator_record, table),
                partial(encoded_pairs, table), count=10_000)
        for name, table in TABLES.items()
    ),
    Decoder("records of the cluster", partial(decode_cluster_record, None),
            lambda: [encode_cluster_record(cls())[1] for cls in METADATA_RECORDS.values()], count=10_000),
    Decoder("batches", decode_batches, sample_batches, count=10_000),
    Decoder("records", decode_records, sample_batches, count=15_000, memory=400, base_memory=4 * LIMIT),
    Decoder("records, checked", check_batch, produced_batches, count=15_000, memory=400,
            base_memory=4 * LIMIT),
    *(
        Decoder(f"unpacking {kind.label}", partial(decompress, kind, limit=LIMIT),
                lambda kind=kind: [compress(kind, SOME_RECORDS), compress(kind, bytes(60_000))],
                base_memory=4 * LIMIT)
        for kind in Compression
    ),
    Decoder("numbers", decode_varints, lambda: [b"\xff\xff\xff\xff\x0f", b"\x80\x80\1"]),
    Decoder("a subscription, by the coordinator", read_subscription,
            lambda: subscriptions("ConsumerProtocolSubscription"), NEVER, memory=400),
    Decoder("a subscription, by an assignor", protocol.read_subscription,
            lambda: subscriptions("ConsumerProtocolSubscription"), memory=400),
    Decoder("an assignment", protocol.read_assignment,
            lambda: subscriptions("ConsumerProtocolAssignment"), memory=400),
    Decoder("a segment", recover_log, sample_batches, LogError, count=2000, memory=400),
    Decoder("an index", lambda data: OffsetIndex.load(0, data, 1 << 20).lookup(100),
            lambda: [bytes(INDEX.data)], BadIndex),
    Decoder("a time index", lambda data: TimeIndex.load(0, data).lookup(5000),
            lambda: [bytes(TIME_INDEX.data)], BadIndex),
    Decoder("a producers' snapshot", Producers.restore, lambda: [snapshot()]),
    Decoder("a transaction index", read_aborted,
            lambda: [write_aborted([AbortedTransaction(1, 2, 3, 4)] * 5)]),
    Decoder("leader epochs", LeaderEpochs.decode, lambda: [epochs()]),
    Decoder("a checkpoint", decode_checkpoint, lambda: [b"0\n2\norders-eu 0 17\n__consumer_offsets 3 5\n"],
            LogError, memory=400),
    Decoder("meta.properties", Identity.decode, lambda: [Identity("c", 1, "d").encode()], memory=400),
    Decoder("a file of settings", lambda data: parse_properties(text(data)),
            lambda: [b"# one\nnode.id=1\nlog.dirs : /tmp\\\n  /x\nkey\\u0041 v\\t\n"], UnreadableProperties,
            memory=400),
    Decoder("a client's settings", lambda data: properties_mapping(text(data), "client.properties"),
            lambda: [b"bootstrap.servers=a:1,b:2\nx\\u0041=\\ty\n"], UnreadableProperties, memory=400),
    Decoder("addresses", lambda data: parse_bootstrap(text(data)), lambda: [b"a:1,[::1]:2,c.d:65535"],
            ClientError, memory=400),
    Decoder("an id", lambda data: Uuid.parse(text(data)), lambda: [b"AAAAAAAAAAAAAAAAAAAAAQ"], ValueError),
    Decoder("what is shown of a record", describe_record,
            lambda: [*raw_records("key"), *raw_records("value"), *encoded_pairs(coordinator.GROUP_RECORDS)],
            NEVER, count=3000, memory=2000),
    Decoder("a line to decode", partial(convert_line, wire._decoded), wire_lines,
            (ValueError, RecursionError), memory=2000),
    Decoder("a line to encode", partial(convert_line, wire._encoded), wire_lines,
            (ValueError, RecursionError), memory=2000),
]  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_any_input_gives_a_value_or_a_declared_error(decoder: Decoder) -> None:
    """Each decoder returns a value or raises one of its declared errors, for any bytes."""
    for data in inputs(decoder, decoder.count):
        run_decoder(decoder, data)


@pytest.fixture(scope="module")
def frozen() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_memory_is_proportional_to_the_input(decoder: Decoder) -> None:
    """Peak memory stays within the decoder's limit, whether it succeeds or fails."""
    samples = list(inputs(decoder, max(20, decoder.count // 20)))
    for data in samples:
        run_decoder(decoder, data)  # Fill caches before measuring.
    tracemalloc.start()
    try:
        for data in samples:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            run_decoder(decoder, data)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= decoder.base_memory + decoder.memory * len(data), failure_message(decoder, data)
    finally:
        tracemalloc.stop()


def test_most_seeds_are_valid() -> None:
    """At least three quarters of the seeds decode; otherwise mutations would fail at the first check only."""
    for decoder in DECODERS:
        errors = []
        for data in decoder.seeds():
            try:
                decoder.read(data)
            except decoder.expected_errors as error:
                errors.append(error)
        assert len(errors) * 4 <= len(decoder.seeds()), f"{decoder.name}: {errors}"


def inputs(decoder: Decoder, count: int) -> Iterator[bytes]:
    rng = random.Random(f"{SEED} {decoder.name}")
    return mutated(decoder.seeds(), int(count * FACTOR), rng)


def run_decoder(decoder: Decoder, data: bytes) -> None:
    try:
        decoder.read(data)
    except decoder.expected_errors:
        pass
    except Exception as error:
        raise AssertionError(f"{failure_message(decoder, data)}: {error!r}") from error


def failure_message(decoder: Decoder, data: bytes) -> str:
    return f"{decoder.name} (KONVENE_FUZZ_SEED={SEED}) given bytes.fromhex({data.hex()!r})"
