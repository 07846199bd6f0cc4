"""Client quotas on a broker: throttle times, muted connections, empty fetches, mutation quotas.

The clocks of the quotas are set by the tests. Muting is ended by them as well, so that nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.forged import sound
from tests.broker.net.raw_connections import Direct, until
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.broker.net.client_quotas import RequestUsage, timed
from konvene.client.admin.admin import Admin
from konvene.client.net.cluster import Cluster
from konvene.codec.compile import encode
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import API_KEYS, BY_NAME
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from konvene.messages.write_txn_markers import WriteTxnMarkersRequest

CLIENT = (("client-id", "c"),)
USER = (("user", "ANONYMOUS"),)


class Client(Direct):
    """A connection without a socket whose quotas have a clock of the test's."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, [])
        self.broker = broker
        self.is_reading = True
        self.wire.pause_reading = self._pause  # type: ignore[method-assign]
        self.wire.resume_reading = self._resume  # type: ignore[method-assign]
        self.now_ms = 1_000_000
        broker.client_quotas.clock_ms = lambda: self.now_ms

    def _pause(self) -> None:
        self.is_reading = False

    def _resume(self) -> None:
        self.is_reading = True

    @property
    def muted_ms(self) -> float:
        """Return for how long the connection is muted from now on, about; 0 if it is not."""
        timer = self.connection._muted
        return 0 if timer is None else (timer.when() - self.broker.loop.time()) * 1000

    def unmute(self) -> None:
        timer = self.connection._muted
        assert timer is not None
        timer.cancel()
        self.connection._unmute()

    async def ask(self, request: Struct, version: int) -> Any:  # type: ignore[override]
        """Send a request and return its response; None if the connection is muted or idle without one."""
        self.wire.last = b""
        self.send(BY_NAME[type(request).__name__.removesuffix("Request")].key, version, request)
        await until(
            lambda: self.wire.last or self.connection.is_idle or self.connection._muted is not None, 30
        )
        return self.last_answer() if self.wire.last else None


@asynccontextmanager
async def client(path: Path, **settings: str) -> AsyncIterator[Client]:
    async with running(path, {key.replace("_", "."): value for key, value in settings.items()}) as broker:
        made = Client(broker)
        await made.ask(create("t"), 7)
        yield made
        made.end()


def run(path: Path, scenario: Callable[[Client], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with client(path, **settings) as made:
            await scenario(made)

    asyncio.run(main())


def create(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
        )
    )


def produce(size: int, acks: int = 1) -> ProduceRequest:
    """Return a request whose only record has a value of `size` bytes."""
    records = sound(bytes(size))
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1_000, topic_data=(TopicProduceData(name="t", partition_data=(data,)),)
    )


def fetch(session_id: int = 0, epoch: int = 0, offset: int = 0, max_bytes: int = 1 << 30) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0, max_bytes=max_bytes, session_id=session_id, session_epoch=epoch,
        topics=(FetchTopic(topic="t", partitions=(partition,)),),
    )  # fmt: skip


def size_of(request: Struct, key: int, version: int, made: Client) -> int:
    return len(Direct.frame(made, key, version, request)) - 4


def test_a_producer_over_its_quota_is_answered_and_muted(tmp_path: Path) -> None:
    """The throttle time is Kafka's; until it is over the next request waits, and nothing is read."""

    async def scenario(made: Client) -> None:
        made.broker.client_quotas.update([(CLIENT, {"producer_byte_rate": 100.0})])
        assert (await made.ask(produce(100), 9)).throttle_time_ms == 0
        first = size_of(produce(100), 0, 9, made)
        second = size_of(produce(3_000), 0, 9, made)
        response = await made.ask(produce(3_000), 9)
        assert response.responses[0].partition_responses[0].base_offset == 1
        expected = round(((first + second) / 10 - 100) / 100 * 10_000)
        assert response.throttle_time_ms == expected
        assert not made.is_reading
        assert made.muted_ms == pytest.approx(expected, rel=0.5)

        assert await made.ask(ApiVersionsRequest(), 0) is None
        made.unmute()
        assert made.is_reading
        assert made.last_answer().throttle_time_ms == 0

        other = made.broker.client_quotas
        other.update([])
        assert not other.is_enabled
        assert (await made.ask(produce(3_000), 9)).throttle_time_ms == 0

    run(tmp_path, scenario)


def test_a_producer_without_acks_is_muted(tmp_path: Path) -> None:
    """It gets no response, and does not count against a quota on processing time."""

    async def scenario(made: Client) -> None:
        quotas = made.broker.client_quotas
        quotas.update([(USER, {"producer_byte_rate": 10.0, "request_percentage": 1e-9})])
        assert await made.ask(produce(1_000, acks=0), 9) is None
        assert not made.is_reading
        assert [sensor.rate.measure(made.now_ms) for _, sensor in quotas.request.latest()] == []
        made.unmute()

    run(tmp_path, scenario)


def test_a_throttled_fetch_is_empty_and_does_not_count(tmp_path: Path) -> None:
    """Its session stays as it is: when the client fetches again, it gets the records."""

    async def scenario(made: Client) -> None:
        for _ in range(2):
            await made.ask(produce(500), 9)
        quotas = made.broker.client_quotas
        opened = await made.ask(fetch(offset=2), 12)
        session = opened.session_id
        assert session
        quotas.update([(CLIENT, {"consumer_byte_rate": 80.0})])
        assert (await made.ask(fetch(session, 1, offset=0), 12)).responses
        throttled = await made.ask(fetch(session, 2, offset=1), 12)
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, ())
        assert throttled.throttle_time_ms > 0
        assert made.muted_ms > 0
        ((_, sensor),) = quotas.fetch.latest()
        before = sensor.rate.measure(made.now_ms)
        assert before <= 80
        made.unmute()
        made.now_ms += 20_000
        answered = await made.ask(fetch(session, 3, offset=1), 12)
        assert answered.throttle_time_ms == 0
        assert len(answered.responses[0].partitions[0].records) > 500

        full = await made.ask(fetch(), 12)
        assert (full.session_id, full.responses) == (0, ())
        made.unmute()

    run(tmp_path, scenario)


def test_a_fetch_reads_no_more_than_its_quota_ever_permits(tmp_path: Path) -> None:
    """A response that would be throttled for sure is not read, except for one batch."""

    async def scenario(made: Client) -> None:
        for _ in range(5):
            await made.ask(produce(500), 9)
        made.broker.client_quotas.update([(CLIENT, {"consumer_byte_rate": 140.0})])
        response = await made.ask(fetch(), 12)
        assert response.throttle_time_ms == 0
        assert 1_000 < len(response.responses[0].partitions[0].records) <= 1_400

    run(tmp_path, scenario)


def test_processing_time_is_limited(tmp_path: Path) -> None:
    """The throttle time is at most one window, and cached responses count as well."""

    async def scenario(made: Client) -> None:
        quotas, ticks = made.broker.client_quotas, iter(range(1_000_000_000, 1 << 60, 5_000_000))
        quotas.clock_ns = lambda: next(ticks)
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        quotas.update([(USER, {"request_percentage": 1.0})])
        answers = [await made.ask(request, 3)]
        while not answers[-1].throttle_time_ms:
            answers.append(await made.ask(request, 3))
            assert len(answers) < 100
        assert len(answers) > 3
        assert len(made.broker.response_cache) == 1
        assert 0 < answers[-1].throttle_time_ms <= 1_000
        assert made.muted_ms > 0
        made.unmute()
        quotas.update([(USER, {"request_percentage": 0.001})])
        assert (await made.ask(request, 3)).throttle_time_ms == 1_000
        made.unmute()
        assert (await made.ask(WriteTxnMarkersRequest(markers=()), 1)) is not None
        assert made.muted_ms == 0

    run(tmp_path, scenario)


def test_the_steps_of_a_coroutine_are_measured() -> None:
    """Not the time for which it waits; results and errors pass through."""
    ticks = iter(range(1, 100))

    class Quotas:
        clock_ns = staticmethod(lambda: next(ticks))

    async def answer(fails: bool) -> str:
        await asyncio.sleep(0)
        if fails:
            raise ValueError("made up")
        await asyncio.sleep(0)
        return "done"

    async def main() -> None:
        usage = RequestUsage(Quotas, "u", "c", 0, 0)  # type: ignore[arg-type]
        assert await timed(answer(fails=False), usage) == "done"
        assert usage._processing_ns == 3
        with pytest.raises(ValueError, match="made up"):
            await timed(answer(fails=True), usage)
        assert usage._processing_ns == 5
        waiting = asyncio.create_task(_wrap(timed(asyncio.sleep(60), usage)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


async def _wrap(answer: Any) -> None:
    await answer


def test_a_strict_mutation_quota_rejects_and_a_permissive_one_throttles(tmp_path: Path) -> None:
    """What exceeds the quota is accepted once; then it depends on the version of the request."""

    async def scenario(made: Client) -> None:
        quotas = made.broker.client_quotas
        quotas.update([(USER, {"controller_mutation_rate": 1.0})])
        rejected = Errors.THROTTLING_QUOTA_EXCEEDED

        # A burst of 11 tokens: `a` and `b` use 18, and nothing is left for `c`.
        made_topics = await made.ask(create("a", "b", "c", partitions=9), 7)
        assert [topic.error_code for topic in made_topics.topics] == [0, 0, rejected]
        assert made_topics.topics[2].error_message == "The throttling quota has been exceeded."
        assert made_topics.throttle_time_ms == 7_000
        made.unmute()

        growing = CreatePartitionsTopic(name="a", count=10, assignments=None)
        grown = await made.ask(CreatePartitionsRequest(topics=(growing,)), 3)
        assert (grown.results[0].error_code, grown.throttle_time_ms) == (rejected, 7_000)
        made.unmute()
        deleted = await made.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="b"),)), 6)
        assert [(r.name, r.error_code) for r in deleted.responses] == [("b", rejected)]
        made.unmute()
        found = await made.ask(
            MetadataRequest(topics=(MetadataRequestTopic(name="auto"),), allow_auto_topic_creation=True), 9
        )
        assert found.topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION

        made.now_ms += 7_000
        grown = await made.ask(CreatePartitionsRequest(topics=(growing,)), 2)
        assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 1_000)
        made.unmute()
        deleted = await made.ask(DeleteTopicsRequest(topic_names=("b",)), 4)
        assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 10_000)
        made.unmute()

    run(tmp_path, scenario)


def test_altered_quotas_apply_at_once_and_after_a_restart(tmp_path: Path) -> None:
    """The user's quota is that of all clients of the principal."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await _alter({"user": "ANONYMOUS"}, {"producer_byte_rate": 10}, broker)
            assert broker.client_quotas.produce.record("ANONYMOUS", "any", 200, 0) == 10_000
            assert broker.client_quotas.produce.record("bob", "any", 200, 0) == 0
        async with running(tmp_path) as broker:
            assert broker.client_quotas.is_enabled
            assert not broker.client_quotas.limits_requests
            assert broker.client_quotas.produce.record("ANONYMOUS", "any", 200, 0) == 10_000

    asyncio.run(main())


async def _alter(entity: dict[str, str | None], changes: dict[str, float | None], broker: Broker) -> None:
    async with Cluster(f"127.0.0.1:{broker.catalogue.advertised[1]}") as cluster:
        await Admin(cluster).alter_client_quotas(entity, changes)


def test_a_throttle_time_fits_into_every_version() -> None:
    """Versions of a response without the field are encoded without it."""
    for api in API_KEYS.values():
        if "throttle_time_ms" in {field.name for field in api.response.__fields__}:
            for version in range(api.versions.first, api.latest_stable + 1):
                encode(api.response(throttle_time_ms=7), version)
