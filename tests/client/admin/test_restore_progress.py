"""Warm-up progress and stale members in `konvene groups describe`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import running_broker
from tests.cli.office import SETTINGS, StreamsEnvironment, has_all_tasks, word_count_topology
from tests.client.admin.test_pending_tasks import assignment, group, member

from konvene.cli.groups.streams import DescribedStreams, document
from konvene.client.admin.pending_tasks import describe_protocol
from konvene.client.admin.restore_progress import (
    bar,
    describe_group_progress,
    describe_task_progress,
    task_progress,
)
from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription
from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.membership import UNKNOWN_OFFSET
from konvene.client.streams.tasks import InternalTopic, Subtopology, Task, Topology

T = Task("0", 0)


def reporting_member(
    name: str, active: str = "", standby: str = "", warmup: str = "", *, offset: int | None = None,
    end_offset: int | None = None, process: str = "", topology_epoch: int = 0,
) -> StreamsMemberDescription:  # fmt: skip
    """Describe a member that reports its offset and the end offset of task 0_0."""
    owned = assignment(active, standby, warmup)
    return member(name, 5, owned, owned, process_id=process, topology_epoch=topology_epoch)._replace(
        task_offsets={} if offset is None else {T: offset},
        task_end_offsets={} if end_offset is None else {T: end_offset},
    )


def konvene_group(*members: StreamsMemberDescription, topology_epoch: int = 0) -> StreamsGroupDescription:
    """Describe the group as a konvene broker does: acceptable recovery lag 1000, two warm-up replicas."""
    state = (InternalTopic("counts-changelog"),)
    topology = Topology((Subtopology("0", ("t",), state_changelog_topics=state),), topology_epoch)
    return group(*members)._replace(
        topology=topology, acceptable_recovery_lag=1000, num_warmup_replicas=2, not_reporting=frozenset()
    )


@pytest.mark.parametrize(
    ("offset", "end_offset", "expected"),
    [
        (0, 10, "[--------------------]   0 %"),
        (5, 10, "[##########----------]  50 %"),
        (999, 1000, "[###################-]  99 %"),
        (10, 10, "[####################] 100 %"),
        (12, 10, "[####################] 100 %"),
        (0, 0, "[####################] 100 %"),
        (None, 10, ""),
        (5, None, ""),
    ],
)
def test_bar_is_full_at_the_end_offset(offset: int | None, end_offset: int | None, expected: str) -> None:
    assert bar(offset, end_offset) == expected


@pytest.mark.parametrize(
    ("offset", "end_offset", "line"),
    [
        (2500, 10_000, "[#####---------------]  25 % at 2500 of 10000, lag 7500 (caught up at lag <= 1000)"),
        (9000, 10_000, "[##################--]  90 % at 9000 of 10000, lag 1000 <= 1000: caught up"),
        (None, 10_000, "progress unknown"),
        (2500, None, "at 2500, end offset unknown"),
        (UNKNOWN_OFFSET, 10_000, "progress unknown"),
        (-1, 10_000, "progress unknown"),
        (2500, UNKNOWN_OFFSET, "at 2500, end offset unknown"),
    ],
)
def test_warm_up_progress_is_described(offset: int | None, end_offset: int | None, line: str) -> None:
    """The end offset may be reported by any member, here by the active one."""
    described = konvene_group(
        reporting_member("ann", "0_0", end_offset=end_offset),
        reporting_member("bob", warmup="0_0", offset=offset),
    )
    expected = f"warm-up 0_0 {line}; active on ann (client-ann)"
    assert describe_task_progress(described.members[1], described) == [expected]
    (progress,) = task_progress(described.members[1], described)
    assert progress.caught_up is (offset == 9000)
    assert describe_task_progress(described.members[0], described) == []
    assert describe_group_progress(described) == ["warm-ups in progress: 1 of at most 2"]


def test_members_of_a_process_share_reported_offsets() -> None:
    """Members of one process share its state directory; offsets of another process do not count."""
    described = konvene_group(
        reporting_member("b1", warmup="0_0", process="b"),
        reporting_member("b2", offset=30, end_offset=40, process="b"),
        reporting_member("c", offset=35, end_offset=50),
    )
    (progress,) = task_progress(described.members[0], described)
    assert (progress.offset, progress.end, progress.lag) == (30, 50, 20)


def test_other_brokers_do_not_describe_the_limits() -> None:
    """Without konvene's extension, neither `caught_up` nor `reports_offsets` is known."""
    described = group(reporting_member("ann", warmup="0_0", offset=5, end_offset=10))
    ann = described.members[0]
    assert describe_task_progress(ann, described, verbose=True) == [
        "warm-up 0_0 [##########----------]  50 % at 5 of 10, lag 5"
    ]
    assert task_progress(ann, described)[0].caught_up is None
    assert describe_group_progress(described) == ["warm-ups in progress: 1"]
    (member_document,) = document(DescribedStreams(described, [], ()), "members")["members"]
    assert member_document["reports_offsets"] is None


def test_verbose_shows_every_restoration() -> None:
    """Verbose output omits caught-up standbys and members of unknown reporting state."""
    behind, caught_up = (
        reporting_member("bob", standby="0_0", offset=5, end_offset=10),
        reporting_member("cas", standby="0_0", offset=10),
    )
    described = konvene_group(reporting_member("ann", "0_0"), behind, caught_up)._replace(
        not_reporting=frozenset({"ann"})
    )
    assert [describe_task_progress(m, described) for m in described.members] == [[], [], []]
    stateless = described._replace(topology=Topology((Subtopology("0", ("t",)),)))
    assert describe_task_progress(described.members[0], stateless, verbose=True) == []
    assert [describe_task_progress(m, described, verbose=True) for m in described.members] == [
        ["does not report task offsets: it gets tasks without a warm-up"],
        ["standby 0_0 [##########----------]  50 % at 5 of 10, lag 5; active on ann (client-ann)"],
        [],
    ]


def test_stale_members_are_counted_and_named() -> None:
    described = konvene_group(
        reporting_member("ann", "0_0"), reporting_member("bob", "0_1", topology_epoch=1), topology_epoch=1
    )
    assert describe_group_progress(described) == [
        "stale members: 1 of 2 (the group has topology epoch 1): ann (client-ann)"
    ]  # fmt: skip
    output = document(DescribedStreams(described, [], ()), "members")
    assert (output["stale_member_count"], [m["stale"] for m in output["members"]]) == (1, [True, False])


def test_classic_members_are_counted_and_named() -> None:
    """During a protocol migration, these are the members that are not restarted yet."""
    described = konvene_group(
        reporting_member("ann", "0_0")._replace(is_classic=True), reporting_member("bob", "0_1")
    )
    assert describe_group_progress(described) == [
        "members that use the classic protocol: 1 of 2: ann (client-ann)"
    ]
    assert [describe_protocol(m, described) for m in described.members] == [["uses the classic protocol"], []]
    output = document(DescribedStreams(described, [], ()), "members")
    protocols = [m["protocol"] for m in output["members"]]
    assert (output["classic_member_count"], protocols) == (1, ["classic", "streams"])


def test_json_document_has_the_progress_of_every_task() -> None:
    described = konvene_group(
        reporting_member("ann", "0_0", end_offset=10), reporting_member("bob", warmup="0_0", offset=4)
    )
    output = document(DescribedStreams(described, [], ()), "members")
    assert [output[k] for k in ("warmups", "num_warmup_replicas", "acceptable_recovery_lag")] == [1, 2, 1000]
    (bob,) = (m for m in output["members"] if m["member_id"] == "bob")
    assert bob["progress"] == [
        {"task": "0_0", "role": "warmup", "offset": 4, "end_offset": 10, "lag": 6, "caught_up": True,
         "active_on": "ann"}
    ]  # fmt: skip


def test_a_live_warm_up_is_shown_under_its_member(tmp_path: Path) -> None:
    """With a custom assignor: ann runs all tasks, and bob warms up those that it will take over."""
    settings = SETTINGS | {"group.streams.assignors": "tests.groups.streams.warming:one_by_one"}
    with running_broker(tmp_path, settings) as broker:
        env = StreamsEnvironment(broker)
        broker.create("w-lines", 1, 1)
        topology = word_count_topology("w", "w-lines")
        changelog = Task("1", 1)

        def warms_up(ann, bob) -> bool:  # type: ignore[no-untyped-def]
            ann.report({changelog: 40_000}, {changelog: 40_000})
            bob.report({changelog: 10_000}, {})
            offsets_are_sent = not bob.membership.offsets or bob.membership._sent_owned_version is not None
            return (
                bob.assignment.warmup == {changelog} and bob.state is MemberState.STABLE and offsets_are_sent
            )

        env.run("w", topology, "ann", until=has_all_tasks)
        env.run("w", topology, "ann", "bob", until=warms_up)
        result = env.groups("describe", "w", "--members").out.splitlines()
        assert result[-1] == (
            "    warm-up 1_1 [#####---------------]  25 % at 10000 of 40000, lag 30000 "
            "(caught up at lag <= 10000); active on ann-1 (ann)"
        )
        assert result[-2].split()[-2:] == ["WARMUP:", "1:[1];"]
        state = env.groups("describe", "w", "--state").out.splitlines()
        assert state[-1] == "    warm-ups in progress: 1 of at most 2"
        (output,) = env.groups("describe", "w", "--json").json
        assert {m["member_id"]: m["reports_offsets"] for m in output["members"]} == {
            "ann-1": True,
            "bob-1": True,
        }
