"""Plans of resets of committed offsets: pure functions from goals and facts to new offsets.

A goal is a reset scenario of Kafka's tool (`--to-earliest`, `--shift-by 5`, …). `RULES` has a row for each
one: the facts that it needs of a partition, and the offset that it aims at. `plan` computes the offset of
each partition; an offset outside of the log is moved to the nearer end, with a warning. This module also
parses the option values and Kafka's CSV format. It sends no requests and reads no clock."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from konvene.client.net.cluster import TopicPartition
from konvene.plurals import counted

__all__ = [
    "RULES", "BadInput", "Facts", "Goal", "Plan", "Topics", "plan", "read_csv", "read_datetime",
    "read_duration_ns", "read_topics", "write_csv",
]  # fmt: skip

Offsets = Mapping[TopicPartition, int]
Topics = tuple[tuple[str, tuple[int, ...] | None], ...]
"""Topics with their selected partitions; None for all partitions."""


class BadInput(ValueError):
    """An option value or file that cannot be parsed, or a goal that the facts do not allow."""


class Goal(NamedTuple):
    """A reset scenario by the name of its option, with its value: an offset, a distance or a time in ms."""

    kind: str
    number: int = 0
    offsets: Mapping[TopicPartition, int] = {}
    """The new offset of each partition, for `from-file`."""


class Facts(NamedTuple):
    """The facts that a plan needs, as offsets of partitions. In `at_time` a partition without a record at or
    after the time has None."""

    earliest: Mapping[TopicPartition, int] = {}
    latest: Mapping[TopicPartition, int] = {}
    committed: Mapping[TopicPartition, int] = {}
    at_time: Mapping[TopicPartition, int | None] = {}


class Plan(NamedTuple):
    offsets: dict[TopicPartition, int]
    warnings: list[str]


# rules ----------------------------------------------------------------------------------------


class Rule(NamedTuple):
    needs: frozenset[str]
    """Names of the fields of `Facts` that the rule needs."""
    aim: Callable[[Goal, TopicPartition, Facts], tuple[int, str]]
    """Returns the desired offset, and a warning or ""."""


def _shifted(goal: Goal, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    if tp not in facts.committed:
        raise BadInput(f"Cannot shift offset for partition {tp} since there is no current committed offset")
    return facts.committed[tp] + goal.number, ""


def _at_time(goal: Goal, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    found = facts.at_time[tp]
    if found is not None:
        return found, ""
    warning = f"Partition {tp.partition} from topic {tp.topic} has no record at or after that time."
    return facts.latest[tp], f"{warning} Falling back to latest known offset."


_BOUNDS = frozenset({"earliest", "latest"})
_AT_TIME = Rule(frozenset({"at_time", "latest"}), _at_time)

RULES: dict[str, Rule] = {
    "to-earliest": Rule(frozenset({"earliest"}), lambda goal, tp, facts: (facts.earliest[tp], "")),
    "to-latest": Rule(frozenset({"latest"}), lambda goal, tp, facts: (facts.latest[tp], "")),
    "to-current": Rule(
        frozenset({"committed", "latest"}),
        lambda goal, tp, facts: (facts.committed.get(tp, facts.latest[tp]), ""),
    ),
    "to-offset": Rule(_BOUNDS, lambda goal, tp, facts: (goal.number, "")),
    "shift-by": Rule(_BOUNDS | {"committed"}, _shifted),
    "to-datetime": _AT_TIME,
    "by-duration": _AT_TIME,
    "from-file": Rule(_BOUNDS, lambda goal, tp, facts: (goal.offsets[tp], "")),
}


def plan(goal: Goal, partitions: Iterable[TopicPartition], facts: Facts) -> Plan:
    """Compute the new offset of each partition. Raises `BadInput` if the facts do not allow the goal."""
    rule = RULES[goal.kind]
    result = Plan({}, [])
    for tp in sorted(set(partitions)):
        aim, warning = rule.aim(goal, tp, facts)
        result.offsets[tp], outside = _within(aim, tp, facts) if rule.needs >= _BOUNDS else (aim, "")
        result.warnings.extend(each for each in (warning, outside) if each)
    return result


def _within(aim: int, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    """Clamp an offset to the earliest and latest offset of the partition. The second value is a warning if it
    was outside, else empty."""
    earliest, latest = facts.earliest[tp], facts.latest[tp]
    if aim > latest:
        problem, nearest = "higher than latest", latest
    elif aim < earliest:
        problem, nearest = "lower than earliest", earliest
    else:
        return aim, ""
    return nearest, (
        f"New offset ({aim}) is {problem} offset for topic partition {tp}. Value will be set to {nearest}."
    )


# option values --------------------------------------------------------------------------------


def read_topics(values: Iterable[str]) -> Topics:
    """Parse `orders` (a whole topic) and `orders:0,2` (two partitions); several values of a topic add up."""
    found: dict[str, set[int] | None] = {}
    for value in values:
        topic, colon, text = value.partition(":")
        if not topic or (colon and (not text or ":" in text)):
            raise BadInput(f"Invalid topic arg '{value}', expected topic name and partitions, as orders:0,1")
        if not colon:
            found[topic] = None
            continue
        numbers = {_partition(part, value) for part in text.split(",")}
        selected = found.setdefault(topic, set())
        if selected is not None:
            selected |= numbers
    return tuple(
        (topic, None if numbers is None else tuple(sorted(numbers))) for topic, numbers in found.items()
    )


def _partition(text: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise BadInput(f"Invalid partition '{text}' specified in topic arg '{value}'")
    return int(text)


_DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{3}))?"
    r"(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)


def read_datetime(text: str) -> int:
    """Parse `YYYY-MM-DDThh:mm:ss.sss` to ms since the epoch, in UTC unless an offset such as +02:00
    follows."""
    invalid = BadInput(
        f"'{text}' is not a time of the form YYYY-MM-DDThh:mm:ss.sss, as 2026-11-21T08:30:00.000"
    )
    match = _DATETIME.fullmatch(text)
    if not match:
        raise invalid
    seconds, ms, sign, hours, minutes = match.groups()
    try:
        east = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-east if sign == "-" else east)
        moment = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone)
    except ValueError:
        raise invalid from None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1) + int(ms or 0)


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<D>[+-]?[0-9]{1,18})D)?"
    r"(?P<time>T(?:(?P<H>[+-]?[0-9]{1,18})H)?(?:(?P<M>[+-]?[0-9]{1,18})M)?"
    r"(?:(?P<S>[+-]?[0-9]{1,18})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_S = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}


def read_duration_ns(text: str) -> int:
    """Parse `PnDTnHnMnS` to ns as Java does: each number may be negative, seconds may have decimals."""
    match = _DURATION.fullmatch(text)
    if not match or text[-1] in "PpTt":
        raise BadInput(f"'{text}' is not a duration of the form PnDTnHnMnS, as P7D or PT1H30M")
    whole_s = sum(int(match[unit] or 0) * seconds for unit, seconds in _UNITS_S.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    ns = whole_s * 1_000_000_000 + (-fraction if (match["S"] or "").startswith("-") else fraction)
    return -ns if match["sign"] == "-" else ns


# Kafka's CSV ----------------------------------------------------------------------------------

_WHOLE = re.compile(r"\s*-?[0-9]{1,19}\s*")


def read_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Parse offsets by group: lines of `group,topic,partition,offset`, or of `topic,partition,offset` for a
    single group. The number of columns of the first line decides; `groups` are those on the command line."""
    try:
        rows = [(i, row) for i, row in enumerate(csv.reader(io.StringIO(text)), 1) if row]
    except csv.Error as error:
        raise BadInput(f"not a CSV file: {error}") from None
    without_group = len(groups) == 1 and bool(rows) and len(rows[0][1]) == 3
    columns = ("topic", "partition", "offset") if without_group else ("group", "topic", "partition", "offset")
    found: dict[str, dict[TopicPartition, int]] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise BadInput(f"line {line} has {counted(len(row), 'column')}, expected {','.join(columns)}")
        *names, partition, offset = row
        if not _WHOLE.fullmatch(partition) or not _WHOLE.fullmatch(offset):
            raise BadInput(f"line {line}: partition and offset must be whole numbers: {','.join(row)}")
        group, topic = (groups[0], names[0]) if without_group else names
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    return found


def write_csv(plans: Mapping[str, Offsets], *, with_group: bool) -> str:
    """Format the new offsets of groups as CSV, byte for byte as Kafka's tool does. `with_group` adds the
    group as the first column."""
    rows = (
        (*([_cell(group)] if with_group else []), _cell(tp.topic), str(tp.partition), str(offset))
        for group, offsets in plans.items()
        for tp, offset in offsets.items()
    )
    return "".join(",".join(row) + "\n" for row in rows)


def _cell(name: str) -> str:
    """Quote a name if Kafka's CSV writer does: if it is longer than 24 characters, or has one that is not
    greater than `,`, such as a space or a quote."""
    if len(name) <= 24 and all(c > "," for c in name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
