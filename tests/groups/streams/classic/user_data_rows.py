"""User data as JSON rows, in the format of UserData.java, and the values that Kafka Streams encoded.

    value    the value to encode                hex    the bytes that Kafka Streams wrote
    read     what Kafka Streams decodes from them

`user_data.jsonl` has such rows. Kafka's own code made them, so that it is not needed here;
tests/against/streams_groups/test_user_data.py makes them anew and compares.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from konvene.groups.streams.classic.user_data import (
    LATEST_OFFSET,
    NO_REBALANCE_MS,
    UNKNOWN_OFFSET,
    AssignmentInfo,
    SubscriptionInfo,
    Task,
    TopicPartition,
)

VECTORS = Path(__file__).parent / "user_data.jsonl"

Row = dict[str, Any]

NO_PROCESS = "00000000-0000-0000-0000-000000000000"
ANN = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
ENDPOINTS = (
    *("", " ", "ann:8080", "ann.example.org:1", "[::1]:8080", "::1:8080", "http://ann:80"),
    *("http://[fe80::1%eth0]:80", "ann", ":80", "[]:80", "ann:", "ann:x", "ann: 80"),
    *("ann:80 ", "ann:+80", "ann:65535", "a b:80"),
    *("ä:80", "ann_1:007", "ann:80/path", "http://:80", "a:b:1", "[a:1", "a]:1", "ann:99999999999", "ann:٣"),
)  # fmt: skip

# --- the values ------------------------------------------------------------------------------------


def subscriptions(version: int) -> Iterator[Row]:
    base = {
        "kind": "subscription",
        "version": version,
        "latest": 11 if version > 2 else -1,
        "process": NO_PROCESS,
    }
    nothing: Row = {**base, "endpoint": None, "sums": [], "unique": 0, "error": 0, "tags": {}}
    yield nothing
    sums = [
        [0, 0, None, LATEST_OFFSET],
        [0, 1, None, UNKNOWN_OFFSET],
        [0, 12, None, 0],
        [3, 0, None, 2**63 - 1],
    ]
    yield {
        **nothing, "process": ANN, "endpoint": "[::1]:8080", "sums": sums, "unique": -128, "error": 4,
        "latest": version if version > 2 else -1, "tags": {"zone": "süd-1", "größe": ""},
    }  # fmt: skip
    yield {**nothing, "endpoint": "http://ann:80", "sums": [[2**31 - 1, 2**31 - 1, None, -4]], "unique": 127}
    if version >= 10:
        yield {**nothing, "sums": [[0, 0, "north", 7], [0, 0, "süd", 8], [0, 0, None, 9]]}


def assignments(version: int) -> Iterator[Row]:
    base = {"kind": "assignment", "version": version, "common": 11 if version > 2 else -1}
    nothing: Row = {
        **base, "active": [], "standby": [], "hosts": [], "standby_hosts": [], "error": 0,
        "next": NO_REBALANCE_MS,
    }  # fmt: skip
    yield nothing
    ann, bob = ["ann", 8080], ["::1", 1]
    yield {
        **nothing, "common": version if version > 2 else -1,
        "active": [[0, 0, None], [1, 0, None], [1, 2, None], [0, 0, None]],
        "standby": [
            [0, 1, None, [["orders", 1], ["clicks", 1]]], [12, 0, None, [["größe", 0]]], [2, 0, None, []],
        ],
        "hosts": [[*ann, [["orders", 0], ["clicks", 0]]], [*bob, []]],
        "standby_hosts": [[*ann, [["größe", 0], ["orders", 1]]], [*bob, [["clicks", 7]]]],
        "next": 1_700_000_000_000,
    }  # fmt: skip
    yield {**nothing, "error": 1, "hosts": [["\0ü€\U0001f600", 2**31 - 1, [["\U0001f600\0", 2**31 - 1]]]]}
    yield {**nothing, "error": 4, "next": 0}
    if version >= 10:
        yield {**nothing, "active": [[0, 0, "north"]]}
        yield {**nothing, "standby": [[0, 0, "süd", []]]}


VALUES = tuple(
    value for version in range(1, 12) for make in (subscriptions, assignments) for value in make(version)
)


def vectors() -> list[Row]:
    return [json.loads(line) for line in VECTORS.read_text().splitlines()]


def damaged(data: bytes, dice: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0:
                changed[at:] = b""
            case 1:
                changed[at:at] = dice.randbytes(dice.randint(1, 4))
            case 2:
                changed[at : at + 4] = struct.pack(
                    ">i", dice.choice((-1, 0, 1, 2, 2**31 - 1, -(2**31), 1 << 16))
                )
            case _ if at < len(changed):
                changed[at] = dice.randrange(256)
            case _:
                pass
    return bytes(changed)


# --- between rows and our values -------------------------------------------------------------------


def subscription(row: Row) -> SubscriptionInfo:
    """Return the value without fields that its version lacks; of tasks with a named topology only the
    name."""
    version = row["version"]
    sums = {(str(name), partition): offset for name, partition, named, offset in row["sums"] if not named}
    new = version >= 7
    return SubscriptionInfo(
        version=version,
        latest_supported_version=row["latest"],
        process_id=row["process"],
        prev_tasks=frozenset() if new else frozenset(t for t in sums if sums[t] == LATEST_OFFSET),
        standby_tasks=frozenset() if new else frozenset(t for t in sums if sums[t] != LATEST_OFFSET),
        offset_sums=sums if new else {},
        user_endpoint=(row["endpoint"] or "") if version >= 2 else "",
        unique_field=row["unique"] if version >= 8 else 0,
        error_code=row["error"] if version >= 9 else 0,
        client_tags=tuple(sorted(row["tags"].items())) if version >= 11 else (),
        named_topologies=frozenset(named for _, _, named, _ in row["sums"] if named),
    )


def assignment(row: Row) -> tuple[AssignmentInfo, tuple[TopicPartition, ...]]:
    """Return the value, and the partitions of the assignment that contains it."""
    version = row["version"]
    partitions = tuple(("read", number) for number in range(len(row["active"])))
    info = AssignmentInfo(
        version=version,
        commonly_supported_version=row["common"],
        active=tuple(zip(map(_task, row["active"]), partitions, strict=True)),
        standby={_task(each): _pairs(each[3]) for each in row["standby"]},
        partitions_by_host=_hosts(row["hosts"]) if version >= 2 else {},
        standby_partitions_by_host=_hosts(row["standby_hosts"]) if version >= 6 else {},
        error_code=row["error"] if version >= 4 else 0,
        next_rebalance_ms=row["next"] if version >= 7 else NO_REBALANCE_MS,
    )
    return info, partitions


def _task(row: list[Any]) -> Task:
    return str(row[0]), row[1]


def _pairs(rows: list[list[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted((topic, partition) for topic, partition in rows))


def _hosts(rows: list[list[Any]]) -> dict[tuple[str, int], tuple[TopicPartition, ...]]:
    return {(host, port): _pairs(some) for host, port, some in rows}


# --- our values in the format of Kafka's -----------------------------------------------------------


def subscription_row(info: SubscriptionInfo) -> Row:
    """Return a row without the unique field, for which Kafka's class has no accessor."""
    sums = dict(info.offset_sums)
    sums.update(dict.fromkeys(info.prev_tasks, LATEST_OFFSET))
    sums.update(dict.fromkeys(info.standby_tasks, UNKNOWN_OFFSET))
    return {
        "version": info.version,
        "latest": info.latest_supported_version,
        "process": info.process_id,
        "endpoint": info.user_endpoint or None,
        "sums": _sorted([int(name), partition, None, offset] for (name, partition), offset in sums.items()),
        "error": info.error_code,
        "tags": dict(info.client_tags),
    }


def assignment_row(info: AssignmentInfo) -> Row:
    return {
        "version": info.version,
        "common": info.commonly_supported_version,
        "active": [[int(name), partition, None] for (name, partition), _ in info.active],
        "standby": _sorted(
            [int(name), partition, None, _pair_rows(some)] for (name, partition), some in info.standby.items()
        ),
        "hosts": _host_rows(info.partitions_by_host),
        "standby_hosts": _host_rows(info.standby_partitions_by_host),
        "error": info.error_code,
        "next": info.next_rebalance_ms,
    }


def _host_rows(hosts: Any) -> list[list[Any]]:
    return _sorted([host, port, _pair_rows(some)] for (host, port), some in hosts.items())


def _pair_rows(some: Iterable[TopicPartition]) -> list[list[Any]]:
    return _sorted([topic, partition] for topic, partition in some)


def _sorted(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """Return rows in the order of Kafka's output: that of their JSON."""
    return sorted(rows, key=lambda row: json.dumps(row, separators=(",", ":")))
