"""Members of a share group (KIP-932), as bench/crowd.py has those of a consumer group.

A member never says what it has: it has what it was told last. Partitions may have several members, but here
there are never fewer partitions than members, and then each has one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bench.crowd import JOIN, LEAVE, Consumer, Crowd, Software
from bench.topics import Topic
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class Sharer(Consumer):
    """One member."""

    ANSWER: ClassVar[type[Any]] = ShareGroupHeartbeatResponse

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

    def take(self, answer: Any) -> bool:
        super().take(answer)
        self.owes = False
        return False


def sharers(port: int, topic: Topic, software: Software | None = None, *, hurries: bool = False) -> Crowd:
    """The members of a share group."""
    return Crowd(port, topic, software, hurries=hurries, kind=Sharer)
