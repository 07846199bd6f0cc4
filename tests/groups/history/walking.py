"""Members of streams groups who do what comes to their minds, on the coordinator itself: its log, and what it
told live of each rebalance. What is inferred from the one has to be the other."""

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
"""The second one needs topics that somebody has to make."""
SUMS = "0:orders!sums"
NEXT = {STATELESS: SUMS, SUMS: STATELESS, COUNTS: "0:orders>words|1:<words/4"}
"""What applications are changed to."""

OFTEN_ENOUGH_MS = 5_000
BEHIND = (0, 20_000, 45_000)
"""How far copies of a task may be, of 50,000."""
GONE = ("member-left", "session-expired", "rebalance-timeout", "removed-by-admin")


@dataclass(slots=True)
class Walker:
    """One member, as it knows itself."""

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
    """Whether it keeps what it is to give up."""


class Walk:
    """Some groups, members of them, and what is written down."""

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
    def told(self) -> list[tuple[str, RebalanceValue]]:
        return [(told.group_id, told.value) for told in self.life.why]

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(STEPS)(self)
            self.life.advance(self.random.choice((0, 7, 900)))

    def _watch(self, event: Event) -> None:
        """A batch was appended."""
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

    def _say(self, walker: Walker, epoch: int, **more: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=walker.group, member_id=walker.member_id, member_epoch=epoch,
            instance_id=walker.instance, **more,
        )  # fmt: skip
        answer: Any = self.life.ask(walker.name, request, 1)
        if answer is None or epoch < 0:
            return answer
        if answer.error_code:
            walker.epoch, walker.owned = 0, {}
            return answer
        walker.epoch = answer.member_epoch
        for role in ("active_tasks", "standby_tasks", "warmup_tasks"):
            if getattr(answer, role) is not None and not walker.is_stubborn:
                walker.owned[role] = getattr(answer, role)
        return answer

    def _beat(self, walker: Walker) -> None:
        if walker.epoch <= 0:
            self._say(walker, 0, **self.introduction(walker))
        else:
            self._say(walker, walker.epoch, **walker.owned)

    def introduction(self, walker: Walker) -> dict[str, Any]:
        """What who joins says."""
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
        """All of them, each in its turn."""
        for walker in self.walkers:
            self._beat(walker)

    def leave(self) -> None:
        if walker := self._any():
            self._say(walker, -1)
            self.walkers.remove(walker)

    def die(self) -> None:
        """Nobody hears of it again; the others are heard of until its time is over."""
        if walker := self._any():
            self.walkers.remove(walker)
            for _ in range(10):
                self.life.advance(OFTEN_ENOUGH_MS)
                self.beat()

    def resist(self) -> None:
        """One keeps what it has, perhaps for so long that it is given up."""
        if walker := self._any():
            walker.is_stubborn = True
            for _ in range(self.random.choice((1, 6))):
                self.life.advance(OFTEN_ENOUGH_MS)
                self.beat()
            walker.is_stubborn, walker.owned = False, {}

    def away(self) -> None:
        """A static member leaves for a while, and comes back under another id, perhaps on another machine."""
        walker = self._any()
        if walker is None or walker.instance is None or walker.epoch <= 0:
            return
        self._say(walker, -2)
        if self.random.random() < 0.5:
            self.beat_others(walker)
        walker.member_id, walker.epoch = self.life.own_id(walker.name), 0
        if self.random.random() < 0.3:
            walker.process += "'"
        self._beat(walker)

    def beat_others(self, but: Walker) -> None:
        for walker in self.walkers:
            if walker is not but:
                self._beat(walker)

    def move_house(self) -> None:
        """It says otherwise of itself, and of its instance id nothing."""
        if walker := self._any():
            walker.rack = self.random.choice(("a", "b"))
            walker.tags = (KeyValue(key="zone", value=self.random.choice("xy")),)
            if walker.epoch > 0:
                self._say(walker, walker.epoch, rack_id=walker.rack, client_tags=walker.tags)

    def report(self) -> None:
        """All say how far what they have is; what warms up may have caught up."""
        for walker in self.walkers:
            if walker.epoch <= 0:
                continue
            told = [
                (each.subtopology_id, p) for role in walker.owned for each in walker.owned[role]
                for p in each.partitions
            ]  # fmt: skip
            self._say(
                walker, walker.epoch, **walker.owned,
                task_offsets=tuple(offset(*task, self.random.choice(BEHIND)) for task in told),
                task_end_offsets=tuple(offset(*task, 50_000) for task in told),
            )  # fmt: skip

    def update(self) -> None:
        """One comes with the application's next topology, and whoever comes after it with the same one."""
        walker = self._any()
        if walker is None or self.life.settings["konvene.streams.mode"] != "kip":
            return
        text, epoch = self.topology[walker.group]
        if walker.topology_epoch == epoch:
            self.topology[walker.group] = NEXT.get(text, COUNTS), epoch + 1
        walker.topology, walker.topology_epoch = self.topology[walker.group]
        walker.epoch = 0
        self._beat(walker)

    # --- what happens around them ---

    def grow(self) -> None:
        self.sizes["orders"] = self.sizes.get("orders", 2) + 1
        self._topics()

    def make(self) -> None:
        """The topics that the second group needs, as it needs them, or not."""
        self.sizes |= {"words": 4, "counts": self.random.choice((4, 4, 4, 3)), "orders": 4, "sums": 4}
        self._topics()

    def delete(self) -> None:
        self.sizes.pop(self.random.choice(("orders", "words")), None)
        self._topics()

    def set_standbys(self) -> None:
        self.life.set_config(("group.streams.num.standby.replicas", self.random.choice("012")))


STEPS = (
    Walk.join, Walk.join, Walk.join, Walk.beat, Walk.beat, Walk.beat, Walk.beat, Walk.beat, Walk.beat,
    Walk.leave, Walk.die, Walk.resist, Walk.away, Walk.move_house, Walk.grow, Walk.make, Walk.make,
    Walk.delete, Walk.set_standbys, Walk.report, Walk.report, Walk.report, Walk.report, Walk.update,
)  # fmt: skip
"""What may happen next, as often as it stands here."""


def offset(subtopology: str, partition: int, at: int) -> TaskOffset:
    return TaskOffset(subtopology_id=subtopology, partition=partition, offset=at)


def plain(told: list[tuple[str, RebalanceValue]]) -> list[Any]:
    """What a row says, but for what a log does not: how a member went, the assignor, where it stands, and who
    of several has caught up with a task."""
    found = []
    for group, row in told:
        why = [
            (c.kind, None, None, c.at_ms)
            if c.kind == "warmup-caught-up"
            else ("member-gone" if c.kind in GONE else c.kind, c.member_id, c.client_id, c.at_ms)
            for c in row.causes
        ]
        why = list(dict.fromkeys(why)) if all(kind == "warmup-caught-up" for kind, *_ in why) else why
        members = sorted((m.member_id, m.instance_id, m.joined_ms) for m in row.members)
        found.append(
            (group, row.epoch, row.state, why, members, row.moved, row.started_ms, row.joined_ms,
             row.ended_ms)
        )  # fmt: skip
    return found
