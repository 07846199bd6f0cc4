"""The admin client and Kafka's own tools on streams groups: describe, list, reset and delete."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..clients import Refused
from ..tools import ToolResult, read, replay, why_no_tools, written
from ..tries import own_name
from .app import Application, Instance, Stage, names

pytestmark = pytest.mark.java

TASKS = names(0, 2) | names(1, 2)
ID = r"[\w-]{22}"
"""A member's id is Kafka's kind of UUID; a process's is Java's."""

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    if missing := why_no_tools():
        pytest.skip(f"Kafka's tools are missing: {missing}")


def table(result: ToolResult) -> list[list[str]]:
    """The words of each line, the head first; the others in an order of their own."""
    assert result.status == 0, result
    head, *rows = [line.split() for line in result.out.splitlines() if line.strip()]
    return [head, *sorted(rows)]


class Working:
    """An application that has counted words, one instance at work."""

    def __init__(self, name: str, stage: Stage, directory: Path) -> None:
        self.app = Application(name, stage, directory)
        self.app.does("words", lines=2, counts=1)
        self.app.write("lines", [(n % 2, None, "some words") for n in range(10)])
        self.one: Instance = self.app.start("one")
        self.app.is_shared_by(self.one, tasks=TASKS)
        self.app.has_counted(Counter({"some": 10, "words": 10}))
        self.app.has_committed("lines", "words-repartition")

    def tool(self, line: str) -> ToolResult:
        """Kafka's `kafka-streams-groups --… --group` of this application."""
        return self.app.stage.tool(f"kafka-streams-groups --{line} --group {self.app.name}")


@pytest.fixture(scope="module")
def working(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Working]:
    """For tests that only ask."""
    working = Working("operated", stage, tmp_path_factory.mktemp("operated"))
    try:
        yield working
    finally:
        working.app.end()


@pytest.fixture
def ended(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Working:
    """One whose instance has left."""
    working = Working(own_name(request, 40), stage, tmp_path)
    working.one.close()
    working.app.becomes("Empty", 0)
    return working


# Asking ---------------------------------------------------------------------------------------------------


def test_the_admin_client_describes(working: Working) -> None:
    """The whole topology, with the configs that the client wants for its internal topics; the member with
    what it has, which is its target, too."""
    description = working.app.describe()
    assert (description["state"], description["topology_epoch"]) == ("Stable", 0)
    assert description["group_epoch"] == description["target_epoch"]
    reading, counting = description["subtopologies"]
    changelog = counting.pop("changelogs")[working.app.topic("counts-changelog")]
    repartition = counting.pop("repartitions")[working.app.topic("words-repartition")]
    assert reading == {
        "id": "0",
        "sources": [working.app.topic("lines")],
        "sinks": [working.app.topic("words-repartition")],
        "changelogs": {},
        "repartitions": {},
    }
    assert counting == {"id": "1", "sources": [], "sinks": []}
    assert changelog == {
        "partitions": 2,
        "configs": {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    }
    assert repartition["partitions"] == 2
    assert repartition["configs"]["cleanup.policy"] == "delete"
    (member,) = description["members"]
    assert re.fullmatch(ID, member.pop("member_id"))
    assert re.fullmatch(UUID, member.pop("process_id"))
    assert member.pop("client_id").startswith(f"{working.one.name}-StreamThread-1")
    assert member.pop("target") == member["assignment"]
    assert member == {
        "instance_id": None,
        "host": "/127.0.0.1",
        "epoch": description["group_epoch"],
        "topology_epoch": 0,
        "endpoint": None,
        "tags": {},
        "classic": False,
        "assignment": {"active": sorted(TASKS), "standby": [], "warmup": []},
    }


def test_lists(working: Working) -> None:
    """By both tools, with its state and type."""
    group = working.app.name
    stage = working.app.stage
    assert group in stage.tool("kafka-streams-groups --list").out.split()
    assert [group, "Stable"] in table(stage.tool("kafka-streams-groups --list --state"))
    assert [group, "Stable"] in table(stage.tool("kafka-streams-groups --list --state stable"))
    assert [group, "Stable"] not in table(stage.tool("kafka-streams-groups --list --state empty"))
    assert [group, "Streams", "streams"] in table(stage.tool("kafka-groups --list --group-type streams"))
    assert [group, "Streams", "streams"] in table(stage.tool("kafka-groups --list --streams"))
    assert group not in stage.tool("kafka-groups --list --group-type consumer").out
    rows = {row["group"]: row for row in working.app.apps.call("list_groups")}
    assert rows[group] == {"group": group, "protocol_type": "streams", "state": "Stable", "type": "Streams"}


def test_describe_members(working: Working) -> None:
    head, row = table(working.tool("describe --members"))
    assert head == ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    group, member, process, client, *assignment = row
    assert group == working.app.name
    assert re.fullmatch(ID, member)
    assert re.fullmatch(UUID, process)
    assert client.startswith(working.one.name)
    assert assignment == ["ACTIVE:", "0:[0,1];", "1:[0,1];"]
    head, row = table(working.tool("describe --members --verbose"))
    epoch = str(working.app.describe()["group_epoch"])
    assert head[1:3] == ["TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"]
    both = " ".join(row[-6:])
    assert both == "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];"
    assert row[1:6] == [epoch, "0", member, "streams", epoch]


def test_describe_state(working: Working) -> None:
    description = working.app.describe()
    head, row = table(working.tool("describe --state"))
    assert head == ["GROUP", "COORDINATOR", "(ID)", "STATE", "#MEMBERS"]
    coordinator = working.app.stage.broker.bootstrap
    assert row == [working.app.name, coordinator, "(1)", "Stable", "1"]
    _, row = table(working.tool("describe --state --verbose"))
    epochs = [str(description["group_epoch"]), str(description["target_epoch"])]
    assert row == [working.app.name, coordinator, "(1)", "Stable", *epochs, "1"]


def test_describe_offsets(working: Working) -> None:
    """The sources' and the repartition topic's, without lag."""
    group, ends = working.app.name, working.app.ends("lines", "words-repartition")
    _, *rows = table(working.tool("describe --offsets"))
    assert rows == sorted([group, topic, str(p), "0"] for topic, p in ends)
    _, *rows = table(working.tool("describe --offsets --verbose"))
    assert [[*row[:4], *row[5:]] for row in rows] == sorted(
        [group, topic, str(p), str(end) if end else "-", str(end), "0"] for (topic, p), end in ends.items()
    )


def test_a_group_that_is_not_ready(app: Application) -> None:
    """It waits for its source topic, and is listed as such. Kafka 4.4.0 itself does not find it by its state:
    its filter wants `not_ready`, which no client sends."""
    app.is_set(heartbeat_interval_ms=5000)
    app.does("upper", capitals=1)
    app.start("one")
    app.becomes("NotReady", 1)
    assert [app.name, "NotReady"] in table(app.stage.tool("kafka-streams-groups --list --state"))
    found = table(app.stage.tool("kafka-streams-groups --list --state notready"))
    assert ([app.name, "NotReady"] in found) == (app.stage.broker.name != "kafka")
    _, row = table(app.stage.tool(f"kafka-streams-groups --describe --state --group {app.name}"))
    assert row[-2:] == ["NotReady", "1"]


def test_a_group_that_is_not_there(stage: Stage) -> None:
    result = stage.tool("kafka-streams-groups --describe --group nobody")
    assert result.status == 1
    assert "Group nobody not found." in result.out + result.err


def test_transcripts(stage: Stage, tmp_path: Path) -> None:
    """Kafka's tools print the same as for Kafka, of a running application and of an ended one. The two files
    were recorded from Kafka (KONVENE_REWRITE=1)."""
    working = Working("counting-words", stage, tmp_path)
    check_transcript(stage, "at-work.txt")
    working.one.close()
    working.app.becomes("Empty", 0)
    check_transcript(stage, "ended.txt")


def check_transcript(stage: Stage, name: str) -> None:
    path = Path(__file__).parent / name
    prose, steps = read(path)
    replayed = replay(steps, stage.tools, stage.broker, 3 if stage.broker.name == "kafka" else 0)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(written(prose, replayed))
    assert written(prose, replayed) == path.read_text()


# Doing ----------------------------------------------------------------------------------------------------


def test_who_is_at_work_is_left_alone(working: Working) -> None:
    """Neither the offsets nor the group of an application at work are changed."""
    committed = working.app.committed()
    result = working.tool("reset-offsets --all-input-topics --to-earliest --execute")
    assert (
        "can only be reset if the group 'operated' is inactive, but the current state is Stable" in result.out
    )
    result = working.tool("delete")
    assert "Streams group 'operated' is not EMPTY." in result.out
    result = working.tool("delete-offsets --all-input-topics")
    assert "Successful" not in result.out
    assert working.app.committed() == committed
    with pytest.raises(Refused) as refused:
        working.app.apps.call("delete_groups", groups=[working.app.name])
    assert refused.value.name == "NON_EMPTY_GROUP"


def test_reset_and_count_again(ended: Working) -> None:
    """A dry run prints the plan; then the offsets are reset and the internal topics deleted; the application
    starts anew and counts everything once more."""
    app = ended.app
    rows = [[app.name, app.topic("lines"), str(p), "0"] for p in range(2)]
    _, *planned = table(ended.tool("reset-offsets --all-input-topics --to-earliest --dry-run"))
    assert planned == rows
    assert app.committed()[app.topic("lines"), 0] == 5
    done = ended.tool("reset-offsets --all-input-topics --to-earliest --delete-all-internal-topics --execute")
    _, *planned = table(done)
    assert planned == rows
    assert {p: app.committed()[app.topic("lines"), p] for p in range(2)} == {0: 0, 1: 0}
    left = [topic for topic in app.apps.call("list_topics") if topic.startswith(app.name)]
    assert sorted(left) == [app.topic("counts"), app.topic("lines")]
    two = app.start("two")
    app.is_shared_by(two, tasks=TASKS)
    app.makes("counts", [str(n) for n in range(1, 11)] * 4)
    app.end()


def test_delete_offsets(ended: Working) -> None:
    topic = ended.app.topic("lines")
    result = ended.tool(f"delete-offsets --input-topic {topic}:1")
    assert [topic, "1", "Successful"] in table(result)
    committed = ended.app.committed()
    assert (topic, 1) not in committed
    assert committed[topic, 0] == 5


def test_delete_with_internal_topics(ended: Working) -> None:
    """Nothing is left but the application's own topics."""
    result = ended.tool("delete --delete-all-internal-topics")
    assert f"Deletion of requested streams groups ('{ended.app.name}') was successful." in result.out
    assert "Deletion of associated internal topics" in result.out
    with pytest.raises(Refused, match="not found"):
        ended.app.describe()
    left = [topic for topic in ended.app.apps.call("list_topics") if topic.startswith(ended.app.name)]
    assert sorted(left) == [ended.app.topic("counts"), ended.app.topic("lines")]
    assert ended.app.committed() == {}
