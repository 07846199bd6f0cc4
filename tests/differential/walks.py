"""Conversations made by chance: what clients do is drawn from a seed and from what they were told so far.

Most of the time a client does what a client would: join, join again with its id, sync, send heartbeats. The
rest is everything else that can be asked, in every version. `hal` has timeouts so short that nothing of his
survives the wait that follows each answer to him; everybody else's are so long that they never matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

CLIENTS = ("ann", "bob", "cas")
HASTY = "hal"
AFTERWARDS = "wait 500"
"""Follows each answer to `hal`: by then his session and his time to sync are over."""

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
    """One seed's conversation, a line at a time."""

    steps = STEPS
    last: tuple[str, ...] = ()

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = self.chance.choice(("plain", "plain", "plain", "crowded"))
        self.clients = CLIENTS + ((HASTY,) if self.chance.random() < 0.3 else ())
        self.static = {c: f"i-{c}" for c in CLIENTS if self.chance.random() < 0.4}
        self.sober = self.chance.choice((0.6, 0.8, 0.9))

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """The next line, given what clients remember and who waits for an answer."""
        free = [c for c in self.clients if c not in waiting]
        if free and self.chance.random() < self.sober:
            who = self.chance.choice(free)
            return self._sensible(who, memory(who))
        who = self.chance.choice(self.clients)
        weighted = {
            self._join: 6, self._sync: 4, self._heartbeat: 3, self._leave: 3, self._commit: 4, self._fetch: 3,
            self._describe: 2, self._list: 1, self._delete: 2, self._forget: 1, self._find: 1,
        }  # fmt: skip
        made = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return made(who)

    def _sensible(self, who: str, memory: Memory) -> str:
        if memory.last is None:
            return self._join_line(who)
        api, error = memory.last
        if error in REJOIN:
            return self._join_line(who)
        if error is not Errors.NONE:
            return self._join_line(who) + " member=-"
        if api == "JoinGroup":
            return f"sync {who} v={self._version(0, 5)}"
        if self.chance.random() < 0.3:
            return f"commit {who} {self.chance.choice(OFFSETS)} v={self._version(2, 10)}"
        return f"heartbeat {who} v={self._version(0, 4)}"

    def _version(self, first: int, last: int) -> int:
        return last if self.chance.random() < 0.6 else self.chance.randint(first, last)

    def _join_line(self, who: str) -> str:
        if who == HASTY:
            return f"join {who} v={self._version(0, 9)} session=150 rebalance=200"
        if who in self.static:
            return f"join {who} v={self.chance.choice((9, 9, 8, 7, 6, 5))} static={self.static[who]}"
        return f"join {who} v={self._version(0, 9)} protocols={self.chance.choice(PROTOCOLS[:4])}"

    # --- anything else ---

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

    def _join(self, who: str) -> str:
        line = f"join {who} v={self._version(0, 9)} protocols={self.chance.choice(PROTOCOLS)}"
        if who == HASTY:
            line += " session=150 rebalance=200"
        else:
            line += self._maybe(0.1, "session=99", "session=1800001", "session=40000") + self._static()
        line += self._maybe(0.1, "type=connect", "type=%20", "protocols=") + self._maybe(
            0.2, "reason=because"
        )
        return line + self._member() + self._maybe(0.1, "group=g", "group=h")

    def _sync(self, who: str) -> str:
        line = f"sync {who} v={self._version(0, 5)}" + self._member() + self._generation() + self._static()
        line += self._maybe(0.2, "assign=none", "assign=ann:x", "assign=!nobody:x,bob:y")
        return (
            line
            + self._maybe(0.2, "type=consumer", "type=connect")
            + self._maybe(0.2, "protocol=range", "protocol=x")
        )

    def _heartbeat(self, who: str) -> str:
        return (
            f"heartbeat {who} v={self._version(0, 4)}" + self._member() + self._generation() + self._static()
        )

    def _leave(self, who: str) -> str:
        version = self._version(0, 5)
        if version < 3 or self.chance.random() < 0.5:
            return f"leave {who} v={version}" + self._member()
        named = [
            self.chance.choice(
                ("-|i-ann", "-|i-bob", "ann", "bob", "cas", "ann|i-ann", "bob|i-new", "!nobody", "-")
            )
            for _ in range(self.chance.randint(1, 3))
        ]
        return f"leave {who} v={version} members={','.join(named)}"

    def _commit(self, who: str) -> str:
        line = f"commit {who} {self.chance.choice(OFFSETS)} v={self._version(2, 10)}"
        alone = self._maybe(0.5, "generation=-1 member=- static=-")
        return line + (alone or self._member() + self._generation() + self._static()) + self._group()

    def _fetch(self, who: str) -> str:
        line = f"fetch {who} {self.chance.choice(REQUESTED)} v={self._version(1, 10)}"
        line += self._maybe(0.3, "stable=yes") + self._maybe(0.3, "member=!nobody generation=3", "member=ann")
        return line + self._maybe(0.5, "groups=g,h", "groups=h", "groups=none,g")

    def _describe(self, who: str) -> str:
        return (
            f"describe {who} {self.chance.choice(('g', 'h', 'g,h', 'none'))} v={self._version(0, 6)}"
            + self._maybe(0.2, "operations=yes")
        )

    def _list(self, who: str) -> str:
        filters = (
            "states=Stable",
            "states=empty,Dead",
            "types=classic",
            "types=Consumer",
            "states=x types=classic",
        )
        return f"list {who} v={self._version(0, 5)}" + self._maybe(0.5, *filters)

    def _delete(self, who: str) -> str:
        return f"delete {who} {self.chance.choice(('g', 'h', 'g,none', 'h,h'))} v={self._version(0, 2)}"

    def _forget(self, who: str) -> str:
        return (
            f"forget {who} {self.chance.choice(('orders-0', 'orders-0,audit-0', 'nowhere-1'))}"
            + self._group()
        )

    def _find(self, who: str) -> str:
        return f"find {who} {self.chance.choice(('g', 'h', '-'))} v={self._version(0, 6)}"
