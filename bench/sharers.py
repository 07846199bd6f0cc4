"""Simulated members of a share group (KIP-932), like those of consumer groups in bench/crowd.py.

A member does not report its partitions: it owns the last received assignment. Partitions may have several
members, but here there are never fewer partitions than members, and then each has one.
"""

from __future__ import annotations

from typing import ClassVar

from bench.crowd import JOIN, LEAVE, Consumer, Crowd, HeartbeatResponse, Software
from bench.topics import Topic
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class Sharer(Consumer):
    """A member of the group."""

    ANSWER: ClassVar[type[HeartbeatResponse]] = ShareGroupHeartbeatResponse

    def _leave_request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.crowd.group, member_id=self.member_id, member_epoch=LEAVE
        )

    def _request(self) -> ShareGroupHeartbeatRequest:
        topics = (self.crowd.topic.name,) if self.epoch == JOIN else None
        return ShareGroupHeartbeatRequest(
            group_id=self.crowd.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=topics,
        )

    def apply(self, answer: HeartbeatResponse) -> bool:
        super().apply(answer)
        self.has_unreported = False
        return False


def sharers(port: int, topic: Topic, software: Software | None = None, *, fast_setup: bool = False) -> Crowd:
    """Return the members of a new share group."""
    return Crowd(port, topic, software, fast_setup=fast_setup, kind=Sharer)
