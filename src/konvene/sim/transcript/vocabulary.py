"""What a scenario's commands say in words, and what its clients remember."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import Tasks
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from konvene.messages.join_group import JoinGroupResponse
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

NONE = "-"
"""Says that a field is empty, where the client would fill in what it remembers."""

FORGETS = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID)
"""Answers by which a client of the classic protocol learns that it is nobody."""

FENCES = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH)
"""Answers by which one of the consumer protocol learns that it has to join again."""

Options = dict[str, str]

HeartbeatResponses = (
    ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse
)


class ScenarioError(Exception):
    """A line that is no command. `line` counts from one; 0 where there is no file."""

    def __init__(self, why: str, text: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {why}: {text}" if line else f"{why}: {text}")
        self.why, self.text, self.line = why, text, line


@dataclass
class Client:
    """What a client remembers. `generation` is a member epoch where it speaks the consumer protocol."""

    name: str
    group: str = "g"
    member_id: str = ""
    instance: str | None = None
    generation: int = -1
    assigned: bool = False
    """Whether it spoke the consumer protocol last: then a refused commit makes it forget nothing."""
    has: dict[Uuid, tuple[int, ...]] = field(default_factory=dict)
    """What it was told last to have, in the consumer protocol."""
    tasks: dict[str, Tasks] = field(default_factory=dict)
    """The same in the streams protocol, by role."""
    endpoint_epoch: int = 0
    """What it knows of endpoints."""

    def hears(self, answer: Any) -> None:
        if isinstance(answer, HeartbeatResponses):
            self._hears_epoch(answer)
            return
        error = answer if isinstance(answer, Errors) else Errors(getattr(answer, "error_code", 0))
        if isinstance(answer, JoinGroupResponse):
            self.member_id = answer.member_id or self.member_id
            if error is Errors.NONE:
                self.generation = answer.generation_id
        if error in FORGETS and isinstance(answer, Errors | JoinGroupResponse) and not self.assigned:
            self.member_id, self.generation = "", -1

    def _hears_epoch(self, answer: HeartbeatResponses) -> None:
        error = Errors(answer.error_code)
        if error in FENCES:
            self.generation, self.has, self.tasks = 0, {}, {}
        if error is Errors.NONE:
            self.member_id, self.generation = answer.member_id or self.member_id, answer.member_epoch
            if isinstance(answer, StreamsGroupHeartbeatResponse):
                self._hears_tasks(answer)
            elif answer.assignment is not None:
                self.has = {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}

    def _hears_tasks(self, answer: StreamsGroupHeartbeatResponse) -> None:
        told = {
            "active": answer.active_tasks,
            "standby": answer.standby_tasks,
            "warmup": answer.warmup_tasks,
        }
        self.tasks |= {
            role: {each.subtopology_id: each.partitions for each in some}
            for role, some in told.items()
            if some is not None
        }
        self.endpoint_epoch = answer.endpoint_information_epoch


def number(o: Options, name: str, default: int) -> int:
    """A number that may be said."""
    try:
        return int(o.get(name, default))
    except ValueError:
        raise ScenarioError(f"{name} is a number, not {o[name]!r}", "") from None


def name_or_none(text: str) -> str:
    return "" if text == NONE else unquote(text)


def reason(o: Options) -> str | None:
    """Words with underscores between them."""
    return unquote(o["reason"]).replace("_", " ") if "reason" in o else None


def instance(client: Client, o: Options) -> str | None:
    told = o.get("instance", client.instance)
    return None if told == NONE else told


def member(client: Client, o: Options) -> str:
    return name_or_none(o["member"]) if "member" in o else client.member_id


def partitions(text: str) -> list[tuple[str, int, str]]:
    """`topic-partition:offset,...` or without offsets."""
    found = []
    for part in text.split(","):
        where, _, told = part.partition(":")
        topic, _, index = where.rpartition("-")
        if not topic or not index.isdigit():
            raise ScenarioError(f"expected topic-partition, not {where!r}", "")
        found.append((topic, int(index), told))
    return found


def ranges(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """`topic:0-2,topic:5`: each topic with its partitions."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        topic, _, told = part.rpartition(":")
        first, _, last = told.partition("-")
        if not topic or not first.isdigit() or not (last or first).isdigit():
            raise ScenarioError(f"expected topic:0-2, not {part!r}", "")
        found[topic] = found.get(topic, ()) + tuple(range(int(first), int(last or first) + 1))
    yield from found.items()
