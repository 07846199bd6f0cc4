"""Random walks of transactions: producers, zombies, groups, administrators.

Most lines are those of a correct producer with transaction version 1 or 2: initialize the producer id, write,
commit offsets, end the transaction. The others are all other requests, in every version, with expired and
future ids and epochs. `a` and `z` share one transactional id.

Kafka responds before its coordinator has written the markers; the conversation continues when they are
written (`transactions.py`), which makes it deterministic.
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
VALID_OFFSETS = OFFSETS[:3]
"""Only the existing group `g` gets invalid commits: in Kafka a rejected commit creates a group."""

GROUPS = ("g", "g", "h")
MEMBERS = ("", "", "", " member=!nobody generation=3", " member=- generation=-1", " member=- generation=1")
BEGIN_AGAIN = {
    Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.CONCURRENT_TRANSACTIONS, Errors.INVALID_TXN_STATE, Errors.UNKNOWN_PRODUCER_ID,
}  # fmt: skip


class TransactionsWalk:
    """Generates the conversation of a seed, a line at a time."""

    steps = STEPS

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.profile = "transactions"
        self.clients = CLIENTS[: self.chance.choice((2, 3, 4))]
        self.version_2 = {c: self.chance.random() < 0.6 for c in self.clients}
        self.correct_odds = self.chance.choice((0.5, 0.7, 0.9))
        self.enlisted: dict[str, set[str]] = {}
        self.first = ["commit admin orders-5:1 group=g generation=-1 member=-", "topic own 2"]
        self.last = ("written", "written state", *(f"read admin {p} isolation=committed" for p in PARTITIONS))

    def line(self, memory: Callable[[str], Memory], waiting: set[str]) -> str:
        """Return the next line, given the clients' memories."""
        if self.first:
            return self.first.pop()
        client = self.chance.choice(self.clients)
        if self.chance.random() < self.correct_odds:
            return self._correct(client, memory(client))
        weighted = {
            self._init: 3, self._enlist: 3, self._pledge: 2, self._write: 4, self._stow: 3, self._end: 4,
            self._commit: 2, self._fetch: 3, self._inquire: 2, self._roll: 1, self._producers: 2,
            self._read: 2, self._ends: 1, self._forget: 1,
        }  # fmt: skip
        make_line = self.chance.choices(list(weighted), list(weighted.values()))[0]
        return make_line(client)

    # --- lines of a correct client ---

    def _correct(self, client: str, memory: Memory) -> str:
        if memory.producer_id < 0 or memory.last_error in BEGIN_AGAIN:
            self.enlisted[client] = set()
            version = 5 if self.version_2[client] else self.chance.choice((0, 2, 4))
            return f"init {client} id={IDS[client]} v={version}"
        roll = self.chance.random()
        if roll < 0.3:
            self.enlisted[client] = set()
            outcome = self._outcome()
            version = 5 if self.version_2[client] else self.chance.randint(0, 4)
            return f"end {client} {outcome} v={version}"
        if self.version_2[client]:
            if roll < 0.8:
                return f"write {client} {self.chance.choice(PARTITIONS)} v={self.chance.choice((12, 13))}"
            return f"stow {client} {self.chance.choice(VALID_OFFSETS)} v=5"
        return self._correct_v1(client, self.enlisted.setdefault(client, set()))

    def _correct_v1(self, client: str, enlisted: set[str]) -> str:
        """Return a step of transaction version 1: partitions and groups are added before the first write."""
        what = self.chance.choice((*PARTITIONS, "group"))
        if what not in enlisted:
            enlisted.add(what)
            if what == "group":
                return f"pledge {client} v={self.chance.randint(0, 4)}"
            return f"enlist {client} {what} v={self.chance.randint(0, 3)}"
        if what == "group":
            return f"stow {client} {self.chance.choice(VALID_OFFSETS)} v={self.chance.randint(0, 4)}"
        return f"write {client} {what} v={self.chance.randint(3, 11)}"

    def _outcome(self) -> str:
        return self.chance.choice(("commit", "commit", "abort"))

    # --- other requests ---

    def _maybe(self, odds: float, *options: str) -> str:
        return " " + self.chance.choice(options) if self.chance.random() < odds else ""

    def _wrong_producer(self) -> str:
        """Return options for another client's id or another epoch, or none."""
        ids = [f"id={IDS[c]}" for c in self.clients]
        line = self._maybe(0.15, "id=nobody", *ids) + self._maybe(
            0.1, "pid=987654", *(f"pid={c}" for c in self.clients)
        )
        return line + self._maybe(0.2, "epoch=next", "epoch=last")

    def _init(self, client: str) -> str:
        line = f"init {client} id={IDS[client]} v={self.chance.randint(0, 5)}" + self._maybe(0.4, "keep=yes")
        return line + self._maybe(0.1, "timeout=0", "timeout=900001", "timeout=30000")

    def _enlist(self, client: str) -> str:
        version = self.chance.randint(0, 5)
        verify = self._maybe(0.5, "verify=yes") if version >= 4 else ""
        what = self.chance.choice((*PARTITIONS, "own-0,own-1", "own-7", "nowhere-0"))
        return f"enlist {client} {what} v={version}{verify}" + self._wrong_producer()

    def _pledge(self, client: str) -> str:
        return (
            f"pledge {client} group={self.chance.choice(GROUPS)} v={self.chance.randint(0, 4)}"
            + self._wrong_producer()
        )

    def _write(self, client: str) -> str:
        line = f"write {client} {self.chance.choice(PARTITIONS)} v={self.chance.randint(3, 13)}"
        return line + (
            self._maybe(0.2, "plain=yes") or self._wrong_producer() + self._maybe(0.15, "seq=0", "seq=9")
        )

    def _stow(self, client: str) -> str:
        version = self.chance.randint(0, 5)
        group = self.chance.choice(GROUPS)
        offsets = self.chance.choice(OFFSETS if group == "g" else VALID_OFFSETS)
        line = f"stow {client} {offsets} v={version} group={group}"
        return line + (self.chance.choice(MEMBERS) if version >= 3 else "") + self._wrong_producer()

    def _end(self, client: str) -> str:
        return f"end {client} {self._outcome()} v={self.chance.randint(0, 5)}" + self._wrong_producer()

    def _commit(self, client: str) -> str:
        group = self.chance.choice(GROUPS)
        return f"commit {client} {self.chance.choice(VALID_OFFSETS)} group={group} generation=-1 member=-"

    def _fetch(self, client: str) -> str:
        what = self.chance.choice(("all", "orders-0,orders-1", "orders-2"))
        return f"fetch admin {what} groups=g,h" + self._maybe(0.6, "stable=yes")

    def _inquire(self, client: str) -> str:
        return "inquire admin x,b,c"

    def _roll(self, client: str) -> str:
        return "roll admin" + self._maybe(0.5, "states=Ongoing", "states=CompleteCommit,CompleteAbort,Empty")

    def _producers(self, client: str) -> str:
        return f"producers admin {self.chance.choice(PARTITIONS)}"

    def _read(self, client: str) -> str:
        return f"read admin {self.chance.choice(PARTITIONS)}" + self._maybe(0.7, "isolation=committed")

    def _ends(self, client: str) -> str:
        return f"ends admin own-0,own-1{self._maybe(0.6, 'isolation=committed')}"

    def _forget(self, client: str) -> str:
        return self.chance.choice(
            ("forget admin orders-0", "delete admin h", "forget admin orders-1 group=h")
        )
