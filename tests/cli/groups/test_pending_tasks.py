"""Who waits for whom in a streams group, and how topologies are drawn, from descriptions alone."""

from __future__ import annotations

from konvene.cli.groups.pending_tasks import as_kafka, sentences, standings, stuck
from konvene.cli.groups.streams import DescribedStreams, document, notes
from konvene.cli.groups.topology import drawn
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
        name, f"client-{name}", "/h", epoch, topology_epoch, process or name, has, target, owes=owes
    )


def group(*members: StreamsMemberDescription, epoch: int = 5) -> StreamsGroupDescription:
    topology = Topology((Subtopology("0", ("t",)),))
    return StreamsGroupDescription("g", "Reconciling", Node(1, "h", 9092), epoch, epoch, topology, members)


def told(found: StreamsGroupDescription) -> dict[str, tuple[str, list[str]]]:
    return {s.member.member_id: (s.state, sentences(s, found)) for s in standings(found)}


def test_what_a_member_owes_holds_up_who_wants_it() -> None:
    """It is not in what the member has any more."""
    found = group(
        member("bob", 5, having(), having("0_1"), owes=having()),
        member("ann", 4, having("0_0"), having("0_0"), owes=having("0_1")),
    )
    assert told(found) == {
        "ann": ("UNREVOKED_TASKS", ["has not released active 0_1, for which bob (client-bob) waits"]),
        "bob": ("UNRELEASED_TASKS", ["waits for active 0_1, which ann (client-ann) has"]),
    }
    assert [s.member.member_id for s in standings(found)] == ["ann", "bob"]
    assert stuck(found) == [
        "ann (client client-ann at /h) has not released active 0_1, for which bob (client-bob) waits"
    ]


def test_where_the_broker_does_not_tell_those_are_named_that_may_be_meant() -> None:
    found = group(member("bob", 5, having(), having("0_1")), member("ann", 4, having("0_0"), having("0_0")))
    assert told(found)["bob"][1] == [
        "waits for active 0_1, which who is behind may have to release yet: ann (client-ann)"
    ]
    assert stuck(found) == [
        "ann (client client-ann at /h) is at epoch 4, and may have yet to release what others wait for: "
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
        "waits for standby 0_1, which b2 (client-b2) has",
        "is given standby 0_0 with its next heartbeat: nobody is in the way",
    ]
    assert told(found)["b2"] == (
        "UNREVOKED_TASKS", ["has not released warmup 0_1, for which b1 (client-b1) waits"],
    )  # fmt: skip


def test_who_is_promoted_has_nothing_to_release() -> None:
    """A standby that becomes active keeps its state; an active task that becomes a standby is released."""
    found = group(
        member("ann", 5, having(standby="0_0"), having("0_0"), owes=having()),
        member("bob", 4, having("0_0"), having(standby="0_0"), owes=having()),
    )
    assert told(found)["ann"] == ("UNRELEASED_TASKS", ["waits for active 0_0, which bob (client-bob) has"])
    assert told(found)["bob"][0] == "UNREVOKED_TASKS"


def test_members_that_are_away_or_behind_or_of_another_topology_are_told_as_such() -> None:
    away = member("ann", -2, having("0_0"), having("0_0"), owes=having())
    behind = member("bob", 4, having("0_1"), having("0_1"), owes=having(), topology_epoch=2)
    found = told(group(away, behind))
    assert found["ann"] == (
        "AWAY", ["has left for a while; what it has is kept for it until its session is over"],
    )  # fmt: skip
    assert found["bob"] == (
        "STABLE",
        ["has not come to epoch 5 yet: it is at 4", "runs topology 2, and the group's is 0"],
    )


def test_who_runs_an_older_topology_is_stale() -> None:
    found = group(member("ann", 5, having("0_0"), having("0_0")), epoch=5)
    assert told(found._replace(topology=Topology((Subtopology("0", ("t",)),), epoch=1)))["ann"] == (
        "STABLE", ["is stale: it runs topology 0, and the group's is 1"],
    )  # fmt: skip


def test_assignments_are_spelled_as_by_kafkas_tool() -> None:
    found = having("10_0 9_1 9_0", standby="9_2")
    assert as_kafka(found) == "ACTIVE: 9:[0,1]; 10:[0]; STANDBY: 9:[2];"
    assert as_kafka(found, "TARGET-") == "TARGET-ACTIVE: 9:[0,1]; 10:[0]; TARGET-STANDBY: 9:[2];"
    assert as_kafka(Assignment()) == ""


def test_a_group_whose_topics_do_not_fit_says_so() -> None:
    found = group()._replace(state="NotReady")
    assert notes(DescribedStreams(found, [], ())) == [
        "Warning: Streams group 'g' is not ready: its topics do not fit each other, or its first assignment "
        "has yet to come."
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
    assert drawn(found) == [
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
    assert drawn(found._replace(topology=None)) == ["g: no member has told its topology yet"]
