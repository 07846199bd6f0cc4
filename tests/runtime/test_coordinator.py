"""Coordinator runtime: durability before responses, group commit, and recovery from failed writes.

No response reveals records that are not durable. One sync completes all requests pending on it. After a
failed append or sync, the pending requests fail and the shard is reloaded from the log. An outcome too large
for a batch is rejected as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.codec.batches import BatchHeader, batches, build_simple
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.groups.shard import GroupShard
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from konvene.records.commits import Committed, OffsetCommitted
from konvene.runtime.coordinator import TIMER_RETRY_MS, Coordinator, RequestContext
from konvene.runtime.ports import ExplainedRebalance, Ports, RecordTooLarge
from konvene.shard.image import Topic, Topics

TOPICS = Topics([Topic("orders", Uuid(b"o" * 16), 500)])
CONFIG, _ = BrokerConfig.load()


class Journal:
    """In-memory log whose syncs complete when the test calls `finish_sync`."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.batches: list[int] = []
        self.end_offset = 0
        self.synced_offset = 0
        self.online = True
        self.syncs: list[tuple[int, asyncio.Future[None]]] = []
        self.fail_append: Exception | None = None

    def append_pairs(self, pairs: list[Any], now_ms: int, producer: Any = None) -> int:
        if self.fail_append is not None:
            raise self.fail_append
        if len(pairs) > 100:
            raise RecordTooLarge("more than a hundred records")
        self.data.append(build_simple(pairs, now_ms, base_offset=self.end_offset))
        self.batches.append(len(pairs))
        self.end_offset += len(pairs)
        return self.end_offset

    def write(self) -> None:
        """Do nothing: `append_pairs` buffers nothing."""

    async def sync(self) -> None:
        end = self.end_offset
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.syncs.append((end, future))
        await future
        self.synced_offset = end

    def read_back(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        return batches(b"".join(self.data))

    def cut(self, offset: int) -> None:
        """Simulate a power cut: drop the batches past this offset."""
        while self.end_offset > offset:
            self.data.pop()
            self.end_offset -= self.batches.pop()

    async def finish_sync(self, error: Exception | None = None) -> None:
        """Complete the oldest sync, with an error if given, and run the callbacks that wait for it."""
        await asyncio.sleep(0)
        _, future = self.syncs.pop(0)
        future.set_exception(error) if error is not None else future.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


def run(test: Callable[[Journal, Coordinator, list[ExplainedRebalance]], Awaitable[None]]) -> None:
    """Run a test with a loaded coordinator on an in-memory journal."""

    async def main() -> None:
        journal, traces = Journal(), []
        coordinator = Coordinator(
            "test-0",
            GroupShard,
            GROUP_SERDE,
            Ports(
                journal=journal,
                config=lambda: CONFIG,
                loop=asyncio.get_running_loop(),
                wall_clock_ms=lambda: 1000,
                topics=lambda: TOPICS,
                on_rebalance=traces.append,
            ),
        )
        await coordinator.load()
        await test(journal, coordinator, traces)
        await coordinator.close()

    asyncio.run(main())


def commit(partitions: int = 1, offset: int = 1, group: str = "g") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=(
            OffsetCommitRequestTopic(
                name="orders",
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=offset)
                    for i in range(partitions)
                ),
            ),
        ),
    )


V9 = RequestContext(api_version=9, client_id="c", client_host="/127.0.0.1", fresh_ids=("1",))


def test_responses_are_sent_after_the_records_are_durable() -> None:
    """G6: neither the commit's response nor a later error is sent before the sync."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        first = coordinator.submit(commit(), V9)
        rejected = coordinator.submit(HeartbeatRequest(group_id="g", member_id="x"), V9)
        assert journal.end_offset == 1
        assert not first.done
        assert not rejected.done
        await journal.finish_sync()
        assert isinstance(first.value, OffsetCommitResponse)
        assert rejected.value is Errors.UNKNOWN_MEMBER_ID

    run(body)


def test_one_sync_completes_all_pending_requests() -> None:
    """Group commit: all records appended during a sync share the next one."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        answers = [coordinator.submit(commit(), V9)]
        await asyncio.sleep(0)
        answers += [coordinator.submit(commit(offset=i), V9) for i in range(50)]
        await journal.finish_sync()
        assert [a.done for a in answers] == [True] + [False] * 50
        await journal.finish_sync()
        assert all(a.done for a in answers)
        assert journal.syncs == []

    run(body)


def test_a_response_that_need_not_be_durable_waits_only_for_earlier_requests() -> None:
    """It is sent at once if no request is pending, otherwise after those; its record is synced soon."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        shard: Any = coordinator.core
        decide = GroupShard.handle

        def handle(request: Any, context: Any) -> Any:
            when_written = request.topics[0].partitions[0].committed_offset >= 100
            return decide(shard, request, context)._replace(when_written=when_written)

        coordinator.core = cast("Any", SimpleNamespace(handle=handle, replay=shard.replay))
        assert coordinator.submit(commit(offset=100), V9).done
        assert journal.syncs == []
        assert coordinator.lingers
        durable = coordinator.submit(commit(offset=1), V9)
        written = coordinator.submit(commit(offset=101), V9)
        assert not durable.done
        assert not written.done
        await journal.finish_sync()
        assert durable.done
        assert written.done
        coordinator.core = shard

    run(body)


@pytest.mark.parametrize("where", ["append", "sync"])
def test_a_failed_write_fails_all_pending_requests_and_reloads_the_shard(where: str) -> None:
    """Pending requests get NOT_COORDINATOR; then the coordinator is active with the state of the log."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        acknowledged = coordinator.submit(commit(offset=7), V9)
        await journal.finish_sync()
        assert acknowledged.done
        join = coordinator.submit(join_request(), V9)
        if where == "append":
            await journal.finish_sync()
            journal.fail_append = OSError("no space left on device")
            lost = coordinator.submit(commit(offset=8), V9)
            journal.fail_append = None
        else:
            lost = coordinator.submit(commit(offset=8), V9)
            journal.cut(2)
            await journal.finish_sync(OSError("input/output error"))
        assert lost.value is Errors.NOT_COORDINATOR
        assert join.done
        for _ in range(10):
            await asyncio.sleep(0)
        if journal.syncs:
            await journal.finish_sync()
        assert coordinator.state == "active"
        shard: Any = coordinator.core
        assert shard.offsets["g"]["orders"][0].offset == 7

    run(body)


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="j",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


def test_a_timer_whose_outcome_is_too_large_fires_again() -> None:
    """The timer is rearmed, so that expired members and offsets are removed eventually."""

    async def main(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        journal.fail_append = RecordTooLarge("larger than the topic's max.message.bytes")
        assert isinstance(coordinator.core, GroupShard)
        coordinator.core.replay(OffsetCommitted("old", "orders", 0, Committed(1, commit_ms=0, expire_ms=1)))
        assert coordinator.fire_timer(RETENTION)
        assert "old" in coordinator.core.offsets
        delay_ms = (coordinator.deadlines[RETENTION] - asyncio.get_running_loop().time()) * 1000
        assert 0 < delay_ms <= TIMER_RETRY_MS
        journal.fail_append = None
        assert coordinator.fire_timer(RETENTION)
        assert "old" not in coordinator.core.offsets
        await journal.finish_sync()

    run(main)


def test_an_outcome_too_large_for_a_batch_is_rejected_whole() -> None:
    """Nothing is written, no state changes, and the client gets UNKNOWN_SERVER_ERROR."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        too_many = coordinator.submit(commit(partitions=101), V9)
        assert too_many.value is Errors.UNKNOWN_SERVER_ERROR
        assert journal.data == []
        shard: Any = coordinator.core
        assert shard.offsets == {}
        fits = coordinator.submit(commit(partitions=100), V9)
        await journal.finish_sync()
        assert isinstance(fits.value, OffsetCommitResponse)
        assert journal.batches == [100]

    run(body)


def test_loading_and_closed_coordinators_reject_requests() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS while loading; NOT_COORDINATOR once closed, also for pending requests."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        loading = coordinator.load()
        assert coordinator.submit(commit(), V9).value is Errors.COORDINATOR_LOAD_IN_PROGRESS
        await loading
        first_join = coordinator.submit(join_request(), V9)
        await journal.finish_sync()
        response = first_join.value
        assert isinstance(response, JoinGroupResponse)
        joining = coordinator.submit(join_request().replace(member_id=response.member_id), V9)
        assert not joining.done
        await coordinator.close()
        assert joining.value is Errors.NOT_COORDINATOR
        assert coordinator.submit(commit(), V9).value is Errors.NOT_COORDINATOR

    run(body)


def test_an_exception_in_a_handler_fails_only_its_request() -> None:
    """An unexpected exception is logged and answered with UNKNOWN_SERVER_ERROR; the next request succeeds."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        class Unknown(Struct):
            pass

        assert coordinator.submit(Unknown(), V9).value is Errors.UNKNOWN_SERVER_ERROR
        next_commit = coordinator.submit(commit(), V9)
        await journal.finish_sync()
        assert isinstance(next_commit.value, OffsetCommitResponse)

    run(body)


def test_a_timer_can_be_fired_before_its_deadline() -> None:
    """Firing a session timer early removes the pending member id; a key that is not armed does not fire."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        first_join = coordinator.submit(join_request(), V9)
        await journal.finish_sync()
        response = first_join.value
        assert isinstance(response, JoinGroupResponse)
        key = ("session", "j", response.member_id)
        assert coordinator.fire_timer(key)
        assert not coordinator.fire_timer(key)
        assert not coordinator.fire_timer(("session", "j", "unknown"))
        joining = coordinator.submit(join_request().replace(member_id=response.member_id), V9)
        assert joining.value is Errors.UNKNOWN_MEMBER_ID

    run(body)


def test_an_active_shard_can_be_reloaded() -> None:
    """Pending requests fail, requests during the reload are rejected, all written records are replayed."""

    async def body(journal: Journal, coordinator: Coordinator, traces: list[ExplainedRebalance]) -> None:
        pending = coordinator.submit(commit(group="kept"), V9)
        coordinator.reload(after_ms=1)
        assert pending.value is Errors.NOT_COORDINATOR
        assert coordinator.submit(commit(), V9).value is Errors.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0.01)
        assert coordinator.state == "active"
        await journal.finish_sync()
        assert list(coordinator.core.offsets) == ["kept"]  # type: ignore[attr-defined]

    run(body)
