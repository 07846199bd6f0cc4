"""What a promise looks at: an event, with what it touched, before and after.

Classic groups are values that are replaced and never changed, so what was there before an event can be kept
by holding on to it. Groups whose coordinator assigns are changed in place: of what was there before there is
a copy, and what is there after an event is to be looked at while it is told. An event has the groups and
offsets that it touched; that it touched no others is looked after by events of the kind "audit", which have
everything and come every so many steps.
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
from konvene.shard.contract import Outcome

if TYPE_CHECKING:
    from konvene.sim.runtime import Batch, Shell

MODERN_GROUP_TYPES = (ConsumerGroup, StreamsGroup, ShareGroup)
"""The kinds of groups whose coordinator assigns."""

OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""


class View(NamedTuple):
    """Groups and offsets of a shard, as values that nobody changes."""

    groups: Mapping[str, Any]
    offsets: Mapping[OffsetKey, Committed]

    def group(self, group_id: str) -> ClassicGroup:
        """The classic group of that name, or an empty one."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ClassicGroup) else ClassicGroup(group_id)

    def consumer(self, group_id: str) -> ConsumerGroup:
        """The consumer group of that name, or an empty one."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else ConsumerGroup(group_id)


NOTHING = View({}, {})


@dataclass(slots=True)
class Event:
    """One thing that happened to a shard.

    `kind` is one of
        "request"          a request was decided, or refused
        "timer"          a timer ran out
        "news"           work that was done elsewhere came to its end; `key` says which
        "too large"      a request was decided, and its records did not fit
        "refused"        a request was decided, and the log does not take what its producer writes
        "append failed"  what was decided could not be appended; the shard is to be loaded again
        "loaded"         the shard was read from its log; `before` is what there was when the last one ended
        "audit"           nothing happened; everything is there to be looked at
    """

    kind: str
    shell: Shell
    before: View
    after: View
    changed: bool = False
    """Whether there was anything to replay."""
    api: str = ""
    """Of the request: Kafka's name, such as "JoinGroup"."""
    request: Any = None
    version: int = 0
    client_id: str = ""
    context: Any = None
    """What the one who decided was told beside the request."""
    waiter: int = 0
    """The number of who asked."""
    key: Any = None
    """Of the timer, or of the news."""
    news: Any = None
    """What came of work that was done elsewhere."""
    outcome: Outcome | None = None
    batch: Batch | None = None
    answer: Struct | Errors | None = None
    """What the one who asked is answered; None if it has to wait. It leaves when the log is durable."""
    answered: tuple[tuple[int, Any], ...] = ()
    """All answers that were decided: whose and what."""
    lost: int = 0
    """How many batches of the log were lost before it was loaded."""

    @property
    def error(self) -> Errors | None:
        """With which error the request was answered; None if it waits."""
        if isinstance(self.answer, Errors) or self.answer is None:
            return self.answer
        return Errors(getattr(self.answer, "error_code", 0))

    @property
    def is_complete(self) -> bool:
        """Whether the views have everything that the shard has."""
        return self.kind in ("audit", "loaded")

    @property
    def group_before(self) -> ClassicGroup:
        """The group that was asked, before."""
        return self.before.group(self.request.group_id)

    @property
    def group_after(self) -> ClassicGroup:
        return self.after.group(self.request.group_id)

    @property
    def concerns_modern_group(self) -> bool:
        """Whether what is asked or rings is about a group that is or was one whose coordinator assigns."""
        if self.request is not None:
            name = getattr(self.request, "group_id", "")
        else:
            name = self.key[1] if self.key is not None and len(self.key) > 1 else ""
        return any(
            isinstance(view.groups.get(name), MODERN_GROUP_TYPES) for view in (self.before, self.after)
        )

    def is_classic_request(self, *apis: str) -> bool:
        """Whether it is such a request, and of a classic group, before and after."""
        return self.is_request(*apis) and not self.concerns_modern_group

    def is_request(self, *apis: str) -> bool:
        """Whether it is a request of one of these APIs that was decided."""
        return self.kind == "request" and self.api in apis


class Promise:
    """What holds after every event. A subclass says what in the first line of its docstring."""

    def after(self, event: Event) -> None:
        """Raises AssertionError, by `assert`, where it does not hold."""
        raise NotImplementedError


class Broken(Exception):
    """A promise that was not kept."""

    def __init__(self, promise: str, why: str) -> None:
        super().__init__(f"{promise}: {why}")
        self.promise = promise
        self.why = why


def everything(shard: GroupShard) -> View:
    """A view of all that a shard holds."""
    return View(dict(shard.groups), all_offsets(shard))


def all_offsets(shard: GroupShard) -> dict[OffsetKey, Committed]:
    return {
        (group, topic, partition): committed
        for group, topics in shard.offsets.items()
        for topic, partitions in topics.items()
        for partition, committed in partitions.items()
    }
