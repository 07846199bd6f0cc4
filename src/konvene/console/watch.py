"""What the views read: the coordinators' logs, and descriptions through the Admin API, each cached briefly.

All viewers share one `ClusterWatch`, so a cluster gets the same number of requests from one viewer and from a
hundred, and none without a viewer except for following the logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from konvene.client.admin.admin import Admin, ConfigEntry
from konvene.client.admin.groups import GroupDescription, GroupListing
from konvene.client.admin.share_groups import ShareGroupDescription, SharePartitionOffset
from konvene.client.admin.streams_groups import StreamsGroupDescription
from konvene.client.consumer.fetch import EARLIEST, LATEST
from konvene.client.errors import KafkaError, UnsupportedVersion
from konvene.client.net.cluster import Cluster, Topic, TopicPartition
from konvene.console.commits import Commit
from konvene.console.tail import LogTail, wall_clock_ms
from konvene.errors import Errors

__all__ = ["AnyGroup", "ClusterWatch"]

AnyGroup: TypeAlias = GroupDescription | ShareGroupDescription | StreamsGroupDescription

LISTING_S = 1.0
DESCRIPTION_S = 0.5
OFFSETS_S = 1.0
TOPICS_S = 2.0
CONFIGS_S = 5.0
"""How long answers of the Admin API are used again."""
MAX_CACHED = 5_000
_T = TypeVar("_T")


class ClusterWatch:
    """The present state of a cluster; `run` keeps the logs up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
        self.cluster = cluster
        self.admin = Admin(cluster)
        self.tail = LogTail(self.cluster, self._notify)
        self.changes = 0
        """Number of changes in the logs so far."""
        self._changed = asyncio.Event()
        self._cache: dict[object, tuple[float, asyncio.Future[Any]]] = {}

    def __repr__(self) -> str:
        return f"<watch of {self.bootstrap}, {self.tail.state.state}>"

    async def run(self) -> None:
        """Follow the logs until cancelled."""
        try:
            await self.tail.run()
        finally:
            await self.cluster.close()

    def _notify(self) -> None:
        self.changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, changes: int, timeout_s: float) -> None:
        """Wait until the logs have changed since there were `changes`, at most `timeout_s`."""
        if changes == self.changes:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)

    # --- answers of the Admin API; all raise ClientError ---

    async def groups(self) -> list[GroupListing]:
        return await self._cached("groups", LISTING_S, self.admin.list_groups)

    async def group(self, group_id: str) -> AnyGroup | None:
        """Return the description of a group of any type; None if it does not exist."""
        return (await self.described(group_id))[0]

    async def described(self, group_id: str) -> tuple[AnyGroup | None, int]:
        """Return the description of a group as `group` does, and the time in ms at which it was received."""
        describe = partial(self._describe, group_id)
        return await self._cached(("group", group_id), DESCRIPTION_S, describe)

    async def _describe(self, group_id: str) -> tuple[AnyGroup | None, int]:
        return await self._description(group_id), wall_clock_ms()

    async def _description(self, group_id: str) -> AnyGroup | None:
        kind = next((g.type for g in await self.groups() if g.group_id == group_id), "")
        try:
            if kind == "share":
                return await self.admin.describe_share_group(group_id, heartbeats=True)
            if kind == "streams":
                return await self.admin.describe_streams_group(
                    group_id, topology_description=True, pending_revocations=True, heartbeats=True
                )
            return await self.admin.describe_group(group_id, heartbeats=True)
        except KafkaError as error:
            if error.code == Errors.GROUP_ID_NOT_FOUND:
                return None
            raise

    async def topics(self) -> list[Topic]:
        return await self._cached("topics", TOPICS_S, self.admin.list_topics)

    async def configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        describe = self.admin.describe_configs
        key = ("configs", resource_type, name)
        return await self._cached(key, CONFIGS_S, lambda: describe(resource_type, name))

    async def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the partitions that have a leader."""
        return await self._offsets(partitions, LATEST)

    async def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the start offsets of the partitions that have a leader."""
        return await self._offsets(partitions, EARLIEST)

    async def _offsets(self, partitions: Iterable[TopicPartition], at: int) -> Mapping[TopicPartition, int]:
        wanted: dict[str, set[TopicPartition]] = {}
        for tp in partitions:
            wanted.setdefault(tp.topic, set()).add(tp)
        found: dict[TopicPartition, int] = {}
        for topic in await self.topics() if wanted else ():
            if topic.name not in wanted:
                continue
            of_topic = wanted[topic.name]
            existing = [TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader >= 0]
            if of_topic.isdisjoint(existing):
                continue
            list_all = partial(self._list, existing, at)
            offsets = await self._cached(("offsets", topic.name, at), OFFSETS_S, list_all)
            found |= {tp: offset for tp, offset in offsets.items() if tp in of_topic}
        return found

    async def _list(self, partitions: Iterable[TopicPartition], at: int) -> Mapping[TopicPartition, int]:
        try:
            listed = await self.admin.list_offsets(dict.fromkeys(partitions, at))
        except KafkaError:
            return {}  # The topic was deleted, or has lost a leader.
        return {tp: each.offset for tp, each in listed.items()}

    async def committed(self, group_id: str) -> Mapping[TopicPartition, Commit]:
        """Return the committed offsets of a group: from the log, or if that is not read, by OffsetFetch."""
        if self.tail.state.state == "live":
            return self.tail.commits.of(group_id)
        fetch = self.admin.committed_offsets
        found = await self._cached(("committed", group_id), OFFSETS_S, lambda: fetch(group_id))
        return {tp: Commit(at.offset, -1, at.metadata) for tp, at in found.items()}

    async def share_offsets(self, group_id: str) -> Mapping[TopicPartition, SharePartitionOffset]:
        """Return the start offsets of a share group; none if the broker does not support the request."""
        return await self._cached(("share", group_id), DESCRIPTION_S, lambda: self._share_offsets(group_id))

    async def _share_offsets(self, group_id: str) -> Mapping[TopicPartition, SharePartitionOffset]:
        try:
            found = await self.admin.list_share_group_offsets({group_id: None}, in_flight=True)
        except UnsupportedVersion:
            return {}
        return found[group_id]

    async def lag(self, group: GroupListing) -> int | None:
        """Return the total lag of a group in records; None if it is not known."""
        if group.type == "share":
            lags = [at.lag for at in (await self.share_offsets(group.group_id)).values()]
            return None if any(lag is None for lag in lags) else sum(lag or 0 for lag in lags)
        if self.tail.state.state != "live":
            return None
        committed = self.tail.commits.of(group.group_id)
        ends = await self.ends(committed)
        return sum(max(ends[tp] - at.offset, 0) for tp, at in committed.items() if tp in ends)

    # --- the cache ---

    def forget(self) -> None:
        """Drop all cached answers, because something was changed."""
        self._cache.clear()

    async def _cached(self, key: object, ttl_s: float, make: Callable[[], Awaitable[_T]]) -> _T:
        """Return what `make` returned within the last `ttl_s`; concurrent callers share one call."""
        now_s = time.monotonic()
        known = self._cache.get(key)
        if known is None or (known[1].done() and now_s - known[0] >= ttl_s) or _failed(known[1]):
            if len(self._cache) >= MAX_CACHED:
                self._cache = {k: v for k, v in self._cache.items() if not v[1].done()}
            known = self._cache[key] = (now_s, asyncio.ensure_future(make()))
        answer: _T = await asyncio.shield(known[1])
        return answer


def _failed(task: asyncio.Future[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
