"""Expressions for source topics: equivalent to listing the topics that they match."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.streams.members import Play
from tests.groups.streams.topology.topologies import sub, topology

from konvene.errors import Errors
from konvene.groups.consumer import regex
from konvene.groups.consumer.work import RegexesResolved
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology import resolution
from konvene.groups.streams.topology.configure import KAFKA, KIP, Status, configure
from konvene.groups.streams.topology.expressions import (
    INTERNAL_TOPICS,
    current_matches,
    expand_expressions,
    expressions,
    reader_of,
    unmatched,
    validate_expressions,
)
from konvene.groups.streams.topology.topology import Topology
from konvene.messages import streams_group_heartbeat as wire
from konvene.shard.contract import Context
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

TOPICS = ("a1", "a2", "b1", "b2", "inner", "state", "__consumer_offsets")
EXPRESSIONS = ("a.*", "[ab]1", ".*", "b.*", "none.*")
"""Expressions with the same meaning in Python and RE2."""


def matches(counts: dict[str, int], found: tuple[str, ...]) -> dict[str, list[str]]:
    return {each: [topic for topic in sorted(counts) if re.fullmatch(each, topic)] for each in found}


def reads(name: str, names: str = "", *found: str, **more: Any) -> wire.Subtopology:
    """Return a subtopology with expressions beside the names."""
    return sub(name, names, **more).replace(source_topic_regex=found)


# --- equivalence to names --------------------------------------------------------------------------

some = st.lists(st.sampled_from(TOPICS[:4]), max_size=2, unique=True)
own_expressions = st.lists(st.sampled_from(EXPRESSIONS), max_size=2, unique=True)
counted = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Two subtopologies; the second may consume what the first one writes, copartitioned or not."""
    found = []
    for name in ("0", "1"):
        names, own = tuple(draw(some)), tuple(draw(own_expressions))
        inner = name == "1" and draw(st.booleans())
        each = reads(
            name, " ".join(names), *own, writes="inner" if name == "0" else "",
            repartitioned="inner" if inner else "", state="state" if name == "1" else "",
        )  # fmt: skip
        if draw(st.booleans()):
            group = wire.CopartitionGroup(
                source_topics=tuple(range(len(names))),
                source_topic_regex=tuple(range(len(own))),
                repartition_source_topics=(0,) if inner else (),
            )
            each = each.replace(copartition_groups=(group,))
        found.append(each)
    return topology(*found)


def by_names(of: Topology, counts: dict[str, int]) -> Topology:
    """Return the topology with every matched name listed, as if a member had sent it."""
    hidden = {"inner", "state", "__consumer_offsets"}
    found = []
    for each in of.subtopologies.values():
        more = sorted(
            topic
            for topic in counts.keys() - hidden - set(each.source_topics)
            if any(re.fullmatch(e, topic) for e in each.source_topic_regex)
        )
        names = [*each.source_topics, *more]
        groups = []
        for group in each.copartition_groups:
            joined = {each.source_topics[at] for at in group.source_topics}
            joined |= {
                topic
                for at in group.source_topic_regex
                for topic in names
                if re.fullmatch(each.source_topic_regex[at], topic) and topic in counts
            }
            at = tuple(n for n, topic in enumerate(names) if topic in joined)
            groups.append(group.replace(source_topics=at, source_topic_regex=()))
        found.append(
            wire.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=tuple(names),
                state_changelog_topics=tuple(
                    wire.TopicInfo(name=t.name) for t in each.state_changelog_topics
                ),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=tuple(
                    wire.TopicInfo(name=t.name) for t in each.repartition_source_topics
                ),
                copartition_groups=tuple(
                    wire.CopartitionGroup(
                        source_topics=g.source_topics, repartition_source_topics=g.repartition_source_topics
                    )
                    for g in groups
                ),
            )
        )
    return topology(*found)


def outcome(*arguments: Any) -> Any:
    try:
        return configure(*arguments)
    except GroupError as refused:
        return refused.error, refused.message


@given(topologies(), counted, st.sampled_from([KAFKA, KIP]))
def test_expressions_are_equivalent_to_the_matched_names(
    of: Topology, counts: dict[str, int], mode: str
) -> None:
    """If every expression has a match; otherwise those without one are reported beside the missing topics."""
    found = matches(counts, expressions(of))
    names = by_names(of, counts)
    assert expand_expressions(of, found) == names
    configured = outcome(of, counts, mode, found)
    hidden = {"inner", "state", "__consumer_offsets"}
    empty = sorted(e for e in found if not set(found[e]) - hidden)
    assert list(unmatched(of, found)) == empty
    if not empty or isinstance(configured, tuple):
        assert configured == outcome(names, counts, mode)
    else:
        absent = [topic for topic in names.source_topics if topic not in counts]
        lines = [f"Source topics {', '.join(absent)} are missing."] if absent else []
        lines.append(f"No topics match the source topic expressions {', '.join(empty)}.")
        if mode == KIP:
            assert configured.failure == (Status.MISSING_SOURCE_TOPICS, " ".join(lines))
        assert configured.failure.status is Status.MISSING_SOURCE_TOPICS
        assert configured.topology == names


@given(topologies(), counted)
def test_reader_of_agrees_with_the_expanded_topology(of: Topology, counts: dict[str, int]) -> None:
    """Where the lookup cannot wait, the reader of a single topic is found with the same result."""
    readers = expand_expressions(of, matches(counts, expressions(of))).readers
    for topic in counts:
        assert reader_of(of, topic) == readers.get(topic)


def test_a_topology_without_expressions_is_not_copied() -> None:
    plain = topology(sub("0", "a1"))
    assert expand_expressions(plain, {}) is plain
    assert current_matches(plain, None, Topics()) == {}
    assert expressions(None) == ()


def test_internal_topics_are_not_matched() -> None:
    """Also if the expression matches nothing else."""
    of = topology(reads("0", "", ".*", writes="inner"), sub("1", repartitioned="inner", state="state"))
    everything = {".*": ["inner", "state", *sorted(INTERNAL_TOPICS)]}
    assert expand_expressions(of, everything).source_topics == ()
    assert unmatched(of, everything) == (".*",)
    assert [topic for topic in everything[".*"] if reader_of(of, topic) not in (None, "1")] == []


def test_an_invalid_copartition_index_is_ignored() -> None:
    """A log may contain one: the group is then as without it."""
    odd = wire.CopartitionGroup(source_topics=(0,), source_topic_regex=(7, -1, 0))
    of = topology(reads("0", "b1", "a.*").replace(copartition_groups=(odd,)))
    found = expand_expressions(of, {"a.*": ["a1"]}).subtopologies["0"]
    assert found.source_topics == ("b1", "a1")
    assert found.copartition_groups[0].source_topics == (0, 1)


# --- validity --------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["a(", "[", "*", "a{2,1}", "\\"])
def test_an_invalid_expression_is_refused_as_in_consumer_groups(broken: str) -> None:
    """With another name of the field."""
    with pytest.raises(GroupError) as theirs:
        regex.validate(broken)
    with pytest.raises(GroupError) as ours:
        validate_expressions(topology(reads("0", "", "a.*", broken)), None)
    assert ours.value.error is theirs.value.error is Errors.INVALID_REGULAR_EXPRESSION
    expected = (theirs.value.message or "").replace("SubscribedTopicRegex", "SourceTopicRegex")
    assert ours.value.message == expected


def test_accepted_expressions_are_not_validated_again() -> None:
    """A broker with RE2 may have accepted what one without it cannot parse."""
    before = topology(reads("0", "", "a("))
    validate_expressions(topology(reads("0", "", "a(", "b"), epoch=1), before)


# --- cost ------------------------------------------------------------------------------------------


def test_a_settled_heartbeat_evaluates_no_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no topic has changed; and the heartbeat's cached decision stays valid."""
    play = Play(konvene_streams_mode="kip")
    play.run("streams-heartbeat ann join topology=0:~or.*")
    play.run("work")
    play.run("streams-heartbeat ann")
    shard, group = play.life.shard, play.group
    assert group is not None
    calls: list[object] = []
    for name in ("expressions", "expand_expressions", "current_matches"):
        monkeypatch.setattr(resolution, name, lambda *arguments: calls.append(arguments))
    play.run("streams-heartbeat ann")
    assert calls == []
    monkeypatch.undo()
    request = wire.StreamsGroupHeartbeatRequest(
        group_id="g", member_id="ann-1", member_epoch=group.epoch, endpoint_information_epoch=1
    )
    cached = shard.cacheable(request, context(play))
    assert cached is not None
    assert shard.is_current(cached[0])
    play.run("expire expressions g")
    assert shard.is_current(cached[0]), "a pending resolution changes nothing for members"
    play.run("work")
    assert shard.is_current(cached[0]), "an unchanged resolution changes nothing for members"


def context(play: Play) -> Context:
    coordinator = play.life.runtime.coordinator
    made: Context = coordinator._internal_context()
    return made


# --- topologies that cannot run --------------------------------------------------------------------


def test_a_resolution_for_a_topology_that_cannot_run_is_kept() -> None:
    """A topology that mode `kip` does not accept, from some log: the group does not wait for ever."""
    play = Play(konvene_streams_mode="kip")
    play.run("streams-heartbeat ann join topology=0:~or.*")
    group = play.group
    assert group is not None
    group.topology = topology(reads("0", "", "or.*", writes="x"), sub("1", "audit", repartitioned="never"))
    answer = RegexesResolved("g", {"or.*": frozenset(["orders"])}, 1)
    result = resolution.apply_resolution(group, answer, context(play))
    (soft,) = result.soft_records
    assert not soft.soft.resolving
    assert soft.soft.configured is None
    assert soft.soft.resolved.matches == {"or.*": frozenset(["orders"])}
    assert result.records == ()


def test_a_resolution_for_a_group_without_expressions_is_dropped() -> None:
    group = StreamsGroup("g", topology=topology(sub("0", "orders")))
    answer = RegexesResolved("g", {"or.*": frozenset(["orders"])}, 1)
    result = resolution.apply_resolution(group, answer, context(Play()))
    assert result.records == result.timers == result.effects == ()
