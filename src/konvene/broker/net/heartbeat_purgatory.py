"""Heartbeats with nothing to tell, whose answers are kept until there is something.

A member hears of a rebalance by the answer to a heartbeat. If the answer to the last one is still on its way
when the group changes, the member hears of it at once. So the heartbeat of a settled member, the very same as
the one before, is held: it was decided when it came, and is decided again when it leaves.

    it leaves when                        and then
    the group or its topics change        it is decided anew
    most of the told interval is over     the same is answered, and the session counts from here
    the client asks something else        the same; answers leave in their order
    the group's coordinator stops         it is decided anew, and refused
    the broker stops                      the same is answered; nothing is held from then on
    the connection is lost                nobody is answered

How long an answer may be kept is said in `groups.heartbeat_intervals`; from whom, by
`konvene.heartbeat.hold.clients`
and, for classic groups, `konvene.heartbeat.hold.classic.clients`: clients differ in what they do meanwhile,
and others are never kept waiting. When a large group changes, its
members are answered some at a time, so that nobody else waits for them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from konvene.broker.net.response_cache import CachedResponse
from konvene.groups.shard import group_of
from konvene.shard.contract import Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Iterable, Mapping

    from konvene.broker.net.connection import Connection

TOGETHER_MS = 1
"""Holds end at multiples of this."""

AT_ONCE = 50
PAUSE_S = 0.002
"""So many are answered at a time, with so much time for everybody else in between."""

TURN_S = 0.02
"""Holds that end within so much time end together, at its beginning: a thousand a second wake the loop fifty
times."""


class HeartbeatPurgatory:
    """The connections that wait for the answer to a heartbeat."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[Connection, tuple[CachedResponse, bytes, int]] = {}
        self._turns: dict[int, dict[Connection, None]] = {}
        """By the turn in which their holds end."""
        self._by_group: dict[str, OrderedDict[Connection, None]] = {}
        """Who came first is first. Those who are leaving come before those who are not."""
        self._leaving: OrderedDict[Connection, None] = OrderedDict()
        self._goes_on = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<{len(self._held)} heartbeats held>"

    @property
    def ends(self) -> Mapping[Hashable, float]:
        """When each hold ends at the latest, in the loop's time."""
        return {connection: turn * TURN_S for connection, (_, _, turn) in self._held.items()}

    def held_of(self, group_id: str) -> set[str]:
        """The members of a group whose heartbeats are held."""
        return {self._held[connection][0].member_id for connection in self._by_group.get(group_id, ())}

    def hold(self, connection: Connection, known: CachedResponse, frame: bytes, hold_ms: int) -> bool:
        """Keep the answer to this heartbeat for so long; `release` gives it back to the connection.

        False where it is not kept, for the broker stops."""
        if self._closed:
            return False
        turn = int((self._loop.time() + hold_ms / 1000) / TURN_S)
        self._held[connection] = known, frame, turn
        self._by_group.setdefault(known.group_id, OrderedDict())[connection] = None
        there = self._turns.get(turn)
        if there is None:
            there = self._turns[turn] = {}
            self._loop.call_at(turn * TURN_S, self._end, turn)
        there[connection] = None
        return True

    def _end(self, turn: int) -> None:
        for connection in self._turns.pop(turn):
            self.release(connection)

    def release(self, connection: Connection) -> None:
        """Let the connection answer now."""
        held = self.drop(connection)
        if held is not None:
            connection.answer_held(*held)

    def drop(self, connection: Connection) -> tuple[CachedResponse, bytes] | None:
        """Hold its heartbeat no more; what was held."""
        held = self._held.pop(connection, None)
        if held is None:
            return None
        known, frame, turn = held
        if turn in self._turns:
            self._turns[turn].pop(connection, None)
        self._leaving.pop(connection, None)
        there = self._by_group[known.group_id]
        del there[connection]
        if not there:
            del self._by_group[known.group_id]
        return known, frame

    # --- news ---

    def look(self, outcome: Outcome) -> None:
        """Something was decided: whose group it is not the same any more is answered."""
        if not self._by_group:
            return
        for group_id in dict.fromkeys(map(group_of, chain(outcome.records, outcome.soft_records))):
            there = self._by_group.get(group_id)
            if there and not self._held[next(iter(there))][0].holds():
                # A group may change a thousand times before all are answered: who leaves already is not
                # looked at again.
                stay = takewhile(lambda connection: connection not in self._leaving, reversed(there))
                self._leave(reversed(list(stay)))

    def release_all(self) -> None:
        """Something changed that may concern everybody."""
        self._leave(self._held)

    def _leave(self, connections: Iterable[Connection]) -> None:
        self._leaving.update(dict.fromkeys(connections))
        if self._leaving and not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._some_leave)

    def _some_leave(self) -> None:
        for _ in range(min(AT_ONCE, len(self._leaving))):
            self.release(next(iter(self._leaving)))
        self._goes_on = bool(self._leaving)
        if self._goes_on:
            self._loop.call_later(PAUSE_S, self._some_leave)

    def close(self) -> None:
        """Answer everybody, now, and hold nothing any more."""
        self._closed = True
        for connection in list(self._held):
            self.release(connection)


@lru_cache(maxsize=256)
def may_be_held(software: tuple[str, str], clients: tuple[str, ...]) -> bool:
    """Whether this client, by name and version in ApiVersions, is one of those (`name` or `name:version`)."""
    name, version = software
    if "rdkafka-" in version:  # A binding of librdkafka, under a name of its own.
        name, version = "librdkafka", version.rpartition("rdkafka-")[2]
    for client in clients:
        wanted, _, least = client.partition(":")
        if wanted == name and _numbers(version) >= _numbers(least):
            return True
    return False


def _numbers(version: str) -> tuple[int, ...]:
    """What a version is compared by: 4.0.0-rc1 is 4, and so is 4; 2.10 is more than 2.9."""
    found = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)", version)
    numbers = [int(number) for number in found[1].split(".")] if found is not None else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
