"""Actions of the fault injector, one function each. `sim.world.faults` has their table."""

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
    alteration,
    beginning_goes,
    deletion,
    deliveries_die,
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
    """One of the faults that were drawn, by weight."""
    names = [f.name for f in ALL_FAULTS if world.options.faults.get(f.name)]
    if not names:
        return
    weights = [world.options.faults[name] for name in names]
    name = world.random.choices(names, weights)[0]
    world.counts[f"fault {name}"] += 1
    world.log_event("fault", name, None)
    FAULT_ACTIONS[name](world)


def log_uniform_ms(world: World, low: float, high: float) -> int:
    """Short ones are as likely as long ones."""
    return round(math.exp(world.random.uniform(math.log(low), math.log(high))))


def maybe_restart(world: World, member: Member) -> None:
    """Who died comes back after a while, as a rule."""
    if not world.faults_disabled and world.random.random() < 0.8:
        gap_ms = log_uniform_ms(world, 10, 3 * world.options["session.ms"])
        world.event_queue.after(gap_ms, _restart, world, member)


def _restart(world: World, member: Member) -> None:
    if not world.faults_disabled and not member.alive and member in world.members:
        world.log_event(member.name, "starts again", None)
        world.restart_member(member)


def _anybody(world: World) -> Member | None:
    live_members = world.live_members()
    return world.random.choice(live_members) if live_members else None


def _crash(world: World) -> None:
    member = _anybody(world)
    if member is not None:
        world.log_event(member.name, "dies", None)
        member.die()
        maybe_restart(world, member)


def _leave(world: World) -> None:
    member = _anybody(world)
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
        world.log_event(member.name, "comes", None)
        member.start()


def _herd(world: World) -> None:
    for member in list(world.members):
        if member.alive:
            member.die()
        world.restart_member(member)


def _pause(world: World) -> None:
    member = _anybody(world)
    if member is not None and not member.paused:
        lasts_ms = log_uniform_ms(world, 1_000, 2 * world.options["session.ms"])
        world.log_event(member.name, f"stands still for {lasts_ms} ms", None)
        member.pause()
        world.event_queue.after(lasts_ms, _wake, world, member, member.life)


def _wake(world: World, member: Member, life: int) -> None:
    if member.life == life and member.paused:
        world.log_event(member.name, "goes on", None)
        member.resume()


def _process(world: World) -> list[Member]:
    """The living members of some process; of a world without processes, one member."""
    member = _anybody(world)
    name = getattr(member, "process_id", None)
    same = [m for m in world.live_members() if name is not None and getattr(m, "process_id", None) == name]
    return same or ([] if member is None else [member])


def _process_dies(world: World) -> None:
    for member in _process(world):
        world.log_event(member.name, "dies with its process", None)
        member.die()
        maybe_restart(world, member)


def _roll(world: World) -> None:
    """One process after another leaves and is back soon."""
    at_ms = 0
    hosts = dict.fromkeys(getattr(m, "host", m.name) for m in world.live_members())
    for host in hosts:
        at_ms += world.random.randint(100, world.options["session.ms"])
        world.event_queue.after(at_ms, restart_host, world, host)


def restart_host(world: World, host: str) -> None:
    for member in list(world.members):
        if member.alive and getattr(member, "host", member.name) == host and not world.faults_disabled:
            world.log_event(member.name, "is started anew", None)
            member.leave()
            world.event_queue.after(world.random.randint(1, 5_000), _restart, world, member)


def _next_topology(world: World) -> None:
    world.internal_topics.next_topology(world.random.choice(_groups(world)))


def _next_protocol(world: World) -> None:
    """An application is rolled to the other protocol, or back, as a whole or in part; as a rule by somebody
    who looks first whether its topics fit."""
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
    at_ms, pause_ms = 0, log_uniform_ms(world, 100, world.options["session.ms"])
    for host in hosts:
        at_ms += world.random.randint(1, pause_ms)
        world.event_queue.after(at_ms, _restart_somehow, world, host)


def _restart_somehow(world: World, host: str) -> None:
    """By a deployment, whose clients say goodbye or do not."""
    says_goodbye = world.random.random() < 0.6
    for member in list(world.members):
        if member.alive and getattr(member, "host", member.name) == host and not world.faults_disabled:
            world.log_event(member.name, "is started anew", None)
            member.leave() if says_goodbye else member.die()
            world.event_queue.after(world.random.randint(1, 3_000), _restart, world, member)


def _shutdown(world: World) -> None:
    member = _anybody(world)
    request_shutdown = getattr(member, "request_shutdown", None)
    if request_shutdown is not None:
        request_shutdown()


def forget_shutdowns(world: World) -> None:
    """Members of the classic protocol would join again for ever, where nobody stops any more."""
    for group in world.runtime.core.groups.values():
        if isinstance(group, StreamsGroup) and group.classic_members and group.soft.shutdown is not None:
            _failover(world)
            return


def cut_off(world: World, way: str) -> frozenset[str]:
    """Who is cut off now, `to` the coordinator or `from` it."""
    return world.cuts[way] if world.cuts else NOBODY


NOBODY: frozenset[str] = frozenset()


def _cut_off(world: World) -> None:
    member = _anybody(world)
    if member is not None and not world.cuts:
        one_way = world.random.random() < 0.25
        ways = [world.random.choice(["to", "from"])] if one_way else ["to", "from"]
        some = frozenset(m.name for m in world.live_members() if m is member or world.random.random() < 0.3)
        world.cuts = {way: some if way in ways else NOBODY for way in ("to", "from")}
        lasts_ms = log_uniform_ms(world, 500, 3 * world.options["session.ms"])
        world.log_event("network", f"cuts off {' '.join(sorted(some))} ({' and '.join(ways)})", None)
        world.event_queue.after(lasts_ms, _heal, world)


def _heal(world: World) -> None:
    world.log_event("network", "heals", None)
    world.cuts = {}


def _resubscribe(world: World) -> None:
    member = _anybody(world)
    change_subscription = getattr(member, "change_subscription", None)
    if change_subscription is not None:
        change_subscription()


# --- the coordinator -----------------------------------------------------------------------------


def append_faults(world: World, runtime: GroupRuntime | TransactionRuntime | ShareStateRuntime) -> None:
    """What becomes of the next append."""
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


def _administered(world: World, wish: Callable[[World, str], Struct]) -> None:
    """With members in it is refused. As a rule they were all sent home before, and come back."""
    group, at_ms = world.random.choice(_groups(world)), 0
    if world.random.random() < 0.8:
        at_ms = log_uniform_ms(world, 10, 5_000)
        for member in world.live_members():
            if member.group == group:
                world.log_event(member.name, "leaves for an administrator", None)
                member.leave()
                maybe_restart(world, member)
    world.event_queue.after(at_ms, lambda: _ask(world, wish(world, group), 0))


def _node_dies(world: World) -> None:
    _transactions_fail_over(world)
    _failover(world)


def _failover(world: World) -> None:
    """The process dies; what the disk does not have for certain is there or not."""
    old = world.runtime
    old.die()
    left = len(world.log.batches) - world.log.durable
    keep = world.random.choice([0, left, world.random.randint(0, left)])
    lost = world.log.lose_tail(keep)
    world.record_command(f"crash keep={keep}")
    _compact(world)
    _begin_again(world, old, lost)


def _failover_loading(world: World) -> None:
    _failover(world)
    world.event_queue.after(world.random.randint(0, 50), _die_if_loading, world)


def _die_if_loading(world: World) -> None:
    if world.runtime.coordinator.state == "loading":
        world.log_event("coordinator", "dies while it is loading", None)
        _failover(world)


def _deposed(world: World) -> None:
    """Another one leads; the old one finds out when it wants to write."""
    old = world.runtime
    old.finish()
    if old.coordinator.state != "active":
        return
    world.log.epoch += 1
    world.log.durable = len(world.log.batches)
    world.deposed = [old]
    world.event_queue.after(log_uniform_ms(world, 10, 20_000), _deposed_dies, world, old)
    _begin_again(world, old, 0)


def _deposed_dies(world: World, old: GroupRuntime) -> None:
    old.die()
    world.deposed = [runtime for runtime in world.deposed if runtime is not old]


def _begin_again(world: World, old: GroupRuntime, lost: int) -> None:
    """A coordinator reads the log."""
    world.runtime = new = world.new_runtime()
    new.succeeds(old, lost)
    for process in (*world.members, *world.other_clients):
        process.disconnect()
    new.load()


def _compact(world: World) -> None:
    """The log cleaner has been there: over all of it, or over a part."""
    if world.random.random() < world.conditions["compaction"]:
        batches = world.log.batches
        end = world.random.choice([len(batches), world.random.randint(0, len(batches))])
        world.log_event("log", f"is compacted up to batch {end}", None)
        tombstones = world.random.random() < 0.5
        world.record_command(f"compact tombstones={'yes' if tombstones else 'no'}")
        world.log.batches = compacted(batches, end, tombstones)


# --- the cluster ---------------------------------------------------------------------------------


def _ask(world: World, request: Struct, version: int) -> None:
    """An administrator asks; what is answered is looked at by the invariants only."""
    admin = Process(world, "admin")
    admin.start()
    admin.send(request, version, lambda answer: None)


def _groups(world: World) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.group for member in world.members))


def _topic_grows(world: World) -> None:
    topic = world.random.choice(list(world.topics.by_name.values()))
    if topic.partitions < 40:
        world.set_topic(topic.name, topic.partitions + world.random.randint(1, 3), recreate=False)


def _topic_anew(world: World) -> None:
    """Offsets of the old one go; the new one begins with no records."""
    name = "extra"
    old = world.topics.by_name.get(name)
    if old is None:
        return
    forget(world, name)
    world.set_topic(name, world.random.randint(1, 4))
    for tp in [tp for tp in world.ends if tp[0] == name]:
        del world.ends[tp]


def forget(world: World, name: str) -> None:
    """What is known of a topic says nothing from now on; its offsets go."""
    world.oracle.topic_recreated(name)
    gone = DeleteTopicState(name=name, topic_id=world.topics.by_name[name].id)
    _ask(world, DeleteTopicsRequest(topics=(gone,)), 6)


def _topic_gone(world: World) -> None:
    name = "extra"
    if name in world.topics.by_name:
        forget(world, name)
        world.delete_topic(name)
        world.event_queue.after(log_uniform_ms(world, 100, 30_000), topic_back, world, name)


def topic_back(world: World, name: str) -> None:
    if name not in world.topics.by_name:
        world.set_topic(name, world.random.randint(1, 4))


def _topic_comes(world: World) -> None:
    """Some of them nobody may describe."""
    name = world.random.choice(["orders-late", "orders-later", f"{SECRET}-orders", "extra-late"])
    if name in world.topics.by_name:
        forget(world, name)
        world.delete_topic(name)
    else:
        world.set_topic(name, world.random.randint(1, 3))


def _internal_gone(world: World) -> None:
    """An operator mends what does not fit, or breaks what does. All is made again, without its records."""
    world.internal_topics.delete_misfits(allow_any=True)


def _setting(world: World) -> None:
    table = settings_of(world.kinds)
    name, values = world.random.choice(table)
    value = world.random.choice(values)
    world.log_event("broker", f"{name}={value}", None)
    world.set(name, value)


def _remove(world: World) -> None:
    """By instance id where there is one, else by member id, as tools do."""
    leaving: dict[str, list[MemberIdentity]] = {}
    for member in world.members:
        if world.random.random() < 0.3:
            instance_id = getattr(member, "instance_id", None)
            member_id = "" if instance_id else member.member_id
            told = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            leaving.setdefault(member.group, []).append(told)
    for group, members in leaving.items():
        _ask(world, LeaveGroupRequest(group_id=group, members=tuple(members)), 5)


def _delete_offsets(world: World) -> None:
    topic = world.random.choice(list(world.topics.by_name.values()))
    index = world.random.randrange(topic.partitions)
    told = OffsetDeleteRequestTopic(
        name=topic.name, partitions=(OffsetDeleteRequestPartition(partition_index=index),)
    )
    _ask(world, OffsetDeleteRequest(group_id=world.random.choice(_groups(world)), topics=(told,)), 0)


def _delete_group(world: World) -> None:
    _ask(world, DeleteGroupsRequest(groups_names=_groups(world)), 2)


def _describe(world: World) -> None:
    groups = _groups(world)
    _ask(world, ListGroupsRequest(), 5)
    _ask(world, DescribeGroupsRequest(groups=(*groups, "nobody")), 6)
    if assigns(world.kinds):
        _ask(world, ConsumerGroupDescribeRequest(group_ids=(*groups, "nobody")), 1)
        if runs_applications(world.kinds):
            _ask(world, StreamsGroupDescribeRequest(group_ids=(*groups, "nobody")), 1)
    _ask(world, OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=g) for g in groups)), 9)


def _clock_step(world: World) -> None:
    world.event_queue.wall_off_ms = world.random.randint(-3_600_000, 3_600_000)
    world.log_event("clock", f"is {world.event_queue.wall_off_ms} ms off", None)


FAULT_ACTIONS: dict[str, Callable[[World], None]] = {
    "crash": _crash,
    "leave": _leave,
    "join": _join,
    "herd": _herd,
    "pause": _pause,
    "cut_off": _cut_off,
    "failover": _failover,
    "failover_loading": _failover_loading,
    "deposed": _deposed,
    "topic_grows": _topic_grows,
    "topic_anew": _topic_anew,
    "setting": _setting,
    "remove": _remove,
    "delete_offsets": _delete_offsets,
    "delete_group": _delete_group,
    "describe": _describe,
    "clock_step": _clock_step,
    "resubscribe": _resubscribe,
    "topic_gone": _topic_gone,
    "topic_comes": _topic_comes,
    "process_dies": _process_dies,
    "roll": _roll,
    "internal_gone": _internal_gone,
    "shutdown": _shutdown,
    "next_topology": _next_topology,
    "next_protocol": _next_protocol,
    "transactions_fail_over": _transactions_fail_over,
    "node_dies": _node_dies,
    "share_state_fails_over": share_state_fails_over,
    "deliveries_die": deliveries_die,
    "share_node_dies": _share_node_dies,
    "offsets_altered": lambda world: _administered(world, alteration),
    "offsets_deleted": lambda world: _administered(world, deletion),
    "beginning_goes": beginning_goes,
}
