"""Random walks of classic members: each line is drawn from a seed and the responses so far.

Most lines are those of a correct client: join, rejoin with the assigned id, sync, heartbeat. The others are
all other requests, in every version. The timeouts of client `hal` are so short that its sessions expire in
the wait after each response to it; those of the other clients never expire.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

CLIENTS = ("ann", "bob", "cas")
HASTY = "hal"
AFTERWARDS = "wait 500"
"""Line after each response to `hal`: its session and its time to sync expire during the wait."""

STEPS = 50
PROTOCOLS = (
    "range:orders", "range:orders", "range:orders,sticky:orders", "sticky:orders,range:orders",
    "sticky:orders", "range:audit", "range:%00%03%00%00%00%01%00%06orders%FF",
)  # fmt: skip
GROUPS = ("g", "h", "g", "none")
OFFSETS = (
    "orders-0:5",
    "orders-1:7,audit-0:3",
    "orders-9:1",
    "nowhere-0:1",
    "orders-0:8:deep",
    "audit-1:0:m*51",
)
REQUESTED = ("all", "orders-0", "orders-0,orders-1,audit-1", "nowhere-0,orders-9")
REJOIN = (Errors.REBALANCE_IN_PROGRESS, Errors.ILLEGAL_GENERATION, Errors.MEMBER_ID_REQUIRED)


class Walk:
    """Generates the conversation of a seed, a line at a time."""

    steps = STEPS
    last: tuple[str, ...] = ()

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = self.chance.choice(("plain", "plain", "plain", "crowded"))
        self.clients = CLIENTS + ((HASTY,) if self.chance.random() < 0.3 else ())
        self.static = {c: f"i-{c}" for c in CLIENTS if self.chance.random() < 0.4}
        self.correct_odds = self.chance.choice((0.6, 0.8, 0.9))

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """Return the next line, given the clients' memories and the clients with a pending request."""
        free = [c for c in self.clients if c not in waiting]
        if free and self.chance.random() < self.correct_odds:
            client = self.chance.choice(free)
            return self._correct(client, memory(client))
        client = self.chance.choice(self.clients)
        weighted = {
            self._join: 6, self._sync: 4, self._heartbeat: 3, self._leave: 3, self._commit: 4, self._fetch: 3,
            self._describe: 2, self._list: 1, self._delete: 2, self._forget: 1, self._find: 1,
        }  # fmt: skip
        make_line = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return make_line(client)

    def _correct(self, client: str, memory: Memory) -> str:
        if memory.last is None:
            return self._join_line(client)
        api, error = memory.last
        if error in REJOIN:
            return self._join_line(client)
        if error is not Errors.NONE:
            return self._join_line(client) + " member=-"
        if api == "JoinGroup":
            return f"sync {client} v={self._version(0, 5)}"
        if self.chance.random() < 0.3:
            return f"commit {client} {self.chance.choice(OFFSETS)} v={self._version(2, 10)}"
        return f"heartbeat {client} v={self._version(0, 4)}"

    def _version(self, first: int, last: int) -> int:
        return last if self.chance.random() < 0.6 else self.chance.randint(first, last)

    def _join_line(self, client: str) -> str:
        if client == HASTY:
            return f"join {client} v={self._version(0, 9)} session=150 rebalance=200"
        if client in self.static:
            return f"join {client} v={self.chance.choice((9, 9, 8, 7, 6, 5))} static={self.static[client]}"
        return f"join {client} v={self._version(0, 9)} protocols={self.chance.choice(PROTOCOLS[:4])}"

    # --- other requests ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _member(self) -> str:
        return self._maybe(0.3, "member=-", "member=!nobody", *(f"member={c}" for c in CLIENTS))

    def _generation(self) -> str:
        return self._maybe(0.3, "generation=next", "generation=last", "generation=-1", "generation=0")

    def _static(self) -> str:
        return self._maybe(0.3, "static=-", "static=i-ann", "static=i-bob", "static=i-new")

    def _group(self) -> str:
        return self._maybe(0.2, *(f"group={g}" for g in GROUPS))

    def _join(self, client: str) -> str:
        line = f"join {client} v={self._version(0, 9)} protocols={self.chance.choice(PROTOCOLS)}"
        if client == HASTY:
            line += " session=150 rebalance=200"
        else:
            line += self._maybe(0.1, "session=99", "session=1800001", "session=40000") + self._static()
        line += self._maybe(0.1, "type=connect", "type=%20", "protocols=") + self._maybe(
            0.2, "reason=because"
        )
        return line + self._member() + self._maybe(0.1, "group=g", "group=h")

    def _sync(self, client: str) -> str:
        line = f"sync {client} v={self._version(0, 5)}" + self._member() + self._generation() + self._static()
        line += self._maybe(0.2, "assign=none", "assign=ann:x", "assign=!nobody:x,bob:y")
        return (
            line
            + self._maybe(0.2, "type=consumer", "type=connect")
            + self._maybe(0.2, "protocol=range", "protocol=x")
        )

    def _heartbeat(self, client: str) -> str:
        return (
            f"heartbeat {client} v={self._version(0, 4)}"
            + self._member()
            + self._generation()
            + self._static()
        )

    def _leave(self, client: str) -> str:
        version = self._version(0, 5)
        if version < 3 or self.chance.random() < 0.5:
            return f"leave {client} v={version}" + self._member()
        named = [
            self.chance.choice(
                ("-|i-ann", "-|i-bob", "ann", "bob", "cas", "ann|i-ann", "bob|i-new", "!nobody", "-")
            )
            for _ in range(self.chance.randint(1, 3))
        ]
        return f"leave {client} v={version} members={','.join(named)}"

    def _commit(self, client: str) -> str:
        line = f"commit {client} {self.chance.choice(OFFSETS)} v={self._version(2, 10)}"
        alone = self._maybe(0.5, "generation=-1 member=- static=-")
        return line + (alone or self._member() + self._generation() + self._static()) + self._group()

    def _fetch(self, client: str) -> str:
        line = f"fetch {client} {self.chance.choice(REQUESTED)} v={self._version(1, 10)}"
        line += self._maybe(0.3, "stable=yes") + self._maybe(0.3, "member=!nobody generation=3", "member=ann")
        return line + self._maybe(0.5, "groups=g,h", "groups=h", "groups=none,g")

    def _describe(self, client: str) -> str:
        return (
            f"describe {client} {self.chance.choice(('g', 'h', 'g,h', 'none'))} v={self._version(0, 6)}"
            + self._maybe(0.2, "operations=yes")
        )

    def _list(self, client: str) -> str:
        filters = (
            "states=Stable",
            "states=empty,Dead",
            "types=classic",
            "types=Consumer",
            "states=x types=classic",
        )
        return f"list {client} v={self._version(0, 5)}" + self._maybe(0.5, *filters)

    def _delete(self, client: str) -> str:
        return f"delete {client} {self.chance.choice(('g', 'h', 'g,none', 'h,h'))} v={self._version(0, 2)}"

    def _forget(self, client: str) -> str:
        return (
            f"forget {client} {self.chance.choice(('orders-0', 'orders-0,audit-0', 'nowhere-1'))}"
            + self._group()
        )

    def _find(self, client: str) -> str:
        return f"find {client} {self.chance.choice(('g', 'h', '-'))} v={self._version(0, 6)}"
