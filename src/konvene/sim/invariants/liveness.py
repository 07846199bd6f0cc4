"""The liveness invariants: what a simulated world without faults must reach in bounded time.

When the faults end and no member joins or leaves,

    L7  the coordinator has loaded its log and answers
    L4  dead members are removed when their sessions expire
    L3  each group is stable within two rebalance timeouts: exactly the live members, in one generation, and
        every partition that they subscribe to has an owner
    L6  every record is read and its offset committed; in share groups every record is archived
    L5  then three sessions pass without another generation
    L1  in a consumer group all members reach the new target within four heartbeats of a change
    L2  in a streams group every task runs and is restored, and every standby has caught up, within four
        heartbeats and the restore time of a change. If co-partitioned sources do not fit, no task is assigned
    TX6 every open transaction is ended after its timeout, in every log
    G11, G12  when all members have left, the groups are empty, no request is pending and no timer is armed

`stability` defines when a group is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import is_empty
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms
from konvene.groups.offsets.expiry import EXPIRY_KEY
from konvene.groups.share.decision import CLEANUP_TIMER
from konvene.groups.streams.group import StreamsGroup
from konvene.sim.invariants.stability import is_active, is_stable, members_by_group
from konvene.sim.members import assigns, runs_applications
from konvene.sim.share.faults import SHARE_SETTINGS
from konvene.sim.world.event import MODERN_GROUP_TYPES, InvariantViolation
from konvene.sim.world.fault_actions import clear_shutdown_requests, recreate_topic
from konvene.sim.world.faults import Options
from konvene.sim.world.settings import CONSUMER_SETTINGS, STREAMS_SETTINGS

if TYPE_CHECKING:
    from konvene.sim.world.world import World

COOPERATIVE_MS = 10_000
"""Time in which the second rebalance of a cooperative assignor begins."""
NETWORK_MS = 2_000
"""Allowance for requests and responses in flight."""
LOADING_MS = 120_000
"""Longest load that began during the faults."""
MAX_CLOCK_ERROR_MS = 3_600_000
"""Largest error of the wall clock."""
SLACK_MS = 30_000
"""Allowance for requests lost during the faults, retry backoff, and members that rejoin."""


def check_liveness(world: World) -> None:
    """End all faults, then check the liveness invariants. Raises `InvariantViolation`."""
    _end_faults(world)
    _wait(world, LOADING_MS, lambda: is_active(world), "CoordinatorsServe", lambda: f"{world.runtime!r}")
    session_ms, rebalance_ms = _longest_timeouts(world)  # Also those of members loaded from the log.
    bound_ms = session_ms + 2 * rebalance_ms + SLACK_MS
    bound_ms += _restore_ms(world) + _transaction_ms(world) + _share_ms(world)
    bound_ms += max(0, world.works_until_ms - world.event_queue.now_ms)  # Background work in progress.
    _wait_until_stable(world, bound_ms, "GroupsBecomeStable")
    _wait(world, bound_ms, lambda: _is_drained(world), "EveryRecordIsRead", lambda: _describe_backlog(world))
    world.run_for(COOPERATIVE_MS)
    _wait_until_stable(world, bound_ms, "GroupsBecomeStable")
    _check_convergence(world)
    generations = [_generation(world, m.group) for m in world.live_members()]
    world.run_for(3 * session_ms)
    if [_generation(world, m.group) for m in world.live_members()] != generations or not is_stable(world):
        why = f"after {3 * session_ms} ms without faults: {_describe(world)}"
        raise InvariantViolation("StableGroupsStayStable", why)
    world.runtime.audit()
    # Members that joined since the faults ended may have longer timeouts.
    _check_shutdown(world, *_longest_timeouts(world))


def _generation(world: World, name: str) -> int:
    """Return the epoch of a modern group, or the generation of a classic one."""
    group = world.runtime.core.groups.get(name)
    return group.epoch if isinstance(group, MODERN_GROUP_TYPES) else world.group(name).generation


# --- convergence -------------------------------------------------------------------------------------


def _check_convergence(world: World) -> None:
    if runs_applications(world.kinds):
        _check_streams_convergence(world)
    elif assigns(world.kinds):
        _check_consumer_convergence(world)


def _check_consumer_convergence(world: World) -> None:
    """L1: check that after a topic grows, and after a member leaves, all members reach the new target within
    four heartbeats: one to receive it, one to revoke, one to take over, and one to spare. The first of them
    may come at the default heartbeat interval, which can be longer than the current one."""
    if not _all_groups_are(world, ConsumerGroup):
        return
    config = world.config
    default_ms: int = config["group.consumer.heartbeat.interval.ms"]
    interval_ms = heartbeat_interval_ms(default_ms, config, len(world.live_members()), waits=False)
    if any(not hasattr(member, "held") for member in world.live_members()):
        interval_ms = max(default_ms, world.options["heartbeat.ms"])  # Some use the classic protocol.
    bound_ms = max(default_ms, interval_ms) + 3 * interval_ms
    bound_ms += config["group.consumer.assignment.interval.ms"] + NETWORK_MS
    orders = world.topics.by_name["orders"]
    world.set_topic("orders", orders.partitions + 1, recreate=False)
    _wait_until_stable(world, bound_ms, "MembersConverge")
    _check_convergence_after_leave(world, bound_ms, "MembersConverge")


def _check_streams_convergence(world: World) -> None:
    """L2: check that after the number of standbys changes, and after a member leaves, all tasks are where the
    target has them within four heartbeats and the time to restore them. Members report restored offsets at
    intervals of the option `heartbeat.ms`."""
    if not _all_groups_are(world, StreamsGroup):
        return
    config = world.config
    default_ms: int = config["group.streams.heartbeat.interval.ms"]
    interval_ms = heartbeat_interval_ms(default_ms, config, len(world.live_members()), waits=False)
    bound_ms = max(default_ms, interval_ms) + 3 * interval_ms + _restore_ms(world) + NETWORK_MS
    if "streams-migration" in world.kinds:
        bound_ms += _classic_protocol_ms(world)
    bound_ms += config["group.streams.assignment.interval.ms"] + 2 * world.options["heartbeat.ms"]
    standbys = config["group.streams.num.standby.replicas"]
    before = {name: _generation(world, name) for name in members_by_group(world)}
    world.set("group.streams.num.standby.replicas", str((standbys + 1) % 3))

    def has_converged() -> bool:
        return is_stable(world) and all(_generation(world, name) > epoch for name, epoch in before.items())

    _wait(world, bound_ms, has_converged, "TasksConverge", lambda: _describe(world))
    _check_convergence_after_leave(world, bound_ms, "TasksConverge")


def _check_convergence_after_leave(world: World, bound_ms: int, invariant: str) -> None:
    if len(world.live_members()) > 1:
        world.live_members()[0].leave()  # Its last request is not delivered: its session has to expire.
        _wait_until_stable(world, bound_ms + _longest_timeouts(world)[0], invariant)


def _all_groups_are(world: World, group_class: type) -> bool:
    return all(
        isinstance(world.runtime.core.groups.get(name), group_class) for name in members_by_group(world)
    )


# --- bounds ------------------------------------------------------------------------------------------


def _classic_protocol_ms(world: World) -> int:
    """Return the extra time that members of the classic protocol need. They report offsets at an interval,
    join twice to hand over a task, and start a new generation when only they remain."""
    heartbeats_ms = 8 * int(world.options["heartbeat.ms"])
    return heartbeats_ms + 4 * int(world.config["group.streams.task.offset.interval.ms"]) + SLACK_MS


def _restore_ms(world: World) -> int:
    """Return the time to restore the state of all tasks, including records that are not read yet, one task
    after another; doubled, because a task may be restored as a warm-up first."""
    rate: int = world.options["restore.rate"]
    return 2 * 1_000 * max(world.stores.size(), sum(world.ends.values())) // rate


def _transaction_ms(world: World) -> int:
    """Return the time until an abandoned transaction is aborted, and those that wait for it are done."""
    if world.transactions is None:
        return 0
    interval_ms: int = world.config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
    return 2 * (int(world.options["transaction.timeout.ms"]) + interval_ms)


def _share_ms(world: World) -> int:
    """Return the time until locks of dead members expire and share partitions are initialized."""
    if world.share is None:
        return 0
    longest_ms = max(int(v) for n, values in SHARE_SETTINGS if "lock.duration" in n for v in values)
    return 2 * longest_ms + 2 * int(world.options["initialize.retry.ms"])


def _longest_timeouts(world: World) -> tuple[int, int]:
    """Return the longest session timeout and the longest rebalance timeout that any member has or a setting
    can require, in ms."""
    sessions, rebalances = [world.options["session.ms"]], [world.options["rebalance.ms"]]
    if assigns(world.kinds):
        sessions += (
            int(value)
            for name, values in (*CONSUMER_SETTINGS, *STREAMS_SETTINGS, *SHARE_SETTINGS)
            if "session" in name
            for value in values
        )
    for group in world.runtime.core.groups.values():
        for session_ms, rebalance_ms in TIMEOUTS.get(type(group), _no_timeouts)(group):
            rebalances.append(rebalance_ms)
            if session_ms is not None:
                sessions.append(session_ms)
    return max(sessions), max(rebalances)


def _no_timeouts(group: object) -> Iterator[tuple[int | None, int]]:
    yield from ()


def _classic_timeouts(group: ClassicGroup) -> Iterator[tuple[int | None, int]]:
    for member in group.members.values():
        yield member.session_timeout_ms, member.rebalance_timeout_ms


def _consumer_timeouts(group: ConsumerGroup) -> Iterator[tuple[int | None, int]]:
    for member in group.members.values():
        session_ms = member.classic.session_timeout_ms if member.classic else None
        yield session_ms, member.rebalance_timeout_ms


def _streams_timeouts(group: StreamsGroup) -> Iterator[tuple[int | None, int]]:
    for member in group.members.values():
        yield None, member.rebalance_timeout_ms


TIMEOUTS: Final[dict[type, Callable[[Any], Iterator[tuple[int | None, int]]]]] = {
    ClassicGroup: _classic_timeouts,
    ConsumerGroup: _consumer_timeouts,
    StreamsGroup: _streams_timeouts,
}
"""By class of group: the session timeout of each member, if it has one of its own, and rebalance timeout."""


# --- the end of the faults ---------------------------------------------------------------------------


def _end_faults(world: World) -> None:
    """Disable all faults, end those in progress, and start a member if none is alive."""
    world.log_event("world", "all faults end", None)
    world.faults_disabled = True
    world.conditions = Options.without_faults()
    world.cuts = {}
    world.reset_settings()
    for runtime in world.deposed:
        runtime.die()
    world.deposed = []
    if world.transactions is not None and world.event_queue.wall_off_ms:
        # Transactions time out by the wall clock.
        world.event_queue.wall_off_ms = MAX_CLOCK_ERROR_MS
    for member in world.members:
        if member.paused:
            member.resume()
    for client in world.other_clients:
        client.die()
    if world.share is not None and world.counts["fault topic_gone"]:
        recreate_topic(world, "extra")
    if runs_applications(world.kinds):
        world.internal_topics.delete_misfits()
        clear_shutdown_requests(world)
    if world.options["twins"]:
        _stop_twins(world)
    if not world.live_members():
        world.members[0].start()


def _stop_twins(world: World) -> None:
    """Stop all but the first member of each transactional id, so that none fences another."""
    ids: set[str] = set()
    for member in world.live_members():
        transactional_id = getattr(member, "transactional_id", member.name)
        if transactional_id in ids:
            member.die()
        ids.add(transactional_id)


# --- waiting -----------------------------------------------------------------------------------------


def _wait(
    world: World,
    bound_ms: int,
    condition: Callable[[], bool],
    invariant: str,
    describe: Callable[[], str],
) -> None:
    """Run the simulated world until the condition holds. If it does not hold after `bound_ms`, raise
    `InvariantViolation` for `invariant`, with the text of `describe()`."""
    if not world.run_until(condition, world.event_queue.now_ms + bound_ms):
        raise InvariantViolation(invariant, f"not within {bound_ms} ms without faults: {describe()}")


def _wait_until_stable(world: World, bound_ms: int, invariant: str) -> None:
    _wait(world, bound_ms, lambda: is_stable(world), invariant, lambda: _describe(world))


def _describe(world: World) -> str:
    groups = [f"{world.runtime.core.groups.get(name)!r}" for name in members_by_group(world)]
    return f"{world.runtime.coordinator!r}; {', '.join(groups)}; {', '.join(map(repr, world.live_members()))}"


def _is_drained(world: World) -> bool:
    """Return True if all records are read and committed; in share groups, if all are archived."""
    if world.share is not None:
        return next(world.share.unread(), None) is None
    for members in members_by_group(world).values():
        for member in members:
            for tp in member.owned:
                end = world.ends.get(tp, 0)
                if member.positions.get(tp) != end or member.committed.get(tp) != end:
                    return False
    return True


def _describe_backlog(world: World) -> str:
    if world.share is not None:
        return "; ".join(islice(world.share.unread(), 5))
    unfinished = [
        f"{m.name} {tp[0]}-{tp[1]} at {m.positions.get(tp)}, committed {m.committed.get(tp)},"
        f" end {world.ends.get(tp, 0)}"
        for m in world.live_members()
        for tp in sorted(m.owned)
        if m.committed.get(tp) != world.ends.get(tp, 0)
    ]
    return "; ".join(unfinished[:5])


# --- shutdown ----------------------------------------------------------------------------------------


def _check_shutdown(world: World, session_ms: int, rebalance_ms: int) -> None:
    """Let all members leave, then check that the groups are empty and that nothing is pending.

    `session_ms` and `rebalance_ms` are the longest timeouts, after which the groups must be empty."""
    for member in world.live_members():
        member.leave()
    names = sorted({m.group for m in world.members})
    groups = world.runtime.core.groups
    _wait(
        world,
        2 * session_ms + rebalance_ms,
        lambda: all(name not in groups or is_empty(groups[name]) for name in names),
        "LeftGroupsAreEmpty",
        lambda: ", ".join(repr(groups.get(name)) for name in names),
    )
    if world.runtime.undecided:
        raise InvariantViolation("EveryRequestIsAnswered", f"{world.runtime.undecided} are pending")
    periodic = (EXPIRY_KEY, CLEANUP_TIMER)
    armed = [key for key in world.runtime.timers if key not in periodic and not _is_unused_id(world, key)]
    if armed:
        raise InvariantViolation("TimersMatchState", f"armed in empty groups: {armed}")
    world.runtime.audit()
    if world.transactions is not None:
        _check_transactions_end(world)
    if world.share is not None and world.share.orphans():
        why = f"state of deleted topics remains: {world.share.orphans()[:3]}"
        raise InvariantViolation("DeletedTopicsAreForgotten", why)


def _check_transactions_end(world: World) -> None:
    assert world.transactions is not None
    ledger = world.transactions.ledger
    _wait(
        world,
        _transaction_ms(world) + SLACK_MS,
        lambda: not ledger.left_open(),
        "TransactionsEnd",
        lambda: "; ".join(ledger.left_open()[:3]),
    )


def _is_unused_id(world: World, key: tuple[str, ...]) -> bool:
    """Return True for the key of a session timer of a member id that the group assigned and no member has
    used."""
    return key[0] == "session" and key[2] in world.group(key[1]).pending_joins
