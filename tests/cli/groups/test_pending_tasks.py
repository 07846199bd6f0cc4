"""Who waits for whom in a streams group, and how topologies are drawn, from descriptions alone."""

from __future__ import annotations

from konvene.cli.groups.pending_tasks import (
    blocking_members,
    describe_progress,
    format_assignment,
    member_progress,
)
from konvene.cli.groups.streams import DescribedStreams, document, notes
from konvene.cli.groups.topology import tree_lines
from konvene.client.admin.streams_groups import (
    GlobalStore,
    NodeKind,
    StreamsGroupDescription,
    StreamsMemberDescription,
    SubtopologyNodes,
    TopologyDescription,
    TopologyNode,
)
from konvene.client.net.cluster import Node
from konvene.client.streams.tasks import Assignment, InternalTopic, Subtopology, Task, Topology


def having(active: str = "", standby: str = "", warmup: str = "") -> Assignment:
    roles = (active, standby, warmup)
    return Assignment(*(frozenset(Task(t[: t.index("_")], int(t[-1])) for t in r.split()) for r in roles))


def member(
    name: str, epoch: int, has: Assignment, target: Assignment, *, owes: Assignment | None = None,
    process: str = "", topology_epoch: int = 0,
) -> StreamsMemberDescription:  # fmt: skip
    return StreamsMemberDescription(
        name,
        f"client-{name}",
        "/h",
        epoch,
        topology_epoch,
        process or name,
        has,
        target,
        pending_revocation=owes,
    )


def group(*members: StreamsMemberDescription, epoch: int = 5) -> StreamsGroupDescription:
    topology = Topology((Subtopology("0", ("t",)),))
    return StreamsGroupDescription("g", "Reconciling", Node(1, "h", 9092), epoch, epoch, topology, members)


def told(found: StreamsGroupDescription) -> dict[str, tuple[str, list[str]]]:
    return {s.member.member_id: (s.state, describe_progress(s, found)) for s in member_progress(found)}


def test_what_a_member_owes_holds_up_who_wants_it() -> None:
    """It is not in what the member has any more."""
    found = group(
        member("bob", 5, having(), having("0_1"), owes=having()),
        member("ann", 4, having("0_0"), having("0_0"), owes=having("0_1")),
    )
    assert told(found) == {
        "ann": (
            "UNREVOKED_TASKS",
            ["still owns active 0_1 (revocation pending); bob (client-bob) is waiting for it"],
        ),
        "bob": ("UNRELEASED_TASKS", ["is waiting for active 0_1, owned by ann (client-ann)"]),
    }
    assert [s.member.member_id for s in member_progress(found)] == ["ann", "bob"]
    assert blocking_members(found) == [
        "ann (client client-ann at /h) still owns active 0_1 (revocation pending); "
        "bob (client-bob) is waiting for it"
    ]


def test_where_the_broker_does_not_tell_those_are_named_that_may_be_meant() -> None:
    found = group(member("bob", 5, having(), having("0_1")), member("ann", 4, having("0_0"), having("0_0")))
    assert told(found)["bob"][1] == [
        "is waiting for active 0_1; a member that is behind may still own them: ann (client-ann)"
    ]
    assert blocking_members(found) == [
        "ann (client client-ann at /h) is at epoch 4 and may still own tasks that others are waiting for: "
        "active 0_1"
    ]


def test_a_standby_waits_for_its_own_process_alone() -> None:
    """Another member of it has the task; that some other process is active in it is in nobody's way."""
    found = group(
        member("a1", 5, having("0_0"), having("0_0"), owes=having(), process="a"),
        member("b1", 5, having(), having(standby="0_0 0_1"), owes=having(), process="b"),
        member("b2", 5, having(), having(), owes=having(warmup="0_1"), process="b"),
    )
    assert told(found)["b1"][1] == [
        "is waiting for standby 0_1, owned by b2 (client-b2)",
        "gets standby 0_0 with its next heartbeat: no other member owns that",
    ]
    assert told(found)["b2"] == (
        "UNREVOKED_TASKS", ["still owns warmup 0_1 (revocation pending); b1 (client-b1) is waiting for it"],
    )  # fmt: skip


def test_who_is_promoted_has_nothing_to_release() -> None:
    """A standby that becomes active keeps its state; an active task that becomes a standby is released."""
    found = group(
        member("ann", 5, having(standby="0_0"), having("0_0"), owes=having()),
        member("bob", 4, having("0_0"), having(standby="0_0"), owes=having()),
    )
    assert told(found)["ann"] == (
        "UNRELEASED_TASKS",
        ["is waiting for active 0_0, owned by bob (client-bob)"],
    )
    assert told(found)["bob"][0] == "UNREVOKED_TASKS"


def test_members_that_are_away_or_behind_or_of_another_topology_are_told_as_such() -> None:
    away = member("ann", -2, having("0_0"), having("0_0"), owes=having())
    behind = member("bob", 4, having("0_1"), having("0_1"), owes=having(), topology_epoch=2)
    found = told(group(away, behind))
    assert found["ann"] == (
        "AWAY", ["has left temporarily; its tasks stay assigned to it until its session expires"],
    )  # fmt: skip
    assert found["bob"] == (
        "STABLE",
        ["is at epoch 4; the target assignment has epoch 5", "runs topology epoch 2, the group has epoch 0"],
    )


def test_who_runs_an_older_topology_is_stale() -> None:
    found = group(member("ann", 5, having("0_0"), having("0_0")), epoch=5)
    assert told(found._replace(topology=Topology((Subtopology("0", ("t",)),), epoch=1)))["ann"] == (
        "STABLE", ["is stale: runs topology epoch 0, the group has epoch 1"],
    )  # fmt: skip


def test_assignments_are_spelled_as_by_kafkas_tool() -> None:
    found = having("10_0 9_1 9_0", standby="9_2")
    assert format_assignment(found) == "ACTIVE: 9:[0,1]; 10:[0]; STANDBY: 9:[2];"
    assert format_assignment(found, "TARGET-") == "TARGET-ACTIVE: 9:[0,1]; 10:[0]; TARGET-STANDBY: 9:[2];"
    assert format_assignment(Assignment()) == ""


def test_a_group_whose_topics_do_not_fit_says_so() -> None:
    found = group()._replace(state="NotReady")
    assert notes(DescribedStreams(found, [], ())) == [
        "Warning: Streams group 'g' is not ready: its topics are incorrectly partitioned, or its first "
        "assignment is delayed."
    ]


def node(name: str, kind: NodeKind, *successors: str, **more: object) -> TopologyNode:
    fields = {"source_topics": (), "sink_topic": None, "stores": (), "successors": successors} | more
    return TopologyNode(name, kind, **fields)  # type: ignore[arg-type]


def test_processors_stand_under_those_that_feed_them() -> None:
    """Once each, where the broker knows them; a cycle of none is no endless tree."""
    nodes = (
        node("SOURCE-0", NodeKind.SOURCE, "MAP-1", "PEEK-2", source_topics=("u", "t")),
        node("MAP-1", NodeKind.PROCESSOR, "SINK-3"),
        node("PEEK-2", NodeKind.PROCESSOR, "SINK-3", stores=("counts",)),
        node("SINK-3", NodeKind.SINK, sink_topic="out"),
    )
    world = GlobalStore(
        node("G-0", NodeKind.SOURCE, "G-1", source_topics=("g",)),
        node("G-1", NodeKind.PROCESSOR, stores=("all",)),
    )
    found = group()._replace(
        topology=Topology(
            (
                Subtopology("10", repartition_source_topics=(InternalTopic("r", 0, 3),)),
                Subtopology("9", ("t",), ("r",)),
            ),
            epoch=2,
        ),
        description=TopologyDescription((SubtopologyNodes("9", nodes),), (world,)),
    )
    assert tree_lines(found) == [
        "g (topology epoch 2)",
        "├─ subtopology 9",
        "│  ├─ reads t",
        "│  ├─ writes r -> 10",
        "│  └─ processors",
        "│     └─ SOURCE-0 (topics: t, u)",
        "│        ├─ MAP-1",
        "│        │  └─ SINK-3 (topic: out)",
        "│        └─ PEEK-2 (stores: counts)",
        "│           └─ SINK-3 (see above)",
        "├─ subtopology 10",
        "│  └─ reads r (replication factor 3) <- 9",
        "└─ global store",
        "   └─ G-0 (topics: g)",
        "      └─ G-1 (stores: all)",
    ]
    told_ = document(DescribedStreams(found, [], ()), "topology")["topology"]
    assert [each["name"] for each in told_["processors"]["9"]] == ["SOURCE-0", "MAP-1", "PEEK-2", "SINK-3"]
    assert told_["global_stores"][0]["processor"]["stores"] == ["all"]
    assert tree_lines(found._replace(topology=None)) == ["g: no member has sent a topology yet"]
