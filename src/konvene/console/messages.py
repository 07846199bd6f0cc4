"""The message browser: reads records of a topic within limits, and writes single records.

`browse` returns at most `limit` records. It examines at most 50,000 records or 64 MiB and takes at most five
seconds; then `next` is a cursor with which the next request continues. `from=latest` returns the newest
records first and continues backwards; all others return the oldest first and continue forwards. Records of
several partitions are merged by timestamp. Control records are skipped; records of open and aborted
transactions are shown. No request creates a topic.

The functions raise `Failure` for everything that a user or a cluster can cause.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from konvene.client.consumer.fetch import EARLIEST, LATEST, list_offsets
from konvene.client.consumer.scan import Bounds, Scan, Scanned
from konvene.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaError,
    Misconfigured,
    RequestTimedOut,
    UnsupportedVersion,
)
from konvene.client.formats import Decoded, FormatError, RecordFormat, record_format
from konvene.client.hints import HINTS, hint_for
from konvene.client.net.cluster import Cluster, Topic, TopicPartition
from konvene.client.producer.producer import Producer
from konvene.console.failure import Failure

__all__ = [
    "Query",
    "browse",
    "failure_of",
    "is_text",
    "optional_text",
    "parse_query",
    "produce",
    "required_text",
]

MOST_RECORDS = 500
"""Upper bound of `limit`."""
DEFAULT_RECORDS = 50
SCANNED_RECORDS = 50_000
SCANNED_BYTES = 64 * 1024 * 1024
SCAN_S = 5.0
RESPONSE_CHARACTERS = 8 * 1024 * 1024
"""Text of records in one response; a response has at least one record."""
CUT_AT = 64 * 1024
"""Characters of a key, value or header in a response."""
PREPARE_S = 10.0
DELIVERY_MS = 10_000
_MOST_OFFSET = 2**63 - 1
_YIELD_EVERY = 100


_STATUSES = {
    "UNKNOWN_TOPIC_OR_PARTITION": 404, "UNKNOWN_TOPIC_ID": 404, "GROUP_ID_NOT_FOUND": 404,
    "UNKNOWN_MEMBER_ID": 404, "NON_EMPTY_GROUP": 409, "GROUP_SUBSCRIBED_TO_TOPIC": 409,
    "MESSAGE_TOO_LARGE": 413, "RECORD_LIST_TOO_LARGE": 413, "POLICY_VIOLATION": 403,
}  # fmt: skip


def failure_of(error: ClientError) -> Failure:
    """Convert an error of the client."""
    status = 502
    if isinstance(error, KafkaError):
        if error.name in _STATUSES:
            status = _STATUSES[error.name]
        elif error.name.endswith("AUTHORIZATION_FAILED"):
            status = 403
        elif error.name.startswith("INVALID_"):
            status = 400
        elif error.retriable:
            status = 503
    elif isinstance(error, Misconfigured | FormatError):
        status = 400
    elif isinstance(error, RequestTimedOut):
        status = 504
    elif isinstance(error, ConnectionLost):
        status = 503
    elif isinstance(error, UnsupportedVersion):
        status = 501
    return Failure(status, str(error), hint_for(error) or None)


# queries --------------------------------------------------------------------------------------


class Cursor(NamedTuple):
    """Where a former request stopped."""

    newest_first: bool
    positions: Mapping[int, int]

    @property
    def document(self) -> dict[str, object]:
        rows = {str(number): offset for number, offset in sorted(self.positions.items())}
        return {"newest_first": self.newest_first, "positions": rows}


class Query(NamedTuple):
    """A parsed request of `browse`."""

    topic: str
    partition: int | None
    start: str
    """`earliest`, `latest`, `offset` or `time`."""
    at: int
    """The offset or the time in ms."""
    limit: int
    key_format: RecordFormat
    value_format: RecordFormat
    key_filter: str
    value_filter: str
    cursor: Cursor | None

    @property
    def newest_first(self) -> bool:
        return self.cursor.newest_first if self.cursor is not None else self.start == "latest"


def parse_query(fields: Mapping[str, Any]) -> Query:
    """Parse the fields of a query string, or of a JSON body. Raises `Failure` with status 400.

    `cursor` is the `next` of a former response, as an object or as JSON text."""
    start, at = _start(optional_text(fields, "from") or "latest")
    partition = _whole(fields, "partition", 2**31 - 1)
    limit = _whole(fields, "limit", 2**31 - 1)
    if limit == 0:
        raise Failure(400, "limit is 0.", f"Write a number between 1 and {MOST_RECORDS}.")
    return Query(
        required_text(fields, "topic"), partition, start, at,
        min(DEFAULT_RECORDS if limit is None else limit, MOST_RECORDS), *_formats(fields),
        optional_text(fields, "key_filter"), optional_text(fields, "value_filter"),
        _cursor(fields.get("cursor")),
    )  # fmt: skip


def _start(text: str) -> tuple[str, int]:
    kind, _, number = text.partition(":")
    if text in ("earliest", "latest"):
        return text, 0
    if kind in ("offset", "time") and number.isascii() and number.isdigit() and len(number) < 20:
        return kind, min(int(number), _MOST_OFFSET)
    raise Failure(400, f"from={text[:80]} is not a position.", "Use earliest, latest, offset:N or time:MS.")


def _formats(fields: Mapping[str, Any]) -> tuple[RecordFormat, RecordFormat]:
    schema = optional_text(fields, "schema") or None
    key_schema = optional_text(fields, "key_schema") or schema
    try:
        key = record_format(optional_text(fields, "key_format") or "text", key_schema)
        return key, record_format(optional_text(fields, "value_format") or "text", schema)
    except FormatError as error:
        raise Failure(400, str(error)) from None


def _cursor(given: Any) -> Cursor | None:
    if given is None or given == "":
        return None
    try:
        found = json.loads(given) if isinstance(given, str) else given
        positions = {int(number): offset for number, offset in found["positions"].items()}
        if not all(type(each) is int and 0 <= each <= _MOST_OFFSET for each in positions.values()):
            raise ValueError
        return Cursor(found["newest_first"] is True, positions)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Failure(400, "The cursor is not valid.", "Send `next` of the former response.") from None


def optional_text(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that is text; empty if it is missing or null. Raises `Failure`."""
    found = fields.get(name)
    if found is not None and not is_text(found):
        raise Failure(400, f"{name} is not text.")
    return found or ""


def required_text(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that is text and not empty. Raises `Failure`."""
    found = optional_text(fields, name)
    if not found:
        raise Failure(400, f"{name} is missing.")
    return found


def is_text(found: Any) -> bool:
    """Return True for text without lone surrogates, which JSON allows and UTF-8 does not."""
    try:
        return isinstance(found, str) and found.encode() is not None
    except UnicodeEncodeError:
        return False


def _whole(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    """Return a field that is a whole number, also as text; None if it is missing, null or empty."""
    found = fields.get(name)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 20:
        found = int(found)
    if found is None or found == "":
        return None
    if type(found) is not int or not 0 <= found <= most:
        raise Failure(400, f"{name} is not a number between 0 and {most}.")
    return found


# browsing -------------------------------------------------------------------------------------


async def browse(cluster: Cluster, query: Query) -> dict[str, Any]:
    """Return records of a topic, as described above. Raises `Failure`.

    `scanned` is the number of examined records and `ended` whether there are no more. `next` is null at the
    beginning of the log; at its end it continues with records that are written later."""
    try:
        async with asyncio.timeout(PREPARE_S):
            bounds = await _bounds(cluster, query)
    except ClientError as error:
        raise failure_of(error) from error
    except TimeoutError:
        raise _too_slow(query, PREPARE_S) from None
    scan = Scan(cluster, query.topic, bounds, newest_first=query.newest_first)
    try:
        return await _collect(scan, query)
    finally:
        scan.close()


def _too_slow(query: Query, seconds: float) -> Failure:
    return Failure(
        504, f"The brokers of topic {query.topic} did not answer within {seconds:g} s.", "Try again."
    )


async def _existing_topic(cluster: Cluster, name: str) -> Topic:
    """Request the metadata of a topic. Raises `Failure` if it does not exist or lacks a leader."""
    topic = (await cluster.refresh([name])).topics[name]
    if topic.error_code:
        error = KafkaError(topic.error_code, about=f"topic {name}")
        if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
            raise Failure(404, f"There is no topic {name}.", HINTS[error.name])
        raise error
    leaderless = [str(each.partition) for each in topic.partitions if each.leader < 0]
    if leaderless:
        raise Failure(
            503,
            f"Topic {name} has partitions without a leader: {', '.join(leaderless[:20])}.",
            "Try again when their brokers are available.",
        )
    return topic


def _partitions(topic: Topic, partition: int | None) -> list[int]:
    numbers = [each.partition for each in topic.partitions]
    if partition is None:
        return numbers
    if partition not in numbers:
        raise Failure(
            404, f"Topic {topic.name} has no partition {partition}.", f"It has {len(numbers)} partitions."
        )
    return [partition]


async def _bounds(cluster: Cluster, query: Query) -> dict[int, Bounds]:
    """Return the offsets to scan, by partition."""
    topic = await _existing_topic(cluster, query.topic)
    chosen = [TopicPartition(query.topic, each) for each in _partitions(topic, query.partition)]
    earliest = await list_offsets(cluster, dict.fromkeys(chosen, EARLIEST))
    latest = await list_offsets(cluster, dict.fromkeys(chosen, LATEST))
    positions = dict(query.cursor.positions) if query.cursor is not None else {}
    if query.cursor is None and query.start == "offset":
        positions = {tp.partition: query.at for tp in chosen}
    elif query.cursor is None and query.start == "time":
        found = await list_offsets(cluster, dict.fromkeys(chosen, query.at))
        positions = {tp.partition: at.offset for tp, at in found.items() if at.offset >= 0}
        positions |= {tp.partition: latest[tp].offset for tp, at in found.items() if at.offset < 0}
    bounds = {}
    for tp in chosen:
        first, last = earliest[tp].offset, latest[tp].offset
        position = max(first, min(positions.get(tp.partition, last if query.newest_first else first), last))
        bounds[tp.partition] = Bounds(first, position) if query.newest_first else Bounds(position, last)
    return bounds


async def _collect(scan: Scan, query: Query) -> dict[str, Any]:
    """Read records until there are enough of them, or a limit is reached.

    Records before an error are returned; the next request raises it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SCAN_S
    before = scan.positions
    rows: list[dict[str, Any]] = []
    scanned = size = characters = 0
    try:
        async with asyncio.timeout_at(deadline):
            while (
                len(rows) < query.limit
                and scanned < SCANNED_RECORDS
                and size < SCANNED_BYTES
                and characters < RESPONSE_CHARACTERS
                and (found := await scan.read()) is not None
            ):
                scanned += 1
                size += len(found.record.key or b"") + len(found.record.value or b"")
                row = _row(found, query)
                if row is not None:
                    rows.append(row)
                    characters += _characters(row)
                if scanned % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                if loop.time() >= deadline:
                    break
    except ClientError as error:
        if not rows:
            raise failure_of(error) from error
    except TimeoutError:
        if scan.positions == before:
            raise (failure_of(scan.error) if scan.error else _too_slow(query, SCAN_S)) from None
    ended = scan.is_finished
    following = None if ended and scan.newest_first else Cursor(scan.newest_first, scan.positions).document
    return {"records": rows, "scanned": scanned, "next": following, "ended": ended}


def _row(found: Scanned, query: Query) -> dict[str, Any] | None:
    """Return a record for the response; None if it does not match the filters."""
    record = found.record
    key, value = query.key_format.decode(record.key), query.value_format.decode(record.value)
    if query.key_filter not in (key.text or "") or query.value_filter not in (value.text or ""):
        return None
    text = record_format("text")
    headers = [(name, text.decode(data)) for name, data in record.headers]
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp if record.timestamp >= 0 else None,
        "timestamp_type": found.timestamp_type.label if record.timestamp >= 0 else None,
        **_part("key", key, record.key),
        **_part("value", value, record.value),
        "headers": [
            {"key": name[:CUT_AT], "value": _cut(decoded), "cut": _is_cut(decoded)}
            for name, decoded in headers
        ],
        "cut": _is_cut(value),
    }


def _part(name: str, decoded: Decoded, data: bytes | None) -> dict[str, Any]:
    return {
        name: _cut(decoded),
        f"{name}_size": None if data is None else len(data),
        f"{name}_error": decoded.error,
        f"{name}_schema_id": decoded.schema_id,
        f"{name}_cut": _is_cut(decoded),
    }


def _cut(decoded: Decoded) -> str | None:
    return None if decoded.text is None else decoded.text[:CUT_AT]


def _is_cut(decoded: Decoded) -> bool:
    return len(decoded.text or "") > CUT_AT


def _characters(row: Mapping[str, Any]) -> int:
    headers = sum(len(each["key"]) + len(each["value"] or "") for each in row["headers"])
    return len(row["key"] or "") + len(row["value"] or "") + headers


# producing ------------------------------------------------------------------------------------


async def produce(cluster: Cluster, body: Mapping[str, Any]) -> dict[str, Any]:
    """Write one record; return its partition, offset and timestamp. Raises `Failure`.

    Without a partition the key selects it as in Kafka's clients; a record without a key gets any one."""
    name = required_text(body, "topic")
    partition = _whole(body, "partition", 2**31 - 1)
    key_format, value_format = _formats(body)
    headers = _headers(body.get("headers"))
    key = _encoded(body, "key", key_format)
    value = _encoded(body, "value", value_format)
    try:
        async with asyncio.timeout(PREPARE_S):
            partitions = _partitions(await _existing_topic(cluster, name), partition)
        if partition is None and key is None:
            partition = random.choice(partitions)
        async with Producer(cluster, delivery_timeout_ms=DELIVERY_MS) as producer:
            sent = await producer.send(name, value, key=key, headers=headers, partition=partition)
        written = await sent
    except ClientError as error:
        raise failure_of(error) from error
    except TimeoutError:
        raise Failure(504, f"The cluster did not answer within {PREPARE_S:g} s.", "Try again.") from None
    return {"partition": written.partition, "offset": written.offset, "timestamp_ms": written.timestamp}


def _encoded(body: Mapping[str, Any], name: str, form: RecordFormat) -> bytes | None:
    try:
        return None if body.get(name) is None else form.encode(optional_text(body, name))
    except FormatError as error:
        raise Failure(400, f"The {name} cannot be encoded: {error}.") from None


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Parse `[{"key": text, "value": text or null}, …]`."""
    hint = 'Write [{"key": text, "value": text or null}, …].'
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise Failure(400, "headers is not a list of objects.", hint)
    headers = []
    for each in given:
        key, value = each.get("key"), each.get("value")
        if not is_text(key) or not (value is None or is_text(value)):
            raise Failure(400, "A header has no key or its value is not text.", hint)
        headers.append((key, None if value is None else value.encode()))
    return tuple(headers)
