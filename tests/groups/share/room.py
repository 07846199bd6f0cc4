"""The core of share groups in a room of its own, with a share coordinator that does what it is told.

The room is that of consumer groups; what is asked of the share coordinator waits until `work` is called, so
that anything may happen in between.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.groups.consumer.room import Room, error, topics

from konvene.errors import Errors
from konvene.groups.share.group import Member, ShareGroup
from konvene.groups.share.work import (
    BeginDeletion,
    OffsetsToAlter,
    OffsetsToDelete,
    StateDeleted,
    StateInitialized,
    StateToDelete,
    StateToInitialize,
)
from konvene.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from konvene.share_state.requests import SharePartitionKey

__all__ = ["ShareRoom", "error", "kept", "topics"]

SOFT = {"soft", "reached_ms"}


def kept(group: Any) -> Any:
    """What of a share group has to be in its log."""
    if group is None:
        return None
    return {f.name: getattr(group, f.name) for f in fields(group) if f.name not in SOFT}


class ShareRoom(Room):
    """See the top of this file."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**{"group_share_assignment_interval_ms": "0"} | settings)
        self.begun: dict[SharePartitionKey, tuple[int, int]] = {}
        """What the share coordinator has: state epoch and start offset."""
        self.told: list[Any] = []
        """Who is gone, and which group is empty, as those who deliver hear it."""

    @property
    def share(self) -> ShareGroup:
        group = self.group
        assert isinstance(group, ShareGroup)
        return group

    def beat(  # type: ignore[override]
        self, member_id: str, epoch: int | None = None, *names: str, **said: Any
    ) -> ShareGroupHeartbeatResponse:
        """A ShareGroupHeartbeat; without an epoch at the member's own, which joins if it is none."""
        if epoch is None:
            known: Member | None = self.share.members.get(member_id) if self.group is not None else None
            epoch = known.current.epoch if known is not None else 0
        told: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
        if names or epoch == 0:
            told["subscribed_topic_names"] = names or ("orders",)
        answer = self.ask(ShareGroupHeartbeatRequest(**told | said), 1, member_id)
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def stable(self, *member_ids: str, **said: Any) -> None:
        """All of them in one group, each with its target."""
        for member_id in member_ids:
            self.beat(member_id, **said)
        self.work()
        for _ in range(2):
            for member_id in member_ids:
                self.beat(member_id)
        assert not self.share.behind
        assert self.share.epoch == self.share.assignment_epoch

    def work(self, *, fails: bool = False) -> None:
        """All that waits for the share coordinator is done, and what came of it told."""
        wanted, self.wanted = self.wanted, []
        for asked in wanted:
            if isinstance(asked, StateToInitialize):
                self.take(self.shard.handle(self.initialized(asked, fails), self.context()))
            elif isinstance(asked, StateToDelete):
                if not fails:
                    self.take(self.shard.handle(self.forgotten(asked), self.context()))
            elif isinstance(asked, tuple | str):
                self.told.append(asked)

    def initialized(self, asked: Any, fails: bool = False) -> StateInitialized:
        done = tuple(request.key for request in asked.requests)
        if fails:
            return StateInitialized("g", (), done)
        for request in asked.requests:
            known = self.begun.get(request.key, (-1, 0))[0]
            assert request.state_epoch >= known, "a state epoch never falls"
            self.begun[request.key] = request.state_epoch, request.start_offset
        return StateInitialized("g", done)

    def forgotten(self, asked: Any) -> StateDeleted:
        for request in asked.requests:
            self.begun.pop(request.key, None)
        return StateDeleted("g", tuple(dict.fromkeys(request.key.topic_id for request in asked.requests)))

    # --- administrators ---

    def alter(self, offsets: dict[str, dict[int, int]], *, to_its_end: bool = True) -> OffsetsToAlter:
        wanted = tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=offset)
                    for p, offset in some.items()
                ),
            )
            for name, some in offsets.items()
        )
        found = self.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=wanted), 0)
        assert isinstance(found, OffsetsToAlter)
        if to_its_end and found.requests:
            self.take(self.shard.handle(self.initialized(found), self.context()))
        return found

    def quit(self, *names: str, to_its_end: bool = True) -> OffsetsToDelete:
        wanted = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names)
        found = self.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=wanted), 0)
        assert isinstance(found, OffsetsToDelete)
        if to_its_end and found.requests:
            self.take(self.shard.handle(self.forgotten(found), self.context()))
        return found

    def begin_deletion(self) -> StateToDelete:
        self.asked += 1
        self.take(self.shard.handle(BeginDeletion("g"), self.context()))
        found = self.replies[self.asked]
        assert isinstance(found, StateToDelete)
        return found

    def delete(self) -> Errors:
        """The group, to its end."""
        self.forgotten(self.begin_deletion())
        (result,) = self.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
        return Errors(result.error_code)
