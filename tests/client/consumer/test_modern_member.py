"""What a member of a consumer group does with what its coordinator says: against a scripted one."""

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
HELD = 3_600_000
"""An interval within which nobody is heard of again by itself."""


def answer(epoch: int, **assigned: tuple[int, ...]) -> ConsumerGroupHeartbeatResponse:
    """`t=(0, 1)`: what is assigned; the next heartbeat is due in 5 ms."""
    rows = tuple(TopicPartitions(topic_id=id_of(t), partitions=ps) for t, ps in assigned.items())
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5, assignment=Assignment(topic_partitions=rows)
    )


def unchanged(epoch: int, interval_ms: int = 5) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=interval_ms)


def refused(error: Errors, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def id_of(topic: str) -> bytes:
    """As the scripted broker makes them."""
    return topic.encode().ljust(16, b"-")


GOODBYE = ConsumerGroupHeartbeatResponse(member_epoch=-1)


def script(*answers: Any, topics: int = 4) -> ScriptedBroker:
    """Heartbeats are answered with these in turn, the last one again and again; goodbyes are always."""
    rest = list(answers)

    def next_one(request: Any) -> Any:
        if request.member_epoch < 0:
            return GOODBYE.replace(member_epoch=request.member_epoch)
        found = rest[0] if len(rest) == 1 else rest.pop(0)
        return found(request) if callable(found) else found

    broker = ScriptedBroker(ConsumerGroupHeartbeat=next_one)
    broker.answers["Metadata"] = [broker.metadata(t=topics, u=1)]
    return broker


def play(
    broker: ScriptedBroker, job: Callable[[ConsumerMember], Awaitable[None]], **options: Any
) -> list[str]:
    """Run `job` with a member of group g; gives what happened to its partitions."""
    happened: list[str] = []

    def note(word: str) -> Callable[[tuple[TopicPartition, ...]], Awaitable[None]]:
        async def write(partitions: tuple[TopicPartition, ...]) -> None:
            happened.append(f"{word} {' '.join(map(str, partitions))}".rstrip())

        return write

    async def whole() -> None:
        async with Cluster(broker.address, QUICK) as cluster:
            settings = {"settings": SOON, "topics": ["t"]} | options
            member = ConsumerMember(
                cluster, "g", on_assigned=note("assigned"), on_revoked=note("revoked"), on_lost=note("lost"),
                **settings,
            )  # fmt: skip
            await job(member)

    asyncio.run(whole())
    return happened


async def until(done: Callable[[], bool], member: ConsumerMember) -> None:
    """Come by, as a caller does, until it is so."""
    async with asyncio.timeout(10):
        while not done():
            await member.ensure()
            await member.idle(20)


def beats(broker: ScriptedBroker) -> list[Any]:
    return [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "ConsumerGroupHeartbeat"]


def test_a_member_joins_reconciles_and_leaves() -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0, T1), member)
        assert (member.epoch, member.topics, member.rejoin) == (2, ("t",), False)
        await member.leave("done for today")
        assert (member.state, member.assignment) == (MemberState.LEFT, ())
        await member.leave()
        with pytest.raises(ClientError, match="has left"):
            await member.ensure()

    with script(answer(2, t=(0, 1)), unchanged(2)) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0 t-1", "revoked t-0 t-1"]
    first, last = beats(broker)[0], beats(broker)[-1]
    assert (first.member_epoch, first.topic_partitions, last.member_epoch) == (0, (), -1)
    assert len(first.member_id) == 22 and {b.member_id for b in beats(broker)} == {first.member_id}


def test_partitions_change_hands_only_when_the_caller_comes_by_and_then_it_is_said_at_once() -> None:
    async def life(member: ConsumerMember) -> None:
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
        answer(2, t=(0, 1)), unchanged(2), answer(2, t=(0,)), answer(3, t=(0, 2)), unchanged(3, HELD),
    )  # fmt: skip
    with script(*answers) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0 t-1", "revoked t-1", "assigned", "assigned t-2", "revoked t-0 t-2"]
    told = [None if b.topic_partitions is None else [list(r.partitions) for r in b.topic_partitions]
            for b in beats(broker)]  # fmt: skip
    assert [t for t in told if t is not None] == [[], [[0, 1]], [[0]], [[0, 2]]]


def test_of_two_targets_the_later_one_counts_also_if_it_comes_while_something_is_given_up() -> None:
    """What only the first one granted may be another's by the time that its callback is done."""
    slow: list[str] = []

    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0, T1), member)

        async def hears_of_another(partitions: tuple[TopicPartition, ...]) -> None:
            turn = member.membership.target_version
            while member.membership.target_version == turn:
                assert await member.wait_for_response(5_000)
            slow.append(" ".join(map(str, partitions)))

        given_up, member.on_revoked = member.on_revoked, hears_of_another
        await until(lambda: bool(slow), member)
        member.on_revoked = given_up
        await until(lambda: not member.rejoin, member)
        assert member.assignment == (T1,)
        await member.leave()

    answers = (
        answer(2, t=(0, 1)), unchanged(2), answer(2, t=(1, 2)), answer(3, t=(1,)), unchanged(3, HELD),
    )  # fmt: skip
    with script(*answers) as broker:
        happened = play(broker, life)
    assert slow == ["t-0"]
    assert happened == ["assigned t-0 t-1", "assigned", "revoked t-1"]
    told = [[list(r.partitions) for r in b.topic_partitions] for b in beats(broker) if b.topic_partitions]
    assert told == [[[0, 1]], [[1]]]


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_thrown_out_has_lost_its_partitions_and_joins_anew(error: Errors) -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: member.assignment == (T1,), member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), refused(error), answer(4, t=(1,)), unchanged(4)) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0", "lost t-0", "assigned t-1", "revoked t-1"]
    assert [b.member_epoch for b in beats(broker)][:5] == [0, 2, 2, 0, 4]


def test_after_a_lost_connection_everything_is_told_to_whoever_coordinates_then() -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: len(beats(broker)) >= 4, member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), HANG_UP, unchanged(2)) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0", "revoked t-0"]
    again = beats(broker)[3]
    assert (again.member_epoch, again.rebalance_timeout_ms) == (2, 5_000)
    assert (again.subscribed_topic_names, len(again.topic_partitions)) == (("t",), 1)
    assert broker.apis.count("FindCoordinator") == 2


def test_a_static_member_waits_for_its_former_self_to_leave_and_says_that_it_will_be_back() -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await member.leave()

    unreleased = refused(Errors.UNRELEASED_INSTANCE_ID)
    with script(unreleased, unreleased, answer(2, t=(0,)), unchanged(2)) as broker:
        play(broker, life, settings=SOON._replace(group_instance_id="i"))
    assert [b.member_epoch for b in beats(broker)][:3] == [0, 0, 0]
    assert (beats(broker)[-1].member_epoch, beats(broker)[-1].instance_id) == (-2, "i")


def test_a_subscription_that_changes_is_told_at_once() -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: len(beats(broker)) >= 2, member)
        member.subscribe(regex="t|u")
        await until(lambda: TopicPartition("u", 0) in member.assignment, member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2, HELD), answer(3, t=(0,), u=(0,)), unchanged(3)) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0", "assigned u-0", "revoked t-0 u-0"]
    assert (beats(broker)[2].subscribed_topic_names, beats(broker)[2].subscribed_topic_regex) == ((), "t|u")


def test_a_topic_that_was_made_anew_is_not_the_one_that_was_held() -> None:
    """What was read of the old one must not be committed for the new one: it is lost, not revoked."""
    both = TopicPartitions(topic_id=b"t".ljust(16, b"+"), partitions=(0,))
    anew = unchanged(3).replace(assignment=Assignment(topic_partitions=(both,)))

    def metadata(request: Any) -> Any:
        found = usual(request)
        if len(beats(broker)) < 3:
            return found
        return found.replace(
            topics=tuple(t.replace(topic_id=both.topic_id) for t in found.topics if t.name == "t")
        )

    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        await until(lambda: member.epoch == 3 and not member.rejoin, member)
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), anew, unchanged(3)) as broker:
        usual = broker.metadata(t=1)
        broker.answers["Metadata"] = [metadata]
        happened = play(broker, life)
    assert happened == ["assigned t-0", "lost t-0", "assigned t-0", "revoked t-0"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Errors.UNSUPPORTED_ASSIGNOR, "UNSUPPORTED_ASSIGNOR: there is none of that name"),
        (Errors.GROUP_MAX_SIZE_REACHED, "GROUP_MAX_SIZE_REACHED: there is none of that name"),
        (Errors.UNSUPPORTED_VERSION, f"UNSUPPORTED_VERSION: {NO_CONSUMER_PROTOCOL}"),
    ],
)
def test_what_nothing_can_mend_is_raised_each_time_after_all_was_lost(error: Errors, words: str) -> None:
    async def life(member: ConsumerMember) -> None:
        await until(lambda: member.assignment == (T0,), member)
        with pytest.raises(KafkaError) as raised:
            await until(lambda: False, member)
        assert str(raised.value) == f"group g: {words}"
        with pytest.raises(KafkaError):
            await member.ensure()
        await member.leave()

    with script(answer(2, t=(0,)), unchanged(2), refused(error, "there is none of that name")) as broker:
        happened = play(broker, life)
    assert happened == ["assigned t-0", "lost t-0"]
    assert all(b.member_epoch >= 0 for b in beats(broker))


def test_a_mistake_in_making_a_heartbeat_is_seen_by_the_caller() -> None:
    async def life(member: ConsumerMember) -> None:
        def mistaken(*_: Any) -> Any:
            raise ZeroDivisionError

        member.membership.request = mistaken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await until(lambda: False, member)

    with script(answer(2, t=(0,))) as broker:
        play(broker, life)


def test_a_broker_without_the_protocol_is_told_of_in_the_words_of_kafka() -> None:
    async def life(member: ConsumerMember) -> None:
        with pytest.raises(UnsupportedVersion, match=r"Set group\.protocol=classic"):
            await member.ensure()

    with ScriptedBroker() as broker:
        broker.answers["Metadata"] = [broker.metadata(t=1)]
        play(broker, life)


def test_who_subscribes_to_nothing_is_told() -> None:
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
    async def whole() -> None:
        async with Cluster(broker.address, QUICK) as cluster:
            consumer = Consumer(cluster, "g", group_protocol="consumer", auto_commit=False)
            consumer.subscribe(["t"])
            assert isinstance(consumer.member, ConsumerMember)
            await until(lambda: consumer.assignment == (T0,), consumer.member)
            await job(consumer)

    asyncio.run(whole())


def sent(broker: ScriptedBroker, name: str) -> list[Any]:
    return [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == name]


def test_a_commit_of_an_outdated_epoch_is_tried_again_after_the_next_heartbeat() -> None:
    async def job(consumer: Consumer) -> None:
        await consumer.commit({T0: 5})

    with script(answer(2, t=(0,)), unchanged(2), unchanged(3), unchanged(4, HELD)) as broker:
        broker.answers["OffsetCommit"] = [
            lambda r: committed(Errors.STALE_MEMBER_EPOCH if r.generation_id_or_member_epoch < 4 else 0)[0]
        ]
        consume(broker, job)
    commits = sent(broker, "OffsetCommit")
    assert commits[-1].generation_id_or_member_epoch == 4
    assert {c.member_id for c in commits} == {beats(broker)[0].member_id}
    assert {line for line in broker.asked if "OffsetCommit" in line} == {"OffsetCommit v9"}


def test_committed_offsets_are_asked_for_with_member_and_epoch() -> None:
    async def job(consumer: Consumer) -> None:
        assert await consumer.committed([T0]) == {}

    def fetched(request: Any) -> OffsetFetchResponse:
        stale = request.groups[0].member_epoch < 3
        code = Errors.STALE_MEMBER_EPOCH if stale else 0
        return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", error_code=code),))

    with script(answer(2, t=(0,)), unchanged(2), unchanged(3, HELD)) as broker:
        broker.answers["OffsetFetch"] = [fetched]
        consume(broker, job)
    last = sent(broker, "OffsetFetch")[-1].groups[0]
    assert (last.member_id, last.member_epoch) == (beats(broker)[0].member_id, 3)


def test_partitions_change_hands_though_no_records_come_and_what_comes_late_is_of_no_use() -> None:
    """A Fetch waits as long as it was told to; the other members need not."""

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
    assert beats(broker)[-1].member_epoch == -1


def test_who_is_not_in_the_group_commits_nothing() -> None:
    """The group may be empty by now, and would take it from anybody."""

    async def job(consumer: Consumer) -> None:
        member = consumer.member
        assert isinstance(member, ConsumerMember)
        while member.state is not MemberState.FENCED:
            await member.wait_for_response(100)
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await consumer.commit({T0: 5})

    with script(answer(2, t=(0,)), unchanged(2), refused(Errors.FENCED_MEMBER_EPOCH)) as broker:
        broker.answers["OffsetCommit"] = list(committed(0))
        consume(broker, job)
    assert sent(broker, "OffsetCommit") == []


def test_settings_that_the_protocol_lacks_are_refused_in_the_words_of_kafka() -> None:
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
