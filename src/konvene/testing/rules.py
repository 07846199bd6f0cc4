"""Fault rules: which messages a fault matches, and what it does to them.

A `Match` selects messages between clients and broker, an `Action` describes what happens to a selected
message, and a `Rule` combines both. They are immutable values: `fault` counts and cancels, `fault_proxy`
applies rules to messages, and `journal_faults` applies them to appends to the coordinators' logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from konvene.errors import Errors

Side = Literal["request", "response", "append"]
"""What a rule is matched against: requests, responses, or appends to a coordinator's log."""

After = Literal["cut", "stays", "silent"]
"""What happens to the connection after a message was lost.

cut: the connection is closed, which is how a TCP client usually learns of a loss. stays: only that message is
missing. silent: all later messages of that direction are lost too and the connection stays open, as with a
pulled cable."""

Verb = Literal["lose", "delay", "duplicate", "cut", "answer", "hold", "replace", "fail", "restart"]


class Matching(TypedDict, total=False):
    """The types of the keyword arguments by which methods of `Faults` select messages; `Match` explains
    them."""

    group: str
    member: int | str
    instance: str
    client: str
    topic: str
    generation: int
    nth: int
    times: int | None
    probability: float
    seed: int


@dataclass(frozen=True, slots=True)
class Match:
    """The condition that a message or append has to meet for a fault, and how often the fault applies.

    A field that is None restricts nothing."""

    api: str | None = None
    """Kafka's name of the API, such as Heartbeat."""
    group: str | None = None
    member: int | str | None = None
    """A number is the position among the group's members, from 1, in the order in which they joined. A text
    is a member id, an instance id or a client id."""
    instance: str | None = None
    client: str | None = None
    topic: str | None = None
    generation: int | None = None
    nth: int = 1
    """Apply the fault from the nth matching message on."""
    times: int | None = 1
    """Maximum number of messages to which the fault applies; None: all until it is cancelled."""
    probability: float = 1.0
    """Chance that the fault applies to a matching message, drawn from a generator seeded with `seed`."""
    seed: int = 0

    @property
    def reads_bodies(self) -> bool:
        """True if matching needs the decoded body of a message, and not only its header."""
        return any(
            value is not None
            for value in (self.group, self.member, self.instance, self.topic, self.generation)
        )

    def __str__(self) -> str:
        api = self.api or "message"
        if self.nth > 1:
            return f"the {_ordinal(self.nth)} {api}"
        if self.times is None:
            return f"every {api}"
        return f"the next {api}" if self.times == 1 else f"the next {self.times} {api}"

    @property
    def qualifiers(self) -> str:
        """The restrictions of the fault as text for its sentence, such as ` of member 2 of group g`."""
        parts = []
        if isinstance(self.member, int) or self.member is not None:
            parts.append(f"of member {self.member}")
        parts += [f"of instance {self.instance}"] if self.instance is not None else []
        parts += [f"of client {self.client}"] if self.client is not None else []
        parts += [f"of group {self.group}"] if self.group is not None else []
        parts += [f"of topic {self.topic}"] if self.topic is not None else []
        parts += [f"in generation {self.generation}"] if self.generation is not None else []
        parts += [f"with probability {self.probability}"] if self.probability < 1 else []
        return "".join(f" {part}" for part in parts)


@dataclass(frozen=True, slots=True)
class Action:
    """What a fault does to a matching message or append.

    Of its fields, `after` is used only to lose a message, `ms` to delay it, `at_byte` to cut it, `error` to
    answer it."""

    verb: Verb
    side: Side
    after: After = "cut"
    ms: int = 0
    at_byte: int = 0
    error: Errors = Errors.NONE


@dataclass(frozen=True, slots=True)
class Rule:
    """The messages that a fault matches, and its action. `str()` of a rule is the fault as a sentence."""

    match: Match
    action: Action

    def __str__(self) -> str:
        match, action = self.match, self.action
        many = match.nth == 1 and (match.times or 1) > 1
        what = f"{match} {action.side}{'s' if many else ''}{match.qualifiers}"
        if action.verb == "lose":
            then = {"cut": "", "stays": ", the connection stays", "silent": ", then silence"}[action.after]
            return f"lose {what}{then}"
        if action.verb == "delay":
            return f"delay {what} by {action.ms} ms"
        if action.verb == "cut":
            return f"cut the connection after {action.at_byte} bytes of {what}"
        if action.verb == "answer":
            return f"answer {what} with {action.error.name}"
        if action.verb == "replace":
            return f"replace the member that sends {what}"
        if action.verb == "restart":
            return f"restart the coordinator after {what}"
        return f"{action.verb} {what}"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
