"""Validation of heartbeats: each rule with a request that violates this rule alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.streams.topology.topologies import info, sent, sub, topology, vectors

from konvene.cluster import names
from konvene.codec.json import from_json
from konvene.errors import Errors
from konvene.groups.streams import validate
from konvene.groups.streams.topology import expressions
from konvene.groups.streams.topology.configure import KAFKA, KIP, configure
from konvene.groups.streams.validate import (
    RULES,
    check_names,
    check_offsets,
    check_request,
    check_tasks,
    named_topics,
    topology_after,
)
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds, TaskOffset
from konvene.shard.errors import GroupError

R, T = Errors.INVALID_REQUEST, Errors.STREAMS_INVALID_TOPOLOGY

FINE = sent(
    sub("0", "text", writes="words", state=(info("lines", cleanup_policy="compact"),)),
    sub("1", "extra", repartitioned="words", state="counts", joined=(((0,), (0,)),)),
)


def request(**fields: Any) -> StreamsGroupHeartbeatRequest:
    """Return a heartbeat of a settled member with these fields."""
    return StreamsGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", "member_epoch": 5} | fields)


def join(*subtopologies: wire.Subtopology, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """Return a valid join with these fields."""
    fine: dict[str, Any] = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "active_tasks": (),
        "standby_tasks": (),
        "warmup_tasks": (),
        "topology": sent(*subtopologies) if subtopologies else FINE,
    }
    return request(**fine | fields)


def tasks(**by_name: tuple[int, ...]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id=name[1:], partitions=parts) for name, parts in by_name.items())


def owns(
    active: tuple[TaskIds, ...] = (), standby: tuple[TaskIds, ...] = (), warmup: tuple[TaskIds, ...] = ()
) -> Any:
    return request(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)


def refusal(check: Callable[..., object], *given: Any) -> tuple[Errors, str | None]:
    with pytest.raises(GroupError) as refused:
        check(*given)
    return refused.value.error, refused.value.message


# --- each rule -------------------------------------------------------------------------------------

WRITER = sub("0", "a", writes="r")
READER = sub("1", repartitioned="r")
TWO_KEYS = wire.TopicInfo(name="s", topic_configs=(wire.KeyValue(key="k", value="1"),) * 2)
REGEX = wire.Subtopology(subtopology_id="0", source_topics=("a",), source_topic_regex=("a.*",))

VIOLATIONS: dict[str, tuple[StreamsGroupHeartbeatRequest, str]] = {
    "no-internal-topics": (
        join(sub("0", "a __consumer_offsets", state="__share_group_state __konvene_audit")),
        "Use of Kafka internal topics __consumer_offsets,__share_group_state,__konvene_audit in a Kafka "
        "Streams topology is prohibited.",
    ),
    "valid-topic-names": (
        join(sub("0", "a b/c", writes="..", repartitioned="r:1", state="x" * 250)),
        f"Topic names b/c,..,{'x' * 250} are not valid topic names.",
    ),
    "no-expressions": (join(REGEX), "Regular expressions for source topics are not supported yet."),
    "member-id": (request(member_id=" \t"), "MemberId can't be empty."),
    "group-id": (request(group_id=""), "GroupId can't be empty."),
    "instance-id": (request(instance_id=""), "InstanceId can't be empty."),
    "rack-id": (request(rack_id=" "), "RackId can't be empty."),
    "rebalance-timeout": (
        join(rebalance_timeout_ms=-1),
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "no-active-tasks": (join(active_tasks=None), "ActiveTasks must be empty when (re-)joining."),
    "no-standby-tasks": (
        join(standby_tasks=tasks(_0=(1,))),
        "StandbyTasks must be empty when (re-)joining.",
    ),
    "no-warmup-tasks": (join(warmup_tasks=None), "WarmupTasks must be empty when (re-)joining."),
    "topology-on-join": (join(topology=None), "Topology must be non-null when (re-)joining."),
    "changelog-without-count": (
        join(sub("0", "a", state="s t:3")),
        "Changelog topic t must have an undefined partition count, but it is set to 3.",
    ),
    "rebalance-timeout-positive": (
        join(rebalance_timeout_ms=0),
        "RebalanceTimeoutMs must be larger than zero.",
    ),
    "topology-epoch": (join(topology=sent(WRITER, epoch=-1)), "Topology epoch must be non-negative."),
    "topology-not-empty": (join(topology=sent()), "Topology must have a subtopology."),
    "subtopology-once": (join(WRITER, WRITER), "Subtopology 0 is listed more than once."),
    "subtopology-reads": (join(sub("0", state="s")), "No source topics found for subtopology 0"),
    "topic-once": (
        join(sub("0", "a", state="s s")),
        "Topic s is listed more than once in subtopology 0.",
    ),
    "config-once": (
        join(sub("0", "a", state=(TWO_KEYS,))),
        "Config k of topic s is listed more than once.",
    ),
    "bounds": (
        join(WRITER, sub("1", repartitioned="r:-1")),
        "Topic r cannot have -1 partitions and replication factor 0.",
    ),
    "repartition-name": (
        join(WRITER, READER, sub("2", "r")),
        "Repartition topic r must not be a source topic or a changelog topic as well.",
    ),
    "changelog-name": (
        join(sub("0", "a", state="a")),
        "Changelog topic a must not be a source topic or a repartition topic as well.",
    ),
    "repartition-fed": (
        join(sub("0", "a", repartitioned="r", writes="r")),
        "Repartition source topic r of subtopology 0 is not a repartition sink topic of another subtopology.",
    ),
    "copartition-index": (
        join(sub("0", "a", joined=(((0, 1), ()),))),
        "Index 1 in the copartition groups of subtopology 0 is out of range.",
    ),
    "no-cycle": (
        join(WRITER, sub("1", repartitioned="r t", writes="s"), sub("2", repartitioned="s", writes="t")),
        "Subtopologies wait for each other's repartition topics: 1, 2.",
    ),
    "instance-on-static-leave": (request(member_epoch=-2), "InstanceId can't be null."),
    "member-epoch": (
        request(member_epoch=-3),
        "MemberEpoch is -3, but must be greater than or equal to -2.",
    ),
    "all-task-types": (
        request(active_tasks=()),
        "If one task-type is non-null, all must be non-null.",
    ),
    "no-topology": (request(topology=FINE), "Topology can only be provided when (re-)joining."),
    "tasks-once": (
        owns(tasks(_0=(1, 2)), tasks(_1=(1,)), tasks(_0=(2,))),
        "Task 2 of subtopology 0 is listed more than once in ActiveTasks, StandbyTasks and WarmupTasks.",
    ),
}


def test_every_rule_has_its_violation() -> None:
    """In the table's order, each id once."""
    assert list(VIOLATIONS) == [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.id))
def test_a_violation_is_refused_in_the_rules_modes(rule: validate.Rule) -> None:
    """With the rule's error code and message. KIP-only rules apply only in mode kip; a feature of the KIP
    that Kafka lacks is refused only in mode kafka."""
    broken, message = VIOLATIONS[rule.id]
    if rule in validate.NO_EXPRESSIONS:
        check_request(broken, KIP)
    else:
        assert refusal(check_request, broken, KIP) == (rule.error, message)
    if rule.by == KAFKA:
        assert refusal(check_request, broken, KAFKA) == (rule.error, message)
    else:
        check_request(broken, KAFKA)


def test_invalid_heartbeats_are_refused_as_by_kafka() -> None:
    """Heartbeats that Kafka's own validation has checked: the first violation, with Kafka's message."""
    for at, case in enumerate(vectors("heartbeats")):
        heartbeat = from_json(StreamsGroupHeartbeatRequest, case["request"], 1)
        if case["kafka"]:
            error, message = case["kafka"]
            assert refusal(check_request, heartbeat, KAFKA) == (Errors(error), message), at
            if message != validate.NO_EXPRESSIONS[0].message:
                assert refusal(check_request, heartbeat, KIP) == (Errors(error), message), at
        else:
            check_request(heartbeat, KAFKA)


@pytest.mark.parametrize("mode", [KAFKA, KIP])
@pytest.mark.parametrize(
    "fine",
    [
        join(),
        join(instance_id="i", rack_id="r"),
        join(WRITER, sub("1", repartitioned="r:7")),
        join(sub("0", "a", state=(info("s", -1),), joined=(((), ()),))),
        request(),
        owns(),
        owns(tasks(_0=(0, 1), _1=(0,)), tasks(_0=(2,)), tasks(_1=(1, 2))),
        request(member_epoch=-1),
        request(member_epoch=-2, instance_id="i"),
    ],
)
def test_valid_heartbeats_are_accepted(fine: StreamsGroupHeartbeatRequest, mode: str) -> None:
    check_request(fine, mode)


def test_the_rules_errors() -> None:
    """INVALID_REQUEST for the request, STREAMS_INVALID_TOPOLOGY for its topology."""
    assert {rule.error for rule in RULES} == {R, T}
    assert {rule.by for rule in RULES} == {KAFKA, KIP}


# --- topics ----------------------------------------------------------------------------------------


def test_a_topology_may_use_none_of_the_brokers_internal_topics() -> None:
    own = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__konvene_audit"}
    assert expressions.INTERNAL_TOPICS == INTERNAL_TOPICS == own


@given(
    st.text(max_size=5)
    | st.from_regex(r"[a-zA-Z0-9._/-]{1,260}", fullmatch=True)
    | st.sampled_from([".", ".."])
)
def test_a_topic_name_is_valid_if_the_catalogue_accepts_it(name: str) -> None:
    each = wire.Subtopology(subtopology_id="0", source_topics=(name,))
    if names.invalid_name_message(name) is None:
        check_names(join(each))
    else:
        expected = (T, f"Topic names {name} are not valid topic names.")
        assert refusal(check_names, join(each)) == expected


def test_named_topics_are_unique_and_in_kafkas_order() -> None:
    """Subtopology by subtopology: sources, sinks, repartition sources, changelogs."""
    assert named_topics(join()) == ("text", "words", "lines", "extra", "counts")
    assert named_topics(request()) == ()


def test_names_are_checked_first() -> None:
    """Also if a topology is not allowed in the request: errors may name topics only to authorized clients."""
    hidden = request(topology=sent(sub("0", "a b/c")), member_id="")
    assert refusal(check_names, hidden) == refusal(check_request, hidden, KAFKA)
    check_names(request(member_id=""))


# --- against the group's state ---------------------------------------------------------------------

OLD = topology(WRITER, READER, epoch=2)


@pytest.mark.parametrize("mode", [KAFKA, KIP])
def test_the_first_topology_becomes_the_groups(mode: str) -> None:
    """An equal topology changes nothing, not even the object."""
    assert topology_after(None, sent(READER, WRITER, epoch=2), mode) == OLD
    assert topology_after(OLD, sent(READER, WRITER, epoch=2), mode) is OLD


UPDATES = [
    # epoch of a topology that differs: with kafka, with kip (None: it is the group's from now on)
    (0, "stale", Errors.STREAMS_TOPOLOGY_FENCED),
    (1, "stale", Errors.STREAMS_TOPOLOGY_FENCED),
    (2, R, Errors.STREAMS_INVALID_TOPOLOGY_EPOCH),
    (3, R, None),
    (4, R, Errors.STREAMS_INVALID_TOPOLOGY_EPOCH),
]


@pytest.mark.parametrize(("epoch", "kafka", "kip"), UPDATES)
def test_topology_updates(epoch: int, kafka: Errors | str, kip: Errors | None) -> None:
    """Kafka knows no updates, and lets older topologies join; in mode kip they come one epoch after the
    other."""
    other = sent(WRITER, epoch=epoch)
    if kafka == "stale":
        assert topology_after(OLD, other, KAFKA) is OLD
    else:
        assert refusal(topology_after, OLD, other, KAFKA) == (
            kafka,
            "Topology updates are not supported yet.",
        )
    if kip is None:
        assert topology_after(OLD, other, KIP) == topology(WRITER, epoch=epoch)
    else:
        assert refusal(topology_after, OLD, other, KIP)[0] == kip


def test_owned_tasks_must_exist_once_the_group_is_ready() -> None:
    """Kafka checks only then; in mode kip ids are checked before."""
    known = topology(WRITER, READER)
    unready, ready = configure(known, {"a": 2}), configure(known, {"a": 2, "r": 2})
    nowhere = owns(standby=tasks(_9=(0,)))
    message = (R, "Subtopology 9 does not exist in the topology.")
    check_tasks(nowhere, known, unready, KAFKA)
    assert refusal(check_tasks, nowhere, known, unready, KIP) == message
    assert refusal(check_tasks, nowhere, known, ready, KAFKA) == message
    for partition in (-1, 2):
        beyond = owns(warmup=tasks(_1=(0, partition)))
        assert refusal(check_tasks, beyond, known, ready, KAFKA) == (
            R,
            f"Task {partition} for subtopology 1 is invalid. Number of tasks for this subtopology: 2",
        )
    check_tasks(owns(tasks(_0=(0, 1)), tasks(_1=(1,))), known, ready, KAFKA)
    check_tasks(request(), known, ready, KIP)


def test_partitions_are_not_checked_while_sources_are_missing() -> None:
    """The number of tasks is unknown then."""
    known = topology(WRITER, READER)
    check_tasks(owns(tasks(_0=(99,))), known, configure(known, {}), KIP)


def test_a_tasks_offset_must_not_be_repeated() -> None:
    """Once per task; end offsets are checked apart from offsets."""
    one = TaskOffset(subtopology_id="0", partition=3, offset=7)
    other = TaskOffset(subtopology_id="0", partition=4, offset=7)
    check_offsets(request(task_offsets=(one, other), task_end_offsets=(one, other)))
    check_offsets(request())
    for twice in ({"task_offsets": (one, other, one)}, {"task_end_offsets": (one, one)}):
        assert refusal(check_offsets, request(**twice)) == (
            R,
            "Task offsets contain a duplicate entry for subtopology 0 and partition 3.",
        )
