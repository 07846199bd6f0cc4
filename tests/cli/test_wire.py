"""`konvene wire`: Kafka's bytes to Kafka's JSON and back, line by line, and lines that are neither."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Said, call

from konvene.records.cluster_log import encode_cluster_record
from konvene.records.metadata import TopicRecord

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = ("messages", "records", "unknown_tags")


def vectors(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def wire(direction: str, *lines: Any) -> Said:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return call(None, "wire", direction, stdin=text.encode())


def answers(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.out.split("\n") if line]


@pytest.mark.parametrize("file", FILES)
def test_kafkas_bytes_become_kafkas_json(file: str) -> None:
    """Every message, header, record and consumer protocol of every version."""
    wanted = vectors(file)
    said = wire("decode", *({k: v for k, v in w.items() if k not in ("json", "unknownTags")} for w in wanted))
    assert (said.code, said.err) == (0, "")
    assert answers(said) == wanted


@pytest.mark.parametrize("file", FILES)
def test_kafkas_json_becomes_kafkas_bytes(file: str) -> None:
    wanted = vectors(file)
    said = wire("encode", *({k: v for k, v in w.items() if k != "hex"} for w in wanted))
    assert (said.code, said.err) == (0, "")
    assert answers(said) == wanted


def test_the_version_in_front_of_a_value_is_enough() -> None:
    line = {"name": "OffsetCommitValue", "hex": "0003" + "00" * 7 + "05" + "ff" * 4 + "0000" + "00" * 8}
    (answer,) = answers(wire("decode", line))
    assert answer["version"] == 3
    assert answer["json"]["offset"] == 5
    said = wire("decode", line | {"version": 4})
    assert said.code == 1
    assert answers(said)[0]["error"] == "the line has version 4, its bytes have version 3"


def test_a_record_of_the_clusters_metadata_has_its_frame() -> None:
    data = encode_cluster_record(TopicRecord(name="orders"))[1].hex()
    (there,) = answers(wire("decode", {"name": "TopicRecord", "hex": data}))
    assert there["json"]["name"] == "orders"
    (back,) = answers(wire("encode", {k: there[k] for k in ("name", "version", "json")}))
    assert back["hex"] == data


def test_a_bad_line_is_told_and_the_others_go_on() -> None:
    good = {"name": "HeartbeatResponse", "version": 0, "hex": "0000"}
    said = wire("decode", good, "", "{", good)
    assert said.code == 1
    assert said.err == 'konvene: 1 of 3 lines could not be converted; see their "error"\n'
    first, second, third = answers(said)
    assert first == third == good | {"json": {"errorCode": 0}}
    assert (second["line"], set(second)) == (3, {"line", "error"})


@pytest.mark.parametrize(
    "direction, line, why",
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
def test_every_bad_line_says_what_is_wrong(direction: str, line: Any, why: str) -> None:
    said = wire(direction, line)
    assert said.code == 1, said.out
    (answer,) = answers(said)
    assert answer["line"] == 1
    assert why in answer["error"] and answer["error"]


def test_no_byte_of_a_message_makes_a_traceback() -> None:
    """Each vector cut and flipped somewhere is answered, one line for one line."""
    lines = []
    for at, vector in enumerate(vectors("messages")[1::16] + vectors("records")[1::4]):
        data = bytearray.fromhex(vector["hex"]) or bytearray(1)
        data[at % len(data)] ^= 0xFF >> at % 8
        row = {"name": vector["name"], "version": vector["version"]}
        lines += [row | {"hex": data.hex()}, row | {"hex": data[: at % len(data)].hex()}]
    assert len(answers(wire("decode", *lines))) == len(lines)
