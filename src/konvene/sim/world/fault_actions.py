"""Actions of the fault injector, one function per kind of fault; `sim.world.faults` has their table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from konvene.codec.schema import Struct
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.sim.group_runtime import GroupRuntime
from konvene.sim.members import assigns, runs_applications
from konvene.sim.share.faults import (
    alteration_request,
    deletion_request,
    deliveries_die,
    log_beginning_is_deleted,
    share_state_fails_over,
)
from konvene.sim.world.compaction import compacted
from konvene.sim.world.faults import ALL_FAULTS, SECRET
from konvene.sim.world.process import Process
from konvene.sim.world.settings import settings_of

if TYPE_CHECKING:
    from konvene.sim.members.member import Member
    from konvene.sim.share.runtime import ShareStateRuntime
    from konvene.sim.transactions.runtime import TransactionRuntime
    from konvene.sim.world.world import World

MOST_MEMBERS = 12


def inject_fault(world: World) -> None:
    """Inject one of the drawn faults, chosen by weight."""
    names = [f.name for f in ALL_FAULTS if world.options.faults.get(f.name)]
    if not names:
        return
    weights = [world.options.faults[name] for name in names]
    name = world.random.choices(names, weights)[0]
    world.counts[f"fault {name}"] += 1
    world.log_event("fault", name, None)
    FAULT_ACTIONS[name](world)


def draw_duration_ms(world: World, low: float, high: float) -> int:
    """Draw a duration between `low` and `high` whose logarithm is uniformly distributed."""
    return round(math.exp(world.random.uniform(math.log(low), math.log(high))))


def maybe_restart(world: World, member: Member) -> None:
    """Schedule the restart of a dead member, with probability 0.8 and while faults are enabled."""
    if not world.faults_disabled and world.random.random() < 0.8:
        gap_ms = draw_duration_ms(world, 10, 3 * world.options["session.ms"])
        world.event_queue.after(gap_ms, _restart, world, member)


def _restart(world: World, member: Member) -> None:
    if not world.faults_disabled and not member.alive and member in world.members:
        world.log_event(member.name, "restarts", None)
        world.restart_member(member)


def _random_live_member(world: World) -> Member | None:
    live_members = world.live_members()
    return world.random.choice(live_members) if live_members else None


def _crash(world: World) -> None:
    member = _random_live_member(world)
    if member is not None:
        world.log_event(member.name, "dies", None)
        member.die()
        maybe_restart(world, member)


def _leave(world: World) -> None:
    member = _random_live_member(world)
    if member is not None:
        world.log_event(member.name, "leaves", None)
        member.leave()
        maybe_restart(world, member)


def _join(world: World) -> None:
    dead = [m for m in world.members if not m.alive]
    if dead:
        _restart(world, world.random.choice(dead))
    elif len(world.members) < MOST_MEMBERS:
        member = world.new_member()
        world.log_event(member.name, "joins", None)
        member.start()


def _herd(world: World) -> None:
    for member in list(world.members):
        if member.alive:
            member.die()
        world.restart_member(member)


def _pause(world: World) -> None:
    member = _random_live_member(world)
    if member is not None and not member.paused:
        duration_ms = draw_duration_ms(world, 1_000, 2 * world.options["session.ms"])
        world.log_event(member.name, f"pauses for {duration_ms} ms", None)
        member.pause()
        world.event_queue.after(duration_ms, _resume, world, member, member.life)


def _resume(world: World, member: Member, life: int) -> None:
    if member.life == life and member.paused:
        world.log_event(member.name, "resumes", None)
        member.resume()


def _members_of_random_process(world: World) -> list[Member]:
    """Return the live members of a random member's process, or that member if it belongs to none."""
    member = _random_live_member(world)
    name = getattr(member, "process_id", None)
    siblings = [
        m for m in world.live_members() if name is not None and getattr(m, "process_id", None) == name
    ]
    return siblings or ([] if member is None else [member])


def _process_dies(world: World) -> None:
    for member in _members_of_random_process(world):
        world.log_event(member.name, "dies with its process", None)
        member.die()
        maybe_restart(world, member)


def _roll(world: World) -> None:
    """Restart all hosts one after another; their members leave the group first."""
    at_ms = 0
    hosts = dict.fromkeys(getattr(m, "host", m.name) for m in world.live_members())
    for host in hosts:
        at_ms += world.random.randint(100, world.options["session.ms"])
        world.event_queue.after(at_ms, restart_host, world, host)


def restart_host(world: World, host: str) -> None:
    for member in list(world.members):
        if member.alive and getattr(member, "host", member.name) == host and not world.faults_disabled:
            world.log_event(member.name, "restarts", None)
            member.leave()
            world.event_queue.after(world.random.randint(1, 5_000), _restart, world, member)


def _roll_topology(world: World) -> None:
    world.internal_topics.next_topology(world.random.choice(_groups(world)))


def _roll_protocol(world: World) -> None:
    """Restart all or some hosts of an application with the other protocol.

    Usually the operator first deletes wrongly partitioned internal topics."""
    if world.random.random() < 0.7:
        world.internal_topics.delete_misfits()
    group = world.random.choice(_groups(world))
    now = world.upgraded.get(group, world.options["streams.upgraded"])
    to = float(now < 0.5 or (now < 1 and world.random.random() < 0.5))
    world.upgraded[group] = to
    world.log_event("operator", f"rolls {group} to the {'streams' if to else 'classic'} protocol", None)
    hosts = list(dict.fromkeys(getattr(m, "host", m.name) for m in world.live_members() if m.group == group))
    if hosts and world.random.random() < 0.3:
        hosts = hosts[: world.random.randint(1, len(hosts))]
    at_ms, pause_ms = 0, draw_duration_ms(world, 100, world.options["session.ms"])
    for host in hosts:
        at_ms += world.random.randint(1, pause_ms)
        world.event_queue.after(at_ms, _redeploy_host, world, host)


def _redeploy_host(world: World, host: str) -> None:
    """Restart all members on a host; they either leave their group first or die."""
    leaves_properly = world.random.random() < 0.6
    for member in list(world.members):
        if member.alive and getattr(member, "host", member.name) == host and not world.faults_disabled:
            world.log_event(member.name, "restarts", None)
            member.leave() if leaves_properly else member.die()
            world.event_queue.after(world.random.randint(1, 3_000), _restart, world, member)


def _request_shutdown(world: World) -> None:
    member = _random_live_member(world)
    request_shutdown = getattr(member, "request_shutdown", None)
    if request_shutdown is not None:
        request_shutdown()


def clear_shutdown_requests(world: World) -> None:
    """End requested shutdowns of applications with classic members, which would restart and stop forever.

    The request is soft state, so a failover clears it."""
    for group in world.runtime.core.groups.values():
        if isinstance(group, StreamsGroup) and group.classic_members and group.soft.shutdown is not None:
            _failover(world)
            return


def clients_cut_off(world: World, direction: str) -> frozenset[str]:
    """Return the names of clients whose messages are lost: `to` the coordinator or `from` it."""
    return world.cuts[direction] if world.cuts else NO_CLIENTS


NO_CLIENTS: frozenset[str] = frozenset()


def _cut_off(world: World) -> None:
    member = _random_live_member(world)
    if member is not None and not world.cuts:
        one_way = world.random.random() < 0.25
        directions = [world.random.choice(["to", "from"])] if one_way else ["to", "from"]
        isolated = frozenset(
            m.name for m in world.live_members() if m is member or world.random.random() < 0.3
        )
        world.cuts = {
            direction: isolated if direction in directions else NO_CLIENTS for direction in ("to", "from")
        }
        duration_ms = draw_duration_ms(world, 500, 3 * world.options["session.ms"])
        world.log_event(
            "network", f"cuts off {' '.join(sorted(isolated))} ({' and '.join(directions)})", None
        )
        world.event_queue.after(duration_ms, _end_partition, world)


def _end_partition(world: World) -> None:
    world.log_event("network", "heals", None)
    world.cuts = {}


def _resubscribe(world: World) -> None:
    member = _random_live_member(world)
    change_subscription = getattr(member, "change_subscription", None)
    if change_subscription is not None:
        change_subscription()


# --- the coordinator -----------------------------------------------------------------------------


def append_faults(world: World, runtime: GroupRuntime | TransactionRuntime | ShareStateRuntime) -> None:
    """Draw whether the runtime's next append fails, or is rejected as too large."""
    conditions, random = world.conditions, world.random
    if conditions["append.fails"] and random.random() < conditions["append.fails"]:
        runtime.journal.refuse = "fails"
    elif conditions["too.large"] and random.random() < conditions["too.large"]:
        runtime.journal.refuse = "too large"
    else:
        runtime.journal.refuse = None


def _transactions_fail_over(world: World) -> None:
    if world.transactions is not None:
        world.transactions.fail_over()


def _share_node_dies(world: World) -> None:
    deliveries_die(world)
    share_state_fails_over(world)
    _failover(world)


def _change_share_offsets(world: World, make_request: Callable[[World, str], Struct]) -> None:
    """Send an administrator's request that changes a share group's offsets.

    It is rejected while the group has members, so usually all of them leave first."""
    group, at_ms = world.random.choice(_groups(world)), 0
    if world.random.random() < 0.8:
        at_ms = draw_duration_ms(world, 10, 5_000)
        for member in world.live_members():
            if member.group == group:
                world.log_event(member.name, "leaves for an administrator", None)
                member.leave()
                maybe_restart(world, member)
    world.event_queue.after(at_ms, lambda: _send_as_admin(world, make_request(world, group), 0))


def _node_dies(world: World) -> None:
    _transactions_fail_over(world)
    _failover(world)


def _failover(world: World) -> None:
    """Kill the coordinator and start another; none, some or all batches that are not durable are lost."""
    old = world.runtime
    old.die()
    left = len(world.log.batches) - world.log.durable
    keep = world.random.choice([0, left, world.random.randint(0, left)])
    lost = world.log.lose_tail(keep)
    world.record_command(f"crash keep={keep}")
    _compact(world)
    _start_successor(world, old, lost)


def _failover_loading(world: World) -> None:
    _failover(world)
    world.event_queue.after(world.random.randint(0, 50), _die_if_loading, world)


def _die_if_loading(world: World) -> None:
    if world.runtime.coordinator.state == "loading":
        world.log_event("coordinator", "dies while loading", None)
        _failover(world)


def _deposed(world: World) -> None:
    """Start another coordinator while the old one keeps running for up to 20 s."""
    old = world.runtime
    old.finish()
    if old.coordinator.state != "active":
        return
    world.log.epoch += 1
    world.log.durable = len(world.log.batches)
    world.deposed = [old]
    world.event_queue.after(draw_duration_ms(world, 10, 20_000), _deposed_dies, world, old)
    _start_successor(world, old, 0)


def _deposed_dies(world: World, old: GroupRuntime) -> None:
    old.die()
    world.deposed = [runtime for runtime in world.deposed if runtime is not old]


def _start_successor(world: World, old: GroupRuntime, lost: int) -> None:
    """Start a coordinator that loads the log, and disconnect all clients."""
    world.runtime = new = world.new_runtime()
    new.succeeds(old, lost)
    for process in (*world.members, *world.other_clients):
        process.disconnect()
    new.load()


def _compact(world: World) -> None:
    """Compact the log, completely or in part, with the run's probability `compaction`."""
    if world.random.random() < world.conditions["compaction"]:
        batches = world.log.batches
        end = world.random.choice([len(batches), world.random.randint(0, len(batches))])
        world.log_event("log", f"is compacted up to batch {end}", None)
        tombstones = world.random.random() < 0.5
        world.record_command(f"compact tombstones={'yes' if tombstones else 'no'}")
        world.log.batches = compacted(batches, end, tombstones)


# --- the cluster ---------------------------------------------------------------------------------


def _send_as_admin(world: World, request: Struct, version: int) -> None:
    """Send a request as an administrator, who ignores the response; invariants check it."""
    admin = Process(world, "admin")
    admin.start()
    admin.send(request, version, lambda answer: None)


def _groups(world: World) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.group for member in world.members))


def _topic_grows(world: World) -> None:
    topic = world.random.choice(list(world.topics.by_name.values()))
    if topic.partitions < 40:
        world.set_topic(topic.name, topic.partitions + world.random.randint(1, 3), recreate=False)


def _topic_recreated(world: World) -> None:
    """Delete the topic `extra` with its committed offsets, and recreate it without records."""
    name = "extra"
    old = world.topics.by_name.get(name)
    if old is None:
        return
    forget_topic(world, name)
    world.set_topic(name, world.random.randint(1, 4))
    for tp in [tp for tp in world.ends if tp[0] == name]:
        del world.ends[tp]


def forget_topic(world: World, name: str) -> None:
    """Delete a topic's committed offsets, as its deletion does; the oracle then stops checking them."""
    world.oracle.topic_recreated(name)
    deleted = DeleteTopicState(name=name, topic_id=world.topics.by_name[name].id)
    _send_as_admin(world, DeleteTopicsRequest(topics=(deleted,)), 6)


def _topic_deleted(world: World) -> None:
    name = "extra"
    if name in world.topics.by_name:
        forget_topic(world, name)
        world.delete_topic(name)
        world.event_queue.after(draw_duration_ms(world, 100, 30_000), recreate_topic, world, name)


def recreate_topic(world: World, name: str) -> None:
    if name not in world.topics.by_name:
        world.set_topic(name, world.random.randint(1, 4))


def _topic_created_or_deleted(world: World) -> None:
    """Create or delete a topic that subscribed regular expressions match; one of them is not authorized."""
    name = world.random.choice(["orders-late", "orders-later", f"{SECRET}-orders", "extra-late"])
    if name in world.topics.by_name:
        forget_topic(world, name)
        world.delete_topic(name)
    else:
        world.set_topic(name, world.random.randint(1, 3))


def _delete_internal_topics(world: World) -> None:
    """Delete wrongly partitioned internal topics, or an arbitrary one if there are none.

    The broker creates them again, without records."""
    world.internal_topics.delete_misfits(allow_any=True)


def _setting(world: World) -> None:
    table = settings_of(world.kinds)
    name, values = world.random.choice(table)
    value = world.random.choice(values)
    world.log_event("broker", f"{name}={value}", None)
    world.set(name, value)


def _remove_members(world: World) -> None:
    """Send LeaveGroup requests that remove random members, as Kafka's tools do."""
    leaving: dict[str, list[MemberIdentity]] = {}
    for member in world.members:
        if world.random.random() < 0.3:
            instance_id = getattr(member, "instance_id", None)
            member_id = "" if instance_id else member.member_id
            row = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            leaving.setdefault(member.group, []).append(row)
    for group, members in leaving.items():
        _send_as_admin(world, LeaveGroupRequest(group_id=group, members=tuple(members)), 5)


def _delete_offsets(world: World) -> None:
    topic = world.random.choice(list(world.topics.by_name.values()))
    index = world.random.randrange(topic.partitions)
    row = OffsetDeleteRequestTopic(
        name=topic.name, partitions=(OffsetDeleteRequestPartition(partition_index=index),)
    )
    _send_as_admin(world, OffsetDeleteRequest(group_id=world.random.choice(_groups(world)), topics=(row,)), 0)


def _delete_group(world: World) -> None:
    _send_as_admin(world, DeleteGroupsRequest(groups_names=_groups(world)), 2)


def _describe(world: World) -> None:
    groups = _groups(world)
    _send_as_admin(world, ListGroupsRequest(), 5)
    _send_as_admin(world, DescribeGroupsRequest(groups=(*groups, "nobody")), 6)
    if assigns(world.kinds):
        _send_as_admin(world, ConsumerGroupDescribeRequest(group_ids=(*groups, "nobody")), 1)
        if runs_applications(world.kinds):
            _send_as_admin(world, StreamsGroupDescribeRequest(group_ids=(*groups, "nobody")), 1)
    _send_as_admin(
        world, OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=g) for g in groups)), 9
    )


def _clock_step(world: World) -> None:
    world.event_queue.wall_off_ms = world.random.randint(-3_600_000, 3_600_000)
    world.log_event("clock", f"is {world.event_queue.wall_off_ms} ms off", None)


FAULT_ACTIONS: dict[str, Callable[[World], None]] = {
    "crash": _crash, "leave": _leave, "join": _join, "herd": _herd, "pause": _pause, "cut_off": _cut_off,
    "failover": _failover, "failover_loading": _failover_loading, "deposed": _deposed,
    "topic_grows": _topic_grows, "topic_anew": _topic_recreated, "setting": _setting,
    "remove": _remove_members, "delete_offsets": _delete_offsets, "delete_group": _delete_group,
    "describe": _describe, "clock_step": _clock_step, "resubscribe": _resubscribe,
    "topic_gone": _topic_deleted, "topic_comes": _topic_created_or_deleted, "process_dies": _process_dies,
    "roll": _roll, "internal_gone": _delete_internal_topics, "shutdown": _request_shutdown,
    "next_topology": _roll_topology, "next_protocol": _roll_protocol,
    "transactions_fail_over": _transactions_fail_over, "node_dies": _node_dies,
    "share_state_fails_over": share_state_fails_over, "deliveries_die": deliveries_die,
    "share_node_dies": _share_node_dies,
    "offsets_altered": lambda world: _change_share_offsets(world, alteration_request),
    "offsets_deleted": lambda world: _change_share_offsets(world, deletion_request),
    "log_beginning_deleted": log_beginning_is_deleted,
}  # fmt: skip
