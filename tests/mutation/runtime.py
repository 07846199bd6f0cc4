"""Bugs around the cores, in what appends, syncs, answers and keeps the time."""

# Lines of the source are quoted as they are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutation.mutant import GROUPS, Mutant

RUNTIME = (
    Mutant(
        "reply-before-it-is-durable",
        "runtime/coordinator.py",
        ("G6",),
        "A member is told of a generation that a power cut takes back.",
        "        if not self._held and held.offset <= self._journal.synced_offset:\n",
        "        if not self._held and held.offset <= self._journal.end_offset:\n",
    ),
    Mutant(
        "reading-overtakes-writing",
        "runtime/coordinator.py",
        ("G6",),
        "OffsetFetch tells of a commit that is not durable yet.",
        "            if outcome.records or outcome.soft_records or outcome.ending is not None or self._held:\n",
        "            if outcome.records or outcome.soft_records or outcome.ending is not None:\n",
    ),
    Mutant(
        "replayed-before-it-is-appended",
        "runtime/coordinator.py",
        ("G5", "G3"),
        "A batch that does not fit, or cannot be written, is in the state and not in the log.",
        "        base = end = self._journal.end_offset\n        if outcome.records or outcome.ending is not None:\n",
        "        base = end = self._journal.end_offset\n"
        "        for record in outcome.records:\n"
        "            self.core.replay(record)\n"
        "        if outcome.records or outcome.ending is not None:\n",
    ),
    Mutant(
        "failed-and-never-loaded-again",
        "runtime/coordinator.py",
        ("L7",),
        "One append that failed ends the coordinator of these groups until the broker is restarted.",
        "        if self._journal.online:\n            self.load()\n",
        "",
    ),
    Mutant(
        "who-waits-is-not-told-of-the-failure",
        "runtime/coordinator.py",
        ("G12",),
        "A coordinator fails, and the requests that waited for it hang.",
        "        for answer in waiting.values():\n            answer.resolve(self._unavailable)\n",
        "",
    ),
    Mutant(
        "timers-outlive-the-failure",
        "runtime/coordinator.py",
        ("G11",),
        "Timers of the state before a failure ring in the state after it.",
        "        self._timers.clear()\n",
        "",
    ),
    Mutant(
        "serves-while-it-loads",
        "runtime/coordinator.py",
        ("G7", "KAFKA-16030"),
        "Requests are decided on a state that is not read to its end.",
        '        if self.state != "active":\n            busy =',
        '        if self.state in ("failed", "closed"):\n            busy =',
    ),
    Mutant(
        "loading-sends-away",
        "runtime/coordinator.py",
        ("L7",),
        "While a coordinator reads its log clients are sent to look for another one, which there is not.",
        '            busy = Errors.COORDINATOR_LOAD_IN_PROGRESS if self.state == "loading" else self._unavailable\n',
        "            busy = self._unavailable\n",
    ),
    Mutant(
        "loaded-without-timers",
        "runtime/coordinator.py",
        ("G11", "L4"),
        "After a restart members that are gone keep their partitions for ever.",
        "        self._set_timers(outcome.timers)\n        why: tuple[ExplainedRebalance, ...] = ()\n",
        "        if waiter is not None or outcome.records:\n"
        "            self._set_timers(outcome.timers)\n"
        "        why: tuple[ExplainedRebalance, ...] = ()\n",
    ),
    Mutant(
        "appended-during-a-sync",
        "runtime/coordinator.py",
        ("G12",),
        "What was appended during a sync waits for an answer until somebody else writes.",
        "                if all(held.may_wait for held in self._held):\n                    if self._held or",
        "                if True:\n                    if self._held or",
    ),
    Mutant(
        "sooner-is-not-seen",
        "runtime/timers.py",
        ("L4", "C4"),
        "A timer that is set again to an earlier time rings at the later one.",
        "        if before is None or deadline < before:\n",
        "        if before is None:\n",
    ),
    Mutant(
        "later-is-never",
        "runtime/timers.py",
        ("L4",),
        "A session that was prolonged once never ends.",
        "            if deadline > now:\n"
        "                self._serial += 1\n"
        "                heapq.heappush(self._heap, (deadline, self._serial, key))\n"
        "                continue\n",
        "            if deadline > now:\n                continue\n",
    ),
    Mutant(
        "heartbeat-from-memory",
        GROUPS + "shard.py",
        ("L3", "C2"),
        "A heartbeat that was accepted is accepted again though the group rebalances meanwhile.",
        "        return isinstance(value, ClassicGroup) and self.groups.get(value.group_id) is value\n",
        "        return isinstance(value, ClassicGroup) and value.group_id in self.groups\n",
        level=2,
    ),
)
