"""What a coordinator promises whatever its log does: G3, G6, G7, G12, and G10 of the core.

Random requests meet a journal whose syncs end when they like, and fail; appends fail, batches do not fit,
power is cut, coordinators are closed and begin again. After every event: nobody has heard of what a power
cut could take, everybody is answered once, and what is answered is what the log says.

`KONVENE_PROMISES=2000` plays so many lives, differently each time.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import depth
from tests.groups.asking import Cast, commit_request, fetch_request, join_request
from tests.hash_seeds import outputs_of_processes
from tests.runtime.test_coordinator import CONFIG, TOPICS, V9, Journal, commit

from konvene.broker.groups.record_serde import GROUP_SERDE
from konvene.errors import Errors
from konvene.groups.classic.group import State
from konvene.groups.shard import GroupShard
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_fetch import OffsetFetchResponse
from konvene.runtime.coordinator import Coordinator
from konvene.runtime.ports import Ports
from konvene.sim.world.compaction import ordered_state
from konvene.sim.world.event import all_offsets

LIVES = int(os.environ.get("KONVENE_PROMISES", "0"))
EVENTS = (
    "commit", "commit", "commit", "fetch", "fetch", "join", "leave", "too large", "sync", "sync", "sync",
    "append fails", "sync fails", "sync fails and power is cut", "close and begin again",
)  # fmt: skip


class Asked:
    """A request, what it said, and how far the log was when it was decided."""

    def __init__(self, kind: str, answer: Any, end: int, offset: int = -1) -> None:
        self.kind, self.answer, self.end, self.offset = kind, answer, end, offset
        self.held_against = False


class Play:
    """A coordinator on a journal in memory, and all that was ever asked of it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.coordinator = self._make()
        self.asked: list[Asked] = []
        self.offset = 0
        self.told = -1
        """The highest offset of which somebody was told that it is committed: they rise with each commit."""

    def _make(self) -> Coordinator:
        return Coordinator(
            "test-0",
            GroupShard,
            GROUP_SERDE,
            Ports(
                journal=self.journal,
                config=lambda: CONFIG,
                loop=asyncio.get_running_loop(),
                wall_clock_ms=lambda: 1000,
                topics=lambda: TOPICS,
            ),
        )

    async def play(self, events: list[str]) -> None:
        await self.coordinator.load()
        for event in events:
            await self.happen(event)
            await self.turns()
            self.look()
        await self.calm()
        await self.coordinator.close()
        assert all(a.answer.done for a in self.asked)  # G12

    async def happen(self, event: str) -> None:
        if event == "commit":
            self.offset += 1
            self.submit("commit", commit(offset=self.offset), self.offset)
        elif event == "fetch":
            self.submit("fetch", fetch_request())
        elif event == "join":
            self.submit("join", join_request(instance_id=f"i{self.offset % 3}").replace(group_id="j"))
        elif event == "leave":
            gone = MemberIdentity(group_instance_id=f"i{self.offset % 3}")
            self.submit("leave", LeaveGroupRequest(group_id="j", members=(gone,)))
        elif event == "too large":
            self.submit("too large", commit(partitions=101, offset=10_000))
        elif event == "append fails":
            self.journal.fail_append = OSError("no space left on device")
            self.offset += 1
            self.submit("commit", commit(offset=self.offset), self.offset)
            self.journal.fail_append = None
        elif event == "close and begin again":
            await self.begin_again()
        elif self.journal.syncs:
            if event == "sync":
                await self.journal.finish_sync()
            else:
                if event == "sync fails and power is cut":
                    self.journal.cut(self.journal.synced_offset)
                await self.journal.finish_sync(OSError("input/output error"))

    def submit(self, kind: str, request: Any, offset: int = -1) -> None:
        answer = self.coordinator.submit(request, V9)
        self.asked.append(Asked(kind, answer, self.journal.end_offset, offset))

    async def begin_again(self) -> None:
        """The old one is closed, and never answers for the partition again (G7)."""
        old = self.coordinator
        closing = asyncio.create_task(old.close())
        await self.turns()
        while not closing.done():
            await self.journal.finish_sync()
            await self.turns()
        self.coordinator = self._make()
        await self.coordinator.load()
        end = self.journal.end_offset
        assert old.submit(commit(offset=1), V9).value is Errors.NOT_COORDINATOR
        assert self.journal.end_offset == end

    async def calm(self) -> None:
        await self.turns()
        while self.journal.syncs:
            await self.journal.finish_sync()
            await self.turns()

    @staticmethod
    async def turns() -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    def look(self) -> None:
        durable = self.journal.synced_offset
        for asked in self.asked:
            if not asked.answer.done or asked.held_against:
                continue
            asked.held_against = True
            answer = asked.answer.value
            if answer is Errors.NOT_COORDINATOR:
                continue
            assert asked.end <= durable, "G6: told before it was durable"
            if asked.kind == "too large":
                assert answer is Errors.UNKNOWN_SERVER_ERROR
            elif asked.kind == "commit":
                self.told = max(self.told, asked.offset)
            elif isinstance(answer, OffsetFetchResponse):
                found = answer.groups[0].topics[0].partitions[0].committed_offset
                self.told = max(self.told, found)
        if self.coordinator.state != "active":
            return
        again = GroupShard()  # G1, G3: in memory is what the log says, cut or not.
        for header, batch in self.journal.read_back():
            for _, _, record in GROUP_SERDE.read(batch, header):
                again.replay(record)
        live = self.coordinator.core
        assert isinstance(live, GroupShard)
        assert all_offsets(live) == all_offsets(again)
        assert live.groups.keys() == again.groups.keys()
        for name, group in live.groups.items():
            if group.state is State.EMPTY:
                assert again.groups[name].generation == group.generation
        last = all_offsets(again).get(("g", "orders", 0))
        assert self.told <= (last.offset if last is not None else -1), "G3: an answer was taken back"


@settings(
    max_examples=LIVES or depth.examples(400),
    deadline=None,
    derandomize=not LIVES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.sampled_from(EVENTS), min_size=10, max_size=60))
def test_no_answer_is_taken_back(events: list[str]) -> None:
    """G3, G6, G7, G12: an answer is of what is durable, comes once, and stands."""

    async def main() -> None:
        await Play().play(events)

    asyncio.run(main())


def story(seed: int) -> str:
    """All that happened in a life drawn by this number: answers, records, timers, stories."""
    random = Random(seed)
    cast = Cast(group_initial_rebalance_delay_ms="1000")
    for _ in range(150):
        who = random.choice(["ann", "bob", "cas", "DAN", "EVE", "FAY"])
        if cast.group_or_none is None or who not in cast.ids:
            cast.join(who, protocols=random.choice([("range",), ("range", "sticky"), ("sticky", "range")]))
        else:
            what = random.choice(["join", "sync", "sync", "heartbeat", "commit", "anew", "wait", "restart"])
            if what == "wait":
                cast.advance(random.choice([500, 3000, 9000]))
            elif what == "restart" and random.random() < 0.2:
                cast.life.restart()
            elif what != "restart" and (who in cast.generations or what in ("join", "anew")):
                getattr(cast, what)(who)
    cast.ask("simple", commit_request(3, partitions=tuple(range(6))), 8)
    return repr(cast.life.transcript) + repr(ordered_state(cast.life.shard)) + repr(cast.life.log.batches)


def test_the_same_life_is_the_same_to_the_byte() -> None:
    """G10: the same events have the same trace, whatever order this process's sets have."""
    code = "from tests.runtime.test_invariants import story; import hashlib\n" + (
        "print(hashlib.sha256(''.join(story(seed) for seed in range(20)).encode()).hexdigest())"
    )
    told = outputs_of_processes(code, 1, 2, 77)
    assert len(told) == 1
