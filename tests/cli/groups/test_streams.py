"""`konvene groups` of streams groups, against a broker of ours: what is shown, who is stuck, what is done."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import call, serving
from tests.cli.office import LONG_S, SETTINGS, Office, has_all, words

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Task


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with serving(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield Office(broker)


@pytest.fixture(scope="module")
def working(office: Office) -> Office:
    """With the application `work`, which ann runs alone."""
    office.broker.create("work-lines", 5, 3)

    def done(ann: StreamsMember) -> bool:
        ann.report({Task("1", 0): 7}, {Task("1", 0): 9, Task("1", 1): 4})
        return has_all(ann) and ann.state is MemberState.STABLE

    office.run(
        "work", words("work", "work-lines"), "ann", until=done,
        application_server=("ann.example", 80), client_tags={"zone": "b"},
    )  # fmt: skip
    office.broker.commit("classics", "work-lines", p0=1)
    return office


# looking --------------------------------------------------------------------------------------


def test_streams_groups_are_listed_by_type_and_state(working: Office) -> None:
    row = ["work", "streams", "streams", "Stable"]
    for option in (["--streams"], ["--type", "streams"], ["--group-type", "Streams"]):
        assert row in working.groups("list", *option).lines
        assert "classics" not in working.groups("list", *option).out
    assert row not in working.groups("list", "--type", "consumer").lines
    assert row in working.groups("list", "--streams", "--state", "stable").lines
    assert row not in working.groups("list", "--streams", "--state", "Not Ready,NOT_READY,NotReady").lines
    assert "cannot be used together" in working.groups("list", "--streams", "--type", "share").err
    assert call(None, "groups", "--version").out.startswith("konvene ")


def test_members_are_shown_as_kafka_shows_them(working: Office) -> None:
    said = working.groups("describe", "work", "--members")
    assert said.lines == [
        ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"],
        ["work", "ann-1", "p-ann", "ann", "ACTIVE:", "0:[0,1];", "1:[0,1];"],
    ]
    assert said.err == ""


def test_verbose_shows_all_that_is_known_of_a_member(working: Office) -> None:
    head, row, *details = working.groups("describe", "work", "--members", "--verbose").lines
    assert head == [
        "GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH",
        "PROCESS", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "RACK", "ENDPOINT", "STATE", "ASSIGNMENTS",
    ]  # fmt: skip
    epoch = row[1]
    assert row[2:13] == ["0", "ann-1", "streams", epoch, "p-ann", "ann", "-", "/127.0.0.1", "-",
                         "ann.example:80", "STABLE"]  # fmt: skip
    assert " ".join(row[13:]) == "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];"
    assert [" ".join(line) for line in details] == [
        "restores active 1_0 [###############-----] 77 % at 7 of 9, lag 2",
        "tags: zone=b",
        "task offsets: 1_0 at 7 of 9, 1_1 at ? of 4",
    ]


def test_offsets_are_those_of_what_it_reads(working: Office) -> None:
    """Its own repartition topic is among them. Without an offset, all that is there is lag."""
    assert working.groups("describe", "work").lines == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
        ["work", "work-lines", "0", "5"],
        ["work", "work-lines", "1", "3"],
        ["work", "work-words-repartition", "0", "0"],
        ["work", "work-words-repartition", "1", "0"],
    ]
    head, first, *_ = working.groups("describe", "work", "--offsets", "--verbose").lines
    assert head[3:] == ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG", "TASK", "MEMBER",
                        "CLIENT-ID"]  # fmt: skip
    assert first[3:] == ["-", "-", "5", "5", "0_0", "ann-1", "ann"]


def test_state_has_the_epochs_where_it_is_verbose(working: Office) -> None:
    said = working.groups("describe", "work", "--state", "--verbose").lines
    assert said[0] == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNOR", "STATE", "GROUP-EPOCH",
                       "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "#MEMBERS"]  # fmt: skip
    assert said[1][3:5] == ["highly_available", "Stable"]
    assert said[1][5] == said[1][6]
    assert said[1][7:] == ["0", "1"]
    assert len(working.groups("describe", "work", "--state").lines[0]) == 6


def test_the_topology_is_tree_lines(working: Office) -> None:
    assert working.groups("describe", "work", "--topology").out.splitlines() == [
        "work (topology epoch 0)",
        "├─ subtopology 0",
        "│  ├─ reads work-lines",
        "│  └─ writes work-words-repartition -> 1",
        "└─ subtopology 1",
        "   ├─ reads work-words-repartition (2 partitions) <- 0",
        "   └─ keeps work-counts-changelog (2 partitions, cleanup.policy=compact)",
    ]
    said = working.groups("describe", "classics", "--topology")
    assert said == (0, "", "Group 'classics' is a classic group: only streams groups have a topology.\n")


def test_documents_have_all_of_it(working: Office) -> None:
    (group,) = working.groups("describe", "work", "--json").json
    assert (group["type"], group["state"], group["assignor"], group["topology_epoch"]) == (
        "streams", "Stable", "highly_available", 0,
    )  # fmt: skip
    (ann,) = group["members"]
    assert ann["assignment"] == {"active": ["0_0", "0_1", "1_0", "1_1"], "standby": [], "warmup": []}
    assert (ann["tags"], ann["endpoint"], ann["process_id"]) == ({"zone": "b"}, "ann.example:80", "p-ann")
    assert (ann["task_offsets"], ann["task_end_offsets"]) == ({"1_0": 7}, {"1_0": 9, "1_1": 4})
    assert [row["lag"] for row in group["offsets"]] == [5, 3, 0, 0]
    (drawn,) = working.groups("describe", "work", "--topology", "--json").json
    second = drawn["topology"]["subtopologies"][1]
    assert second["state_changelog_topics"][0]["name"] == "work-counts-changelog"
    assert second["repartition_source_topics"][0]["partitions"] == 2


def test_all_streams_groups_can_be_meant(working: Office) -> None:
    said = working.groups("describe", "--all-groups", "--streams", "--state")
    assert [line[0] for line in said.lines if line and line[0] != "GROUP"].count("work") == 1
    assert "classics" not in said.out
    assert "work" not in [line[0] for line in working.groups("describe", "--all-groups").lines if line]


# who is stuck ---------------------------------------------------------------------------------


def test_who_has_not_heard_of_its_target_is_named(office: Office) -> None:
    """Ann is silent since before bob came."""
    office.broker.create("stuck-lines", 1, 1)
    topology = words("stuck", "stuck-lines")
    office.run("stuck", topology, "ann", until=has_all)
    office.run("stuck", topology, "bob", until=lambda bob: bob.epoch > 0)
    told = (
        r"ann-1 (client ann at /127.0.0.1) still owns active \d_\d,\d_\d (revocation pending); "
        r"bob-1 (bob) is waiting for them"
    )
    pattern = told.replace("(", r"\(").replace(")", r"\)")
    for part in ("--members", "--state", "--offsets", "--topology"):
        said = office.groups("describe", "stuck", part)
        assert said.err.startswith("Warning: Streams group 'stuck' is rebalancing.\n")
        assert re.search(pattern, said.err)
    rows = office.groups("describe", "stuck", "--reconciliation").out.splitlines()
    assert [line.split()[0] for line in rows if line.split()[:1] in (["ann-1"], ["bob-1"])] == [
        "ann-1",
        "bob-1",
    ]
    assert any(
        re.fullmatch(
            r"    still owns active \d_\d,\d_\d \(revocation pending\); bob-1 \(bob\) is waiting for them", r
        )
        for r in rows
    )
    assert any(
        re.fullmatch(r"    is waiting for active \d_\d,\d_\d, owned by ann-1 \(ann\)", r) for r in rows
    )


def test_who_was_told_to_release_and_has_not_is_named_too(office: Office) -> None:
    """Kafka's description does not show any more what it still has; ours tells it beside."""
    office.broker.create("slow-lines", 1, 1)
    topology = words("slow", "slow-lines")

    async def job() -> None:
        clusters = [Cluster(office.broker.address, ClientSettings(client_id=name)) for name in ("ann", "bob")]
        ann, bob = (
            StreamsMember(
                cluster, "slow", topology,
                settings=StreamsMemberSettings(member_id=f"{name}-1", process_id=name),
            )
            for name, cluster in zip(("ann", "bob"), clusters, strict=True)
        )  # fmt: skip
        async with asyncio.timeout(LONG_S):
            while not has_all(ann):
                await ann.ensure()
                await ann.wait_for_response(50)
            await bob.ensure()
            while not ann.rejoin:
                await ann.wait_for_response(50)
        said = await asyncio.to_thread(office.groups, "describe", "slow", "--members", "--json")
        first, second = said.json[0]["members"]
        assert (first["member_id"], first["state"], len(first["to_release"])) == (
            "ann-1",
            "UNREVOKED_TASKS",
            2,
        )
        assert {tuple(row["wanted_by"]) for row in first["to_release"]} == {("bob-1",)}
        assert [row["held_by"] for row in second["waits_for"]] == [["ann-1"], ["ann-1"]]
        assert second["state"] == "UNRELEASED_TASKS"
        for each, cluster in zip((ann, bob), clusters, strict=True):
            await each.leave()
            await cluster.close()

    asyncio.run(job())


def test_a_group_that_is_not_ready_says_for_what_it_waits(office: Office) -> None:
    office.run("early", words("early", "nowhere"), "ann", until=lambda ann: bool(ann.statuses))
    said = office.groups("describe", "early", "--state")
    assert said.lines[1][4] == "NotReady"
    assert said.err == (
        "Warning: Streams group 'early' is not ready: missing topics: early-counts-changelog, "
        "early-words-repartition, nowhere.\n"
    )
    assert ["early", "streams", "streams", "NotReady"] in office.groups("list", "--state", "Not Ready").lines
    (group,) = office.groups("describe", "early", "--state", "--json").json
    assert "nowhere" in group["missing_topics"]


def test_a_group_that_is_not_there(office: Office) -> None:
    said = office.groups("describe", "nobody", "--topology")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("konvene: there is no group nobody\n")


# moving offsets -------------------------------------------------------------------------------


def test_offsets_of_members_at_work_are_left_alone(working: Office) -> None:
    said = working.groups("reset-offsets", "work", "--all-input-topics", "--to-earliest", "--execute")
    assert said.code == 1
    assert "can only be reset if the group 'work' is inactive, but the current state is Stable." in said.err
    said = working.groups("delete", "work", "--delete-all-internal-topics")
    assert (said.code, said.out) == (1, "")
    assert "Streams group 'work' is not EMPTY." in said.err
    assert working.groups("delete", "work").code == 1


def test_input_topics_are_reset_and_nothing_else(office: Office) -> None:
    """The repartition topic's offsets stay. What is deleted is told on the way."""
    office.ended("reset")
    rows = [["reset", "reset-lines", "0", "0"], ["reset", "reset-lines", "1", "0"]]
    head = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    line = ("reset-offsets", "reset", "--all-input-topics", "--to-earliest")
    assert office.groups(*line, "--dry-run").lines == [head, *rows]
    assert office.broker.committed("reset")["reset-lines-0"] == 2
    said = office.groups(*line, "--delete-all-internal-topics", "--execute")
    assert said.lines == [head, *rows]
    assert said.err.splitlines() == [
        "Deleted internal topic reset-counts-changelog.", "Deleted internal topic reset-words-repartition.",
    ]  # fmt: skip
    committed = office.broker.committed("reset")
    assert (committed["reset-lines-0"], committed["reset-lines-1"]) == (0, 0)
    topics = call(office.broker, "topics", "list").out
    assert "reset-lines" in topics
    assert "reset-counts-changelog" not in topics


@pytest.fixture(scope="module")
def moved(office: Office) -> Office:
    office.ended("moved")
    return office


@pytest.mark.parametrize(
    ("words_", "expected"),
    [
        (["--all-input-topics", "--to-latest"], {0: 5, 1: 3}),
        (["--all-input-topics", "--to-offset", "1"], {0: 1, 1: 1}),
        (["--all-input-topics", "--shift-by", "-1"], {0: 1, 1: 2}),
        (["--all-input-topics", "--to-current"], {0: 2, 1: 3}),
        (["--all-input-topics", "--to-datetime", "1970-01-01T00:00:02.000"], {0: 1, 1: 1}),
        (["--all-input-topics", "--by-duration", "PT1H"], {0: 5, 1: 3}),
        (["--input-topic", "moved-lines:1", "--to-earliest"], {1: 0}),
        (["--input-topics", "moved-lines", "--shift-by", "1"], {0: 3, 1: 3}),
        (["--input-topics", "moved-lines"], {0: 0, 1: 0}),
        (["--topic", "moved-lines:0", "--to-earliest"], {0: 0}),
        (["--all-topics", "--to-earliest"], {0: 0, 1: 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_way_to_say_where_to(moved: Office, words_: list[str], expected: dict[int, int]) -> None:
    """As of any group; `--input-topics` alone means the earliest offset, as in KIP-1071."""
    said = moved.groups("reset-offsets", "moved", *words_, "--dry-run", "--json").json["groups"][0]
    assert said["error"] is None
    assert {row["partition"]: row["offset"] for row in said["offsets"]} == expected
    assert {row["topic"] for row in said["offsets"]} == {"moved-lines"}
    assert said["deleted_topics"] == []


def test_a_plan_goes_out_and_comes_in_as_a_file(moved: Office, tmp_path: Path) -> None:
    line = ("reset-offsets", "moved", "--all-input-topics", "--to-current", "--export", "--dry-run")
    exported = moved.groups(*line).out
    assert exported == "moved-lines,0,2\nmoved-lines,1,3\n"
    file = tmp_path / "plan.csv"
    file.write_text(exported.replace(",2\n", ",4\n"))
    said = moved.groups("reset-offsets", "moved", "--from-file", str(file), "--dry-run")
    assert said.lines[1] == ["moved", "moved-lines", "0", "4"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--all-input-topics --to-latest", "needs --execute or --dry-run"),
        ("--all-input-topics --topic moved-lines --to-latest --dry-run", "cannot be used together"),
        ("--input-topic a --input-topics b --to-latest --dry-run", "cannot be used together"),
        ("--all-input-topics --dry-run", "Give exactly one of"),
        (
            "--all-input-topics --to-latest --delete-all-internal-topics --dry-run",
            "Deleting internal topics needs --execute",
        ),
        ("--input-topic a:b --to-latest --dry-run", "Invalid partition 'b'"),
    ],
)
def test_what_cannot_be_meant_is_refused(line: str, told: str) -> None:
    said = call(None, "groups", "reset-offsets", "moved", *line.split())
    assert said.code == 2
    assert told in said.err


def test_what_the_application_does_not_read_is_refused(moved: Office) -> None:
    """An offset there would stay unread; neither is a topic internal because somebody says so."""
    said = moved.groups("reset-offsets", "moved", "--input-topic", "moved-counts", "--to-latest", "--dry-run")
    assert "topic moved-counts is not part of the group 'moved'" in said.err
    line = ("reset-offsets", "moved", "--all-input-topics", "--to-latest", "--execute")
    said = moved.groups(*line, "--delete-internal-topic", "moved-lines")
    assert (said.code, said.out) == (1, "")
    assert "moved-lines is not an internal topic of group moved" in said.err
    assert moved.broker.committed("moved")["moved-lines-0"] == 2


def test_groups_of_other_types_have_no_input_topics(working: Office) -> None:
    line = ("reset-offsets", "classics", "--all-input-topics", "--to-latest", "--dry-run")
    said = working.groups(*line)
    assert (said.code, said.out) == (1, "")
    assert "group classics is not a streams group" in said.err
    line = ("reset-offsets", "nobody", "--input-topic", "work-lines", "--to-latest", "--execute")
    said = working.groups(*line)
    assert (said.code, said.out) == (1, "")
    assert "there is no streams group nobody" in said.err
    assert "nobody" not in working.groups("list").out


def test_one_internal_topic_goes_where_it_is_named(office: Office) -> None:
    office.ended("single")
    line = (
        "reset-offsets", "single", "--all-input-topics", "--to-earliest", "--execute",
        "--delete-internal-topic", "single-words-repartition",
    )  # fmt: skip
    said = office.groups(*line)
    assert said.err == "Deleted internal topic single-words-repartition.\n"
    assert "single-counts-changelog" in call(office.broker, "topics", "list").out
    again = office.groups(*line)
    assert (again.code, again.err) == (
        0,
        "The internal topic single-words-repartition does not exist any more.\n",
    )


# deleting -------------------------------------------------------------------------------------


def test_offsets_of_input_topics_are_deleted(office: Office, tmp_path: Path) -> None:
    office.ended("offsets")
    said = office.groups("delete-offsets", "offsets", "--input-topic", "offsets-lines:1")
    assert said.lines == [["TOPIC", "PARTITION", "STATUS"], ["offsets-lines", "1", "Successful"]]
    assert "offsets-lines-1" not in office.broker.committed("offsets")
    assert office.groups("delete-offsets", "offsets", "--all-input-topics").lines[1:] == [
        ["offsets-lines", "0", "Successful"]
    ]
    assert list(office.broker.committed("offsets")) == ["offsets-words-repartition-0"]
    file = tmp_path / "gone.csv"
    file.write_text("offsets-words-repartition,0,0\n")
    assert office.groups("delete-offsets", "offsets", "--from-file", str(file)).code == 0
    assert office.broker.committed("offsets") == {}
    assert office.groups("delete-offsets", "offsets").code == 2
    file.write_text("what,is,this\n")
    assert "must be whole numbers" in office.groups("delete-offsets", "offsets", "--from-file", str(file)).err


def test_a_group_goes_with_its_internal_topics_where_that_is_said(office: Office) -> None:
    """A dry run shows what would go; nobody's own topics do."""
    office.ended("gone")
    told = office.groups("delete", "gone", "--delete-all-internal-topics", "--dry-run")
    assert told.out.splitlines() == [
        "Would delete group gone.",
        "Would delete internal topic gone-counts-changelog.",
        "Would delete internal topic gone-words-repartition.",
    ]
    said = office.groups("delete", "gone", "--internal-topics", "gone-lines,gone-counts-changelog")
    assert (said.code, said.out) == (1, "")
    assert "gone-lines: not an internal topic of group gone" in said.err
    done = office.groups("delete", "gone", "--internal-topics", "gone-counts-changelog", "--json").json
    assert done == {
        "deleted": ["gone"], "failed": {}, "deleted_topics": ["gone-counts-changelog"], "failed_topics": [],
    }  # fmt: skip
    topics = call(office.broker, "topics", "list").out.split()
    assert {"gone-lines", "gone-words-repartition"} <= set(topics)
    assert "gone-counts-changelog" not in topics
    assert office.groups("describe", "gone").code == 1


def test_a_group_goes_alone_where_nothing_is_said(office: Office) -> None:
    """As with Kafka's tool."""
    office.ended("alone")
    assert office.groups("delete", "alone").out == "Deleted group alone.\n"
    assert "alone-counts-changelog" in call(office.broker, "topics", "list").out
    said = office.groups("delete", "classics-2", "--delete-all-internal-topics")
    assert "Group 'classics-2' does not exist or is not a streams group." in said.err
    both = office.groups("delete", "x", "--delete-all-internal-topics", "--internal-topics", "y")
    assert both.code == 2
