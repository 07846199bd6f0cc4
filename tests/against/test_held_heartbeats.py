"""Members with shortened heartbeat intervals and held responses use no more CPU time, lose no connection, and
no operation takes longer.

A scenario is played with both policies, side by side, through a proxy that records how long each response was
held (broker settings `konvene.heartbeat.*`).
"""

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .brokers import HOST, Broker, Konvene, chosen
from .clients import Client, Fleet, Partition, eventually, fleet_of, meet_the_coordinator
from .stories import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON
from .tap import HEARTBEATS, Exchange, Tap, Wire
from .tries import Plays

KAFKA, RESPONSIVE = "kafka", "responsive"
COMMIT = 8
QUIET_S = 12
HELD_S = 0.3
"""An answer that took as long was held, on a machine that is not busy otherwise."""
AT_ONCE = 1
"""Libraries at a time. All pass through a tap in this process, and more of them keep one another waiting."""
CONFIGURED_MS = 5000
"""Kafka's default interval, which every member is given with policy kafka."""

BAD_WORDS = re.compile(r"disconnect|timed? ?out|fenced|ILLEGAL|FAIL\||ERROR", re.IGNORECASE)
OF_KAFKA_PYTHON = (
    "It is blocking the event loop",  # A task of its own took 0.1 s.
    "Pre-rebalance offset commit failed", "KafkaTimeoutError",  # The driver's poll of 0.1 s ended first.
    "Error receiving network data closing socket",  # It reads from a connection that it has closed itself:
    "'NoneType' object has no attribute 'recv'",  # others are in `Played.lost`.
)  # fmt: skip
"""Parts of kafka-python's log lines about its own doings on a busy machine."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

pytestmark = pytest.mark.skipif(chosen() is not Konvene, reason="the policy is konvene's alone")


@dataclass
class Played:
    """How a story went with one policy: seconds, by what took them."""

    cpu: dict[str, float] = field(default_factory=dict)
    """Of each member in `QUIET_S`."""
    took: dict[str, float] = field(default_factory=dict)
    commits: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    """To those commits, and to those that members make by themselves, as the tap saw them."""
    beats: list[list[Exchange]] = field(default_factory=list)
    """By connection."""
    lost: list[str] = field(default_factory=list)
    """Clients that closed a connection to the coordinator before their own close."""
    out_of_order: int = 0
    log_warnings: list[str] = field(default_factory=list)
    """Log lines of clients about disconnections, timeouts and the like."""

    def held(self) -> list[float]:
        return [beat.took_s for beats in self.beats for beat in beats if beat.took_s > HELD_S]


class Story:
    """Two members of one library, one that commits by itself every 5 s and one that does not commit."""

    def __init__(self, library: str, protocol: str, policy: str, directory: Path) -> None:
        self.library = library
        self.protocol = protocol
        self.played = Played()
        directory.mkdir(parents=True)
        self.broker: Broker = Konvene(directory / "broker", {"konvene.heartbeat.policy": policy})
        self.tap = Tap(self.broker.port)
        self.broker.settings["advertised.listeners"] = f"PLAINTEXT://{HOST}:{self.tap.port}"
        self.directory = directory
        self.learnt_s = 14 if protocol == "classic" else 8
        """Seconds until the policy takes effect: by shortened intervals, or by gaps of 3 s between
        heartbeats."""

    def play(self) -> Played:
        self.broker.start()
        try:
            with fleet_of(f"{HOST}:{self.tap.port}", self.directory / "clients") as fleet:
                self._play(fleet)
        finally:
            self.broker.kill9()
            self.tap.close()
        return self.played

    def _play(self, fleet: Fleet) -> None:
        admin = fleet.admin(KAFKA_PYTHON, "admin")
        admin.call("create_topics", topics=[{"name": "t", "partitions": 4}, {"name": "u", "partitions": 1}])
        meet_the_coordinator(admin)
        fleet.producer(CONFLUENT, "producer").call(
            "stream", topic="t", prefix="v", count=10**6, rate_per_s=20
        )
        commits, silent, static = (
            fleet.launch(self.library, name) for name in ("commits", "silent", "static")
        )
        everything = {("t", partition) for partition in range(4)}
        self._give(fleet, commits, commit="auto", auto_commit_interval_ms=5000)
        self._until("all of it", lambda: commits.holds() == everything, commits)
        time.sleep(self.learnt_s)
        self._give(fleet, silent)
        self._timed("join", lambda: len(silent.holds()) == len(commits.holds()) == 2, commits, silent)
        time.sleep(self.learnt_s)
        self._quiet(commits, silent)
        self._commits(silent)
        self._changes(commits, silent, everything)
        self._static(fleet, static, commits)
        self._timed("close", lambda: self._close(commits))
        self._look(commits, silent, static)

    def _give(self, fleet: Fleet, client: Client, **settings: Any) -> None:
        settings.setdefault("topics", ["t"])
        if self.protocol == "classic":
            settings |= {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3000}
        fleet.give(client, "consumer", group="g", protocol=self.protocol, **settings)

    def _until(self, what: str, happened: Callable[[], Any], *among: Client) -> None:
        eventually(what, happened, 30, among=among)

    def _timed(self, what: str, happened: Callable[[], Any], *among: Client) -> None:
        began = time.monotonic()
        self._until(what, happened, *among)
        self.played.took[what] = time.monotonic() - began

    def _close(self, client: Client) -> bool:
        client.ended_ns = time.monotonic_ns()
        client.call("close")
        return True

    def _quiet(self, *members: Client) -> None:
        """Nothing happens but records and heartbeats."""
        before = {member.name: cpu_s(member) for member in members}
        time.sleep(QUIET_S)
        self.played.cpu = {member.name: cpu_s(member) - before[member.name] for member in members}

    def _commits(self, member: Client) -> None:
        """At moments that have nothing to do with heartbeats."""
        topic, partition = min(member.holds())
        for number in range(12):
            began = time.monotonic()
            member.call("commit", offsets=[[topic, partition, number, ""]])
            self.played.commits.append(time.monotonic() - began)
            time.sleep(0.37)

    def _changes(self, commits: Client, silent: Client, everything: set[Partition]) -> None:
        time.sleep(1)
        if self.library in (KAFKA_PYTHON, AIOKAFKA):  # Their drivers cannot subscribe anew.
            self._timed("leave", lambda: self._close(silent))
            self._timed("take over", lambda: commits.holds() == everything, commits)
            return
        silent.call("subscribe", topics=["u"])
        self._timed("subscribe", lambda: silent.holds() == {("u", 0)}, silent)
        self._timed("take over", lambda: commits.holds() == everything, commits)
        time.sleep(1)
        self._timed("unsubscribe", lambda: silent.call("unsubscribe") is None, silent)

    def _static(self, fleet: Fleet, static: Client, commits: Client) -> None:
        self._give(fleet, static, instance_id="desk")
        self._until("two shares", lambda: len(static.holds()) == len(commits.holds()) == 2, static, commits)
        time.sleep(2.5)
        self._timed("static close", lambda: self._close(static))

    def _look(self, *members: Client) -> None:
        for member in members:
            for wire in self.tap.of(member.name):
                self._look_at(wire, member)
            log = member.log.read_text(errors="replace")
            self.played.log_warnings += [
                line
                for line in log.splitlines()
                if BAD_WORDS.search(line) and not any(part in line for part in OF_KAFKA_PYTHON)
            ]

    def _look_at(self, wire: Wire, member: Client) -> None:
        self.played.beats.append(wire.of(*HEARTBEATS))
        self.played.answers += [exchange.took_s for exchange in wire.of(COMMIT)]
        self.played.out_of_order += wire.out_of_order
        ended_s = (member.ended_ns or 1e30) / 1e9
        if 0 < wire.closed_s < ended_s:
            self.played.lost.append(member.name)


def cpu_s(client: Client) -> float:
    """The processor time that a client has spent, all its threads together."""
    fields = Path(f"/proc/{client.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def play(library: str, protocol: str, directory: Path) -> dict[str, Played]:
    """The story with both policies, side by side: what the machine does else troubles both alike."""
    stories = {policy: Story(library, protocol, policy, directory / policy) for policy in (KAFKA, RESPONSIVE)}
    done: dict[str, Played] = {}
    failed: list[BaseException] = []

    def play_one(policy: str) -> None:
        try:
            done[policy] = stories[policy].play()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=play_one, args=(policy,)) for policy in stories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return done


def spoken(how: Played) -> str:
    cpu = " ".join(f"{name} {seconds / QUIET_S:.1%}" for name, seconds in how.cpu.items())
    took = " ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in how.took.items())
    commits = [seconds * 1000 for seconds in sorted(how.commits)]
    answers = [seconds * 1000 for seconds in sorted(how.answers)]
    held = [seconds * 1000 for seconds in sorted(how.held())]
    return (
        f"cpu {cpu}; ms: {took} commit {commits[len(commits) // 2]:.0f} (most {commits[-1]:.0f}, on the wire "
        f"{answers[len(answers) // 2]:.0f}, most {answers[-1]:.0f}); {sum(map(len, how.beats))} heartbeats, "
        f"{len(held)} held for {sum(held):.0f} (most {max(held, default=0):.0f})"
    )


def assert_undisturbed(done: dict[str, Played]) -> None:
    """Assert that no member lost a connection, was rejected or logged a warning; that CPU time did not grow;
    and that no operation took longer than by the rest of a heartbeat interval."""
    for how in done.values():
        assert (how.lost, how.log_warnings, how.out_of_order) == ([], [], 0)
    before, after = done[KAFKA], done[RESPONSIVE]
    assert len(before.held()) <= 2
    for member, seconds in after.cpu.items():
        assert seconds - before.cpu[member] < QUIET_S * 0.05
    assert sorted(after.commits)[6] < sorted(before.commits)[6] + 0.1
    for what in after.took.keys() - {"join", "take over"}:
        assert after.took[what] < before.took[what] + 1.2, what


ScenarioResults = Plays[tuple[str, str], dict[str, Played]]
"""Results of each library's scenario in each protocol."""

each_consumer = pytest.mark.parametrize(
    ("protocol", "library"), [("consumer", library) for library in (JAVA, CONFLUENT)]
)
each_classic = pytest.mark.parametrize(
    ("protocol", "library"), [("classic", library) for library in (JAVA, CONFLUENT, KAFKA_PYTHON, AIOKAFKA)]
)


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScenarioResults]:
    """Play the scenarios of the selected tests, `AT_ONCE` libraries at a time."""
    calls = [getattr(i, "callspec", None) for i in request.session.items if i.path.samefile(__file__)]
    plays = ScenarioResults(
        lambda case, again: play(*case, tmp_path_factory.mktemp(case[0] + again)), AT_ONCE
    )
    plays.begin((call.params["library"], call.params["protocol"]) for call in calls if call)
    yield plays
    plays.end()


@pytest.fixture
def done(
    protocol: str,
    library: str,
    plays: ScenarioResults,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> dict[str, Played]:
    """How it went with each policy."""
    done = plays.of((library, protocol), request)
    for policy, how in done.items():
        record_property(policy, spoken(how))
    return done


@pytest.mark.java
@each_consumer
def test_members_wait_in_peace(done: dict[str, Played]) -> None:
    """In consumer groups no response takes as long as the previous interval, and a rebalance ends sooner."""
    assert_undisturbed(done)
    before, after = done[KAFKA], done[RESPONSIVE]
    assert {beat.error for how in done.values() for beats in how.beats for beat in beats} == {0}
    assert {beat.interval_ms for beats in before.beats for beat in beats if beat.epoch > 0} == {CONFIGURED_MS}
    assert len(after.held()) >= 10
    for beats in after.beats:
        for last, beat in itertools.pairwise(beats):
            assert beat.took_s * 1000 < last.interval_ms
    assert after.took["join"] < before.took["join"]


@pytest.mark.java
@each_classic
def test_classic_members_wait_in_peace(library: str, done: dict[str, Played]) -> None:
    """In classic groups responses are held for less than the observed interval; aiokafka, which sends no
    client name, is never held."""
    assert_undisturbed(done)
    after = done[RESPONSIVE]
    assert max((*after.held(), 0)) < 3
    assert (len(after.held()) >= 5) is (library != AIOKAFKA)
