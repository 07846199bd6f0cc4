"""Syntax shared by the commands of scenarios, and the state of their clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import Tasks
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from konvene.messages.join_group import JoinGroupResponse
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

NONE = "-"
"""Value of an option: the field is empty, instead of the value that the client remembers."""

EPOCHS = {"join": 0, "stay": None, "leave": -1, "away": -2}
"""Member epochs of heartbeats by action; `stay` uses the current epoch."""

LAST_ASSIGNED = "told"
"""Value of `owns`: the partitions or tasks of the last assignment."""

OMITTED = "unsaid"
"""Value of `topics`, `topology` or `owns`: the field is null, also in the first heartbeat."""

IDENTITY_LOST = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID)
"""Errors after which a client of the classic protocol drops its member id."""

FENCED = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH)
"""Errors after which a client of a modern protocol rejoins with epoch 0."""

Options = dict[str, str]

HeartbeatResponses = (
    ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse
)


class ScenarioError(Exception):
    """Raised for a malformed line of a scenario. `line` is its number from 1; 0 if it is not from a file."""

    def __init__(self, why: str, text: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {why}: {text}" if line else f"{why}: {text}")
        self.why, self.text, self.line = why, text, line


@dataclass
class Client:
    """State of a client of a scenario: the ids and epochs from its last requests and responses, which later
    commands use as defaults.

    `generation` is the member epoch in modern protocols."""

    name: str
    group: str = "g"
    member_id: str = ""
    instance: str | None = None
    generation: int = -1
    assigned: bool = False
    """Whether it last used a modern protocol: then a rejected commit does not drop its member id."""
    owned: dict[Uuid, tuple[int, ...]] = field(default_factory=dict)
    """Last assignment in the consumer or share protocol, by topic id."""
    tasks: dict[str, Tasks] = field(default_factory=dict)
    """Last assignment in the streams protocol, by role."""
    endpoint_epoch: int = 0
    """Epoch of the last received endpoint information."""

    def handle_response(self, answer: object) -> None:
        if isinstance(answer, HeartbeatResponses):
            self._handle_heartbeat(answer)
            return
        error = answer if isinstance(answer, Errors) else Errors(getattr(answer, "error_code", 0))
        if isinstance(answer, JoinGroupResponse):
            self.member_id = answer.member_id or self.member_id
            if error is Errors.NONE:
                self.generation = answer.generation_id
        if error in IDENTITY_LOST and isinstance(answer, Errors | JoinGroupResponse) and not self.assigned:
            self.member_id, self.generation = "", -1

    def _handle_heartbeat(self, answer: HeartbeatResponses) -> None:
        error = Errors(answer.error_code)
        if error in FENCED:
            self.generation, self.owned, self.tasks = 0, {}, {}
        if error is Errors.NONE:
            self.member_id, self.generation = answer.member_id or self.member_id, answer.member_epoch
            if isinstance(answer, StreamsGroupHeartbeatResponse):
                self._handle_tasks(answer)
            elif answer.assignment is not None:
                self.owned = {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}

    def _handle_tasks(self, answer: StreamsGroupHeartbeatResponse) -> None:
        by_role = {
            "active": answer.active_tasks,
            "standby": answer.standby_tasks,
            "warmup": answer.warmup_tasks,
        }
        self.tasks |= {
            role: {each.subtopology_id: each.partitions for each in assigned}
            for role, assigned in by_role.items()
            if assigned is not None
        }
        self.endpoint_epoch = answer.endpoint_information_epoch


def number(o: Options, name: str, default: int) -> int:
    """Return the value of a numeric option, or `default`. Raises ScenarioError if it is no number."""
    try:
        return int(o.get(name, default))
    except ValueError:
        raise ScenarioError(f"{name} is a number, not {o[name]!r}", "") from None


def name_or_none(text: str) -> str:
    return "" if text == NONE else unquote(text)


def reason(o: Options) -> str | None:
    """Return the value of the option `reason`, with underscores replaced by spaces; None without this
    option."""
    return unquote(o["reason"]).replace("_", " ") if "reason" in o else None


def instance(client: Client, o: Options) -> str | None:
    instance_id = o.get("instance", client.instance)
    return None if instance_id == NONE else instance_id


def member(client: Client, o: Options) -> str:
    return name_or_none(o["member"]) if "member" in o else client.member_id


def partitions(text: str) -> list[tuple[str, int, str]]:
    """Parse `topic-partition:offset,...` into (topic, partition, offset text); an offset may be missing."""
    found = []
    for part in text.split(","):
        where, _, offset = part.partition(":")
        topic, _, index = where.rpartition("-")
        if not topic or not index.isdigit():
            raise ScenarioError(f"expected topic-partition, not {where!r}", "")
        found.append((topic, int(index), offset))
    return found


def ranges(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (topic, partitions) pairs of a text such as `orders:0-2,audit:5`."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        topic, _, text_range = part.rpartition(":")
        first, _, last = text_range.partition("-")
        if not topic or not first.isdigit() or not (last or first).isdigit():
            raise ScenarioError(f"expected topic:0-2, not {part!r}", "")
        found[topic] = found.get(topic, ()) + tuple(range(int(first), int(last or first) + 1))
    yield from found.items()
