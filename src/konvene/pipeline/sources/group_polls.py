"""Describes the groups of a live cluster at intervals, as evidence of how members departed.

A poll lists the groups of each broker, which are those that it coordinates, and describes the active ones:
consumer, share and streams groups with their member epochs and session timeouts, classic groups with their
members, all with the ages of heartbeats if the broker is a konvene broker. The end of the groups' log is read
before and after, so that a description is tied to the log (`answers.observations`).

The number of requests is bounded: for each broker one to list groups, one for each `BATCH` groups of a type,
and for the cluster one for session timeouts and two for the ends of the log. At most `MAX_GROUPS` groups of a
broker are described in one poll, the others in the next ones.

What changed is appended to a file, with the last description before; a group that does not change is written
twice. The file is halved when it is opened and larger than `MAX_BYTES`.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from konvene.client.admin.admin import BROKER, GROUP_CONFIG
from konvene.client.admin.heartbeats import decode_heartbeats
from konvene.client.consumer.fetch import LATEST, list_offsets
from konvene.client.errors import ClientError, KafkaError, UnsupportedVersion
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.codec.hashes import group_partition
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.disk.files import RealDisk, replace
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat_extensions import REQUEST_FIELD
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from konvene.messages.share_group_describe import ShareGroupDescribeRequest
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.pipeline.answers.observations.observation import (
    NOT_KNOWN,
    Observation,
    ObservedMember,
    encode,
)

__all__ = ["GroupPoller"]

BATCH = 100
"""Groups per request."""
MAX_GROUPS = 1_000
MAX_BYTES = 64 * 1024 * 1024
PATIENCE_MS = 10_000
GRACE = "konvene.session.disconnect.grace.ms"
"""A konvene broker with this config may remove a disconnected member before its session timeout."""
REQUESTS: Mapping[str, Callable[[tuple[str, ...]], Struct]] = {
    "classic": lambda groups: DescribeGroupsRequest(groups=groups),
    "consumer": lambda groups: ConsumerGroupDescribeRequest(group_ids=groups),
    "share": lambda groups: ShareGroupDescribeRequest(group_ids=groups),
    "streams": lambda groups: StreamsGroupDescribeRequest(group_ids=groups),
}
REFUSED = frozenset({
    Errors.GROUP_AUTHORIZATION_FAILED, Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.UNSUPPORTED_VERSION,
})  # fmt: skip
"""Errors that further polls do not cure."""


class _Described(NamedTuple):
    """A group as a broker described or listed it, and when."""

    node_id: int
    group_id: str
    group_type: str
    state: str
    begin_ms: int
    end_ms: int
    members: Sequence[Struct] = ()
    ages_ms: Mapping[str, int] = {}
    """Ages of heartbeats by member id."""
    is_konvene: bool = False


class GroupPoller:
    """Polls descriptions of groups into a file. `groups`: only these; empty for all.

    `clock` returns ms since 1970 and never goes back."""

    def __init__(
        self, path: Path, groups: Collection[str] = (), clock: Callable[[], int] | None = None
    ) -> None:
        self._path, self._groups = path, frozenset(groups)
        self._clock = clock or _steady_clock()
        self._run_ms = self._clock()
        self._last: dict[str, Observation] = {}
        """The last observation of each group that has members."""
        self._writes: dict[str, int] = {}
        """How often the state in `_last` was written, at most twice."""
        self._described_last: dict[int, str] = {}
        """By broker: the group after which the next poll continues."""
        self._noted: set[str] = set()
        _shorten(path)

    def __repr__(self) -> str:
        return f"<descriptions of {len(self._last)} groups in {self._path}>"

    async def poll(self, cluster: Cluster) -> list[str]:
        """Describe the groups once; return notes on what the cluster does not allow, each kind only once.

        Without a connection the poll has no effect."""
        topic = cluster.metadata.topics.get(OFFSETS_TOPIC)
        if topic is None or topic.error_code:
            return []
        partitions = [TopicPartition(OFFSETS_TOPIC, p.partition) for p in topic.partitions if p.leader >= 0]
        notes: dict[str, str] = {}
        found: list[_Described] = []
        try:
            first = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
            for node_id in sorted(cluster.metadata.nodes):
                found += await self._groups_of(cluster, node_id, notes)
            timeouts_ms = await self._session_timeouts(cluster, found, notes)
            last = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        except ClientError as error:
            if not error.retriable:
                notes["all"] = f"Groups cannot be described: {error}."
            return self._unnoted(notes)
        made: list[Observation] = []
        name = cluster.metadata.cluster_id or "unknown"
        for each in found:
            tp = TopicPartition(OFFSETS_TOPIC, group_partition(each.group_id, len(topic.partitions)))
            if tp in first and tp in last and first[tp].leader_epoch == last[tp].leader_epoch:
                members = _members(each, timeouts_ms.get(each.group_id, NOT_KNOWN))
                observation = Observation(
                    name, each.group_id, each.group_type, each.state, self._run_ms, each.begin_ms,
                    each.end_ms, tp.partition, first[tp].offset, last[tp].offset, last[tp].leader_epoch,
                    members,
                )  # fmt: skip
                made += self._to_write(observation)
        if made:
            with self._path.open("ab") as file:
                file.write(b"".join(map(encode, made)))
        return self._unnoted(notes)

    def _unnoted(self, notes: Mapping[str, str]) -> list[str]:
        new = [text for key, text in notes.items() if key not in self._noted]
        self._noted |= notes.keys()
        return new

    # requests -----------------------------------------------------------------------------------------

    async def _groups_of(self, cluster: Cluster, node_id: int, notes: dict[str, str]) -> list[_Described]:
        """Return the groups that a broker coordinates: the described ones, and those that became empty."""
        begin_ms = self._clock()
        listed: ListGroupsResponse = await cluster.ask(
            ListGroupsRequest(), node_id=node_id, timeout_ms=PATIENCE_MS
        )
        end_ms = self._clock()
        wanted = [each for each in listed.groups if not self._groups or each.group_id in self._groups]
        found = [
            _Described(node_id, g.group_id, _type_of(g), g.group_state, begin_ms, end_ms)
            for g in wanted
            if g.group_state == "Empty" and g.group_id in self._last
        ]
        types = {g.group_id: _type_of(g) for g in wanted if g.group_state not in ("Empty", "Dead")}
        chosen = self._next_groups(node_id, sorted(types))
        for group_type in REQUESTS:
            names = [name for name in chosen if types[name] == group_type]
            for at in range(0, len(names), BATCH):
                some = tuple(names[at : at + BATCH])
                found += await self._describe(cluster, node_id, group_type, some, notes)
        return found

    def _next_groups(self, node_id: int, names: Sequence[str]) -> Sequence[str]:
        """Return the groups of a broker that this poll describes: all, or the next `MAX_GROUPS`."""
        if len(names) <= MAX_GROUPS:
            return names
        start = bisect_right(names, self._described_last.get(node_id, ""))
        chosen = [*names[start:], *names[:start]][:MAX_GROUPS]
        self._described_last[node_id] = chosen[-1]
        return chosen

    async def _describe(
        self, cluster: Cluster, node_id: int, group_type: str, names: tuple[str, ...], notes: dict[str, str]
    ) -> list[_Described]:
        request = REQUESTS[group_type](names).replace(unknown_tags=(REQUEST_FIELD,))
        begin_ms = self._clock()
        try:
            response = await cluster.ask(request, node_id=node_id, timeout_ms=PATIENCE_MS)
        except UnsupportedVersion as error:
            notes[group_type] = f"Groups of type {group_type} cannot be described: {error}."
            return []
        end_ms = self._clock()
        found = []
        for group in response.groups:
            if group.error_code in REFUSED:
                refusal = KafkaError(group.error_code, about=f"group {group.group_id}")
                text = f"{refusal}: causes of its rebalances are inferred without descriptions."
                notes.setdefault(refusal.name, text)
            if group.error_code or group.group_state == "Dead":
                continue
            heartbeats = decode_heartbeats(group, group.group_id)
            known = {} if heartbeats is None else heartbeats.members
            ages_ms = {key: h.age_ms for key, h in known.items() if h.age_ms is not None}
            found.append(
                _Described(
                    node_id, group.group_id, group_type, group.group_state, begin_ms, end_ms, group.members,
                    ages_ms, heartbeats is not None,
                )
            )  # fmt: skip
        return found

    async def _session_timeouts(
        self, cluster: Cluster, found: Sequence[_Described], notes: dict[str, str]
    ) -> dict[str, int]:
        """Return the session timeouts that are configs of groups, as far as the cluster returns them.

        A konvene broker that may remove disconnected members earlier has none."""
        modern = {each.group_id: each for each in found if each.group_type != "classic" and each.members}
        if not modern:
            return {}
        early = await self._removes_early(cluster, {e.node_id for e in modern.values() if e.is_konvene})
        keys = {group: f"{each.group_type}.session.timeout.ms" for group, each in modern.items()}
        resources = tuple(_resource(GROUP_CONFIG, group, key) for group, key in keys.items())
        timeouts_ms = {}
        try:
            response: DescribeConfigsResponse = await cluster.ask(
                DescribeConfigsRequest(resources=resources), timeout_ms=PATIENCE_MS
            )
        except UnsupportedVersion:
            return {}
        for result in response.results:
            if result.error_code in REFUSED:
                refusal = KafkaError(result.error_code, about=f"the configs of group {result.resource_name}")
                notes.setdefault(f"configs {refusal.name}", f"{refusal}: its session timeout is not known.")
            values = {c.name: c.value for c in result.configs}
            value = values.get(keys.get(result.resource_name, ""))
            is_usable = value is not None and modern[result.resource_name].node_id not in early
            if value is not None and is_usable and value.isdecimal():
                timeouts_ms[result.resource_name] = int(value)
        return timeouts_ms

    async def _removes_early(self, cluster: Cluster, nodes: Collection[int]) -> set[int]:
        """Return those konvene brokers that may remove a member before its session expires."""
        early = set()
        for node_id in sorted(nodes):
            response: DescribeConfigsResponse = await cluster.ask(
                DescribeConfigsRequest(resources=(_resource(BROKER, str(node_id), GRACE),)), node_id=node_id,
                timeout_ms=PATIENCE_MS,
            )  # fmt: skip
            values = [c.value for result in response.results for c in result.configs if c.name == GRACE]
            if values != ["0"]:
                early.add(node_id)
        return early

    # observations -------------------------------------------------------------------------------------

    def _to_write(self, observation: Observation) -> Iterator[Observation]:
        """Yield what is to be written for an observation: a new state with the last observation of the one
        before, and a state that is seen for the second time."""
        group = observation.group_id
        last = self._last.get(group)
        if last is not None and last.is_same_state(observation):
            if self._writes[group] == 1:
                yield observation
            self._writes[group] += 1
        else:
            if last is not None and self._writes[group] > 2:
                yield last
            yield observation
            self._writes[group] = 1
        self._last[group] = observation
        if not observation.members and self._writes[group] > 1:
            del self._last[group], self._writes[group]


def _type_of(group: ListedGroup) -> str:
    """Return the type of a listed group; before version 5 of the response it is classic or unknown."""
    return group.group_type.lower() or "classic"


def _members(group: _Described, session_timeout_ms: int) -> dict[str, ObservedMember]:
    """Return the members of a described group.

    The session timeout of members that use the classic protocol is not the group's config."""
    found = {}
    members: Sequence[Any] = group.members
    for member in members:
        key: str = member.member_id
        is_native = group.group_type == "share" or (
            getattr(member, "member_type", NOT_KNOWN) == 1 or getattr(member, "is_classic", None) is False
        )
        instance_id = getattr(member, "instance_id", None) or getattr(member, "group_instance_id", None)
        found[key] = ObservedMember(
            getattr(member, "member_epoch", NOT_KNOWN), session_timeout_ms if is_native else NOT_KNOWN,
            group.ages_ms.get(key, NOT_KNOWN), instance_id,
        )  # fmt: skip
    return found


def _resource(kind: int, name: str, key: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=(key,))


def _steady_clock() -> Callable[[], int]:
    """Return a clock in ms since 1970 that ignores changes of the system's time."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000


def _shorten(path: Path) -> None:
    """Drop the older half of a file that is too large."""
    if not path.is_file() or path.stat().st_size <= MAX_BYTES:
        return
    with path.open("rb") as file:
        file.seek(-MAX_BYTES // 2, os.SEEK_END)
        file.readline()
        replace(RealDisk(), str(path), file.read())
