"""Pending revocations in streams groups, and the printed topology, computed from descriptions."""

from __future__ import annotations

from konvene.cli.groups.streams import DescribedStreams, document, notes
from konvene.cli.groups.topology import tree_lines
from konvene.client.admin.pending_tasks import (
    blocking_members,
    describe_progress,
    format_assignment,
    member_progress,
)
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


def assignment(active: str = "", standby: str = "", warmup: str = "") -> Assignment:
    roles = (active, standby, warmup)
    return Assignment(*(frozenset(Task(t[: t.index("_")], int(t[-1])) for t in r.split()) for r in roles))


def member(
    name: str, epoch: int, current: Assignment, target: Assignment, *,
    pending_revocation: Assignment | None = None, process_id: str = "", topology_epoch: int = 0,
) -> StreamsMemberDescription:  # fmt: skip
    return StreamsMemberDescription(
        name,
        f"client-{name}",
        "/h",
        epoch,
        topology_epoch,
        process_id or name,
        current,
        target,
        pending_revocation=pending_revocation,
    )


def group(*members: StreamsMemberDescription, epoch: int = 5) -> StreamsGroupDescription:
    topology = Topology((Subtopology("0", ("t",)),))
    return StreamsGroupDescription("g", "Reconciling", Node(1, "h", 9092), epoch, epoch, topology, members)


def progress_by_member(described: StreamsGroupDescription) -> dict[str, tuple[str, list[str]]]:
    return {
        s.member.member_id: (s.state, describe_progress(s, described)) for s in member_progress(described)
    }


def test_pending_revocation_blocks_the_next_owner() -> None:
    """The described assignment does not contain the task any more."""
    described = group(
        member("bob", 5, assignment(), assignment("0_1"), pending_revocation=assignment()),
        member("ann", 4, assignment("0_0"), assignment("0_0"), pending_revocation=assignment("0_1")),
    )
    assert progress_by_member(described) == {
        "ann": (
            "UNREVOKED_TASKS",
            ["still owns active 0_1 (revocation pending); bob (client-bob) is waiting for it"],
        ),
        "bob": ("UNRELEASED_TASKS", ["is waiting for active 0_1, owned by ann (client-ann)"]),
    }
    assert [s.member.member_id for s in member_progress(described)] == ["ann", "bob"]
    assert blocking_members(described) == [
        "ann (client client-ann at /h) still owns active 0_1 (revocation pending); "
        "bob (client-bob) is waiting for it"
    ]


def test_without_the_extension_members_that_are_behind_are_named() -> None:
    described = group(
        member("bob", 5, assignment(), assignment("0_1")),
        member("ann", 4, assignment("0_0"), assignment("0_0")),
    )
    assert progress_by_member(described)["bob"][1] == [
        "is waiting for active 0_1; a member that is behind may still own them: ann (client-ann)"
    ]
    assert blocking_members(described) == [
        "ann (client client-ann at /h) is at epoch 4 and may still own tasks that others are waiting for: "
        "active 0_1"
    ]


def test_standby_waits_only_for_members_of_its_process() -> None:
    """An active task in another process does not block a standby."""
    described = group(
        member(
            "a1", 5, assignment("0_0"), assignment("0_0"), pending_revocation=assignment(), process_id="a"
        ),
        member(
            "b1",
            5,
            assignment(),
            assignment(standby="0_0 0_1"),
            pending_revocation=assignment(),
            process_id="b",
        ),
        member(
            "b2", 5, assignment(), assignment(), pending_revocation=assignment(warmup="0_1"), process_id="b"
        ),
    )
    assert progress_by_member(described)["b1"][1] == [
        "is waiting for standby 0_1, owned by b2 (client-b2)",
        "gets standby 0_0 with its next heartbeat: no other member owns that",
    ]
    assert progress_by_member(described)["b2"] == (
        "UNREVOKED_TASKS", ["still owns warmup 0_1 (revocation pending); b1 (client-b1) is waiting for it"],
    )  # fmt: skip


def test_promoted_standby_releases_nothing() -> None:
    """A standby that becomes active keeps its state; an active task that becomes a standby is released."""
    described = group(
        member("ann", 5, assignment(standby="0_0"), assignment("0_0"), pending_revocation=assignment()),
        member("bob", 4, assignment("0_0"), assignment(standby="0_0"), pending_revocation=assignment()),
    )
    assert progress_by_member(described)["ann"] == (
        "UNRELEASED_TASKS",
        ["is waiting for active 0_0, owned by bob (client-bob)"],
    )
    assert progress_by_member(described)["bob"][0] == "UNREVOKED_TASKS"


def test_members_away_behind_or_of_another_topology_are_described() -> None:
    away = member("ann", -2, assignment("0_0"), assignment("0_0"), pending_revocation=assignment())
    behind = member(
        "bob", 4, assignment("0_1"), assignment("0_1"), pending_revocation=assignment(), topology_epoch=2
    )
    progress = progress_by_member(group(away, behind))
    assert progress["ann"] == (
        "AWAY", ["has left temporarily; its tasks stay assigned to it until its session expires"],
    )  # fmt: skip
    assert progress["bob"] == (
        "STABLE",
        ["is at epoch 4; the target assignment has epoch 5", "runs topology epoch 2, the group has epoch 0"],
    )


def test_member_of_an_older_topology_is_stale() -> None:
    described = group(member("ann", 5, assignment("0_0"), assignment("0_0")), epoch=5)
    topology = Topology((Subtopology("0", ("t",)),), epoch=1)
    assert progress_by_member(described._replace(topology=topology))["ann"] == (
        "STABLE", ["is stale: runs topology epoch 0, the group has epoch 1"],
    )  # fmt: skip


def test_assignments_are_formatted_as_by_kafkas_tool() -> None:
    tasks = assignment("10_0 9_1 9_0", standby="9_2")
    assert format_assignment(tasks) == "ACTIVE: 9:[0,1]; 10:[0]; STANDBY: 9:[2];"
    assert format_assignment(tasks, "TARGET-") == "TARGET-ACTIVE: 9:[0,1]; 10:[0]; TARGET-STANDBY: 9:[2];"
    assert format_assignment(Assignment()) == ""


def test_not_ready_group_has_a_warning() -> None:
    described = group()._replace(state="NotReady")
    assert notes(DescribedStreams(described, [], ())) == [
        "Warning: Streams group 'g' is not ready: its topics are incorrectly partitioned, or its first "
        "assignment is delayed."
    ]


def node(name: str, kind: NodeKind, *successors: str, **overrides: object) -> TopologyNode:
    fields = {"source_topics": (), "sink_topic": None, "stores": (), "successors": successors} | overrides
    return TopologyNode(name, kind, **fields)  # type: ignore[arg-type]


def test_processors_are_printed_below_their_predecessors() -> None:
    """Each processor is expanded once."""
    nodes = (
        node("SOURCE-0", NodeKind.SOURCE, "MAP-1", "PEEK-2", source_topics=("u", "t")),
        node("MAP-1", NodeKind.PROCESSOR, "SINK-3"),
        node("PEEK-2", NodeKind.PROCESSOR, "SINK-3", stores=("counts",)),
        node("SINK-3", NodeKind.SINK, sink_topic="out"),
    )
    global_store = GlobalStore(
        node("G-0", NodeKind.SOURCE, "G-1", source_topics=("g",)),
        node("G-1", NodeKind.PROCESSOR, stores=("all",)),
    )
    described = group()._replace(
        topology=Topology(
            (
                Subtopology("10", repartition_source_topics=(InternalTopic("r", 0, 3),)),
                Subtopology("9", ("t",), ("r",)),
            ),
            epoch=2,
        ),
        description=TopologyDescription((SubtopologyNodes("9", nodes),), (global_store,)),
    )
    assert tree_lines(described) == [
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
    topology = document(DescribedStreams(described, [], ()), "topology")["topology"]
    assert [processor["name"] for processor in topology["processors"]["9"]] == [
        "SOURCE-0",
        "MAP-1",
        "PEEK-2",
        "SINK-3",
    ]
    assert topology["global_stores"][0]["processor"]["stores"] == ["all"]
    assert tree_lines(described._replace(topology=None)) == ["g: no member has sent a topology yet"]
