"""Fault rules: which messages a fault matches, and what it does to them. Values only.

A `Match` selects messages between clients and broker, an `Action` is what happens to one, a `Rule` is both.
`fault` counts, waits and cancels; `fault_proxy` applies rules to messages, `journal_faults` to coordinators'
logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from konvene.errors import Errors

Side = Literal["request", "response", "append"]
"""Where a rule looks: on the way to the broker, on the way back, or where a coordinator writes its log."""

After = Literal["cut", "stays", "silent"]
"""What becomes of the connection on which something was lost.

cut: it ends, which is how a client of TCP mostly learns of a loss. stays: the message is missing, all others
go on. silent: nothing passes that way any more, and nobody is told, as with a pulled cable."""

Verb = Literal["lose", "delay", "duplicate", "cut", "answer", "hold", "replace", "fail", "restart"]


class Matching(TypedDict, total=False):
    """Keywords that select messages, the same for every fault; see `Match`."""

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
    """Selects messages; fields that are None match all."""

    api: str | None = None
    """Kafka's name of the API, such as Heartbeat."""
    group: str | None = None
    member: int | str | None = None
    """A number is the place among the group's members, in the order in which they joined, from 1. A text is
    a member id, an instance id or a client id."""
    instance: str | None = None
    client: str | None = None
    topic: str | None = None
    generation: int | None = None
    nth: int = 1
    """The first so many that match, less one, are spared."""
    times: int | None = 1
    """To how many it is done; None: to all, until it is cancelled."""
    probability: float = 1.0
    seed: int = 0

    @property
    def reads_bodies(self) -> bool:
        """Whether a message's header is not enough to tell."""
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
    def aim(self) -> str:
        """The part of a sentence that says of whom."""
        words = []
        if isinstance(self.member, int) or self.member is not None:
            words.append(f"of member {self.member}")
        words += [f"of instance {self.instance}"] if self.instance is not None else []
        words += [f"of client {self.client}"] if self.client is not None else []
        words += [f"of group {self.group}"] if self.group is not None else []
        words += [f"of topic {self.topic}"] if self.topic is not None else []
        words += [f"in generation {self.generation}"] if self.generation is not None else []
        words += [f"with probability {self.probability}"] if self.probability < 1 else []
        return "".join(f" {word}" for word in words)


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to a matching message."""

    verb: Verb
    side: Side
    after: After = "cut"
    ms: int = 0
    at_byte: int = 0
    error: Errors = Errors.NONE


@dataclass(frozen=True, slots=True)
class Rule:
    """A match and an action."""

    match: Match
    action: Action

    def __str__(self) -> str:
        match, action = self.match, self.action
        many = match.nth == 1 and (match.times or 1) > 1
        what = f"{match} {action.side}{'s' if many else ''}{match.aim}"
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
            return f"join in the place of who sends {what}"
        if action.verb == "restart":
            return f"restart the coordinator behind {what}"
        return f"{action.verb} {what}"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
