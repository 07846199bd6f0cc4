"""Topologies configured against existing topics: tasks, internal topics and failures equal Kafka's.

The situations are those of Kafka's own tests of these steps, and recorded results of Kafka's classes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.streams.topology.topologies import info, sub, topology, vectors

from konvene.codec.json import from_json, to_json
from konvene.errors import Errors
from konvene.groups.streams.topology.configure import (
    KAFKA,
    KIP,
    ConfiguredTopology,
    ExistingTopic,
    InternalTopic,
    Status,
    config_warnings,
    configure,
    describe,
)
from konvene.groups.streams.topology.topology import Topology
from konvene.messages import streams_group_describe as described
from konvene.messages import streams_group_heartbeat as wire
from konvene.records.streams import StreamsGroupTopologyValue, TopicConfig
from konvene.shard.errors import GroupError

BOTH = pytest.mark.parametrize("mode", [KAFKA, KIP])
LOOPS = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
    "that cannot be resolved."
)
NO_SINK = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
    "is never used as a sink topic."
)


def counts(configured: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in configured.internal_topics.items()}


def failure(*subtopologies: wire.Subtopology, mode: str = KAFKA, **topics: int) -> tuple[Status, str]:
    """Return why the group is not ready; then it has no tasks."""
    found = configure(topology(*subtopologies), topics, mode)
    assert found.failure is not None
    if found.failure.status is not Status.MISSING_INTERNAL_TOPICS:
        assert (found.tasks, found.internal_topics, found.missing) == ({}, {}, {})
    return found.failure


def refusal(*subtopologies: wire.Subtopology, mode: str = KAFKA, **topics: int) -> tuple[Errors, str | None]:
    with pytest.raises(GroupError) as refused:
        configure(topology(*subtopologies), topics, mode)
    return refused.value.error, refused.value.message


# --- Kafka's own results ---------------------------------------------------------------------------


def with_settings_as_dicts(description: dict[str, Any]) -> dict[str, Any]:
    """Return settings as a dict: Kafka lists them in an arbitrary order."""
    for each in description["subtopologies"]:
        for topic in each["stateChangelogTopics"] + each["repartitionSourceTopics"]:
            topic["topicConfigs"] = {row["key"]: row["value"] for row in topic["topicConfigs"]}
    return description


def result_of(case: dict[str, Any]) -> dict[str, Any]:
    ids = [each["subtopologyId"] for each in case["topology"]["subtopologies"]]
    if len(set(ids)) < len(ids):  # Kafka cannot make a topology of it; ours is not made of a request.
        return {"error": [-1, None]}
    known = Topology.from_value(from_json(StreamsGroupTopologyValue, case["topology"], 0))
    try:
        found = configure(known, case["topics"])
    except GroupError as refused:
        return {"error": [int(refused.error), refused.message]}
    return {
        "tasks": dict(found.tasks),
        "internal": counts(found),
        "missing": [
            [topic.name, topic.partitions, topic.replication_factor or -1, topic.configs]
            for topic in found.missing.values()
        ],
        "failure": None if found.failure is None else list(found.failure),
        "described": with_settings_as_dicts(to_json(describe(known, found), 1)),
    }


def test_results_equal_kafkas() -> None:
    """Tasks, partition counts, topics to create and their order, status and message, and the description."""
    seen = set()
    for at, case in enumerate(vectors("topologies")):
        expected = case["kafka"]
        if "described" in expected:
            with_settings_as_dicts(expected["described"])
        assert result_of(case) == expected, at
        seen.add((expected["error"] if "error" in expected else expected["failure"] or [None])[0])
    assert seen == {None, 1, 2, 3, -1, 130}


# --- the whole -------------------------------------------------------------------------------------

SPLIT = sub("0", "text", writes="words", state=(info("lines", cleanup_policy="compact"),))
COUNT = sub("1", "extra", repartitioned=(info("words", rf=3),), state="counts", joined=(((0,), (0,)),))


@BOTH
def test_tasks_and_missing_topics(mode: str) -> None:
    """A replication factor of 0 is the broker's default; topic settings are copied."""
    found = configure(topology(SPLIT, COUNT, epoch=3), {"text": 2, "extra": 2, "counts": 2}, mode)
    words = InternalTopic("words", 2, 3)
    lines = InternalTopic("lines", 2, 0, (TopicConfig(key="cleanup.policy", value="compact"),))
    assert (found.epoch, found.tasks) == (3, {"0": 2, "1": 2})
    assert found.internal_topics == {"words": words, "lines": lines, "counts": InternalTopic("counts", 2, 0)}
    assert found.missing == {"words": words, "lines": lines}
    assert lines.configs == {"cleanup.policy": "compact"}
    assert not found.is_ready
    assert found.failure is not None
    assert found.failure.status is Status.MISSING_INTERNAL_TOPICS
    assert sorted(found.topics) == ["counts", "extra", "lines", "text", "words"]


@BOTH
def test_the_group_is_ready_once_all_topics_exist(mode: str) -> None:
    """From then on no topic is missing."""
    topics = {"text": 2, "extra": 2, "words": 2, "lines": 2, "counts": 2}
    found = configure(topology(SPLIT, COUNT), topics.get, mode)
    assert (found.is_ready, found.missing, found.tasks) == (True, {}, {"0": 2, "1": 2})


@BOTH
def test_an_empty_topology_has_no_tasks(mode: str) -> None:
    """As in Kafka: an empty topology is ready."""
    found = configure(topology(), {}, mode)
    assert (found.is_ready, found.tasks) == (True, {})


@BOTH
def test_the_first_failure_is_reported(mode: str) -> None:
    """Missing sources before wrong partition counts before missing internal topics."""
    everything = (SPLIT, COUNT)
    assert failure(*everything, mode=mode, text=2, lines=9) == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics extra are missing.",
    )
    assert failure(*everything, mode=mode, text=2, extra=2, lines=9) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic lines has different number of partitions: expected 2, found 9",
    )
    assert failure(*everything, mode=mode, text=2, extra=2, lines=2, words=2) == (
        Status.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: counts",
    )


def test_kafka_lists_three_missing_topics_and_mode_kip_all() -> None:
    """Missing sources are sorted; missing internal topics are in the order of a hash table."""
    reads = sub("0", "e d c b a")
    assert failure(reads)[1] == "Source topics a, b, c and 2 additional topics are missing."
    assert failure(reads, mode=KIP)[1] == "Source topics a, b, c, d, e are missing."
    state = sub("0", "a", state="s11 s2 s10 s1")
    assert failure(state, a=1)[1] == "Internal topics are missing: s11, s10, s1 and 1 additional topics"
    assert failure(state, a=1, mode=KIP)[1] == "Internal topics are missing: s1, s10, s11, s2"


def test_the_first_wrong_topic_is_the_first_in_kafkas_table() -> None:
    """Of several topics with wrong partition counts one is reported."""
    state = sub("0", "a", state="s11 s2")
    assert "topic s11 " in failure(state, a=1, s11=3, s2=3)[1]
    assert "topic s11 " in failure(state, a=1, s11=3, s2=3, mode=KIP)[1]


# --- repartition topics ----------------------------------------------------------------------------


@BOTH
def test_a_fixed_count_stays(mode: str) -> None:
    """Whatever its writer consumes."""
    writer, reader = sub("0", "a b", writes="r"), sub("1", repartitioned="r:7")
    found = configure(topology(writer, reader), {"a": 3, "b": 5}, mode)
    assert (counts(found), found.tasks) == ({"r": 7}, {"0": 5, "1": 7})


@BOTH
def test_the_largest_source_of_the_writer_decides(mode: str) -> None:
    """Source topics and repartition topics alike."""
    writer = sub("0", "a b", repartitioned="s:4", writes="r")
    tail = sub("1", repartitioned="r")
    head = sub("2", "a", writes="s")
    assert counts(configure(topology(head, writer, tail), {"a": 3, "b": 2}, mode)) == {"s": 4, "r": 4}
    assert counts(configure(topology(head, writer, tail), {"a": 3, "b": 6}, mode)) == {"s": 4, "r": 6}


@BOTH
def test_counts_go_through_chains(mode: str) -> None:
    """From the source to the last repartition topic, with the subtopologies in any order."""
    links = [sub("0", "a", writes="r0")]
    links += [sub(str(n), repartitioned=f"r{n - 1}", writes=f"r{n}", state=f"s{n}") for n in range(1, 30)]
    links += [sub("30", repartitioned="r29")]
    random.Random(7).shuffle(links)
    found = configure(topology(*links), {"a": 11}, mode)
    assert set(found.tasks.values()) == set(counts(found).values()) == {11}
    assert (len(found.tasks), len(counts(found))) == (31, 30 + 29)


@BOTH
def test_a_loop_with_a_way_in_is_resolved(mode: str) -> None:
    """As long as one of its topics has a count."""
    one, two = sub("0", "a", repartitioned="r:9", writes="s"), sub("1", repartitioned="s", writes="r")
    assert counts(configure(topology(one, two), {"a": 3}, mode)) == {"r": 9, "s": 9}


@BOTH
def test_a_loop_without_a_way_in_is_refused(mode: str) -> None:
    """A topic that depends on itself, and two that depend on each other."""
    itself = sub("0", repartitioned="r", writes="r")
    assert refusal(itself, mode=mode) == (Errors.STREAMS_INVALID_TOPOLOGY, LOOPS)
    one, two = sub("0", repartitioned="r", writes="s"), sub("1", repartitioned="s", writes="r")
    assert refusal(one, two, mode=mode) == (Errors.STREAMS_INVALID_TOPOLOGY, LOOPS)


@BOTH
def test_a_repartition_topic_without_a_writer_is_refused(mode: str) -> None:
    """Unless its count is fixed; Kafka checks no more in that case."""
    assert refusal(sub("0", repartitioned="r"), mode=mode) == (Errors.STREAMS_INVALID_TOPOLOGY, NO_SINK)
    assert counts(configure(topology(sub("0", repartitioned="r:2")), {}, mode)) == {"r": 2}


def test_kafka_decides_counts_before_all_are_known_and_mode_kip_does_not() -> None:
    """A writer that comes early is computed from the sources known by then. Its own task count is right
    anyway."""
    early = sub("0", "small", repartitioned="r", writes="s")
    late = sub("1", "large", writes="r")
    last = sub("2", repartitioned="s")
    topics = {"small": 2, "large": 5}
    kafka, kip = (configure(topology(early, late, last), topics, mode) for mode in (KAFKA, KIP))
    assert (counts(kafka), kafka.tasks) == ({"r": 5, "s": 2}, {"0": 5, "1": 5, "2": 2})
    assert (counts(kip), kip.tasks) == ({"r": 5, "s": 5}, {"0": 5, "1": 5, "2": 5})


# --- copartition groups ----------------------------------------------------------------------------


def joining(
    outer: str = "", inner: str = "", *, writes: str = "", reads: str = "w"
) -> tuple[wire.Subtopology, ...]:
    """Return a subtopology that joins these topics, and one that writes the repartition topics."""
    names = " ".join(name.partition(":")[0] for name in inner.split())
    groups = ((tuple(range(len(outer.split()))), tuple(range(len(inner.split())))),)
    return sub("1", outer, repartitioned=inner, joined=groups), sub("0", reads, writes=writes or names)


@BOTH
def test_copartitioned_source_topics_must_have_equal_counts(mode: str) -> None:
    """The message lists each with its partitions."""
    assert failure(*joining("a b"), mode=mode, w=1, a=2, b=1) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=1}]",
    )


@BOTH
def test_repartition_topics_follow_copartitioned_source_topics(mode: str) -> None:
    """Down as well as up."""
    found = configure(topology(*joining("a b", "r")), {"w": 10, "a": 2, "b": 2}, mode)
    assert counts(found) == {"r": 2}
    found = configure(topology(*joining("a", "r")), {"w": 2, "a": 10}, mode)
    assert counts(found) == {"r": 10}


@BOTH
def test_repartition_topics_alone_follow_the_largest(mode: str) -> None:
    """If none of them has a fixed count."""
    joins = joining(inner="r s t", writes="r")[0]
    writers = [sub("2", "a", writes="r"), sub("3", "b", writes="s"), sub("4", "c", writes="t")]
    found = configure(topology(joins, *writers), {"a": 1, "b": 15, "c": 5}, mode)
    assert counts(found) == {"r": 15, "s": 15, "t": 15}


@BOTH
def test_fixed_repartition_topics_bind_the_others(mode: str) -> None:
    """All fixed counts must be equal, and the others follow."""
    found = configure(topology(*joining(inner="r:2 s t:2")), {"w": 5}, mode)
    assert counts(found) == {"r": 2, "s": 2, "t": 2}
    assert failure(*joining(inner="r:10 s:5"), mode=mode, w=1) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{r=10, s=5}]",
    )


@BOTH
def test_a_fixed_topic_must_fit_copartitioned_source_topics(mode: str) -> None:
    """It is not altered to fit."""
    assert counts(configure(topology(*joining("a", "r:2")), {"w": 1, "a": 2}, mode)) == {"r": 2}
    assert failure(*joining("a", "r:10"), mode=mode, w=1, a=2) == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [10] of repartition topic [r] doesn't match number of partitions [2] of the "
        "source topic.",
    )


@BOTH
def test_an_empty_copartition_group_has_no_effect(mode: str) -> None:
    assert configure(topology(sub("0", "a", joined=(((), ()),))), {"a": 1}, mode).is_ready


def test_in_kafka_a_fixed_topic_binds_copartition_groups_without_it() -> None:
    """If all topics of a copartition group are repartition topics. In mode kip groups are independent."""
    elsewhere = sub("2", repartitioned="f:3")
    everything = topology(*joining(inner="r s", writes="r s f"), elsewhere)
    assert counts(configure(everything, {"w": 8}, KAFKA)) == {"r": 3, "s": 3, "f": 3}
    assert counts(configure(everything, {"w": 8}, KIP)) == {"r": 8, "s": 8, "f": 3}


@pytest.mark.parametrize("index", [-1, 1])
def test_an_index_out_of_range_is_a_server_error(index: int) -> None:
    """Before any other check; a negative index does not count from the end."""
    for group in (((index,), ()), ((), (index,))):
        broken = sub("0", "absent", repartitioned="r", joined=(group,))
        assert refusal(broken) == (Errors.UNKNOWN_SERVER_ERROR, None)


# --- changelogs ------------------------------------------------------------------------------------


@BOTH
def test_changelogs_have_a_partition_for_each_task(mode: str) -> None:
    """Only for stateful subtopologies; with sources, repartition topics, or both."""
    one = sub("0", "a", writes="r", state="s t")
    two = sub("1", "a b", repartitioned="r:3", state="u")
    found = configure(topology(one, two, sub("2", "b")), {"a": 2, "b": 7}, mode)
    assert counts(found) == {"r": 3, "s": 2, "t": 2, "u": 7}
    assert found.tasks == {"0": 2, "1": 7, "2": 7}


@BOTH
def test_a_source_may_be_the_changelog(mode: str) -> None:
    """It exists, so it is not created; if another source is larger, it does not fit."""
    found = configure(topology(sub("0", "a", state="a")), {"a": 3}, mode)
    assert (found.is_ready, counts(found)) == (True, {"a": 3})
    assert failure(sub("0", "a b", state="a"), mode=mode, a=3, b=4)[1] == (
        "Existing topic a has different number of partitions: expected 4, found 3"
    )


@BOTH
def test_a_subtopology_without_sources_is_refused(mode: str) -> None:
    assert refusal(sub("0", state="s"), mode=mode) == (
        Errors.STREAMS_INVALID_TOPOLOGY,
        "No source topics found for subtopology 0",
    )


@pytest.mark.parametrize(
    "broken",
    [
        sub("0", "a", repartitioned="r:-1"),
        sub("0", "a", repartitioned="r:1 r:1"),
        sub("0", "a", state="s s"),
        sub("0", "a", state=(wire.TopicInfo(name="s", topic_configs=(wire.KeyValue(key="k"),) * 2),)),
    ],
)
def test_a_topology_that_crashes_kafka_is_a_server_error(broken: wire.Subtopology) -> None:
    """Less than one partition; a topic or a setting that is repeated."""
    assert refusal(broken, a=1) == (Errors.UNKNOWN_SERVER_ERROR, None)


# --- properties ------------------------------------------------------------------------------------


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[wire.Subtopology], dict[str, int]]:
    """Subtopologies that pass repartition topics on to later ones, and their source topics."""
    size = draw(st.integers(1, 8))
    topics = {f"t{n}": draw(st.integers(1, 20)) for n in range(size)}
    reads: list[list[str]] = [[] for _ in range(size)]
    writes: list[list[str]] = [[] for _ in range(size)]
    for at in range(1, size):
        for writer in draw(st.lists(st.integers(0, at - 1), unique=True, max_size=3)):
            reads[at].append(f"r{writer}-{at}")
            writes[writer].append(f"r{writer}-{at}")
    subtopologies = [
        sub(
            str(at),
            f"t{at}" if not reads[at] or draw(st.booleans()) else "",
            repartitioned=" ".join(reads[at]),
            writes=" ".join(writes[at]),
            state=f"s{at}",
        )
        for at in range(size)
    ]
    return subtopologies, topics


def largest(subtopologies: list[wire.Subtopology], topics: dict[str, int]) -> dict[str, int]:
    """Return the task counts, computed by hand; writers come before their readers."""
    found: dict[str, int] = {}
    of: dict[str, int] = dict(topics)
    for each in subtopologies:
        names = [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        found[each.subtopology_id] = max(of[name] for name in names)
        of.update(dict.fromkeys(each.repartition_sink_topics, found[each.subtopology_id]))
    return found


@given(dags(), st.randoms(use_true_random=False))
def test_counts_in_mode_kip_are_the_largest_in_any_order(
    dag: tuple[list[wire.Subtopology], dict[str, int]], chance: random.Random
) -> None:
    """Every subtopology has as many tasks as the largest source upstream, and so has its changelog."""
    subtopologies, topics = dag
    configured = configure(topology(*subtopologies), topics, KIP)
    assert configured.tasks == largest(subtopologies, topics)
    assert all(counts(configured)[f"s{name}"] == tasks for name, tasks in configured.tasks.items())
    shuffled = chance.sample(subtopologies, len(subtopologies))
    again = configure(topology(*shuffled), topics, KIP)
    assert (again.tasks, again.internal_topics, again.failure) == (
        configured.tasks,
        configured.internal_topics,
        configured.failure,
    )


@given(dags())
def test_kafkas_counts_are_those_of_some_source(dag: tuple[list[wire.Subtopology], dict[str, int]]) -> None:
    """Never above the largest count; equal to it if all source topics have the same count."""
    subtopologies, topics = dag
    known = topology(*subtopologies)
    kafka = configure(known, topics)
    assert configure(known, topics) == kafka
    most = largest(subtopologies, topics)
    assert all(tasks <= most[name] for name, tasks in kafka.tasks.items())
    assert set(counts(kafka).values()) <= set(topics.values())
    same = dict.fromkeys(topics, 6)
    assert set(configure(known, same).tasks.values()) == {6}


@given(dags(), st.sampled_from([KAFKA, KIP]))
def test_creating_the_missing_topics_makes_the_group_ready(
    dag: tuple[list[wire.Subtopology], dict[str, int]], mode: str
) -> None:
    """Once the missing topics are created as requested, the group is ready, with the same tasks."""
    subtopologies, topics = dag
    known = topology(*subtopologies)
    before = configure(known, topics, mode)
    assert before.failure is not None
    assert before.missing.keys() == before.internal_topics.keys()
    after = configure(known, topics | counts(before), mode)
    assert after.is_ready
    assert (after.tasks, after.missing) == (before.tasks, {})


# --- warnings and descriptions ---------------------------------------------------------------------


def test_differing_topic_settings_cause_a_warning() -> None:
    """Only for topics that exist, and for settings of the topology."""
    found = configure(topology(SPLIT, COUNT), {"text": 2, "extra": 2, "lines": 2, "words": 2})
    existing = {
        "lines": ExistingTopic(1, {"cleanup.policy": "delete", "retention.ms": "1"}),
        "words": ExistingTopic(1, {}),
        "text": ExistingTopic(9, {}),
    }
    assert config_warnings(found, existing) == (
        "Topic lines has cleanup.policy=delete; the topology requires compact",
        "Topic words has replication factor 1; the topology requires 3",
    )
    fitting = {"lines": ExistingTopic(1, {"cleanup.policy": "compact"}), "words": ExistingTopic(3, {})}
    assert config_warnings(found, fitting) == ()


def partitions(topics: tuple[described.TopicInfo, ...]) -> list[tuple[str, int]]:
    return [(topic.name, topic.partitions) for topic in topics]


def test_describe_fills_in_partitions_once_the_group_is_ready() -> None:
    """Before, the sent counts are described. Topics are sorted; a topic that is listed twice is listed
    once."""
    known = topology(sub("1", "b a b", writes="z y", state="s r"), sub("0", "c", repartitioned="z y:4"))
    sources = {"a": 2, "b": 3, "c": 1}
    raw = describe(known, configure(known, sources))
    assert raw == describe(known, None)
    zero, one = raw.subtopologies or ()
    assert (zero.subtopology_id, one.subtopology_id) == ("0", "1")
    assert (one.source_topics, one.repartition_sink_topics) == (("a", "b", "b"), ("y", "z"))
    assert partitions(zero.repartition_source_topics) == [("y", 4), ("z", 0)]
    ready = configure(known, sources | {"y": 4, "z": 3, "s": 3, "r": 3})
    assert ready.is_ready
    zero, one = describe(known, ready).subtopologies or ()
    assert one.source_topics == ("a", "b")
    assert partitions(zero.repartition_source_topics) == [("y", 4), ("z", 3)]
    assert partitions(one.state_changelog_topics) == [("r", 3), ("s", 3)]
