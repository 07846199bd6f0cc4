"""A share consumer (KIP-932): reads topics together with others, record by record, like a queue.

It is a member of its share group (`share_member`), and asks the brokers for records that nobody else has
(`share_machine`, which is pure); here are the clock and the connections. Each record that `poll` returns is
the caller's until its lock is over (`lock_ms`), and is accepted, released for others, rejected for good or
renewed by `acknowledge`. With implicit acknowledgement, which is the usual one, the next `poll` or `commit`
accepts whatever the last `poll` returned. With explicit acknowledgement the caller decides on each record
before it polls again.

What was decided is told to the brokers with the next fetch, or at once by `commit`. Who closes without having
decided gives the records back. There are no offsets and no positions: where the group stands is the brokers'
to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

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
from konvene.codec.batches import Headers
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
"""The last two are Kafka's words."""


class ShareRecord(NamedTuple):
    """One record as it was delivered."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int
    """1 where it was never delivered before, as far as is known."""
    topic_id: Uuid


OnAcknowledged = Callable[[TopicPartition, tuple[int, ...], ClientError | None], Awaitable[None]]
"""Hears which offsets of a partition the broker took the acknowledgements of, or why not."""


class ShareConsumer:
    """Reads records as a member of the share group `group_id`. Use as `async with`, and `subscribe` first."""

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
        """The names of what was ever assigned: records of it may still be on their way."""
        self._joining: asyncio.Future[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._woken = False
        self._can_renew = True

    def __repr__(self) -> str:
        return f"<ShareConsumer {self.group_id}: {len(self.assignment)} partitions>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self.member.assignment if self.member is not None else ()

    @property
    def lock_ms(self) -> int | None:
        """For how long records are the caller's, as a broker last said."""
        return self._machine.lock_ms if self._machine is not None else None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others any more; `poll` joins the group."""
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
        """Have the `poll` or `commit` that waits now, or else the next one, raise `WokenUp`."""
        self._woken = True
        self._tell()

    # reading

    async def poll(self, timeout_ms: int = 500) -> list[ShareRecord]:
        """The next records, or none after about `timeout_ms`, though it may not be in the group by then.

        Raises `OutOfTurn` where records are held that were not decided on, with `explicit`."""
        member, machine = self._subscribed()
        if not self.explicit:
            machine.accept_all()
        elif machine.undecided:
            raise OutOfTurn(UNDECIDED)
        self._queue()
        patience = self.cluster.patience(timeout_ms)
        while True:
            await self._tell_acknowledged()
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
        """Records without end, one by one."""
        while True:
            for record in await self.poll():
                yield record

    def acknowledge(self, record: ShareRecord, kind: int = AcknowledgeType.ACCEPT) -> None:
        """Decide on a record that the last `poll` returned; until it is told, the last word counts.

        Raises `OutOfTurn` for one that is not the caller's, or without `explicit`."""
        _, machine = self._subscribed()
        if not self.explicit:
            raise OutOfTurn(IMPLICIT)
        if kind == AcknowledgeType.RENEW and not self._can_renew:
            raise UnsupportedVersion(NO_RENEW)
        machine.acknowledge((record.topic_id, record.partition), record.offset, kind)

    # telling

    async def commit(self, timeout_ms: int | None = None) -> dict[TopicPartition, ClientError | None]:
        """Tell what was decided, and what the brokers said to it, by partition. Without `explicit` that is
        whatever was returned. Other records of a partition may have been acknowledged where one was not."""
        _, machine = self._subscribed()
        patience = self.cluster.patience(timeout_ms)
        if not self.explicit:
            machine.accept_all()
        waiting = self._queue(patience)
        while not all(ack.is_done for ack in waiting) and patience.left_ms:
            self._check_woken()
            self._ask(fetching=False)
            await self._wait(None, patience)  # What is new in the group is for the next `poll`.
        await self._tell_acknowledged()
        found: dict[TopicPartition, ClientError | None] = {}
        for ack in waiting:
            partition = self._partition(ack.unit)
            error = ack.error if ack.is_done else KafkaError(Errors.REQUEST_TIMED_OUT)
            found[partition] = found.get(partition) or error
        return found

    def commit_soon(self) -> None:
        """Tell what was decided, without waiting; a later call tells `on_acknowledged` what came of it."""
        _, machine = self._subscribed()
        if not self.explicit:
            machine.accept_all()
        self._queue()
        self._ask(fetching=False)

    async def close(self, timeout_ms: int = _CLOSING_MS) -> None:
        """Tell what was decided, give all else back and leave the group. Does not close the cluster.

        Who subscribes again after that joins again."""
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
            await self._tell_acknowledged()
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
        """Join where that has to be, for as long as there is time; it goes on when the caller comes back."""
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
        """Fetch what the member is assigned, from whoever leads it now."""
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
            return  # A topic that is gone: the coordinator will say so.
        of = {tp: node for node, partitions in leaders.items() for tp in partitions}
        machine.assign({unit: of[tp] for unit, tp in units.items()})

    def _ask(self, *, fetching: bool) -> None:
        """Send what there is to send now; for what has to wait a little, come back."""
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
            self._timer = loop.call_at(due_ms / 1000 + 0.001, self._tell_later)

    def _tell_later(self) -> None:
        self._ask(fetching=False)
        self._tell()

    async def _send(self, node_id: int, request: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        """One request; whatever comes of it is for the machine to judge."""
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
        self._tell()

    def _tell(self) -> None:
        """Wake whoever waits."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _wait(
        self, member: ShareMember | None, patience: Patience, other: asyncio.Future[None] | None = None
    ) -> None:
        """Until something was heard, there is something to do in the group, `other` is done, or the time is
        over."""
        if self._woken:
            return
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._news.wait())]
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

    async def _tell_acknowledged(self) -> None:
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
            self._topics[each.unit], partition, *each.record, each.delivery_count, Uuid(topic_id)
        )
