"""Declared messages, records, APIs and errors equal those of Apache Kafka 4.4, field by field."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.codec.strategies import MESSAGE_TYPES

from konvene.codec.compile import encode
from konvene.codec.errors import CannotEncode
from konvene.codec.schema import Field, Primitive, Struct, Versions, default_of
from konvene.errors import Errors
from konvene.messages import API_KEYS, BY_NAME

VECTORS = Path(__file__).parents[1] / "vectors"


def facts(name: str) -> dict[str, dict[str, Any]]:
    """Return Kafka's schemas by name, from a vector file."""
    with gzip.open(VECTORS / name, "rt", encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


SCHEMAS = facts("schemas.json.gz")
RECORD_SCHEMAS = facts("record_schemas.json.gz")
VALID_SCHEMAS = {
    name: schema
    for name, schema in {**SCHEMAS, **RECORD_SCHEMAS}.items()
    if schema["validVersions"] != "none"  # Removed from Kafka; its API key stays reserved.
}

INTEGERS = ("int8", "int16", "uint16", "int32", "int64")
ONLY_IN_KONVENE = {
    "RebalanceKey",
    "RebalanceValue",
    "HeartbeatExtension",
    "StreamsExtension",
    "InFlightExtension",
}
"""Declared by konvene only: records of the audit log, and extensions of group descriptions."""

ONLY_IN_KAFKA_STREAMS = {"SubscriptionInfoData"}
"""Not in Kafka's schemas but in Kafka Streams; tests/groups/streams compares its bytes with Kafka's."""

FIELDS_ONLY_IN_KONVENE = {"ClassicMemberMetadata": "StreamsGroupMemberMetadataValue"}
"""Tagged fields that konvene adds to Kafka's records, by name with the record; Kafka skips them."""


DECLARED = {cls.__name__: cls for cls in MESSAGE_TYPES}
"""All declarations by Kafka's name."""


def expected_row(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of Kafka's field that determine its encoding and its JSON."""
    kind = schema["type"]
    versions = Versions.parse(schema.get("versions") or schema["taggedVersions"])
    tagged = schema.get("taggedVersions", "none") if "tag" in schema else "none"
    flexible = schema.get("flexibleVersions")
    return {
        "name": schema["name"][:1].upper() + schema["name"][1:],
        "array": kind.startswith("[]"),
        "type": "struct" if kind.removeprefix("[]")[0].isupper() else kind.removeprefix("[]"),
        "versions": versions,
        "nullable": Versions.parse(schema.get("nullableVersions", "none")),
        "tag": schema.get("tag"),
        "tagged": Versions.parse(tagged),
        "default": declared_default(kind, schema.get("default", "")),
        "ignorable": schema.get("ignorable", False),
        "flexible": None if flexible is None else Versions.parse(flexible),
    }


def declared_default(kind: str, default: Any) -> Any:
    """Return Kafka's default as a Python value, or "the struct itself" for a struct."""
    if default == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if kind in INTEGERS:
        return int(default, 0) if isinstance(default, str) and default else int(default or 0)
    if kind == "bool":
        return default in (True, "true")
    if kind == "float64":
        return float(default or 0)
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return bytes(16)
    return default if kind == "string" else "the struct itself"


def actual_row(field: Field) -> dict[str, Any]:
    """Return the same properties of our field."""
    element = field.element if field.kind == "array" else None
    primitive = element.name if isinstance(element, Primitive) else "struct"
    default = default_of(field)
    if isinstance(default, Struct):
        assert default == field.element(), field
        default = "the struct itself"
    return {
        "name": field.wire[:1].upper() + field.wire[1:],
        "array": field.kind == "array",
        "type": primitive if field.kind == "array" else field.kind,
        "versions": field.versions,
        "nullable": field.nullable,
        "tag": field.tag,
        "tagged": field.tagged,
        "default": default,
        "ignorable": field.ignorable,
        "flexible": field.flexible,
    }


def compare(cls: type[Struct], schemas: list[dict[str, Any]], common: dict[str, Any], where: str) -> None:
    fields = [f for f in cls.__fields__ if FIELDS_ONLY_IN_KONVENE.get(actual_row(f)["name"]) != where]
    assert [actual_row(f) for f in fields] == [expected_row(s) for s in schemas], where
    for field, schema in zip(fields, schemas, strict=True):
        kind = schema["type"].removeprefix("[]")
        if kind[0].isupper():
            inner = schema.get("fields") or common[kind]
            compare(field.element, inner, common, f"{where}.{schema['name']}")


def test_all_of_kafkas_messages_and_no_others_are_declared() -> None:
    """Each of Kafka's messages and records, and each of our own, is declared exactly once."""
    assert len(DECLARED) == len(MESSAGE_TYPES)
    assert set(DECLARED) == set(VALID_SCHEMAS) | ONLY_IN_KONVENE | ONLY_IN_KAFKA_STREAMS


@pytest.mark.parametrize("name", sorted(VALID_SCHEMAS))
def test_a_declaration_equals_kafkas(name: str) -> None:
    """API key, versions, and the properties of every field at any depth are equal."""
    schema, cls = VALID_SCHEMAS[name], DECLARED[name]
    assert cls.__key__ == schema.get("apiKey", -1)
    assert cls.__versions__ == Versions.parse(schema["validVersions"])
    assert cls.__flexible__ == Versions.parse(schema["flexibleVersions"])
    common = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}
    compare(cls, schema["fields"], common, name)


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_undeclared_versions_cannot_be_encoded(name: str) -> None:
    """Versions below the first or above the last raise CannotEncode."""
    cls = DECLARED[name]
    first, last = cls.__versions__
    for version in (first - 1, last + 1):
        with pytest.raises(CannotEncode):
            encode(cls(), version)


def test_the_table_of_apis_equals_kafkas() -> None:
    """It has each API with valid versions: name, versions, and the header version of each version."""
    rows = json.loads((VECTORS / "apis.json").read_text("utf-8"))
    valid = {int(key): row for key, row in rows.items() if row["latest"] >= row["oldest"]}
    assert set(API_KEYS) == set(valid)
    for key, row in valid.items():
        api = API_KEYS[key]
        assert _upper_snake_case(api.name) == row["request"]
        assert (api.versions.first, api.versions.last) == (row["oldest"], row["latest"])
        assert api.latest_stable == row["latestStable"]
        versions = range(api.versions.first, api.versions.last + 1)
        assert {str(v): api.request_header_version(v) for v in versions} == row["requestHeaderVersions"]
        assert {str(v): api.response_header_version(v) for v in versions} == row["responseHeaderVersions"]


def _upper_snake_case(name: str) -> str:
    return "".join("_" + c if c.isupper() else c for c in name).lstrip("_").upper()


def test_apis_agree_with_their_declarations() -> None:
    """An API has the versions of its request and response; its module is its name in snake case."""
    for key, api in API_KEYS.items():
        assert BY_NAME[api.name] is api
        assert api.module == _upper_snake_case(api.name).lower()
        for cls in (api.request, api.response):
            assert cls.__key__ == key
            assert cls.__versions__ == api.versions
            for version in range(api.versions.first, api.versions.last + 1):
                assert (version in cls.__flexible__) == (version >= api.first_flexible)
        unstable = SCHEMAS[api.name + "Request"].get("latestVersionUnstable", False)
        assert api.latest_stable == api.versions.last - unstable


def test_errors_equal_kafkas() -> None:
    """Codes, names and retriability of all errors are equal."""
    rows = json.loads((VECTORS / "errors.json").read_text("utf-8"))
    assert {int(e): e.name for e in Errors} == {int(code): row["name"] for code, row in rows.items()}
    assert {e.name for e in Errors if e.retriable} == {r["name"] for r in rows.values() if r["retriable"]}
