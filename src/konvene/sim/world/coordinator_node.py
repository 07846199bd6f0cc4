"""Base class of the world's other coordinators (transactions, share state): their log, disk and failover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from konvene.sim.journal import Log
from konvene.sim.runtime import ShardRuntime

if TYPE_CHECKING:
    from konvene.sim.world.world import World

R = TypeVar("R", bound=ShardRuntime[Any, Any])


class CoordinatorNode(Generic[R]):
    """Base class of a simulated node with one such coordinator.

    The node syncs the coordinator's log after a delay, and replaces the coordinator when it is killed."""

    log_name = ""
    """Name of the log in the world's trace."""
    log: Log
    runtime: R

    def __init__(self, world: World) -> None:
        self.world = world

    def new_runtime(self) -> R:
        """Return a runtime that has not loaded the log yet."""
        raise NotImplementedError

    def start_sync(self) -> None:
        """Start a sync of the log if responses wait for one. It completes, or fails, after a delay."""
        runtime, world = self.runtime, self.world
        if runtime.sync_pending and not runtime.disk_busy:
            runtime.disk_busy = True
            world.event_queue.after(world.latency_ms("sync.ms"), self._synced, runtime)

    def _synced(self, runtime: R) -> None:
        runtime.disk_busy = False
        if runtime is not self.runtime:
            return
        fails = self.world.conditions["sync.fails"]
        if fails and self.world.random.random() < fails:
            self.world.log_event("disk", f"fails to sync {self.log_name}", None)
            runtime.fail_sync()
        else:
            runtime.complete_sync()

    def fail_over(self) -> None:
        """Kill the coordinator and start another; none, some or all batches that are not durable are lost."""
        random, old = self.world.random, self.runtime
        old.die()
        pending, least = len(self.log.batches) - self.log.durable, self.retained_batches()
        lost = self.log.lose_tail(random.choice([least, pending, random.randint(least, pending)]))
        self.runtime = new = self.new_runtime()
        new.ended, new.lost = old.ended, old.lost + lost
        new.load()

    def retained_batches(self) -> int:
        """Return how many of the batches that are not durable survive every failover: 0 by default."""
        return 0
