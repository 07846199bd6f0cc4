"""`konvene wire`: convert Kafka's bytes to JSON and back, line by line, and report invalid lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import CommandResult, call

from konvene.records.cluster_log import encode_cluster_record
from konvene.records.metadata import TopicRecord

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = ("messages", "records", "unknown_tags")


def vectors(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def wire(direction: str, *lines: Any) -> CommandResult:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return call(None, "wire", direction, stdin=text.encode())


def converted(result: CommandResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.split("\n") if line]


@pytest.mark.parametrize("file", FILES)
def test_decode_gives_kafkas_json(file: str) -> None:
    """For every message, header, record and consumer protocol in every version."""
    expected = vectors(file)
    result = wire(
        "decode", *({k: v for k, v in w.items() if k not in ("json", "unknownTags")} for w in expected)
    )
    assert (result.code, result.err) == (0, "")
    assert converted(result) == expected


@pytest.mark.parametrize("file", FILES)
def test_encode_gives_kafkas_bytes(file: str) -> None:
    expected = vectors(file)
    result = wire("encode", *({k: v for k, v in w.items() if k != "hex"} for w in expected))
    assert (result.code, result.err) == (0, "")
    assert converted(result) == expected


def test_version_prefix_of_a_record_value_is_used() -> None:
    line = {"name": "OffsetCommitValue", "hex": "0003" + "00" * 7 + "05" + "ff" * 4 + "0000" + "00" * 8}
    (decoded,) = converted(wire("decode", line))
    assert decoded["version"] == 3
    assert decoded["json"]["offset"] == 5
    result = wire("decode", line | {"version": 4})
    assert result.code == 1
    assert converted(result)[0]["error"] == "the line has version 4, its bytes have version 3"


def test_metadata_records_are_framed() -> None:
    data = encode_cluster_record(TopicRecord(name="orders"))[1].hex()
    (decoded,) = converted(wire("decode", {"name": "TopicRecord", "hex": data}))
    assert decoded["json"]["name"] == "orders"
    (encoded,) = converted(wire("encode", {k: decoded[k] for k in ("name", "version", "json")}))
    assert encoded["hex"] == data


def test_invalid_line_is_reported_and_the_others_converted() -> None:
    good = {"name": "HeartbeatResponse", "version": 0, "hex": "0000"}
    result = wire("decode", good, "", "{", good)
    assert result.code == 1
    assert result.err == 'konvene: 1 of 3 lines could not be converted; see "error"\n'
    first, second, third = converted(result)
    assert first == third == good | {"json": {"errorCode": 0}}
    assert (second["line"], set(second)) == (3, {"line", "error"})


@pytest.mark.parametrize(
    "direction, line, message",
    [
        ("decode", "[1]", "not a JSON object"),
        ("decode", "1" * 5000, "digits"),
        ("decode", "[" * 100_000, "nested too deeply"),
        ("decode", {"hex": "00"}, '"name" is missing'),
        ("decode", {"name": 5}, '"name" is not text'),
        ("decode", {"name": "Voter", "version": 0, "hex": ""}, "Voter is not a message or record"),
        ("decode", {"name": "\ud800", "version": 0, "hex": ""}, "is not a message or record"),
        ("decode", {"name": "HeartbeatRequest", "hex": "00"}, '"version" is missing'),
        ("decode", {"name": "HeartbeatRequest", "version": True, "hex": "00"}, "not a whole number"),
        ("decode", {"name": "HeartbeatRequest", "version": 9, "hex": "00"}, "has no version 9 (it has 0-4)"),
        ("decode", {"name": "HeartbeatResponse", "version": 0, "hex": "0"}, "hex: "),
        ("decode", {"name": "HeartbeatResponse", "version": 0, "hex": "00"}, "the bytes end too early"),
        ("decode", {"name": "HeartbeatResponse", "version": 0, "hex": "000000"}, "1 bytes left over"),
        ("decode", {"name": "GroupMetadataKey", "version": 0, "hex": "0003"}, "has record type 2"),
        ("decode", {"name": "GroupMetadataValue", "hex": "00"}, "the first 2 bytes are missing"),
        ("decode", {"name": "TopicRecord", "hex": "010300"}, "is framed as 1, 2"),
        ("decode", {"name": "TopicRecord", "hex": ""}, ""),
        ("encode", {"name": "HeartbeatRequest", "version": 0}, '"json" is missing'),
        ("encode", {"name": "HeartbeatRequest", "version": 0, "json": []}, '"json" is not an object'),
        ("encode", {"name": "HeartbeatResponse", "version": 0, "json": {"no": 1}}, "has no field no"),
        ("encode", {"name": "HeartbeatResponse", "version": 0, "json": {"errorCode": 1 << 20}}, "v0: "),
        ("encode", {"name": "HeartbeatResponse", "version": 0, "json": {"errorCode": "x"}}, "v0: "),
        ("encode", {"name": "HeartbeatRequest", "version": 0, "json": {"groupId": "\ud800"}}, "v0: "),
        ("encode", {"name": "HeartbeatRequest", "version": 0, "json": {"groupId": None}}, ""),
        ("encode", {"name": "HeartbeatRequest", "version": 4, "json": {}, "unknownTags": [1]}, "unknownTags"),
        ("encode", {"name": "MetadataRequest", "version": 0, "json": {"topics": 5}}, "not a JSON list"),
    ],
)
def test_error_of_each_invalid_line(direction: str, line: Any, message: str) -> None:
    result = wire(direction, line)
    assert result.code == 1, result.out
    (row,) = converted(result)
    assert row["line"] == 1
    assert message in row["error"] and row["error"]


def test_corrupted_messages_do_not_raise() -> None:
    """Each vector is flipped and truncated somewhere; every input line has one output line."""
    lines = []
    for index, vector in enumerate(vectors("messages")[1::16] + vectors("records")[1::4]):
        data = bytearray.fromhex(vector["hex"]) or bytearray(1)
        data[index % len(data)] ^= 0xFF >> index % 8
        row = {"name": vector["name"], "version": vector["version"]}
        lines += [row | {"hex": data.hex()}, row | {"hex": data[: index % len(data)].hex()}]
    assert len(converted(wire("decode", *lines))) == len(lines)
