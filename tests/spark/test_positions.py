"""Positions as JSON, for all partitions of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.net.cluster import TopicPartition
from konvene.spark.positions import EARLIEST, LATEST, Positions, as_json, from_json, positions_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1, max_size=3), st.integers(0, 20)), st.integers(0, 1 << 62)
)


@given(OFFSETS)
def test_offsets_survive_json(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(as_json(offsets)) == offsets


def test_json_is_in_order() -> None:
    assert list(as_json({B0: 1, A1: 2, A0: 3}).items()) == [("a", {"0": 3, "1": 2}), ("b", {"0": 1})]


def test_timestamps_prevail_over_offsets() -> None:
    options = {
        "startingOffsets": '{"a":{"0":1}}', "startingOffsetsByTimestamp": '{"a":{"0":2}}',
        "startingTimestamp": "3",
    }  # fmt: skip
    assert positions_of(options, "starting", LATEST).times([A0], "x") == {A0: 3}
    del options["startingTimestamp"]
    assert positions_of(options, "starting", LATEST).times([A0], "x") == {A0: 2}
    del options["startingOffsetsByTimestamp"]
    found = positions_of(options, "starting", LATEST)
    assert found.times([A0], "x") is None and found.offsets_for([A0], "x") == {A0: 1}


def test_one_position_is_for_all_partitions() -> None:
    found = positions_of({"startingOffsets": " Earliest "}, "starting", LATEST)
    assert found.offsets_for([A0, B0], "x") == {A0: EARLIEST, B0: EARLIEST}
    assert positions_of({}, "ending", LATEST).offsets_for([A0], "x") == {A0: LATEST}


@pytest.mark.parametrize("named", [{A0: 1}, {A0: 1, A1: 1, B0: 1}])
def test_offsets_must_name_all_partitions_and_no_others(named: dict[TopicPartition, int]) -> None:
    for positions in (Positions(offsets=named), Positions(timestamps=named)):
        with pytest.raises(ValueError, match=r"startingOffsets must name all partitions .* reads a-0, a-1$"):
            positions.times([A0, A1], "startingOffsets")
            positions.offsets_for([A0, A1], "startingOffsets")
