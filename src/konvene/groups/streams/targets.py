"""Target assignments of a streams group, and the members' steps towards them.

A target is computed at the next heartbeat of any member after the group's epoch passed the assignment epoch,
but at the earliest `streams.assignment.interval.ms` after the last target. The first target of a group that
was empty waits for `streams.initial.rebalance.delay.ms`, so that members that start together share the tasks
from the beginning. Meanwhile members get status ASSIGNMENT_DELAYED.

While the topology is not ready it has no tasks, and all targets are empty.

In mode `kip` members with another topology than the group's get no new tasks, even if the assignor gives them
some, and keep their tasks while the group's topology is not ready (`topology.stale_members`). When the
topology is replaced, the target is computed at once and in the core, since the last one has tasks of the
replaced topology.

The target of a large group is computed outside the core (`consumer.work`), if the broker offloads. Until it
arrives, members continue with the last target, and no other computation begins. A target for an outdated
epoch is dropped, and the next heartbeat starts another computation."""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.assignors.tasks.contract import (
    NOTHING,
    AssignmentMemberSpec,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TaskAssignorError,
    Tasks,
)
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, AssignmentComputed, AssignmentToCompute
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.current_assignment import Target, next_assignment
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.racks import describe_topology, with_standby_exchange
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, Status
from konvene.groups.streams.topology.stale_members import withhold_new_tasks
from konvene.groups.streams.warmups import NOT_YET_REPORTED
from konvene.messages.streams_group_heartbeat import Status as ResponseStatus
from konvene.shard.contract import NOTHING as NO_OUTCOME
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError

OFFLOAD_WEIGHT = 5_000
"""Number of members, tasks and standbys from which a target is computed outside the core. Smaller groups take
a few milliseconds."""

Members = dict[str, Member]


def retarget(
    decision: Decision,
    new: Member,
    configured: ConfiguredTopology,
    replaced: str | None,
    statuses: list[ResponseStatus],
) -> MemberAssignment:
    """Return the member's target, after computing new targets of all members if necessary.

    That is so if the group's epoch is ahead of the assignment epoch and the assignment interval has passed.
    The targets of a large group are computed outside the core; until then the last one is returned.
    `replaced`: id of the static member that this one replaces. `statuses`: a status is added if the targets
    are delayed. Raises `GroupError` if the assignor fails.
    """
    group = decision.group
    if decision.soft.delayed:
        statuses.append(_delayed("initial rebalance delay"))
        return NOTHING
    last = group.target_of(replaced if replaced is not None else new.member_id)
    if decision.replaces_topology and decision.soft.computing:
        decision.remember(computing=0)
    if decision.assignment_epoch >= decision.epoch or decision.soft.computing:
        return last
    if not configured.is_resolved and keeps_target(decision):
        statuses.append(waiting_for_expressions())
        return last
    if not _is_due(decision):
        statuses.append(_delayed("assignment interval"))
        return last
    members = {name: member for name, member in group.members.items() if name != replaced}
    members[new.member_id] = new
    targets = _compute(decision, members, configured)
    if targets is None:
        return last
    for name in members:
        known = name in group.targets or (name == new.member_id and replaced is not None)
        previous = last if name == new.member_id else group.target_of(name)
        _record_target(decision, name, previous if known else None, targets)
    decision.complete_assignment(decision.context.now_ms)
    return targets.get(new.member_id, NOTHING)


def compute_first_target(decision: Decision) -> Outcome:
    """Compute and record the first targets of a group, whose initial rebalance delay has ended."""
    group = decision.group
    decision.remember(delayed=False)
    configured = decision.soft.configured
    if group.is_empty or configured is None or decision.soft.computing:
        return decision.outcome()
    if decision.epoch <= decision.assignment_epoch or not _is_due(decision):
        return decision.outcome()
    targets = _compute(decision, group.members, configured)
    if targets is not None:
        _record_targets(decision, targets)
    return decision.outcome()


def assignment_computed(group: StreamsGroup, event: AssignmentComputed, context: Context) -> Outcome:
    """Record the targets that were computed outside the core, unless the group's epoch was bumped since."""
    decision, targets = Decision(group, context), event.result
    if group.soft.computing != event.epoch:
        return NO_OUTCOME
    decision.remember(computing=0)
    if isinstance(targets, GroupError) or not targets.keys() <= group.members.keys():
        return decision.outcome()  # A static member may have another id by now, without an epoch bump.
    if group.epoch == event.epoch > group.assignment_epoch:
        _record_targets(decision, _without_new_tasks_of_stale(decision, group.members, targets))
    return decision.outcome()


def _delayed(cause: str) -> ResponseStatus:
    """Return the status of members whose assignment is delayed by this setting (`cause`)."""
    detail = f"Assignment delayed due to the configured {cause}."
    return ResponseStatus(status_code=Status.ASSIGNMENT_DELAYED, status_detail=detail)


def keeps_target(decision: Decision) -> bool:
    """Return whether members keep their targets while expressions are resolved.

    They do if the topology was validated before.
    """
    return decision.topology is not None and decision.validated_topology_epoch == decision.topology.epoch


def waiting_for_expressions() -> ResponseStatus:
    """Return the status of members that wait for the resolution of source topic expressions."""
    detail = "Assignment delayed until it is known which topics match the source topic expressions."
    return ResponseStatus(status_code=Status.ASSIGNMENT_DELAYED, status_detail=detail)


def _is_due(decision: Decision) -> bool:
    last_ms, interval_ms = (
        decision.group.assignment_timestamp_ms,
        decision.config["streams.assignment.interval.ms"],
    )
    # If the clock was set back, the target is due at once. Kafka waits.
    waits = last_ms <= decision.context.now_ms < last_ms + interval_ms
    return last_ms == 0 or not waits or decision.replaces_topology


def _compute(decision: Decision, members: Members, configured: ConfiguredTopology) -> GroupAssignment | None:
    """Return the targets of all members; None after requesting that they are computed outside the core."""
    if not configured.is_ready or decision.topology is None:
        kept = {name: members[name].current.assigned.tasks for name in _stale_members(decision, members)}
        return dict.fromkeys(members, NOTHING) | kept
    topology = describe_topology(
        configured.topology or decision.topology, configured.tasks, decision.context.topics
    )
    spec = GroupSpec(
        {name: _spec(decision, member) for name, member in members.items()},
        read_configs(decision.assignment_configs),
    )
    assignor = with_standby_exchange(
        decision.assignor, spec.configs, decision.context.config["konvene.streams.mode"]
    )
    weight = len(members) + sum(configured.tasks.values()) * (1 + spec.configs.num_standby_replicas)
    if (
        decision.config["streams.assignor.offload.enable"]
        and weight >= OFFLOAD_WEIGHT
        and not decision.replaces_topology
    ):
        computation = AssignmentToCompute(decision.group.group_id, decision.epoch, assignor, spec, topology)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, computation))
        decision.remember(computing=decision.epoch)
        return None
    try:
        return _without_new_tasks_of_stale(decision, members, assignor.assign(spec, topology))
    except TaskAssignorError as failed:
        cause = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, cause) from failed


def _without_new_tasks_of_stale(
    decision: Decision, members: Members, targets: GroupAssignment
) -> GroupAssignment:
    """Return the targets, changed so that members with a stale topology get no new tasks (mode `kip`)."""
    stale = _stale_members(decision, members)
    if not stale or decision.topology is None:
        return targets
    spec = GroupSpec({name: _spec(decision, member) for name, member in members.items()})
    return withhold_new_tasks(stale, spec, targets, decision.topology.is_stateful)


def _stale_members(decision: Decision, members: Members) -> list[str]:
    """Return the members with another topology than the group's (mode `kip`)."""
    if decision.topology is None or decision.context.config["konvene.streams.mode"] != KIP:
        return []
    return [name for name, member in members.items() if member.topology_epoch != decision.topology.epoch]


def _spec(decision: Decision, member: Member) -> AssignmentMemberSpec:
    """Return the assignor's input for a member, with its current tasks and not its target."""
    report = decision.reported_by(member.member_id) or NOT_YET_REPORTED
    return AssignmentMemberSpec(
        member.process_id, member.current.assigned.tasks, member.instance_id, member.rack_id,
        dict(member.client_tags), report.offsets, report.end_offsets, report.reported_ms, report.reports,
    )  # fmt: skip


def _record_targets(decision: Decision, targets: GroupAssignment) -> None:
    for name in decision.group.members:
        _record_target(decision, name, decision.group.targets.get(name), targets)
    decision.complete_assignment(decision.context.now_ms)


def _record_target(
    decision: Decision, member_id: str, previous: MemberAssignment | None, targets: GroupAssignment
) -> None:
    """Record a member's target if it changed."""
    target = targets.get(member_id, NOTHING)
    if decision.record_target(member_id, previous, target):
        gained = count_gained_tasks(previous or NOTHING, target)
        decision.moved = tuple(map(sum, zip(decision.moved, gained, strict=True)))


def count_gained_tasks(old: MemberAssignment, new: MemberAssignment) -> tuple[int, int, int]:
    """Return how many active, standby and warm-up tasks are in the new target but not in the old one.

    A task that only changes its role is counted in the new role.
    """
    return (
        _count_gained(old.active, new.active),
        _count_gained(old.standby, new.standby),
        _count_gained(old.warmup, new.warmup),
    )


def _count_gained(old: Tasks, new: Tasks) -> int:
    return sum(len(set(new[name]).difference(old.get(name, ()))) for name in new)


# --- reconcile -------------------------------------------------------------------------------------


def maybe_reconcile(
    decision: Decision, member: Member, target: MemberAssignment, owned: MemberAssignment | None
) -> Member:
    """Return the member after its next step towards the target; the same object if there is none."""
    epoch = decision.assignment_epoch
    if member.is_reconciled_to(epoch):
        return member
    processes = decision.group.processes
    current = next_assignment(member.current, Target(epoch, target, member.process_id, processes), owned)
    if current == member.current:
        return member
    return decision.settle(member, current)
