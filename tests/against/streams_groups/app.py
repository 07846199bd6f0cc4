"""A streams application under test: its topics, instances, input and output.

A test writes lines and starts and stops instances; `is_shared_by` waits until each task has one owner,
`makes` until the output is complete. The broker's description (`describe`) is compared with the instances'
own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..brokers import Broker
from ..clients import Client, Event, Fleet, Refused, eventually
from ..history import history, missing
from ..tools import ToolResult, Tools

SESSION_MS = 3000
"""Of groups whose instances die: the time until the broker gives them up."""

Row = Sequence[Any]
"""`[partition, key, value]`; partition is None where the key chooses it."""


class Stage:
    """What all applications of one broker share: the process of their instances, and the tools."""

    def __init__(self, broker: Broker, fleet: Fleet, directory: Path) -> None:
        self.broker = broker
        self.fleet = fleet
        self.directory = directory
        self.apps = self.process("apps")
        self._tools: Tools | None = None

    def process(self, name: str, library: str = "java") -> Client:
        client = self.fleet.launch(library, name)
        self.fleet.give(client, "streams_apps")
        return client

    def tool(self, line: str, given: str = "") -> ToolResult:
        """Run one of Kafka's own tools."""
        return self.tools.run(self.broker, line, given)

    @property
    def tools(self) -> Tools:
        """The JVM of Kafka's tools, started on first use."""
        if self._tools is None:
            self._tools = Tools(self.directory / "tools.log")
        return self._tools

    def end(self) -> None:
        if self._tools is not None:
            self._tools.end()


class Instance:
    """One instance, in the process of all or in one of its own."""

    def __init__(self, name: str, process: Client, alone: bool) -> None:
        self.name = name
        self.process = process
        self.alone = alone

    def __repr__(self) -> str:
        return f"<{self.name} in {self.process}>"

    def ask(self, verb: str, **fields: Any) -> Any:
        return self.process.call(verb, instance=self.name, **fields)

    def tasks(self) -> set[str]:
        return set(self.ask("tasks")["active"])

    def standbys(self) -> set[str]:
        return set(self.ask("tasks")["standby"])

    def of(self, event: str) -> list[Event]:
        return [e for e in self.process.of(event) if e["instance"] == self.name]

    def states(self) -> list[str]:
        return [event["state"] for event in self.of("state")]

    def runs(self) -> None:
        eventually(f"{self.name} at work", lambda: self.ask("state") == "RUNNING", 30, among=[self.process])

    def fails(self, within_s: float = 30) -> str:
        """Wait until it has failed; return the exceptions of its threads."""
        eventually(
            f"end of {self.name}", lambda: self.ask("state") == "ERROR", within_s, among=[self.process]
        )
        return "\n".join(line for event in self.of("error") for line in event["chain"])

    def close(self, *, remain: bool = False) -> None:
        self.process.call("end", instances=[self.name], remain=remain)
        if self.alone:
            self.process.close()

    def kill(self) -> None:
        assert self.alone, f"{self.name} shares its process"
        self.process.kill()


class Application:
    """An application and its group, of one name; its topics begin with it."""

    def __init__(self, name: str, stage: Stage, directory: Path) -> None:
        self.name = name
        self.stage = stage
        self.directory = directory
        self.apps = stage.apps
        self.topology = ""
        self.instances: list[Instance] = []

    def __repr__(self) -> str:
        return f"<application {self.name}>"

    def topic(self, part: str) -> str:
        return f"{self.name}-{part}"

    # Before it begins.

    def does(self, topology: str, **partitions: int) -> None:
        """What it does, and its topics' numbers of partitions."""
        self.topology = topology
        self.has(**partitions)

    def has(self, **partitions: int) -> None:
        topics = [{"name": self.topic(part), "partitions": count} for part, count in partitions.items()]
        self.apps.call("create_topics", topics=topics)

    def is_set(self, **configs: int) -> None:
        """Set configs of the group: `session_timeout_ms` is `streams.session.timeout.ms`."""
        values = {f"streams.{name.replace('_', '.')}": str(value) for name, value in configs.items()}
        self.apps.call("alter_configs", group=self.name, configs=values)

    # Instances.

    def start(self, name: str, *, alone: bool = False, library: str = "java", **settings: Any) -> Instance:
        """An instance; settings with a dot are Streams' own, `on_error` is this harness's. One that is
        started again has the same client id, and a process with a log of its own."""
        name = f"{self.name}-{name}"
        before = sum(instance.name == name for instance in self.instances)
        process = self.stage.process(f"{name}-{before}", library) if alone else self.apps
        instance = Instance(name, process, alone)
        self.instances.append(instance)
        process.call(
            "launch",
            name=name,
            application=self.name,
            topology=self.topology,
            state_dir=str(self.directory / name),
            on_error=settings.pop("on_error", "SHUTDOWN_CLIENT"),
            settings=settings,
        )
        return instance

    def end(self) -> None:
        """Close every instance that is left."""
        self.apps.call("end", instances=[instance.name for instance in self.instances], within_s=60)
        for instance in self.instances:
            if instance.alone and instance.process.process.poll() is None:
                instance.process.kill()

    def is_shared_by(
        self, *instances: Instance, tasks: Iterable[str], within_s: float = 30
    ) -> dict[str, set[str]]:
        """Wait until every task has one owner, shares are even, and the broker's description agrees; return
        the tasks by instance."""
        wanted = sorted(tasks)

        def shared() -> dict[str, set[str]] | None:
            held = {instance.name: instance.tasks() for instance in instances}
            sizes = [len(each) for each in held.values()]
            if (
                sorted(task for each in held.values() for task in each) != wanted
                or max(sizes) - min(sizes) > 1
            ):
                return None
            description = self.describe()
            described_tasks = active(description["members"])
            return held if description["state"] == "Stable" and described_tasks == held else None

        return eventually(f"sharing by {len(instances)}", shared, within_s, among=self._processes(instances))

    @staticmethod
    def _processes(instances: Iterable[Instance]) -> list[Client]:
        return list({instance.process.name: instance.process for instance in instances}.values())

    # What goes in and comes out.

    def write(self, part: str, rows: Iterable[Row]) -> None:
        self.apps.call("write", topic=self.topic(part), rows=[list(row) for row in rows])

    def read(self, part: str) -> list[Row]:
        rows: list[Row] = self.apps.call("read", topic=self.topic(part))
        return rows

    def makes(self, part: str, values: Iterable[str], within_s: float = 30) -> None:
        """Wait until exactly these values are in a topic, in whichever order."""
        wanted = sorted(values)

        def made() -> bool:
            return sorted(row[2] for row in self.read(part)) == wanted

        eventually(f"output of {len(wanted)}", made, within_s, among=self._processes(self.instances))

    def counts(self, part: str = "counts") -> Counter[str]:
        """Return the latest count of each key."""
        return Counter({key: int(value) for _, key, value in self.read(part)})

    def has_counted(self, wanted: Counter[str], within_s: float = 30) -> None:
        among = self._processes(self.instances)
        eventually(f"counts {wanted}", lambda: self.counts() == wanted, within_s, among=among)

    # The broker's description.

    def describe(self) -> dict[str, Any]:
        """The group as the admin client describes it."""
        description: dict[str, Any] = self.apps.call("describe_streams", group=self.name)
        return description

    def is_explained(self, *wanted: tuple[str, Instance | None]) -> None:
        """Check that the history has these causes in this order, with their clients, if the broker records
        one."""
        if self.stage.broker.explains:
            pairs = [
                (kind, instance and f"{instance.name}-StreamThread-1-consumer") for kind, instance in wanted
            ]
            assert missing(past := history(self.stage.broker, self.name), pairs) == [], past

    def becomes(self, state: str, members: int) -> dict[str, Any]:
        def become() -> dict[str, Any] | None:
            try:
                description = self.describe()
            except Refused as refused:
                assert refused.name == "GROUP_ID_NOT_FOUND"  # no member has joined yet
                return None
            return (
                description
                if (description["state"], len(description["members"])) == (state, members)
                else None
            )

        return eventually(f"{state} group of {members}", become, 30, among=self._processes(self.instances))

    def ends(self, *parts: str, at: str = "latest") -> dict[tuple[str, int], int]:
        names = [self.topic(part) for part in parts]
        sizes = self.apps.call("describe_topics", topics=names)
        everything = [[name, p] for name in names for p in range(sizes[name]["partitions"])]
        rows = self.apps.call("list_offsets", partitions=everything, at=at)
        return {(topic, partition): offset for topic, partition, offset, *_ in rows}

    def committed(self) -> dict[tuple[str, int], int]:
        rows = self.apps.call("group_offsets", group=self.name)
        return {(topic, partition): offset for topic, partition, offset, *_ in rows}

    def has_committed(self, *parts: str) -> None:
        """Wait until everything in these topics is read and committed."""

        def done() -> bool:
            wanted = {at: end for at, end in self.ends(*parts).items() if end}
            committed = self.committed()
            return all(committed.get(at) == end for at, end in wanted.items())

        eventually("commits of everything", done, 30, among=self._processes(self.instances))


def names(subtopology: int, partitions: int) -> set[str]:
    """Tasks as Streams calls them."""
    return {f"{subtopology}_{partition}" for partition in range(partitions)}


def instance_of(member: dict[str, Any]) -> str:
    """A member is a thread; its client id is its instance's with the thread's number and part behind it."""
    name: str = member["client_id"].partition("-StreamThread-")[0]
    return name


def active(members: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """Return each instance's active tasks from the broker's description."""
    tasks: dict[str, set[str]] = {}
    for member in members:
        tasks.setdefault(instance_of(member), set()).update(member["assignment"]["active"])
    return tasks
