"""Lines of conversations for members of streams groups, in addition to `language.py` and `consumers.py`.

    work WHO [v=1] [group=g] [static=ID] [member=M] [epoch=E] [rebalance=MS] [topo=NAME[@EPOCH]] [process=ID]
             [own=TASKS] [active=TASKS] [standby=TASKS] [warmup=TASKS] [endpoint=HOST:PORT] [seen=EPOCH]
             [tags=KEY:VALUE,...] [rack=ID] [offsets=TASK:OFFSET,...] [ends=TASK:OFFSET,...] [shutdown=yes]
             [full=yes]                                             StreamsGroupHeartbeat
    survey WHO g,h [v=1] [operations=yes] [description=yes]         StreamsGroupDescribe
    draw WHO [group=g] [member=M] [epoch=E]                         StreamsGroupTopologyDescriptionUpdate
    alter WHO g NAME=VALUE NAME ...                                 alter configs of a group; NAME deletes one
    topology NAME SPELLED ...                                       see `topologies.py`
    until TOPIC,...                                                 wait until the broker has created topics
    look TOPIC [NAME,...]                                           show its number of partitions, its configs

TASKS are `0_0,0_1,1_0` (subtopology and partition), `all` (the received assignment), `none`, or `-` for null.
`own` sets all three roles; tasks that it lists are active ones. As in `consumers.py` the default member id is
WHO; it is also the default process id. A member outside the group joins: at first with the topology `map`,
later with its previous topology. A joining member sends empty client tags; `full=yes` sends all fields again,
except the topology. `seen` is the endpoint information epoch; it defaults to the last received one, or -1.

Kafka's hash-map order of ids of one letter is alphabetical, so members, processes and subtopologies are named
by one letter or digit each.
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
"""Resource type of group configs."""

SET, DELETE = 0, 1
ROLES = ("active", "standby", "warmup")
Tasks = dict[str, tuple[int, ...]]


class StreamsSpeaker(ConsumerSpeaker):
    """Builds requests from the lines of the classic, consumer and streams protocols."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.topologies = dict(topologies.KNOWN)

    def _work(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        client = line.client.partition("/")[0]
        if "static" in o:
            memory.instance = None if o["static"] == "-" else text(o["static"])
        if "member" in o or not memory.member_id:
            memory.member_id = self._member(memory, o.get("member", f"!{client}"))
        epoch = self._epoch(memory, o.get("epoch"))
        joins = epoch == 0
        full = joins or o.get("full") == "yes"
        memory.process = o.get("process", memory.process or client)
        memory.endpoint = o.get("endpoint", memory.endpoint)
        own = o.get("own", "none" if joins else "all" if full else "-")
        other_roles = own if own in ("all", "-") else "none"
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
            standby_tasks=_tasks(memory, "standby", o.get("standby", other_roles)),
            warmup_tasks=_tasks(memory, "warmup", o.get("warmup", other_roles)),
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
            AlterableConfig(
                name=n, config_operation=SET if equals else DELETE, value=text(v) if equals else None
            )
            for n, equals, v in named
        )
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=self.group(group), configs=configs)
        return IncrementalAlterConfigsRequest(resources=(resource,))

    # --- responses ---

    def learn(self, memory: Memory, answer: Any) -> None:
        """Update the client's memory from a response."""
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
            tasks = getattr(answer, f"{role}_tasks")
            if tasks is not None:
                memory.tasks[role] = {t.subtopology_id: t.partitions for t in tasks}


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
    offsets = []
    for entry in [] if word == "none" else word.split(","):
        task, _, offset = entry.partition(":")
        subtopology, _, partition = task.rpartition("_")
        offsets.append(TaskOffset(subtopology_id=subtopology, partition=int(partition), offset=int(offset)))
    return tuple(offsets)
