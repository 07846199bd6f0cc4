"""Scenarios: text files of commands to a group coordinator, each block followed by its output.

    join ann protocols=range:orders
    ----
    record group g generation 0 []
    ann <- JoinGroup MEMBER_ID_REQUIRED generation_id=-1 member_id=ann-1

A run rewrites the output. A client remembers group, member id and generation from responses; options override
them. Invariants are checked after every command; a violation ends the run. Commands: `docs/scenarios.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs.errors import ConfigError
from konvene.groups.consumer import targets
from konvene.groups.streams import targets as tasks
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.shard.image import Topic, Topics
from konvene.sim.journal import Log
from konvene.sim.transcript.consumer_commands import (
    assignments,
    consumer_describe,
    consumer_heartbeat,
    heavy,
    kinds,
    subscription,
    work,
)
from konvene.sim.transcript.lines import answer_line
from konvene.sim.transcript.sandbox import Sandbox
from konvene.sim.transcript.share_commands import (
    SHARE_EPOCHS,
    share_alter,
    share_delete,
    share_describe,
    share_forget,
    share_heartbeat,
    state,
)
from konvene.sim.transcript.streams_commands import (
    create,
    ends,
    streams_describe,
    streams_heartbeat,
    streams_targets,
)
from konvene.sim.transcript.vocabulary import (
    EPOCHS,
    NONE,
    Client,
    Options,
    ScenarioError,
    instance,
    member,
    number,
    partitions,
    reason,
)
from konvene.sim.world.compaction import compacted
from konvene.sim.world.event import InvariantViolation

__all__ = ["COMMANDS", "NONE", "Client", "Scenario", "ScenarioError", "run_file"]

DASHES = "----"


class Scenario:
    """A scenario that runs: an interpreter of commands. `broken` is the error that ended it, if any."""

    def __init__(self) -> None:
        self.life = Sandbox()
        self.clients: dict[str, Client] = {}
        self.broken: Exception | None = None
        self.heavy: int | None = None
        """Members and partitions from which targets are computed in the background; None: the default."""
        self._recreated_count = 0

    def run(self, commands: Iterable[str], line: int = 0) -> list[str]:
        """Run commands and return the lines that they print. Raises ScenarioError for a malformed command.

        `line` is the line number of the first command. After a violated invariant no command runs."""
        output: list[str] = []
        for at, text in enumerate(commands, line):
            if self.broken is None and text.strip() and not text.startswith("#"):
                try:
                    output += self._play(text)
                except (ScenarioError, ConfigError) as error:
                    why = error.why if isinstance(error, ScenarioError) else str(error)
                    raise ScenarioError(why, text, at if line else 0) from None
        return output

    def _play(self, text: str) -> list[str]:
        verb, *words = text.split()
        command = COMMANDS.get(verb)
        if command is None:
            raise ScenarioError(f"no such command, expected one of {', '.join(COMMANDS)}", text)
        self.life.transcript.clear()
        default_thresholds = targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT
        if self.heavy is not None:
            targets.OFFLOAD_WEIGHT = tasks.OFFLOAD_WEIGHT = self.heavy
        printed: list[str] | None = []
        try:
            printed = command.play(self, *command.read(text, words))
        except (ScenarioError, ConfigError):
            raise
        except CodecError as error:
            raise ScenarioError(f"not possible in this version ({error})", text) from None
        except Exception as error:  # An invariant that is violated, or what no core may raise.
            self.broken = error
        finally:
            targets.OFFLOAD_WEIGHT, tasks.OFFLOAD_WEIGHT = default_thresholds
        output = list(printed or ())
        for client, entry in self.life.transcript:
            if client:
                self.client(client).handle_response(entry)
                entry = f"{client} <- {answer_line(entry)}"
            output.append(str(entry))
        if self.broken is not None:
            name = "" if isinstance(self.broken, InvariantViolation) else f"{type(self.broken).__name__}: "
            output.append(f"broken {name}{self.broken}".partition("\n")[0])
        return output

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def ask(self, client: str, request: Struct, o: Options, version: int) -> None:
        """Send a client's request in the version of the option `version`, by default in `version`."""
        self.life.ask(client, request, number(o, "version", version))

    def id_of(self, topic: str) -> Uuid:
        """Return the id of a topic; for one that does not exist, the id derived from its name."""
        known = self.life.topics.by_name.get(topic)
        return known.id if known is not None else self.topic_id(topic)

    def topic_id(self, name: str, *, anew: bool = False) -> Uuid:
        """Return the topic id that is derived from a name; with `anew`, from the name and a new number."""
        if anew:
            self._recreated_count += 1
            name = f"{name}-{self._recreated_count}"
        return Uuid(name.encode()[:16].ljust(16, b"-"))


def run_file(text: str) -> str:
    """Run the text of a scenario file; return it with each block's output, below `----`, replaced."""
    scenario = Scenario()
    blocks, at = [], 1
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        commands = lines[: lines.index(DASHES)] if DASHES in lines else lines
        output = scenario.run(commands, at)
        prints_nothing = all(not c.strip() or c.startswith(("#", "config ", "kinds ")) for c in commands)
        if DASHES not in lines and prints_nothing and not output:
            blocks.append(block)
        else:
            blocks.append("\n".join([*commands, DASHES, *output]))
        at += len(lines) + 1
    return "\n\n".join(blocks) + "\n"


# --- requests ------------------------------------------------------------------------------------


def join(s: Scenario, plain: list[str], o: Options) -> None:
    client = s.client(plain[0])
    client.group = o.get("group", client.group)
    client.instance, client.assigned = instance(client, o), False
    version = number(o, "version", 9)
    reads = subscription(o) if "reads" in o else None
    protocols = tuple(
        JoinGroupRequestProtocol(name=n, metadata=unquote_to_bytes(m) if reads is None else reads)
        for n, _, m in (p.partition(":") for p in o.get("protocols", "range:orders").split(",") if p)
    )
    request = JoinGroupRequest(
        group_id=client.group,
        session_timeout_ms=number(o, "session", 10_000),
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if version else -1),
        member_id=member(client, o),
        group_instance_id=client.instance if version >= 5 else None,
        protocol_type=o.get("type", "consumer"),
        protocols=protocols,
        reason=reason(o) if version >= 8 else None,
    )
    s.ask(client.name, request, o, 9)


def sync(s: Scenario, plain: list[str], o: Options) -> None:
    client = s.client(plain[0])
    version = number(o, "version", 5)
    by_member = {
        name: unquote_to_bytes(text)
        for name, _, text in (a.partition(":") for a in o.get("assign", "").split(",") if a)
    }
    if "gives" in o:
        by_member |= assignments(o["gives"], o.get("data"))
    request = SyncGroupRequest(
        group_id=o.get("group", client.group),
        generation_id=number(o, "generation", client.generation),
        member_id=member(client, o),
        group_instance_id=instance(client, o) if version >= 3 else None,
        protocol_type=o.get("type"),
        protocol_name=o.get("protocol"),
        assignments=tuple(
            SyncGroupRequestAssignment(
                member_id=s.clients[name].member_id if name in s.clients else name,
                assignment=assignment,
            )
            for name, assignment in by_member.items()
        ),
    )
    s.ask(client.name, request, o, 5)


def heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    client = s.client(plain[0])
    request = HeartbeatRequest(
        group_id=o.get("group", client.group),
        generation_id=number(o, "generation", client.generation),
        member_id=member(client, o),
        group_instance_id=instance(client, o) if number(o, "version", 4) >= 3 else None,
    )
    s.ask(client.name, request, o, 4)


def leave(s: Scenario, plain: list[str], o: Options) -> None:
    client = s.client(plain[0])
    group_id, version = o.get("group", client.group), number(o, "version", 5)
    request = LeaveGroupRequest(group_id=group_id, member_id=member(client, o))
    if version >= 3:
        why = reason(o) if version >= 5 else None
        leaving = MemberIdentity(
            member_id=member(client, o), group_instance_id=instance(client, o), reason=why
        )
        request = LeaveGroupRequest(group_id=group_id, members=(leaving,))
    s.ask(client.name, request, o, 5)


def remove(s: Scenario, plain: list[str], o: Options) -> None:
    leaving = [MemberIdentity(group_instance_id=i) for i in o.get("instance", "").split(",") if i]
    leaving += [MemberIdentity(member_id=m) for m in o.get("member", "").split(",") if m]
    s.ask(plain[0], LeaveGroupRequest(group_id=o.get("group", "g"), members=tuple(leaving)), o, 5)


def commit(s: Scenario, plain: list[str], o: Options) -> None:
    client = s.client(plain[0])
    version = number(o, "version", 9)
    topics = []
    for topic, index, offset in partitions(plain[1]):
        committed = OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=number({"an offset": offset}, "an offset", 0),
            committed_metadata=unquote(o.get("metadata", "")),
        )
        topics.append(OffsetCommitRequestTopic(**_topic(s, topic, version >= 10), partitions=(committed,)))
    request = OffsetCommitRequest(
        group_id=o.get("group", client.group),
        generation_id_or_member_epoch=number(o, "generation", client.generation),
        member_id=member(client, o),
        group_instance_id=instance(client, o) if version >= 7 else None,
        retention_time_ms=number(o, "retention", -1),
        topics=tuple(topics),
    )
    s.ask(client.name, request, o, 9)


def fetch(s: Scenario, plain: list[str], o: Options) -> None:
    topics = None
    if "topics" in o:
        by_id = number(o, "version", 9) >= 10
        topics = tuple(
            OffsetFetchRequestTopics(**_topic(s, topic, by_id), partition_indexes=(index,))
            for topic, index, _ in partitions(o["topics"])
        )
    group = OffsetFetchRequestGroup(group_id=o.get("group", "g"), topics=topics)
    s.ask(plain[0], OffsetFetchRequest(groups=(group,)), o, 9)


def _topic(s: Scenario, name: str, by_id: bool) -> dict[str, Any]:
    return {"topic_id": s.id_of(name)} if by_id else {"name": name}


def describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", DescribeGroupsRequest(groups=(plain[0],)), o, 6)


def list_groups(s: Scenario, plain: list[str], o: Options) -> None:
    states = tuple(o["state"].split(",")) if "state" in o else ()
    s.ask("admin", ListGroupsRequest(states_filter=states), o, 5)


def delete(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", DeleteGroupsRequest(groups_names=tuple(plain[0].split(","))), o, 3)


def forget(s: Scenario, plain: list[str], o: Options) -> None:
    topics = tuple(
        OffsetDeleteRequestTopic(name=name, partitions=(OffsetDeleteRequestPartition(partition_index=index),))
        for name, index, _ in partitions(plain[1])
    )
    s.ask("admin", OffsetDeleteRequest(group_id=plain[0], topics=topics), o, 0)


def untopic(s: Scenario, plain: list[str], o: Options) -> None:
    deleted = DeleteTopicState(name=plain[0], topic_id=s.id_of(plain[0]))
    s.ask("broker", DeleteTopicsRequest(topics=(deleted,)), o, 6)


# --- cluster -------------------------------------------------------------------------------------


def topic(s: Scenario, plain: list[str], o: Options) -> None:
    name, topics = plain[0], dict(s.life.topics.by_name)
    known = topics.pop(name, None)
    anew = plain[1:] == ["recreate"]
    if plain[1:] and not anew:
        raise ScenarioError(f"expected recreate, not {' '.join(plain[1:])!r}", "")
    count = number(o, "partitions", known.partitions if known is not None else 1)
    if count:
        topic_id = known.id if known is not None and not anew else s.topic_id(name, anew=anew)
        topics[name] = Topic(name, topic_id, count, _racks(o, count))
    is_new = name in topics and (known is None or anew)
    s.life.topics = Topics(topics.values(), s.life.topics.version + is_new)


def _racks(o: Options, count: int) -> tuple[tuple[str, ...], ...]:
    """Return each partition's replica racks from `racks=a,b+c`; the last item repeats. () without `racks`."""
    racks = [tuple(each.split("+")) for each in o["racks"].split(",")] if "racks" in o else []
    return tuple(racks[min(index, len(racks) - 1)] for index in range(count if racks else 0))


def config(s: Scenario, plain: list[str], o: Options) -> None:
    if plain or not o:
        raise ScenarioError("expected KEY=VALUE", "")
    s.life.set_config(*o.items())


def advance(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.advance(number({"MS": plain[0]}, "MS", 0))


def clock(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.event_queue.wall_off_ms += number({"MS": plain[0]}, "MS", 0)


def restart(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.restart()


def crash(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.crash(number(o, "keep", 0))


def compact(s: Scenario, plain: list[str], o: Options) -> None:
    tombstones = o.get("tombstones", "no")
    if tombstones not in ("yes", "no"):
        raise ScenarioError(f"tombstones are kept, yes or no, not {tombstones!r}", "")

    def change(log: Log) -> None:
        log.batches[:] = compacted(log.batches, len(log.batches), tombstones == "yes")

    s.life.crash(len(s.life.log.batches), change)


def hold(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.hold()


def durable(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.durable(number(o, "but", 0))


def fail(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.next_append("fails")


def too_large(s: Scenario, plain: list[str], o: Options) -> None:
    s.life.next_append("too large")


def expire(s: Scenario, plain: list[str], o: Options) -> list[str]:
    fired = s.life.fire_timer(tuple(plain))
    return [] if fired else [f"no timer {' '.join(plain)}"]


def show(s: Scenario, plain: list[str], o: Options) -> list[str]:
    runtime = s.life.runtime
    armed = sorted(((key, runtime.due_ms(key)) for key in runtime.timers), key=repr)
    return [repr(runtime.core.groups.get(plain[0])), *(f"timer {' '.join(k)} in {ms}" for k, ms in armed)]


# --- the table -----------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command of scenarios: its function, and the words and options that it accepts."""

    play: Callable[[Scenario, list[str], Options], list[str] | None]
    words: str = ""
    options: str = ""

    def read(self, text: str, words: list[str]) -> tuple[list[str], Options]:
        """Split words into plain ones and options. Raises ScenarioError if the command does not take them."""
        pairs = [word.partition("=") for word in words if "=" in word]
        plain = [word for word in words if "=" not in word]
        known = self.options.split()
        for name, _, _ in pairs:
            if known != ["KEY"] and name not in known:
                expected = f"expected one of {', '.join(known)}" if known else "it has no options"
                raise ScenarioError(f"no option {name}, {expected}", text)
        expected_words = self.words.split()
        fewest = sum(not word.startswith("[") for word in expected_words)
        if len(plain) < fewest or (len(plain) > len(expected_words) and not self.words.endswith("...]")):
            raise ScenarioError(f"expected {self.words or 'no more words'}", text)
        return plain, {name: value for name, _, value in pairs}


_IDENTITY = "version group member instance"
_SUBSCRIPTION = "reads owns rack data"
_STREAMS_FIELDS = (
    "epoch topology topology-epoch owns active standby warmup rebalance process endpoint endpoint-epoch rack"
    " tags offsets ends shutdown"
)
_CONSUMER_FIELDS = "epoch topics regex owns rebalance rack assignor"
COMMANDS = {
    "join": Command(join, "WHO", f"{_IDENTITY} session rebalance type protocols reason {_SUBSCRIPTION}"),
    "sync": Command(sync, "WHO", f"{_IDENTITY} generation type protocol assign gives data"),
    "heartbeat": Command(heartbeat, "WHO", f"{_IDENTITY} generation"),
    "consumer-heartbeat": Command(
        consumer_heartbeat, f"WHO [{'|'.join(EPOCHS)}]", f"{_IDENTITY} {_CONSUMER_FIELDS}"
    ),
    "consumer-describe": Command(consumer_describe, "GROUP", "version"),
    "streams-heartbeat": Command(
        streams_heartbeat, f"WHO [{'|'.join(EPOCHS)}]", f"{_IDENTITY} {_STREAMS_FIELDS}"
    ),
    "streams-describe": Command(streams_describe, "GROUP", "version"),
    "streams-targets": Command(streams_targets, "", "KEY"),
    "share-heartbeat": Command(
        share_heartbeat, f"WHO [{'|'.join(SHARE_EPOCHS)}]", "version group member epoch topics rack"
    ),
    "share-describe": Command(share_describe, "GROUP", "version"),
    "share-alter": Command(share_alter, "GROUP TOPIC-PARTITION:OFFSET,...", "version"),
    "share-forget": Command(share_forget, "GROUP TOPIC,...", "version"),
    "share-delete": Command(share_delete, "GROUP"),
    "state": Command(state, "[fails]", "group begun failed deleted gone"),
    "create": Command(create, "[fails|denied]"),
    "ends": Command(ends, "TOPIC-PARTITION:END,...", "group member"),
    "leave": Command(leave, "WHO", f"{_IDENTITY} reason"),
    "remove": Command(remove, "WHO", _IDENTITY),
    "commit": Command(commit, "WHO TOPIC-PARTITION:OFFSET,...", f"{_IDENTITY} generation metadata retention"),
    "fetch": Command(fetch, "WHO", "version group topics"),
    "describe": Command(describe, "GROUP", "version"),
    "list": Command(list_groups, "", "version state"),
    "delete": Command(delete, "GROUP,...", "version"),
    "forget": Command(forget, "GROUP TOPIC-PARTITION,..."),
    "untopic": Command(untopic, "TOPIC"),
    "topic": Command(topic, "TOPIC [recreate]", "partitions racks"),
    "config": Command(config, "", "KEY"),
    "advance": Command(advance, "MS"),
    "clock": Command(clock, "MS"),
    "restart": Command(restart),
    "crash": Command(crash, "", "keep"),
    "compact": Command(compact, "", "tombstones"),
    "hold": Command(hold),
    "durable": Command(durable, "", "but"),
    "fail": Command(fail),
    "too-large": Command(too_large),
    "expire": Command(expire, "KEY [KEY...]"),
    "work": Command(work, "[fails]", "group does"),
    "heavy": Command(heavy, "N"),
    "kinds": Command(kinds, "KIND [KIND...]"),
    "show": Command(show, "GROUP"),
}
