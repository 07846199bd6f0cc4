"""The recorder of streams groups writes a run as a scenario of the same requests and violation."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.groups.streams.group import StreamsGroup
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)
from konvene.sim.members.streams.topologies import NAMES, topology_of
from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate
from konvene.sim.runs.shrink import shrink
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.transcript.streams_recorder import heartbeat
from konvene.sim.transcript.vocabulary import Client


def heartbeat_request(**fields: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id="g1", member_id="c1.1", **fields)


def without_settings(topology: Topology) -> Topology:
    """Return the topology without the configs of internal topics, which commands do not have."""
    return topology.replace(
        subtopologies=tuple(
            each.replace(
                state_changelog_topics=tuple(t.replace(topic_configs=()) for t in each.state_changelog_topics)
            )
            for each in topology.subtopologies
        )
    )


def tasks(*partitions: int, subtopology: str = "0") -> TaskIds:
    return TaskIds(subtopology_id=subtopology, partitions=partitions)


NO_TASKS: dict[str, Any] = {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
PLAIN = Topology(epoch=0, subtopologies=(Subtopology(subtopology_id="0", source_topics=("orders",)),))
JOIN: dict[str, Any] = {
    "member_epoch": 0, "rebalance_timeout_ms": 30_000, "topology": PLAIN, "process_id": "p 1", **NO_TASKS,
}  # fmt: skip
AT = TaskOffset(subtopology_id="1", partition=3, offset=17)
REQUESTS = [
    *(
        heartbeat_request(**JOIN | {"topology": without_settings(topology_of(name, "g1").to_message())})
        for name in NAMES
    ),
    heartbeat_request(
        **JOIN | {"topology": PLAIN.replace(epoch=5), "rebalance_timeout_ms": 7, "rack_id": "r 1"}
    ),
    heartbeat_request(
        **JOIN, instance_id="c1", user_endpoint=Endpoint(host="p1", port=80), endpoint_information_epoch=-1
    ),
    heartbeat_request(
        **JOIN, client_tags=(KeyValue(key="zone", value="a"),), task_offsets=(AT,), task_end_offsets=()
    ),
    heartbeat_request(member_epoch=0, process_id="c1"),
    heartbeat_request(member_epoch=7),
    heartbeat_request(member_epoch=7, **NO_TASKS, shutdown_application=True),
    heartbeat_request(
        member_epoch=7, **NO_TASKS | {"active_tasks": (tasks(0, 1, 2, 5), tasks(3, subtopology="1"))}
    ),
    heartbeat_request(member_epoch=7, **NO_TASKS | {"standby_tasks": (tasks(3),), "warmup_tasks": None}),
    heartbeat_request(member_epoch=-1),
    heartbeat_request(member_epoch=-2, instance_id="c1"),
    heartbeat_request(member_epoch=-3),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("is_member", [False, True])
def test_recorded_heartbeat_is_the_same_request(
    request_: StreamsGroupHeartbeatRequest, is_member: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client has remembered."""
    memory: dict[str, Any] = {"endpoint_epoch": 4, "generation": 7, "group": "g1", "instance": "c1"}
    memory = {"member_id": "c1.1", **memory} if is_member else {}
    command = heartbeat(Client("c1", **memory), request_, 1)
    assert command is not None
    requests: list[Any] = []
    scenario = Scenario()
    scenario.clients["c1"] = Client("c1", **memory)
    monkeypatch.setattr(scenario, "ask", lambda client, request, options, version: requests.append(request))
    scenario.run([" ".join(command)])
    assert requests == [request_]


@pytest.mark.parametrize("request_", [
    heartbeat_request(**JOIN | {"topology": Topology(epoch=0, subtopologies=())}),
    heartbeat_request(**JOIN | {"topology": PLAIN.replace(epoch=-1)}),
    heartbeat_request(member_epoch=7, **NO_TASKS | {"active_tasks": (tasks(-1),)}),
    heartbeat_request(member_epoch=7, **NO_TASKS | {"active_tasks": (tasks(),)}),
    heartbeat_request(member_epoch=7, task_offsets=(AT.replace(partition=-1),)),
    heartbeat_request(member_epoch=7, instance_id=""),
], ids=str)  # fmt: skip
def test_heartbeat_without_a_command_is_not_recorded(request_: StreamsGroupHeartbeatRequest) -> None:
    """An empty topology, one with a negative epoch, no or negative partitions, and an empty instance id."""
    assert heartbeat(Client("c1"), request_, 1) is None


def test_recorded_run_can_be_played() -> None:
    """Every recorded line is a command, and the scenario violates no invariant, as the run."""
    heartbeats = epochs = 0
    for seed in (0, 3, 6):
        found: list[Recorder] = []
        with quiet():
            assert simulate(Run(seed, ("streams",), 400), record=found.append).violation is None
        commands = [line for line in found[0].lines if not line.startswith("#")]
        heartbeats += sum(line.startswith("streams-heartbeat") for line in commands)
        scenario = Scenario()
        scenario.run(commands)
        assert scenario.broken is None, (seed, scenario.broken)
        epochs += sum(getattr(group, "epoch", 0) for group in scenario.life.shard.groups.values())
    assert heartbeats > 50
    assert epochs > 4


@pytest.mark.deep
def test_violation_in_streams_groups_shrinks_to_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks count as released at once, so that members get tasks of others: two members, few lines."""
    monkeypatch.setattr(StreamsGroup, "processes", lambda group, role, subtopology, partition: frozenset())
    sets = (("hostile", "0"), ("topology", "stateless"))
    with quiet():
        run = next(
            run
            for seed in range(20)
            if simulate(run := Run(seed, ("streams",), 600, sets=sets)).violation is not None
        )
        shrunk = shrink(run)
    assert shrunk.invariant == "ActiveTasksHaveOneOwner"
    assert shrunk.scenario is not None
    commands = shrunk.scenario.partition("\n----\n")[0].splitlines()
    heartbeats = [line for line in commands if line.startswith("streams-heartbeat")]
    assert 2 <= len(heartbeats) <= 6
    assert len(commands) < 20
    assert shrunk.scenario.rstrip().splitlines()[-1].startswith("broken ActiveTasksHaveOneOwner")
