"""How far warm-ups are and who is stale, as `konvene groups describe` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import serving
from tests.cli.groups.test_pending_tasks import group, having, member
from tests.cli.office import SETTINGS, Office, has_all, words

from konvene.cli.groups.pending_tasks import describe_protocol
from konvene.cli.groups.progress import bar, describe_group_progress, describe_task_progress, task_progress
from konvene.cli.groups.streams import DescribedStreams, document
from konvene.client.admin.streams_groups import StreamsGroupDescription, StreamsMemberDescription
from konvene.client.membership.state_machine import MemberState
from konvene.client.streams.membership import UNKNOWN_OFFSET
from konvene.client.streams.tasks import InternalTopic, Subtopology, Task, Topology

T = Task("0", 0)


def telling(
    name: str, active: str = "", standby: str = "", warmup: str = "", *, at: int | None = None,
    end: int | None = None, process: str = "", topology_epoch: int = 0,
) -> StreamsMemberDescription:  # fmt: skip
    """A member that has said of 0_0 where it is, and where the end is."""
    has = having(active, standby, warmup)
    return member(name, 5, has, has, process=process, topology_epoch=topology_epoch)._replace(
        task_offsets={} if at is None else {T: at}, task_end_offsets={} if end is None else {T: end}
    )


def ours(*members: StreamsMemberDescription, topology_epoch: int = 0) -> StreamsGroupDescription:
    """As a broker of ours describes it: 1000 records are acceptable, and two warm-ups."""
    state = (InternalTopic("counts-changelog"),)
    topology = Topology((Subtopology("0", ("t",), state_changelog_topics=state),), topology_epoch)
    return group(*members)._replace(
        topology=topology, acceptable_recovery_lag=1000, num_warmup_replicas=2, not_reporting=frozenset()
    )


@pytest.mark.parametrize(
    ("offset", "end", "shown"),
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
def test_a_bar_is_full_when_nothing_is_missing(offset: int | None, end: int | None, shown: str) -> None:
    assert bar(offset, end) == shown


@pytest.mark.parametrize(
    ("at", "end", "line"),
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
def test_a_warm_up_is_told_with_what_is_known_of_it(at: int | None, end: int | None, line: str) -> None:
    """The end is what anybody says of it, here who is active."""
    found = ours(telling("ann", "0_0", end=end), telling("bob", warmup="0_0", at=at))
    told = f"warm-up 0_0 {line}; active on ann (client-ann)"
    assert describe_task_progress(found.members[1], found) == [told]
    (copy,) = task_progress(found.members[1], found)
    assert copy.caught_up is (at == 9000)
    assert describe_task_progress(found.members[0], found) == []
    assert describe_group_progress(found) == ["warm-ups in progress: 1 of at most 2"]


def test_a_process_speaks_with_one_voice() -> None:
    """Both members of it share the disk; what another process has on its own says nothing of theirs."""
    found = ours(
        telling("b1", warmup="0_0", process="b"),
        telling("b2", at=30, end=40, process="b"),
        telling("c", at=35, end=50),
    )
    (copy,) = task_progress(found.members[0], found)
    assert (copy.offset, copy.end, copy.lag) == (30, 50, 20)


def test_other_brokers_do_not_tell_the_limits() -> None:
    """Then it is not said when a warm-up has caught up, nor who says nothing."""
    found = group(telling("ann", warmup="0_0", at=5, end=10))
    ann = found.members[0]
    assert describe_task_progress(ann, found, verbose=True) == [
        "warm-up 0_0 [##########----------]  50 % at 5 of 10, lag 5"
    ]
    assert task_progress(ann, found)[0].caught_up is None
    assert describe_group_progress(found) == ["warm-ups in progress: 1"]
    (told,) = document(DescribedStreams(found, [], ()), "members")["members"]
    assert told["reports_offsets"] is None


def test_all_that_is_restored_is_shown_where_all_is_asked_for() -> None:
    """A standby that lacks nothing is not; neither is who says nothing, unless it is known to."""
    behind, done = telling("bob", standby="0_0", at=5, end=10), telling("cas", standby="0_0", at=10)
    found = ours(telling("ann", "0_0"), behind, done)._replace(not_reporting=frozenset({"ann"}))
    assert [describe_task_progress(m, found) for m in found.members] == [[], [], []]
    stateless = found._replace(topology=Topology((Subtopology("0", ("t",)),)))
    assert describe_task_progress(found.members[0], stateless, verbose=True) == []
    assert [describe_task_progress(m, found, verbose=True) for m in found.members] == [
        ["does not report task offsets: it gets tasks without a warm-up"],
        ["standby 0_0 [##########----------]  50 % at 5 of 10, lag 5; active on ann (client-ann)"],
        [],
    ]


def test_who_is_stale_is_counted_and_named() -> None:
    found = ours(telling("ann", "0_0"), telling("bob", "0_1", topology_epoch=1), topology_epoch=1)
    assert describe_group_progress(found) == [
        "stale members: 1 of 2 (the group has topology epoch 1): ann (client-ann)"
    ]  # fmt: skip
    whole = document(DescribedStreams(found, [], ()), "members")
    assert (whole["stale_member_count"], [m["stale"] for m in whole["members"]]) == (1, [True, False])


def test_who_speaks_the_classic_protocol_is_counted_and_named() -> None:
    """While an application is moved, whoever has yet to be rolled."""
    found = ours(telling("ann", "0_0")._replace(is_classic=True), telling("bob", "0_1"))
    assert describe_group_progress(found) == [
        "members that use the classic protocol: 1 of 2: ann (client-ann)"
    ]
    assert [describe_protocol(m, found) for m in found.members] == [["uses the classic protocol"], []]
    whole = document(DescribedStreams(found, [], ()), "members")
    protocols = [m["protocol"] for m in whole["members"]]
    assert (whole["classic_member_count"], protocols) == (1, ["classic", "streams"])


def test_documents_have_the_figures_of_every_task() -> None:
    found = ours(telling("ann", "0_0", end=10), telling("bob", warmup="0_0", at=4))
    whole = document(DescribedStreams(found, [], ()), "members")
    assert [whole[k] for k in ("warmups", "num_warmup_replicas", "acceptable_recovery_lag")] == [1, 2, 1000]
    (bob,) = (m for m in whole["members"] if m["member_id"] == "bob")
    assert bob["progress"] == [
        {"task": "0_0", "role": "warmup", "offset": 4, "end_offset": 10, "lag": 6, "caught_up": True,
         "active_on": "ann"}
    ]  # fmt: skip


def test_a_live_warm_up_is_shown_under_its_member(tmp_path: Path) -> None:
    """By an assignor that somebody brought: ann runs everything, and bob warms up what is to be his."""
    settings = SETTINGS | {"group.streams.assignors": "tests.groups.streams.warming:one_by_one"}
    with serving(tmp_path, settings) as broker:
        office = Office(broker)
        broker.create("w-lines", 1, 1)
        topology = words("w", "w-lines")
        changelog = Task("1", 1)

        def warms_up(ann, bob) -> bool:  # type: ignore[no-untyped-def]
            ann.report({changelog: 40_000}, {changelog: 40_000})
            bob.report({changelog: 10_000}, {})
            is_told = not bob.membership.offsets or bob.membership._sent_owned_version is not None
            return bob.assignment.warmup == {changelog} and bob.state is MemberState.STABLE and is_told

        office.run("w", topology, "ann", until=has_all)
        office.run("w", topology, "ann", "bob", until=warms_up)
        said = office.groups("describe", "w", "--members").out.splitlines()
        assert said[-1] == (
            "    warm-up 1_1 [#####---------------]  25 % at 10000 of 40000, lag 30000 "
            "(caught up at lag <= 10000); active on ann-1 (ann)"
        )
        assert said[-2].split()[-2:] == ["WARMUP:", "1:[1];"]
        state = office.groups("describe", "w", "--state").out.splitlines()
        assert state[-1] == "    warm-ups in progress: 1 of at most 2"
        (whole,) = office.groups("describe", "w", "--json").json
        assert {m["member_id"]: m["reports_offsets"] for m in whole["members"]} == {
            "ann-1": True,
            "bob-1": True,
        }
