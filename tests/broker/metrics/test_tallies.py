"""Histograms, rates as Kafka computes them, and the bounded set of labels."""

from __future__ import annotations

import pytest

from konvene.broker.metrics.instruments import (
    MAX_LABEL_LENGTH,
    OTHER,
    Buckets,
    GroupLabels,
    RateCounter,
    TopicLabels,
)


def test_value_counts_in_the_first_bucket_not_below_it() -> None:
    """Bounds are inclusive, and buckets are cumulative."""
    buckets = Buckets((0.1, 1.0))
    for value in (0.1, 0.10001, 1.0, 5.0):
        buckets.add(value)
    buckets.add(0.5, times=2)
    assert buckets.cumulative() == [("0.1", 1.0), ("1.0", 5.0), ("+Inf", 6.0)]
    assert buckets.count == 6
    assert buckets.total == pytest.approx(7.20001)


@pytest.mark.parametrize(
    ("recorded_s", "now_s", "expected"),
    [
        ([], 100, 0.0),
        ([0], 0, 1 / 30),  # The first window counts as a whole one.
        ([0, 10], 15, 2 / 45),
        ([0, 10], 30, 2 / 30),
        ([0, 40], 50, 2 / 50),
        ([0, 40], 65, 1 / 55),  # The window from 0 expired, the next one is incomplete.
        ([0, 40], 200, 0.0),
        ([0, 31, 62, 93], 94, 2 / 32),
    ],
)
def test_rate_covers_the_last_two_windows(recorded_s: list[float], now_s: float, expected: float) -> None:
    """As Kafka's meters with two samples of 30 s: since the start of the oldest unexpired sample."""
    paced = RateCounter()
    for moment in recorded_s:
        paced.add(1, moment)
    assert paced.rate(now_s) == pytest.approx(expected)
    assert paced.count == len(recorded_s)


def test_number_of_labels_is_limited() -> None:
    """The first groups have labels of their own, later ones share one; a released label is reused."""
    labels = GroupLabels(2)
    assert [labels.of(group) for group in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]
    labels.forget("a")
    assert [labels.of(group) for group in ("c", "a")] == ["c", OTHER]
    assert sorted(labels) == ["b", "c"]


def test_long_ids_and_a_limit_of_zero_have_no_label() -> None:
    """A very long group id would make the page too large."""
    assert GroupLabels(1).of("x" * MAX_LABEL_LENGTH) != OTHER
    assert GroupLabels(1).of("x" * (MAX_LABEL_LENGTH + 1)) == OTHER
    assert GroupLabels(0).of("a") == OTHER


def test_idle_groups_use_half_of_the_labels() -> None:
    """A group that is in use gets one of the others."""
    labels = GroupLabels(4)
    assert [labels.of_idle(group) for group in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]
    assert [labels.of(group) for group in ("c", "d", "e")] == ["c", "d", OTHER]
    assert labels.of_idle("d") == "d"


def test_number_of_topic_labels_is_limited() -> None:
    """A pair keeps its label while it has values, and frees it for another one."""
    labels = TopicLabels(2)
    assert labels.of("g", "a") == "a"
    assert labels.of("h", "a") == "a"
    assert labels.of("g", "b") == OTHER
    labels.retain({("g", "a")})
    assert labels.of("g", "b") == "b"
    assert labels.of("h", "a") == OTHER
    assert TopicLabels(0).of("g", "a") == OTHER
