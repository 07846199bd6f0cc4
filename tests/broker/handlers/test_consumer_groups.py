"""ConsumerGroupHeartbeat and ConsumerGroupDescribe before they reach a coordinator: authorization and errors.

The coordinator's decisions are set by the tests; other modules test those."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.net.raw_connections import Line
from tests.broker.rights import Rights

from konvene.broker.net.frames import routes
from konvene.broker.net.router import HANDLERS as FILES
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups import shard
from konvene.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.security.resources import Operation, topic
from konvene.security.resources import group as group_resource
from konvene.shard.contract import Arm, Context, Outcome, Reply

NO, NONE = Errors.UNSUPPORTED_VERSION, Errors.NONE
GROUP = 32
OFF = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
ON = FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
BEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
DESCRIBE = ConsumerGroupDescribeRequest(group_ids=("g", "h"))

Decide = Callable[[Any, Context], Any]


def beaten(request: Any, context: Context) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=1)


def described(request: Any, context: Context) -> ConsumerGroupDescribeResponse:
    (group_id,) = request.group_ids
    topic = TopicPartitions(topic_name=f"of-{group_id}", partitions=(0,))
    member = Member(member_id="m", target_assignment=Assignment(topic_partitions=(topic,)))
    return ConsumerGroupDescribeResponse(groups=(DescribedGroup(group_id=group_id, members=(member,)),))


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Responses of a stubbed shard; `seen` has the context of each request."""
    core: dict[str, Any] = {"beaten": beaten, "described": described, "seen": []}

    def stub_handler(name: str) -> Callable[[Any, Any, Context], Outcome]:
        def decide(_shard: Any, request: Any, context: Context) -> Outcome:
            core["seen"].append(context)
            return Outcome((Reply(context.waiter, core[name](request, context)),))

        return decide

    monkeypatch.setitem(shard.HANDLERS, ConsumerGroupHeartbeatRequest, stub_handler("beaten"))
    monkeypatch.setitem(shard.HANDLERS, ConsumerGroupDescribeRequest, stub_handler("described"))
    return core


async def ready(client: BrokerClient) -> Coordinator:
    await client.broker.groups.make_ready()
    await client.broker.groups.loaded()
    found = client.broker.groups.of("g")
    assert found is not None
    return found


async def codes(client: BrokerClient) -> list[int]:
    beat, groups = await client.send(BEAT), (await client.send(DESCRIBE)).groups
    assert [group.group_id for group in groups] == ["g", "h"]
    return [beat.error_code, *(group.error_code for group in groups)]


def test_settings_can_disable_the_protocol(tmp_path: Path, core: dict[str, Any]) -> None:
    """Then no request reaches a coordinator, whatever the feature's level."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        assert await codes(client) == [NO, NO, NO]
        assert core["seen"] == []

    run_with_broker(tmp_path, scenario, {"group.coordinator.rebalance.protocols": "classic"})


def test_feature_enables_and_disables_consumer_groups(tmp_path: Path) -> None:
    """At once, also for clients with a cached response."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        assert await codes(client) == [NONE, NONE, NONE]
        for update, expected in ((OFF, NO), (ON, NONE)):
            answer = await client.send(UpdateFeaturesRequest(feature_updates=(update,)))
            assert answer.error_code == NONE
            assert await codes(client) == [expected] * 3

    run_with_broker(tmp_path, scenario)


def test_requests_without_a_coordinator_are_rejected(tmp_path: Path) -> None:
    """Before the coordinator exists, and while it is loading."""

    async def scenario(client: BrokerClient) -> None:
        assert await codes(client) == [Errors.NOT_COORDINATOR] * 3
        await ready(client)
        for coordinator in client.broker.groups.all():
            coordinator.reload(60_000)
        assert await codes(client) == [Errors.COORDINATOR_LOAD_IN_PROGRESS] * 3

    run_with_broker(tmp_path, scenario)


def test_member_without_an_id_gets_a_fresh_one(tmp_path: Path, core: dict[str, Any]) -> None:
    """Each in Kafka's format. With a member id no random id is generated."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        join = BEAT.replace(member_id="", member_epoch=0)
        for request in (join, join, BEAT):
            await client.send(request, 0)
        (one,), (two,), none = (context.fresh_ids for context in core["seen"])
        assert one != two
        assert str(Uuid.parse(one)) == one
        assert none == ()

    run_with_broker(tmp_path, scenario)


def test_description_has_authorized_operations(tmp_path: Path, core: dict[str, Any]) -> None:
    """If requested, and if the group exists."""

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        plain = (await client.send(DESCRIBE)).groups[0]
        full = (await client.send(DESCRIBE.replace(include_authorized_operations=True))).groups[0]
        assert plain.authorized_operations == -(1 << 31)
        assert full.authorized_operations > 0
        missing = DescribedGroup(group_id="g", error_code=Errors.GROUP_ID_NOT_FOUND)
        core["described"] = lambda request, context: ConsumerGroupDescribeResponse(groups=(missing,))
        (group,) = (
            await client.send(
                ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=True)
            )
        ).groups
        assert (group.error_code, group.authorized_operations) == (Errors.GROUP_ID_NOT_FOUND, -(1 << 31))
        (nameless,) = (await client.send(ConsumerGroupDescribeRequest(group_ids=("",)))).groups
        assert nameless.error_code == Errors.INVALID_GROUP_ID

    run_with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("may", "beat", "seen"),
    [
        ({"g", "a", "b"}, NONE, NONE),
        ({"a", "b"}, Errors.GROUP_AUTHORIZATION_FAILED, Errors.GROUP_AUTHORIZATION_FAILED),
        ({"g", "a"}, Errors.TOPIC_AUTHORIZATION_FAILED, NONE),
        ({"g", "b"}, Errors.TOPIC_AUTHORIZATION_FAILED, Errors.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_unauthorized_group_or_topic_is_rejected(
    tmp_path: Path, core: dict[str, Any], may: set[str], beat: Errors, seen: Errors
) -> None:
    """The group is checked first; a described group's topics are those of its members."""

    def described(request: Any, context: Context) -> ConsumerGroupDescribeResponse:
        had = Assignment(topic_partitions=(TopicPartitions(topic_name="a", partitions=(0,)),))
        group = DescribedGroup(group_id="g", members=(Member(member_id="m", assignment=had),))
        return ConsumerGroupDescribeResponse(groups=(group,))

    core["described"] = described

    async def scenario(client: BrokerClient) -> None:
        await ready(client)
        table = routes({k: FILES[k] for k in (68, 69)}, client.broker.services)
        resources = {group_resource("g"), topic("a"), topic("b")}
        rights = {(o, r) for r in resources if r.name in may for o in (Operation.READ, Operation.DESCRIBE)}
        client.broker.authorization.replace(Rights(*rights))
        request = BEAT.replace(subscribed_topic_names=("a", "b"))
        answer = table[68].handler(request, RequestContext())
        assert answer.error_code == beat
        answer = await table[69].handler(ConsumerGroupDescribeRequest(group_ids=("g",)), RequestContext())
        (group,) = answer.groups
        assert (group.error_code, bool(group.members)) == (seen, seen is NONE)
        if seen is Errors.TOPIC_AUTHORIZATION_FAILED:
            assert group.error_message == (
                "The group has described topic(s) that the client is not authorized to describe."
            )

    run_with_broker(tmp_path, scenario)


def test_repeated_heartbeat_is_cached_until_the_catalogue_changes(
    tmp_path: Path, core: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a topic, a setting or a feature invalidates the cache."""
    cached = SimpleNamespace(member=SimpleNamespace(instance_id=None))
    same = (cached, (Arm(("session", "g", "m"), 45_000),))
    monkeypatch.setattr(shard.GroupShard, "cacheable", lambda _shard, *_: same)
    monkeypatch.setattr(shard.GroupShard, "is_current", lambda _shard, value: value is cached)

    async def scenario(client: BrokerClient) -> None:
        coordinator = await ready(client)
        line = await Line.to(client.broker, None)

        async def read() -> int:
            """Return how many of three heartbeats of a connection are decoded."""
            before = len(core["seen"])
            for _ in range(3):
                assert (await line.beat(BEAT)).error_code == NONE
            return len(core["seen"]) - before

        assert [await read(), await read()] == [1, 0]
        assert ("session", "g", "m") in coordinator.deadlines
        change = AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="6000")
        group = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=(change,))
        await client.topic("t")
        assert [await read(), await read()] == [1, 0]
        await client.drop("t")
        assert [await read(), await read()] == [1, 0]
        await client.send(IncrementalAlterConfigsRequest(resources=(group,)))
        assert [await read(), await read()] == [1, 0]
        await client.send(UpdateFeaturesRequest(feature_updates=(OFF,)))
        assert (await client.send(BEAT)).error_code == NO
        await client.send(UpdateFeaturesRequest(feature_updates=(ON,)))
        assert [await read(), await read()] == [1, 0]

    run_with_broker(tmp_path, scenario)
