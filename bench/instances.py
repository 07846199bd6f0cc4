"""Simulated members of a streams group (KIP-1071): one thread of an application each, in a process of its
own.

They behave like the members of `bench/crowd.py`. In addition they send a topology when they join, and have
tasks: one for each partition of the topic that all subtopologies read. There is no state to restore, so an
assigned task runs at once. Members with an endpoint receive the endpoints of all tasks whenever these change.
"""

from __future__ import annotations

import secrets
from typing import ClassVar

from bench.crowd import (
    JOIN,
    LEAVE,
    REBALANCE_TIMEOUT_MS,
    Consumer,
    Crowd,
    HeartbeatResponse,
    Line,
    Software,
)
from bench.topics import Topic
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)


class Instances(Crowd):
    """The members of a streams group. All subtopologies read `topic` and have a task for each of its
    partitions."""

    def __init__(
        self,
        port: int,
        topic: Topic,
        software: Software | None = None,
        *,
        subtopologies: int = 1,
        fast_setup: bool = False,
        endpoints: bool = False,
    ) -> None:
        tasks = topic._replace(partitions=subtopologies * topic.partitions)
        super().__init__(port, tasks, software, fast_setup=fast_setup, kind=Instance)
        self.endpoints = endpoints
        each = (Subtopology(subtopology_id=str(n), source_topics=(topic.name,)) for n in range(subtopologies))
        self.topology = Topology(subtopologies=tuple(each))


class Instance(Consumer):
    """A member of the group."""

    ANSWER: ClassVar[type[HeartbeatResponse]] = StreamsGroupHeartbeatResponse

    def __init__(self, crowd: Crowd, line: Line) -> None:
        super().__init__(crowd, line)
        self.process_id = secrets.token_urlsafe(16)
        self.endpoint_epoch = -1

    def _leave_request(self) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.crowd.group, member_id=self.member_id, member_epoch=LEAVE
        )

    def _request(self) -> StreamsGroupHeartbeatRequest:
        crowd = self.crowd
        assert isinstance(crowd, Instances)
        request = StreamsGroupHeartbeatRequest(
            group_id=crowd.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=self.endpoint_epoch,
        )
        if self.epoch == JOIN:
            return request.replace(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                topology=crowd.topology,
                active_tasks=(),
                standby_tasks=(),
                warmup_tasks=(),
                process_id=self.process_id,
                user_endpoint=Endpoint(host=self.member_id, port=1) if crowd.endpoints else None,
                client_tags=(),
            )
        if not self.has_unreported:
            return request
        return request.replace(active_tasks=self.owns, standby_tasks=(), warmup_tasks=())

    def apply(self, answer: HeartbeatResponse) -> bool:
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        if answer.endpoint_information_epoch != self.endpoint_epoch:
            self.endpoint_epoch = answer.endpoint_information_epoch
            self._frame = b""
        return super().apply(answer)

    def _given(self, answer: HeartbeatResponse) -> tuple[TaskIds, ...] | None:
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        return answer.active_tasks
