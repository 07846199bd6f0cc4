"""Where a group's offsets go: what `konvene groups reset-offsets` decides, on values alone.

A goal is one of Kafka's scenarios (`--to-earliest`, `--shift-by 5`, …). `RULES` has a row for each: which
facts it needs to know of a partition, and what offset it aims at. `plan` takes a goal, partitions and facts,
and gives each partition its offset; what lies outside of a partition is moved to its nearer end, and that is
said. Nothing here asks a broker or knows the time. Also here: how the words of the command line and Kafka's
CSV are read.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from konvene.client.net.cluster import TopicPartition

__all__ = [
    "RULES", "BadInput", "Facts", "Goal", "Plan", "Topics", "plan", "read_csv", "read_datetime",
    "read_duration_ns", "read_topics", "write_csv",
]  # fmt: skip

Offsets = Mapping[TopicPartition, int]
Topics = tuple[tuple[str, tuple[int, ...] | None], ...]
"""Topics, each with the partitions that are meant; None for all of them."""


class BadInput(ValueError):
    """Words or a file that do not say what they should, or a goal that cannot be reached from the facts."""


class Goal(NamedTuple):
    """A scenario by the name of its option, and its number: an offset, a distance or a time (ms)."""

    kind: str
    number: int = 0
    offsets: Mapping[TopicPartition, int] = {}
    """From a file: where each partition is to go."""


class Facts(NamedTuple):
    """What is known of partitions; `at_time` has None where no record is so late."""

    earliest: Mapping[TopicPartition, int] = {}
    latest: Mapping[TopicPartition, int] = {}
    committed: Mapping[TopicPartition, int] = {}
    at_time: Mapping[TopicPartition, int | None] = {}


class Plan(NamedTuple):
    offsets: dict[TopicPartition, int]
    warnings: list[str]


# what each goal aims at -----------------------------------------------------------------------


class Rule(NamedTuple):
    needs: frozenset[str]
    """Names of the facts that it looks at."""
    aim: Callable[[Goal, TopicPartition, Facts], tuple[int, str]]
    """The offset that is aimed at, and a warning or ""."""


def _shifted(goal: Goal, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    if tp not in facts.committed:
        raise BadInput(f"Cannot shift offset for partition {tp} since there is no current committed offset")
    return facts.committed[tp] + goal.number, ""


def _at_time(goal: Goal, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    found = facts.at_time[tp]
    if found is not None:
        return found, ""
    late = f"Partition {tp.partition} from topic {tp.topic} has no record at or after that time."
    return facts.latest[tp], f"{late} Falling back to latest known offset."


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
    """An offset for each partition, in order. Raises `BadInput` where the goal cannot be reached."""
    rule = RULES[goal.kind]
    made = Plan({}, [])
    for tp in sorted(set(partitions)):
        aim, warning = rule.aim(goal, tp, facts)
        made.offsets[tp], outside = _within(aim, tp, facts) if rule.needs >= _BOUNDS else (aim, "")
        made.warnings.extend(each for each in (warning, outside) if each)
    return made


def _within(aim: int, tp: TopicPartition, facts: Facts) -> tuple[int, str]:
    """earliest <= offset <= latest, and what is said where it had to be moved."""
    earliest, latest = facts.earliest[tp], facts.latest[tp]
    if aim > latest:
        told, nearest = "higher than latest", latest
    elif aim < earliest:
        told, nearest = "lower than earliest", earliest
    else:
        return aim, ""
    return nearest, (
        f"New offset ({aim}) is {told} offset for topic partition {tp}. Value will be set to {nearest}."
    )


# words of the command line --------------------------------------------------------------------


def read_topics(words: Iterable[str]) -> Topics:
    """`orders` is a whole topic, `orders:0,2` two of its partitions; what is said of a topic adds up."""
    found: dict[str, set[int] | None] = {}
    for word in words:
        topic, colon, text = word.partition(":")
        if not topic or (colon and (not text or ":" in text)):
            raise BadInput(f"Invalid topic arg '{word}', expected topic name and partitions, as orders:0,1")
        if not colon:
            found[topic] = None
            continue
        numbers = {_partition(part, word) for part in text.split(",")}
        so_far = found.setdefault(topic, set())
        if so_far is not None:
            so_far |= numbers
    return tuple(
        (topic, None if numbers is None else tuple(sorted(numbers))) for topic, numbers in found.items()
    )


def _partition(text: str, word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise BadInput(f"Invalid partition '{text}' specified in topic arg '{word}'")
    return int(text)


_DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{3}))?"
    r"(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)


def read_datetime(text: str) -> int:
    """Milliseconds since 1970 of `YYYY-MM-DDThh:mm:ss.sss`, in UTC unless it ends with a zone as +02:00."""
    wrong = BadInput(f"'{text}' is no time of the form YYYY-MM-DDThh:mm:ss.sss, as 2026-11-21T08:30:00.000")
    match = _DATETIME.fullmatch(text)
    if not match:
        raise wrong
    seconds, ms, sign, hours, minutes = match.groups()
    try:
        east = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-east if sign == "-" else east)
        moment = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone)
    except ValueError:
        raise wrong from None
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
    """Nanoseconds of `PnDTnHnMnS`, as Java reads it: each number may be negative, seconds have decimals."""
    match = _DURATION.fullmatch(text)
    if not match or text[-1] in "PpTt":
        raise BadInput(f"'{text}' is no duration of the form PnDTnHnMnS, as P7D or PT1H30M")
    whole_s = sum(int(match[unit] or 0) * seconds for unit, seconds in _UNITS_S.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    ns = whole_s * 1_000_000_000 + (-fraction if (match["S"] or "").startswith("-") else fraction)
    return -ns if match["sign"] == "-" else ns


# Kafka's CSV ----------------------------------------------------------------------------------

_WHOLE = re.compile(r"\s*-?[0-9]{1,19}\s*")


def read_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Offsets by group: lines of `group,topic,partition,offset`, or of `topic,partition,offset` where one
    group alone is spoken of. The first line tells which; `groups` are those that the command names."""
    try:
        rows = [(i, row) for i, row in enumerate(csv.reader(io.StringIO(text)), 1) if row]
    except csv.Error as error:
        raise BadInput(f"this is no CSV: {error}") from None
    nameless = len(groups) == 1 and bool(rows) and len(rows[0][1]) == 3
    columns = ("topic", "partition", "offset") if nameless else ("group", "topic", "partition", "offset")
    found: dict[str, dict[TopicPartition, int]] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise BadInput(f"line {line} has {len(row)} columns, expected {','.join(columns)}")
        *names, partition, offset = row
        if not _WHOLE.fullmatch(partition) or not _WHOLE.fullmatch(offset):
            raise BadInput(f"line {line}: partition and offset must be whole numbers: {','.join(row)}")
        group, topic = (groups[0], names[0]) if nameless else names
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    return found


def write_csv(plans: Mapping[str, Offsets], *, with_group: bool) -> str:
    """What `read_csv` reads, byte by byte as Kafka's tool writes it; the group in each line or in none."""
    rows = (
        (*([_cell(group)] if with_group else []), _cell(tp.topic), str(tp.partition), str(offset))
        for group, offsets in plans.items()
        for tp, offset in offsets.items()
    )
    return "".join(",".join(row) + "\n" for row in rows)


def _cell(name: str) -> str:
    """Quoted where it is long or has a character up to the comma; Kafka's writer looks no closer."""
    if len(name) <= 24 and all(c > "," for c in name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
