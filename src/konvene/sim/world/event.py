"""`Event`: what invariants check, one thing that happened to a shard, with the state before and after.

Classic groups are immutable values, so the state before an event is a reference to the old value. Modern
groups are changed in place: `before` has a copy, and `after` is the live group, to be read while the event is
observed. An event contains only the groups and offsets that it touched. That no others changed is checked by
events of the kind "audit", which contain all of them and occur at regular intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.records.commits import Committed
from konvene.shard.contract import Outcome, Reply

if TYPE_CHECKING:
    from konvene.sim.group_runtime import GroupRuntime
    from konvene.sim.journal import Batch

MODERN_GROUP_TYPES = (ConsumerGroup, StreamsGroup, ShareGroup)
"""Types of groups in which the coordinator computes assignments."""

OffsetKey = tuple[str, str, int]
"""Key of a committed offset: group, topic, partition."""


class View(NamedTuple):
    """A read-only view of the groups and offsets of a shard."""

    groups: Mapping[str, Any]
    offsets: Mapping[OffsetKey, Committed]

    def group(self, group_id: str) -> ClassicGroup:
        """Return the classic group of that name, or an empty one."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ClassicGroup) else ClassicGroup(group_id)

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group of that name, or an empty one."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(group_id)


EMPTY_VIEW = View({}, {})


@dataclass(slots=True)
class Event:
    """Something that happened to a shard, with its state before and after; the input of invariants.

    `kind` is one of
        "request"        a request was decided or rejected
        "timer"          a timer expired
        "completion"     work outside of the shard was completed; `key` names it
        "too large"      the records of a decision exceeded the maximum batch size
        "refused"        the log rejected the producer of a decision's records
        "append failed"  the append of a decision failed; the shard has to be loaded again
        "loaded"         the shard was read from its log; `before` is the state at the end of its predecessor
        "audit"          nothing happened; the views hold the whole shard
    """

    kind: str
    runtime: GroupRuntime
    before: View
    after: View
    changed: bool = False
    """Whether the event changed the state: its outcome had records to replay."""
    api: str = ""
    """Kafka's name of the request, such as "JoinGroup"."""
    request: Any = None
    version: int = 0
    client_id: str = ""
    context: Any = None
    """The `Context` in which the request was decided."""
    waiter: int = 0
    """Number of the pending call that waits for the response."""
    key: tuple[str, ...] = ()
    """Key of the timer, or ("completion", type of the background work)."""
    news: Any = None
    """Result of the background work that was completed."""
    outcome: Outcome | None = None
    batch: Batch | None = None
    answer: Struct | Errors | None = None
    """Response to the request, sent when the log is durable; None if the request waits."""
    answered: tuple[Reply, ...] = ()
    """All responses that this event decided, as (`waiter`, response)."""
    lost: int = 0
    """Number of batches that the log lost before it was loaded."""

    @property
    def error(self) -> Errors | None:
        """Error code of the response; None if the request waits."""
        if isinstance(self.answer, Errors) or self.answer is None:
            return self.answer
        return Errors(getattr(self.answer, "error_code", 0))

    @property
    def is_complete(self) -> bool:
        """True if the views contain the shard's whole state."""
        return self.kind in ("audit", "loaded")

    @property
    def group_before(self) -> ClassicGroup:
        """The classic group that the request names, before the event; an empty one if there is none."""
        return self.before.group(self.request.group_id)

    @property
    def group_after(self) -> ClassicGroup:
        return self.after.group(self.request.group_id)

    @property
    def concerns_modern_group(self) -> bool:
        """True if the request or timer concerns a group that is or was a consumer, share or streams group."""
        if self.request is not None:
            name = getattr(self.request, "group_id", "")
        else:
            name = self.key[1] if len(self.key) > 1 else ""
        return any(
            isinstance(view.groups.get(name), MODERN_GROUP_TYPES) for view in (self.before, self.after)
        )

    def is_classic_request(self, *apis: str) -> bool:
        """Return True for a request of one of these APIs that concerns a classic group."""
        return self.is_request(*apis) and not self.concerns_modern_group

    def is_request(self, *apis: str) -> bool:
        """Return True for a request of one of these APIs."""
        return self.kind == "request" and self.api in apis


class Invariant:
    """A condition that holds after every event. The first line of a subclass's docstring states it."""

    def after(self, event: Event) -> None:
        """Check the event. Raises AssertionError, by `assert`, if the invariant is violated."""
        raise NotImplementedError


class InvariantViolation(Exception):
    """Raised when an invariant is violated, with the invariant's name and the reason."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}: {why}")
        self.invariant = invariant
        self.why = why


def full_view(shard: GroupShard) -> View:
    """Return a view of everything that a shard holds."""
    return View(dict(shard.groups), all_offsets(shard))


def all_offsets(shard: GroupShard) -> dict[OffsetKey, Committed]:
    return {
        (group, topic, partition): committed
        for group, topics in shard.offsets.items()
        for topic, partitions in topics.items()
        for partition, committed in partitions.items()
    }
