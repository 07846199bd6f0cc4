"""Share consumer (KIP-932): shares the records of topics with other consumers, as a queue.

The consumer is a member of its share group (`ShareMember`) and acquires records that no other member has
(`ShareMachine`, which is pure); this module has the clock and the connections. Each record that `poll`
returns is locked for the caller for `lock_ms`, and is accepted, released, rejected or renewed by
`acknowledge`. With implicit acknowledgement, the default, the next `poll` or `commit` accepts all records of
the last `poll`. With explicit acknowledgement the caller acknowledges each record before the next `poll`.

Acknowledgements are sent with the next fetch, or at once by `commit`. `close` releases records without a
decision. There are no offsets or positions; the brokers keep the state of the group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from konvene.client.closeable import AsyncCloseable
from konvene.client.errors import (
    ClientError,
    KafkaError,
    Misconfigured,
    OutOfTurn,
    UnsupportedVersion,
    WokenUp,
)
from konvene.client.membership.state_machine import MemberState
from konvene.client.net.cluster import Cluster, Patience, TopicPartition
from konvene.client.share.fetch_machine import (
    Acknowledgement,
    AcknowledgeType,
    Delivered,
    FetchTerms,
    ShareMachine,
    Unit,
)
from konvene.client.share.member import ShareMember
from konvene.codec.batches import Headers, TimestampType
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.share_acknowledge import ShareAcknowledgeRequest
from konvene.messages.share_fetch import ShareFetchRequest

__all__ = ["AcknowledgeType", "FetchTerms", "ShareConsumer", "ShareRecord"]

_FIRST_VERSION_WITH_RENEW = 2
_CLOSING_MS = 30_000

NO_RENEW = "the cluster cannot renew acquisition locks (ShareFetch and ShareAcknowledge version 2)"
IMPLICIT = "Implicit acknowledgement of delivery is being used."
UNDECIDED = "All records must be acknowledged in explicit acknowledgement mode."
"""The last two are messages of Kafka's client."""


class ShareRecord(NamedTuple):
    """A delivered record; `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int
    """1 for the first delivery, as far as the broker knows."""
    topic_id: Uuid
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


OnAcknowledged = Callable[[TopicPartition, tuple[int, ...], ClientError | None], Awaitable[None]]
"""Called with the partition, the acknowledged offsets, and the error if they were not accepted."""


class ShareConsumer(AsyncCloseable):
    """A member of the share group `group_id` that consumes its records, as Kafka's share consumer.

    Use as `async with`, and `subscribe` first. `explicit` requires `acknowledge` for each record. `terms`
    limits fetches. Raises `Misconfigured` without a group id."""

    def __init__(
        self, cluster: Cluster, group_id: str, *, explicit: bool = False, terms: FetchTerms | None = None,
        client_rack: str | None = None, member_id: str | None = None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:  # fmt: skip
        if not group_id:
            raise Misconfigured("a share consumer needs a group")
        self.cluster = cluster
        self.group_id = group_id
        self.explicit = explicit
        self.terms = terms or FetchTerms()
        self.on_acknowledged = on_acknowledged
        self.member: ShareMember | None = None
        self._rack, self._member_id = client_rack, member_id
        self._machine: ShareMachine | None = None
        self._lives = 0
        self._topics: dict[Unit, str] = {}
        """Topic names of all partitions that were ever assigned: records of them may still arrive."""
        self._joining: asyncio.Future[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()
        self._woken = False
        self._can_renew = True

    def __repr__(self) -> str:
        return f"<ShareConsumer {self.group_id}: {len(self.assignment)} partitions>"

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self.member.assignment if self.member is not None else ()

    @property
    def lock_ms(self) -> int | None:
        """Duration of acquisition locks in ms, as reported by a broker; None before the first fetch."""
        return self._machine.lock_ms if self._machine is not None else None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to exactly these topics; `poll` joins the group. Raises `Misconfigured` for none."""
        if self.member is not None:
            self.member.subscribe(topics)
            return
        self.member = ShareMember(
            self.cluster, self.group_id, topics, member_id=self._member_id, client_rack=self._rack
        )
        times = self.cluster.settings
        self._machine = ShareMachine(
            self.group_id, self.member.member_id, self.terms, retry_backoff_ms=times.retry_backoff_ms,
            retry_backoff_max_ms=times.retry_backoff_max_ms,
        )  # fmt: skip

    def wakeup(self) -> None:
        """Make the waiting `poll` or `commit`, or else the next one, raise `WokenUp`."""
        self._woken = True
        self._notify()

    # reading

    async def poll(self, timeout_ms: int = 500) -> list[ShareRecord]:
        """Return the next records, or none after about `timeout_ms`, even if the member has not joined yet.

        Raises `OutOfTurn` with `explicit` if a record of the last `poll` has no acknowledgement, `WokenUp`
        after `wakeup`, and `ClientError` for an error of the group or a fetch that cannot be retried."""
        member, machine = self._subscribed()
        if not self.explicit:
            machine.accept_all()
        elif machine.undecided:
            raise OutOfTurn(UNDECIDED)
        self._queue()
        patience = self.cluster.patience(timeout_ms)
        while True:
            await self._report_acknowledged()
            self._check_woken()
            if await self._is_member(member, patience):
                await self._follow(member, machine)
            got = machine.take()
            if got:
                self._ask(fetching=False)
                return [self._record(each) for each in got]
            if machine.complaints:
                raise machine.complaints.popleft()
            if not patience.left_ms:
                self._ask(fetching=False)
                return []
            self._ask(fetching=True)
            await self._wait(member, patience)

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Yield records one by one, forever."""
        while True:
            for record in await self.poll():
                yield record

    def acknowledge(self, record: ShareRecord, kind: int = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a record of the last `poll`; another call replaces the decision until it is sent.

        Raises `OutOfTurn` for a record that the caller does not hold, or without `explicit`."""
        _, machine = self._subscribed()
        if not self.explicit:
            raise OutOfTurn(IMPLICIT)
        if kind == AcknowledgeType.RENEW and not self._can_renew:
            raise UnsupportedVersion(NO_RENEW)
        machine.acknowledge((record.topic_id, record.partition), record.offset, kind)

    # acknowledging

    async def commit(self, timeout_ms: int | None = None) -> dict[TopicPartition, ClientError | None]:
        """Send acknowledgements and return the error of each partition, or None.

        Without `explicit` it accepts all records of the last `poll`. An error may concern only a part of the
        records of a partition."""
        _, machine = self._subscribed()
        patience = self.cluster.patience(timeout_ms)
        if not self.explicit:
            machine.accept_all()
        waiting = self._queue(patience)
        while not all(ack.is_done for ack in waiting) and patience.left_ms:
            self._check_woken()
            self._ask(fetching=False)
            await self._wait(None, patience)  # What is new in the group is for the next `poll`.
        await self._report_acknowledged()
        found: dict[TopicPartition, ClientError | None] = {}
        for ack in waiting:
            partition = self._partition(ack.unit)
            error = ack.error if ack.is_done else KafkaError(Errors.REQUEST_TIMED_OUT)
            found[partition] = found.get(partition) or error
        return found

    def commit_soon(self) -> None:
        """Queue acknowledgements without waiting; `on_acknowledged` is called by a later call."""
        _, machine = self._subscribed()
        if not self.explicit:
            machine.accept_all()
        self._queue()
        self._ask(fetching=False)

    async def close(self, timeout_ms: int = _CLOSING_MS) -> None:
        """Send acknowledgements, release all other records and leave the group. Does not close the cluster.

        A later `subscribe` joins again."""
        if self.member is None or self._machine is None:
            return
        member, machine = self.member, self._machine
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        patience = self.cluster.patience(min(timeout_ms, self.cluster.settings.request_timeout_ms))
        self._queue(patience)
        machine.close()
        try:
            while not machine.is_closed and patience.left_ms:
                self._ask(fetching=False)
                if not machine.is_closed:
                    await self._wait(None, patience)
            await self._report_acknowledged()
            await member.leave()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)
            self.cluster.release(self)
            self.member = self._machine = self._joining = self._timer = None
            self._lives = 0

    # how

    def _subscribed(self) -> tuple[ShareMember, ShareMachine]:
        if self.member is None or self._machine is None:
            raise OutOfTurn("Consumer is not subscribed to any topics.")
        return self.member, self._machine

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _queue(self, patience: Patience | None = None) -> list[Acknowledgement]:
        _, machine = self._subscribed()
        left_ms = self.cluster.settings.default_api_timeout_ms if patience is None else patience.left_ms
        return machine.queue(self._now_ms() + left_ms)

    async def _is_member(self, member: ShareMember, patience: Patience) -> bool:
        """Join the group if needed; return False if the time is over first. Joining continues in the
        background."""
        if self._joining is None and member.state not in (MemberState.JOINING, MemberState.FENCED):
            await member.ensure()
            return True
        if self._joining is None:
            self._joining = asyncio.ensure_future(member.ensure())
        if not self._joining.done():
            await self._wait(None, patience, self._joining)
        if not self._joining.done():
            return False
        joined, self._joining = self._joining, None
        joined.result()
        return True

    async def _follow(self, member: ShareMember, machine: ShareMachine) -> None:
        """Make `machine` fetch the assigned partitions of `member` from their current leaders."""
        if member.times_fenced != self._lives:
            self._lives = member.times_fenced
            machine.member_lost(KafkaError(Errors.UNKNOWN_MEMBER_ID, about=f"group {self.group_id}"))
        units = {unit: tp for tp, unit in member.partitions.items()}
        if machine.leaders.keys() == units.keys() and not machine.outdated:
            return
        for unit in machine.outdated:
            self.cluster.forget_topic(self._topics.get(unit, ""))
        machine.outdated.clear()
        self._topics |= {unit: tp.topic for unit, tp in units.items()}
        try:
            leaders = await self.cluster.by_leader(units.values())
        except ClientError as error:
            if not error.retriable:
                raise
            return  # A deleted topic: the coordinator will change the assignment.
        of = {tp: node for node, partitions in leaders.items() for tp in partitions}
        machine.assign({unit: of[tp] for unit, tp in units.items()})

    def _ask(self, *, fetching: bool) -> None:
        """Send all due requests, and set a timer for those that are backing off.

        `fetching` means that a caller waits for records."""
        _, machine = self._subscribed()
        for node_id, request in machine.requests(self._now_ms(), fetching=fetching):
            task = asyncio.ensure_future(self._send(node_id, request))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = machine.due_ms(self._now_ms(), fetching=fetching)
        if due_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due_ms / 1000 + 0.001, self._on_timer)

    def _on_timer(self) -> None:
        self._ask(fetching=False)
        self._notify()

    async def _send(self, node_id: int, request: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        """Send one request and pass the result to the machine."""
        _, machine = self._subscribed()
        key = BY_NAME["ShareFetch" if isinstance(request, ShareFetchRequest) else "ShareAcknowledge"].key
        try:
            connection = await self.cluster.node(node_id, lane=self)
            version = connection.version_of(key)
            self._can_renew = version >= _FIRST_VERSION_WITH_RENEW
            wait_ms = self.terms.max_wait_ms + connection.request_timeout_ms
            answer = await connection.send(request, version, timeout_ms=wait_ms)
        except ClientError as error:
            machine.handle_failure(node_id, error, self._now_ms())
        else:
            machine.handle_response(node_id, answer, self._now_ms())
        self._ask(fetching=False)
        self._notify()

    def _notify(self) -> None:
        """Wake all waiting calls."""
        news, self._progress = self._progress, asyncio.Event()
        news.set()

    async def _wait(
        self, member: ShareMember | None, patience: Patience, other: asyncio.Future[None] | None = None
    ) -> None:
        """Wait for a response, a change of the group, or `other`, at most until the deadline."""
        if self._woken:
            return
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._progress.wait())]
        if member is not None:
            waits.append(asyncio.ensure_future(member.idle(patience.left_ms)))
        whole = waits if other is None else [*waits, other]
        try:
            await asyncio.wait(whole, timeout=patience.left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _check_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise WokenUp("the share consumer was woken")

    async def _report_acknowledged(self) -> None:
        _, machine = self._subscribed()
        while machine.done:
            ack = machine.done.popleft()
            if self.on_acknowledged is not None:
                await self.on_acknowledged(self._partition(ack.unit), tuple(sorted(ack.types)), ack.error)

    def _partition(self, unit: Unit) -> TopicPartition:
        return TopicPartition(self._topics[unit], unit[1])

    def _record(self, each: Delivered) -> ShareRecord:
        topic_id, partition = each.unit
        return ShareRecord(
            self._topics[each.unit], partition, *each.record, each.delivery_count, Uuid(topic_id),
            each.timestamp_type,
        )  # fmt: skip
