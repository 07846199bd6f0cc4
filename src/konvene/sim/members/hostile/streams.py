"""A client of streams groups that is not honest, or has a bug: it asks at random, with what it overheard.

It knows the member ids, instance ids, processes and epochs of everybody, claims tasks of others or tasks that
there are not, comes with another topology, says the same task twice, moves its endpoint, tells offsets of
what it has not got, and asks for all of the application to be shut down. Now and then it joins as it should
be done, and is a nuisance as a member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.groups.streams.group import StreamsGroup
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from konvene.sim.members.hostile.classic import ACTS as CLASSIC_ACTS
from konvene.sim.members.hostile.classic import HostileClassic
from konvene.sim.members.streams.topologies import NAMES, topology_of
from konvene.sim.world.process import Answer

if TYPE_CHECKING:
    from konvene.sim.world.world import World

Claims = tuple[TaskIds, ...] | None

_READS = Subtopology(subtopology_id="0", source_topics=("orders",))
ODD = (
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
"""Topologies that nobody should have."""


class HostileStreams(HostileClassic):
    """See the top of this file. It speaks the classic protocol as well, where that is no use."""

    def __init__(self, world: World, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.epoch = 0

    def _tick(self) -> None:
        self.schedule(self.world.random.randint(1, 4_000), self._tick)
        self.world.random.choice(ACTS)(self)

    # --- what it makes up ---

    def _streams(self) -> StreamsGroup:
        found = self.world.runtime.core.groups.get(self.group)
        return found if isinstance(found, StreamsGroup) else StreamsGroup(self.group)

    def _somebody(self) -> str:
        if self.world.random.random() < 0.3:
            return super()._somebody()
        return self.world.random.choice([self.overheard or self.name, self.name, *self._streams().members])

    def _instance(self) -> str | None:
        return self.world.random.choice([None, None, None, self.name, "", *self._streams().instances])

    def _generation(self) -> int:
        group, random = self._streams(), self.world.random
        epochs = [group.epoch, self.epoch, *(m.current.epoch for m in group.members.values())]
        return random.choice(epochs) + random.choice([0, 0, 0, 1, -1, -1_000, 2_000_000_000 - group.epoch])

    def _claims(self) -> tuple[Claims, Claims, Claims]:
        """Nothing; or what somebody has, or what there is not, or the same twice."""
        random, group = self.world.random, self._streams()
        some: list[Claims] = [(), (), (TaskIds(subtopology_id="nowhere", partitions=(0,)),)]
        some.append((TaskIds(subtopology_id="0", partitions=(0, 0, 99)),))
        some.append((TaskIds(subtopology_id="0", partitions=(-1,)),))
        for name, owners in group.active.items():
            picked = random.sample(sorted(owners), random.randint(1, len(owners)))
            some.append((TaskIds(subtopology_id=name, partitions=tuple(picked)),))
        if random.random() < 0.4:
            return None, None, None
        if random.random() < 0.1:
            some.append(None)
        return random.choice(some), random.choice(some), random.choice(some)

    def _topology(self) -> Topology:
        """That of the group, as a rule; or another one, or one that is none."""
        random = self.world.random
        mine = topology_of(self.world.options["topology"], self.group)
        if random.random() < 0.6:
            return mine.to_message()
        other = topology_of(random.choice(NAMES), self.group)
        epoch = random.choice([0, 1, 5])
        return random.choice(
            [mine._replace(epoch=epoch).to_message(), other._replace(epoch=epoch).to_message(), *ODD]
        )

    def _process(self) -> str:
        known = [m.process_id for m in self._streams().members.values()]
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

    def _itself(self) -> dict[str, Any]:
        """What it says of itself: another endpoint each time, tags that come twice."""
        random = self.world.random
        tag = KeyValue(key="zone", value=random.choice("ab"))
        endpoint = Endpoint(host=self.name, port=random.randint(0, 65_535))
        return {
            "rack_id": random.choice([None, None, "r1", ""]),
            "user_endpoint": random.choice([None, endpoint]),
            "client_tags": random.choice([None, None, (tag,), (tag, tag)]),
            "task_offsets": self._offsets(),
            "task_end_offsets": self._offsets(),
            "endpoint_information_epoch": random.choice([-1, 0, 1, 2_000_000_000]),
            "shutdown_application": random.random() < 0.02,
        }

    # --- what it does ---

    def beat(self) -> None:
        """As somebody, at some epoch, saying something."""
        random = self.world.random
        epoch = random.choice([0, 0, -1, -2, -3, *[self._generation()] * 5])
        joins = epoch == 0 and random.random() < 0.8
        active, standby, warmup = ((), (), ()) if joins else self._claims()
        request = StreamsGroupHeartbeatRequest(
            group_id=random.choice([self.group, self.group, self.group, "gone"]),
            member_id=self._somebody(),
            member_epoch=epoch,
            instance_id=self._instance(),
            rebalance_timeout_ms=random.choice([1_000, 60_000] if joins else [-1, -1, 0, 60_000]),
            topology=self._topology() if joins or random.random() < 0.1 else None,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=warmup,
            process_id=self._process() if joins or random.random() < 0.2 else None,
            **self._itself(),
        )
        self.send(request, random.choice([1, 1, 0]), self._heard_beat)

    def come(self) -> None:
        """As it should be done, for once."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=0,
            rebalance_timeout_ms=self.world.random.choice([1_000, 10_000]),
            topology=topology_of(self.world.options["topology"], self.group).to_message(),
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id=self._process(),
        )
        self.send(request, 1, self._heard_beat)

    def stay(self) -> None:
        """At its own epoch, with whatever claims."""
        active, standby, warmup = self._claims()
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.overheard or self.name,
            member_epoch=self.epoch,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=warmup,
            task_offsets=self._offsets(),
        )
        self.send(request, 1, self._heard_beat)

    def _heard_beat(self, answer: Answer) -> None:
        if isinstance(answer, StreamsGroupHeartbeatResponse) and not answer.error_code:
            self.overheard, self.epoch = answer.member_id or self.name, answer.member_epoch

    def commit_somewhere(self) -> None:
        random = self.world.random
        told = OffsetCommitRequestPartition(
            partition_index=random.choice([0, 1, 5, 99]), committed_offset=random.choice([0, 7])
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation(),
            member_id=self._somebody(),
            group_instance_id=self._instance(),
            topics=(OffsetCommitRequestTopic(name=random.choice(["orders", "extra"]), partitions=(told,)),),
        )
        self.send(request, random.choice([8, 9]), lambda answer: None)

    def fetch(self) -> None:
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self._somebody(), member_epoch=self._generation()
        )
        self.send(OffsetFetchRequest(groups=(group,)), 9, lambda answer: None)


ACTS: tuple[Callable[[HostileStreams], None], ...] = (
    *[HostileStreams.beat] * 6,
    HostileStreams.come,
    *[HostileStreams.stay] * 3,
    HostileStreams.commit_somewhere,
    HostileStreams.fetch,
    *CLASSIC_ACTS[-4:],
)
