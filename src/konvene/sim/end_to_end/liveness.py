"""Liveness phase of an end-to-end run: faults end, and the groups must become stable in bounded time.

The steps: all faults end and stopped clients start again; each group becomes stable with all members and
reads all records; nothing moves for three session timeouts; the clients leave, and no state of them remains;
the broker restarts with the same state. The bounds are generous, to distinguish slow progress from none."""

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
from konvene.sim.end_to_end.history import recording_connector
from konvene.sim.end_to_end.invariants import ReadAtLeastOnce, Violation
from konvene.sim.end_to_end.share_clients import SHARES
from konvene.sim.end_to_end.share_invariants import unread
from konvene.sim.end_to_end.transactional_clients import TRANSACTS
from konvene.sim.machine.network import NetworkFaults

if TYPE_CHECKING:
    from konvene.sim.end_to_end.run import EndToEndRun

__all__ = ["LivenessPhase"]

QUIET_SESSIONS = 3
READERS = ("consume", TRANSACTS, SHARES)
"""The jobs of clients that are members of a group."""


class LivenessPhase:
    """Runs the liveness phase of a run, and raises a violation if a step does not end in time."""

    def __init__(self, run: EndToEndRun) -> None:
        self.run_ = run
        self.loop = run.loop
        t = run.timeouts
        self.bound_s = (3 * (t.rebalance_ms + t.session_ms) + 2 * t.api_ms) / 1000 + 60

    def __repr__(self) -> str:
        return f"<liveness phase, bound {self.bound_s:.0f} s>"

    async def run(self) -> None:
        self._end_faults()
        await self._until(self._broker_serves, "the broker serves")
        self._restart_clients()
        await self._until(self._all_stable, "every group is stable", self._explain_unfinished)
        await self._grow()
        await self._until(
            self._all_finished, "every group is stable and has read everything", self._explain_unfinished
        )
        # The leader of a group may learn of new partitions only now, and that is a rebalance.
        await asyncio.sleep(2 * self.run_.timeouts.metadata_ms / 1000)
        await self._until(
            self._all_finished, "every group is stable and has read everything", self._explain_unfinished
        )
        await self._check_quiet()
        self.run_.check()
        self.run_.read_all_logs()
        self.run_.notify("liveness")
        await self._leave()
        self.run_.check()
        self.run_.notify("ended")
        await self._restart_broker()

    async def _until(
        self, condition: Callable[[], bool], what: str, explain: Callable[[], str] = lambda: ""
    ) -> None:
        deadline_s = self.loop.now + self.bound_s
        while not condition():
            if self.loop.now > deadline_s:
                self.loop.halt(
                    Violation(
                        "Settles", f"not within {self.bound_s:.0f} s without faults: {what}; {explain()}"
                    )
                )
            await asyncio.sleep(1.0)

    def _end_faults(self) -> None:
        run = self.run_
        run.faults_disabled = True
        self.loop.network.faults = NetworkFaults()
        self.loop.network.heal()
        run.host.disk.die_at = None
        run.chaos.repair_disk()
        for name in sorted(run.paused_since):
            run.chaos.end_pause(name)
        if self.loop.note is not None:
            self.loop.note("fault", "all faults end")

    def _broker_serves(self) -> bool:
        host = self.run_.host
        if host.disk_is_offline:
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
        """Add a partition to each topic, so that every group has to rebalance.

        Without that, two states may last until the next rebalance, in Kafka as in konvene: a static member
        that died between the two rebalances of a cooperative one returns to an assignment in which a
        partition has no owner; and the leader of a group has missed metadata changes while it was away."""
        await self.loop.spawn("grower", self._add_partitions())
        self.loop.kill("grower")
        self.run_.history.client_died("grower")

    async def _add_partitions(self) -> None:
        connect = recording_connector(self.run_.history, "grower", ClientSettings())
        target_counts: dict[str, int] = {}
        deadline_s = self.loop.now + self.bound_s
        while True:
            try:
                async with Cluster([(BROKER, PORT)], connect=connect) as cluster:
                    admin = Admin(cluster)
                    for topic in await admin.describe_topics(self.run_.topics):
                        count = target_counts.setdefault(topic.name, len(topic.partitions) + 1)
                        if len(topic.partitions) < count:
                            await admin.create_partitions(topic.name, count)
                return
            except ClientError:  # The broker may have begun a shutdown before the faults ended.
                if self.loop.now > deadline_s:
                    raise
                await asyncio.sleep(1.0)

    # --- conditions ---

    def _group(self, name: str) -> ClassicGroup | None:
        for _, shard in self.run_.shards():
            group = shard.groups.get(name)
            if isinstance(group, ClassicGroup):
                return group
        return None

    def _group_is_stable(self, name: str) -> bool:
        group = self._group(name)
        if group is None or group.state is not State.STABLE:
            return False
        member_ids = set()
        for client in self.run_.clients.values():
            if client.spec.group == name:
                member = None if client.consumer is None else client.consumer.member
                if member is None or member.state is not MemberState.STABLE or member.rejoin:
                    return False
                member_ids.add(member.member_id)
        return member_ids == set(group.members)

    def _share_group(self, name: str) -> ShareGroup | None:
        for _, shard in self.run_.shards():
            group = shard.groups.get(name)
            if isinstance(group, ShareGroup):
                return group
        return None

    def _share_group_is_stable(self, name: str) -> bool:
        """Return True if the share group has exactly its clients of this run as members, and all of them have
        received their current assignment."""
        group = self._share_group(name)
        if group is None or group.behind or group.epoch != group.assignment_epoch:
            return False
        member_ids = set()
        for client in self.run_.clients.values():
            if client.spec.group == name:
                member = None if client.sharer is None else client.sharer.member
                if member is None or member.state is not ShareMemberState.STABLE:
                    return False
                member_ids.add(member.member_id)
        return member_ids == set(group.members)

    def _sending(self) -> list[str]:
        return [
            name
            for name, client in self.run_.clients.items()
            if client.spec.job not in READERS
            and self.loop.is_up(name)
            and any(not task.done() for task in self.loop.host(name).tasks)
        ]

    def _unread(self) -> list[object]:
        self.run_.read_all_logs()
        return list(next(p for p in self.run_.invariants if isinstance(p, ReadAtLeastOnce)).missing())

    def _all_stable(self) -> bool:
        if not self._broker_serves() or not all(
            map(self._share_group_is_stable, self.run_.parameters.share.groups)
        ):
            return False
        return all(self._group_is_stable(name) for name, _ in self.run_.groups())

    def _all_finished(self) -> bool:
        if not self._all_stable() or self._sending() or self._unread():
            return False
        return not unread(self.run_)

    def _explain_unfinished(self) -> str:
        rows = [f"still sending: {self._sending()}"] if self._sending() else []
        for name, _ in self.run_.groups():
            if not self._group_is_stable(name):
                members = [c.consumer.member for c in self.run_.clients.values()
                           if c.spec.group == name and c.consumer is not None]  # fmt: skip
                rows.append(f"{name} is {self._group(name)}, its members {members}")
        for name in self.run_.parameters.share.groups:
            if not self._share_group_is_stable(name):
                sharers = [c.sharer and c.sharer.member for c in self.run_.clients.values()
                           if c.spec.group == name]  # fmt: skip
                rows.append(f"{name} is {self._share_group(name)}, its members {sharers}")
        return "; ".join([*rows, f"unread: {self._unread()[:3]} {unread(self.run_)[:3]}"])

    # --- stability ---

    async def _check_quiet(self) -> None:
        run = self.run_
        before = self._generations()
        timed_out = run.history.timed_out
        began, began_s = time.perf_counter(), self.loop.now
        await asyncio.sleep(QUIET_SESSIONS * run.timeouts.session_ms / 1000)
        run.idle_s, run.idle_wall_s = self.loop.now - began_s, time.perf_counter() - began
        after = self._generations()
        if before != after:
            self.loop.halt(
                Violation("StaysQuiet", f"generations changed from {before} to {after} without faults")
            )
        if run.history.timed_out != timed_out:
            self.loop.halt(Violation("StaysQuiet", "a request timed out without faults"))

    def _generations(self) -> dict[str, int]:
        """Return the generation of each classic group and the epoch of each share group by name; -1 for a
        group that does not exist."""
        found = {}
        for name, _ in self.run_.groups():
            group = self._group(name)
            found[name] = -1 if group is None else group.generation
        for name in self.run_.parameters.share.groups:
            sharing = self._share_group(name)
            found[name] = -1 if sharing is None else sharing.epoch
        return found

    # --- shutdown ---

    async def _leave(self) -> None:
        for client in self.run_.clients.values():
            client.leaving = True
        await self._until(self._all_left, "every client has left")
        for name in self.run_.clients:
            if self.loop.is_up(name):
                self.run_.kill_client(name)
        # Static members last for their session; connections of a powered-off client for the idle time.
        idle_s = int(self.run_.parameters.settings["connections.max.idle.ms"]) / 1000
        began, began_s = time.perf_counter(), self.loop.now
        await asyncio.sleep(max(2 * self.run_.timeouts.session_ms / 1000 + 5, idle_s + 25))
        self.run_.empty_s, self.run_.empty_wall_s = self.loop.now - began_s, time.perf_counter() - began

    def _all_left(self) -> bool:
        return not any(self.loop.host(n).unfinished() for n in self.run_.clients if self.loop.is_up(n))

    async def _restart_broker(self) -> None:
        host = self.run_.host
        life = host.lives
        host.stop()
        await self._until(lambda: host.lives > life and self._broker_serves(), "the broker restarts")
        self.run_.check()
