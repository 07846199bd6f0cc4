"""Planning of `konvene groups reset-offsets`: cases for every rule, and properties of all plans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.admin.reset_plan import (
    RULES,
    BadInput,
    Facts,
    Goal,
    plan,
    read_csv,
    read_datetime,
    read_duration_ns,
    read_topics,
    write_csv,
)
from konvene.client.net.cluster import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FACTS = Facts(
    earliest={P0: 10, P1: 0},
    latest={P0: 20, P1: 0},
    committed={P0: 15},
    at_time={P0: 12, P1: None},
)
HIGH = "New offset ({}) is higher than latest offset for topic partition {}. Value will be set to {}."
LOW = "New offset ({}) is lower than earliest offset for topic partition {}. Value will be set to {}."
LATE = (
    "Partition 1 from topic orders has no record at or after that time. Falling back to latest known offset."
)


@pytest.mark.parametrize(
    ("goal", "partitions", "offsets", "warnings"),
    [
        (Goal("to-earliest"), [P0, P1], {P0: 10, P1: 0}, []),
        (Goal("to-latest"), [P0, P1], {P0: 20, P1: 0}, []),
        (Goal("to-current"), [P0, P1], {P0: 15, P1: 0}, []),
        (Goal("to-offset", 10), [P0], {P0: 10}, []),
        (Goal("to-offset", 20), [P0], {P0: 20}, []),
        (Goal("to-offset", 21), [P0], {P0: 20}, [HIGH.format(21, "orders-0", 20)]),
        (Goal("to-offset", 9), [P0], {P0: 10}, [LOW.format(9, "orders-0", 10)]),
        (Goal("to-offset", 5), [P1, P0], {P0: 10, P1: 0},
         [LOW.format(5, "orders-0", 10), HIGH.format(5, "orders-1", 0)]),
        (Goal("shift-by", 3), [P0], {P0: 18}, []),
        (Goal("shift-by", -5), [P0], {P0: 10}, []),
        (Goal("shift-by", -6), [P0], {P0: 10}, [LOW.format(9, "orders-0", 10)]),
        (Goal("shift-by", 2**63), [P0], {P0: 20}, [HIGH.format(2**63 + 15, "orders-0", 20)]),
        (Goal("to-datetime", 1), [P0, P1], {P0: 12, P1: 0}, [LATE]),
        (Goal("by-duration", 1), [P0, P1], {P0: 12, P1: 0}, [LATE]),
        (Goal("from-file", offsets={P0: 11, P1: 4}), [P0, P1], {P0: 11, P1: 0},
         [HIGH.format(4, "orders-1", 0)]),
    ],
)  # fmt: skip
def test_each_goal_gives_each_partition_its_offset(
    goal: Goal, partitions: list[TopicPartition], offsets: dict[TopicPartition, int], warnings: list[str]
) -> None:
    """An offset outside the log is moved to the nearer end with a warning."""
    assert plan(goal, partitions, FACTS) == (offsets, warnings)


def test_shift_needs_a_committed_offset() -> None:
    expected = "^Cannot shift offset for partition orders-1 since there is no current committed offset$"
    with pytest.raises(BadInput, match=expected):
        plan(Goal("shift-by", 1), [P0, P1], FACTS)


offsets_ = st.integers(0, 2**63 - 1)
partitions_ = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "x-1"]), st.integers(0, 5))


@st.composite
def logs(draw: st.DrawFn) -> Facts:
    """Draw partitions with start and end offsets, and perhaps a commit (possibly out of range) and an
    offset by timestamp.
    """
    facts = Facts({}, {}, {}, {})
    for tp in draw(st.sets(partitions_)):
        first, last = sorted((draw(offsets_), draw(offsets_)))
        facts.earliest[tp], facts.latest[tp] = first, last  # type: ignore[index]
        facts.committed[tp] = draw(offsets_)  # type: ignore[index]
        facts.at_time[tp] = draw(st.none() | st.integers(first, last))  # type: ignore[index]
    return facts


@given(st.sampled_from(sorted(RULES)), st.integers(-(2**63), 2**63 - 1), logs(), st.data())
def test_every_plan_is_complete_and_within_the_logs(
    rule: str, number: int, facts: Facts, data: st.DataObject
) -> None:
    """Every requested partition has one offset, in order. It is within the log unless the committed offset
    is kept; every adjustment has a warning; planning again from the result changes nothing.
    """
    partitions = data.draw(st.lists(st.sampled_from(sorted(facts.latest)))) if facts.latest else []
    goal = Goal(rule, number, dict.fromkeys(partitions, number) if rule == "from-file" else {})
    planned = plan(goal, partitions, facts)
    assert list(planned.offsets) == sorted(set(partitions))
    for tp, offset in planned.offsets.items():
        if rule == "to-current":
            assert offset == facts.committed[tp]
        else:
            assert facts.earliest[tp] <= offset <= facts.latest[tp]
            warnings = [
                line for line in planned.warnings if f" {tp}." in line or f"Partition {tp.partition} " in line
            ]
            requested = {"to-offset": number, "from-file": number, "shift-by": facts.committed[tp] + number}
            assert (requested.get(rule, offset) == offset) or warnings
    again = plan(Goal("from-file", offsets=planned.offsets), partitions, facts)
    assert again.offsets == planned.offsets or rule == "to-current"


@given(st.sampled_from(sorted(RULES)), logs())
def test_rule_uses_only_its_declared_facts(rule: str, facts: Facts) -> None:
    goal = Goal(rule, 7, dict.fromkeys(facts.latest, 7))
    needed = Facts(**{name: getattr(facts, name) for name in RULES[rule].needs})
    assert plan(goal, facts.latest, needed) == plan(goal, facts.latest, facts)


# parsing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "topics"),
    [
        (["orders"], (("orders", None),)),
        (["orders:2,0,2"], (("orders", (0, 2)),)),
        (["orders:1", "payments", "orders:0"], (("orders", (0, 1)), ("payments", None))),
        (["orders:1", "orders"], (("orders", None),)),
        (["orders", "orders:1"], (("orders", None),)),
        ([], ()),
    ],
)
def test_topic_arguments_are_parsed(args: list[str], topics: object) -> None:
    assert read_topics(args) == topics


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("orders:", "Invalid topic arg 'orders:', expected topic name and partitions"),
        (":0", "Invalid topic arg ':0', expected topic name and partitions"),
        ("orders:0:1", "Invalid topic arg 'orders:0:1', expected topic name and partitions"),
        ("orders:x", "Invalid partition 'x' specified in topic arg 'orders:x'"),
        ("orders:0,,1", "Invalid partition '' specified in topic arg 'orders:0,,1'"),
        ("orders:-1", "Invalid partition '-1' specified in topic arg 'orders:-1'"),
        ("orders:٣", "Invalid partition '٣' specified"),
    ],
)
def test_invalid_topic_arguments_are_rejected(arg: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        read_topics([arg])
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00.007Z", 7),
        ("1970-01-01T02:00:00.000+02:00", 0),
        ("1970-01-01T02:00:00.000+0200", 0),
        ("1970-01-01T02:00:00.000+02", 0),
        ("1969-12-31T20:30:00.000-03:30", 0),
        ("1969-12-31T23:59:59.999", -1),
        ("2026-11-21T08:30:00", 1_795_249_800_000),
        ("2024-02-29T12:00:00.001", 1_709_208_000_001),
    ],
)
def test_times_without_a_zone_are_utc(text: str, ms: int) -> None:
    assert read_datetime(text) == ms


@given(
    st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30)),  # noqa: DTZ001 (the zone is drawn beside it)
    st.integers(-17 * 60, 17 * 60),
)
def test_every_formatted_time_is_parsed(moment: datetime, east_min: int) -> None:
    moment = moment.replace(
        microsecond=moment.microsecond // 1000 * 1000, tzinfo=timezone(timedelta(minutes=east_min))
    )
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert read_datetime(moment.isoformat(timespec="milliseconds")) == since // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "", "2026-11-21", "2026-11-21 08:30:00.000", "2026-02-30T00:00:00.000", "2026-11-21T24:00:00.000",
        "2026-11-21T08:30:00.5", "2026-11-21T08:30:00.000+25:00", "2026-11-21T08:30:00.000 Z", "now",
        "2026-11-21T08:30:00.000Z ",
    ],
)  # fmt: skip
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a time of the form YYYY-MM-DDThh:mm:ss\.sss"):
        read_datetime(text)


HOUR = 3_600 * 10**9


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("P1D", 24 * HOUR),
        ("PT1H", HOUR),
        ("pt1h30m", HOUR * 3 // 2),
        ("P2DT3H4M5.678S", 51 * HOUR + 245_678 * 10**6),
        ("PT0.000000001S", 1),
        ("PT-0.5S", -(10**9) // 2),
        ("PT1.S", 10**9),
        ("PT1,5S", 15 * 10**8),
        ("-PT1H", -HOUR),
        ("-PT-1H+30M", HOUR // 2),
        ("PT0S", 0),
    ],
)
def test_durations_are_parsed_as_in_java(text: str, ns: int) -> None:
    assert read_duration_ns(text) == ns


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1W", "P1M", "P1Y", "PT1D", "P1H", "PT.5S", "PT1H ", "P1.5D"]
)
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(BadInput, match="is not a duration of the form PnDTnHnMnS"):
        read_duration_ns(text)


# CSV --------------------------------------------------------------------------------------------


def test_csv_of_one_group_needs_no_group_column() -> None:
    assert read_csv("orders,0,5\norders,1,6\n\n", ["g"]) == {"g": {P0: 5, P1: 6}}
    assert read_csv("g,orders,0,5\r\nh,orders,1,6\r\n", ["g"]) == {"g": {P0: 5}, "h": {P1: 6}}
    assert read_csv('"orders",0,5\n', ["g"]) == {"g": {P0: 5}}
    assert read_csv("", ["g"]) == {}


@pytest.mark.parametrize(
    ("text", "groups", "message"),
    [
        ("orders,0,5", [], "line 1 has 3 columns, expected group,topic,partition,offset"),
        ("orders,0,5", ["g", "h"], "line 1 has 3 columns, expected group,topic,partition,offset"),
        ("orders,0,5\ng,orders,1,6", ["g"], "line 2 has 4 columns, expected topic,partition,offset"),
        ("topic,partition,offset", ["g"], "line 1: partition and offset must be whole numbers"),
        ("orders,0,", ["g"], "line 1: partition and offset must be whole numbers"),
        ("orders,0,1.5", ["g"], "line 1: partition and offset must be whole numbers"),
    ],
)
def test_invalid_csv_lines_are_rejected(text: str, groups: list[str], message: str) -> None:
    with pytest.raises(BadInput) as error:
        read_csv(text, groups)
    assert str(error.value).startswith(message)


def test_csv_names_are_quoted_as_by_kafka() -> None:
    """Names longer than 24 characters or with special characters are quoted."""
    names = ["a", "a b", 'a"b', "x" * 24, "x" * 25, "a-b_c.d"]
    assert write_csv({name: {P0: 5} for name in names}, with_group=True).splitlines() == [
        "a,orders,0,5", '"a b",orders,0,5', '"a""b",orders,0,5', f"{'x' * 24},orders,0,5",
        f'"{"x" * 25}",orders,0,5', "a-b_c.d,orders,0,5",
    ]  # fmt: skip


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
plans = st.dictionaries(
    names, st.dictionaries(partitions_, st.integers(0, 2**63 - 1), min_size=1), min_size=1, max_size=3
)


@given(plans)
def test_written_csv_is_read_back(offsets_by_group: dict[str, dict[TopicPartition, int]]) -> None:
    """Group names may contain commas, quotes and line ends."""
    assert read_csv(write_csv(offsets_by_group, with_group=True), []) == offsets_by_group
    for group, offsets in offsets_by_group.items():
        assert read_csv(write_csv({group: offsets}, with_group=False), [group]) == {group: offsets}
