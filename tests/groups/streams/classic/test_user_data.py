"""User data of Kafka Streams, compared with Kafka's own encoder and decoder (user_data_rows.py), and
fuzzed."""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.streams.classic import user_data_rows as rows
from tests.groups.streams.classic.user_data_rows import ANN, ENDPOINTS, VALUES, Row, damaged, vectors

from konvene.groups.streams.classic.user_data import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    AssignmentInfo,
    SubscriptionInfo,
    UserDataError,
    read_assignment_info,
    read_subscription_info,
    write_assignment_info,
    write_subscription_info,
)

VERSIONS = range(1, LATEST_VERSION + 1)


def of_kind(kind: str) -> list[Row]:
    return [row for row in vectors() if row["value"]["kind"] == kind]


def has_named_topology(value: Row) -> bool:
    return any(each[2] for each in (*value["active"], *value["standby"]))


# --- Kafka's own encoding --------------------------------------------------------------------------


def test_the_vectors_are_those_of_all_values() -> None:
    """The recorded rows are complete, and each version has some."""
    values = [*VALUES, *({"kind": "endpoint", "endpoint": endpoint} for endpoint in ENDPOINTS)]
    assert [row["value"] for row in vectors()] == values
    of_versions = Counter((v["kind"], v["version"]) for v in VALUES)
    assert len(of_versions) == 2 * len(VERSIONS) and min(of_versions.values()) >= 3


@pytest.mark.parametrize("row", of_kind("subscription"))
def test_kafkas_subscriptions_are_decoded(row: Row) -> None:
    """Every field."""
    info = read_subscription_info(bytes.fromhex(row["hex"]))
    assert info == rows.subscription(row["value"])
    unnamed = [each for each in row["read"]["sums"] if not each[2]]
    assert rows.subscription_row(info) == {**row["read"], "sums": unnamed}


@pytest.mark.parametrize("row", of_kind("subscription"))
def test_encoded_subscriptions_equal_kafkas(row: Row) -> None:
    """Tasks and tags are in unordered maps there: the same multiset of bytes, and an equal value when
    decoded."""
    info = rows.subscription(row["value"])
    if info.named_topologies:
        return
    written, kafka = write_subscription_info(info), bytes.fromhex(row["hex"])
    assert sorted(written) == sorted(kafka)
    assert read_subscription_info(written) == info
    if len(row["value"]["sums"]) < 2:
        assert written == kafka


@pytest.mark.parametrize("row", of_kind("assignment"))
def test_kafkas_assignments_are_decoded(row: Row) -> None:
    """A task of a named topology is refused."""
    data, value = bytes.fromhex(row["hex"]), row["value"]
    info, partitions = rows.assignment(value)
    if has_named_topology(value):
        with pytest.raises(UserDataError, match=r"named topology (north|süd)"):
            read_assignment_info(data, partitions)
        return
    assert read_assignment_info(data, partitions) == info
    assert rows.assignment_row(info) == row["read"]


@pytest.mark.parametrize("row", of_kind("assignment"))
def test_encoded_assignments_equal_kafkas(row: Row) -> None:
    """Copies and hosts are in unordered maps there, which determine the topic numbers: the same length, and
    an equal value when decoded."""
    if has_named_topology(row["value"]):
        return
    info, partitions = rows.assignment(row["value"])
    written, kafka = write_assignment_info(info), bytes.fromhex(row["hex"])
    assert len(written) == len(kafka)
    assert read_assignment_info(written, partitions) == info
    if not info.standby:
        assert written == kafka


@pytest.mark.parametrize("row", of_kind("endpoint"))
def test_endpoints_are_parsed_as_by_kafka(row: Row) -> None:
    """What it refuses is no endpoint here, and neither is a port that the streams protocol cannot
    represent."""
    info = replace(minimal(11), user_endpoint=row["value"]["endpoint"])
    expected = row.get("read")
    assert info.endpoint == (tuple(expected) if expected is not None and expected[1] <= 0xFFFF else None)


def minimal(version: int) -> SubscriptionInfo:
    return SubscriptionInfo(version, LATEST_VERSION if version >= 3 else -1, ANN)


# --- any value -------------------------------------------------------------------------------------

number = st.integers(0, 2**31 - 1)
task = st.tuples(number.map(str), number)
text = st.text(max_size=8)
partition = st.tuples(text, number)
some = st.sets(partition, max_size=4).map(lambda found: tuple(sorted(found)))
hosts = st.dictionaries(st.tuples(text, st.integers(-(2**31), 2**31 - 1)), some, max_size=3)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def subscription_infos(draw: st.DrawFn) -> SubscriptionInfo:
    version = draw(st.sampled_from(VERSIONS))
    fields: dict[str, Any] = {}
    if version >= 3:
        fields["latest_supported_version"] = draw(st.integers(version, 2**31 - 1))
    if version < 7:
        fields["prev_tasks"] = draw(st.frozensets(task, max_size=4))
        fields["standby_tasks"] = draw(st.frozensets(task, max_size=4))
    else:
        fields["offset_sums"] = draw(st.dictionaries(task, int64, max_size=5))
    if version >= 2:
        fields["user_endpoint"] = draw(text)
    if version >= 8:
        fields["unique_field"] = draw(st.integers(-128, 127))
    if version >= 9:
        fields["error_code"] = draw(int32)
    if version >= 11:
        fields["client_tags"] = tuple(sorted(draw(st.dictionaries(text, text, max_size=3)).items()))
    return replace(minimal(version), process_id=str(draw(st.uuids())), **fields)


@st.composite
def assignment_infos(draw: st.DrawFn) -> AssignmentInfo:
    version = draw(st.sampled_from(VERSIONS))
    partitions = sorted(draw(st.sets(partition, max_size=5)))
    return AssignmentInfo(
        version,
        draw(int32) if version >= 3 else -1,
        tuple((draw(task), each) for each in partitions),
        draw(st.dictionaries(task, some, max_size=3)),
        draw(hosts) if version >= 2 else {},
        draw(hosts) if version >= 6 else {},
        draw(int32) if version >= 4 else 0,
        draw(int64) if version >= 7 else NO_REBALANCE_MS,
    )


@given(subscription_infos())
def test_subscription_round_trip(info: SubscriptionInfo) -> None:
    assert read_subscription_info(write_subscription_info(info)) == info


@given(assignment_infos())
def test_assignment_round_trip(info: AssignmentInfo) -> None:
    partitions = tuple(each for _, each in info.active)
    assert read_assignment_info(write_assignment_info(info), partitions[::-1]) == info


@given(assignment_infos(), st.sampled_from(VERSIONS))
def test_fields_that_a_version_lacks_are_left_out(info: AssignmentInfo, version: int) -> None:
    """No other field is lost: the result can be decoded in that version."""
    partitions = tuple(each for _, each in info.active)
    found = read_assignment_info(write_assignment_info(replace(info, version=version)), partitions)
    assert (found.active, found.standby) == (info.active, info.standby)
    assert found.partitions_by_host == (info.partitions_by_host if version >= 2 else {})
    assert found.error_code == (info.error_code if version >= 4 else 0)


# --- invalid data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 13, 2**31 - 1])
def test_an_unknown_version_is_distinguished_from_damage(version: int) -> None:
    """The message has the version, and the latest supported version."""
    data = struct.pack(">ii", version, version) + b"whatever"
    with pytest.raises(UserDataError, match=f"its version is {version}, .* {LATEST_VERSION} is the latest"):
        read_subscription_info(data)
    with pytest.raises(UserDataError, match=f"version is {version}"):
        read_assignment_info(data, ())


@pytest.mark.parametrize("version", [0, -1, -(2**31)])
def test_versions_begin_with_1(version: int) -> None:
    data = struct.pack(">ii", version, 11)
    with pytest.raises(UserDataError, match=f"version is {version}"):
        read_subscription_info(data)
    with pytest.raises(UserDataError, match=f"version is {version}"):
        read_assignment_info(data, ())


@pytest.mark.parametrize("version", range(3, 12))
def test_a_version_above_the_supported_one_is_refused(version: int) -> None:
    """A version beyond the latest that the member supports: damaged data, as in Kafka."""
    data = write_subscription_info(replace(minimal(version), latest_supported_version=version - 1))
    with pytest.raises(
        UserDataError,
        match=f"its version is {version}, beyond its own latest supported version {version - 1}",
    ):
        read_subscription_info(data)


def test_the_numbers_of_tasks_and_partitions_must_be_equal() -> None:
    data = write_assignment_info(AssignmentInfo(11, 11, ((("0", 0), ("orders", 0)),)))
    with pytest.raises(UserDataError, match="1 tasks for 2 partitions"):
        read_assignment_info(data, (("orders", 0), ("orders", 1)))


def test_damaged_data_is_refused_or_decoded() -> None:
    """Bytes are changed, removed and inserted; the only possible error is `UserDataError`."""
    chance, results = Random(14), Counter[str]()
    valid = [row for row in vectors() if "hex" in row]
    for _ in range(15_000):
        row = chance.choice(valid)
        data = damaged(bytes.fromhex(row["hex"]), chance)
        try:
            if row["value"]["kind"] == "subscription":
                info = read_subscription_info(data)
                assert info.endpoint is None or 0 <= info.endpoint[1] <= 0xFFFF
            else:
                read_assignment_info(data, rows.assignment(row["value"])[1])
            results["read"] += 1
        except UserDataError as refused:
            assert str(refused)
            results["refused"] += 1
    assert min(results["read"], results["refused"]) > 1000, results


@pytest.mark.parametrize("row", of_kind("subscription") + of_kind("assignment"))
def test_truncated_data_is_refused(row: Row) -> None:
    """At every byte. The version of an assignment or subscription determines its fields."""
    data, value = bytes.fromhex(row["hex"]), row["value"]
    for size in range(len(data)):
        with pytest.raises(UserDataError):
            if value["kind"] == "subscription":
                read_subscription_info(data[:size])
            else:
                read_assignment_info(data[:size], rows.assignment(value)[1])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_beyond_the_data_allocates_nothing(version: int) -> None:
    """Two thousand million tasks, with no bytes for any of them."""
    data = bytearray(write_subscription_info(minimal(version)))
    at = 4 + (4 if version >= 3 else 0) + 16 + (4 if version >= 7 else 0)
    assert data[at : at + 4] == bytes(4)
    data[at : at + 4] = struct.pack(">i", 2**31 - 1)
    assignment = (
        struct.pack(">i", version) + (bytes(4) if version >= 3 else b"") + struct.pack(">i", 2**31 - 1)
    )
    tracemalloc.start()
    try:
        with pytest.raises(UserDataError):
            read_subscription_info(bytes(data))
        with pytest.raises(UserDataError, match="more than its size allows"):
            read_assignment_info(assignment, ())
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
