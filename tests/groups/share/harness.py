"""Test harness of share groups: the harness of consumer groups plus a simulated share coordinator.

Requests to the share coordinator wait until `work` is called, so that anything may happen in between.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.groups.consumer.harness import GroupHarness, error, topics

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

__all__ = ["ShareGroupHarness", "error", "logged_state", "topics"]

SOFT = {"soft", "reached_ms"}


def logged_state(group: Any) -> Any:
    """Return the part of a share group's state that its log must restore."""
    if group is None:
        return None
    return {f.name: getattr(group, f.name) for f in fields(group) if f.name not in SOFT}


class ShareGroupHarness(GroupHarness):
    """A `GroupHarness` for one share group, with the state that the share coordinator has."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**{"group_share_assignment_interval_ms": "0"} | settings)
        self.share_state: dict[SharePartitionKey, tuple[int, int]] = {}
        """State epoch and start offset of each initialized share partition."""
        self.departures: list[Any] = []
        """Departed members and emptied groups, as notified to the share partition servers."""

    @property
    def share(self) -> ShareGroup:
        group = self.group
        assert isinstance(group, ShareGroup)
        return group

    def beat(  # type: ignore[override]
        self, member_id: str, epoch: int | None = None, *names: str, **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        """Send a ShareGroupHeartbeat; the default epoch is the member's own, or 0 (join) for a non-member."""
        if epoch is None:
            known: Member | None = self.share.members.get(member_id) if self.group is not None else None
            epoch = known.current.epoch if known is not None else 0
        values: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
        if names or epoch == 0:
            values["subscribed_topic_names"] = names or ("orders",)
        response = self.ask(ShareGroupHeartbeatRequest(**values | fields), 1, member_id)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def stable(self, *member_ids: str, **fields: Any) -> None:
        """Join the members and heartbeat until each has its target assignment."""
        for member_id in member_ids:
            self.beat(member_id, **fields)
        self.work()
        for _ in range(2):
            for member_id in member_ids:
                self.beat(member_id)
        assert not self.share.behind
        assert self.share.epoch == self.share.assignment_epoch

    def work(self, *, fails: bool = False) -> None:
        """Run the pending requests to the share coordinator and deliver their results."""
        wanted, self.pending_work = self.pending_work, []
        for job in wanted:
            if isinstance(job, StateToInitialize):
                self.apply(self.shard.handle(self.initialize_state(job, fails), self.context()))
            elif isinstance(job, StateToDelete):
                if not fails:
                    self.apply(self.shard.handle(self.delete_state(job), self.context()))
            elif isinstance(job, tuple | str):
                self.departures.append(job)

    def initialize_state(self, job: Any, fails: bool = False) -> StateInitialized:
        keys = tuple(request.key for request in job.requests)
        if fails:
            return StateInitialized("g", (), keys)
        for request in job.requests:
            known = self.share_state.get(request.key, (-1, 0))[0]
            assert request.state_epoch >= known, "a state epoch never falls"
            self.share_state[request.key] = request.state_epoch, request.start_offset
        return StateInitialized("g", keys)

    def delete_state(self, job: Any) -> StateDeleted:
        for request in job.requests:
            self.share_state.pop(request.key, None)
        return StateDeleted("g", tuple(dict.fromkeys(request.key.topic_id for request in job.requests)))

    # --- administrators ---

    def alter_offsets(self, offsets: dict[str, dict[int, int]], *, complete: bool = True) -> OffsetsToAlter:
        topics = tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(partition_index=p, start_offset=offset)
                    for p, offset in partitions.items()
                ),
            )
            for name, partitions in offsets.items()
        )
        changes = self.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
        assert isinstance(changes, OffsetsToAlter)
        if complete and changes.requests:
            self.apply(self.shard.handle(self.initialize_state(changes), self.context()))
        return changes

    def delete_offsets(self, *names: str, complete: bool = True) -> OffsetsToDelete:
        topics = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names)
        changes = self.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
        assert isinstance(changes, OffsetsToDelete)
        if complete and changes.requests:
            self.apply(self.shard.handle(self.delete_state(changes), self.context()))
        return changes

    def begin_deletion(self) -> StateToDelete:
        self.request_id += 1
        self.apply(self.shard.handle(BeginDeletion("g"), self.context()))
        found = self.replies[self.request_id]
        assert isinstance(found, StateToDelete)
        return found

    def delete(self) -> Errors:
        """Delete the group's share state and then the group; return the error code."""
        self.delete_state(self.begin_deletion())
        (result,) = self.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
        return Errors(result.error_code)
