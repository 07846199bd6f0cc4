"""Conversations made by chance about transactions: producers, zombies, groups, administrators.

Most of the time a producer does what a client of one of the two protocols would: it asks for its id, writes,
commits offsets, ends. The rest is everything else that can be asked, in every version, with ids and epochs
that are over or not yet. `a` and `z` have one transactional id between them.

Kafka answers while its coordinator still writes markers; the conversation goes on when they are written
(`transactions.py`), so that nothing is left to chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.differential.language import Memory

from konvene.errors import Errors

STEPS = 45
CLIENTS = ("a", "z", "b", "c")
IDS = {"a": "x", "z": "x", "b": "b", "c": "c"}
PARTITIONS = ("own-0", "own-1")
OFFSETS = (
    "orders-0:5",
    "orders-1:7",
    "orders-0:8,orders-1:9",
    "orders-9:1",
    "nowhere-0:1",
    "orders-2:3:m*51",
)
TAKEN = OFFSETS[:3]
"""What may be refused is only committed in `g`, which is there: with Kafka a refused commit makes a group."""

GROUPS = ("g", "g", "h")
MEMBERS = ("", "", "", " member=!nobody generation=3", " member=- generation=-1", " member=- generation=1")
BEGIN_AGAIN = {
    Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.CONCURRENT_TRANSACTIONS, Errors.INVALID_TXN_STATE, Errors.UNKNOWN_PRODUCER_ID,
}  # fmt: skip


class TransactionsWalk:
    """One seed's conversation, a line at a time."""

    steps = STEPS

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = "transactions"
        self.clients = CLIENTS[: self.chance.choice((2, 3, 4))]
        self.second = {c: self.chance.random() < 0.6 for c in self.clients}
        self.sober = self.chance.choice((0.5, 0.7, 0.9))
        self.enlisted: dict[str, set[str]] = {}
        self.first = ["commit admin orders-5:1 group=g generation=-1 member=-", "topic own 2"]
        self.last = ("written", "written state", *(f"read admin {p} isolation=committed" for p in PARTITIONS))

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """The next line, given what clients remember."""
        if self.first:
            return self.first.pop()
        who = self.chance.choice(self.clients)
        if self.chance.random() < self.sober:
            return self._sensible(who, memory(who))
        weighted = {
            self._init: 3, self._enlist: 3, self._pledge: 2, self._write: 4, self._stow: 3, self._end: 4,
            self._commit: 2, self._fetch: 3, self._inquire: 2, self._roll: 1, self._producers: 2,
            self._read: 2, self._ends: 1, self._forget: 1,
        }  # fmt: skip
        made = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return made(who)

    # --- what clients do ---

    def _sensible(self, who: str, memory: Memory) -> str:
        if memory.producer_id < 0 or memory.last_error in BEGIN_AGAIN:
            self.enlisted[who] = set()
            return f"init {who} id={IDS[who]} v={5 if self.second[who] else self.chance.choice((0, 2, 4))}"
        roll = self.chance.random()
        if roll < 0.3:
            self.enlisted[who] = set()
            return f"end {who} {self._end_word()} v={5 if self.second[who] else self.chance.randint(0, 4)}"
        if self.second[who]:
            if roll < 0.8:
                return f"write {who} {self.chance.choice(PARTITIONS)} v={self.chance.choice((12, 13))}"
            return f"stow {who} {self.chance.choice(TAKEN)} v=5"
        return self._step_of_first(who, self.enlisted.setdefault(who, set()))

    def _step_of_first(self, who: str, enlisted: set[str]) -> str:
        """A producer of the first protocol says first what it is about to write to."""
        what = self.chance.choice((*PARTITIONS, "group"))
        if what not in enlisted:
            enlisted.add(what)
            if what == "group":
                return f"pledge {who} v={self.chance.randint(0, 4)}"
            return f"enlist {who} {what} v={self.chance.randint(0, 3)}"
        if what == "group":
            return f"stow {who} {self.chance.choice(TAKEN)} v={self.chance.randint(0, 4)}"
        return f"write {who} {what} v={self.chance.randint(3, 11)}"

    def _end_word(self) -> str:
        return self.chance.choice(("commit", "commit", "abort"))

    # --- anything else ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _whose(self) -> str:
        """Somebody's id, an epoch that is not its own."""
        ids = [f"id={IDS[c]}" for c in self.clients]
        line = self._maybe(0.15, "id=nobody", *ids) + self._maybe(
            0.1, "pid=987654", *(f"pid={c}" for c in self.clients)
        )
        return line + self._maybe(0.2, "epoch=next", "epoch=last")

    def _init(self, who: str) -> str:
        line = f"init {who} id={IDS[who]} v={self.chance.randint(0, 5)}" + self._maybe(0.4, "keep=yes")
        return line + self._maybe(0.1, "timeout=0", "timeout=900001", "timeout=30000")

    def _enlist(self, who: str) -> str:
        version = self.chance.randint(0, 5)
        verify = self._maybe(0.5, "verify=yes") if version >= 4 else ""
        what = self.chance.choice((*PARTITIONS, "own-0,own-1", "own-7", "nowhere-0"))
        return f"enlist {who} {what} v={version}{verify}" + self._whose()

    def _pledge(self, who: str) -> str:
        return (
            f"pledge {who} group={self.chance.choice(GROUPS)} v={self.chance.randint(0, 4)}" + self._whose()
        )

    def _write(self, who: str) -> str:
        line = f"write {who} {self.chance.choice(PARTITIONS)} v={self.chance.randint(3, 13)}"
        return line + (self._maybe(0.2, "plain=yes") or self._whose() + self._maybe(0.15, "seq=0", "seq=9"))

    def _stow(self, who: str) -> str:
        version = self.chance.randint(0, 5)
        group = self.chance.choice(GROUPS)
        offsets = self.chance.choice(OFFSETS if group == "g" else TAKEN)
        line = f"stow {who} {offsets} v={version} group={group}"
        return line + (self.chance.choice(MEMBERS) if version >= 3 else "") + self._whose()

    def _end(self, who: str) -> str:
        return f"end {who} {self._end_word()} v={self.chance.randint(0, 5)}" + self._whose()

    def _commit(self, who: str) -> str:
        group = self.chance.choice(GROUPS)
        return f"commit {who} {self.chance.choice(TAKEN)} group={group} generation=-1 member=-"

    def _fetch(self, who: str) -> str:
        what = self.chance.choice(("all", "orders-0,orders-1", "orders-2"))
        return f"fetch admin {what} groups=g,h" + self._maybe(0.6, "stable=yes")

    def _inquire(self, who: str) -> str:
        return "inquire admin x,b,c"

    def _roll(self, who: str) -> str:
        return "roll admin" + self._maybe(0.5, "states=Ongoing", "states=CompleteCommit,CompleteAbort,Empty")

    def _producers(self, who: str) -> str:
        return f"producers admin {self.chance.choice(PARTITIONS)}"

    def _read(self, who: str) -> str:
        return f"read admin {self.chance.choice(PARTITIONS)}" + self._maybe(0.7, "isolation=committed")

    def _ends(self, who: str) -> str:
        return f"ends admin own-0,own-1{self._maybe(0.6, 'isolation=committed')}"

    def _forget(self, who: str) -> str:
        return self.chance.choice(
            ("forget admin orders-0", "delete admin h", "forget admin orders-1 group=h")
        )
