"""`konvene groups` for streams groups: describe, reset-offsets, delete and delete-offsets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import call, running_broker
from tests.cli.office import SETTINGS, TIMEOUT_S, StreamsEnvironment, has_all_tasks, word_count_topology

from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.settings import StreamsMemberSettings
from konvene.client.streams.tasks import Task


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsEnvironment]:
    with running_broker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield StreamsEnvironment(broker)


@pytest.fixture(scope="module")
def working(env: StreamsEnvironment) -> StreamsEnvironment:
    """The environment with the application `work`, which ann runs alone."""
    env.broker.create("work-lines", 5, 3)

    def has_reported(ann: StreamsMember) -> bool:
        ann.report({Task("1", 0): 7}, {Task("1", 0): 9, Task("1", 1): 4})
        return has_all_tasks(ann) and ann.state is MemberState.STABLE

    env.run(
        "work", word_count_topology("work", "work-lines"), "ann", until=has_reported,
        application_server=("ann.example", 80), client_tags={"zone": "b"},
    )  # fmt: skip
    env.broker.commit("classics", "work-lines", p0=1)
    return env


# describing -----------------------------------------------------------------------------------


def test_streams_groups_are_listed_by_type_and_state(working: StreamsEnvironment) -> None:
    row = ["work", "streams", "streams", "Stable"]
    for option in (["--streams"], ["--type", "streams"], ["--group-type", "Streams"]):
        assert row in working.groups("list", *option).lines
        assert "classics" not in working.groups("list", *option).out
    assert row not in working.groups("list", "--type", "consumer").lines
    assert row in working.groups("list", "--streams", "--state", "stable").lines
    assert row not in working.groups("list", "--streams", "--state", "Not Ready,NOT_READY,NotReady").lines
    assert "cannot be used together" in working.groups("list", "--streams", "--type", "share").err
    assert call(None, "groups", "--version").out.startswith("konvene ")


def test_members_table_equals_kafkas(working: StreamsEnvironment) -> None:
    result = working.groups("describe", "work", "--members")
    assert result.lines == [
        ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"],
        ["work", "ann-1", "p-ann", "ann", "ACTIVE:", "0:[0,1];", "1:[0,1];"],
    ]
    assert result.err == ""


def test_verbose_members_table_has_every_field(working: StreamsEnvironment) -> None:
    head, row, *details = working.groups("describe", "work", "--members", "--verbose").lines
    assert head == [
        "GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH",
        "PROCESS", "CLIENT-ID", "GROUP-INSTANCE-ID", "HOST", "RACK", "ENDPOINT", "STATE", "ASSIGNMENTS",
        "HEARTBEAT-MS", "HELD", "HEARTBEAT-AGE-MS",
    ]  # fmt: skip
    *row, interval, held, age = row
    assert (interval.isdigit(), held in ("true", "false"), age.isdigit()) == (True, True, True)
    epoch = row[1]
    assert row[2:13] == ["0", "ann-1", "streams", epoch, "p-ann", "ann", "-", "/127.0.0.1", "-",
                         "ann.example:80", "STABLE"]  # fmt: skip
    assert " ".join(row[13:]) == "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];"
    assert [" ".join(line) for line in details] == [
        "restores active 1_0 [###############-----] 77 % at 7 of 9, lag 2",
        "tags: zone=b",
        "task offsets: 1_0 at 7 of 9, 1_1 at ? of 4",
    ]


def test_offsets_table_lists_the_source_topics(working: StreamsEnvironment) -> None:
    """Repartition topics are included. Without a committed offset the whole partition is lag."""
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


def test_verbose_state_shows_the_epochs(working: StreamsEnvironment) -> None:
    lines = working.groups("describe", "work", "--state", "--verbose").lines
    assert lines[0] == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNOR", "STATE", "GROUP-EPOCH",
                       "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "#MEMBERS"]  # fmt: skip
    assert lines[1][3:5] == ["highly_available", "Stable"]
    assert lines[1][5] == lines[1][6]
    assert lines[1][7:] == ["0", "1"]
    assert len(working.groups("describe", "work", "--state").lines[0]) == 6


def test_topology_is_printed_as_a_tree(working: StreamsEnvironment) -> None:
    assert working.groups("describe", "work", "--topology").out.splitlines() == [
        "work (topology epoch 0)",
        "├─ subtopology 0",
        "│  ├─ reads work-lines",
        "│  └─ writes work-words-repartition -> 1",
        "└─ subtopology 1",
        "   ├─ reads work-words-repartition (2 partitions) <- 0",
        "   └─ keeps work-counts-changelog (2 partitions, cleanup.policy=compact)",
    ]
    result = working.groups("describe", "classics", "--topology")
    assert result == (0, "", "Group 'classics' is a classic group: only streams groups have a topology.\n")


def test_json_document_has_members_offsets_and_topology(working: StreamsEnvironment) -> None:
    (group,) = working.groups("describe", "work", "--json").json
    assert (group["type"], group["state"], group["assignor"], group["topology_epoch"]) == (
        "streams", "Stable", "highly_available", 0,
    )  # fmt: skip
    (ann,) = group["members"]
    assert ann["assignment"] == {"active": ["0_0", "0_1", "1_0", "1_1"], "standby": [], "warmup": []}
    assert (ann["tags"], ann["endpoint"], ann["process_id"]) == ({"zone": "b"}, "ann.example:80", "p-ann")
    assert (ann["task_offsets"], ann["task_end_offsets"]) == ({"1_0": 7}, {"1_0": 9, "1_1": 4})
    assert [row["lag"] for row in group["offsets"]] == [5, 3, 0, 0]
    (described,) = working.groups("describe", "work", "--topology", "--json").json
    second = described["topology"]["subtopologies"][1]
    assert second["state_changelog_topics"][0]["name"] == "work-counts-changelog"
    assert second["repartition_source_topics"][0]["partitions"] == 2


def test_all_groups_with_streams_selects_streams_groups(working: StreamsEnvironment) -> None:
    result = working.groups("describe", "--all-groups", "--streams", "--state")
    assert [line[0] for line in result.lines if line and line[0] != "GROUP"].count("work") == 1
    assert "classics" not in result.out
    assert "work" not in [line[0] for line in working.groups("describe", "--all-groups").lines if line]


# members that block a rebalance ---------------------------------------------------------------


def test_member_that_missed_its_new_target_is_named(env: StreamsEnvironment) -> None:
    """Ann has sent no heartbeat since bob joined."""
    env.broker.create("stuck-lines", 1, 1)
    topology = word_count_topology("stuck", "stuck-lines")
    env.run("stuck", topology, "ann", until=has_all_tasks)
    env.run("stuck", topology, "bob", until=lambda bob: bob.epoch > 0)
    warning = (
        r"ann-1 (client ann at /127.0.0.1) still owns active \d_\d,\d_\d (revocation pending); "
        r"bob-1 (bob) is waiting for them"
    )
    pattern = warning.replace("(", r"\(").replace(")", r"\)")
    for part in ("--members", "--state", "--offsets", "--topology"):
        result = env.groups("describe", "stuck", part)
        assert result.err.startswith("Warning: Streams group 'stuck' is rebalancing.\n")
        assert re.search(pattern, result.err)
    rows = env.groups("describe", "stuck", "--reconciliation").out.splitlines()
    assert [line.split()[0] for line in rows if line.split()[:1] in (["ann-1"], ["bob-1"])] == [
        "ann-1",
        "bob-1",
    ]
    assert any(
        re.fullmatch(
            r"    still owns active \d_\d,\d_\d \(revocation pending\); bob-1 \(bob\) is waiting for them",
            row,
        )
        for row in rows
    )
    assert any(
        re.fullmatch(r"    is waiting for active \d_\d,\d_\d, owned by ann-1 \(ann\)", row) for row in rows
    )


def test_member_with_pending_revocation_is_named(env: StreamsEnvironment) -> None:
    """Kafka's description omits the tasks that such a member still owns; konvene's extension has them."""
    env.broker.create("slow-lines", 1, 1)
    topology = word_count_topology("slow", "slow-lines")

    async def job() -> None:
        clusters = [Cluster(env.broker.address, ClientSettings(client_id=name)) for name in ("ann", "bob")]
        ann, bob = (
            StreamsMember(
                cluster, "slow", topology,
                settings=StreamsMemberSettings(member_id=f"{name}-1", process_id=name),
            )
            for name, cluster in zip(("ann", "bob"), clusters, strict=True)
        )  # fmt: skip
        async with asyncio.timeout(TIMEOUT_S):
            while not has_all_tasks(ann):
                await ann.ensure()
                await ann.wait_for_response(50)
            await bob.ensure()
            while not ann.rejoin:
                await ann.wait_for_response(50)
        result = await asyncio.to_thread(env.groups, "describe", "slow", "--members", "--json")
        first, second = result.json[0]["members"]
        assert (first["member_id"], first["state"], len(first["to_release"])) == (
            "ann-1",
            "UNREVOKED_TASKS",
            2,
        )
        assert {tuple(row["wanted_by"]) for row in first["to_release"]} == {("bob-1",)}
        assert [row["held_by"] for row in second["waits_for"]] == [["ann-1"], ["ann-1"]]
        assert second["state"] == "UNRELEASED_TASKS"
        for member, cluster in zip((ann, bob), clusters, strict=True):
            await member.leave()
            await cluster.close()

    asyncio.run(job())


def test_not_ready_group_names_its_missing_topics(env: StreamsEnvironment) -> None:
    env.run("early", word_count_topology("early", "nowhere"), "ann", until=lambda ann: bool(ann.statuses))
    result = env.groups("describe", "early", "--state")
    assert result.lines[1][4] == "NotReady"
    assert result.err == (
        "Warning: Streams group 'early' is not ready: missing topics: early-counts-changelog, "
        "early-words-repartition, nowhere.\n"
    )
    assert ["early", "streams", "streams", "NotReady"] in env.groups("list", "--state", "Not Ready").lines
    (group,) = env.groups("describe", "early", "--state", "--json").json
    assert "nowhere" in group["missing_topics"]


def test_describing_an_unknown_group_fails(env: StreamsEnvironment) -> None:
    result = env.groups("describe", "nobody", "--topology")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("konvene: there is no group nobody\n")


# moving offsets -------------------------------------------------------------------------------


def test_active_group_is_neither_reset_nor_deleted(working: StreamsEnvironment) -> None:
    result = working.groups("reset-offsets", "work", "--all-input-topics", "--to-earliest", "--execute")
    assert result.code == 1
    assert "can only be reset if the group 'work' is inactive, but the current state is Stable." in result.err
    result = working.groups("delete", "work", "--delete-all-internal-topics")
    assert (result.code, result.out) == (1, "")
    assert "Streams group 'work' is not EMPTY." in result.err
    assert working.groups("delete", "work").code == 1


def test_reset_changes_only_input_topics(env: StreamsEnvironment) -> None:
    """Offsets of the repartition topic are kept; deleted internal topics are reported on stderr."""
    env.create_finished_app("reset")
    rows = [["reset", "reset-lines", "0", "0"], ["reset", "reset-lines", "1", "0"]]
    head = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    args = ("reset-offsets", "reset", "--all-input-topics", "--to-earliest")
    assert env.groups(*args, "--dry-run").lines == [head, *rows]
    assert env.broker.committed("reset")["reset-lines-0"] == 2
    result = env.groups(*args, "--delete-all-internal-topics", "--execute")
    assert result.lines == [head, *rows]
    assert result.err.splitlines() == [
        "Deleted internal topic reset-counts-changelog.", "Deleted internal topic reset-words-repartition.",
    ]  # fmt: skip
    committed = env.broker.committed("reset")
    assert (committed["reset-lines-0"], committed["reset-lines-1"]) == (0, 0)
    topics = call(env.broker, "topics", "list").out
    assert "reset-lines" in topics
    assert "reset-counts-changelog" not in topics


@pytest.fixture(scope="module")
def moved(env: StreamsEnvironment) -> StreamsEnvironment:
    env.create_finished_app("moved")
    return env


@pytest.mark.parametrize(
    ("args", "expected"),
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
def test_reset_specification_gives_the_expected_offsets(
    moved: StreamsEnvironment, args: list[str], expected: dict[int, int]
) -> None:
    """As for any group; `--input-topics` alone means the earliest offset, as in KIP-1071."""
    plan = moved.groups("reset-offsets", "moved", *args, "--dry-run", "--json").json["groups"][0]
    assert plan["error"] is None
    assert {row["partition"]: row["offset"] for row in plan["offsets"]} == expected
    assert {row["topic"] for row in plan["offsets"]} == {"moved-lines"}
    assert plan["deleted_topics"] == []


def test_exported_plan_can_be_read_back_from_a_file(moved: StreamsEnvironment, tmp_path: Path) -> None:
    args = ("reset-offsets", "moved", "--all-input-topics", "--to-current", "--export", "--dry-run")
    exported = moved.groups(*args).out
    assert exported == "moved-lines,0,2\nmoved-lines,1,3\n"
    file = tmp_path / "plan.csv"
    file.write_text(exported.replace(",2\n", ",4\n"))
    result = moved.groups("reset-offsets", "moved", "--from-file", str(file), "--dry-run")
    assert result.lines[1] == ["moved", "moved-lines", "0", "4"]


@pytest.mark.parametrize(
    ("args", "message"),
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
def test_contradictory_reset_options_are_rejected(args: str, message: str) -> None:
    result = call(None, "groups", "reset-offsets", "moved", *args.split())
    assert result.code == 2
    assert message in result.err


def test_topics_outside_the_topology_are_rejected(moved: StreamsEnvironment) -> None:
    """Topics outside the topology cannot be reset; other topics cannot be deleted as internal ones."""
    result = moved.groups(
        "reset-offsets", "moved", "--input-topic", "moved-counts", "--to-latest", "--dry-run"
    )
    assert "topic moved-counts is not part of the group 'moved'" in result.err
    args = ("reset-offsets", "moved", "--all-input-topics", "--to-latest", "--execute")
    result = moved.groups(*args, "--delete-internal-topic", "moved-lines")
    assert (result.code, result.out) == (1, "")
    assert "moved-lines is not an internal topic of group moved" in result.err
    assert moved.broker.committed("moved")["moved-lines-0"] == 2


def test_input_topic_options_need_a_streams_group(working: StreamsEnvironment) -> None:
    args = ("reset-offsets", "classics", "--all-input-topics", "--to-latest", "--dry-run")
    result = working.groups(*args)
    assert (result.code, result.out) == (1, "")
    assert "group classics is not a streams group" in result.err
    args = ("reset-offsets", "nobody", "--input-topic", "work-lines", "--to-latest", "--execute")
    result = working.groups(*args)
    assert (result.code, result.out) == (1, "")
    assert "there is no streams group nobody" in result.err
    assert "nobody" not in working.groups("list").out


def test_a_named_internal_topic_is_deleted_alone(env: StreamsEnvironment) -> None:
    env.create_finished_app("single")
    args = (
        "reset-offsets", "single", "--all-input-topics", "--to-earliest", "--execute",
        "--delete-internal-topic", "single-words-repartition",
    )  # fmt: skip
    result = env.groups(*args)
    assert result.err == "Deleted internal topic single-words-repartition.\n"
    assert "single-counts-changelog" in call(env.broker, "topics", "list").out
    again = env.groups(*args)
    assert (again.code, again.err) == (
        0,
        "The internal topic single-words-repartition does not exist any more.\n",
    )


# deleting -------------------------------------------------------------------------------------


def test_offsets_of_input_topics_are_deleted(env: StreamsEnvironment, tmp_path: Path) -> None:
    env.create_finished_app("offsets")
    result = env.groups("delete-offsets", "offsets", "--input-topic", "offsets-lines:1")
    assert result.lines == [["TOPIC", "PARTITION", "STATUS"], ["offsets-lines", "1", "Successful"]]
    assert "offsets-lines-1" not in env.broker.committed("offsets")
    assert env.groups("delete-offsets", "offsets", "--all-input-topics").lines[1:] == [
        ["offsets-lines", "0", "Successful"]
    ]
    assert list(env.broker.committed("offsets")) == ["offsets-words-repartition-0"]
    file = tmp_path / "offsets.csv"
    file.write_text("offsets-words-repartition,0,0\n")
    assert env.groups("delete-offsets", "offsets", "--from-file", str(file)).code == 0
    assert env.broker.committed("offsets") == {}
    assert env.groups("delete-offsets", "offsets").code == 2
    file.write_text("what,is,this\n")
    assert "must be whole numbers" in env.groups("delete-offsets", "offsets", "--from-file", str(file)).err


def test_delete_removes_requested_internal_topics(env: StreamsEnvironment) -> None:
    """The dry run lists what would be deleted; user topics are never deleted."""
    env.create_finished_app("gone")
    dry_run = env.groups("delete", "gone", "--delete-all-internal-topics", "--dry-run")
    assert dry_run.out.splitlines() == [
        "Would delete group gone.",
        "Would delete internal topic gone-counts-changelog.",
        "Would delete internal topic gone-words-repartition.",
    ]
    result = env.groups("delete", "gone", "--internal-topics", "gone-lines,gone-counts-changelog")
    assert (result.code, result.out) == (1, "")
    assert "gone-lines: not an internal topic of group gone" in result.err
    output = env.groups("delete", "gone", "--internal-topics", "gone-counts-changelog", "--json").json
    assert output == {
        "deleted": ["gone"], "failed": {}, "deleted_topics": ["gone-counts-changelog"], "failed_topics": [],
    }  # fmt: skip
    topics = call(env.broker, "topics", "list").out.split()
    assert {"gone-lines", "gone-words-repartition"} <= set(topics)
    assert "gone-counts-changelog" not in topics
    assert env.groups("describe", "gone").code == 1


def test_delete_keeps_internal_topics_by_default(env: StreamsEnvironment) -> None:
    """As with Kafka's tool."""
    env.create_finished_app("alone")
    assert env.groups("delete", "alone").out == "Deleted group alone.\n"
    assert "alone-counts-changelog" in call(env.broker, "topics", "list").out
    result = env.groups("delete", "classics-2", "--delete-all-internal-topics")
    assert "Group 'classics-2' does not exist or is not a streams group." in result.err
    both = env.groups("delete", "x", "--delete-all-internal-topics", "--internal-topics", "y")
    assert both.code == 2
