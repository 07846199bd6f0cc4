"""Random walks of a share group with one partition: heartbeats, share fetches and acknowledgements.

Most lines are those of a correct client: join, fetch, acknowledge the acquired records, close the session and
leave. The others are all other requests: wrong session epochs, offsets acquired by another member, invalid
acknowledge types. A producer writes batches, some of them in transactions.

The walks avoid failures of Kafka and known differences. A member without acquired records does not
acknowledge. A member closes its session before it leaves, and when the group is empty all clients disconnect,
because Kafka keeps their acquired records in memory until then. No administrator alters the group's offsets,
because konvene bumps the group epoch then.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

STEPS = 60
CLIENTS = ("a", "b", "c")
PARTITION = "own-0"
KINDS = ("accept", "accept", "accept", "release", "release", "reject", "gap")
FINAL_TYPES = ("accept", "accept", "reject", "gap")
"""Types sent along with a fetch. No release: whether the same fetch acquires the record is a race."""

LOST = {Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID}
SETTINGS = (
    "",
    " share.isolation.level=read_committed",
    " share.delivery.count.limit=3",
    " share.delivery.count.limit=2 share.isolation.level=read_committed",
)
Range = tuple[int, int]


class SharesWalk:
    """Generates the conversation of a seed, a line at a time."""

    steps = STEPS

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = "shares"
        self.clients = CLIENTS[: self.chance.choice((1, 2, 2, 3))]
        self.correct_odds = self.chance.choice((0.6, 0.8, 0.95))
        self.joined = {"a"}
        self.loads = False
        """Whether the broker has to load the share partition again, which takes Kafka some time."""
        self.end = 0
        """Estimated end offset of the log."""
        settings = self.chance.choice(SETTINGS)
        self.waits_for_commits = "read_committed" in settings
        self.next = [
            "topic own 1", f"config g share.auto.offset.reset=earliest{settings}",
            "share a reads=own", "share a", f"take a {PARTITION} wait=400", "init t", self._fill(),
        ]  # fmt: skip
        self.last = ["stand admin g", "crowd admin g", "written"]
        if not self.waits_for_commits:
            self.last.append(
                "written shares"
            )  # Else the time of a start offset past aborted records is a race.

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """Return the next line, given the clients' memories."""
        if self.next:
            return self.next.pop(0)
        client = self.chance.choice(self.clients)
        own_memory = memory(client)
        if self.chance.random() < self.correct_odds or own_memory.generation <= 0:
            return self._correct(client, own_memory)
        weighted = {
            self._wild_take: 4, self._wild_ack: 5, self._wild_share: 2, self._renew: 2, self._ask: 3,
            self._rejected: 1, self._drop: 1,
        }  # fmt: skip
        make_line = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return make_line(client, own_memory)

    # --- lines of a correct client ---

    def _correct(self, client: str, memory: Memory) -> str:
        if memory.generation <= 0 or (memory.last and memory.last[1] in LOST):
            self.joined.add(client)
            return f"share {client} epoch=0 reads=own"
        roll = self.chance.random()
        if roll < 0.18:
            return self._fill()
        if roll < 0.24:
            return self._transaction()
        if roll < 0.3:
            return f"share {client}"
        if roll < 0.34:
            return f"take {client} session=-1{self._acks(memory, 0.5)}"
        if roll < 0.37:
            memory.generation = -1
            self.joined.discard(client)
            self.next = [f"share {client} epoch=-1"]
            if not self.joined:
                self.loads = True
                self.next += [f"hang {each}" for each in self.clients]
            return f"take {client} session=-1"
        if roll < 0.65 and memory.session and self._held(memory):
            return f"ack {client} {self._acknowledge(memory)}"
        if not memory.session:
            wait, self.loads = 400 if self.loads else 40, False
            return f"take {client} {PARTITION} wait={wait}{self._limits()}"
        return f"take {client} wait=40{self._limits()}{self._acks(memory, 0.6)}"

    def _fill(self) -> str:
        count = self.chance.choice((1, 2, 3, 5, 10))
        self.end += count
        return f"fill p {PARTITION} {count}"

    def _transaction(self) -> str:
        self.end += 2
        self.next = [f"end t {self.chance.choice(('commit', 'abort'))}"]
        if self.chance.random() < 0.5:
            self.next.insert(0, self._fill())
        return f"write t {PARTITION}"

    def _limits(self) -> str:
        """Return limits of a fetch, or none with read_committed.

        Before aborted records Kafka may return no records where konvene returns the next committed ones.
        """
        if self.waits_for_commits:
            return ""
        limits = self._maybe(0.5, "most=1", "most=2", "most=3", "most=7") + self._maybe(0.3, "limit=yes")
        return limits + self._maybe(0.3, "chunk=1", "chunk=2", "chunk=4")

    def _held(self, memory: Memory) -> list[Range]:
        return [each for ranges in memory.held.values() for each in ranges]

    def _acks(self, memory: Memory, odds: float) -> str:
        """Return acknowledgements to send with a fetch; none with read_committed, where it is a race."""
        if not memory.session or not self._held(memory) or self.chance.random() > odds:
            return ""
        if self.waits_for_commits:
            return ""
        return f" acks={self._acknowledge(memory, FINAL_TYPES)}"

    def _acknowledge(self, memory: Memory, kinds: tuple[str, ...] = KINDS) -> str:
        """Return acknowledgements of some acquired ranges, in offset order; remove them from `memory`."""
        ranges = sorted(self._held(memory))
        taken = ranges[: self.chance.choice((1, 1, 2, 9))]
        memory.held = {at: [r for r in some if r not in taken] for at, some in memory.held.items()}
        return ",".join(self._ack_batches(first, last, kinds) for first, last in taken)

    def _ack_batches(self, first: int, last: int, kinds: tuple[str, ...]) -> str:
        if first < last and self.chance.random() < 0.4:
            types = "+".join(self.chance.choice(kinds) for _ in range(first, last + 1))
            return f"{PARTITION}:{first}-{last}:{types}"
        if first < last and self.chance.random() < 0.3:
            middle = self.chance.randrange(first, last)
            first_ack = f"{PARTITION}:{first}-{middle}:{self.chance.choice(kinds)}"
            return f"{first_ack},{self._ack_batches(middle + 1, last, kinds)}"
        return f"{PARTITION}:{first}-{last}:{self.chance.choice(kinds)}"

    # --- other requests ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _anywhere(self) -> str:
        first = self.chance.randrange(self.end + 3)
        last = first + self.chance.choice((0, 0, 1, 2, 5, -1))
        kind = self.chance.choice((*KINDS, "renew", "none", "7", "accept+release"))
        return f"{PARTITION}:{first}-{max(last, 0)}:{kind}"

    def _wild_take(self, client: str, memory: Memory) -> str:
        line = f"take {client}" + self._maybe(0.5, PARTITION, "own-7", "nowhere-0", "zero-0") + " wait=40"
        line += self._maybe(0.3, "session=last", "session=next", "session=0", "session=-1")
        acks = self._anywhere().replace("release", "reject")
        return (
            line
            + self._maybe(0.3 if self._held(memory) else 0, f"acks={acks}")
            + self._limits()
            + self._maybe(0.3, "v=1")
        )

    def _wild_ack(self, client: str, memory: Memory) -> str:
        if not self._held(memory):
            return self._ask(client, memory)
        line = f"ack {client} {self._anywhere()}" + self._maybe(0.2, "v=1")
        return line + self._maybe(0.2, "session=last", "session=next", "session=0", "session=-1")

    def _wild_share(self, client: str, memory: Memory) -> str:
        return f"share {client}" + self._maybe(
            0.8, "epoch=last", "epoch=next", "epoch=0", "rack=r", "reads=own", "full=yes"
        )

    def _renew(self, client: str, memory: Memory) -> str:
        if not self._held(memory):
            return self._ask(client, memory)
        first, last = self.chance.choice(self._held(memory))
        ack = f"{PARTITION}:{first}-{last}:{self.chance.choice(('renew', 'renew', 'accept'))}"
        if self.chance.random() < 0.5:
            return f"ack {client} {ack} renew=yes"
        return f"take {client} acks={ack} renew=yes"

    def _ask(self, client: str, memory: Memory) -> str:
        return self.chance.choice(
            (
                "stand admin g",
                "stand admin g own-0,nowhere-0",
                "stand admin g v=0",
                "crowd admin g",
                "list admin types=share",
            )
        )

    def _rejected(self, client: str, memory: Memory) -> str:
        """Return a request that the broker rejects because the group is not empty."""
        return self.chance.choice(("delete admin g", "quit admin own", "move admin own-0:0"))

    def _drop(self, client: str, memory: Memory) -> str:
        if self._held(memory):
            return self._ask(client, memory)
        return f"take {client} drop={PARTITION} wait=40"
