"""`konvene groups` prints and does the same as Apache Kafka's own group tools.

One broker and one JVM for all tests, in which both kinds of tool are run on groups that were made alike. On
konvene this holds the broker to Kafka's tools; on Apache Kafka (KONVENE_AGAINST=kafka) our commands to its
broker.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call

from . import tools as java
from .brokers import Broker
from .conftest import a_broker

pytestmark = pytest.mark.java


class Stage:
    """A broker with topics `orders` (partitions with 10, 6 and 0 records, at 1, 2, … s after 1970) and
    `payments-of-the-whole-company` (one with 4), and the two kinds of tool."""

    def __init__(self, broker: Broker, jvm: java.Tools) -> None:
        self.broker = broker
        self.jvm = jvm
        self.own = RunningBroker(broker.bootstrap)

    def kafka(self, line: str, given: str = "") -> java.ToolResult:
        """Kafka's `kafka-consumer-groups --…`."""
        return self.jvm.run(self.broker, f"kafka-consumer-groups --{line}", given)

    def konvene(self, line: str) -> CommandResult:
        """Our `konvene groups …`."""
        return call(self.own, "groups", *line.split())

    def prepared(self, *groups: str) -> None:
        """Groups without members, all with the same offsets."""
        for group in groups:
            self.own.commit(group, "orders", p0=4, p1=5)
            self.own.commit(group, LONG, p0=2)


LONG = "payments-of-the-whole-company"
"""So long that Kafka's CSV quotes it."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    missing = java.why_no_tools()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    directory = tmp_path_factory.mktemp("group-tools")
    broker = a_broker(directory / "broker")
    broker.start()
    try:
        with java.tools(directory / "tools.log") as jvm:
            stage = Stage(broker, jvm)
            stage.own.create("orders", 10, 6, 0)
            stage.own.create(LONG, 4)
            yield stage
    finally:
        broker.kill9()


def rows(text: str) -> list[list[str]]:
    """A table's lines as words, without its heads, in an order of their own."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return sorted(line for line in lines if line[0] not in ("GROUP", "TOPIC", "CONSUMER-ID"))


# list and describe ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def groups(stage: Stage) -> None:
    """An empty group with offsets, one with members of which one has no partition, one with two static
    members."""
    stage.prepared("idle")
    stage.own.join("busy", ["orders"], None, None, None, None)
    stage.own.join("static", ["orders", LONG], "s-1", "s-2")


def test_groups_are_listed_alike(stage: Stage, groups: None) -> None:
    names = stage.kafka("list").out.split()
    ours = stage.konvene("list --json").json
    assert [g["group"] for g in ours] == sorted(names)
    by_group = {g["group"]: g for g in ours}
    assert {name: by_group[name]["state"] for name in ("idle", "busy", "static")} == {
        "idle": "Empty", "busy": "Stable", "static": "Stable",
    }  # fmt: skip
    theirs = rows(stage.kafka("list --state --type").out)
    assert theirs == [[g["group"], g["type"].title(), g["state"]] for g in ours]
    by_tool = rows(stage.jvm.run(stage.broker, "kafka-groups --list").out)
    assert by_tool == [
        [g["group"], g["type"].title(), *([g["protocol"]] * bool(g["protocol"]))] for g in ours
    ]


@pytest.mark.parametrize("options", ["--state stable", "--state Empty", "--type classic", "--type consumer"])
def test_lists_are_filtered_alike(stage: Stage, groups: None, options: str) -> None:
    theirs = [row[0] for row in rows(stage.kafka(f"list {options}").out)]
    assert theirs == [g["group"] for g in stage.konvene(f"list {options} --json").json]


OURS = {"--members --verbose": (-3, -2, -1), "--state --verbose": (-2,)}
"""The columns that Kafka's tool does not have: how members heartbeat."""


def without(columns: tuple[int, ...], found: list[list[str]]) -> list[list[str]]:
    return [[cell for at, cell in enumerate(row) if at - len(row) not in columns] for row in found]


@pytest.mark.parametrize("group", ["idle", "busy", "static"])
@pytest.mark.parametrize(
    "part", ["", "--offsets", "--offsets --verbose", "--members --verbose", "--state", "--state --verbose"]
)
def test_groups_are_described_alike(stage: Stage, groups: None, group: str, part: str) -> None:
    """The rows are the same, and so is the note about an empty group."""
    theirs, ours = stage.kafka(f"describe --group {group} {part}"), stage.konvene(f"describe {group} {part}")
    assert ours.code == 0, ours
    assert without(OURS.get(part, ()), rows(ours.out)) == rows(theirs.out)
    assert rows(ours.out) or (group, part) == ("idle", "--members --verbose")
    assert ours.err.strip() == theirs.err.strip()


def test_all_groups_are_described_alike(stage: Stage, groups: None) -> None:
    theirs, ours = (
        stage.kafka("describe --all-groups"),
        stage.konvene("describe --all-groups --timeout 20000"),
    )
    assert rows(ours.out) == rows(theirs.out)
    assert {row[0] for row in rows(ours.out)} >= {"idle", "busy", "static"}


def test_what_no_group_is_is_refused_alike(stage: Stage) -> None:
    assert "Group nobody not found." in stage.kafka("describe --group nobody").out
    assert stage.konvene("describe nobody").err.startswith("konvene: there is no group nobody")


# reset-offsets ----------------------------------------------------------------------------------

WAYS = [
    "--to-earliest", "--to-latest", "--to-current", "--to-offset 5", "--to-offset 99", "--shift-by 2",
    "--shift-by -3", "--shift-by 100", "--to-datetime 1970-01-01T00:00:03.500",
    "--to-datetime 1970-01-01T02:00:03.000+02:00", "--to-datetime 2026-01-01T00:00:00.000",
    "--by-duration P1D", "--by-duration P20000D",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_offsets_go_where_kafkas_tool_moves_them(stage: Stage, way: str) -> None:
    """Planned, exported and done."""
    stage.prepared("reset")
    scope = "--topic orders:0,1" if "shift" in way else "--topic orders"
    for options in ("--dry-run", "--dry-run --export", "--execute"):
        stage.prepared("reset")
        theirs = stage.kafka(f"reset-offsets --group reset {scope} {way} {options}")
        moved = stage.own.committed("reset")
        stage.prepared("reset")
        ours = stage.konvene(f"reset-offsets reset {scope} {way} {options}")
        assert ours.code == theirs.status == 0, ours
        assert rows(ours.out) == [row for row in rows(theirs.out) if row[0] != "Warn:"]
        assert rows(ours.out)
        assert stage.own.committed("reset") == moved
    assert stage.konvene("delete reset").code == 0


def test_all_that_is_committed_is_reset(stage: Stage) -> None:
    stage.prepared("whole")
    line = "--all-topics --to-earliest --execute"
    ours = stage.konvene(f"reset-offsets whole {line}")
    assert stage.own.committed("whole") == {"orders-0": 0, "orders-1": 0, f"{LONG}-0": 0}
    assert rows(ours.out) == rows(stage.kafka(f"reset-offsets --group whole {line}").out)


def test_an_export_of_either_tool_is_taken_by_the_other(stage: Stage, tmp_path: Path) -> None:
    """Byte by byte the same lines, for one group and for several."""
    file = tmp_path / "plan.csv"
    for names in (["one"], ["two", "three"]):
        stage.prepared(*names)
        options = " ".join(f"--group {name}" for name in names)
        export = f"reset-offsets {options} --all-topics --to-current --dry-run --export"
        theirs, ours = stage.kafka(export).out, stage.konvene(export).out
        assert sorted(ours.splitlines()) == sorted(theirs.strip().splitlines())
        assert len(ours.splitlines()) == 3 * len(names)
        file.write_text(theirs)
        to_zero = f"reset-offsets {options} --topic orders --topic {LONG} --to-earliest --execute"
        kept = {"orders-0": 4, "orders-1": 5, "orders-2": 0, f"{LONG}-0": 2}
        stage.konvene(to_zero)
        assert set(stage.own.committed(names[-1]).values()) == {0}
        done = stage.konvene(f"reset-offsets {options} --from-file {file} --execute")
        assert done.code == 0, done
        assert [stage.own.committed(name) for name in names] == [kept] * len(names)
        stage.konvene(to_zero)
        stage.kafka(f"reset-offsets {options} --from-file FILE --execute", ours)
        assert [stage.own.committed(name) for name in names] == [kept] * len(names)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--group busy --all-topics --to-latest",
         "Assignments can only be reset if the group 'busy' is inactive, but the current state is Stable."),
        ("--group r --topic orders:9 --to-latest", 'The partitions "orders-9" do not exist'),
        ("--group r --topic orders:2 --shift-by 1",
         "Cannot shift offset for partition orders-2 since there is no current committed offset"),
        ("--group r --topic orders:x --to-latest", "Invalid partition 'x' specified in topic arg 'orders:x'"),
        ("--group r --topic orders:1:2 --to-latest",
         "Invalid topic arg 'orders:1:2', expected topic name and partitions"),
        ("--group r --to-latest", "One of the reset scopes should be defined: --all-topics, --topic."),
    ],
)  # fmt: skip
def test_what_cannot_be_reset_is_refused_in_the_same_words(
    stage: Stage, groups: None, line: str, sentence: str
) -> None:
    theirs = stage.kafka(f"reset-offsets {line} --execute")
    ours = stage.konvene(f"reset-offsets {line} --execute")
    assert sentence in theirs.out + theirs.err
    assert sentence in " ".join(ours.err.split()).replace("│ ", "")
    assert ours.code != 0


# delete-offsets, remove-members, delete ---------------------------------------------------------

JAVA_NAMES = {
    "GroupIdNotFoundException": "GROUP_ID_NOT_FOUND",
    "GroupSubscribedToTopicException": "GROUP_SUBSCRIBED_TO_TOPIC",
    "UnknownTopicOrPartitionException": "UNKNOWN_TOPIC_OR_PARTITION",
}


def statuses(text: str) -> list[tuple[str, ...]]:
    """Topic, partition, and what became of it: an error by its name."""
    found = []
    for topic, partition, status, *words in rows(text):
        if topic == "Error:" or status not in ("Successful", "Error:"):
            continue
        name = re.search("|".join(JAVA_NAMES), " ".join(words))
        found.append((topic, partition, status, JAVA_NAMES[name[0]] if name else " ".join(words)))
    return found


def test_offsets_are_deleted_alike(stage: Stage) -> None:
    for name in ("forgetful", "absent-minded"):
        stage.prepared(name)
        stage.own.join(name, [LONG], None)
    topics = f"--topic orders:1,7 --topic {LONG} --topic gone:0"
    theirs = stage.kafka(f"delete-offsets --group forgetful {topics}")
    ours = stage.konvene(f"delete-offsets absent-minded {topics}")
    assert "Encountered some partition-level error" in theirs.out
    assert statuses(ours.out) == statuses(theirs.out) == [
        ("gone", "0", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", "1", "Successful", ""),
        ("orders", "7", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"),
        (LONG, "0", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"),
    ]  # fmt: skip
    assert ours.code == 1
    assert stage.own.committed("forgetful") == stage.own.committed("absent-minded")
    assert stage.own.committed("forgetful") == {"orders-0": 4, f"{LONG}-0": 2}
    unknown = stage.konvene("delete-offsets nobody --topic orders")
    assert unknown.err.startswith("konvene: group nobody: GROUP_ID_NOT_FOUND\n")
    assert "The group id does not exist." in stage.kafka("delete-offsets --group nobody --topic orders").out


def test_members_are_removed_one_by_one_and_all(stage: Stage) -> None:
    """Kafka's tool sees them go."""
    first, _, _ = stage.own.join("crowd", ["orders"], None, None, "s-9")

    def left() -> int:
        return len(rows(stage.kafka("describe --group crowd --members").out))

    assert left() == 3
    result = stage.konvene(f"remove-members crowd --member {first} --instance nobody --reason away --json")
    assert result.code == 1
    assert result.json == [
        {"member_id": first, "instance_id": None, "error": None},
        {"member_id": None, "instance_id": "nobody", "error": "UNKNOWN_MEMBER_ID"},
    ]
    assert left() == 2
    assert stage.konvene("remove-members nobody --member m --json").json == [
        {"member_id": "m", "instance_id": None, "error": "UNKNOWN_MEMBER_ID"}
    ]
    assert stage.konvene("remove-members crowd --all-members").code == 0
    assert left() == 0
    assert rows(stage.konvene("describe crowd --state").out)[0][-2:] == ["Empty", "0"]


def test_an_application_of_streams_is_reset(stage: Stage) -> None:
    """StreamsResetter refuses a group with members, removes them where it is forced to, and moves its offsets
    to where our own command would."""
    stage.prepared("app")
    stage.own.join("app", ["orders"], None)
    reset = "kafka-streams-application-reset --application-id app --input-topics orders"
    refused = stage.jvm.run(stage.broker, reset)
    assert "Consumer group 'app' is still active" in refused.err
    assert refused.status == 1
    dry_run = stage.jvm.run(stage.broker, f"{reset} --to-offset 5 --dry-run --force")
    assert "Force deleting all active members in the group: app" in dry_run.out
    assert stage.own.committed("app") == {"orders-0": 4, "orders-1": 5, f"{LONG}-0": 2}
    for way in ("--to-offset 5", "--to-latest", "--to-datetime 1970-01-01T00:00:03.500", "--to-earliest"):
        planned = stage.konvene(f"reset-offsets app --topic orders {way} --dry-run")
        done = stage.jvm.run(stage.broker, f"{reset} {way}")
        assert done.status == 0, done
        moved = re.findall(r"Topic: (\S+) Partition: (\d+) Offset: (\d+)", done.out)
        assert sorted(["app", *row] for row in moved) == rows(planned.out)
        assert [str(stage.own.committed("app")[f"orders-{i}"]) for i in range(3)] == [
            row[-1] for row in rows(planned.out)
        ]


def test_groups_are_deleted_alike(stage: Stage) -> None:
    """The last test: at its end only groups with members are left."""
    for name in ("theirs", "ours"):
        stage.prepared(name)
    stage.own.join("living", ["orders"], None)
    theirs = stage.kafka("delete --group theirs --group living --group nobody")
    ours = stage.konvene("delete ours living nobody")
    assert "These consumer groups were deleted successfully: 'theirs'" in theirs.out
    assert "'living' could not be deleted" in theirs.out
    assert (ours.code, ours.out) == (1, "Deleted group ours.\n")
    assert "konvene: group living: NON_EMPTY_GROUP\n" in ours.err
    assert "konvene: group nobody: GROUP_ID_NOT_FOUND" in ours.err
    states = {g["group"]: g["state"] for g in stage.konvene("list --json").json}
    assert states.keys().isdisjoint({"theirs", "ours"})
    result = stage.konvene("delete --all-groups --json").json
    assert set(result["deleted"]) == {name for name, state in states.items() if state == "Empty"}
    assert set(result["failed"]) == set(stage.kafka("list").out.split())
