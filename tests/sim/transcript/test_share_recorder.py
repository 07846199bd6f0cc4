"""What a run of share groups is written down as can be played: it says the same, and breaks the same."""

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


def said(**fields: Any) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="g1", member_id="c1.1", **fields)


@pytest.mark.parametrize(
    "request_",
    [
        said(member_epoch=0, subscribed_topic_names=("orders",)),
        said(member_epoch=0, subscribed_topic_names=("extra", "orders"), rack_id="r 1"),
        said(member_epoch=0, subscribed_topic_names=()),
        said(member_epoch=7),
        said(member_epoch=7, subscribed_topic_names=("orders",)),
        said(member_epoch=-1),
        said(member_epoch=-3),
    ],
    ids=str,
)
@pytest.mark.parametrize("knows", [False, True])
def test_a_heartbeat_in_words_is_the_same_heartbeat(
    request_: ShareGroupHeartbeatRequest, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its client remembers."""
    memory: dict[str, Any] = {"member_id": "c1.1", "generation": 7, "group": "g1"} if knows else {}
    words = heartbeat(Client("c1", **memory), request_, 1)
    assert words is not None
    heard: list[Any] = []
    scenario = Scenario()
    scenario.clients["c1"] = Client("c1", **memory)
    monkeypatch.setattr(scenario, "ask", lambda who, request, o, version: heard.append(request))
    scenario.run([" ".join(words)])
    assert heard == [request_]


def test_what_there_are_no_words_for_is_a_remark() -> None:
    """A topic without a letter, one whose name has a blank; and who joins without a word of topics."""
    for names in (("",), ("a b",)):
        assert heartbeat(Client("c1"), said(member_epoch=7, subscribed_topic_names=names), 1) is None
    assert heartbeat(Client("c1"), said(member_epoch=0), 1) is None


def test_news_in_words_are_the_same_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of topics that there are, and of one that is gone."""
    orders, gone = (Uuid(name.ljust(16, b"-")) for name in (b"orders", b"extra-3"))
    keys = [SharePartitionKey("g1", topic, index) for topic, index in ((orders, 0), (orders, 1), (gone, 0))]
    news = [
        StateInitialized("g1", (keys[0], keys[2]), (keys[1],)),
        StateInitialized("g1", (), ()),
        StateDeleted("g1", (orders, gone)),
        StateDeleted("g1", ()),
        DeletedTopics(frozenset((gone,))),
    ]
    ids = TopicIds(Topics([Topic("orders", orders, 2)]))
    scenario, heard = Scenario(), list[Any]()
    monkeypatch.setattr(scenario.life, "inform", heard.append)
    for each in news:
        scenario.run(["topic orders partitions=2", " ".join(state(ids, each) or ())])
    assert heard == news


def test_a_run_is_played_from_its_lines() -> None:
    """Every line is a command, and none of them violates an invariant that the run has kept."""
    beats = epochs = begun = 0
    for seed in (0, 2, 3, 8):
        found: list[Recorder] = []
        with quiet():
            assert simulate(Run(seed, ("share",), 400), record=found.append).violation is None
        commands = [line for line in found[0].lines if not line.startswith("#")]
        beats += sum(line.startswith("share-heartbeat") for line in commands)
        scenario = Scenario()
        scenario.run(commands)
        assert scenario.broken is None, (seed, scenario.broken)
        groups = [g for g in scenario.life.shard.groups.values() if isinstance(g, ShareGroup)]
        epochs += sum(group.epoch for group in groups)
        begun += sum(len(group.state_topics.initialized) for group in groups)
    assert beats > 100
    assert epochs > 20
    assert begun > 3


@pytest.mark.deep
def test_a_bug_in_share_groups_shrinks_to_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator alters the offsets of a group that is read: one member, few lines."""
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
