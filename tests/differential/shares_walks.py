"""Conversations made by chance about a share group of one partition: members, and what they say of records.

Most of the time a member does what a client would: it joins, fetches, acknowledges what it was given, closes
its session and leaves. The rest is everything else that can be asked: epochs of sessions that are over,
offsets that somebody else has, answers that are none. A producer writes batches, and in transactions.

Nobody answers for records while nobody has any: Kafka may stumble then. Who leaves closes its session first,
and when nobody is left all hang up: until then Kafka keeps in memory what they had. Nobody moves the group:
konvene raises its epoch then.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

STEPS = 60
CLIENTS = ("a", "b", "c")
WHERE = "own-0"
KINDS = ("accept", "accept", "accept", "release", "release", "reject", "gap")
DONE = ("accept", "accept", "reject", "gap")
"""What is said along with a fetch: whether that finds what is released with it is a matter of moments."""

LOST = {Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID}
SETTINGS = (
    "",
    " share.isolation.level=read_committed",
    " share.delivery.count.limit=3",
    " share.delivery.count.limit=2 share.isolation.level=read_committed",
)
Range = tuple[int, int]


class SharesWalk:
    """One seed's conversation, a line at a time."""

    steps = STEPS

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = "shares"
        self.clients = CLIENTS[: self.chance.choice((1, 2, 2, 3))]
        self.sober = self.chance.choice((0.6, 0.8, 0.95))
        self.inside = {"a"}
        self.loads = False
        """Whether the share partition has to be read anew, which Kafka takes its time for."""
        self.end = 0
        """A guess at where the log ends."""
        settings = self.chance.choice(SETTINGS)
        self.waits_for_commits = "read_committed" in settings
        self.next = [
            "topic own 1", f"config g share.auto.offset.reset=earliest{settings}",
            "share a reads=own", "share a", f"take a {WHERE} wait=400", "init t", self._fill(),
        ]  # fmt: skip
        self.last = ["stand admin g", "crowd admin g", "written"]
        if not self.waits_for_commits:
            self.last.append("written shares")  # Else the start moves over what is for nobody, soon or late.

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """The next line, given what clients remember."""
        if self.next:
            return self.next.pop(0)
        who = self.chance.choice(self.clients)
        mine = memory(who)
        if self.chance.random() < self.sober or mine.generation <= 0:
            return self._sensible(who, mine)
        weighted = {
            self._wild_take: 4, self._wild_ack: 5, self._wild_share: 2, self._renew: 2, self._ask: 3,
            self._refused: 1, self._drop: 1,
        }  # fmt: skip
        made = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return made(who, mine)

    # --- what clients do ---

    def _sensible(self, who: str, memory: Memory) -> str:
        if memory.generation <= 0 or (memory.last and memory.last[1] in LOST):
            self.inside.add(who)
            return f"share {who} epoch=0 reads=own"
        roll = self.chance.random()
        if roll < 0.18:
            return self._fill()
        if roll < 0.24:
            return self._transaction()
        if roll < 0.3:
            return f"share {who}"
        if roll < 0.34:
            return f"take {who} session=-1{self._acks(memory, 0.5)}"
        if roll < 0.37:
            memory.generation = -1
            self.inside.discard(who)
            self.next = [f"share {who} epoch=-1"]
            if not self.inside:
                self.loads = True
                self.next += [f"hang {each}" for each in self.clients]
            return f"take {who} session=-1"
        if roll < 0.65 and memory.session and self._held(memory):
            return f"ack {who} {self._said(memory)}"
        if not memory.session:
            wait, self.loads = 400 if self.loads else 40, False
            return f"take {who} {WHERE} wait={wait}{self._limits()}"
        return f"take {who} wait=40{self._limits()}{self._acks(memory, 0.6)}"

    def _fill(self) -> str:
        count = self.chance.choice((1, 2, 3, 5, 10))
        self.end += count
        return f"fill p {WHERE} {count}"

    def _transaction(self) -> str:
        self.end += 2
        self.next = [f"end t {self.chance.choice(('commit', 'abort'))}"]
        if self.chance.random() < 0.5:
            self.next.insert(0, self._fill())
        return f"write t {WHERE}"

    def _limits(self) -> str:
        """Few records, or many. Where some are for nobody, Kafka may give none, and konvene the next ones."""
        if self.waits_for_commits:
            return ""
        told = self._maybe(0.5, "most=1", "most=2", "most=3", "most=7") + self._maybe(0.3, "limit=yes")
        return told + self._maybe(0.3, "chunk=1", "chunk=2", "chunk=4")

    def _held(self, memory: Memory) -> list[Range]:
        return [each for ranges in memory.held.values() for each in ranges]

    def _acks(self, memory: Memory, odds: float) -> str:
        """Said along with a fetch; where it waits for commits, which comes first is a matter of moments."""
        if not memory.session or not self._held(memory) or self.chance.random() > odds:
            return ""
        if self.waits_for_commits:
            return ""
        return f" acks={self._said(memory, DONE)}"

    def _said(self, memory: Memory, kinds: tuple[str, ...] = KINDS) -> str:
        """Something of what was given, all in the order of the offsets; it is forgotten."""
        ranges = sorted(self._held(memory))
        taken = ranges[: self.chance.choice((1, 1, 2, 9))]
        memory.held = {at: [r for r in some if r not in taken] for at, some in memory.held.items()}
        return ",".join(self._one(first, last, kinds) for first, last in taken)

    def _one(self, first: int, last: int, kinds: tuple[str, ...]) -> str:
        if first < last and self.chance.random() < 0.4:
            types = "+".join(self.chance.choice(kinds) for _ in range(first, last + 1))
            return f"{WHERE}:{first}-{last}:{types}"
        if first < last and self.chance.random() < 0.3:
            middle = self.chance.randrange(first, last)
            return (
                f"{WHERE}:{first}-{middle}:{self.chance.choice(kinds)},{self._one(middle + 1, last, kinds)}"
            )
        return f"{WHERE}:{first}-{last}:{self.chance.choice(kinds)}"

    # --- anything else ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _anywhere(self) -> str:
        first = self.chance.randrange(self.end + 3)
        last = first + self.chance.choice((0, 0, 1, 2, 5, -1))
        kind = self.chance.choice((*KINDS, "renew", "none", "7", "accept+release"))
        return f"{WHERE}:{first}-{max(last, 0)}:{kind}"

    def _wild_take(self, who: str, memory: Memory) -> str:
        line = f"take {who}" + self._maybe(0.5, WHERE, "own-7", "nowhere-0", "zero-0") + " wait=40"
        line += self._maybe(0.3, "session=last", "session=next", "session=0", "session=-1")
        acks = self._anywhere().replace("release", "reject")
        return (
            line
            + self._maybe(0.3 if self._held(memory) else 0, f"acks={acks}")
            + self._limits()
            + self._maybe(0.3, "v=1")
        )

    def _wild_ack(self, who: str, memory: Memory) -> str:
        if not self._held(memory):
            return self._ask(who, memory)
        line = f"ack {who} {self._anywhere()}" + self._maybe(0.2, "v=1")
        return line + self._maybe(0.2, "session=last", "session=next", "session=0", "session=-1")

    def _wild_share(self, who: str, memory: Memory) -> str:
        return f"share {who}" + self._maybe(
            0.8, "epoch=last", "epoch=next", "epoch=0", "rack=r", "reads=own", "full=yes"
        )

    def _renew(self, who: str, memory: Memory) -> str:
        if not self._held(memory):
            return self._ask(who, memory)
        first, last = self.chance.choice(self._held(memory))
        said = f"{WHERE}:{first}-{last}:{self.chance.choice(('renew', 'renew', 'accept'))}"
        if self.chance.random() < 0.5:
            return f"ack {who} {said} renew=yes"
        return f"take {who} acks={said} renew=yes"

    def _ask(self, who: str, memory: Memory) -> str:
        return self.chance.choice(
            (
                "stand admin g",
                "stand admin g own-0,nowhere-0",
                "stand admin g v=0",
                "crowd admin g",
                "list admin types=share",
            )
        )

    def _refused(self, who: str, memory: Memory) -> str:
        """With a member in it, which this one is."""
        return self.chance.choice(("delete admin g", "quit admin own", "move admin own-0:0"))

    def _drop(self, who: str, memory: Memory) -> str:
        if self._held(memory):
            return self._ask(who, memory)
        return f"take {who} drop={WHERE} wait=40"
