"""The dry run of a migration reports what the migration would do: its blockers, and the moved partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.groups.migration.migrating import (
    assignment,
    classic,
    consumer,
    context,
    member,
    subscription,
    thread,
)
from tests.groups.streams.topology.topologies import sent, sub

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer import conversion
from konvene.groups.migration.dry_run import DryRun, DryRunInputs, default_target, dry_run_migration
from konvene.groups.migration.roll import convert_to_consumer
from konvene.groups.modern.conversion import Blocker
from konvene.groups.shard import GroupShard
from konvene.groups.streams.classic.client_versions import RELEASES, release_of
from konvene.groups.streams.classic.user_data import LATEST_VERSION
from konvene.messages import streams_group_heartbeat as streams_wire
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.shard.contract import Context

COUNTS = sent(sub("0", "orders", state="counts"))
KIP = {"konvene_streams_mode": "kip"}


def codes(found: DryRun) -> list[str]:
    return [each.code for each in found.blockers]


def notes(found: DryRun) -> list[str]:
    return [each.code for each in found.notes]


# --- to a consumer group ---------------------------------------------------------------------------


def balanced() -> ClassicGroup:
    return classic(consumer("ann", [0, 1, 2]), consumer("bob", [3, 4, 5], instance_id="i1"))


def test_a_balanced_group_moves_nothing() -> None:
    found = dry_run_migration(balanced(), "consumer", context({"orders": 6}))
    assert found.can and found.notes == ()
    assert found.moves is not None
    assert (found.moves.stay, found.moves.move, found.moves.fresh, found.moves.lost) == (6, 0, 0, 0)
    assert found.moves.settled
    assert [sorted(each.target or ()) for each in found.members] == [
        ["orders-0", "orders-1", "orders-2"],
        ["orders-3", "orders-4", "orders-5"],
    ]


def test_an_uneven_group_is_balanced_and_free_partitions_are_assigned() -> None:
    group = classic(consumer("ann", [0, 1, 2, 3]), consumer("bob", []))
    found = dry_run_migration(group, "consumer", context({"orders": 6}))
    assert found.moves is not None
    assert (found.moves.stay, found.moves.move, found.moves.fresh) == (3, 1, 2)
    assert sorted(len(each.target or ()) for each in found.members) == [3, 3]


def test_the_predicted_moves_are_those_of_the_coordinator() -> None:
    """The same members send their heartbeats to a coordinator; the last one bumps the epoch by subscribing to
    a missing topic."""
    group = classic(consumer("ann", [0, 1, 2, 3]), consumer("bob", []))
    broker_context = context({"orders": 6}, group_consumer_assignment_interval_ms="0")
    found = dry_run_migration(group, "consumer", broker_context)
    shard = GroupShard()
    shard.groups["g"] = group
    subscriptions = [("ann", ("orders",)), ("bob", ("orders", "gone"))]
    for now_ms, (name, topics) in enumerate(subscriptions, 1_000_000):
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=name, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=topics, topic_partitions=(),
        )  # fmt: skip
        outcome = shard.handle(request, broker_context._replace(now_ms=now_ms, api_version=1))
        assert not outcome.replies[0].response.error_code
        for each in outcome.records:
            shard.replay(each)
    name_of = {topic.id: topic.name for topic in broker_context.topics.by_id.values()}
    migrated: Any = shard.groups["g"]
    targets = {
        name: {f"{name_of[topic]}-{p}" for topic, some in target.items() for p in some}
        for name, target in migrated.targets.items()
    }
    assert sum(map(len, targets.values())) == 6
    assert {each.member_id: set(each.target or ()) for each in found.members} == targets


def test_the_group_is_unchanged() -> None:
    group = balanced()
    before = group.copy()
    dry_run_migration(group, "consumer", context({"orders": 6}))
    assert group == before


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_a_blocking_setting_is_reported_and_the_dry_run_continues(name: str) -> None:
    broker_context = context(
        {"orders": 6}, group_consumer_migration_policy="disabled", group_consumer_max_size="1"
    )
    found = dry_run_migration(balanced(), "consumer", broker_context)
    assert not found.can
    assert codes(found) == ["policy", "size"]
    assert found.moves is not None and found.moves.stay == 6
    assert len(next(each.target or () for each in found.members if each.member_id == name)) == 3


def test_blockers_list_their_members() -> None:
    group = classic(
        member("ann", b"\xff", assignment([])),
        member("bob", subscription(["orders"]), assignment([], b"mine")),
        consumer("cid", [0]),
    )
    found = dry_run_migration(group, "consumer", context({"orders": 1}))
    assert [(each.code, each.member_ids) for each in found.blockers] == [
        ("malformed", ("ann",)),
        ("assignor", ("bob",)),
    ]
    assert found.moves is None


@pytest.mark.parametrize(
    ("group", "settings"),
    [
        (balanced(), {"group_consumer_migration_policy": "downgrade"}),
        (balanced(), {"group_consumer_max_size": "1"}),
        (replace(balanced(), protocol_type="connect"), {}),
        (classic(member("ann", b"\xff", assignment([]))), {}),
        (classic(member("ann", subscription(["orders"]), assignment([], b"mine"))), {}),
    ],
)
def test_the_first_blocker_is_why_the_coordinator_refuses(
    group: ClassicGroup, settings: dict[str, str]
) -> None:
    broker_context = context({"orders": 6}, **settings)
    first = conversion.blockers(group, broker_context.config)[0]
    shard = GroupShard()
    shard.groups["g"] = group
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="new", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",), topic_partitions=(),
    )  # fmt: skip
    response = shard.handle(request, broker_context._replace(api_version=1)).replies[0].response
    assert (
        response.error_message == f"Cannot upgrade classic group g to consumer group because {first.reason}"
    )


def test_notes_do_not_block() -> None:
    group = classic(
        consumer("ann", [0, 1]), consumer("bob", [1, 9]), consumer("cid", [0], topic="gone"), protocol="mine"
    )
    found = dry_run_migration(group, "consumer", context({"orders": 3}))
    assert found.can
    assert notes(found) == ["own-assignor", "given-twice", "unknown-partitions"]
    assert found.notes[1].sentence.startswith("The leader assigned orders-1 to")
    assert found.notes[2].sentence.startswith("gone-0, orders-9 ")
    assert found.moves is not None and found.moves.lost == 2


def test_an_empty_group_can_always_migrate() -> None:
    found = dry_run_migration(classic(), "consumer", context({}, group_consumer_migration_policy="disabled"))
    assert found.can and notes(found) == ["empty"] and found.moves is None


# --- to a streams group ----------------------------------------------------------------------------


def application(**more: Any) -> ClassicGroup:
    ann = thread("ann", [("0", 0), ("0", 1)], [("0", 2)], **more)
    bob = thread("bob", [("0", 2), ("0", 3)], [("0", 0)], **more)
    return classic(ann, bob, protocol="stream")


def test_a_dry_run_without_a_topology() -> None:
    group = application(version=8)
    assert default_target(group) == "streams"
    found = dry_run_migration(group, "streams", context({"orders": 4}, **KIP))
    assert found.can and found.moves is None
    assert notes(found) == ["old-client", "standbys", "no-topology"]
    assert "2.6.1 to 2.7" in found.notes[0].sentence
    ann = found.members[0]
    assert (ann.has, ann.standby, ann.version) == ({"0_0", "0_1"}, {"0_2"}, 8)


def test_mode_kafka_blocks_the_migration_of_applications() -> None:
    found = dry_run_migration(application(), "streams", context({"orders": 4}), DryRunInputs(COUNTS))
    assert codes(found) == ["policy"]
    assert found.moves is not None and found.moves.stay == 4


def test_tasks_stay_and_standbys_follow_the_configuration() -> None:
    found = dry_run_migration(application(), "streams", context({"orders": 4}, **KIP), DryRunInputs(COUNTS))
    assert found.can and found.moves is not None
    assert notes(found) == ["standbys", "internal-topics"]
    assert (found.moves.stay, found.moves.move, found.moves.lost) == (4, 0, 0)
    assert (found.moves.copies_stay, found.moves.copies_removed) == (0, 2)
    kept = context({"orders": 4}, **KIP, group_streams_num_standby_replicas="1")
    found = dry_run_migration(application(), "streams", kept, DryRunInputs(COUNTS))
    assert found.moves is not None
    assert notes(found) == ["internal-topics"]
    assert (found.moves.stay, found.moves.copies_stay, found.moves.copies_removed) == (4, 2, 0)
    assert found.moves.copies_made == 2 and found.moves.settled


def test_a_missing_internal_topic_blocks_if_all_topics_are_known() -> None:
    """If all topics are known, a missing internal topic is a blocker."""
    found = dry_run_migration(
        application(), "streams", context({"orders": 4}, **KIP), DryRunInputs(COUNTS, unseen_topics=False)
    )
    assert codes(found) == ["not-ready"]
    assert "counts" in found.blockers[0].reason


@pytest.mark.parametrize(
    ("topology", "code"),
    [
        (sent(sub("0", "orders", state="counts"), sub("1", "other")), "not-ready"),
        (sent(sub("0", "orders")), "tasks"),
        (sent(sub("1", "orders", state="counts")), "tasks"),
        (sent(sub("first", "orders", state="counts")), "subtopologies"),
        (sent(sub("0", "orders customers", state="counts")), "topics"),
    ],
)
def test_a_topology_of_another_application_is_refused(topology: streams_wire.Topology, code: str) -> None:
    broker_context = context({"orders": 4, "customers": 4, "counts": 4}, **KIP)
    found = dry_run_migration(application(), "streams", broker_context, DryRunInputs(topology))
    assert codes(found)[0] == code
    assert found.moves is None


def test_the_first_blocker_of_an_application_is_why_the_coordinator_refuses() -> None:
    broker_context = context({"orders": 4, "counts": 4}, **KIP)._replace(api_version=1)
    other = sent(sub("0", "orders"))
    found = dry_run_migration(application(), "streams", broker_context, DryRunInputs(other))
    shard = GroupShard()
    shard.groups["g"] = application()
    request = streams_wire.StreamsGroupHeartbeatRequest(
        group_id="g", member_id="new", member_epoch=0, rebalance_timeout_ms=60_000, topology=other,
        process_id="p", active_tasks=(), standby_tasks=(), warmup_tasks=(),
    )  # fmt: skip
    response = shard.handle(request, broker_context).replies[0].response
    head = "Cannot upgrade classic group g to streams group because"
    assert response.error_message == f"{head} {found.blockers[0].reason}"


def test_a_group_with_another_assignor_is_no_application() -> None:
    assert codes(dry_run_migration(balanced(), "streams", context({"orders": 6}, **KIP))) == ["assignor"]


def test_an_application_is_no_consumer_group() -> None:
    assert set(codes(dry_run_migration(application(), "consumer", context({"orders": 4})))) == {"assignor"}


# --- back to a classic group -----------------------------------------------------------------------


def mixed(broker_context: Context, *classic_members: str) -> Any:
    """Return a consumer group of ann, who uses the consumer protocol, and classic members."""
    group = classic(*(consumer(name, []) for name in ("ann", *classic_members)))
    shard = GroupShard()
    shard.groups["g"] = group
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="ann", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",), topic_partitions=(),
    )  # fmt: skip
    for each in shard.handle(request, broker_context._replace(api_version=1)).records:
        shard.replay(each)
    return shard.groups["g"]


@pytest.mark.parametrize("policy", ["bidirectional", "downgrade", "upgrade", "disabled"])
@pytest.mark.parametrize("max_size", [1, 2, 3])
@pytest.mark.parametrize("names", [("bob",), ("bob", "cid")])
def test_a_downgrade_is_possible_if_the_coordinator_allows_it(
    policy: str, max_size: int, names: tuple[str, ...]
) -> None:
    group = mixed(context({"orders": 6}), *names)
    broker_context = context(
        {"orders": 6}, group_consumer_migration_policy=policy, group_max_size=str(max_size)
    )
    found = dry_run_migration(group, "classic", broker_context)
    assert notes(found) == ["still-new"] and found.notes[0].member_ids == ("ann",)
    assert found.can == conversion.may_downgrade(group, [group.members["ann"]], broker_context)


def test_a_group_without_classic_members_is_not_downgraded() -> None:
    found = dry_run_migration(mixed(context({"orders": 6})), "classic", context({}))
    assert found.can and notes(found) == ["no-classic-members"]


# --- clients and errors ----------------------------------------------------------------------------


def test_every_version_of_user_data_has_its_releases() -> None:
    assert [row.version for row in RELEASES] == list(range(1, LATEST_VERSION + 1))
    assert release_of(LATEST_VERSION + 1) is None


def test_a_failing_assignor_is_reported_with_the_coordinators_message() -> None:
    """An assignor that fails is a blocker, not a traceback."""
    from konvene.groups.assignors import Assignor, PartitionAssignorError

    def fails(spec: Any) -> Any:
        raise PartitionAssignorError("no")

    broker_context = context({"orders": 6})._replace(assignors={"mine": Assignor("mine", fails)})
    found = dry_run_migration(balanced(), "consumer", broker_context)
    assert found.blockers == (
        Blocker("refused", "Failed to compute a new target assignment for epoch 8: no"),
    )


def test_converted_members_keep_their_instance_ids() -> None:
    rolled = convert_to_consumer(balanced(), context({"orders": 6}))
    assert rolled.group.instances == {"i1": "bob-back"}
    assert rolled.group.members.keys() == {"ann", "bob-back"}
    assert rolled.group.classic_members == 0
