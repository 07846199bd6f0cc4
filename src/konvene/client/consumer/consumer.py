"""Consumer: reads partitions that the caller assigns, or that a group assigns to it.

The position of a partition is the next offset to read. A partition without a position starts at the committed
offset of the group, or else at `auto_offset_reset`. Positions are committed by `commit`, and with
`auto_commit` also at an interval, before partitions are revoked, and on close.

In a group the consumer is a member with one of two protocols, `group_protocol`: `classic`, or `consumer`
(KIP-848), in which the coordinator assigns. Either way partitions change hands within `poll` and `close`
only.

Each `poll` joins or rebalances if needed, finds missing positions and fetches one round. Records beyond
`max_poll_records` are returned by the next `poll`; positions advance only over returned records. In a
consumer group a `poll` ends early if partitions are to change hands, so that other members do not wait for
them; the next one returns the fetched records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from konvene.client.admin.admin import Admin, CommittedOffset
from konvene.client.closeable import AsyncCloseable
from konvene.client.consumer.assignors import Assignor
from konvene.client.consumer.classic_member import Callback, Member, MemberSettings
from konvene.client.consumer.fetch import (
    EARLIEST,
    LATEST,
    LEADER_MOVED,
    READ_UNCOMMITTED,
    OffsetAt,
    fetch,
    list_offsets,
    read_error,
    timestamp_type,
)
from konvene.client.consumer.modern_member import ConsumerMember
from konvene.client.consumer.settings import protocol_of, refuse_settings
from konvene.client.errors import ClientError, KafkaError, Misconfigured
from konvene.client.net.cluster import Cluster, Patience, TopicPartition
from konvene.client.producer.transaction_offsets import ConsumerGroupMetadata
from konvene.codec.batches import Headers, Record, TimestampType
from konvene.errors import Errors

__all__ = ["Consumed", "Consumer"]

_RESET = {"earliest": EARLIEST, "latest": LATEST}

_OUTDATED = frozenset(
    {
        Errors.REBALANCE_IN_PROGRESS, Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION,
        Errors.FENCED_MEMBER_EPOCH, Errors.STALE_MEMBER_EPOCH,
    }
)  # fmt: skip
"""Errors of a commit whose member has an outdated generation or epoch."""


class Consumed(NamedTuple):
    """A consumed record; `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class _Ready(NamedTuple):
    """Fetched records of one partition that `poll` has not returned yet.

    `position` is the offset from which they were fetched, `following` the next offset to fetch, and
    `log_append_time` has the offsets whose timestamps the broker set."""

    partition: TopicPartition
    position: int
    records: list[Record]
    following: int
    log_append_time: tuple[range, ...]


class Consumer(AsyncCloseable):
    """A consumer as Kafka's: reads the partitions that a group assigns (`subscribe` with a `group_id`) or
    that the caller chooses (`assign`).

    `auto_offset_reset` is earliest, latest or none. `assignors` configure the classic protocol,
    `group_remote_assignor` the consumer protocol. `member` has the settings of a group member. Raises
    `Misconfigured` for an invalid setting, or one that the protocol lacks."""

    def __init__(
        self, cluster: Cluster, group_id: str | None = None, *, auto_offset_reset: str = "latest",
        auto_commit: bool = True, auto_commit_interval_ms: int = 5_000,
        isolation_level: int = READ_UNCOMMITTED, max_poll_records: int | None = None,
        assignors: Sequence[str | Assignor] | None = None, member: MemberSettings | None = None,
        group_protocol: str = "classic", group_remote_assignor: str | None = None,
    ) -> None:  # fmt: skip
        if auto_offset_reset not in (*_RESET, "none"):
            raise Misconfigured(f"auto.offset.reset is earliest, latest or none, not {auto_offset_reset}")
        self.group_protocol = protocol_of(group_protocol)
        refuse_settings(self.group_protocol, _protocol_specific(assignors, member, group_remote_assignor))
        self.cluster = cluster
        self.group_id = group_id
        self.auto_offset_reset = auto_offset_reset
        self.auto_commit = auto_commit and group_id is not None
        self.auto_commit_interval_ms = auto_commit_interval_ms
        self.isolation_level = isolation_level
        self.max_poll_records = max_poll_records
        self.member: Member | ConsumerMember | None = None
        self.positions: dict[TopicPartition, int] = {}
        """The next offset to read, per partition."""
        self._assignors = assignors or ("range",)
        self._remote_assignor = group_remote_assignor
        self._member_settings = member
        self._partitions: tuple[TopicPartition, ...] = ()
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = 0.0
        self._ready: deque[_Ready] = deque()
        self._fetching: asyncio.Task[None] | None = None
        self._user_assigned: Callback | None = None
        self._user_revoked: Callback | None = None

    def __repr__(self) -> str:
        return f"<Consumer {self.group_id or 'without a group'}: {len(self.assignment)} partitions>"

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self.member.assignment if self.member is not None else self._partitions

    def subscribe(
        self, topics: Iterable[str] = (), *, regex: str | None = None, on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
    ) -> None:  # fmt: skip
        """Subscribe to these topics and those whose whole names match `regex`; `poll` joins the group.

        `regex` is an RE2 expression that the coordinator resolves, and needs the consumer protocol. With that
        protocol another call changes the subscription. Raises `Misconfigured` without a group."""
        if self.group_id is None:
            raise Misconfigured("subscribing needs a group: give a group id, or assign partitions")
        if isinstance(self.member, ConsumerMember):
            self._user_assigned = on_assigned or self._user_assigned
            self._user_revoked = on_revoked or self._user_revoked
            self.member.subscribe(topics, regex=regex)
            return
        if self.member is not None or self._partitions:
            raise Misconfigured("this consumer has its topics already")
        if regex is not None and self.group_protocol != "consumer":
            raise Misconfigured(
                "a regular expression that the coordinator follows needs group.protocol=consumer"
            )
        self._user_assigned, self._user_revoked = on_assigned, on_revoked
        self.member = self._become_member(self.group_id, topics, regex)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions without joining the group. Raises `Misconfigured` after
        `subscribe`."""
        if self.member is not None:
            raise Misconfigured("this consumer has its partitions from its group")
        self._partitions = tuple(sorted(set(partitions)))
        self.positions = {tp: at for tp, at in self.positions.items() if tp in self._partitions}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition."""
        self.positions[partition] = offset

    async def seek_to(self, timestamp: int, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Set positions to EARLIEST, LATEST, or the first record at or after a time in ms (else the end)."""
        wanted = self.assignment if partitions is None else tuple(partitions)
        found = await self._list(dict.fromkeys(wanted, timestamp))
        late = [tp for tp, at in found.items() if at.offset < 0]
        ends = await self._list(dict.fromkeys(late, LATEST)) if late else {}
        for tp, at in found.items():
            self.positions[tp] = ends[tp].offset if tp in ends else at.offset

    async def poll(self, timeout_ms: int = 500) -> list[Consumed]:
        """Return the next records, or none after about `timeout_ms`. A rebalance may take longer.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE if there is no position and `auto_offset_reset` is none, and
        any error of the group that cannot be retried."""
        loop = asyncio.get_running_loop()
        if self.member is not None:
            await self.member.ensure()
        await self._find_positions()
        if self.auto_commit and loop.time() >= self._commit_at:
            await self._commit_quietly()
        ready = self._take()
        if ready:
            return ready
        wanted = {tp: self.positions[tp] for tp in self.assignment if tp in self.positions}
        if not wanted and isinstance(self.member, ConsumerMember):
            await self.member.idle(timeout_ms)
            return []
        if not wanted:
            await asyncio.sleep(timeout_ms / 1000)
            return []
        if isinstance(self.member, ConsumerMember):
            await self._fetch_until_moved(self.member, wanted, timeout_ms)
        else:
            await self._fetch(wanted, timeout_ms)
        return self._take()

    async def __aiter__(self) -> AsyncIterator[Consumed]:
        """Yield records one by one, forever."""
        while True:
            for record in await self.poll():
                yield record

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets`, or all positions. Raises `KafkaError`, such as REBALANCE_IN_PROGRESS.

        After STALE_MEMBER_EPOCH the commit is retried with the epoch of the next heartbeat, within the API
        timeout."""
        if self.group_id is None:
            raise Misconfigured("committing needs a group")
        wanted = {tp: self.positions[tp] for tp in self.assignment if tp in self.positions}
        rows = dict(wanted if offsets is None else offsets)
        patience = self.cluster.patience()
        while rows:
            epoch = self._epoch()
            try:
                await self._commit_once(self.group_id, rows)
                break
            except KafkaError as error:
                if not await self._has_newer_epoch(error, epoch, patience):
                    raise
        self._commit_later()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of partitions; those without one are left out. Raises `KafkaError`."""
        if self.group_id is None:
            return {}
        admin, wanted, patience = Admin(self.cluster), tuple(partitions), self.cluster.patience()
        while True:
            epoch = self._epoch()
            in_group = isinstance(self.member, ConsumerMember) and epoch > 0
            member_id = self.member.member_id if self.member is not None and in_group else None
            try:
                return await admin.committed_offsets(
                    self.group_id, wanted, require_stable=True, member_id=member_id,
                    member_epoch=epoch if in_group else -1,
                )  # fmt: skip
            except KafkaError as error:
                if not await self._has_newer_epoch(error, epoch, patience):
                    raise

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member identity for `TransactionalProducer.send_offsets_to_transaction`.

        A fenced member keeps its old identity, so that the coordinator rejects its offsets: the partitions
        may be assigned to another member by now. Raises `Misconfigured` without a group."""
        if self.group_id is None:
            raise Misconfigured("only a consumer with a group has group metadata")
        if self.member is None:
            return ConsumerGroupMetadata(self.group_id)
        instance_id = self.member.settings.group_instance_id
        member_id, generation = (
            (self.member.member_id, self.member.epoch)
            if isinstance(self.member, ConsumerMember)
            else self.member.joined_as
        )
        return ConsumerGroupMetadata(self.group_id, generation, member_id, instance_id)

    async def close(self, reason: str = "the consumer is being closed") -> None:
        """Commit (with `auto_commit`) and leave the group. Does not close the cluster."""
        task, self._fetching = self._fetching, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.member is not None:
            await self.member.leave(reason)
        elif self.auto_commit:
            await self._commit_quietly()
        self._partitions = ()
        self.cluster.release(self)

    # how

    def _become_member(self, group: str, topics: Iterable[str], regex: str | None) -> Member | ConsumerMember:
        if self.group_protocol == "consumer":
            return ConsumerMember(
                self.cluster, group, topics, regex=regex, assignor=self._remote_assignor,
                settings=self._member_settings, on_assigned=self._assigned, on_revoked=self._revoked,
                on_lost=self._lost,
            )  # fmt: skip
        return Member(
            self.cluster, group, topics, assignors=self._assignors, settings=self._member_settings,
            on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost,
        )  # fmt: skip

    def _epoch(self) -> int:
        """Return the member epoch, or the generation in a classic group; -1 without a member."""
        if self.member is None:
            return -1
        return self.member.epoch if isinstance(self.member, ConsumerMember) else self.member.generation

    async def _commit_once(self, group: str, rows: Mapping[TopicPartition, int]) -> None:
        member_id, epoch, instance_id = "", self._epoch(), None
        if self.member is not None:
            member_id, instance_id = self.member.member_id, self.member.settings.group_instance_id
        if isinstance(self.member, ConsumerMember) and epoch <= 0:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID, about=f"committing in group {group}")
        await Admin(self.cluster).alter_offsets(
            group, rows, member_id=member_id, generation=epoch, instance_id=instance_id
        )
        self._committed.update(rows)

    def _commit_later(self) -> None:
        self._commit_at = asyncio.get_running_loop().time() + self.auto_commit_interval_ms / 1000

    async def _has_newer_epoch(self, error: KafkaError, epoch: int, patience: Patience) -> bool:
        """Return True if a commit with `epoch` that failed with `error` can be retried with a newer member
        epoch.

        After STALE_MEMBER_EPOCH it waits for a heartbeat response if there is no newer epoch yet."""
        if error.code != Errors.STALE_MEMBER_EPOCH or not isinstance(self.member, ConsumerMember):
            return False
        return self.member.epoch != epoch or await self.member.wait_for_response(patience.left_ms)

    async def _fetch_until_moved(
        self, member: ConsumerMember, wanted: Mapping[TopicPartition, int], timeout_ms: int
    ) -> None:
        """Wait until a round of Fetch completes, or until partitions have to change hands.

        A round that is interrupted goes on in the background, and the next call waits for it."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch(wanted, timeout_ms))
        moved = asyncio.ensure_future(member.idle(2 * timeout_ms))
        try:
            await asyncio.wait((self._fetching, moved), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        if self._fetching.done():
            task, self._fetching = self._fetching, None
            await task

    async def _fetch(self, wanted: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Fetch once from every leader, and queue the records in `_ready`."""
        try:
            answers = await fetch(
                self.cluster, wanted, max_wait_ms=timeout_ms, isolation_level=self.isolation_level, lane=self
            )
        except ClientError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(min(timeout_ms, self.cluster.settings.retry_backoff_ms) / 1000)
            return
        failed: ClientError | None = None
        for got in answers:
            tp = got.partition
            if tp not in self.assignment or self.positions.get(tp) != wanted[tp]:
                continue  # It was given up, or moved, while it was fetched.
            if got.error_code == Errors.OFFSET_OUT_OF_RANGE:
                await self._reset([tp], KafkaError(got.error_code, about=f"{tp} at offset {wanted[tp]}"))
                if tp not in self.assignment:  # It was given up while it was looked for.
                    self.positions.pop(tp, None)
            elif got.error_code in LEADER_MOVED:
                self.cluster.forget_topic(tp.topic)
            elif got.error_code:
                failed = failed or read_error(got, wanted[tp])
            else:
                self._ready.append(_Ready(tp, wanted[tp], got.records, got.next_offset, got.log_append_time))
        if failed is not None:
            raise failed  # The next call returns the records of the other partitions.

    def _take(self) -> list[Consumed]:
        """Return up to `max_poll_records` fetched records and advance the positions.

        Records of a partition that was revoked, or moved by a seek, are dropped."""
        out: list[Consumed] = []
        while self._ready and (self.max_poll_records is None or len(out) < self.max_poll_records):
            tp, position, waiting, following, log_append_time = self._ready.popleft()
            if tp not in self.assignment or self.positions.get(tp) != position:
                continue
            room = len(waiting) if self.max_poll_records is None else self.max_poll_records - len(out)
            out += _consumed(tp, waiting[:room], log_append_time)
            rest = waiting[room:]
            self.positions[tp] = rest[0].offset if rest else following
            if rest:
                self._ready.appendleft(_Ready(tp, rest[0].offset, rest, following, log_append_time))
        return out

    async def _list(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return the offset of each partition at the given timestamp, EARLIEST or LATEST.

        LATEST is the last stable offset for read_committed, else the high watermark."""
        return await list_offsets(self.cluster, wanted, isolation_level=self.isolation_level)

    async def _find_positions(self) -> None:
        missing = [tp for tp in self.assignment if tp not in self.positions]
        if not missing:
            return
        for tp, committed in (await self.committed(missing)).items():
            self.positions[tp] = self._committed[tp] = committed.offset
        missing = [tp for tp in missing if tp not in self.positions]
        if missing:
            await self._reset(missing, KafkaError(Errors.OFFSET_OUT_OF_RANGE, about=f"{missing[0]}"))

    async def _reset(self, partitions: list[TopicPartition], error: KafkaError) -> None:
        if self.auto_offset_reset not in _RESET:
            raise error
        await self.seek_to(_RESET[self.auto_offset_reset], partitions)

    async def _commit_quietly(self, *, at_once: bool = True) -> None:
        """Commit changed positions. An error of a rebalance or connection is ignored, as a later commit
        follows.

        With `at_once` there is one attempt; otherwise STALE_MEMBER_EPOCH is retried as in `commit`."""
        moved = {
            tp: self.positions[tp]
            for tp in self.assignment
            if tp in self.positions and self._committed.get(tp) != self.positions[tp]
        }
        try:
            if at_once and moved and self.group_id is not None:
                await self._commit_once(self.group_id, moved)
                self._commit_later()
            else:
                await self.commit(moved)
        except ClientError as error:
            if not error.retriable and not (isinstance(error, KafkaError) and error.code in _OUTDATED):
                raise

    async def _assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        if self._user_assigned is not None:
            await self._user_assigned(partitions)

    async def _revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        if self.auto_commit:
            await self._commit_quietly(at_once=False)
        if self._user_revoked is not None:
            await self._user_revoked(partitions)
        await self._lost(partitions)

    async def _lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        for tp in partitions:
            self.positions.pop(tp, None)
            self._committed.pop(tp, None)


def _consumed(
    tp: TopicPartition, records: Iterable[Record], log_append_time: Sequence[range]
) -> Iterator[Consumed]:
    plain = (Consumed(tp.topic, tp.partition, *r) for r in records)
    if not log_append_time:
        return plain
    return (r._replace(timestamp_type=timestamp_type(r.offset, log_append_time)) for r in plain)


def _protocol_specific(
    assignors: Sequence[str | Assignor] | None, member: MemberSettings | None, remote_assignor: str | None
) -> set[str]:
    """Return the Kafka names of the given settings that exist in one group protocol only."""
    usual, chosen = MemberSettings(), member or MemberSettings()
    given = {
        "partition.assignment.strategy": assignors is not None,
        "session.timeout.ms": chosen.session_timeout_ms != usual.session_timeout_ms,
        "heartbeat.interval.ms": chosen.heartbeat_interval_ms != usual.heartbeat_interval_ms,
        "group.remote.assignor": remote_assignor is not None,
    }
    return {name for name, is_given in given.items() if is_given}
