"""Random walks of one streams group.

Most lines are those of a correct client: join, report owned tasks after a new assignment, wait for internal
topics, rejoin when fenced. The others are all other requests.

The walks avoid what depends on the order of Kafka's hash maps: members are named a, b, c, and processes the
same or p and q; the hash-map order of such names is alphabetical. They also avoid known differences: a static
member does not rejoin under its own id before it left, topics are not deleted while members have endpoints,
and no member reports offsets in the request that creates the group or returns a static member. No timeout
expires.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential import topologies
from tests.differential.language import Memory

from konvene.errors import Errors

STEPS = 45
MEMBERS = ("a", "b", "c")
PROCESSES = ("p", "q")
OWN = "own"
"""Name of the topology with a source topic that the walk creates and deletes."""

OFFSETS = ("orders-0:5", "orders-1:7,orders-4:3", "orders-9:1", "audit-0:3", "nowhere-0:1", "orders-2:8:deep")
OWNED = ("none", "0_0", "0_0,0_1,0_2", "0_5", "1_0", "0_9", "7_0")
LONG = "rebalance=300000"
UNKNOWN = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID, Errors.GROUP_ID_NOT_FOUND)
MISSING_INTERNAL_TOPICS = 3


class StreamsWalk:
    """Generates the conversation of a seed, a line at a time."""

    steps = STEPS

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = self.chance.choice((*("streams",) * 5, *("streams-standby",) * 2, "streams-small"))
        self.members = MEMBERS[: self.chance.choice((2, 3, 3))]
        shared = self.chance.random() < 0.5
        self.process = {m: self.chance.choice(PROCESSES) if shared else m for m in self.members}
        self.topology = self.chance.choice(("map", "two", "count", "count", "chain", OWN))
        self.static = {m: f"i{m}" for m in self.members if self.chance.random() < 0.3}
        self.topics_change = self.topology == OWN
        self.endpoints = not self.topics_change and self.chance.random() < 0.5
        self.correct_odds = self.chance.choice((0.55, 0.7, 0.85))
        self.reported: dict[str, object] = {}
        self.epochs: dict[str, int] = {}
        self.requester = ""
        self.own = 0
        self.last = ("written",) if seed % 4 == 0 else ()
        self.first = [f"topology {OWN} 0:own 1:audit"]

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """Return the next line, given the clients' memories."""
        self.epochs = {m: memory(m).generation for m in self.members}
        if self.first:
            return self.first.pop()
        client, self.requester = self.requester, ""
        if client and MISSING_INTERNAL_TOPICS in memory(client).statuses:
            return f"until {','.join(topologies.internal_topics(topologies.KNOWN[self.topology]))}"
        if self.chance.random() > self.correct_odds:
            return self._anything(memory)
        client = self.chance.choice(self.members)
        return self._correct(client, memory(client))

    # --- lines of a correct client ---

    def _correct(self, client: str, memory: Memory) -> str:
        error = memory.last[1] if memory.last else None
        fenced = error is Errors.FENCED_MEMBER_EPOCH and client not in self.static
        if memory.generation <= 0 or fenced or error in UNKNOWN:
            return self._join(client)
        if self.chance.random() < 0.1:
            return f"commit {client} {self.chance.choice(OFFSETS)} v={self.chance.choice((9, 10))}"
        reported = self.reported.get(client)
        tasks = {role: dict(partitions) for role, partitions in memory.tasks.items()}
        if tasks != reported and self.chance.random() < 0.8:
            self.reported[client] = tasks
            return self._work(client, "own=all")
        return self._work(client, *(["full=yes", LONG] if self.chance.random() < 0.1 else []))

    def _work(self, client: str, *options: str) -> str:
        self.requester = client
        return " ".join(["work", client, *options])

    def _join(self, client: str, *options: str) -> str:
        self.reported[client] = None
        named = [f"static={self.static[client]}"] if client in self.static else []
        if self.endpoints and self.chance.random() < 0.7:
            named.append(f"endpoint={client}:{self.chance.randint(1, 2)}")
        if self.chance.random() < 0.3 and self.has_other_members(client) and client not in self.static:
            named.append("offsets=0_0:5,0_3:7,0_4:1")
        process = f"process={self.process[client]}"
        return self._work(client, "epoch=0", f"topo={self.topology}", process, LONG, *named, *options)

    def has_other_members(self, client: str) -> bool:
        return any(epoch > 0 for m, epoch in self.epochs.items() if m != client)

    # --- other requests ---

    def _anything(self, memory: Callable[[str], Memory]) -> str:
        known = [m for m in self.members if memory(m).member_id]
        makers: dict[Callable[[], str], int] = {self._look: 6, self._administer: 4, self._stranger: 2}
        if known:
            makers |= {lambda: self._odd_work(self.chance.choice(known)): 12}
            makers |= {lambda: self._odd_commit(self.chance.choice(known)): 4}
        if self.topics_change:
            makers |= {self._topic: 4}
        return self.chance.choices(list(makers), list(makers.values()))[0]()

    def _odd_work(self, client: str) -> str:
        odd = [
            "epoch=next", "epoch=last", "epoch=last own=all", "epoch=1 own=none", "epoch=last own=0_0",
            "epoch=-1", "epoch=-1", "epoch=77", f"own={self.chance.choice(OWNED)}",
            f"own={self.chance.choice(OWNED)}", "own=0_0 standby=0_1", "rack=r1", "rack=r2", "tags=zone:a",
            "full=yes own=all", "offsets=0_0:9,0_1:3 ends=0_0:9", "ends=none", "seen=-1", "v=0",
            "client=other", f"topo={self.topology}",
        ]  # fmt: skip
        odd += ["epoch=-2", "epoch=-2"] if client in self.static else ["join", "stale", "newer", "different"]
        if self.process[client] in PROCESSES and client not in self.static:
            odd += ["process=p", "process=q"]
        if self.endpoints:
            odd += [f"endpoint={client}:3"] * 2
        if self.chance.random() < 0.05:
            odd = ["shutdown=yes"]
        chosen = self.chance.choice(odd)
        others = {
            "join": "", "stale": f"topo={self.topology}@0", "newer": f"topo={self.topology}@2",
            "different": f"topo={'map' if self.topology != 'map' else 'two'}",
        }  # fmt: skip
        if chosen in others:
            return self._join(client, *filter(None, [others[chosen]]))
        return self._work(client, chosen)

    def _odd_commit(self, client: str) -> str:
        line = f"commit {client} {self.chance.choice(OFFSETS)} v={self.chance.choice((8, 9, 9, 10))}"
        generation = self.chance.choice(("", "last", "last", "next", "-1", "0"))
        return line + (f" generation={generation}" if generation else "")

    def _look(self) -> str:
        return self.chance.choice(
            (
                "survey admin g", "survey admin g", "survey admin g v=0", "picture admin g", "list admin",
                "fetch admin all", "fetch admin orders-0,orders-1 v=10", "list admin states=stable,not_ready",
                "fetch a all member=a generation=last", "fetch b all member=b",
            )
        )  # fmt: skip

    def _administer(self) -> str:
        return self.chance.choice(
            (
                "delete admin g", "forget admin orders-0,audit-0,orders-2", "leave admin group=g members=a",
                f"alter admin g streams.num.standby.replicas={self.chance.choice((0, 1, 2))}",
                f"alter admin g streams.num.standby.replicas={self.chance.choice((0, 1, 3))}",
                "alter admin g streams.num.standby.replicas",
            )
        )  # fmt: skip

    def _stranger(self) -> str:
        """Return a request of another protocol from a client that is not a member."""
        return self.chance.choice(
            ("beat x group=g epoch=5", "heartbeat y group=g generation=1 member=!y", "work z group=g epoch=5")
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
