"""What members of a streams group are meant to have: when a new target is computed, and of what.

A target is computed when the group's epoch is ahead of the assignment's, at the next heartbeat of any member,
but not sooner than `streams.assignment.interval.ms` after the last one; and the first one of a group that was
empty not before `streams.initial.rebalance.delay.ms` are over, so that members who start together share the
tasks from the beginning. Members are told that it is delayed (status ASSIGNMENT_DELAYED).

While the topology is not ready there are no tasks: everybody's target is to have none.

In mode `kip` members whose topology is not the group's get nothing new, whatever the assignor says, and keep
what they have while the group's is not ready (`stale`). When another topology takes the place of the group's,
the target is computed at once, and here: the last one gives tasks of a topology that is gone.

A large group's target is computed elsewhere (`consumer.work`), if the broker offloads; until it is there
everybody goes on with the last one, and no other one is begun. A target for an epoch that is past is dropped,
and the next heartbeat begins anew.
"""

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
from konvene.groups.streams import log
from konvene.groups.streams.assignors import read_configs
from konvene.groups.streams.current_assignment import Target, next_assignment
from konvene.groups.streams.decision import Decision
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.groups.streams.racks import described, spreading
from konvene.groups.streams.topology.configure import KIP, ConfiguredTopology, Status
from konvene.groups.streams.topology.stale_members import withhold_new_tasks
from konvene.groups.streams.warmups import NOT_YET_REPORTED
from konvene.messages.streams_group_heartbeat import Status as ResponseStatus
from konvene.shard.contract import NOTHING as NO_OUTCOME
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError

HEAVY = 5_000
"""Members, tasks and their copies together: from here on a target is computed elsewhere. Below, it takes few
milliseconds."""

Members = dict[str, Member]


def retarget(
    decision: Decision,
    new: Member,
    configured: ConfiguredTopology,
    replaced: str | None,
    statuses: list[ResponseStatus],
) -> MemberAssignment:
    """What the member is meant to have, by a new target if it is time for one.

    `replaced`: the member whose place it takes. Raises `GroupError` where the assignor has no event."""
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
        statuses.append(expressions_wait())
        return last
    if not _is_due(decision):
        statuses.append(_delayed("assignment interval"))
        return last
    members = {name: member for name, member in group.members.items() if name != replaced}
    members[new.member_id] = new
    given = _compute(decision, members, configured)
    if given is None:
        return last
    for name in members:
        known = name in group.targets or (name == new.member_id and replaced is not None)
        before = last if name == new.member_id else group.target_of(name)
        _write(decision, name, before if known else None, given)
    _at(decision)
    return given.get(new.member_id, NOTHING)


def delay_is_over(decision: Decision) -> Outcome:
    """The first target of a group whose members had time to arrive."""
    group = decision.group
    decision.remember(delayed=False)
    configured = decision.soft.configured
    if group.is_empty or configured is None or decision.soft.computing:
        return decision.outcome()
    if decision.epoch <= decision.assignment_epoch or not _is_due(decision):
        return decision.outcome()
    given = _compute(decision, group.members, configured)
    if given is not None:
        _write_all(decision, given)
    return decision.outcome()


def assignment_computed(group: StreamsGroup, event: AssignmentComputed, context: Context) -> Outcome:
    """Record a target that was computed outside the core, unless it is outdated."""
    decision, given = Decision(group, context), event.given
    if group.soft.computing != event.epoch:
        return NO_OUTCOME
    decision.remember(computing=0)
    if isinstance(given, GroupError) or not given.keys() <= group.members.keys():
        return decision.outcome()  # A static member may have another id by now, without an epoch bump.
    if group.epoch == event.epoch > group.assignment_epoch:
        _write_all(decision, _for_who_is_current(decision, group.members, given))
    return decision.outcome()


def _delayed(why: str) -> ResponseStatus:
    detail = f"Assignment delayed due to the configured {why}."
    return ResponseStatus(status_code=Status.ASSIGNMENT_DELAYED, status_detail=detail)


def keeps_target(decision: Decision) -> bool:
    """Whether the group's topology was validated already, by this coordinator or an earlier one."""
    return decision.topology is not None and decision.validated_topology_epoch == decision.topology.epoch


def expressions_wait() -> ResponseStatus:
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
    """Everybody's target; None where it is computed elsewhere."""
    if not configured.is_ready or decision.topology is None:
        kept = {name: members[name].current.assigned.tasks for name in _stale(decision, members)}
        return dict.fromkeys(members, NOTHING) | kept
    topology = described(configured.topology or decision.topology, configured.tasks, decision.context.topics)
    spec = GroupSpec(
        {name: _spec(decision, member) for name, member in members.items()},
        read_configs(decision.assignment_configs),
    )
    assignor = spreading(decision.assignor, spec.configs, decision.context.config["konvene.streams.mode"])
    weight = len(members) + sum(configured.tasks.values()) * (1 + spec.configs.num_standby_replicas)
    if (
        decision.config["streams.assignor.offload.enable"]
        and weight >= HEAVY
        and not decision.replaces_topology
    ):
        wanted = AssignmentToCompute(decision.group.group_id, decision.epoch, assignor, spec, topology)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, wanted))
        decision.remember(computing=decision.epoch)
        return None
    try:
        return _for_who_is_current(decision, members, assignor.assign(spec, topology))
    except TaskAssignorError as failed:
        why = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, why) from failed


def _for_who_is_current(decision: Decision, members: Members, given: GroupAssignment) -> GroupAssignment:
    """In mode `kip`: who is behind the group's topology gets nothing new."""
    stale = _stale(decision, members)
    if not stale or decision.topology is None:
        return given
    spec = GroupSpec({n: _spec(decision, m) for n, m in members.items()})
    return withhold_new_tasks(stale, spec, given, decision.topology.is_stateful)


def _stale(decision: Decision, members: Members) -> list[str]:
    """In mode `kip`: who is behind the group's topology."""
    if decision.topology is None or decision.context.config["konvene.streams.mode"] != KIP:
        return []
    return [name for name, member in members.items() if member.topology_epoch != decision.topology.epoch]


def _spec(decision: Decision, member: Member) -> AssignmentMemberSpec:
    """What a member has, not what it was meant to have: only there is state."""
    report = decision.reported_by(member.member_id) or NOT_YET_REPORTED
    return AssignmentMemberSpec(
        member.process_id, member.current.assigned.tasks, member.instance_id, member.rack_id,
        dict(member.client_tags), report.offsets, report.end_offsets, report.reported_ms, report.reports,
    )  # fmt: skip


def _write_all(decision: Decision, given: GroupAssignment) -> None:
    for name in decision.group.members:
        _write(decision, name, decision.group.targets.get(name), given)
    _at(decision)


def _write(
    decision: Decision, member_id: str, before: MemberAssignment | None, given: GroupAssignment
) -> None:
    """The record of a member's target, if it is another one."""
    mine = given.get(member_id, NOTHING)
    if before is None or (mine is not before and mine != before):
        decision.moved = tuple(map(sum, zip(decision.moved, gained(before or NOTHING, mine), strict=True)))
        decision.record(log.target_record(decision.group.group_id, member_id, mine))


def gained(before: MemberAssignment, now: MemberAssignment) -> tuple[int, int, int]:
    """How many tasks a member is to have now and was not to have before: active, standby, warm-up.

    One that is to be active where it was a standby counts as well."""
    return (
        _more(before.active, now.active), _more(before.standby, now.standby), _more(before.warmup, now.warmup)
    )  # fmt: skip


def _more(before: Tasks, now: Tasks) -> int:
    return sum(len(set(now[name]).difference(before.get(name, ()))) for name in now)


def _at(decision: Decision) -> None:
    """The target is that of the group's epoch."""
    decision.assignment_epoch = decision.epoch
    decision.record(log.assignment_record(decision.group.group_id, decision.epoch, decision.context.now_ms))


# --- towards it ------------------------------------------------------------------------------------


def maybe_reconcile(
    decision: Decision, member: Member, target: MemberAssignment, owned: MemberAssignment | None
) -> Member:
    """Return the member after its next step towards the target, if there is one."""
    epoch = decision.assignment_epoch
    if member.is_reconciled_to(epoch):
        return member
    processes = decision.group.processes
    current = next_assignment(member.current, Target(epoch, target, member.process_id, processes), owned)
    if current == member.current:
        return member
    return decision.settle(member, current)
