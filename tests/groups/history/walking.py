"""Members of streams groups that act at random, on the coordinator itself: its log, and the rebalances that
it reported. The rebalances inferred from the log have to equal the reported ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.groups.history.logs import Batch, Entry

from konvene.codec.uuid import Uuid
from konvene.messages.streams_group_heartbeat import KeyValue, StreamsGroupHeartbeatRequest, TaskOffset
from konvene.records.audit import RebalanceValue
from konvene.shard.image import Topic, Topics
from konvene.sim.transcript.sandbox import Sandbox
from konvene.sim.transcript.streams_commands import topology_of
from konvene.sim.world.event import Event

STATELESS, COUNTS = "0:orders", "0:orders>words|1:<words/4!counts"
"""The second topology needs internal topics."""
SUMS = "0:orders!sums"
NEXT = {STATELESS: SUMS, SUMS: STATELESS, COUNTS: "0:orders>words|1:<words/4"}
"""The next topology of each topology."""

OFTEN_ENOUGH_MS = 5_000
BEHIND = (0, 20_000, 45_000)
"""Possible lags of a task's copies, of 50,000 records."""
DEPARTURES = ("member-left", "session-expired", "rebalance-timeout", "removed-by-admin")


@dataclass(slots=True)
class Walker:
    """One member and the state that it knows."""

    name: str
    group: str
    topology: str
    topology_epoch: int = 0
    instance: str | None = None
    process: str = ""
    rack: str | None = None
    tags: tuple[KeyValue, ...] = ()
    member_id: str = ""
    epoch: int = 0
    owned: dict[str, Any] = field(default_factory=dict)
    is_stubborn: bool = False
    """Whether it keeps tasks that it has to revoke."""


class Walk:
    """Some groups with their members, and the coordinator's log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = {
            "group.streams.initial.rebalance.delay.ms": self.random.choice(("0", "0", "3000")),
            "group.streams.assignment.interval.ms": self.random.choice(("0", "1000")),
            "group.streams.num.standby.replicas": self.random.choice(("0", "1")),
            "konvene.streams.mode": self.random.choice(("kafka", "kip")),
        }
        self.log: list[Batch] = []
        self.offset = 0
        self.life: Sandbox
        self.life = Sandbox(settings, kinds=("streams",), watch=self._watch)
        self.sizes = {"orders": 3}
        self._topics()
        self.walkers: list[Walker] = []
        self.topology = {"g0": (STATELESS, 0), "g1": (COUNTS, 0), "g2": (SUMS, 0)}
        self.count = 0

    @property
    def reported(self) -> list[tuple[str, RebalanceValue]]:
        return [(rebalance.group_id, rebalance.value) for rebalance in self.life.why]

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(STEPS)(self)
            self.life.advance(self.random.choice((0, 7, 900)))

    def _watch(self, event: Event) -> None:
        """Record an appended batch."""
        if event.batch is None:
            return
        now, first = self.life.now_ms, self.offset
        entries = tuple(Entry(first + i, now, r.key, r) for i, r in enumerate(event.batch.records))
        self.offset += len(entries)
        self.log.append(Batch(first, self.offset - 1, entries))

    def _topics(self) -> None:
        known = [Topic(name, Uuid(name.encode().ljust(16, b"-")), size) for name, size in self.sizes.items()]
        self.life.topics = Topics(known, self.life.topics.version + 1)

    # --- what members do ---

    def _heartbeat_with(self, walker: Walker, epoch: int, **more: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=walker.group, member_id=walker.member_id, member_epoch=epoch,
            instance_id=walker.instance, **more,
        )  # fmt: skip
        response: Any = self.life.ask(walker.name, request, 1)
        if response is None or epoch < 0:
            return response
        if response.error_code:
            walker.epoch, walker.owned = 0, {}
            return response
        walker.epoch = response.member_epoch
        for role in ("active_tasks", "standby_tasks", "warmup_tasks"):
            if getattr(response, role) is not None and not walker.is_stubborn:
                walker.owned[role] = getattr(response, role)
        return response

    def _beat(self, walker: Walker) -> None:
        if walker.epoch <= 0:
            self._heartbeat_with(walker, 0, **self.introduction(walker))
        else:
            self._heartbeat_with(walker, walker.epoch, **walker.owned)

    def introduction(self, walker: Walker) -> dict[str, Any]:
        """Return the fields of a joining member's heartbeat."""
        walker.owned = {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
        return walker.owned | {
            "rebalance_timeout_ms": 20_000, "process_id": walker.process, "rack_id": walker.rack,
            "topology": topology_of(walker.topology, walker.topology_epoch),
            "client_tags": walker.tags, "task_offsets": (),
        }  # fmt: skip

    def _any(self) -> Walker | None:
        return self.random.choice(self.walkers) if self.walkers else None

    def join(self) -> None:
        if len(self.walkers) == 6:
            return
        self.count += 1
        group = self.random.choice(sorted(self.topology))
        instance = self.random.choice((None, None, f"i{self.count}"))
        process = self.random.choice((f"p{self.count}", "p"))
        walker = Walker(f"w{self.count}", group, *self.topology[group], instance, process)
        walker.member_id = self.life.own_id(walker.name)
        self.walkers.append(walker)
        self._beat(walker)

    def beat(self) -> None:
        """Let every member heartbeat in turn."""
        for walker in self.walkers:
            self._beat(walker)

    def leave(self) -> None:
        if walker := self._any():
            self._heartbeat_with(walker, -1)
            self.walkers.remove(walker)

    def die(self) -> None:
        """Stop a member without leaving; the others heartbeat until its session expires."""
        if walker := self._any():
            self.walkers.remove(walker)
            for _ in range(10):
                self.life.advance(OFTEN_ENOUGH_MS)
                self.beat()

    def resist(self) -> None:
        """Let a member keep revoked tasks, perhaps until its rebalance timeout."""
        if walker := self._any():
            walker.is_stubborn = True
            for _ in range(self.random.choice((1, 6))):
                self.life.advance(OFTEN_ENOUGH_MS)
                self.beat()
            walker.is_stubborn, walker.owned = False, {}

    def away(self) -> None:
        """Let a static member leave temporarily and come back under another member id, perhaps on another
        process."""
        walker = self._any()
        if walker is None or walker.instance is None or walker.epoch <= 0:
            return
        self._heartbeat_with(walker, -2)
        if self.random.random() < 0.5:
            self.beat_others(walker)
        walker.member_id, walker.epoch = self.life.own_id(walker.name), 0
        if self.random.random() < 0.3:
            walker.process += "'"
        self._beat(walker)

    def beat_others(self, excluded: Walker) -> None:
        for walker in self.walkers:
            if walker is not excluded:
                self._beat(walker)

    def change_rack(self) -> None:
        """Change a member's rack and tags."""
        if walker := self._any():
            walker.rack = self.random.choice(("a", "b"))
            walker.tags = (KeyValue(key="zone", value=self.random.choice("xy")),)
            if walker.epoch > 0:
                self._heartbeat_with(walker, walker.epoch, rack_id=walker.rack, client_tags=walker.tags)

    def report(self) -> None:
        """Let all members report offsets; warm-ups may have caught up."""
        for walker in self.walkers:
            if walker.epoch <= 0:
                continue
            tasks = [
                (each.subtopology_id, p) for role in walker.owned for each in walker.owned[role]
                for p in each.partitions
            ]  # fmt: skip
            self._heartbeat_with(
                walker, walker.epoch, **walker.owned,
                task_offsets=tuple(offset(*task, self.random.choice(BEHIND)) for task in tasks),
                task_end_offsets=tuple(offset(*task, 50_000) for task in tasks),
            )  # fmt: skip

    def update(self) -> None:
        """Give one member the application's next topology; later updates use the same one."""
        walker = self._any()
        if walker is None or self.life.settings["konvene.streams.mode"] != "kip":
            return
        text, epoch = self.topology[walker.group]
        if walker.topology_epoch == epoch:
            self.topology[walker.group] = NEXT.get(text, COUNTS), epoch + 1
        walker.topology, walker.topology_epoch = self.topology[walker.group]
        walker.epoch = 0
        self._beat(walker)

    # --- topics and settings ---

    def grow(self) -> None:
        self.sizes["orders"] = self.sizes.get("orders", 2) + 1
        self._topics()

    def make(self) -> None:
        """Create the topics that the second group needs, sometimes with a wrong partition count."""
        self.sizes |= {"words": 4, "counts": self.random.choice((4, 4, 4, 3)), "orders": 4, "sums": 4}
        self._topics()

    def delete(self) -> None:
        self.sizes.pop(self.random.choice(("orders", "words")), None)
        self._topics()

    def set_standbys(self) -> None:
        self.life.set_config(("group.streams.num.standby.replicas", self.random.choice("012")))


STEPS = (
    Walk.join, Walk.join, Walk.join, Walk.beat, Walk.beat, Walk.beat, Walk.beat, Walk.beat, Walk.beat,
    Walk.leave, Walk.die, Walk.resist, Walk.away, Walk.change_rack, Walk.grow, Walk.make, Walk.make,
    Walk.delete, Walk.set_standbys, Walk.report, Walk.report, Walk.report, Walk.report, Walk.update,
)  # fmt: skip
"""The possible events, as often as they are likely."""


def offset(subtopology: str, partition: int, at: int) -> TaskOffset:
    return TaskOffset(subtopology_id=subtopology, partition=partition, offset=at)


def comparable(rows: list[tuple[str, RebalanceValue]]) -> list[Any]:
    """Return the comparable part of rows: without details that a log lacks (how a member left, the assignor,
    its position), and which of several members caught up with a task."""
    found = []
    for group, row in rows:
        causes = [
            (c.kind, None, None, c.at_ms)
            if c.kind == "warmup-caught-up"
            else ("member-gone" if c.kind in DEPARTURES else c.kind, c.member_id, c.client_id, c.at_ms)
            for c in row.causes
        ]
        causes = (
            list(dict.fromkeys(causes)) if all(kind == "warmup-caught-up" for kind, *_ in causes) else causes
        )
        members = sorted((m.member_id, m.instance_id, m.joined_ms) for m in row.members)
        found.append(
            (group, row.epoch, row.state, causes, members, row.moved, row.started_ms, row.joined_ms,
             row.ended_ms)
        )  # fmt: skip
    return found
