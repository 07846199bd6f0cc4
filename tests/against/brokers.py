"""The broker under test: a process on a loopback port, with a data directory, that may be killed and
started again.

`KONVENE_AGAINST` chooses it: `konvene` (the default) or `kafka`, which is Apache Kafka as one KRaft node.
Kafka's jars come from Maven (kafka/pom.xml), or from the directory that `KONVENE_AGAINST_KAFKA_JARS` names.
"""

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
KAFKA_JARS = HERE / "kafka" / "target" / "dependency"
HOST = "127.0.0.1"

# Settings of both brokers: short delays for tests, and no automatic topics.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "300",
    "offsets.topic.num.partitions": "4",
}

KAFKA_ONLY = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.enable": "false",
}


class Unavailable(Exception):
    """This broker is not available on this machine; the message names what is missing."""


class Broker(ABC):
    """A broker that can be started, stopped, killed and started again on the same port and data."""

    name: str
    explains = False
    """Whether it records why a group rebalanced."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = SETTINGS | (settings or {})
        self.port = free_port()
        self.log = directory / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = "running" if self.process and self.process.poll() is None else "stopped"
        return f"<{self.name} {state} at {self.bootstrap}>"

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @abstractmethod
    def command(self) -> list[str]: ...

    def prepare(self) -> None:  # noqa: B027 - most brokers need nothing
        """What is done once, before the first start."""

    def start(self, within_s: float = 180) -> None:
        """Start, and return when it answers ApiVersions."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.process is None:
            self.prepare()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + within_s
        while not answers(self.port):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill9()
                raise TimeoutError(f"{self.name} did not answer within {within_s} s:\n{self.tail()}")
            time.sleep(0.05)

    def kill9(self) -> None:
        self._end(signal.SIGKILL, 10)

    def stop(self) -> None:
        """End politely; a broker that will not is killed, and that is an error."""
        try:
            self._end(signal.SIGTERM, 20)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise

    def _end(self, how: signal.Signals, within_s: float) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(within_s)

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class Konvene(Broker):
    name = "konvene"
    explains = True

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "konvene", "serve"]
        if "listeners" not in self.settings:
            words += ["--host", HOST, "--port", str(self.port)]
        words += ["--data-dir", str(self.directory / "data")]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words


class Kafka(Broker):
    name = "kafka"

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.jars = kafka_jars()
        self.controller_port = free_port()

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def prepare(self) -> None:
        settings = KAFKA_ONLY | {"listeners": f"PLAINTEXT://{self.bootstrap}"} | self.settings
        settings["advertised.listeners"] = settings["listeners"]
        settings["listeners"] += f",CONTROLLER://{HOST}:{self.controller_port}"
        settings["controller.quorum.bootstrap.servers"] = f"{HOST}:{self.controller_port}"
        settings["log.dirs"] = str(self.directory / "data")
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tool = [*self.java(), "kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted"]
        tool += ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self.properties)]
        tool += ["--feature", "eligible.leader.replicas.version=0"]  # which is nothing to a single node
        done = subprocess.run(tool, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"formatting Kafka's storage failed:\n{done.stdout}\n{done.stderr}")

    def java(self) -> list[str]:
        modest = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # Settings that Kafka reads from its process rather than from its file.
        own = [f"-D{name}={value}" for name, value in self.settings.items() if name.startswith("org.apache.")]
        return ["java", self.sharing, *modest, *own, "-cp", f"{self.jars}/*"]

    @property
    def sharing(self) -> str:
        """The JVM's option for its archive of classes."""
        return f"-XX:SharedArchiveFile={kafka_archive()}" if self.jars == KAFKA_JARS else "-Xshare:auto"

    def command(self) -> list[str]:
        return [*self.java(), "kafka.Kafka", str(self.properties)]


class ArchivingKafka(Kafka):
    """Writes the classes that it has loaded to a file when it ends."""

    sharing = "-Xshare:auto"

    def command(self) -> list[str]:
        return [*super().command()[:1], f"-XX:ArchiveClassesAtExit={self.archive}", *super().command()[1:]]

    @property
    def archive(self) -> Path:
        return self.directory / "kafka.jsa"


@cache
def kafka_archive() -> Path:
    """Return the archive of a broker's classes, with which Kafka starts in two thirds of the time.

    Where a JVM makes none there is no such file, and Kafka starts without."""
    archive = KAFKA_JARS.parent / "kafka.jsa"
    with tempfile.TemporaryDirectory() as directory:
        broker = ArchivingKafka(Path(directory))  # Before the lock, which its jars need as well.
        with one_at_a_time(HERE / "kafka"):
            if broker.jars == KAFKA_JARS and not archive.exists():
                broker.start()
                broker._end(signal.SIGTERM, 120)
                if broker.archive.exists():
                    shutil.move(broker.archive, archive)
    return archive


KINDS: dict[str, type[Broker]] = {"konvene": Konvene, "kafka": Kafka}


def chosen() -> type[Broker]:
    return KINDS[os.environ.get("KONVENE_AGAINST", "konvene")]


def kafka_jars() -> Path:
    """The directory with Apache Kafka's jars, fetched by Maven the first time."""
    given = os.environ.get("KONVENE_AGAINST_KAFKA_JARS")
    jars = Path(given) if given else KAFKA_JARS
    if given and not list(jars.glob("kafka_*.jar")):
        raise Unavailable(f"no Kafka jars in {jars}")
    if not given:
        maven(
            HERE / "kafka", "dependency:copy-dependencies", unless=lambda: any(jars.glob("kafka_*.jar"))
        )  # fmt: skip
    return jars


def kafka_log_jars() -> Path:
    """The directory with what Apache Kafka needs to write its application log, fetched by Maven the first
    time."""
    jars = HERE / "kafka_log" / "target" / "dependency"
    maven(
        HERE / "kafka_log", "dependency:copy-dependencies",
        unless=lambda: any(jars.glob("log4j-slf4j-impl-*.jar")),
    )  # fmt: skip
    return jars


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Of the processes that make something in a directory with a pom.xml, each in its turn."""
    with (directory / "pom.xml").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def maven(directory: Path, *goals: str, unless: Callable[[], bool]) -> None:
    """Run Maven, without the network when its cache is enough; Unavailable when it cannot be done. Of several
    processes that need the same, one does it."""
    with one_at_a_time(directory):
        if unless():
            return
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise Unavailable("java and mvn are needed and not both on the PATH")
        for mode in (["-o"], []):
            words = ["mvn", "-q", "-B", *mode, *goals]
            done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=300)
            if done.returncode == 0:
                return
    raise Unavailable(f"`{' '.join(words)}` failed in {directory.name}: {(done.stdout + done.stderr)[-600:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether ApiVersions v0, the oldest greeting, is answered on this port."""
    header = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(header)) + header)
            return len(connection.recv(8)) > 0
    except OSError:
        return False
