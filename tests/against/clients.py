"""The harness's side of a driver: a client process, its commands, and its events.

A `Client` is one process of one library in one role. `call` sends a command and waits for its reply; events
that the client emits by itself gather in `events`, each with the time (`at`, nanoseconds on the machine's
monotonic clock) and the name of the client. A `Fleet` makes clients and sees that none outlives the test.
"""

import contextlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from .brokers import HERE, Unavailable, maven, one_at_a_time

Event = dict[str, Any]
Partition = tuple[str, int]
T = TypeVar("T")

LIBRARIES = ("java", "confluent-kafka", "kafka-python", "aiokafka")
OLDER_JAVA = "java-3.9"
"""Java's client from before transactions had their second protocol; producers, copiers and admins only."""
NEWEST_JAVA = "java-4.4"
"""Java's newest client, without Kafka Streams; for `task_members` (TaskMembers.java)."""
OLDER_STREAMS = {f"streams-{release}": release for release in ("2.8.2", "3.4.1", "3.9.1", "4.0.1")}
"""Java's client with a Kafka Streams from before the streams protocol was one to be used."""

SCRIPTS = {"confluent-kafka": "confluent.py", "kafka-python": "kafka_python.py", "aiokafka": "aio.py"}
JAVA = HERE / "java"
OLDER = JAVA / "older"
NEWEST = HERE / "newest"
AUTHORIZER = HERE / "authorizer"
MODEST = [
    "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=5",
    "-Xshare:auto", "-Xlog:disable",
]  # fmt: skip
"""Of JVMs that live for seconds: little memory, no long work on their code, no words of their own."""


class Refused(Exception):
    """The client answered with an error: `code` is Kafka's error code if the library gives it, `name` its
    name."""

    def __init__(self, code: int | None, name: str, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.code = code
        self.name = name

    @property
    def unsupported(self) -> bool:
        return self.name == "UNSUPPORTED_BY_CLIENT"


@cache
def java_classpath() -> str:
    """The Java driver and its client, built by Maven when a source is newer; or Unavailable."""
    if shutil.which("java") is None:
        raise Unavailable("no java on the PATH")
    jar = JAVA / "target" / "against.jar"
    sources = [JAVA / "pom.xml", *(JAVA / "src").rglob("*.java")]
    latest = max(source.stat().st_mtime for source in sources)
    maven(
        JAVA,
        "dependency:copy-dependencies",
        "package",
        unless=lambda: jar.exists() and jar.stat().st_mtime >= latest,
    )
    return f"{jar}:{JAVA / 'target' / 'dependency'}/*"


@cache
def older_java_classpath() -> str:
    """The same driver with the older client; or Unavailable."""
    jars = OLDER / "target" / "dependency"
    maven(OLDER, "dependency:copy-dependencies", unless=lambda: any(jars.glob("kafka-clients-*.jar")))
    return f"{java_classpath().partition(':')[0]}:{jars}/*"


@cache
def older_streams_classpath(release: str) -> str:
    """The same driver with an older Kafka Streams; or Unavailable."""
    jars = OLDER / "streams" / "target" / release
    maven(
        OLDER / "streams",
        "dependency:copy-dependencies",
        f"-Dstreams={release}",
        f"-DoutputDirectory=target/{release}",
        unless=lambda: any(jars.glob("kafka-streams-*.jar")),
    )
    return f"{java_classpath().partition(':')[0]}:{jars}/*"


@cache
def newest_java_classpath() -> str:
    """The same driver with the newest client, and what only that can do; or Unavailable."""
    driver = java_classpath().partition(":")[0]
    jar = NEWEST / "target" / "newest.jar"
    sources = [Path(driver), NEWEST / "pom.xml", *(NEWEST / "src").rglob("*.java")]
    latest = max(source.stat().st_mtime for source in sources)
    maven(
        NEWEST,
        "dependency:copy-dependencies",
        "package",
        unless=lambda: jar.exists() and jar.stat().st_mtime >= latest,
    )
    return f"{jar}:{driver}:{NEWEST / 'target' / 'dependency'}/*"


@cache
def authorizer_classpath() -> str:
    """Kafka's authorizer behind JSON lines, built by Maven when a source is newer; or Unavailable."""
    driver = java_classpath().partition(":")[0]
    jar = AUTHORIZER / "target" / "authorizer.jar"
    sources = [AUTHORIZER / "pom.xml", *(AUTHORIZER / "src").rglob("*.java")]
    latest = max(source.stat().st_mtime for source in sources)
    maven(
        AUTHORIZER,
        "dependency:copy-dependencies",
        "package",
        unless=lambda: jar.exists() and jar.stat().st_mtime >= latest,
    )
    return f"{jar}:{driver}:{AUTHORIZER / 'target' / 'dependency'}/*"


@cache
def java_archive() -> Path:
    """The driver's classes as a JVM keeps them in memory, with which a driver needs half the time to begin.
    Where a JVM makes none there is no such file, and drivers begin without."""
    classpath, archive = java_classpath(), JAVA / "target" / "against.jsa"
    built = Path(classpath.partition(":")[0]).stat().st_mtime
    with one_at_a_time(JAVA):
        if not archive.exists() or archive.stat().st_mtime < built:
            part = archive.with_suffix(".part")
            words = ["java", *MODEST, f"-XX:ArchiveClassesAtExit={part}", "-cp", classpath]
            subprocess.run([*words, "konvene.against.Archive"], capture_output=True, timeout=120)
            if part.exists():
                part.replace(archive)
    return archive


def command(library: str) -> list[str]:
    if library in SCRIPTS:
        return [sys.executable, "-W", "ignore", str(HERE / "drivers" / SCRIPTS[library])]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    if library == OLDER_JAVA:
        return ["java", *MODEST, quiet, "-cp", older_java_classpath(), "konvene.against.Driver"]
    if library in OLDER_STREAMS:
        classpath = older_streams_classpath(OLDER_STREAMS[library])
        return ["java", *MODEST, quiet, "-cp", classpath, "konvene.against.Driver"]
    if library == NEWEST_JAVA:
        return ["java", *MODEST, quiet, "-cp", newest_java_classpath(), "konvene.against.Driver"]
    words = ["java", *MODEST, f"-XX:SharedArchiveFile={java_archive()}", quiet]
    return [*words, "-cp", java_classpath(), "konvene.against.Driver"]


def why_no_java() -> str | None:
    """The reason for which Java's client cannot run here, or None when it can."""
    try:
        java_classpath()
    except Unavailable as missing:
        return str(missing)
    return None


class Client:
    """One client of one library in a process of its own."""

    def __init__(self, library: str, name: str, log: Path) -> None:
        self.library = library
        self.name = name
        self.log = log
        self.events: list[Event] = []
        self.ended_ns: int | None = None
        """When it was closed or killed: from then on it may own no partition."""
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._replies: dict[int, Event] = {}
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command(library), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def __repr__(self) -> str:
        return f"<{self.name} ({self.library}) pid {self.process.pid}>"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a library that writes to stdout by itself
            event["client"] = self.name
            with self._changed:
                if event["event"] == "reply":
                    self._replies[event["id"]] = event
                else:
                    self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def submit(self, do: str, **fields: Any) -> int:
        """Send a command and return its id; `answer` returns its reply."""
        id = next(self._ids)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": id, "do": do, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return id

    def answer(self, id: int, within_s: float = 30) -> Any:
        reply = self.until(f"a reply to command {id}", lambda: self._replies.get(id), within_s)
        if "error" in reply:
            raise Refused(reply["error"]["code"], reply["error"]["name"], reply["error"]["message"])
        return reply["result"]

    def call(self, do: str, within_s: float = 30, **fields: Any) -> Any:
        return self.answer(self.submit(do, **fields), within_s)

    def until(self, what: str, happened: Callable[[], T | None], within_s: float = 30) -> T:
        """Wait until `happened` returns a true value; a time-out error contains the client's last events."""
        deadline = time.monotonic() + within_s
        with self._changed:
            while not (found := happened()):
                left = deadline - time.monotonic()
                has_exited = self.process.poll() is not None
                if left <= 0 or (has_exited and not self._changed.wait(0.5) and not happened()):
                    state = f"ended with {self.process.returncode}" if has_exited else f"waited {within_s} s"
                    raise TimeoutError(f"{self}: no {what} ({state})\n{self.story()}")
                self._changed.wait(min(left, 0.5))
        return found

    def story(self) -> str:
        """Return the last events and the end of the log."""
        events = "\n".join(str(event)[:160] for event in self.events[-8:])
        return f"--- events\n{events}\n--- stderr\n{self.log.read_text(errors='replace')[-1500:]}"

    def of(self, event: str) -> list[Event]:
        with self._changed:
            return [e for e in self.events if e["event"] == event]

    def records(self) -> list[Event]:
        return [record for event in self.of("records") for record in event["records"]]

    def values(self) -> list[str]:
        return [record["value"] for record in self.records()]

    def acked(self) -> list[str]:
        return [value for event in self.of("acked") for value in event["values"]]

    def holds(self) -> set[Partition]:
        """The partitions it has been assigned and not given up."""
        held: set[Partition] = set()
        with self._changed:
            for event in self.events:
                if event["event"] == "assigned":
                    held |= {(topic, partition) for topic, partition in event["partitions"]}
                elif event["event"] in ("revoked", "lost"):
                    held -= {(topic, partition) for topic, partition in event["partitions"]}
        return held

    def close(self, within_s: float = 20) -> None:
        """Leave cleanly: the client's own close, then the end of the process."""
        self.ended_ns = time.monotonic_ns()
        self.call("close", within_s=within_s)
        self.process.wait(within_s)

    def kill(self) -> None:
        self.ended_ns = time.monotonic_ns()
        self.process.kill()
        self.process.wait(10)

    def sleep(self) -> None:
        """Stop the whole process where it stands, like a very long pause of its machine."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Fleet:
    """Makes clients of one broker; `disband` ends every one that is left."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.clients: list[Client] = []
        self._numbers = itertools.count(1)
        directory.mkdir(parents=True, exist_ok=True)

    def launch(self, library: str, name: str | None = None) -> Client:
        """A client process that has not been given its role."""
        name = name or f"{library}-{next(self._numbers)}"
        client = Client(library, name, self.directory / f"{name}.log")
        self.clients.append(client)
        return client

    def consumer(self, library: str, name: str | None = None, **settings: Any) -> Client:
        return self._start("consumer", library, name, settings)

    def producer(self, library: str, name: str | None = None, **settings: Any) -> Client:
        return self._start("producer", library, name, settings)

    def admin(self, library: str, name: str | None = None, **settings: Any) -> Client:
        return self._start("admin", library, name, settings)

    def copier(self, library: str, name: str | None = None, **settings: Any) -> Client:
        """One that reads, writes and commits in transactions (CopierRole.java, confluent_copier.py)."""
        return self._start("copier", library, name, settings)

    def sharer(self, library: str, name: str | None = None, **settings: Any) -> Client:
        """A member of a share group (SharerRole.java, confluent_sharer.py)."""
        return self._start("sharer", library, name, settings)

    def streams(self, name: str, **settings: Any) -> Client:
        """An instance of the application that counts words (java/.../StreamsRole.java)."""
        settings.setdefault("state_dir", str(self.directory / f"{name}-state"))
        return self._start("streams", "java", name, settings)

    def _start(self, role: str, library: str, name: str | None, settings: dict[str, Any]) -> Client:
        client = self.launch(library, name)
        self.give(client, role, **settings)
        return client

    def give(self, client: Client, role: str, **settings: Any) -> None:
        """Give a client its role (a second role replaces the first)."""
        start = {"role": role, "bootstrap": self.bootstrap, "client_id": client.name, **settings}
        client.call("start", **start)

    def disband(self) -> None:
        for client in self.clients:
            if client.process.poll() is None:
                client.process.kill()
            client.process.wait(10)


def meet_the_coordinator(admin: Client) -> None:
    """Wait until the group coordinator answers; a broker may first have to create or load its log."""

    def met() -> bool:
        try:
            admin.call("group_offsets", group="nobody")
        except Refused as refused:
            if refused.code in (14, 15, 16):  # COORDINATOR_LOAD_IN_PROGRESS, _NOT_AVAILABLE, NOT_COORDINATOR
                return False
            if refused.name == "NodeNotReadyError":  # kafka-python, after its broker was away
                return False
            raise
        return True

    admin.until("coordinator", met, 20)


def group_offsets(admin: Client, group: str) -> list[list[Any]]:
    """What a group has committed; without the NUL that confluent-kafka puts at the end of metadata."""
    rows = admin.call("group_offsets", group=group)
    return [[topic, partition, offset, (meta or "").rstrip("\0")] for topic, partition, offset, meta in rows]


@contextlib.contextmanager
def fleet_of(bootstrap: str, directory: Path) -> Iterator[Fleet]:
    fleet = Fleet(bootstrap, directory)
    try:
        yield fleet
    finally:
        fleet.disband()


def eventually(what: str, happened: Callable[[], T | None], within_s: float = 30, among: Any = ()) -> T:
    """Wait until `happened` returns a true value; a time-out error contains the last events of `among`."""
    deadline = time.monotonic() + within_s
    while not (found := happened()):
        if time.monotonic() > deadline:
            stories = "\n".join(f"=== {client}\n{client.story()}" for client in among)
            raise TimeoutError(f"no {what} within {within_s} s\n{stories}")
        time.sleep(0.05)
    return found
