"""`ConsumerMember` (KIP-848) against a scripted coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import HANG_UP, ScriptedBroker

from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.consumer import Consumer
from konvene.client.consumer.membership import NO_CONSUMER_PROTOCOL
from konvene.client.consumer.modern_member import ConsumerMember
from konvene.client.errors import ClientError, KafkaError, Misconfigured, UnsupportedVersion
from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=5_000)
SOON = MemberSettings(rebalance_timeout_ms=5_000)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_INTERVAL_MS = 3_600_000
"""A heartbeat interval that never elapses during a test."""


def answer(epoch: int, **assigned: tuple[int, ...]) -> ConsumerGroupHeartbeatResponse:
    """Return a response with an assignment such as `t=(0, 1)`; the next heartbeat is due in 5 ms."""
    rows = tuple(TopicPartitions(topic_id=id_of(t), partitions=ps) for t, ps in assigned.items())
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5, assignment=Assignment(topic_partitions=rows)
    )


def unchanged(epoch: int, interval_ms: int = 5) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=interval_ms)


def error_response(error: Errors, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def id_of(topic: str) -> bytes:
    """Return the topic id that the scripted broker uses."""
    return topic.encode().ljust(16, b"-")


LEAVE_RESPONSE = ConsumerGroupHeartbeatResponse(member_epoch=-1)


def script(*answers: Any, topics: int = 4) -> ScriptedBroker:
    """Return a broker that answers heartbeats with these responses in order, repeating the last one."""
    rest = list(answers)

    def next_response(request: Any) -> Any:
        if request.member_epoch < 0:
            return LEAVE_RESPONSE.replace(member_epoch=request.member_epoch)
        found = rest[0] if len(rest) == 1 else rest.pop(0)
        return found(request) if callable(found) else found

    broker = ScriptedBroker(ConsumerGroupHeartbeat=next_response)
    broker.answers["Metadata"] = [broker.metadata(t=topics, u=1)]
    return broker


def run_member(
    broker: ScriptedBroker, job: Callable[[ConsumerMember], Awaitable[None]], **options: Any
) -> list[str]:
    """Run `job` with a member of group g; return its rebalance callbacks."""
    callbacks: list[str] = []

    def callback_named(event: str) -> Callable[[tuple[TopicPartition, ...]], Awaitable[None]]:
        async def write(partitions: tuple[TopicPartition, ...]) -> None:
            callbacks.append(f"{event} {' '.join(map(str, partitions))}".rstrip())

        return write

    async def run() -> None:
        async with Cluster(broker.address, QUICK) as cluster:
            settings = {"settings": SOON, "topics": ["t"]} | options
            member = ConsumerMember(
                cluster, "g", on_assigned=callback_named("assigned"),
                on_revoked=callback_named("revoked"), on_lost=callback_named("lost"),
                **settings,
            )  # fmt: skip
            await job(member)

    asyncio.run(run())
    return callbacks


async def until(done: Callable[[], bool], member: ConsumerMember) -> None:
    """Drive the member as a caller does until `done` is true."""
    async with asyncio.timeout(10):
        while not done():
            await member.ensure()
            await member.idle(20)


def heartbeats(broker: ScriptedBroker) -> list[Any]:
    return [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "ConsumerGroupHeartbeat"]


def test_a_member_joins_reconciles_and_leaves() -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0, T1), member)
        assert (member.epoch, member.topics, member.rejoin) == (2, ("t",), False)
        await member.leave("done for today")
        assert (member.state, member.assignment) == (MemberState.LEFT, ())
        await member.leave()
        with pytest.raises(ClientError, match="has left"):
            await member.ensure()

    with script(answer(2, t=(0, 1)), unchanged(2)) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0 t-1", "revoked t-0 t-1"]
    first, last = heartbeats(broker)[0], heartbeats(broker)[-1]
    assert (first.member_epoch, first.topic_partitions, last.member_epoch) == (0, (), -1)
    assert len(first.member_id) == 22 and {b.member_id for b in heartbeats(broker)} == {first.member_id}


def test_revocation_happens_in_ensure_and_is_reported_at_once() -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0, T1), member)
        async with asyncio.timeout(10):
            while not member.rejoin:
                await member.wait_for_response(100)
        assert member.assignment == (T0, T1)
        await member.ensure()
        assert member.assignment == (T0,)
        await until(lambda: member.assignment == (T0, TopicPartition("t", 2)), member)
        await member.leave()

    answers = (
        answer(2, t=(0, 1)), unchanged(2), answer(2, t=(0,)), answer(3, t=(0, 2)),
        unchanged(3, LONG_INTERVAL_MS),
    )  # fmt: skip
    with script(*answers) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0 t-1", "revoked t-1", "assigned", "assigned t-2", "revoked t-0 t-2"]
    reported = [None if b.topic_partitions is None else [list(r.partitions) for r in b.topic_partitions]
            for b in heartbeats(broker)]  # fmt: skip
    assert [t for t in reported if t is not None] == [[], [[0, 1]], [[0]], [[0, 2]]]


def test_target_received_during_revocation_supersedes_the_former() -> None:
    """Partitions of only the first target may belong to another member when its callback returns."""
    slow: list[str] = []

    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0, T1), member)

        async def wait_for_next_target(partitions: tuple[TopicPartition, ...]) -> None:
            version = member.membership.target_version
            while member.membership.target_version == version:
                assert await member.wait_for_response(5_000)
            slow.append(" ".join(map(str, partitions)))

        callback, member.on_revoked = member.on_revoked, wait_for_next_target
        await until(lambda: bool(slow), member)
        member.on_revoked = callback
        await until(lambda: not member.rejoin, member)
        assert member.assignment == (T1,)
        await member.leave()

    answers = (
        answer(2, t=(0, 1)), unchanged(2), answer(2, t=(1, 2)), answer(3, t=(1,)),
        unchanged(3, LONG_INTERVAL_MS),
    )  # fmt: skip
    with script(*answers) as broker:
        callbacks = run_member(broker, scenario)
    assert slow == ["t-0"]
    assert callbacks == ["assigned t-0 t-1", "assigned", "revoked t-1"]
    reported = [
        [list(r.partitions) for r in b.topic_partitions] for b in heartbeats(broker) if b.topic_partitions
    ]
    assert reported == [[[0, 1]], [[1]]]


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_fenced_member_loses_its_partitions_and_rejoins(error: Errors) -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: member.assignment == (T1,), member)
        await member.leave()

    with script(
        answer(2, t=(0,)), unchanged(2), error_response(error), answer(4, t=(1,)), unchanged(4)
    ) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0", "lost t-0", "assigned t-1", "revoked t-1"]
    assert [b.member_epoch for b in heartbeats(broker)][:5] == [0, 2, 2, 0, 4]


def test_full_heartbeat_follows_a_lost_connection() -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: len(heartbeats(broker)) >= 4, member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), HANG_UP, unchanged(2)) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0", "revoked t-0"]
    again = heartbeats(broker)[3]
    assert (again.member_epoch, again.rebalance_timeout_ms) == (2, 5_000)
    assert (again.subscribed_topic_names, len(again.topic_partitions)) == (("t",), 1)
    assert broker.apis.count("FindCoordinator") == 2


def test_static_member_retries_unreleased_instance_id_and_leaves_with_minus_2() -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await member.leave()

    unreleased = error_response(Errors.UNRELEASED_INSTANCE_ID)
    with script(unreleased, unreleased, answer(2, t=(0,)), unchanged(2)) as broker:
        run_member(broker, scenario, settings=SOON._replace(group_instance_id="i"))
    assert [b.member_epoch for b in heartbeats(broker)][:3] == [0, 0, 0]
    assert (heartbeats(broker)[-1].member_epoch, heartbeats(broker)[-1].instance_id) == (-2, "i")


def test_changed_subscription_is_sent_at_once() -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: len(heartbeats(broker)) >= 2, member)
        member.subscribe(regex="t|u")
        await until(lambda: TopicPartition("u", 0) in member.assignment, member)
        await member.leave()

    with script(
        answer(2, t=(0,)), unchanged(2, LONG_INTERVAL_MS), answer(3, t=(0,), u=(0,)), unchanged(3)
    ) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0", "assigned u-0", "revoked t-0 u-0"]
    assert (heartbeats(broker)[2].subscribed_topic_names, heartbeats(broker)[2].subscribed_topic_regex) == (
        (),
        "t|u",
    )


def test_recreated_topic_is_lost_and_assigned_again() -> None:
    """Offsets of the old topic must not be committed for the new one: its partitions are lost, not
    revoked."""
    both = TopicPartitions(topic_id=b"t".ljust(16, b"+"), partitions=(0,))
    anew = unchanged(3).replace(assignment=Assignment(topic_partitions=(both,)))

    def metadata(request: Any) -> Any:
        found = usual(request)
        if len(heartbeats(broker)) < 3:
            return found
        return found.replace(
            topics=tuple(t.replace(topic_id=both.topic_id) for t in found.topics if t.name == "t")
        )

    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: member.epoch == 3 and not member.rejoin, member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), anew, unchanged(3)) as broker:
        usual = broker.metadata(t=1)
        broker.answers["Metadata"] = [metadata]
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0", "lost t-0", "assigned t-0", "revoked t-0"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Errors.UNSUPPORTED_ASSIGNOR, "UNSUPPORTED_ASSIGNOR: there is none of that name"),
        (Errors.GROUP_MAX_SIZE_REACHED, "GROUP_MAX_SIZE_REACHED: there is none of that name"),
        (Errors.UNSUPPORTED_VERSION, f"UNSUPPORTED_VERSION: {NO_CONSUMER_PROTOCOL}"),
    ],
)
def test_fatal_error_is_raised_repeatedly_after_losing_partitions(error: Errors, message: str) -> None:
    async def scenario(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        with pytest.raises(KafkaError) as raised:
            await until(lambda: False, member)
        assert str(raised.value) == f"group g: {message}"
        with pytest.raises(KafkaError):
            await member.ensure()
        await member.leave()

    with script(
        answer(2, t=(0,)), unchanged(2), error_response(error, "there is none of that name")
    ) as broker:
        callbacks = run_member(broker, scenario)
    assert callbacks == ["assigned t-0", "lost t-0"]
    assert all(b.member_epoch >= 0 for b in heartbeats(broker))


def test_error_building_a_heartbeat_reaches_the_caller() -> None:
    async def scenario(member: ConsumerMember) -> None:
        def mistaken(*_: Any) -> Any:
            raise ZeroDivisionError

        member.membership.request = mistaken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await until(lambda: False, member)

    with script(answer(2, t=(0,))) as broker:
        run_member(broker, scenario)


def test_broker_without_the_protocol_raises_kafkas_message() -> None:
    async def scenario(member: ConsumerMember) -> None:
        with pytest.raises(UnsupportedVersion, match=r"Set group\.protocol=classic"):
            await member.ensure()

    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=1)]
        run_member(broker, scenario)


def test_missing_subscription_is_rejected() -> None:
    with pytest.raises(Misconfigured, match="a member subscribes to topics, or to a regular expression"):
        ConsumerMember(Cluster("h:1"), "g")


# as part of a consumer --------------------------------------------------------------------------


def committed(*codes: int) -> list[OffsetCommitResponse]:
    return [
        OffsetCommitResponse(
            topics=(
                OffsetCommitResponseTopic(
                    name="t", partitions=(OffsetCommitResponsePartition(error_code=c),)
                ),
            )
        )
        for c in codes
    ]


def consume(broker: ScriptedBroker, job: Callable[[Consumer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Cluster(broker.address, QUICK) as cluster:
            consumer = Consumer(cluster, "g", group_protocol="consumer", auto_commit=False)
            consumer.subscribe(["t"])
            assert isinstance(consumer.member, ConsumerMember)
            await until(lambda: consumer.assignment == (T0,), consumer.member)
            await job(consumer)

    asyncio.run(run())


def sent(broker: ScriptedBroker, name: str) -> list[Any]:
    return [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == name]


def test_stale_epoch_commit_is_retried_after_the_next_heartbeat() -> None:
    async def job(consumer: Consumer) -> None:
        await consumer.commit({T0: 5})

    with script(answer(2, t=(0,)), unchanged(2), unchanged(3), unchanged(4, LONG_INTERVAL_MS)) as broker:
        broker.answers["OffsetCommit"] = [
            lambda r: committed(Errors.STALE_MEMBER_EPOCH if r.generation_id_or_member_epoch < 4 else 0)[0]
        ]
        consume(broker, job)
    commits = sent(broker, "OffsetCommit")
    assert commits[-1].generation_id_or_member_epoch == 4
    assert {c.member_id for c in commits} == {heartbeats(broker)[0].member_id}
    assert {line for line in broker.request_log if "OffsetCommit" in line} == {"OffsetCommit v9"}


def test_offset_fetch_has_member_id_and_epoch() -> None:
    async def job(consumer: Consumer) -> None:
        assert await consumer.committed([T0]) == {}

    def fetched(request: Any) -> OffsetFetchResponse:
        stale = request.groups[0].member_epoch < 3
        code = Errors.STALE_MEMBER_EPOCH if stale else 0
        return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", error_code=code),))

    with script(answer(2, t=(0,)), unchanged(2), unchanged(3, LONG_INTERVAL_MS)) as broker:
        broker.answers["OffsetFetch"] = [fetched]
        consume(broker, job)
    last = sent(broker, "OffsetFetch")[-1].groups[0]
    assert (last.member_id, last.member_epoch) == (heartbeats(broker)[0].member_id, 3)


def test_pending_fetch_does_not_delay_revocation() -> None:
    """A pending Fetch does not delay revocation, and its late response is discarded."""

    async def job(consumer: Consumer) -> None:
        assert isinstance(consumer.member, ConsumerMember)
        async with asyncio.timeout(10):
            assert await consumer.poll(60_000) == []
        assert consumer.assignment == (T0,)
        await consumer.member.ensure()
        assert (consumer.assignment, consumer.positions) == ((T1,), {})
        await consumer.close()

    def moved(request: Any) -> ConsumerGroupHeartbeatResponse:
        return answer(3, t=(1,)) if "Fetch" in broker.apis else unchanged(2)

    def start(request: Any) -> ListOffsetsResponse:
        rows = tuple(
            ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=0)
            for p in request.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=rows),))

    nothing = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g"),))
    with script(answer(2, t=(0,)), moved) as broker:
        broker.answers |= {"Fetch": [None], "ListOffsets": [start], "OffsetFetch": [nothing]}
        consume(broker, job)
    assert broker.apis.count("Fetch") == 1
    assert heartbeats(broker)[-1].member_epoch == -1


def test_fenced_member_commits_nothing() -> None:
    """An empty group would accept a commit without member id."""

    async def job(consumer: Consumer) -> None:
        member = consumer.member
        assert isinstance(member, ConsumerMember)
        while member.state is not MemberState.FENCED:
            await member.wait_for_response(100)
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await consumer.commit({T0: 5})

    with script(answer(2, t=(0,)), unchanged(2), error_response(Errors.FENCED_MEMBER_EPOCH)) as broker:
        broker.answers["OffsetCommit"] = list(committed(0))
        consume(broker, job)
    assert sent(broker, "OffsetCommit") == []


def test_unsupported_settings_are_rejected_with_kafkas_message() -> None:
    cluster = Cluster("h:1")
    with pytest.raises(Misconfigured) as raised:
        Consumer(
            cluster, "g", group_protocol="CONSUMER", assignors=("range",),
            member=MemberSettings(session_timeout_ms=9_000, heartbeat_interval_ms=1_000),
        )  # fmt: skip
    assert str(raised.value) == (
        "partition.assignment.strategy, heartbeat.interval.ms, session.timeout.ms "
        "cannot be set when group.protocol=CONSUMER"
    )
    with pytest.raises(
        Misconfigured, match=r"^group\.remote\.assignor cannot be set when group\.protocol=CLASSIC$"
    ):
        Consumer(cluster, "g", group_remote_assignor="range")
    with pytest.raises(
        Misconfigured, match=r"Invalid value new for configuration group\.protocol: String must"
    ):
        Consumer(cluster, "g", group_protocol="new")
    with pytest.raises(Misconfigured, match=r"needs group\.protocol=consumer"):
        Consumer(cluster, "g").subscribe(regex="t.*")
