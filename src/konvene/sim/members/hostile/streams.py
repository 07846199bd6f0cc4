"""A hostile or buggy client of streams groups: it sends arbitrary heartbeats, also in the name of other
members.

It claims tasks of other members, unknown tasks or the same task twice, joins with another topology, changes
its endpoint, reports offsets of tasks that it does not own, and requests the shutdown of the application.
Sometimes it joins as a correct client does, and misbehaves as a member.
"""

from __future__ import annotations

from collections.abc import Callable

from konvene.groups.streams.group import StreamsGroup
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from konvene.sim.members.hostile.classic import ACTIONS as CLASSIC_ACTIONS
from konvene.sim.members.hostile.modern import HostileModern
from konvene.sim.members.streams.topologies import NAMES, topology_of

Claims = tuple[TaskIds, ...] | None

_READS = Subtopology(subtopology_id="0", source_topics=("orders",))
MALFORMED_TOPOLOGIES = (
    Topology(epoch=0, subtopologies=()),
    Topology(epoch=-1, subtopologies=(_READS,)),
    Topology(epoch=0, subtopologies=(_READS, _READS)),
    Topology(epoch=0, subtopologies=(_READS.replace(source_topics=(OFFSETS_TOPIC,)),)),
    Topology(epoch=0, subtopologies=(_READS.replace(source_topics=(), source_topic_regex=("o.*",)),)),
    Topology(
        epoch=0,
        subtopologies=(_READS.replace(state_changelog_topics=(TopicInfo(name="counts", partitions=7),)),),
    ),
)
"""Topologies that the coordinator must reject."""


class HostileStreams(HostileModern):
    """A hostile client of streams groups."""

    def _act(self) -> None:
        self.world.random.choice(ACTIONS)(self)

    def _modern_group(self) -> StreamsGroup:
        found = self.world.runtime.core.groups.get(self.group)
        return found if isinstance(found, StreamsGroup) else StreamsGroup(self.group)

    # --- invented values ---

    def _claims(self) -> tuple[Claims, Claims, Claims]:
        """Draw (active, standby, warm-up) tasks to claim: none, a member's, unknown or repeated ones."""
        random, group = self.world.random, self._modern_group()
        candidates: list[Claims] = [(), (), (TaskIds(subtopology_id="nowhere", partitions=(0,)),)]
        candidates.append((TaskIds(subtopology_id="0", partitions=(0, 0, 99)),))
        candidates.append((TaskIds(subtopology_id="0", partitions=(-1,)),))
        for name, owners in group.active.items():
            picked = random.sample(sorted(owners), random.randint(1, len(owners)))
            candidates.append((TaskIds(subtopology_id=name, partitions=tuple(picked)),))
        if random.random() < 0.4:
            return None, None, None
        if random.random() < 0.1:
            candidates.append(None)
        return random.choice(candidates), random.choice(candidates), random.choice(candidates)

    def _topology(self) -> Topology:
        """Draw the topology to join with: usually the group's, else another or a malformed one."""
        random = self.world.random
        mine = topology_of(self.world.options["topology"], self.group)
        if random.random() < 0.6:
            return mine.to_message()
        other = topology_of(random.choice(NAMES), self.group)
        epoch = random.choice([0, 1, 5])
        return random.choice(
            [
                mine._replace(epoch=epoch).to_message(),
                other._replace(epoch=epoch).to_message(),
                *MALFORMED_TOPOLOGIES,
            ]
        )

    def _any_process_id(self) -> str:
        known = [m.process_id for m in self._modern_group().members.values()]
        return self.world.random.choice([self.name, self.name, *known])

    def _offsets(self) -> tuple[TaskOffset, ...] | None:
        one = TaskOffset(subtopology_id="0", partition=0, offset=7)
        strange = TaskOffset(subtopology_id="nowhere", partition=-1, offset=-5)
        huge = TaskOffset(
            subtopology_id="0", partition=0, offset=self.world.random.choice([2**63 - 2, 0, -7])
        )
        return self.world.random.choice(
            [None, None, None, (), (one,), (one, one), (one, strange), (huge,), (huge, strange)]
        )

    def _described(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatRequest:
        """Return the request with a drawn description: new endpoints, repeated tags, arbitrary offsets."""
        random = self.world.random
        tag = KeyValue(key="zone", value=random.choice("ab"))
        endpoint = Endpoint(host=self.name, port=random.randint(0, 65_535))
        return request.replace(
            rack_id=random.choice([None, None, "r1", ""]),
            user_endpoint=random.choice([None, endpoint]),
            client_tags=random.choice([None, None, (tag,), (tag, tag)]),
            task_offsets=self._offsets(),
            task_end_offsets=self._offsets(),
            endpoint_information_epoch=random.choice([-1, 0, 1, 2_000_000_000]),
            shutdown_application=random.random() < 0.02,
        )

    # --- actions ---

    def heartbeat_at_random(self) -> None:
        """Send an arbitrary heartbeat as an arbitrary member."""
        random = self.world.random
        epoch = random.choice([0, 0, -1, -2, -3, *[self._any_generation()] * 5])
        joins = epoch == 0 and random.random() < 0.8
        active, standby, warmup = ((), (), ()) if joins else self._claims()
        request = StreamsGroupHeartbeatRequest(
            group_id=random.choice([self.group, self.group, self.group, "gone"]),
            member_id=self._any_member_id(),
            member_epoch=epoch,
            instance_id=self._any_instance_id(),
            rebalance_timeout_ms=random.choice([1_000, 60_000] if joins else [-1, -1, 0, 60_000]),
            topology=self._topology() if joins or random.random() < 0.1 else None,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=warmup,
            process_id=self._any_process_id() if joins or random.random() < 0.2 else None,
        )
        request = self._described(request)
        self.send(request, random.choice([1, 1, 0]), self._handle_heartbeat)

    def join_properly(self) -> None:
        """Join the group as a correct client does."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=0,
            rebalance_timeout_ms=self.world.random.choice([1_000, 10_000]),
            topology=topology_of(self.world.options["topology"], self.group).to_message(),
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=self._any_process_id(),
        )
        self.send(request, 1, self._handle_heartbeat)

    def heartbeat_with_claims(self) -> None:
        """Send a heartbeat at its own epoch that claims arbitrary tasks."""
        active, standby, warmup = self._claims()
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.assigned_id or self.name,
            member_epoch=self.epoch,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=warmup,
            task_offsets=self._offsets(),
        )
        self.send(request, 1, self._handle_heartbeat)


ACTIONS: tuple[Callable[[HostileStreams], None], ...] = (
    *[HostileStreams.heartbeat_at_random] * 6,
    HostileStreams.join_properly,
    *[HostileStreams.heartbeat_with_claims] * 3,
    HostileStreams.commit_anywhere,
    HostileStreams.fetch,
    *CLASSIC_ACTIONS[-4:],
)
