"""What a run of consumer groups is written down as can be played: it says the same, and breaks the same."""

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

ORDERS, OLD, NEW, NOWHERE = (Uuid(n.ljust(16, b"-")) for n in (b"orders", b"extra", b"extra-1", b"nowhere"))
TOPICS = Topics([Topic("orders", ORDERS, 6), Topic("extra", OLD, 2)])


def owns(*partitions: int, topic: Uuid = ORDERS) -> TopicPartitions:
    return TopicPartitions(topic_id=topic, partitions=partitions)


def said(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g1", member_id="c1.1", **fields)


JOIN = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("orders",), "topic_partitions": ()}
REQUESTS = [
    said(member_epoch=0, **JOIN),
    said(member_epoch=0, **JOIN | {"rebalance_timeout_ms": -1, "topic_partitions": None}),
    said(member_epoch=0, **JOIN | {"subscribed_topic_names": ("", "orders", "orders"), "rack_id": "r 1"}),
    said(member_epoch=0, **JOIN | {"subscribed_topic_names": None}),
    said(member_epoch=0, **JOIN | {"subscribed_topic_names": None, "subscribed_topic_regex": "a=b, .*"}),
    said(member_epoch=0, **JOIN | {"subscribed_topic_names": (), "subscribed_topic_regex": ""}),
    said(member_epoch=0, instance_id="c1", server_assignor="uniform", **JOIN),
    said(member_epoch=7),
    said(member_epoch=7, instance_id=""),
    said(member_epoch=7, topic_partitions=()),
    said(member_epoch=7, topic_partitions=(owns(0, 1, 2, 5), owns(1, topic=NEW))),
    said(member_epoch=7, topic_partitions=(owns(3, 1, 0, 0), owns(0, topic=OLD), owns(9, topic=NOWHERE))),
    said(member_epoch=7, subscribed_topic_names=("orders", "extra"), rebalance_timeout_ms=5),
    said(member_epoch=7, subscribed_topic_names=(), subscribed_topic_regex=""),
    said(member_epoch=-1),
    said(member_epoch=-2, instance_id="c1"),
    said(member_epoch=-3),
    ConsumerGroupHeartbeatRequest(group_id="g1", member_epoch=0, **JOIN),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize("knows", [False, True])
def test_a_heartbeat_in_words_is_the_same_heartbeat(
    request_: ConsumerGroupHeartbeatRequest, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its client remembers, and with topics that were made anew since."""
    ids = TopicIds(TOPICS)
    assert ids.topic_seen("extra", NEW)
    assert not ids.topic_seen("extra", NEW)
    memory = {"group": "g1", "member_id": "c1.1", "instance": "c1", "generation": 7} if knows else {}
    words = heartbeat(ids, Client("c1", **memory), request_, 1)
    assert words is not None
    heard: list[Any] = []
    scenario = Scenario()
    scenario.run(["topic extra partitions=2", "topic extra recreate partitions=2"])
    scenario.clients["c1"] = Client("c1", **memory)
    monkeypatch.setattr(scenario, "ask", lambda who, request, o, version: heard.append(request))
    scenario.run([" ".join(words)])
    assert heard == [request_]


def test_what_there_are_no_words_for_is_a_remark() -> None:
    """A negative partition, a topic whose id is no text."""
    ids = TopicIds(TOPICS)
    odd = Uuid(b"\xff" * 16)
    for partitions in (owns(-1), owns(), owns(0, topic=odd)):
        assert heartbeat(ids, Client("c"), said(member_epoch=7, topic_partitions=(partitions,)), 1) is None


def recorded(seed: int, kind: str) -> list[str]:
    found: list[Recorder] = []
    with quiet():
        assert simulate(Run(seed, (kind,), 400), record=found.append).violation is None
    return found[0].lines


@pytest.mark.parametrize("kind", ["consumer", "consumer-static", "migration"])
def test_a_run_is_played_from_its_lines(kind: str) -> None:
    """Every line is a command, and none of them violates an invariant that the run has kept."""
    beats, epochs = 0, 0
    for seed in (0, 3):
        commands = [line for line in recorded(seed, kind) if not line.startswith("#")]
        beats += sum(line.startswith("consumer-heartbeat") for line in commands)
        scenario = Scenario()
        scenario.run(commands)
        assert scenario.broken is None, (seed, scenario.broken)
        epochs += sum(getattr(group, "epoch", 0) for group in scenario.life.shard.groups.values())
    assert beats > 50
    assert epochs > 4


def test_a_bug_in_consumer_groups_shrinks_to_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is given to a member before another has given it up: two members, and few lines."""
    monkeypatch.setattr(ConsumerGroup, "owner_epoch", lambda group, topic, partition: NO_OWNER)
    run = next(
        run for seed in range(20) if simulate(run := Run(seed, ("consumer",), 1_000)).violation is not None
    )
    shrunk = shrink(run)
    assert shrunk.invariant == "PartitionsHaveOneOwner"
    assert shrunk.scenario is not None
    commands = shrunk.scenario.partition("\n----\n")[0].splitlines()
    beats = [line for line in commands if line.startswith("consumer-heartbeat")]
    assert 2 <= len(beats) <= 6
    assert len(commands) < 20
    assert shrunk.scenario.rstrip().splitlines()[-1].startswith("broken PartitionsHaveOneOwner")
