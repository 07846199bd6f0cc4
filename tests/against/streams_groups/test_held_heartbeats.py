"""Streams instances with shortened heartbeat intervals and held responses use no more CPU time, lose no
connection, and end as soon. Both policies are played side by side, as for consumers
(`tests/against/test_held_heartbeats.py`).
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..brokers import HOST, Konvene, chosen
from ..clients import eventually, fleet_of
from ..tap import HEARTBEATS, Exchange, Tap
from ..test_held_heartbeats import BAD_WORDS, CONFIGURED_MS, HELD_S, KAFKA, QUIET_S, RESPONSIVE, cpu_s
from .app import Application, Instance, Stage, names

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(chosen() is not Konvene, reason="the policy is konvene's alone"),
]

PARTITIONS = 4
TASKS = names(0, PARTITIONS)
COMMITS = {"commit.interval.ms": 30_000}
"""Kafka's default. Any other request on the connection completes a held heartbeat."""

LATE_S = 3.0
"""An application whose topic is missing ends itself after twice its heartbeat interval."""


@dataclass
class Played:
    """How it went with one policy: seconds, by what took them."""

    cpu: dict[str, float] = field(default_factory=dict)
    """Of each instance in `QUIET_S`, and of one that waits for its topic in `LATE_S`."""
    took: dict[str, float] = field(default_factory=dict)
    beats: dict[str, list[Exchange]] = field(default_factory=dict)
    """By instance."""
    lost: list[str] = field(default_factory=list)
    """Instances that closed a connection to the coordinator before their own close."""
    out_of_order: int = 0
    log_warnings: list[str] = field(default_factory=list)

    def held(self) -> list[float]:
        return [beat.took_s for beats in self.beats.values() for beat in beats if beat.took_s > HELD_S]


class Story:
    """Two instances share an application's tasks; each ends in its way. Another waits for its topic."""

    def __init__(self, policy: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.played = Played()
        self.ended_s: dict[str, float] = {}
        settings = {
            "konvene.heartbeat.policy": policy,
            "group.streams.initial.rebalance.delay.ms": "0",
        }
        self.broker = Konvene(directory / "broker", settings)
        self.tap = Tap(self.broker.port)
        self.broker.settings["advertised.listeners"] = f"PLAINTEXT://{HOST}:{self.tap.port}"

    def play(self) -> Played:
        self.broker.start()
        try:
            with fleet_of(f"{HOST}:{self.tap.port}", self.directory / "clients") as fleet:
                stage = Stage(self.broker, fleet, self.directory)
                self._late(Application("late", stage, self.directory))
                self._play(Application("app", stage, self.directory))
        finally:
            self.broker.kill9()
            self.tap.close()
        return self.played

    def _late(self, app: Application) -> None:
        """It is there before the topic that it reads."""
        app.topology = "keys"
        one = app.start("one", alone=True, **COMMITS)
        eventually("a group without its topic", lambda: self._beats(one), among=[one.process])
        self._spends(LATE_S, one)
        began = time.monotonic()
        app.has(lines=PARTITIONS, counts=1)
        eventually("its tasks", lambda: one.tasks() == TASKS, among=[one.process])
        self.played.took["topic"] = time.monotonic() - began
        self._ends("late close", one)
        self._look(one)

    def _play(self, app: Application) -> None:
        app.does("keys", lines=PARTITIONS, counts=1)
        one = app.start("one", alone=True, **COMMITS)
        eventually("all tasks", lambda: one.tasks() == TASKS, among=[one.process])
        time.sleep(8)
        two = app.start("two", alone=True, **COMMITS)
        eventually("two shares", lambda: len(one.tasks()) == len(two.tasks()) == 2, among=[two.process])
        self.played.took["join"] = time.monotonic() - self._beats(two)[0].requested_s
        time.sleep(8)
        self._spends(QUIET_S, one, two)
        self._ends("close", two)
        began = time.monotonic()
        eventually("its tasks", lambda: one.tasks() == TASKS, among=[one.process])
        self.played.took["take over"] = time.monotonic() - began
        time.sleep(2.5)
        self._ends("close and remain", one, remain=True)
        self._look(one, two)

    def _spends(self, seconds: float, *instances: Instance) -> None:
        before = [cpu_s(instance.process) for instance in instances]
        time.sleep(seconds)
        for instance, spent in zip(instances, before, strict=True):
            self.played.cpu[instance.name] = (cpu_s(instance.process) - spent) / seconds

    def _ends(self, what: str, instance: Instance, *, remain: bool = False) -> None:
        self.ended_s[instance.name] = began = time.monotonic()
        instance.process.call("end", instances=[instance.name], remain=remain)
        self.played.took[what] = time.monotonic() - began

    def _wires(self, instance: Instance) -> Any:
        return self.tap.of(f"{instance.name}-StreamThread-1-consumer")

    def _beats(self, instance: Instance) -> list[Exchange]:
        return [beat for wire in self._wires(instance) for beat in wire.of(*HEARTBEATS)]

    def _look(self, *instances: Instance) -> None:
        for instance in instances:
            self.played.beats[instance.name] = self._beats(instance)
            for wire in self._wires(instance):
                self.played.out_of_order += wire.out_of_order
                if 0 < wire.closed_s < self.ended_s[instance.name]:
                    self.played.lost.append(instance.name)
            log = instance.process.log.read_text(errors="replace")
            self.played.log_warnings += [line for line in log.splitlines() if BAD_WORDS.search(line)]


def played(directory: Path) -> dict[str, Played]:
    """With both policies, side by side: what the machine does else troubles both alike."""
    done: dict[str, Played] = {}
    failed: list[BaseException] = []

    def play(policy: str) -> None:
        try:
            done[policy] = Story(policy, directory / policy).play()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=play, args=(policy,)) for policy in (KAFKA, RESPONSIVE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return done


def spoken(how: Played) -> str:
    cpu = " ".join(f"{name} {share:.1%}" for name, share in how.cpu.items())
    took = " ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in how.took.items())
    held = how.held()
    count = sum(map(len, how.beats.values()))
    most = 1000 * max(held, default=0)
    return f"cpu {cpu}; ms: {took}; {count} heartbeats, {len(held)} held (longest {most:.0f})"


def test_instances_wait_in_peace(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """No response takes as long as the previous interval, and CPU time does not grow, even where a topic is
    missing; tasks are shared sooner, and an application starts sooner on a topic that was created late."""
    done = played(tmp_path)
    for policy, how in done.items():
        record_property(policy, spoken(how))
        assert (how.lost, how.log_warnings, how.out_of_order) == ([], [], 0)
        assert {beat.error for beats in how.beats.values() for beat in beats} == {0}
    before, after = done[KAFKA], done[RESPONSIVE]
    assert {beat.interval_ms for beats in before.beats.values() for beat in beats if beat.epoch > 0} == {
        CONFIGURED_MS
    }
    assert len(before.held()) <= 2
    assert len(after.held()) >= 10
    for beats in after.beats.values():
        for last, beat in itertools.pairwise(beats):
            assert beat.took_s * 1000 < last.interval_ms
    for name, share in after.cpu.items():
        assert share - before.cpu[name] < (0.15 if name.startswith("late") else 0.05), name
    for what in ("close", "close and remain", "late close"):
        assert after.took[what] < before.took[what] + 1.2, what
    assert after.took["join"] < before.took["join"]
    assert after.took["topic"] < before.took["topic"]
