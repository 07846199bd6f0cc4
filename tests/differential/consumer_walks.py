"""Random walks of one group with members of the consumer protocol and of the classic protocol.

Most lines are those of a correct client: join, report owned partitions after a new assignment, revoke, rejoin
when fenced. The others are all other requests.

The walks avoid what depends on the order of Kafka's hash maps: members of the new protocol have ids of one
letter, whose hash-map order is alphabetical; groups with classic members or several topics use `range`, which
sorts by name; and a classic member that joins a consumer group chooses its own id. They also avoid known
differences: a static member does not rejoin under its own id, nor a classic member under any id while a
consumer group is empty. No timeout expires.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

STEPS = 70
MODERN = ("a", "b", "c")
CLASSIC = ("x", "y")
READS = ("orders", "orders", "orders,audit", "audit", "own", "orders,own", "nowhere")
OFFSETS = ("orders-0:5", "orders-1:7,orders-4:3", "orders-9:1", "audit-0:3", "nowhere-0:1", "orders-2:8:deep")
OWNED = ("none", "orders-0", "orders-0,orders-1,orders-2", "orders-5", "audit-0", "-")
LONG = "rebalance=300000"
UNKNOWN = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID, Errors.GROUP_ID_NOT_FOUND)


class ConsumerWalk:
    """Generates the conversation of a seed, a line at a time."""

    steps = STEPS
    last: tuple[str, ...]
    """The last lines of the conversation."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = self.chance.choice((*("consumer",) * 6, "downgrade", "small"))
        self.modern = MODERN[: self.chance.choice((2, 3, 3))]
        self.classic = CLASSIC[: self.chance.choice((0, 1, 2, 2))]
        self.many_topics = self.chance.random() < 0.4
        if self.profile == "small":
            self.classic = ()  # Pending joins of a full group are a known difference.
        self.by_name = bool(self.classic) or self.many_topics
        self.static = {c: f"i{c}" for c in (*self.modern, *self.classic) if self.chance.random() < 0.35}
        if self.classic and self.modern[0] in self.static:
            self.static[self.classic[0]] = self.static[
                self.modern[0]
            ]  # One static member, with both protocols.
        self.cooperative = {c for c in self.classic if self.chance.random() < 0.5}
        self.correct_odds = self.chance.choice((0.5, 0.7, 0.85))
        self.reported: dict[str, object] = {}
        self.own = 0
        self.last = ("written",) if seed % 4 == 0 else ()
        self.joining: tuple[str, bool] | None = None

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """Return the next line, given the clients' memories and the clients with a pending request."""
        if self.joining is not None:
            return self._join_listed_group(memory)
        free = [c for c in (*self.modern, *self.classic) if c not in waiting]
        if not free or self.chance.random() > self.correct_odds:
            return self._anything(free, memory)
        client = self.chance.choice(free)
        return (
            self._modern(client, memory(client)) if client in self.modern else self._classic(client, memory)
        )

    # --- lines of a correct client ---

    def _modern(self, client: str, memory: Memory) -> str:
        error = memory.last[1] if memory.last else None
        static = client in self.static
        fenced = error is Errors.FENCED_MEMBER_EPOCH and not static
        if memory.generation <= 0 or fenced or error in UNKNOWN:
            return self._join_modern(client)
        reported = self.reported.get(client)
        if self.chance.random() < 0.1:
            return f"commit {client} {self.chance.choice(OFFSETS)} v={self.chance.choice((9, 10))}"
        if memory.assigned != reported and self.chance.random() < 0.8:
            self.reported[client] = memory.assigned
            return f"beat {client} own=all"
        return f"beat {client}" + self._maybe(0.15, f"own=all full=yes {LONG}")

    def _join_modern(self, client: str) -> str:
        self.reported[client] = {}
        line = f"beat {client} epoch=0 {LONG}"
        if client in self.static:
            line += f" static={self.static[client]}"
        if self.by_name:
            line += " assignor=range"
        return line + (f" reads={self.chance.choice(READS)}" if self.many_topics else "")

    def _classic(self, client: str, memory: Callable[[str], Memory]) -> str:
        own = memory(client)
        if own.last is None or own.last[1] in UNKNOWN:
            return self._join_classic(client, new=True)
        api, error = own.last
        if error is Errors.INCONSISTENT_GROUP_PROTOCOL:
            return "picture admin g"
        if error is not Errors.NONE:
            return self._join_classic(client)
        if api == "JoinGroup":
            return f"sync {client} assign=deal"
        if self.chance.random() < 0.15:
            return f"commit {client} {self.chance.choice(OFFSETS)}"
        return f"heartbeat {client}"

    def _join_classic(self, client: str, *, new: bool = False) -> str:
        """List the groups first: how the member joins depends on the group's type."""
        self.joining = client, new
        return "list admin"

    def _join_listed_group(self, memory: Callable[[str], Memory]) -> str:
        assert self.joining is not None
        (client, new), self.joining = self.joining, None
        kind, _, state = memory("admin").kinds.get("g", "").partition(" ")
        reads = self.chance.choice(("orders", "orders", "orders,audit")) if self.many_topics else "orders"
        line = f"join {client} group=g reads={reads} session=300000 {LONG}"
        line += " own=all sub=3" if client in self.cooperative else ""
        new_member = new or not memory(client).member_id or (kind == "consumer" and state == "Empty")
        if client in self.static:
            return line + (f" member=- static={self.static[client]}" if new_member else "")
        if not new_member:
            return line
        return line + (f" member=!{client}" if kind == "consumer" and state != "Empty" else " member=- v=3")

    # --- other requests ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _anything(self, free: list[str], memory: Callable[[str], Memory]) -> str:
        modern = [c for c in self.modern if c in free and memory(c).member_id]
        classic = [c for c in self.classic if c in free and memory(c).member_id]
        makers: dict[Callable[[], str], int] = {self._look: 6, self._administer: 3}
        if modern:
            makers |= {lambda: self._odd_beat(self.chance.choice(modern)): 12}
            makers |= {lambda: self._odd_commit(self.chance.choice(modern)): 4}
        if classic:
            makers |= {lambda: self._odd_classic(self.chance.choice(classic)): 5}
            makers |= {lambda: self._odd_commit(self.chance.choice(classic)): 2}
        if self.many_topics:
            makers |= {self._topic: 3}
        return self.chance.choices(list(makers), list(makers.values()))[0]()

    def _odd_beat(self, client: str) -> str:
        odd = [
            "epoch=next", "epoch=last", "epoch=last own=all", "epoch=1 own=none", "epoch=last own=orders-0",
            "epoch=-1", "epoch=-1", "epoch=77", f"own={self.chance.choice(OWNED)}",
            f"own={self.chance.choice(OWNED)}", "rack=r1", "member=!nobody", "full=yes own=all",
        ]  # fmt: skip
        odd += (
            ["epoch=-2", "epoch=-2"]
            if client in self.static
            else ["epoch=0 own=none", "epoch=0 own=orders-0"]
        )
        if self.many_topics:
            odd += [f"reads={self.chance.choice(READS)}"] * 4
        chosen = self.chance.choice(odd)
        if chosen == "member=!nobody":
            return f"commit {client} orders-0:9 member=!nobody"
        return f"beat {client} {chosen}"

    def _odd_commit(self, client: str) -> str:
        line = f"commit {client} {self.chance.choice(OFFSETS)} v={self.chance.choice((8, 9, 9, 10))}"
        return line + self._maybe(
            0.8, "generation=last", "generation=last", "generation=next", "generation=-1"
        )

    def _odd_classic(self, client: str) -> str:
        odd = self.chance.choice(
            (
                f"sync {client} assign=deal", f"heartbeat {client} generation=last", f"heartbeat {client}",
                f"leave {client}", f"sync {client} protocol=other", f"heartbeat {client} generation=next",
                "join",
            )
        )  # fmt: skip
        return self._join_classic(client) if odd == "join" else odd

    def _look(self) -> str:
        return self.chance.choice(
            (
                "picture admin g", "picture admin g", "picture admin g v=0", "describe admin g", "list admin",
                "fetch admin all", "fetch admin orders-0,orders-1 v=10", "list admin states=stable,Assigning",
                "fetch a all member=a generation=last", "fetch b all member=b",
            )
        )  # fmt: skip

    def _administer(self) -> str:
        named = self.chance.choice([*self.modern, *self.classic, "!nobody"])
        if named in self.static and self.chance.random() < 0.5:
            named = f"-|{self.static[named]}"
        return self.chance.choice(
            (
                f"leave admin group=g members={named}",
                "delete admin g",
                "forget admin orders-0,audit-0,orders-2",
            )
        )

    def _topic(self) -> str:
        chosen = self.chance.choice(("topic", "grow", "untopic"))
        if not self.own:
            self.own = 1
            return "topic own 1"
        if chosen == "untopic":
            self.own = 0
            return "untopic own"
        self.own += 1
        return f"grow own {self.own}"
