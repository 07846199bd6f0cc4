"""What a promise looks at: an event, with the state before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.groups.world import Batch, State

from konvene.codec.compile import decode
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.records.commits import Committed, decode_group_record, encode_group_record
from konvene.shard.contract import Outcome

if TYPE_CHECKING:
    from tests.groups.promises import Life

SETTLED = (State.STABLE, State.EMPTY)
"""The states that a record tells of. In the others a group is on its way; the log still has the last one."""


RETENTION = ("retention",)
"""The timer by which offsets and groups go that are of no use any more."""


class Snapshot(NamedTuple):
    """What a shard holds, as values that nobody changes."""

    groups: dict[str, ClassicGroup]
    offsets: dict[tuple[str, str, int], Committed]

    def group(self, group_id: str) -> ClassicGroup:
        """The group, or an empty one."""
        return self.groups.get(group_id) or ClassicGroup(group_id)


def snapshot(shard: GroupShard) -> Snapshot:
    return Snapshot({name: group.copy() for name, group in shard.groups.items()}, all_offsets(shard))


def all_offsets(shard: GroupShard) -> dict[tuple[str, str, int], Committed]:
    return {
        (group, topic, partition): committed
        for group, topics in shard.offsets.items()
        for topic, partitions in topics.items()
        for partition, committed in partitions.items()
    }


def in_order(shard: GroupShard) -> tuple[Any, ...]:
    """All that a shard holds, in the order in which it holds it."""
    groups = [(g, list(g.members), list(g.instances)) for g in shard.groups.values()]
    return groups, list(all_offsets(shard).items())


def replay_batch(shard: GroupShard, batch: Batch) -> None:
    for key, value in batch:
        record = decode_group_record(key, value)
        assert record is not None
        assert encode_group_record(record) == (key, value)
        shard.replay(record)


@dataclass
class Event:
    """One thing that happened. `kind` is "asked", "timer", "restart", "too large" or "append failed"."""

    kind: str
    life: Life
    before: Snapshot
    after: Snapshot
    request: Any = None
    version: int = 0
    key: Any = None
    outcome: Outcome | None = None
    batch: Batch | None = None
    answer: Struct | Errors | None = None
    """What the one who asked was answered at once."""
    answered: tuple[tuple[int, Struct], ...] = ()
    """All answers that left."""
    started_ms: int = 0

    @property
    def error(self) -> Errors | None:
        """With which error the request was answered at once; None if it waits."""
        if isinstance(self.answer, Errors) or self.answer is None:
            return self.answer
        return Errors(getattr(self.answer, "error_code", 0))

    @property
    def asked_of(self) -> ClassicGroup:
        """The group that was asked, before."""
        return self.before.group(self.request.group_id)

    @property
    def asked_of_after(self) -> ClassicGroup:
        return self.after.group(self.request.group_id)

    def asks(self, *names: str) -> bool:
        """Whether it is a request of one of these APIs that was decided."""
        return self.kind == "asked" and type(self.request).__name__.removesuffix("Request") in names


class Promise:
    """What holds after every event."""

    def after(self, event: Event) -> None:
        raise NotImplementedError


def is_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> bool:
    """Whether these are the ids of one member, said independently of the group's own check."""
    member = group.members.get(member_id)
    return member is not None and instance_id in (None, member.instance_id)


def subscribed_topics(group: ClassicGroup) -> set[str]:
    """The topics that members say they read; their metadata is a subscription of version 1."""
    return {
        topic
        for member in group.members.values()
        for topic in decode(
            ConsumerProtocolSubscription, 1, dict(member.protocols)[group.protocol][2:]
        ).topics
    }


def who_is(member: Any) -> str:
    """What a member is across changes of its member id."""
    return f"instance {member.instance_id}" if member.instance_id is not None else str(member.member_id)
