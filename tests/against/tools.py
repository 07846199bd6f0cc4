"""Apache Kafka's own command line tools, unchanged, and transcripts of their output.

`Tools` is one JVM that runs one tool after another (java/.../Tools.java). A transcript, `tools/*.txt`, is
the shell session of these commands against a new broker:

    $ kafka-get-offsets --topic orders --time earliest
    orders:0:0
    $ kafka-console-producer --topic orders
    < a line that the tool reads
    $ kafka-topics --create --topic orders
    Error while executing topic command : Topic 'orders' already exists.
    status 1

Lines of `< ` are the tool's standard input, or the file that it is given as FILE; lines of `2> ` went to
standard error; `status` is an exit code other than 0. ID_OF_orders is the last id of orders.
`| grep WORD` keeps the lines with that word. Values that differ from run to run have placeholders: MS for a
time, ID for a topic's id, UUID, HOST:PORT, DATA.

The transcripts were recorded from Apache Kafka, by `KONVENE_AGAINST=kafka KONVENE_REWRITE=1`, and every
broker must repeat them word by word.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from .brokers import HERE, Broker, Unavailable, maven
from .clients import java_classpath

TRANSCRIPTS = HERE / "tools"
CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}

WITHOUT_BROKER = {"kafka-dump-log"}
SETTINGS_OF = {
    "acls": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
}
"""Settings of the broker by the name of the transcript."""
BROKER_COMES_LAST = {"kafka-cluster"}

# Values that differ from run to run, and their placeholders.
KINDS = (
    (r"(TopicId: |TopicId '|[Tt]opicId\":\"|Cluster ?I[dD]: +)[\w-]{22}", r"\1ID"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\b1[6-9]\d{11}\b", "MS"),
    (r"\bcrc: \d+", "crc: CRC"),
    (r"Epoch: +\d+$", "Epoch: N"),
    # Coordinators' batches have no producer, but in Kafka's a sequence.
    (r" sequence: (0|-1)(?= headerKeys: \[\] key: \{\"type)", ""),
)
# Java's stack traces, which show its version rather than the broker's behaviour; its log lines.
NOISE = re.compile(r"(2> )?(\tat |\t\.\.\. |SLF4J|Caused by: |\s*$)")


@dataclass
class ToolResult:
    """Output and exit status of a tool."""

    out: str
    err: str
    status: int


@dataclass
class Step:
    """One command of a transcript, its standard input, and its expected output."""

    line: str
    given: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)

    @property
    def asks_only(self) -> bool:
        return not re.search(
            r"--(create|alter|delete|delete-offsets|execute)\b|console|delete-records|elect", self.line
        )


class Tools:
    """One JVM for all tools."""

    def __init__(self, log: Path) -> None:
        self.topic_ids: dict[str, str] = {}
        """Of each topic that was described, by its name."""
        modest = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        words = ["java", *modest, "-cp", tools_classpath(), "konvene.against.Tools"]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def run(self, broker: Broker, line: str, given: str = "") -> ToolResult:
        """Run one line, such as `kafka-topics --list`, against this broker."""
        tool, *args = line.split()
        where = [] if tool in WITHOUT_BROKER else ["--bootstrap-server", broker.bootstrap]
        args = [*args, *where] if tool in BROKER_COMES_LAST else [*where, *args]
        if "FILE" in args:
            file = broker.directory / "given.json"
            file.write_text(given)
            args[args.index("FILE")] = str(file)
        args = [self._meant(arg, broker) for arg in args]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"tool": CLASSES[tool], "args": args, "stdin": given}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{tool} has taken the JVM with it: {self.process.wait(10)}"
        result = ToolResult(**json.loads(answer))
        self.topic_ids |= dict(re.findall(r"Topic: (\S+)\tTopicId: (\S+)", result.out))
        return result

    def _meant(self, arg: str, broker: Broker) -> str:
        if arg.startswith("ID_OF_"):
            return self.topic_ids[arg.removeprefix("ID_OF_")]
        return arg.replace("DATA", str(broker.directory / "data"))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@contextmanager
def tools(log: Path) -> Iterator[Tools]:
    tools = Tools(log)
    try:
        yield tools
    finally:
        tools.end()


def tools_classpath() -> str:
    """The tools' jars, fetched by Maven the first time, and the JSON lines around them; or Unavailable."""
    runner = java_classpath().split(":")[0]
    jars = TRANSCRIPTS / "target" / "dependency"
    maven(TRANSCRIPTS, "dependency:copy-dependencies", unless=lambda: any(jars.glob("kafka-tools-*.jar")))
    return f"{runner}:{jars}/*"


def why_no_tools() -> str | None:
    try:
        tools_classpath()
    except Unavailable as missing:
        return str(missing)
    return None


def read(path: Path) -> tuple[list[str], list[Step]]:
    """The words before the first command, and the commands."""
    prose: list[str] = []
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif not steps:
            prose.append(line)
        elif line.startswith("< "):
            steps[-1].given.append(line[2:])
        elif line:
            steps[-1].output.append(line)
    return prose, steps


def written(prose: list[str], steps: list[Step]) -> str:
    """A transcript's text; `read` backwards."""
    commands = [
        "\n".join([f"$ {step.line}", *(f"< {line}" for line in step.given), *step.output]) for step in steps
    ]
    return "\n".join(prose).strip() + "\n\n" + "\n".join(commands) + "\n"


def replay(steps: list[Step], tools: Tools, broker: Broker, patience_s: float) -> list[Step]:
    """Return the steps with the tools' present output. A query whose output differs from the transcript is
    repeated within `patience_s`, since a broker may apply its controller's decisions a little late."""
    replayed = []
    for step in steps:
        if patience_s and step.asks_only and not step.output:
            time.sleep(0.3)
        deadline = time.monotonic() + (patience_s if step.asks_only and step.output else 0)
        output = run_step(step, tools, broker)
        while output != step.output and time.monotonic() < deadline:
            time.sleep(0.2)
            output = run_step(step, tools, broker)
        replayed.append(Step(step.line, step.given, output))
    return replayed


def run_step(step: Step, tools: Tools, broker: Broker) -> list[str]:
    line, _, word = step.line.partition(" | grep ")
    result = tools.run(broker, line, "".join(f"{line}\n" for line in step.given))
    lines = [*result.out.splitlines(), *(f"2> {line}" for line in result.err.splitlines())]
    lines_ = [plain(line, broker) for line in lines if word in line and not NOISE.match(line)]
    if line.startswith("kafka-acls"):
        lines_ = in_order(lines_)
    return [*lines_, f"status {result.status}"] if result.status else lines_


def in_order(lines: list[str]) -> list[str]:
    """Return lines of kafka-acls, which prints hash sets: resources and their ACLs in alphabetical order."""
    blocks: list[list[str]] = []
    for line in lines:
        line = line.removeprefix(" ")
        if line.startswith("\t") and blocks:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    ordered = [[head, *sorted(acls)] for head, *acls in blocks]
    runs = groupby(ordered, key=lambda block: len(block) > 1)
    return [line for has_acls, run in runs for block in (sorted(run) if has_acls else run) for line in block]


def plain(line: str, broker: Broker) -> str:
    """A line without what differs from run to run."""
    line = line.replace(broker.bootstrap, "HOST:PORT").replace(str(broker.directory / "data"), "DATA")
    line = re.sub(rf"\b{broker.port}\b", "PORT", line)
    for pattern, kind in KINDS:
        line = re.sub(pattern, kind, line)
    return line.rstrip()
