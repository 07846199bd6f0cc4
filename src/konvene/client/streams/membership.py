"""What a member of a streams group (KIP-1071) knows and says next: a pure state machine.

When it speaks and what errors change is in `machine`, which members of consumer groups share; here is what
its heartbeats carry, and what it is assigned: tasks in three roles.

    epoch 0       all of it: the topology, the process, the endpoint, the tags, and no tasks; its offsets, if
                  it reports any
    after that    its tasks, when they have changed; its offsets, when those have and their interval is over;
                  after an error both, whatever has changed
    -1, -2        who it is

A caller that never calls `report` has nobody wait for its copies: no offsets are told, not even that there
are none, which would say that its disk is empty and will be filled.

A request to shut the application down is in every heartbeat from then on, the one that leaves as well. The
coordinator answers with the tasks to run, where they are others; with `statuses`, all that hold at the
moment; and with the endpoints of all members, where they are others than the member has seen.

The topology is told again with every join, and a member that is given tasks of a subtopology that it does
not have fails: it cannot run them, and the group would wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from konvene.client.errors import BadResponse
from konvene.client.membership.state_machine import Machine, State
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.tasks import Assignment, Task, Topology, rows
from konvene.errors import Errors
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskOffset,
)

__all__ = [
    "NO_STREAMS_PROTOCOL", "EndpointPartitions", "Offsets", "Status", "StatusCode", "StreamsMembership",
]  # fmt: skip

LATEST_VERSION = 1
UNSEEN = -1
"""The endpoint epoch of who has been told nothing."""

UNKNOWN_OFFSET = 2**63 - 1
"""What Java's client sums up to where a sum overflows."""

NO_STREAMS_PROTOCOL = (
    "The cluster does not support the STREAMS group protocol or does not support the versions of the STREAMS "
    f"group protocol used by this client (used versions: 0 to {LATEST_VERSION})."
)
"""What Kafka's client says in this case."""


class StatusCode(IntEnum):
    """What a coordinator tells of the group, beside an answer without an error."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


_NOT_READY = frozenset(
    {
        StatusCode.MISSING_SOURCE_TOPICS,
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        StatusCode.MISSING_INTERNAL_TOPICS,
        StatusCode.ASSIGNMENT_DELAYED,
    }
)


class Status(NamedTuple):
    """A status as it came: a newer broker may know of other codes."""

    code: int
    detail: str


Offsets = Mapping[Task, int]
"""How far tasks have come: sums over their changelogs."""


class EndpointPartitions(NamedTuple):
    """Whose state is to be asked at an endpoint."""

    active: tuple[TopicPartition, ...]
    standby: tuple[TopicPartition, ...]


class _Told(NamedTuple):
    """What the coordinator knows of the member, if the last heartbeat reached it."""

    held_turn: int
    shutdown: bool
    offsets: Offsets | None
    end_offsets: Offsets | None
    """None: nothing was told of them yet."""


class StreamsMembership(Machine[Assignment]):
    """One member of one streams group. Members with the same `process_id` share their state on disk."""

    def __init__(
        self, group_id: str, member_id: str, topology: Topology, *, process_id: str,
        instance_id: str | None = None, rack_id: str | None = None,
        endpoint: tuple[str, int] | None = None, tags: Mapping[str, str] | None = None,
        rebalance_timeout_ms: int = 300_000, retry_backoff_ms: int = 100, retry_backoff_max_ms: int = 1_000,
        unreleased_ms: int = 60_000,
    ) -> None:  # fmt: skip
        super().__init__(
            group_id, member_id, Assignment(), instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms, retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms, unreleased_ms=unreleased_ms,
        )  # fmt: skip
        self.topology = topology
        self.process_id = process_id
        self.rack_id = rack_id
        self.endpoint = endpoint
        """Host and port at which others can ask for its state."""
        self.tags = dict(tags or {})
        self.offsets: Offsets = {}
        self.end_offsets: Offsets = {}
        self._reports = False

        self.statuses: tuple[Status, ...] = ()
        """All that the coordinator had to tell with its last answer."""
        self.endpoints: dict[tuple[str, int], EndpointPartitions] = {}
        """Of all members that have one."""
        self.endpoint_epoch = UNSEEN
        self.task_offset_interval_ms = 0
        self.acceptable_recovery_lag = -1
        self.description_wanted = False
        """Whether the coordinator asks for what the topology looks like (KIP-1331)."""

        self._wire = topology.wire()
        self._names = frozenset(each.subtopology_id for each in topology.subtopologies)
        self._told: _Told | None = None
        self._shutdown = False
        self._offsets_told_ms = 0

    def __repr__(self) -> str:
        return (
            f"<StreamsMembership {self.member_id} of {self.group_id}: {self.state.value}, "
            f"epoch {self.epoch}, has {self.held}>"
        )

    # what the caller does

    def report(self, offsets: Offsets, end_offsets: Offsets) -> None:
        """How far its tasks have come, dormant ones on its disk too; told when their interval is over."""
        self.offsets, self.end_offsets = dict(offsets), dict(end_offsets)
        self._reports = True

    def request_shutdown(self) -> None:
        """Have all members of the application shut down; the coordinator hears of it at once."""
        self._shutdown = True

    # what follows from the last answer

    @property
    def is_ready(self) -> bool:
        """Whether the group's topics are there and its members were waited for. Without, it has no tasks."""
        return not any(each.code in _NOT_READY for each in self.statuses)

    @property
    def shutdown_requested(self) -> bool:
        """Whether some member wants all of the application to shut down."""
        return any(each.code == StatusCode.SHUTDOWN_APPLICATION for each in self.statuses)

    # what it says

    def request(self, now_ms: int, version: int = LATEST_VERSION) -> StreamsGroupHeartbeatRequest:
        """The heartbeat to send now."""
        request: StreamsGroupHeartbeatRequest = super().request(now_ms, version)
        return request

    @property
    def _told_turn(self) -> int | None:
        return None if self._told is None else self._told.held_turn

    @property
    def _all_is_told(self) -> bool:
        told = self._told
        return told is not None and (told.held_turn, told.shutdown) == (self.held_turn, self._shutdown)

    def _forget_told(self) -> None:
        self._told = None

    def _farewell(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch,
            endpoint_information_epoch=self.endpoint_epoch, instance_id=self.instance_id,
            shutdown_application=self._shutdown,
        )  # fmt: skip

    def _whole(self, version: int) -> StreamsGroupHeartbeatRequest:
        request = self._farewell(self.epoch).replace(**self._news())
        if self._phase is State.JOINING:
            request = request.replace(**self._introduction())
        return request

    def _introduction(self) -> dict[str, Any]:
        """What only who joins says."""
        return {
            "topology": self._wire,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "process_id": self.process_id,
            "rack_id": self.rack_id,
            "user_endpoint": None
            if self.endpoint is None
            else Endpoint(host=self.endpoint[0], port=self.endpoint[1]),
            "client_tags": tuple(KeyValue(key=k, value=v) for k, v in sorted(self.tags.items())),
        }

    def _news(self) -> dict[str, Any]:
        """The fields that the coordinator does not know yet, as far as we know."""
        told = self._told
        fields: dict[str, Any] = {}
        has_moved = told is None or told.held_turn != self.held_turn
        if has_moved:
            fields["active_tasks"] = rows(self.held.active)
            fields["standby_tasks"] = rows(self.held.standby)
            fields["warmup_tasks"] = rows(self.held.warmup)
        offsets, end_offsets = (None, None) if told is None else (told.offsets, told.end_offsets)
        if self._reports and (has_moved or self._offsets_are_due()):
            if self.offsets != offsets:
                fields["task_offsets"] = _offset_rows(self.offsets)
            if self.end_offsets != end_offsets:
                fields["task_end_offsets"] = _offset_rows(self.end_offsets)
            offsets, end_offsets = self.offsets, self.end_offsets
            if "task_offsets" in fields or "task_end_offsets" in fields:
                self._offsets_told_ms = self._sent_ms
        self._told = _Told(self.held_turn, self._shutdown, offsets, end_offsets)
        return fields

    def _offsets_are_due(self) -> bool:
        """After their interval, and sooner where a warm-up has nearly caught up: the group waits for that."""
        if self._sent_ms >= self._offsets_told_ms + self.task_offset_interval_ms:
            return True
        return any(
            self.end_offsets[task] - self.offsets[task] <= self.acceptable_recovery_lag
            for task in self.held.warmup
            if self.offsets.get(task, UNKNOWN_OFFSET) < UNKNOWN_OFFSET
            and self.end_offsets.get(task, UNKNOWN_OFFSET) < UNKNOWN_OFFSET
        )

    # what it hears

    def _heard(self, answer: StreamsGroupHeartbeatResponse) -> Assignment | None:
        self.task_offset_interval_ms = answer.task_offset_interval_ms
        self.acceptable_recovery_lag = answer.acceptable_recovery_lag
        self.description_wanted = answer.topology_description_required
        self.endpoint_epoch = answer.endpoint_information_epoch
        if answer.partitions_by_user_endpoint is not None:
            self.endpoints = _endpoints(answer)
        if answer.status is not None:
            self.statuses = tuple(Status(each.status_code, each.status_detail) for each in answer.status)
        told = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
        if any(each is None for each in told):
            if any(each is not None for each in told):
                self._fail(BadResponse(f"group {self.group_id}: tasks in some roles, and null in others"))
            return None
        target = Assignment.read(*told)
        unknown = sorted({task.subtopology for _, task in target.units()} - self._names)
        if unknown:
            names = ", ".join(unknown)
            self._fail(BadResponse(f"group {self.group_id}: tasks of subtopologies not known here: {names}"))
            return None
        return target

    def _words(self, code: int, message: str | None) -> str | None:
        if code == Errors.UNSUPPORTED_VERSION:
            return NO_STREAMS_PROTOCOL
        if code == Errors.GROUP_AUTHORIZATION_FAILED:
            return f"Not authorized to access group: {self.group_id}"
        return message


def _offset_rows(offsets: Offsets) -> tuple[TaskOffset, ...]:
    return tuple(
        TaskOffset(subtopology_id=task.subtopology, partition=task.partition, offset=offsets[task])
        for task in sorted(offsets, key=lambda t: t.place)
    )


def _endpoints(answer: StreamsGroupHeartbeatResponse) -> dict[tuple[str, int], EndpointPartitions]:
    """Members of one process have the same endpoint, and what they have adds up."""
    found: dict[tuple[str, int], EndpointPartitions] = {}
    for each in answer.partitions_by_user_endpoint or ():
        where = each.user_endpoint.host, each.user_endpoint.port
        known = found.get(where, EndpointPartitions((), ()))
        found[where] = EndpointPartitions(
            (*known.active, *_partitions(each.active_partitions)),
            (*known.standby, *_partitions(each.standby_partitions)),
        )
    return found


def _partitions(told: Any) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, p) for row in told for p in row.partitions)
