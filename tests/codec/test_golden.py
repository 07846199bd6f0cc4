"""Every vector that Apache Kafka 4.4.0 made: our bytes are its bytes, our values are its values."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from konvene.codec.compile import decode, encode
from konvene.codec.json import from_json, to_json
from konvene.codec.schema import Struct

VECTORS = Path(__file__).parent.parent / "vectors"
HOMES = ("messages", "records")


def declarations() -> dict[str, type[Struct]]:
    """Every declared message and record by Kafka's name."""
    found: dict[str, type[Struct]] = {}
    for home in HOMES:
        for path in sorted((Path(import_module(f"konvene.{home}").__file__ or "").parent).glob("*.py")):
            module = import_module(f"konvene.{home}.{path.stem}") if path.stem != "__init__" else None
            for name, value in vars(module).items() if module else ():
                if (
                    isinstance(value, type)
                    and issubclass(value, Struct)
                    and value.__module__ == module.__name__
                ):
                    found.setdefault(name, value)
    return found


DECLARED = declarations()


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def body(vector: dict[str, Any]) -> bytes:
    """The vector's bytes without the two that stand in front of a coordinator record."""
    data = bytes.fromhex(vector["hex"])
    return data[2:] if vector.get("type") in ("key", "value") else data


@pytest.mark.parametrize("file", ["messages.jsonl.gz", "records.jsonl.gz"])
def test_golden_vectors_both_ways(file: str) -> None:
    """Writing the JSON gives the hex; reading the hex gives the JSON; and nothing is left out."""
    vectors = lines(file)
    assert vectors
    for vector in vectors:
        cls, version = DECLARED[vector["name"]], vector["version"]
        where = f"{vector['name']} v{version} {vector['kind']}"
        value = decode(cls, version, body(vector))
        assert to_json(value, version) == vector["json"], where
        assert encode(from_json(cls, vector["json"], version), version) == body(vector), where
        assert encode(value, version) == body(vector), where


def test_tags_of_a_newer_peer_are_kept() -> None:
    """Fields that we do not know are read past, and written again where they stood."""
    vectors = lines("unknown_tags.jsonl.gz")
    assert vectors
    for vector in vectors:
        cls, version = DECLARED[vector["name"]], vector["version"]
        value = decode(cls, version, body(vector))
        kept = [{"tag": tag, "hex": data.hex()} for tag, data in value.unknown_tags]
        assert kept == vector["unknownTags"], vector["name"]
        assert to_json(value, version) == vector["json"], vector["name"]
        assert encode(value, version) == body(vector), vector["name"]
