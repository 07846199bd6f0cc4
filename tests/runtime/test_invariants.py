"""Coordinator invariants under journal faults: G3, G6, G7, G12, and the determinism of the core (G10).

Random requests run against a journal whose syncs complete late or fail; appends fail, outcomes are too
large, power is cut, coordinators are closed and restarted. After every event the test checks that no response
reveals a record that a power cut could lose, and that the state in memory equals the state replayed from the
log. At the end every request has been answered.

`KONVENE_PROMISES=2000` runs that many random event sequences, different ones each time.
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

EXAMPLES = int(os.environ.get("KONVENE_PROMISES", "0"))
EVENTS = (
    "commit", "commit", "commit", "fetch", "fetch", "join", "leave", "too large", "sync", "sync", "sync",
    "append fails", "sync fails", "sync fails and power is cut", "close and restart",
)  # fmt: skip


class SubmittedRequest:
    """A submitted request: its response, and the end offset of the log when it was handled."""

    def __init__(self, kind: str, response: Any, end_offset: int, offset: int = -1) -> None:
        self.kind, self.response, self.end_offset, self.offset = kind, response, end_offset, offset
        self.checked = False


class Scenario:
    """A coordinator on an in-memory journal, and all requests submitted to it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.coordinator = self._create_coordinator()
        self.requests: list[SubmittedRequest] = []
        self.offset = 0
        self.highest_reported = -1
        """Highest offset that a response reported as committed; each commit uses a higher one."""

    def _create_coordinator(self) -> Coordinator:
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

    async def run(self, events: list[str]) -> None:
        await self.coordinator.load()
        for event in events:
            await self.apply(event)
            await self.run_pending_callbacks()
            self.check_invariants()
        await self.complete_syncs()
        await self.coordinator.close()
        assert all(request.response.done for request in self.requests)  # G12

    async def apply(self, event: str) -> None:
        if event == "commit":
            self.offset += 1
            self.submit("commit", commit(offset=self.offset), self.offset)
        elif event == "fetch":
            self.submit("fetch", fetch_request())
        elif event == "join":
            self.submit("join", join_request(instance_id=f"i{self.offset % 3}").replace(group_id="j"))
        elif event == "leave":
            member = MemberIdentity(group_instance_id=f"i{self.offset % 3}")
            self.submit("leave", LeaveGroupRequest(group_id="j", members=(member,)))
        elif event == "too large":
            self.submit("too large", commit(partitions=101, offset=10_000))
        elif event == "append fails":
            self.journal.fail_append = OSError("no space left on device")
            self.offset += 1
            self.submit("commit", commit(offset=self.offset), self.offset)
            self.journal.fail_append = None
        elif event == "close and restart":
            await self.restart()
        elif self.journal.syncs:
            if event == "sync":
                await self.journal.finish_sync()
            else:
                if event == "sync fails and power is cut":
                    self.journal.cut(self.journal.synced_offset)
                await self.journal.finish_sync(OSError("input/output error"))

    def submit(self, kind: str, request: Any, offset: int = -1) -> None:
        response = self.coordinator.submit(request, V9)
        self.requests.append(SubmittedRequest(kind, response, self.journal.end_offset, offset))

    async def restart(self) -> None:
        """Close the coordinator and load a new one; the old one never serves the partition again (G7)."""
        old = self.coordinator
        closing = asyncio.create_task(old.close())
        await self.run_pending_callbacks()
        while not closing.done():
            await self.journal.finish_sync()
            await self.run_pending_callbacks()
        self.coordinator = self._create_coordinator()
        await self.coordinator.load()
        end = self.journal.end_offset
        assert old.submit(commit(offset=1), V9).value is Errors.NOT_COORDINATOR
        assert self.journal.end_offset == end

    async def complete_syncs(self) -> None:
        await self.run_pending_callbacks()
        while self.journal.syncs:
            await self.journal.finish_sync()
            await self.run_pending_callbacks()

    @staticmethod
    async def run_pending_callbacks() -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    def check_invariants(self) -> None:
        durable = self.journal.synced_offset
        for request in self.requests:
            if not request.response.done or request.checked:
                continue
            request.checked = True
            response = request.response.value
            if response is Errors.NOT_COORDINATOR:
                continue
            assert request.end_offset <= durable, "G6: response sent before its records were durable"
            if request.kind == "too large":
                assert response is Errors.UNKNOWN_SERVER_ERROR
            elif request.kind == "commit":
                self.highest_reported = max(self.highest_reported, request.offset)
            elif isinstance(response, OffsetFetchResponse):
                committed_offset = response.groups[0].topics[0].partitions[0].committed_offset
                self.highest_reported = max(self.highest_reported, committed_offset)
        if self.coordinator.state != "active":
            return
        replayed = GroupShard()  # G1, G3: the state in memory equals the replayed log, truncated or not.
        for header, batch in self.journal.read_back():
            for _, _, record in GROUP_SERDE.read(batch, header):
                replayed.replay(record)
        live = self.coordinator.core
        assert isinstance(live, GroupShard)
        assert all_offsets(live) == all_offsets(replayed)
        assert live.groups.keys() == replayed.groups.keys()
        for name, group in live.groups.items():
            if group.state is State.EMPTY:
                assert replayed.groups[name].generation == group.generation
        last = all_offsets(replayed).get(("g", "orders", 0))
        assert self.highest_reported <= (last.offset if last is not None else -1), (
            "G3: a reported commit was lost"
        )


@settings(
    max_examples=EXAMPLES or depth.examples(depth.times(200, soaked=400)),
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.sampled_from(EVENTS), min_size=10, max_size=60))
def test_acknowledged_commits_are_never_lost(events: list[str]) -> None:
    """G3, G6, G7, G12: a response reports durable state only, and every request is answered once."""

    async def main() -> None:
        await Scenario().run(events)

    asyncio.run(main())


def trace(seed: int) -> str:
    """Return the trace of a random run with this seed: responses, records, timers and rebalance traces."""
    random = Random(seed)
    cast = Cast(group_initial_rebalance_delay_ms="1000")
    for _ in range(150):
        member = random.choice(["ann", "bob", "cas", "DAN", "EVE", "FAY"])
        if cast.group_or_none is None or member not in cast.ids:
            cast.join(member, protocols=random.choice([("range",), ("range", "sticky"), ("sticky", "range")]))
        else:
            action = random.choice(["join", "sync", "sync", "heartbeat", "commit", "anew", "wait", "restart"])
            if action == "wait":
                cast.advance(random.choice([500, 3000, 9000]))
            elif action == "restart" and random.random() < 0.2:
                cast.life.restart()
            elif action != "restart" and (member in cast.generations or action in ("join", "anew")):
                getattr(cast, action)(member)
    cast.ask("simple", commit_request(3, partitions=tuple(range(6))), 8)
    return repr(cast.life.transcript) + repr(ordered_state(cast.life.shard)) + repr(cast.life.log.batches)


def test_the_same_seed_gives_the_same_trace() -> None:
    """G10: the same events give the same trace in processes with different hash seeds."""
    code = "from tests.runtime.test_invariants import trace; import hashlib\n" + (
        "print(hashlib.sha256(''.join(trace(seed) for seed in range(20)).encode()).hexdigest())"
    )
    digests = outputs_of_processes(code, 1, 2, 77)
    assert len(digests) == 1
