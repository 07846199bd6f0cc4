"""Holds back heartbeat responses without changes, until the group changes or the hold time is over.

A member learns of a rebalance from the response to a heartbeat. If the response to its last heartbeat is
still pending when the group changes, the member learns of it at once. So if a heartbeat of a stable member
repeats the one before, its response is held back. What happens when it is released:

    released when                            effect
    the group or its topics change           the heartbeat is decided anew
    most of the heartbeat interval is over   the cached response is sent; the session is re-armed
    the client sends another request         the same, so that responses leave in order
    the group's coordinator stops            the heartbeat is decided anew, and rejected
    the broker stops                         the cached response is sent; nothing is held any more
    the connection is lost                   the heartbeat is dropped

`groups.heartbeat_intervals` decides how long a response may be held. The clients whose heartbeats are held
are listed by `konvene.heartbeat.hold.clients` and `konvene.heartbeat.hold.classic.clients` (classic groups):
clients differ in what they do while they wait for a response. When a large group changes, its members are
answered in batches, so that other requests do not wait for all of them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, Protocol

from konvene.broker.net.response_cache import CachedResponse
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.heartbeat_intervals import max_hold_ms
from konvene.groups.shard import group_of
from konvene.shard.contract import Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

BATCH = 50
PAUSE_S = 0.002
"""Heartbeats released per batch, and the pause between two batches, in seconds."""

SLOT_S = 0.02
"""Holds that end within the same slot of this length end together: at most fifty timers a second."""


STREAMS = "stream"
"""Protocol name of Kafka Streams in classic groups."""


class HoldingConnection(Hashable, Protocol):
    """A connection whose heartbeats the purgatory can hold."""

    def answer_held(self, cached: CachedResponse, frame: bytes) -> None:
        """Send the response to a held heartbeat: the cached one, or one that is decided anew."""


class HeartbeatPurgatory:
    """The held heartbeats, at most one of each connection, and the timers that release them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[HoldingConnection, tuple[CachedResponse, bytes, int]] = {}
        self._slots: dict[int, dict[HoldingConnection, None]] = {}
        """Connections by the slot in which their holds end."""
        self._by_group: dict[str, OrderedDict[HoldingConnection, None]] = {}
        """Connections in order of arrival. Those that are being released come first."""
        self._releasing: OrderedDict[HoldingConnection, None] = OrderedDict()
        self._scheduled = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<{len(self._held)} heartbeats held>"

    @property
    def ends(self) -> Mapping[Hashable, float]:
        """Return the time at which the hold of each connection ends, by the loop's clock in seconds."""
        return {connection: slot * SLOT_S for connection, (_, _, slot) in self._held.items()}

    def held_of(self, group_id: str) -> set[str]:
        """Return the ids of a group's members whose heartbeats are held."""
        return {self._held[connection][0].member_id for connection in self._by_group.get(group_id, ())}

    def hold(self, connection: HoldingConnection, cached: CachedResponse, frame: bytes, hold_ms: int) -> bool:
        """Hold a heartbeat for `hold_ms` at most; then the connection answers it.

        Return False if it is not held because the broker is stopping."""
        if self._closed:
            return False
        slot = int((self._loop.time() + hold_ms / 1000) / SLOT_S)
        self._held[connection] = cached, frame, slot
        self._by_group.setdefault(cached.group_id, OrderedDict())[connection] = None
        waiting = self._slots.get(slot)
        if waiting is None:
            waiting = self._slots[slot] = {}
            self._loop.call_at(slot * SLOT_S, self._end, slot)
        waiting[connection] = None
        return True

    def _end(self, slot: int) -> None:
        for connection in self._slots.pop(slot):
            self.release(connection)

    def release(self, connection: HoldingConnection) -> None:
        """Make the connection answer its held heartbeat now."""
        held = self.drop(connection)
        if held is not None:
            connection.answer_held(*held)

    def drop(self, connection: HoldingConnection) -> tuple[CachedResponse, bytes] | None:
        """Remove and return the held heartbeat of a connection, unanswered; None if there is none."""
        held = self._held.pop(connection, None)
        if held is None:
            return None
        cached, frame, slot = held
        if slot in self._slots:
            self._slots[slot].pop(connection, None)
        self._releasing.pop(connection, None)
        waiting = self._by_group[cached.group_id]
        del waiting[connection]
        if not waiting:
            del self._by_group[cached.group_id]
        return cached, frame

    # --- changes ---

    def observe(self, outcome: Outcome) -> None:
        """Release the heartbeats of the groups that an outcome's records have changed."""
        if not self._by_group:
            return
        for group_id in dict.fromkeys(map(group_of, chain(outcome.records, outcome.soft_records))):
            waiting = self._by_group.get(group_id)
            if waiting and not self._held[next(iter(waiting))][0].is_current():
                # A group may change a thousand times before all are answered: those that are being released
                # already are not visited again.
                unreleased = takewhile(
                    lambda connection: connection not in self._releasing, reversed(waiting)
                )
                self._release_soon(reversed(list(unreleased)))

    def release_all(self) -> None:
        """Release all heartbeats soon, in batches, because topics, settings or features have changed."""
        self._release_soon(self._held)

    def _release_soon(self, connections: Iterable[HoldingConnection]) -> None:
        self._releasing.update(dict.fromkeys(connections))
        if self._releasing and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._release_batch)

    def _release_batch(self) -> None:
        for _ in range(min(BATCH, len(self._releasing))):
            self.release(next(iter(self._releasing)))
        self._scheduled = bool(self._releasing)
        if self._scheduled:
            self._loop.call_later(PAUSE_S, self._release_batch)

    def close(self) -> None:
        """Release all heartbeats at once, and hold none from now on."""
        self._closed = True
        for connection in list(self._held):
            self.release(connection)


def set_hold_time(cached: CachedResponse, response: Any) -> None:
    """Set the fields of `cached` that determine how long a repeated heartbeat may be held back."""
    value: Any = cached.decision and cached.decision.value
    if isinstance(value, ClassicGroup):
        # Kafka Streams closes without leaving the group, and waits for the response like a static member.
        cached.is_learnt = value.state is State.STABLE and value.protocol != STREAMS
        cached.is_static = value.members[cached.member_id].instance_id is not None
    else:
        is_static = value.member.instance_id is not None
        cached.hold_ms = max_hold_ms(response.heartbeat_interval_ms, is_static=is_static)


@lru_cache(maxsize=256)
def may_be_held(software: tuple[str, str], clients: tuple[str, ...]) -> bool:
    """Return True if a client (name and version) is listed in `clients`, as `name` or `name:min_version`."""
    name, version = software
    if "rdkafka-" in version:  # A binding of librdkafka, under a name of its own.
        name, version = "librdkafka", version.rpartition("rdkafka-")[2]
    for client in clients:
        client_name, _, min_version = client.partition(":")
        if client_name == name and _version_numbers(version) >= _version_numbers(min_version):
            return True
    return False


def _version_numbers(version: str) -> tuple[int, ...]:
    """Parse a version for comparison: 4.0.0-rc1 equals 4, and 2.10 is later than 2.9."""
    match = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)", version)
    numbers = [int(number) for number in match[1].split(".")] if match is not None else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
