"""What must come about in the end: the liveness invariants, L of the catalogue.

When it is calm nothing fails and nobody comes or goes, so that

    L7  the coordinator has read its log and answers
    L4  who is dead is out when its session has ended
    L3  the group is stable within two rebalance timeouts, with exactly those who live, in one generation,
        and every partition of what they read is somebody's
    L6  everything that there is gets read and committed; where records are shared, each of them is done
    L5  then nothing moves any more: three sessions pass without another generation
    L1  in a consumer group all are where they should be within four heartbeats of a change
    L2  in a streams group every task is run by somebody and restored, every standby has caught up; and so
        within four heartbeats, and the time that restoring takes, of a change. Where the sources that are to
        be joined cannot be, nobody has anything
    TX6 every transaction that was left open is ended when its time is up, and is open in no log
    G11, G12  and when all have left, the group is empty; nobody waits, and no timer is left over
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.consumer.group import State as ConsumerState
from konvene.groups.group_type import is_empty
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.share.decision import TIDY
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import State as StreamsState
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.configure import KIP, Status, configure
from konvene.groups.streams.topology.expressions import expand_expressions
from konvene.groups.streams.topology.topology import Topology, sources
from konvene.sim.invariants.streams.state import matched
from konvene.sim.members import assigns, runs_applications
from konvene.sim.members.streams.application import Application
from konvene.sim.share.faults import SHARE_SETTINGS
from konvene.sim.world.event import InvariantViolation
from konvene.sim.world.fault_actions import clear_shutdown_requests, recreate_topic
from konvene.sim.world.faults import SECRET, Options
from konvene.sim.world.settings import CONSUMER_SETTINGS, STREAMS_SETTINGS

if TYPE_CHECKING:
    from konvene.sim.members.member import Member
    from konvene.sim.world.world import World

SETTLING_MS = 10_000
"""A cooperative rebalance has a second half, which may be about to begin."""
COOPERATIVE = "cooperative-sticky"
SOON_MS = 2_000
"""For the ways of requests and answers."""
LOADING_MS = 120_000
"""For a load that was slow when it began."""
CLOCK_MS = 3_600_000
"""How far the wall clock is off at most."""
SLACK_MS = 30_000
"""For requests that were lost before it became calm, backing off, and members that begin anew."""


def check_liveness(world: World) -> None:
    """End all faults, then check the liveness invariants. Raises `InvariantViolation`."""
    _heal(world)
    _within(world, LOADING_MS, lambda: _serves(world), "CoordinatorsServe", lambda: f"{world.runtime!r}")
    session_ms, rebalance_ms = _longest(world)  # Of all that were read from the log as well.
    bound_ms = session_ms + 2 * rebalance_ms + SLACK_MS + _restoring_ms(world) + _ending_ms(world)
    bound_ms += _sharing_ms(world)
    bound_ms += max(0, world.works_until_ms - world.event_queue.now_ms)  # A target that is being computed.
    _within(world, bound_ms, lambda: _stable(world), "GroupsBecomeStable", lambda: _why_not(world))
    _within(world, bound_ms, lambda: _drained(world), "EveryRecordIsRead", lambda: _backlog(world))
    world.run_for(SETTLING_MS)
    _within(world, bound_ms, lambda: _stable(world), "GroupsBecomeStable", lambda: _why_not(world))
    _converges(world)
    generations = [_generation(world, m.group) for m in world.live_members()]
    world.run_for(3 * session_ms)
    if [_generation(world, m.group) for m in world.live_members()] != generations or not _stable(world):
        why = f"after {3 * session_ms} ms without faults: {_why_not(world)}"
        raise InvariantViolation("StableGroupsStayStable", why)
    world.runtime.audit()
    _everybody_leaves(world, *_longest(world))  # Who joined since it is calm may have asked for more time.


def _generation(world: World, name: str) -> int:
    group = world.runtime.core.groups.get(name)
    if isinstance(group, ConsumerGroup | StreamsGroup | ShareGroup):
        return group.epoch
    return world.group(name).generation


def _converges(world: World) -> None:
    """L1: when a topic grows and when a member leaves, all members reach the new target in four heartbeats.

    One to learn of it, one to revoke, one to take over, and one to spare; the first may be slow."""
    if runs_applications(world.kinds):
        _streams_converge(world)
        return
    if not assigns(world.kinds) or not all(
        isinstance(world.runtime.core.groups.get(name), ConsumerGroup) for name in _groups(world)
    ):
        return
    config = world.config
    beat_ms: int = config["group.consumer.heartbeat.interval.ms"]
    told_ms = heartbeat_interval_ms(beat_ms, config, len(world.live_members()), waits=False)
    if any(not hasattr(member, "held") for member in world.live_members()):
        told_ms = max(beat_ms, world.options["heartbeat.ms"])  # Some speak the classic protocol.
    bound_ms = max(beat_ms, told_ms) + 3 * told_ms + config["group.consumer.assignment.interval.ms"] + SOON_MS
    orders = world.topics.by_name["orders"]
    world.set_topic("orders", orders.partitions + 1, recreate=False)
    _within(world, bound_ms, lambda: _stable(world), "MembersConverge", lambda: _why_not(world))
    if len(world.live_members()) > 1:
        world.live_members()[0].leave()  # What it says does not arrive any more: its session has to end.
        bound_ms += _longest(world)[0]
        _within(world, bound_ms, lambda: _stable(world), "MembersConverge", lambda: _why_not(world))


def _streams_converge(world: World) -> None:
    """L2: there are to be other standbys, and somebody leaves; each time all is as it should be soon.

    A member looks at each tick how far it has restored."""
    config = world.config
    groups = [world.runtime.core.groups.get(name) for name in _groups(world)]
    if not all(isinstance(group, StreamsGroup) for group in groups):
        return
    beat_ms: int = config["group.streams.heartbeat.interval.ms"]
    told_ms = heartbeat_interval_ms(beat_ms, config, len(world.live_members()), waits=False)
    bound_ms = max(beat_ms, told_ms) + 3 * told_ms + _restoring_ms(world) + SOON_MS
    if "streams-migration" in world.kinds:
        bound_ms += _classic_ms(world)
    bound_ms += config["group.streams.assignment.interval.ms"] + 2 * world.options["heartbeat.ms"]
    count = config["group.streams.num.standby.replicas"]
    before = {name: _generation(world, name) for name in _groups(world)}
    world.set("group.streams.num.standby.replicas", str((count + 1) % 3))

    def done() -> bool:
        return _stable(world) and all(_generation(world, name) > at for name, at in before.items())

    _within(world, bound_ms, done, "TasksConverge", lambda: _why_not(world))
    if len(world.live_members()) > 1:
        world.live_members()[0].leave()  # What it says does not arrive any more: its session has to end.
        bound_ms += _longest(world)[0]
        _within(world, bound_ms, lambda: _stable(world), "TasksConverge", lambda: _why_not(world))


def _classic_ms(world: World) -> int:
    """For members of the classic protocol, who tell how far they are when it is time for that, join twice to
    hand something on, and begin a generation where they are left alone."""
    beats_ms = 8 * int(world.options["heartbeat.ms"])
    return beats_ms + 4 * int(world.config["group.streams.task.offset.interval.ms"]) + SLACK_MS


def _restoring_ms(world: World) -> int:
    """For all the state that there is, or will be when everything is read, one task after another; and once
    more, for who warms it up."""
    rate: int = world.options["restore.rate"]
    return 2 * 1_000 * max(world.stores.size(), sum(world.ends.values())) // rate


def _ending_ms(world: World) -> int:
    """For a transaction that was left open when its client died, and those that wait for it."""
    if world.transactions is None:
        return 0
    interval_ms: int = world.config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
    return 2 * (int(world.options["transaction.timeout.ms"]) + interval_ms)


def _heal(world: World) -> None:
    world.log_event("world", "is calm from here on", None)
    world.faults_disabled = True
    world.conditions = Options.without_faults()
    world.cuts = {}
    world.reset_settings()
    for runtime in world.deposed:
        runtime.die()
    world.deposed = []
    if world.transactions is not None and world.event_queue.wall_off_ms:
        world.event_queue.wall_off_ms = CLOCK_MS  # A transaction is open until its time is up, by the clock.
    for member in world.members:
        if member.paused:
            member.resume()
    for other in world.other_clients:
        other.die()
    if world.share is not None and world.counts["fault topic_gone"]:
        recreate_topic(world, "extra")
    if runs_applications(world.kinds):
        world.internal_topics.delete_misfits()
        clear_shutdown_requests(world)
    if world.options["twins"]:
        _one_of_twins(world)
    if not world.live_members():
        world.members[0].start()


def _one_of_twins(world: World) -> None:
    """Of two with one transactional id the first stays, and nobody fences it any more."""
    known: set[str] = set()
    for member in world.live_members():
        name = getattr(member, "transactional_id", member.name)
        if name in known:
            member.die()
        known.add(name)


def _longest(world: World) -> tuple[int, int]:
    """The longest session and rebalance timeout that anybody asked for."""
    sessions, rebalances = [world.options["session.ms"]], [world.options["rebalance.ms"]]
    if assigns(world.kinds):
        sessions += (
            int(value)
            for name, values in (*CONSUMER_SETTINGS, *STREAMS_SETTINGS, *SHARE_SETTINGS)
            if "session" in name
            for value in values
        )
    for group in world.runtime.core.groups.values():
        if isinstance(group, ConsumerGroup):
            rebalances += (m.rebalance_timeout_ms for m in group.members.values())
            sessions += (m.classic.session_timeout_ms for m in group.members.values() if m.classic)
        elif isinstance(group, StreamsGroup):
            rebalances += (m.rebalance_timeout_ms for m in group.members.values())
        elif isinstance(group, ClassicGroup):
            rebalances += (m.rebalance_timeout_ms for m in group.members.values())
            sessions += (m.session_timeout_ms for m in group.members.values())
    return max(sessions), max(rebalances)


def _within(
    world: World, bound_ms: int, done: Callable[[], bool], invariant: str, why_not: Callable[[], str]
) -> None:
    if not world.run_until(done, world.event_queue.now_ms + bound_ms):
        raise InvariantViolation(invariant, f"not within {bound_ms} ms without faults: {why_not()}")


def _groups(world: World) -> dict[str, list[Member]]:
    """The living members by group."""
    groups: dict[str, list[Member]] = {}
    for member in world.live_members():
        groups.setdefault(member.group, []).append(member)
    return groups


def _serves(world: World) -> bool:
    return world.runtime.coordinator.state == "active"


def _stable(world: World) -> bool:
    return _serves(world) and all(
        _group_stable(world, name, members) for name, members in _groups(world).items()
    )


def _group_stable(world: World, name: str, members: list[Member]) -> bool:
    found = world.runtime.core.groups.get(name)
    if isinstance(found, ConsumerGroup):
        return _consumers_stable(world, found, members)
    if isinstance(found, StreamsGroup):
        return _streams_stable(world, found, members)
    if isinstance(found, ShareGroup):
        return _sharers_stable(world, found, members)
    group = world.group(name)
    if runs_applications(world.kinds):
        return _classic_applications_stable(world, group, members)
    if group.state is not State.STABLE or len(group.members) != len(members):
        return False
    owned: set[tuple[str, int]] = set()
    for member in members:
        if not member.is_stable or member.member_id not in group.members or member.epoch != group.generation:
            return False
        owned |= member.owned
    once = sum(len(m.owned) for m in members) == len(owned)
    counts = world.partition_counts()
    topics = {topic for member in members for topic in member.topics}
    wanted = {(topic, p) for topic in topics for p in range(counts.get(topic, 0))}
    return once and (owned == wanted or _may_be_left_out(world, members))


def _consumers_stable(world: World, group: ConsumerGroup, members: list[Member]) -> bool:
    """All at the group's epoch; and every partition of what they read is one's."""
    if group.state is not ConsumerState.STABLE or group.members.keys() != {m.member_id for m in members}:
        return False
    if not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    if not all(expression in group.regexes for expression in group.regex_users):
        return False
    if not world.options["hostile"] and not all(_reads_what_it_says(world, group, m) for m in members):
        return False  # Expressions are resolved again in a while: the epoch will move.
    owned = [tp for member in members for tp in member.owned]
    counts = world.partition_counts()
    topics = {topic for member in members for topic in read_by(world, member)}
    if world.options["hostile"]:
        topics = group.topics  # Somebody may have said something else in a member's name.
    wanted = {(topic, p) for topic in topics for p in range(counts.get(topic, 0))}
    return len(owned) == len(set(owned)) and set(owned) == wanted


def _streams_stable(world: World, group: StreamsGroup, members: list[Member]) -> bool:
    """All at the group's epoch; and each task is run by one, restored. Or they cannot be, and nobody runs.

    Where somebody brought the next topology and left, in mode `kip`, who is behind has what it had."""
    if group.topology is None or group.members.keys() != {m.member_id for m in members}:
        return False
    behind = group.epoch > group.assignment_epoch
    if behind or not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    counts = world.partition_counts()
    mode: str = world.config["konvene.streams.mode"]
    matches = matched(group, world.topics)
    if matches is None:
        return False
    found = configure(group.topology, dict(counts), mode, matches)
    if found.failure is not None and found.failure.status is not Status.INCORRECTLY_PARTITIONED_TOPICS:
        return False
    owned = [tp for member in members for tp in member.owned]
    wanted = {
        (topic, p)
        for name, count in found.tasks.items()
        for topic in sources(expand_expressions(group.topology, matches).subtopologies[name])
        for p in range(min(count, counts[topic]))
        if found.is_ready
    }
    state = StreamsState.STABLE if found.is_ready else StreamsState.NOT_READY
    if group.state is not state or len(owned) != len(set(owned)):
        return False
    stale = [m for m in group.members.values() if m.topology_epoch < group.topology.epoch]
    if mode == KIP and stale:  # Who is not honest brought it.
        return bool(world.options["hostile"]) and (len(stale) == len(group.members) or set(owned) == wanted)
    return set(owned) == wanted and not group.warmup and (not found.is_ready or _shared_out(world, group))


def _classic_applications_stable(world: World, group: ClassicGroup, members: list[Member]) -> bool:
    """All in one generation, and each task is run by one, restored. Or its topics do not fit, and nobody
    runs; static members come back to the assignment that stands, whatever it was made for."""
    if group.state is not State.STABLE or len(group.members) != len(members):
        return False
    if not all(m.is_stable and m.member_id in group.members and m.epoch == group.generation for m in members):
        return False
    owned = [tp for member in members for tp in member.owned]
    sent = [member.topology.to_message() for member in members if isinstance(member, Application)]
    counts = dict(world.partition_counts())
    found = [configure(Topology.from_request(each), counts) for each in dict.fromkeys(sent)]
    if len(owned) != len(set(owned)):
        return False
    if _may_be_left_out(world, members) or len(found) != 1 or not found[0].is_ready:
        return True
    parts = found[0].topology.subtopologies if found[0].topology is not None else {}
    wanted = {
        (topic, p)
        for name, count in found[0].tasks.items()
        for topic in sources(parts[name])
        for p in range(min(count, counts[topic]))
    }
    return set(owned) == wanted


def _shared_out(world: World, group: StreamsGroup) -> bool:
    """Where all are waited for, no two processes could be evened out by a task that moves."""
    members = group.members
    warmups: int = world.config["group.streams.num.warmup.replicas"]
    has_state = group.topology is not None and any(
        map(group.topology.is_stateful, group.topology.subtopologies)
    )
    if (
        not warmups
        or not has_state
        or any(not (r := group.reported.get(i)) or not r.reports for i in members)
    ):
        return True
    threads = Counter(m.process_id for m in members.values())
    count = Counter(dict.fromkeys(threads, 0))
    for m in members.values():
        count[m.process_id] += sum(map(len, m.current.assigned.active.values()))
    return all(
        count[one] * threads[two] <= threads[one] * (count[two] + 1) for one in threads for two in threads
    )


def _sharers_stable(world: World, group: ShareGroup, members: list[Member]) -> bool:
    """All at the group's epoch; and every partition of what they read has begun, and is somebody's."""
    if group.epoch > group.assignment_epoch or group.members.keys() != {m.member_id for m in members}:
        return False
    if not all(m.is_stable and m.epoch == group.epoch for m in members):
        return False
    topics = {topic for member in members for topic in member.topics} & world.topics.by_name.keys()
    known = [world.topics.by_name[name] for name in topics]
    wanted = {(topic.id, p) for topic in known for p in range(topic.partitions)}
    assigned = {
        (topic, p) for target in group.targets.values() for topic, some in target.items() for p in some
    }
    return assigned == wanted


def _sharing_ms(world: World) -> int:
    """For locks of those who are gone, and for share partitions that have yet to begin."""
    if world.share is None:
        return 0
    longest = max(int(v) for n, values in SHARE_SETTINGS if "lock.duration" in n for v in values)
    return 2 * longest + 2 * int(world.options["initialize.retry.ms"])


def _reads_what_it_says(world: World, group: ConsumerGroup, member: Member) -> bool:
    """Whether the group knows what there is to be read. Nobody looks again because a topic is gone: its name
    may stay until it is time to look."""
    known, says = group.topics_of(group.members[member.member_id]), read_by(world, member)
    if world.config["group.consumer.regex.refresh.interval.ms"] > SLACK_MS:
        known = known & (says | world.topics.by_name.keys())
    return known == says


def read_by(world: World, member: Member) -> set[str]:
    """The topics that it reads, and that it may see where it says so by an expression."""
    expression = getattr(member, "regex", "")
    found = set(member.topics)
    if expression:
        found |= {t for t in world.topics.by_name if not t.startswith(SECRET) and re.fullmatch(expression, t)}
    return found


def _may_be_left_out(world: World, members: list[Member]) -> bool:
    """Static members come back to the assignment that stands, in Kafka too. So partitions stay without an
    owner until the next rebalance that came while the leader was away, which does not know for what it was
    made; and those that a cooperative member gave up just before it stopped, and never asked to hand on."""
    static = any(getattr(m, "instance_id", None) is not None for m in members)
    options = world.options
    changes = options["varied"] or options.faults.get("resubscribe")
    return static and bool(world.topic_changes or changes or options["assignor"] == COOPERATIVE)


def _why_not(world: World) -> str:
    groups = [f"{world.runtime.core.groups.get(name)!r}" for name in _groups(world)]
    return f"{world.runtime.coordinator!r}; {', '.join(groups)}; {', '.join(map(repr, world.live_members()))}"


def _drained(world: World) -> bool:
    """All is read, and committed up to the end; where records are shared, each of them is done."""
    if world.share is not None:
        return next(world.share.left(), None) is None
    for members in _groups(world).values():
        for member in members:
            for tp in member.owned:
                end = world.ends.get(tp, 0)
                if member.positions.get(tp) != end or member.committed.get(tp) != end:
                    return False
    return True


def _backlog(world: World) -> str:
    if world.share is not None:
        return "; ".join(islice(world.share.left(), 5))
    left = [
        f"{m.name} {tp[0]}-{tp[1]} at {m.positions.get(tp)}, committed {m.committed.get(tp)},"
        f" end {world.ends.get(tp, 0)}"
        for m in world.live_members()
        for tp in sorted(m.owned)
        if m.committed.get(tp) != world.ends.get(tp, 0)
    ]
    return "; ".join(left[:5])


def _everybody_leaves(world: World, session_ms: int, rebalance_ms: int) -> None:
    for member in world.live_members():
        member.leave()
    names = sorted({m.group for m in world.members})
    groups = world.runtime.core.groups
    _within(
        world,
        2 * session_ms + rebalance_ms,
        lambda: all(name not in groups or is_empty(groups[name]) for name in names),
        "LeftGroupsAreEmpty",
        lambda: ", ".join(repr(groups.get(name)) for name in names),
    )
    if world.runtime.undecided:
        raise InvariantViolation("EveryRequestIsAnswered", f"{world.runtime.undecided} still wait")
    always = (("retention",), TIDY)
    left = [key for key in world.runtime.timers if key not in always and not _pending(world, key)]
    if left:
        raise InvariantViolation("TimersMatchState", f"armed in empty groups: {left}")
    world.runtime.audit()
    if world.transactions is not None:
        _transactions_end(world)
    if world.share is not None and world.share.orphans():
        raise InvariantViolation("DeletedTopicsAreForgotten", f"{world.share.orphans()[:3]} is known")


def _transactions_end(world: World) -> None:
    assert world.transactions is not None
    ledger = world.transactions.ledger
    _within(
        world,
        _ending_ms(world) + SLACK_MS,
        lambda: not ledger.left_open(),
        "TransactionsEnd",
        lambda: "; ".join(ledger.left_open()[:3]),
    )


def _pending(world: World, key: tuple[str, ...]) -> bool:
    """Whether the timer is of a member id that was handed out and never used."""
    return key[0] == "session" and key[2] in world.group(key[1]).pending_joins
