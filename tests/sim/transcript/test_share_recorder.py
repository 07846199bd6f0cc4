"""The recorder of share groups writes a run as a scenario of the same requests and violation."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.codec.uuid import Uuid
from konvene.groups.share import offsets
from konvene.groups.share.group import ShareGroup
from konvene.groups.share.work import DeletedTopics, StateDeleted, StateInitialized
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate
from konvene.sim.runs.shrink import shrink
from konvene.sim.transcript.consumer_recorder import TopicIds
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.transcript.share_recorder import heartbeat, state
from konvene.sim.transcript.vocabulary import Client


def heartbeat_request(**fields: Any) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="g1", member_id="c1.1", **fields)


@pytest.mark.parametrize(
    "request_",
    [
        heartbeat_request(member_epoch=0, subscribed_topic_names=("orders",)),
        heartbeat_request(member_epoch=0, subscribed_topic_names=("extra", "orders"), rack_id="r 1"),
        heartbeat_request(member_epoch=0, subscribed_topic_names=()),
        heartbeat_request(member_epoch=7),
        heartbeat_request(member_epoch=7, subscribed_topic_names=("orders",)),
        heartbeat_request(member_epoch=-1),
        heartbeat_request(member_epoch=-3),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_member", [False, True])
def test_recorded_heartbeat_is_the_same_request(
    request_: ShareGroupHeartbeatRequest, is_member: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client has remembered."""
    memory: dict[str, Any] = {"member_id": "c1.1", "generation": 7, "group": "g1"} if is_member else {}
    command = heartbeat(Client("c1", **memory), request_, 1)
    assert command is not None
    requests: list[Any] = []
    scenario = Scenario()
    scenario.clients["c1"] = Client("c1", **memory)
    monkeypatch.setattr(scenario, "ask", lambda client, request, options, version: requests.append(request))
    scenario.run([" ".join(command)])
    assert requests == [request_]


def test_heartbeat_without_a_command_is_not_recorded() -> None:
    """A topic name that is empty or has a blank; and a join without a subscription."""
    for names in (("",), ("a b",)):
        assert (
            heartbeat(Client("c1"), heartbeat_request(member_epoch=7, subscribed_topic_names=names), 1)
            is None
        )
    assert heartbeat(Client("c1"), heartbeat_request(member_epoch=0), 1) is None


def test_recorded_results_are_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of share state requests, for topics that exist and for a deleted one."""
    orders, deleted = (Uuid(name.ljust(16, b"-")) for name in (b"orders", b"extra-3"))
    keys = [
        SharePartitionKey("g1", topic, index) for topic, index in ((orders, 0), (orders, 1), (deleted, 0))
    ]
    results = [
        StateInitialized("g1", (keys[0], keys[2]), (keys[1],)),
        StateInitialized("g1", (), ()),
        StateDeleted("g1", (orders, deleted)),
        StateDeleted("g1", ()),
        DeletedTopics(frozenset((deleted,))),
    ]
    ids = TopicIds(Topics([Topic("orders", orders, 2)]))
    scenario, received = Scenario(), list[Any]()
    monkeypatch.setattr(scenario.life, "inform", received.append)
    for result in results:
        scenario.run(["topic orders partitions=2", " ".join(state(ids, result) or ())])
    assert received == results


def test_recorded_run_can_be_played() -> None:
    """Every recorded line is a command, and the scenario violates no invariant, as the run."""
    heartbeats = epochs = initialized = 0
    for seed in (0, 2, 3, 8):
        found: list[Recorder] = []
        with quiet():
            assert simulate(Run(seed, ("share",), 400), record=found.append).violation is None
        commands = [line for line in found[0].lines if not line.startswith("#")]
        heartbeats += sum(line.startswith("share-heartbeat") for line in commands)
        scenario = Scenario()
        scenario.run(commands)
        assert scenario.broken is None, (seed, scenario.broken)
        groups = [g for g in scenario.life.shard.groups.values() if isinstance(g, ShareGroup)]
        epochs += sum(group.epoch for group in groups)
        initialized += sum(len(group.state_topics.initialized) for group in groups)
    assert heartbeats > 100
    assert epochs > 20
    assert initialized > 3


@pytest.mark.deep
def test_violation_in_share_groups_shrinks_to_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator alters the offsets of a group with members: one member, few lines."""
    sound: Any = offsets._to_alter
    monkeypatch.setattr(
        offsets, "_to_alter", lambda groups, name: groups[name] if name in groups else sound(groups, name)
    )
    sets = (("hostile", "0"), ("fault.offsets_altered", "9"))
    with quiet():
        run = next(
            run
            for seed in range(20)
            if simulate(run := Run(seed, ("share",), 600, sets=sets)).violation is not None
        )
        shrunk = shrink(run)
    assert shrunk.invariant == "OnlyEmptyGroupsAreAltered"
    assert shrunk.scenario is not None
    commands = shrunk.scenario.partition("\n----\n")[0].splitlines()
    assert sum(line.startswith("share-heartbeat") for line in commands) == 1
    assert sum(line.startswith("share-alter") for line in commands) == 1
    assert len(commands) < 15
    assert shrunk.scenario.rstrip().splitlines()[-1].startswith("broken OnlyEmptyGroupsAreAltered")
