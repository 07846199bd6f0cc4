"""The recorder of consumer groups writes a run as a scenario of the same requests and violation."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.current_assignment import NO_OWNER
from konvene.groups.consumer.group import ConsumerGroup
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.shard.image import Topic, Topics
from konvene.sim.runs.parallel import quiet
from konvene.sim.runs.run import Run, simulate
from konvene.sim.runs.shrink import shrink
from konvene.sim.transcript.consumer_recorder import TopicIds, heartbeat
from konvene.sim.transcript.recorder import Recorder
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.transcript.vocabulary import Client

ORDERS, OLD, NEW, UNKNOWN = (Uuid(n.ljust(16, b"-")) for n in (b"orders", b"extra", b"extra-1", b"nowhere"))
TOPICS = Topics([Topic("orders", ORDERS, 6), Topic("extra", OLD, 2)])


def owned(*partitions: int, topic: Uuid = ORDERS) -> TopicPartitions:
    return TopicPartitions(topic_id=topic, partitions=partitions)


def heartbeat_request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g1", member_id="c1.1", **fields)


JOIN = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("orders",), "topic_partitions": ()}
REQUESTS = [
    heartbeat_request(member_epoch=0, **JOIN),
    heartbeat_request(member_epoch=0, **JOIN | {"rebalance_timeout_ms": -1, "topic_partitions": None}),
    heartbeat_request(
        member_epoch=0, **JOIN | {"subscribed_topic_names": ("", "orders", "orders"), "rack_id": "r 1"}
    ),
    heartbeat_request(member_epoch=0, **JOIN | {"subscribed_topic_names": None}),
    heartbeat_request(
        member_epoch=0, **JOIN | {"subscribed_topic_names": None, "subscribed_topic_regex": "a=b, .*"}
    ),
    heartbeat_request(member_epoch=0, **JOIN | {"subscribed_topic_names": (), "subscribed_topic_regex": ""}),
    heartbeat_request(member_epoch=0, instance_id="c1", server_assignor="uniform", **JOIN),
    heartbeat_request(member_epoch=7),
    heartbeat_request(member_epoch=7, instance_id=""),
    heartbeat_request(member_epoch=7, topic_partitions=()),
    heartbeat_request(member_epoch=7, topic_partitions=(owned(0, 1, 2, 5), owned(1, topic=NEW))),
    heartbeat_request(
        member_epoch=7, topic_partitions=(owned(3, 1, 0, 0), owned(0, topic=OLD), owned(9, topic=UNKNOWN))
    ),
    heartbeat_request(member_epoch=7, subscribed_topic_names=("orders", "extra"), rebalance_timeout_ms=5),
    heartbeat_request(member_epoch=7, subscribed_topic_names=(), subscribed_topic_regex=""),
    heartbeat_request(member_epoch=-1),
    heartbeat_request(member_epoch=-2, instance_id="c1"),
    heartbeat_request(member_epoch=-3),
    ConsumerGroupHeartbeatRequest(group_id="g1", member_epoch=0, **JOIN),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("is_member", [False, True])
def test_recorded_heartbeat_is_the_same_request(
    request_: ConsumerGroupHeartbeatRequest, is_member: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the client has remembered, and with topics recreated since."""
    ids = TopicIds(TOPICS)
    assert ids.topic_seen("extra", NEW)
    assert not ids.topic_seen("extra", NEW)
    memory = {"group": "g1", "member_id": "c1.1", "instance": "c1", "generation": 7} if is_member else {}
    command = heartbeat(ids, Client("c1", **memory), request_, 1)
    assert command is not None
    requests: list[Any] = []
    scenario = Scenario()
    scenario.run(["topic extra partitions=2", "topic extra recreate partitions=2"])
    scenario.clients["c1"] = Client("c1", **memory)
    monkeypatch.setattr(scenario, "ask", lambda client, request, options, version: requests.append(request))
    scenario.run([" ".join(command)])
    assert requests == [request_]


def test_heartbeat_without_a_command_is_not_recorded() -> None:
    """A negative partition, no partition, and a topic id that is not text."""
    ids = TopicIds(TOPICS)
    odd = Uuid(b"\xff" * 16)
    for partitions in (owned(-1), owned(), owned(0, topic=odd)):
        assert (
            heartbeat(ids, Client("c"), heartbeat_request(member_epoch=7, topic_partitions=(partitions,)), 1)
            is None
        )


def recorded(seed: int, kind: str) -> list[str]:
    found: list[Recorder] = []
    with quiet():
        assert simulate(Run(seed, (kind,), 400), record=found.append).violation is None
    return found[0].lines


@pytest.mark.parametrize("kind", ["consumer", "consumer-static", "migration"])
def test_recorded_run_can_be_played(kind: str) -> None:
    """Every recorded line is a command, and the scenario violates no invariant, as the run."""
    heartbeats, epochs = 0, 0
    for seed in (0, 3):
        commands = [line for line in recorded(seed, kind) if not line.startswith("#")]
        heartbeats += sum(line.startswith("consumer-heartbeat") for line in commands)
        scenario = Scenario()
        scenario.run(commands)
        assert scenario.broken is None, (seed, scenario.broken)
        epochs += sum(getattr(group, "epoch", 0) for group in scenario.life.shard.groups.values())
    assert heartbeats > 50
    assert epochs > 4


def test_violation_in_consumer_groups_shrinks_to_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is assigned before its owner has revoked it: two members, and few lines."""
    monkeypatch.setattr(ConsumerGroup, "owner_epoch", lambda group, topic, partition: NO_OWNER)
    run = next(
        run for seed in range(20) if simulate(run := Run(seed, ("consumer",), 1_000)).violation is not None
    )
    shrunk = shrink(run)
    assert shrunk.invariant == "PartitionsHaveOneOwner"
    assert shrunk.scenario is not None
    commands = shrunk.scenario.partition("\n----\n")[0].splitlines()
    heartbeats = [line for line in commands if line.startswith("consumer-heartbeat")]
    assert 2 <= len(heartbeats) <= 6
    assert len(commands) < 20
    assert shrunk.scenario.rstrip().splitlines()[-1].startswith("broken PartitionsHaveOneOwner")
