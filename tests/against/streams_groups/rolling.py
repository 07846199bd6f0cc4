"""An application that is migrated between protocols under load: lines are written all the time, and a watch
checks task ownership.

The output decides. Every update of a word's count is a record, so each key's counts are 1, 2, 3 and so on
where every line was read once: a task that two instances ran, lost offsets and incomplete state would all
show. The watch detects what the output may hide: it polls every instance and the broker for task ownership.
"""

import threading
import time
from collections import Counter
from typing import Any

from ..clients import Refused, eventually
from .app import Application, Instance, active, names

PARTITIONS = 4
TASKS = names(0, PARTITIONS) | names(1, PARTITIONS)
WORDS = ("epoch", "member", "task", "offset", "topic", "group", "warm", "standby")
CLASSIC = {
    "group.protocol": "classic",
    "main.consumer.session.timeout.ms": 3000,
    "main.consumer.heartbeat.interval.ms": 300,
    "probing.rebalance.interval.ms": 60_000,
}
"""Short sessions of classic instances, so that their groups detect a departed one within seconds."""
LONG_S = 2.0
"""Two instances that report the same task for so long both own it. A shorter overlap is allowed: a thread
reports its tasks only at the end of a round, after it has revoked one."""


class Traffic:
    """Lines that are written until it is stopped, and how often each word was in them."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.written: Counter[str] = Counter()
        self._process = app.stage.process(f"{app.name}-traffic")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        rounds = 0
        while not self._over.wait(0.1):
            lines = [
                " ".join((WORDS[(rounds + n) % len(WORDS)], WORDS[rounds % 3])) for n in range(PARTITIONS)
            ]
            try:
                rows = [[n, None, line] for n, line in enumerate(lines)]
                self._process.call("write", within_s=60, topic=self.app.topic("lines"), rows=rows)
            except (Refused, TimeoutError, OSError):
                if self._over.is_set():
                    return
                raise
            self.written.update(word for line in lines for word in line.split())
            rounds += 1

    def stop(self) -> Counter[str]:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._process.close()
        return self.written


class Watch:
    """Polls task ownership until it is ended; records tasks with two owners."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.instances: list[Instance] = []
        self.rounds = 0
        self.twice: list[str] = []
        self.protocols: set[frozenset[str]] = set()
        """Which protocols were spoken in the streams group at a time, by its own word."""
        self._since: dict[tuple[str, str, str], float] = {}
        self._process = app.stage.process(f"{app.name}-watch")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self._by_instances()
            self._by_the_broker()
            self.rounds += 1

    def _by_instances(self) -> None:
        held = {instance.name: _tasks(instance) for instance in list(self.instances)}
        now, pairs = time.monotonic(), set()
        for one in held:
            for other in held:
                pairs |= {(one, other, task) for task in held[one] & held[other] if one < other}
        self._since = {pair: self._since.get(pair, now) for pair in pairs}
        self.twice += [
            f"{pair} for {now - since:.1f} s" for pair, since in self._since.items() if now - since > LONG_S
        ]

    def _by_the_broker(self) -> None:
        try:
            description = self._process.call("describe_streams", group=self.app.name)
        except (Refused, TimeoutError, OSError):
            return  # A classic group, or a broker that is away.
        members = description["members"]
        tasks = Counter(task for member in members for task in member["assignment"]["active"])
        self.twice += [f"{task}, says the broker" for task, count in tasks.items() if count > 1]
        self.protocols.add(frozenset("classic" if m.get("classic") else "streams" for m in members))

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)
        self._process.close()
        assert self.rounds > 10
        assert not self.twice, self.twice


def _tasks(instance: Instance) -> set[str]:
    """Return its active tasks; none where its process has ended or does not answer."""
    try:
        return instance.tasks()
    except (Refused, TimeoutError, OSError, ValueError):
        return set()


class Roll:
    """The instances by name, replaced one by one, each in a process of its own."""

    def __init__(self, app: Application, **settings: Any) -> None:
        self.app = app
        self.settings = settings
        self.at_work: dict[str, Instance] = {}
        self.traffic = Traffic(app)
        self.watch = Watch(app)
        self.took: list[float] = []
        """Seconds from an instance's close until all tasks had an owner again."""

    def start(self, name: str, *, library: str = "java", **settings: Any) -> Instance:
        instance = self.app.start(name, alone=True, library=library, **self.settings, **settings)
        self.at_work[name] = instance
        self.watch.instances = list(self.at_work.values())
        return instance

    def replace(self, name: str, *, kill: bool = False, library: str = "java", **settings: Any) -> Instance:
        """Close, or kill, an instance; start it with other settings; wait until all tasks are shared."""
        if not kill:
            self.is_calm()
        old = self.at_work.pop(name)
        self.watch.instances = list(self.at_work.values())
        begun = time.monotonic()
        if kill:
            old.kill()  # At whatever moment.
        else:
            old.close()
        instance = self.start(name, library=library, **settings)
        self.is_whole()
        self.took.append(round(time.monotonic() - begun, 1))
        return instance

    def replace_blindly(self, name: str, *, among: set[str], **settings: Any) -> Instance:
        """Replace an instance where some cannot report tasks; the broker's description is used instead."""
        self.is_calm()
        old = self.at_work.pop(name)
        self.watch.instances = list(self.at_work.values())
        begun = time.monotonic()
        old.close()
        instance = self.start(name, **settings)

        def whole() -> bool:
            try:
                members = self.app.describe()["members"]
            except Refused:
                return instance.ask("state") == "RUNNING"  # It was the last of the streams protocol.
            held = [task for member in members for task in member["assignment"]["active"]]
            names = {each.name for each in self.at_work.values()}
            return sorted(held) == sorted(among) and set(active(members)) == names

        eventually("all tasks", whole, 60, among=[each.process for each in self.at_work.values()])
        self.took.append(round(time.monotonic() - begun, 1))
        return instance

    def is_whole(self, within_s: float = 60) -> None:
        """Wait until each task has one owner and each instance that reports its tasks has one."""

        def whole() -> bool:
            held = [_tasks(instance) for instance in self.at_work.values()]
            return sorted(task for each in held for task in each) == sorted(TASKS) and all(held)

        eventually("all tasks", whole, within_s, among=[each.process for each in self.at_work.values()])

    def is_calm(self, within_s: float = 60) -> None:
        """Wait until nothing is under way for a second: an instance that is closed while it gives tasks away
        has no time to commit, and its lines are read again."""
        since = time.monotonic()

        def calm() -> bool:
            nonlocal since
            states = {row["group"]: row["state"] for row in self.app.apps.call("list_groups")}
            if states[self.app.name].upper() != "STABLE" or not all(
                instance.ask("state") == "RUNNING" for instance in self.at_work.values()
            ):
                since = time.monotonic()
            return time.monotonic() - since > 1

        eventually("calm", calm, within_s, among=[each.process for each in self.at_work.values()])

    def goes_on(self, lines: int = 8) -> None:
        """Wait until what is written now has been counted."""
        wanted = sum(self.traffic.written.values()) + lines

        def counted() -> bool:
            return sum(self.app.counts().values()) >= wanted

        among = [each.process for each in self.at_work.values()]
        eventually(f"{wanted} counts", counted, 60, among=among)

    def jumps(self) -> list[str]:
        """Counts that are not the one before and one."""
        before: Counter[str] = Counter()
        jumps = []
        for at, (_, key, value) in enumerate(self.app.read("counts")):
            if int(value) != before[key] + 1:
                jumps.append(f"{key} {before[key]} {value} at {at}")
            before[key] = int(value)
        return jumps

    def ends(self) -> int:
        """No more lines: each word was counted once, none twice, and no task was two instances' at a time."""
        written = self.traffic.stop()
        total = sum(written.values())
        eventually("all counts", lambda: sum(self.app.counts().values()) >= total, 60)
        assert (counts := self.app.counts()) == written, (counts, written)
        self.watch.end()
        assert not (jumps := self.jumps()), jumps
        return sum(written.values())
