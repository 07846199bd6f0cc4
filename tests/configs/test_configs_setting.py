"""Settings parse text as Kafka's ConfigDef does, reject invalid values, and render values as Java does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.configs.broker.table import BROKER
from konvene.configs.errors import ConfigError, InvalidValue
from konvene.configs.group import GROUP
from konvene.configs.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    Kind,
    Password,
    Setting,
    Value,
    duration_ms,
)
from konvene.configs.topic import TOPIC

ROWS = [*BROKER.values(), *TOPIC.values(), *GROUP.values()]


def test_kinds_have_the_codes_of_the_wire() -> None:
    """DescribeConfigs numbers the types from BOOLEAN = 1 to PASSWORD = 9."""
    assert [kind.name for kind in sorted(Kind)] == [
        *("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
    ]
    assert [int(kind) for kind in sorted(Kind)] == list(range(1, 10))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (INT, "+7", 7),
        (INT, "-2147483648", -(2**31)),
        (LONG, "9223372036854775807", 2**63 - 1),
        (SHORT, "32767", 32767),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, ".5", 0.5),
        (STRING, "  a b  ", "a b"),
        (LIST, "", ()),
        (LIST, " a , b,a ", ("a", "b")),
    ],
)
def test_text_is_parsed_to_a_typed_value(kind: Kind, text: str, value: Value) -> None:
    """Text is trimmed; a list is split at commas and duplicates are removed."""
    found = Setting("some.key", kind, None, "").parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "log.segment.bytes",
            "-1",
            "Invalid value -1 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        ("group.max.size", "x", "Invalid value x for configuration group.max.size: Not a number of type INT"),
        (
            "group.max.size",
            "2147483648",
            "Invalid value 2147483648 for configuration group.max.size: Not a number of type INT",
        ),
        ("node.id", "1_0", "Invalid value 1_0 for configuration node.id: Not a number of type INT"),
        ("group.max.size", "", "Invalid value  for configuration group.max.size: Not a number of type INT"),
        (
            "log.cleaner.min.cleanable.ratio",
            "nan",
            "Invalid value nan for configuration log.cleaner.min.cleanable.ratio: "
            "Not a number of type DOUBLE",
        ),
        (
            "log.cleaner.enable",
            "yes",
            "Invalid value yes for configuration log.cleaner.enable: "
            "Expected value to be either true or false",
        ),
        (
            "log.message.timestamp.type",
            "createtime",
            "Invalid value createtime for configuration log.message.timestamp.type: "
            "String must be one of: CreateTime, LogAppendTime",
        ),
        (
            "group.consumer.migration.policy",
            "up",
            "Invalid value up for configuration group.consumer.migration.policy: "
            "String must be one of (case insensitive): BIDIRECTIONAL, DISABLED, DOWNGRADE, UPGRADE",
        ),
        (
            "log.cleanup.policy",
            "compact,keep",
            "Invalid value compact,keep for configuration log.cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            "log.dirs",
            "",
            "Invalid value  for configuration log.dirs: Value must not be empty; it may be any list",
        ),
        (
            "log.dirs",
            "/a,,/b",
            "Invalid value /a,,/b for configuration log.dirs: Values in the list must not be empty",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9, or -1",
        ),
        (
            "group.streams.rack.aware.assignment.tags",
            "zone,zone",
            "Invalid value zone,zone for configuration group.streams.rack.aware.assignment.tags: "
            "Value must be a list without duplicates or empty values",
        ),
    ],
)
def test_an_error_names_key_value_and_bound(name: str, text: str, message: str) -> None:
    """The messages are Kafka's, and the code is INVALID_CONFIG."""
    with pytest.raises(InvalidValue) as raised:
        BROKER[name].parse(text)
    assert str(raised.value) == message
    assert raised.value.code == 40


def test_an_error_begins_with_the_origin_of_the_value() -> None:
    """File and line, or --set, precede the message."""
    with pytest.raises(ConfigError, match=r"^server\.properties:3: Invalid value x "):
        BROKER["group.max.size"].parse("x", "server.properties:3")


@pytest.mark.parametrize(
    ("table", "name", "good", "bad"),
    [
        (GROUP, "share.auto.offset.reset", ["latest", "by_duration:PT1H"], ["none", "by_duration"]),
        (GROUP, "share.auto.offset.reset", ["by_duration:P1DT2H3M4.5S"], ["by_duration:-PT1S", "P1D"]),
        (TOPIC, "leader.replication.throttled.replicas", ["", "*", "0:1", "0:1,12:3"], ["0", "0:1,*", "a:b"]),
        (BROKER, "controller.quorum.voters", ["", "1@h:9093", "1@h:9093,2@[::1]:9093"], ["h:9093", "1@h"]),
        (BROKER, "controller.quorum.bootstrap.servers", ["", "h:9093"], ["h", "h:"]),
        (BROKER, "compression.gzip.level", ["-1", "1", "9"], ["-2", "0", "10"]),
        (BROKER, "remote.log.storage.manager.impl.prefix", ["rsm."], [""]),
        (BROKER, "group.consumer.migration.policy", ["upgrade", "Bidirectional"], ["", "none"]),
    ],
)
def test_named_rules(table: dict[str, Setting], name: str, good: list[str], bad: list[str]) -> None:
    """Rules that are neither a range nor a choice accept and reject the same values as Kafka's validators."""
    for text in good:
        table[name].parse(text)
    for text in bad:
        with pytest.raises(InvalidValue):
            table[name].parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("pt1h30m", 5_400_000),
        ("PT1.5S", 1500),
        ("PT-1H90M", 1_800_000),
        ("PT-1S", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1h", None),
        ("P1Y", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    """Parse days, hours, minutes and seconds as Java does; a negative duration is invalid."""
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (0, "0"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
        (1.25e-5, "1.25E-5"),
    ],
)
def test_a_value_renders_as_java_prints_it(value: Value, text: str | None) -> None:
    """DescribeConfigs returns the same text as Kafka."""
    assert Setting("some.key", STRING, None, "").render(value) == text


def test_a_password_is_never_shown() -> None:
    """str, format, repr and rendering hide it; only `reveal` returns it."""
    row = Setting("some.password", PASSWORD, None, "", rule="not empty")
    value = row.parse(" s3cret ")
    assert isinstance(value, Password)
    assert {str(value), f"{value}", repr(value), row.render(value)} == {"[hidden]"}
    assert value.reveal() == "s3cret"


@given(st.sampled_from(ROWS), st.data())
def test_rendered_text_parses_to_the_same_value(row: Setting, data: st.DataObject) -> None:
    """parse(render(parse(text))) = parse(text), for every row and any text."""
    numbers = st.one_of(st.integers(), st.floats()).map(str)
    text = data.draw(st.one_of(st.text(max_size=20), numbers, _likely(row)))
    try:
        value = row.parse(text)
    except InvalidValue as raised:
        assert row.name in str(raised)
        return
    if row.sensitive:
        return
    rendered = row.render(value)
    assert rendered is not None
    assert row.parse(rendered) == value


def _likely(row: Setting) -> st.SearchStrategy[str]:
    """Return a strategy for text that the row probably accepts."""
    if row.one_of:
        return st.sampled_from(row.one_of)
    if row.kind is BOOLEAN:
        return st.sampled_from(["true", "FALSE"])
    if row.kind in (INT, LONG, SHORT):
        low = int(row.at_least or 0)
        high = int(row.at_most) if row.at_most is not None else max(low, 30_000)
        return st.integers(low, high).map(str)
    return st.lists(st.sampled_from("abc"), max_size=4).map(",".join)
