"""State machine of a member of a streams group (KIP-1071): the fields of its heartbeats and its assignment.

`MembershipMachine` decides when a heartbeat is due and how errors are handled. The assignment is a set of
tasks in three roles. A heartbeat carries:

    epoch 0       everything: topology, process id, endpoint, client tags, no owned tasks, and the
                  task offsets if the caller reports any
    epoch > 0     the owned tasks, if they have changed; the task offsets, if they have changed and the task
                  offset interval is over; after an error both
    epoch -1, -2  the member's identity only

If the caller never calls `report`, the offset fields stay null. Empty ones would mean that the member has no
state on disk and will restore it, and other tasks would wait for its warm-ups.

Once `request_shutdown` was called, every heartbeat requests the shutdown of the application, including the
one that leaves. A response carries the tasks, if they have changed; `statuses`, all that hold at the moment;
and the endpoints of all members, if the member has not seen them.

The member sends its topology with every join. It fails if it is assigned a task of a subtopology that it does
not have, because it cannot run the task and the group would wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import ClassVar, NamedTuple

from konvene.client.errors import BadResponse
from konvene.client.membership.state_machine import MembershipMachine, MembershipSettings, MemberState
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.tasks import Assignment, Task, Topology, task_ids
from konvene.errors import Errors
from konvene.messages import streams_group_heartbeat as messages
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
NO_ENDPOINT_EPOCH = -1
"""Endpoint epoch of a member that has not seen any endpoints."""

UNKNOWN_OFFSET = 2**63 - 1
"""The value that Java's client sends if the sum of changelog offsets overflows."""

NO_STREAMS_PROTOCOL = (
    "The cluster does not support the STREAMS group protocol or does not support the versions of the STREAMS "
    f"group protocol used by this client (used versions: 0 to {LATEST_VERSION})."
)
"""The message of Kafka's client."""


class StatusCode(IntEnum):
    """Conditions of the group that a heartbeat response reports."""

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
    """One status of a response. `code` may be one that `StatusCode` does not have, from a newer broker."""

    code: int
    detail: str


Offsets = Mapping[Task, int]
"""Progress by task: the sum of the offsets of its changelogs."""


class EndpointPartitions(NamedTuple):
    """Partitions whose state can be queried at an endpoint."""

    active: tuple[TopicPartition, ...]
    standby: tuple[TopicPartition, ...]


class StreamsMembership(
    MembershipMachine[Assignment, StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]
):
    """State machine of one member of one streams group.

    Members with the same `process_id` share their state on disk. `endpoint` is the host and port at which the
    member's state can be queried, `tags` are its client tags."""

    error_messages: ClassVar = {Errors.UNSUPPORTED_VERSION: NO_STREAMS_PROTOCOL}

    def __init__(
        self, group_id: str, member_id: str, topology: Topology, settings: MembershipSettings | None = None,
        *, process_id: str, endpoint: tuple[str, int] | None = None, tags: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(group_id, member_id, Assignment(), settings or MembershipSettings())
        self.topology = topology
        self.process_id = process_id
        self.endpoint = endpoint
        self.tags = dict(tags or {})
        self.offsets: Offsets = {}
        self.end_offsets: Offsets = {}
        self._reports_offsets = False

        self.statuses: tuple[Status, ...] = ()
        """All statuses of the last response that carried the field."""
        self.endpoints: dict[tuple[str, int], EndpointPartitions] = {}
        """Endpoints of all members that have one."""
        self.endpoint_epoch = NO_ENDPOINT_EPOCH
        self.task_offset_interval_ms = 0
        self.acceptable_recovery_lag = -1
        self.topology_description_required = False
        """Whether the coordinator requests a description of the topology (KIP-1331)."""

        self._topology_message = topology.to_message()
        self._subtopologies = frozenset(each.subtopology_id for each in topology.subtopologies)
        self._shutdown = self._sent_shutdown = False
        self._sent_offsets: Offsets | None = None
        self._sent_end_offsets: Offsets | None = None
        self._offsets_sent_ms = 0

    def __repr__(self) -> str:
        return (
            f"<StreamsMembership {self.member_id} of {self.group_id}: {self.state.value}, "
            f"epoch {self.epoch}, has {self.owned}>"
        )

    # calls of the application

    def report(self, offsets: Offsets, end_offsets: Offsets) -> None:
        """Set the progress of tasks, dormant ones on disk included; sent once the task offset interval is
        over."""
        self.offsets, self.end_offsets = dict(offsets), dict(end_offsets)
        self._reports_offsets = True

    def request_shutdown(self) -> None:
        """Request the shutdown of all members of the application with the next heartbeat, due at once."""
        self._shutdown = True

    @property
    def is_ready(self) -> bool:
        """Whether the group can assign tasks: its topics exist and its initial delay is over."""
        return not any(each.code in _NOT_READY for each in self.statuses)

    @property
    def shutdown_requested(self) -> bool:
        """Whether a member has requested the shutdown of the application."""
        return any(each.code == StatusCode.SHUTDOWN_APPLICATION for each in self.statuses)

    # requests

    def request(self, now_ms: int, version: int = LATEST_VERSION) -> StreamsGroupHeartbeatRequest:
        """Return the heartbeat to send now."""
        return super().request(now_ms, version)

    @property
    def _has_unsent_changes(self) -> bool:
        return self._sent_shutdown != self._shutdown

    def _leave_request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch,
            endpoint_information_epoch=self.endpoint_epoch, instance_id=self.settings.instance_id,
            shutdown_application=self._shutdown,
        )  # fmt: skip

    def _heartbeat_request(self, version: int) -> StreamsGroupHeartbeatRequest:
        request = self._leave_request(self.epoch).replace(**self._unsent_fields())
        self._sent_shutdown = self._shutdown
        if self._phase is MemberState.JOINING:
            request = request.replace(**self._join_fields())
        return request

    def _join_fields(self) -> dict[str, object]:
        """Return the fields that only a joining member sends."""
        return {
            "topology": self._topology_message,
            "rebalance_timeout_ms": self.settings.rebalance_timeout_ms,
            "process_id": self.process_id,
            "rack_id": self.settings.rack_id,
            "user_endpoint": None
            if self.endpoint is None
            else Endpoint(host=self.endpoint[0], port=self.endpoint[1]),
            "client_tags": tuple(KeyValue(key=k, value=v) for k, v in sorted(self.tags.items())),
        }

    def _unsent_fields(self) -> dict[str, object]:
        """Return the tasks and offsets that the coordinator does not have yet, as far as the client knows."""
        fields: dict[str, object] = {}
        if self._sent_owned_version is None:
            self._sent_offsets = self._sent_end_offsets = None
        sends_tasks = self._sent_owned_version != self.owned_version
        if sends_tasks:
            fields["active_tasks"] = task_ids(self.owned.active)
            fields["standby_tasks"] = task_ids(self.owned.standby)
            fields["warmup_tasks"] = task_ids(self.owned.warmup)
        if self._reports_offsets and (sends_tasks or self._offsets_are_due()):
            if self.offsets != self._sent_offsets:
                fields["task_offsets"] = _task_offsets(self.offsets)
            if self.end_offsets != self._sent_end_offsets:
                fields["task_end_offsets"] = _task_offsets(self.end_offsets)
            self._sent_offsets, self._sent_end_offsets = self.offsets, self.end_offsets
            if "task_offsets" in fields or "task_end_offsets" in fields:
                self._offsets_sent_ms = self._sent_ms
        return fields

    def _offsets_are_due(self) -> bool:
        """Return True if the task offsets are to be sent: the task offset interval is over, or the lag of a
        warm-up task is acceptable."""
        if self._sent_ms >= self._offsets_sent_ms + self.task_offset_interval_ms:
            return True
        return any(
            self.end_offsets[task] - self.offsets[task] <= self.acceptable_recovery_lag
            for task in self.owned.warmup
            if self.offsets.get(task, UNKNOWN_OFFSET) < UNKNOWN_OFFSET
            and self.end_offsets.get(task, UNKNOWN_OFFSET) < UNKNOWN_OFFSET
        )

    # responses

    def _read_response(self, response: StreamsGroupHeartbeatResponse) -> Assignment | None:
        self.task_offset_interval_ms = response.task_offset_interval_ms
        self.acceptable_recovery_lag = response.acceptable_recovery_lag
        self.topology_description_required = response.topology_description_required
        self.endpoint_epoch = response.endpoint_information_epoch
        if response.partitions_by_user_endpoint is not None:
            self.endpoints = _endpoints(response)
        if response.status is not None:
            self.statuses = tuple(Status(each.status_code, each.status_detail) for each in response.status)
        tasks = response.active_tasks, response.standby_tasks, response.warmup_tasks
        if any(each is None for each in tasks):
            if any(each is not None for each in tasks):
                self._fail(BadResponse(f"group {self.group_id}: tasks in some roles, and null in others"))
            return None
        target = Assignment.from_message(*tasks)
        unknown = sorted({task.subtopology for _, task in target.units()} - self._subtopologies)
        if unknown:
            names = ", ".join(unknown)
            self._fail(BadResponse(f"group {self.group_id}: tasks of subtopologies not known here: {names}"))
            return None
        return target


def _task_offsets(offsets: Offsets) -> tuple[TaskOffset, ...]:
    return tuple(
        TaskOffset(subtopology_id=task.subtopology, partition=task.partition, offset=offsets[task])
        for task in sorted(offsets, key=lambda t: t.sort_key)
    )


def _endpoints(response: StreamsGroupHeartbeatResponse) -> dict[tuple[str, int], EndpointPartitions]:
    """Return the queryable partitions by endpoint.

    Members of one process have the same endpoint, so their rows are merged."""
    found: dict[tuple[str, int], EndpointPartitions] = {}
    for each in response.partitions_by_user_endpoint or ():
        endpoint = each.user_endpoint.host, each.user_endpoint.port
        merged = found.get(endpoint, EndpointPartitions((), ()))
        found[endpoint] = EndpointPartitions(
            (*merged.active, *_partitions(each.active_partitions)),
            (*merged.standby, *_partitions(each.standby_partitions)),
        )
    return found


def _partitions(rows: Iterable[messages.TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(row.topic, p) for row in rows for p in row.partitions)
