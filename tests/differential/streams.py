"""What members of streams groups say, beside the lines of `language.py` and `consumers.py`.

    work WHO [v=1] [group=g] [static=ID] [member=M] [epoch=E] [rebalance=MS] [topo=NAME[@EPOCH]] [process=ID]
             [own=TASKS] [active=TASKS] [standby=TASKS] [warmup=TASKS] [endpoint=HOST:PORT] [seen=EPOCH]
             [tags=KEY:VALUE,...] [rack=ID] [offsets=TASK:OFFSET,...] [ends=TASK:OFFSET,...] [shutdown=yes]
             [full=yes]                                             StreamsGroupHeartbeat
    survey WHO g,h [v=1] [operations=yes] [description=yes]         StreamsGroupDescribe
    draw WHO [group=g] [member=M] [epoch=E]                         StreamsGroupTopologyDescriptionUpdate
    alter WHO g NAME=VALUE NAME ...                                 settings of a group; NAME unsets one
    topology NAME SPELLED ...                                       see `topologies.py`
    until TOPIC,...                                                 wait until the broker has made topics
    look TOPIC [NAME,...]                                           its number of partitions, its settings

TASKS are `0_0,0_1,1_0` of subtopologies and partitions, `all` that it was told, `none`, or `-` for nothing
said; `own` says it of all three kinds, and tasks that are named there are active ones. As in `consumers.py` a
member's id is WHO, and so is its process unless it names one; who is not in a group joins, with the topology
`map` at first and with the one it had later. A member that joins says that it has no tags; `full=yes` says
all of it again, but for the topology. `seen` is what it was told, and -1 before.

Kafka's hash maps have ids of one letter in the order of the alphabet, so members, processes and subtopologies
are named by one letter or digit each.
"""

from __future__ import annotations

from typing import Any

from tests.differential import topologies
from tests.differential.consumers import REBALANCE_MS, ConsumerSpeaker
from tests.differential.language import Line, Memory, text

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
    Topology,
)
from konvene.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)

GROUP = 32
"""The kind of resource whose settings are a group's."""

SET, DELETE = 0, 1
ROLES = ("active", "standby", "warmup")
Tasks = dict[str, tuple[int, ...]]


class StreamsSpeaker(ConsumerSpeaker):
    """Makes requests of the lines of all three protocols."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.topologies = dict(topologies.KNOWN)

    def _work(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        who = line.who.partition("/")[0]
        if "static" in o:
            memory.instance = None if o["static"] == "-" else text(o["static"])
        if "member" in o or not memory.member_id:
            memory.member_id = self._member(memory, o.get("member", f"!{who}"))
        epoch = self._epoch(memory, o.get("epoch"))
        joins = epoch == 0
        full = joins or o.get("full") == "yes"
        memory.process = o.get("process", memory.process or who)
        memory.endpoint = o.get("endpoint", memory.endpoint)
        own = o.get("own", "none" if joins else "all" if full else "-")
        standing = own if own in ("all", "-") else "none"
        return StreamsGroupHeartbeatRequest(
            group_id=self._members_group(memory, line),
            member_id=memory.member_id,
            member_epoch=epoch,
            endpoint_information_epoch=int(o.get("seen", memory.endpoint_epoch)),
            instance_id=memory.instance,
            rack_id=text(o["rack"]) if "rack" in o else None,
            rebalance_timeout_ms=int(o.get("rebalance", REBALANCE_MS if full else -1)),
            topology=self._topology(memory, o.get("topo"), joins),
            active_tasks=_tasks(memory, "active", o.get("active", own)),
            standby_tasks=_tasks(memory, "standby", o.get("standby", standing)),
            warmup_tasks=_tasks(memory, "warmup", o.get("warmup", standing)),
            process_id=text(memory.process) if (full or "process" in o) and memory.process != "-" else None,
            user_endpoint=_endpoint(memory.endpoint) if full or "endpoint" in o else None,
            client_tags=_tags(o.get("tags", "none" if full else "-")),
            task_offsets=_offsets(o.get("offsets", "-")),
            task_end_offsets=_offsets(o.get("ends", "-")),
            shutdown_application=o.get("shutdown") == "yes",
        )

    def _topology(self, memory: Memory, word: str | None, joins: bool) -> Topology | None:
        if word == "-" or (word is None and not joins):
            return None
        memory.topology = word or memory.topology
        name, _, epoch = memory.topology.partition("@")
        return topologies.topology(self.topologies[name], int(epoch or topologies.FIRST_EPOCH), self.topic)

    def _survey(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        return StreamsGroupDescribeRequest(
            group_ids=self._named_groups(line),
            include_authorized_operations=o.get("operations") == "yes",
            include_topology_description=o.get("description") == "yes" and line.version >= 1,
        )

    def _draw(self, memory: Memory, line: Line) -> Struct:
        return StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=self._members_group(memory, line),
            member_id=self._member(memory, line.options.get("member")),
            topology_epoch=int(line.options.get("epoch", topologies.FIRST_EPOCH)),
        )

    def _alter(self, memory: Memory, line: Line) -> Struct:
        group, *settings = line.plain
        named = (setting.partition("=") for setting in settings)
        configs = tuple(
            AlterableConfig(name=n, config_operation=SET if told else DELETE, value=text(v) if told else None)
            for n, told, v in named
        )
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=self.group(group), configs=configs)
        return IncrementalAlterConfigsRequest(resources=(resource,))

    # --- what is heard ---

    def learn(self, memory: Memory, answer: Any) -> None:
        """Remember what a member of a streams group was told."""
        if type(answer).__name__ != "StreamsGroupHeartbeatResponse":
            super().learn(memory, answer)
            return
        memory.last = ("StreamsGroupHeartbeat", Errors(answer.error_code))
        memory.statuses = tuple(s.status_code for s in answer.status or ())
        if answer.error_code != Errors.NONE:
            return
        memory.member_id, memory.generation = answer.member_id, answer.member_epoch
        memory.endpoint_epoch = answer.endpoint_information_epoch
        for role in ROLES:
            told = getattr(answer, f"{role}_tasks")
            if told is not None:
                memory.tasks[role] = {t.subtopology_id: t.partitions for t in told}


def _tasks(memory: Memory, role: str, word: str) -> tuple[TaskIds, ...] | None:
    if word == "-":
        return None
    named = memory.tasks.get(role, {}) if word == "all" else _named(word)
    return tuple(TaskIds(subtopology_id=s, partitions=tuple(p)) for s, p in sorted(named.items()))


def _named(word: str) -> Tasks:
    found: Tasks = {}
    for task in [] if word == "none" else word.split(","):
        subtopology, _, partition = task.rpartition("_")
        found[subtopology] = (*found.get(subtopology, ()), int(partition))
    return found


def _endpoint(word: str | None) -> Endpoint | None:
    if word in (None, "-"):
        return None
    host, _, port = (word or "").rpartition(":")
    return Endpoint(host=text(host), port=int(port))


def _tags(word: str) -> tuple[KeyValue, ...] | None:
    if word == "-":
        return None
    named = (tag.partition(":") for tag in word.split(",") if word != "none")
    return tuple(KeyValue(key=text(key), value=text(value)) for key, _, value in named)


def _offsets(word: str) -> tuple[TaskOffset, ...] | None:
    if word == "-":
        return None
    told = []
    for one in [] if word == "none" else word.split(","):
        task, _, offset = one.partition(":")
        subtopology, _, partition = task.rpartition("_")
        told.append(TaskOffset(subtopology_id=subtopology, partition=int(partition), offset=int(offset)))
    return tuple(told)
