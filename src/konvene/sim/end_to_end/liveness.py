"""The end of a whole run: all is healed, and within bounded time everything is as it should be.

In this order: faults end and everybody is started again; each group becomes stable with all its members and
has read everything; then nothing may move for three session timeouts; then the clients leave, and nothing
of them may be left; last, the broker is stopped and started, and has what it had. The bounds are generous:
they tell what does not happen from what is slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.client.admin.admin import Admin
from konvene.client.consumer.classic_member import State as MemberState
from konvene.client.errors import ClientError
from konvene.client.membership.state_machine import MemberState as ShareMemberState
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.share.group import ShareGroup
from konvene.sim.end_to_end.broker import BROKER, PORT
from konvene.sim.end_to_end.history import connecting
from konvene.sim.end_to_end.invariants import ReadAtLeastOnce, Violation
from konvene.sim.end_to_end.share_clients import SHARES
from konvene.sim.end_to_end.share_invariants import unread
from konvene.sim.end_to_end.transactional_clients import TRANSACTS
from konvene.sim.machine.network import NetworkFaults

if TYPE_CHECKING:
    from konvene.sim.end_to_end.run import Whole

__all__ = ["LivenessPhase"]

QUIET_SESSIONS = 3
READERS = ("consume", TRANSACTS, SHARES)
"""The jobs of who is a member of a group."""


class LivenessPhase:
    """See the top of this file."""

    def __init__(self, run: Whole) -> None:
        self.run_ = run
        self.loop = run.loop
        t = run.timeouts
        self.bound_s = (3 * (t.rebalance_ms + t.session_ms) + 2 * t.api_ms) / 1000 + 60

    def __repr__(self) -> str:
        return f"<liveness phase, bound {self.bound_s:.0f} s>"

    async def run(self) -> None:
        self._heal()
        await self._until(self._broker_serves, "the broker serves")
        self._restart_clients()
        await self._until(self._all_settled, "every group is stable", self._what_is_not)
        await self._grow()
        await self._until(self._all_well, "every group is stable and has read everything", self._what_is_not)
        # The leader of a group may learn of new partitions only now, and that is a rebalance.
        await asyncio.sleep(2 * self.run_.timeouts.metadata_ms / 1000)
        await self._until(self._all_well, "every group is stable and has read everything", self._what_is_not)
        await self._stay_quiet()
        self.run_.check()
        self.run_.look_everywhere()
        self.run_.ask("liveness")
        await self._leave()
        self.run_.check()
        self.run_.ask("ended")
        await self._start_again()

    async def _until(
        self, is_so: Callable[[], bool], what: str, why_not: Callable[[], str] = lambda: ""
    ) -> None:
        until = self.loop.now + self.bound_s
        while not is_so():
            if self.loop.now > until:
                self.loop.halt(
                    Violation("Settles", f"not within {self.bound_s:.0f} s of calm: {what}; {why_not()}")
                )
            await asyncio.sleep(1.0)

    def _heal(self) -> None:
        run = self.run_
        run.faults_disabled = True
        self.loop.network.faults = NetworkFaults()
        self.loop.network.heal()
        run.host.disk.die_at = None
        run.chaos.mend_disk()
        for name in sorted(run.asleep):
            run.chaos.wake(name)
        if self.loop.note is not None:
            self.loop.note("fault", "all is healed")

    def _broker_serves(self) -> bool:
        host = self.run_.host
        if host.is_sick:
            host.kill()
        host.start()
        run = self.run_
        return host.ready and all(c.state == "active" for c in host.coordinators()) and not run.host.disk.dead

    def _restart_clients(self) -> None:
        for name, client in self.run_.clients.items():
            if client.spec.job in READERS:
                if client.leaving:
                    self.run_.kill_client(name)
                self.run_.start_client(name)

    async def _grow(self) -> None:
        """Each topic gets one more partition, which every leader has to see.

        A static member that dies between the two rebalances of a cooperative one comes back to an assignment
        in which a partition is nobody's, and a leader that was away has not seen what came meanwhile. Kafka
        leaves both as they are until the group rebalances for another reason, and so do we."""
        await self.loop.spawn("grower", self._add_partitions())
        self.loop.kill("grower")
        self.run_.history.gone("grower")

    async def _add_partitions(self) -> None:
        connect = connecting(self.run_.history, "grower", ClientSettings())
        wanted: dict[str, int] = {}
        until = self.loop.now + self.bound_s
        while True:
            try:
                async with Cluster([(BROKER, PORT)], connect=connect) as cluster:
                    admin = Admin(cluster)
                    for topic in await admin.describe_topics(self.run_.topics):
                        count = wanted.setdefault(topic.name, len(topic.partitions) + 1)
                        if len(topic.partitions) < count:
                            await admin.create_partitions(topic.name, count)
                return
            except ClientError:  # A broker that was told to stop before all was healed.
                if self.loop.now > until:
                    raise
                await asyncio.sleep(1.0)

    # --- is all well? ---

    def _group(self, name: str) -> ClassicGroup | None:
        for _, shard in self.run_.shards():
            group = shard.groups.get(name)
            if isinstance(group, ClassicGroup):
                return group
        return None

    def _is_settled(self, name: str) -> bool:
        group = self._group(name)
        if group is None or group.state is not State.STABLE:
            return False
        ours = set()
        for client in self.run_.clients.values():
            if client.spec.group == name:
                member = None if client.consumer is None else client.consumer.member
                if member is None or member.state is not MemberState.STABLE or member.rejoin:
                    return False
                ours.add(member.member_id)
        return ours == set(group.members)

    def _share_group(self, name: str) -> ShareGroup | None:
        for _, shard in self.run_.shards():
            group = shard.groups.get(name)
            if isinstance(group, ShareGroup):
                return group
        return None

    def _shares(self, name: str) -> bool:
        """Whether all members of a share group are in it, with all that they were meant to have."""
        group = self._share_group(name)
        if group is None or group.behind or group.epoch != group.assignment_epoch:
            return False
        ours = set()
        for client in self.run_.clients.values():
            if client.spec.group == name:
                member = None if client.sharer is None else client.sharer.member
                if member is None or member.state is not ShareMemberState.STABLE:
                    return False
                ours.add(member.member_id)
        return ours == set(group.members)

    def _sending(self) -> list[str]:
        return [
            name
            for name, client in self.run_.clients.items()
            if client.spec.job not in READERS
            and self.loop.is_up(name)
            and any(not task.done() for task in self.loop.host(name).tasks)
        ]

    def _unread(self) -> list[object]:
        self.run_.look_everywhere()
        return list(next(p for p in self.run_.invariants if isinstance(p, ReadAtLeastOnce)).missing())

    def _all_settled(self) -> bool:
        if not self._broker_serves() or not all(map(self._shares, self.run_.parameters.share.groups)):
            return False
        return all(self._is_settled(name) for name, _ in self.run_.groups())

    def _all_well(self) -> bool:
        if not self._all_settled() or self._sending() or self._unread():
            return False
        return not unread(self.run_)

    def _what_is_not(self) -> str:
        rows = [f"these still send: {self._sending()}"] if self._sending() else []
        for name, _ in self.run_.groups():
            if not self._is_settled(name):
                members = [c.consumer.member for c in self.run_.clients.values()
                           if c.spec.group == name and c.consumer is not None]  # fmt: skip
                rows.append(f"{name} is {self._group(name)}, its members {members}")
        for name in self.run_.parameters.share.groups:
            if not self._shares(name):
                sharers = [c.sharer and c.sharer.member for c in self.run_.clients.values()
                           if c.spec.group == name]  # fmt: skip
                rows.append(f"{name} is {self._share_group(name)}, its members {sharers}")
        return "; ".join([*rows, f"unread: {self._unread()[:3]} {unread(self.run_)[:3]}"])

    # --- it stays so ---

    async def _stay_quiet(self) -> None:
        run = self.run_
        before = self._generations()
        timed_out = run.history.timed_out
        began, began_s = time.perf_counter(), self.loop.now
        await asyncio.sleep(QUIET_SESSIONS * run.timeouts.session_ms / 1000)
        run.idle_s, run.idle_wall_s = self.loop.now - began_s, time.perf_counter() - began
        after = self._generations()
        if before != after:
            self.loop.halt(Violation("StaysQuiet", f"generations went from {before} to {after} in the calm"))
        if run.history.timed_out != timed_out:
            self.loop.halt(Violation("StaysQuiet", "a request was not answered in the calm"))

    def _generations(self) -> dict[str, int]:
        """Of classic groups; of share groups the epoch."""
        found = {}
        for name, _ in self.run_.groups():
            group = self._group(name)
            found[name] = -1 if group is None else group.generation
        for name in self.run_.parameters.share.groups:
            sharing = self._share_group(name)
            found[name] = -1 if sharing is None else sharing.epoch
        return found

    # --- and ends ---

    async def _leave(self) -> None:
        for client in self.run_.clients.values():
            client.leaving = True
        await self._until(self._all_left, "every client has left")
        for name in self.run_.clients:
            if self.loop.is_up(name):
                self.run_.kill_client(name)
        # Static members have their session; what a client that went dark left open, its idle time.
        idle_s = int(self.run_.parameters.settings["connections.max.idle.ms"]) / 1000
        began, began_s = time.perf_counter(), self.loop.now
        await asyncio.sleep(max(2 * self.run_.timeouts.session_ms / 1000 + 5, idle_s + 25))
        self.run_.empty_s, self.run_.empty_wall_s = self.loop.now - began_s, time.perf_counter() - began

    def _all_left(self) -> bool:
        return not any(self.loop.host(n).unfinished() for n in self.run_.clients if self.loop.is_up(n))

    async def _start_again(self) -> None:
        host = self.run_.host
        life = host.lives
        host.stop()
        await self._until(lambda: host.lives > life and self._broker_serves(), "the broker starts again")
        self.run_.check()
